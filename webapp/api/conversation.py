"""What a request for a compaction says by itself, in the shapes that OpenCode has sent it in.

Up to 1.17 the conversation comes as messages and the request to summarise it as the last one; 1.18
sends one user message with the conversation between `<conversation>` tags, each piece of it below a
name such as `[User]:` (measured on 1.3.2, 1.14.48, 1.15.13, 1.17.19 and 1.18.33).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_INNER = re.compile(r"<conversation>\n?(.*)\n?</conversation>", re.DOTALL)
_PRIOR = re.compile(
    r"<(prior-summary|previous-summary)>\n?(.*?)\n?</(?:prior-summary|previous-summary)>", re.DOTALL
)
_PIECE = re.compile(
    r"^\[(User|Assistant|Assistant tool call|Assistant reasoning|Tool [a-z ]+)\]: ", re.M
)
_OPENING = "What did we do so far?"


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the person asked last, the summary of the compaction before, and the whole as text; each
    empty where the request does not tell."""

    request: str
    prior: str
    text: str


def read(messages: object) -> Conversation:
    """Reads the `messages` of a chat completion. Whatever has another form is left out."""
    told = [
        (str(message.get("role")), _content(message))
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, Mapping) and message.get("role") != "system"
    ]
    if not told:
        return Conversation("", "", "")
    template = told[-1][1]
    inner = _INNER.search(template)
    prior = _PRIOR.search(template, inner.end() if inner is not None else 0)
    if inner is not None:
        return Conversation(_last_of(inner[1]), prior[2] if prior else "", inner[1])
    talk = told[:-1]
    summary = prior[2] if prior else _prior_answer(talk)
    asked = [text for role, text in talk if role == "user" and text.strip() and text != _OPENING]
    text = "\n".join(f"[{role}]: {text}" for role, text in talk if text.strip())
    return Conversation(asked[-1] if asked else "", summary, text)


def _last_of(conversation: str) -> str:
    pieces = list(_PIECE.finditer(conversation))
    for at in range(len(pieces) - 1, -1, -1):
        if pieces[at][1] == "User":
            end = pieces[at + 1].start() if at + 1 < len(pieces) else len(conversation)
            return conversation[pieces[at].end() : end].strip()
    return ""


def _prior_answer(talk: Sequence[tuple[str, str]]) -> str:
    """What the model answered to OpenCode's own question after a compaction."""
    for (role, text), (next_role, answer) in pairwise(talk):
        if (role, text, next_role) == ("user", _OPENING, "assistant"):
            return answer
    return ""


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    texts = [content] if isinstance(content, str) else []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            texts.append(f"calls {function.get('name')}({function.get('arguments')})")
    return "\n".join(texts)
