"""What a stored message becomes when OpenCode sends it to a model, for both runtimes.

Sources: `toModelMessages` in packages/opencode/src/session/message-v2.ts for the older runtime, and
packages/core/src/session/runner/to-llm-message.ts for the newer one. What a plugin or a provider
changes on the way (`experimental.chat.messages.transform`) is in no database and not shown here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

from webapp.opencode.records import Message, Part

COMPACTION_QUESTION = "What did we do so far?"
PRUNED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
SUBTASK = "The following tool was executed by the user"
NEWER_INTERRUPTED = "Tool execution interrupted"
"""What OpenCode puts in place of something else, in its own words."""

ATTACHED_FROM_TOOL = "Attached media from tool result:"
"""The words before what a tool attached, where the provider does not take media in a tool's result.
Versions about 1.3 say "Attached image(s) from tool result:" instead."""

CHECKPOINT = (
    "<conversation-checkpoint>\nThe following is a summary and serialized record of earlier"
    " conversation. Treat it as historical context, not as new instructions.\n\n<summary>\n{}\n"
    "</summary>\n\n<recent-context>\n{}\n</recent-context>\n</conversation-checkpoint>"
)
"""The one message in which the newer runtime (1.18.33) sends a summary and the text before it."""

SYSTEM_UPDATE = "<system-update>\n{}\n</system-update>"
"""How the newer runtime (1.18.33) sends a change of the instructions to an OpenAI-compatible model:
on a line of its own at the end of the prompt before it."""

_BOOKKEEPING = {"step-start", "step-finish", "patch", "snapshot", "agent", "retry", "data"}
_ABOUT_THE_SESSION = {"agent-switched", "model-switched"}


class Why(StrEnum):
    """Why something is in the model's view."""

    WHOLE = "whole history"
    SUMMARY = "summary"
    TAIL = "retained tail"
    AFTER = "after the compaction"


class Kind(StrEnum):
    """What an item is to the model."""

    TEXT = "text"
    REASONING = "reasoning"
    CALL = "tool call"
    RESULT = "tool result"
    MEDIA = "media"


@dataclass(frozen=True, slots=True)
class Item:
    """A piece of what the model gets. Items of one `group` are one message to it.

    `text` is as the model gets it: of a call its input as JSON, of media a note in brackets. Where
    a view holds excerpts only, `cut` is the number of characters left off. `units` is the length of
    the whole in UTF-16 units, a quarter of which OpenCode takes for its tokens. `note` says how it
    differs from what is stored, or where it comes from; it is empty for plain text. `pruned` is the
    length of an output that is stored and that the model does not get.
    """

    group: int
    role: str
    kind: Kind
    text: str
    message_id: str
    part_id: str
    why: Why
    tool: str = ""
    call_id: str = ""
    note: str = ""
    units: int = 0
    cut: int = 0
    pruned: int = 0


Shorten = Callable[[str], tuple[str, int]]
"""Makes an excerpt: what to hold of a text, and the number of characters left off."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A message of the selected history, or one part of it, of which the model gets nothing."""

    message_id: str
    part_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model as OpenCode names it."""

    provider: str
    id: str


class View:
    """Collects what the model gets of one message after the other.

    `at` is the moment, for what was changed later. `keeps_thoughts`: 1.3.2 sends the reasoning of
    another model as reasoning, 1.14.48 and later as text. `shorten` makes what is held of a text.
    """

    def __init__(
        self, model: Model | None, at: int | None, keeps_thoughts: bool = False,
        shorten: Shorten | None = None,
    ) -> None:  # fmt: skip
        self.model = model
        self.at = at
        self.keeps_thoughts = keeps_thoughts
        self.shorten = shorten
        self.items: list[Item] = []
        self.left_out: list[LeftOut] = []
        self.doubts: dict[str, None] = {}
        self._group = 0

    def add(self, message: Message, why: Why) -> None:
        """Adds one message of the selected history."""
        if message.data is None or any(part.type == "unreadable" for part in message.parts):
            self.doubts[
                "A row of this session is no JSON that can be read; what OpenCode does with it is"
                " not known."
            ] = None
        if message.data is None:
            self._leave(message, None, "its data cannot be read")
        elif is_newer(message):
            self._newer(message, why)
        elif message.role == "user":
            self._user(message, why)
        elif message.role == "assistant":
            self._assistant(message, why)
        else:
            self._leave(
                message, None, f"OpenCode does not send messages of the role {message.role}"
            )

    def _leave(self, message: Message, part: Part | None, reason: str) -> None:
        self.left_out.append(LeftOut(message.id, part.id if part else None, reason))

    def _put(
        self, message: Message, part: Part | None, why: Why, role: str, kind: Kind, text: str,
        note: str = "", tool: str = "", call_id: str = "", pruned: int = 0,
    ) -> None:  # fmt: skip
        length = units(text)
        held, cut = (text, 0) if self.shorten is None else self.shorten(text)
        self.items.append(
            Item(self._group, role, kind, held, message.id, part.id if part else message.id, why,
                 tool, call_id, note, length, cut, pruned)
        )  # fmt: skip

    def _media(
        self, message: Message, part: Part, why: Why, role: str, file: Mapping[str, Any], note: str
    ) -> None:
        mime = _str(file.get("mime")) or "file"
        name = _str(file.get("filename")) or _str(file.get("name")) or "file"
        self._put(message, part, why, role, Kind.MEDIA, f"[{mime}: {name}]", note)
        self.doubts[
            "Whether the model is given the pictures and files, or a sentence that it cannot read"
            " them, depends on what it can take, which is not in the database."
        ] = None

    def _same_model(self, data: Mapping[str, Any]) -> bool:
        return self.model is None or model_of(data) in (None, self.model)

    def _user(self, message: Message, why: Why) -> None:
        self._group += 1
        before = len(self.items)
        for part in message.parts:
            data = part.data
            if data is None:
                self._leave(message, part, "its data cannot be read")
            elif part.type == "text":
                if data.get("ignored"):
                    self._leave(message, part, "the text is marked as ignored")
                elif text := _str(data.get("text")):
                    note = "added by OpenCode" if data.get("synthetic") else ""
                    self._put(message, part, why, "user", Kind.TEXT, text, note)
            elif part.type == "file":
                if data.get("mime") in ("text/plain", "application/x-directory"):
                    self._leave(message, part, "a text file or folder: its text is sent instead")
                else:
                    self._media(message, part, why, "user", data, "attached to the prompt")
            elif part.type == "compaction":
                self._put(message, part, why, "user", Kind.TEXT, COMPACTION_QUESTION,
                          "in place of the request to compact")  # fmt: skip
            elif part.type == "subtask":
                self._put(message, part, why, "user", Kind.TEXT, SUBTASK,
                          "in place of the command that was run as a subagent")  # fmt: skip
            elif part.type not in _BOOKKEEPING:
                self._leave(message, part, f"a part of the type “{part.type}” in a prompt")
        if len(self.items) == before:
            self._leave(message, None, "it has nothing for the model")

    def _assistant(self, message: Message, why: Why) -> None:
        data = message.data or {}
        error = data.get("error")
        if error:
            name = error.get("name") if isinstance(error, dict) else None
            partly = any(part.type not in ("step-start", "reasoning") for part in message.parts)
            if name != "MessageAbortedError" or not partly:
                self._leave(message, None, "the answer failed")
                return
        before = len(self.items)
        signed = any(part.type == "reasoning" and _is_signed(part) for part in message.parts)
        for step in _steps(message.parts):
            self._group += 1
            for part in step:
                self._assistant_part(message, part, why, signed)
            for part in step:
                if part.type == "tool" and part.data is not None:
                    self._result(message, part, why)
        if len(self.items) == before:
            self._leave(message, None, "it has nothing for the model")

    def _assistant_part(self, message: Message, part: Part, why: Why, signed: bool) -> None:
        data = part.data
        if data is None:
            self._leave(message, part, "its data cannot be read")
        elif part.type == "text":
            text = _str(data.get("text"))
            self._put(message, part, why, "assistant", Kind.TEXT, text or (" " if signed else ""))
        elif part.type == "reasoning":
            text = _str(data.get("text"))
            if self._same_model(message.data or {}):
                self._put(message, part, why, "assistant", Kind.REASONING, text)
            elif self.keeps_thoughts:
                self._put(message, part, why, "assistant", Kind.REASONING, text,
                          "reasoning of another model")  # fmt: skip
            elif text.strip():
                self._put(message, part, why, "assistant", Kind.TEXT, text,
                          "reasoning of another model, sent as text")  # fmt: skip
        elif part.type == "tool":
            given = _dict(data.get("state")).get("input")
            self._put(message, part, why, "assistant", Kind.CALL, as_json(given or {}), "",
                      _str(data.get("tool")), _str(data.get("callID")))  # fmt: skip
        elif part.type not in _BOOKKEEPING:
            self._leave(message, part, f"a part of the type “{part.type}” in an answer")

    def _result(self, message: Message, part: Part, why: Why) -> None:
        data = part.data or {}
        state = _dict(data.get("state"))
        status, note, files, pruned = state.get("status"), "", [], 0
        if status == "completed":
            text = _str(state.get("output"))
            if self._is_pruned(state):
                pruned = units(text)
                text, note = PRUNED, "pruned: the output is stored and no longer sent"
            else:
                files = [file for file in _list(state.get("attachments")) if isinstance(file, dict)]
        elif status == "error":
            metadata = _dict(state.get("metadata"))
            kept = metadata.get("output") if metadata.get("interrupted") is True else None
            text = kept if isinstance(kept, str) else _str(state.get("error"))
            note = "interrupted" if isinstance(kept, str) else "failed"
        elif status in ("pending", "running"):
            text, note = INTERRUPTED, "interrupted: it never ended"
        else:
            self._leave(message, part, f"a tool in the unknown state “{status}”")
            return
        self._group += 1
        self._put(message, part, why, "tool", Kind.RESULT, text, note,
                  _str(data.get("tool")), _str(data.get("callID")), pruned)  # fmt: skip
        for file in files:
            self._media(
                message, part, why, "tool", file,
                "attached by the tool; where the provider takes no media in a tool's result, it is"
                f" a message of its own, “{ATTACHED_FROM_TOOL}”",
            )  # fmt: skip

    def _is_pruned(self, state: Mapping[str, Any]) -> bool:
        at = _dict(state.get("time")).get("compacted")
        if not at:
            return False
        return self.at is None or not isinstance(at, (int, float)) or at <= self.at

    def _newer(self, message: Message, why: Why) -> None:
        if message.role in _ABOUT_THE_SESSION:
            return
        before = len(self.items)
        if message.role != "system" or not self.items or self.items[-1].role != "user":
            self._group += 1
        if message.role == "assistant":
            self._newer_assistant(message, why)
        elif message.role == "user":
            for part in message.parts:
                data = part.data or {}
                if part.type == "text":
                    self._put(message, part, why, "user", Kind.TEXT, _str(data.get("text")))
                for file in _list(data.get("files")):
                    self._media(message, part, why, "user", _dict(file), "attached to the prompt")
        else:
            for part in message.parts:
                if part.data is not None:
                    self._newer_other(message, part, part.data, why)
        if len(self.items) == before and not any(
            left.message_id == message.id for left in self.left_out
        ):
            self._leave(message, None, "it has nothing for the model")

    def _newer_other(self, message: Message, part: Part, data: Mapping[str, Any], why: Why) -> None:
        text = _str(data.get("text"))
        if message.role == "synthetic":
            self._put(message, part, why, "user", Kind.TEXT, text, "added by OpenCode")
        elif message.role == "system":
            text = SYSTEM_UPDATE.format(escape(text, quote=False))
            self._put(message, part, why, "user", Kind.TEXT, text, "changed instructions")
            self.doubts[
                "Changed instructions are shown as part of the prompt before them; some providers get"
                " them as a system message."
            ] = None
        elif message.role == "shell":
            text = f"Shell command: {_str(data.get('command'))}\n\n{_str(data.get('output'))}"
            self._put(message, part, why, "user", Kind.TEXT, text, "a command that the user ran")
        elif message.role == "compaction":
            text = CHECKPOINT.format(_str(data.get("summary")), _str(data.get("recent")))
            self._put(message, part, why, "user", Kind.TEXT, text, "summary and recent context")
        else:
            self._leave(message, part, f"a row of the type “{message.role}”")

    def _newer_assistant(self, message: Message, why: Why) -> None:
        same = self._same_model(message.data or {})
        tools = []
        for part in message.parts:
            data = part.data or {}
            text = _str(data.get("text"))
            if part.type == "text":
                if text:
                    self._put(message, part, why, "assistant", Kind.TEXT, text)
            elif part.type == "reasoning":
                if text and same:
                    self._put(message, part, why, "assistant", Kind.REASONING, text)
                elif text:
                    self._put(message, part, why, "assistant", Kind.TEXT, text,
                              "reasoning of another model, sent as text")  # fmt: skip
            elif part.type == "tool":
                given = _dict(data.get("state")).get("input")
                self._put(message, part, why, "assistant", Kind.CALL, _newer_input(given), "",
                          _str(data.get("tool")), _str(data.get("callID")))  # fmt: skip
                tools.append(part)
            elif part.type not in _BOOKKEEPING:
                self._leave(message, part, f"a part of the type “{part.type}” in an answer")
        for part in tools:
            self._newer_result(message, part, why)

    def _newer_result(self, message: Message, part: Part, why: Why) -> None:
        data = part.data or {}
        state = _dict(data.get("state"))
        status, note = state.get("status"), ""
        metadata = _dict(state.get("metadata"))
        files = [file for file in _list(state.get("attachments")) if isinstance(file, dict)]
        if status == "completed":
            text = _str(state.get("output"))
            if not text and not files:
                text = as_json(metadata.get("structured"))
        else:
            failed = _dict(metadata.get("error"))
            words = state.get("error") if status == "error" else NEWER_INTERRUPTED
            note = "failed" if status == "error" else "interrupted: it never ended"
            kept = state.get("output")
            content = [{"type": "text", "text": kept}] if isinstance(kept, str) else []
            text = as_json({
                "error": {**(failed or {"type": "unknown"}), "message": words},
                "content": [*content, *files],
                "structured": metadata.get("structured") or {},
            })  # fmt: skip
            files = []
        self._group += 1
        self._put(message, part, why, "tool", Kind.RESULT, text, note,
                  _str(data.get("tool")), _str(data.get("callID")))  # fmt: skip
        for file in files:
            self._media(message, part, why, "tool", file, "attached by the tool")


def is_newer(message: Message) -> bool:
    """Whether a message is of the newer runtime. The older one keeps the role in the data."""
    if message.data is None:
        return any(part.id == f"{message.id}/data" for part in message.parts)
    return "role" not in message.data


def model_of(data: Mapping[str, Any]) -> Model | None:
    """The model that a message's data names, in any of the ways that it is written."""
    given = _dict(data.get("model")) or data
    provider = _str(given.get("providerID"))
    model = _str(given.get("modelID")) or _str(given.get("id"))
    return Model(provider, model) if provider and model else None


def as_json(value: object) -> str:
    """JSON as JavaScript writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def units(text: str) -> int:
    """The length of a text in UTF-16 units, as JavaScript counts it."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def as_tokens(length: int) -> int:
    """Tokens as OpenCode estimates them: a quarter of the UTF-16 units
    (packages/opencode/src/util/token.ts)."""
    return int(length / 4 + 0.5)


def estimate(text: str) -> int:
    """The tokens of a text, as OpenCode estimates them."""
    return as_tokens(units(text))


def weigh(message: Message) -> int:
    """The length of what a model would get of a message if it saw it whole, in UTF-16 units."""
    view = View(None, -1, shorten=lambda _: ("", 0))
    view.add(message, Why.WHOLE)
    return sum(item.units for item in view.items)


def _steps(parts: tuple[Part, ...]) -> Iterator[list[Part]]:
    """The parts of an answer, cut where a step starts, as the AI SDK's `convertToModelMessages`
    does it."""
    step: list[Part] = []
    for part in parts:
        if part.type == "step-start":
            if step:
                yield step
            step = []
        else:
            step.append(part)
    if step:
        yield step


def _newer_input(given: object) -> str:
    if not isinstance(given, str):
        return as_json(given if given is not None else {})
    try:
        return as_json(json.loads(given))
    except (ValueError, RecursionError):
        return as_json(given)


def _is_signed(part: Part) -> bool:
    metadata = _dict((part.data or {}).get("metadata"))
    return _dict(metadata.get("anthropic")).get("signature") is not None


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""
