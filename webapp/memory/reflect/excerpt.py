"""What of a session is sent: the end of what was said, and the titles of the tools, masked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from webapp import secrets
from webapp.opencode import Message, Session, messages
from webapp.opencode.sessions import Key, message_keys
from webapp.opencode.values import bindable

CHUNK = 20
MOST = 400
"""Messages that are read at a time, from the last on, and of one session."""

ENOUGH_PROMPTS = 2
LEFT_OUT = "[…]\n"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The end of a session as text without credentials. `prompts` counts what the person said, in a
    fork only since then, up to ENOUGH_PROMPTS or a few more; `finished` is false while the last
    message is still written."""

    text: str
    prompts: int
    finished: bool


def excerpt(connection: sqlite3.Connection, session: Session, most: int, now: int) -> Excerpt:
    """At most `most` characters of the finished messages of a session that hold text or tools. What the
    person took back (OpenCode's revert) and the summaries of compactions are not among it."""
    keys = _kept(session, message_keys(connection, session.id))[-MOST:]
    pieces: list[str] = []
    prompts = length = 0
    finished = True
    for end in range(len(keys), 0, -CHUNK):
        chunk = keys[max(0, end - CHUNK) : end]
        found = list(messages(connection, session.id, now, only=chunk))
        if end == len(keys) and found:
            finished = found[-1].finished
        for message in reversed(found):
            text = _text(message)
            if text:
                # A fork begins with copies that are older than itself.
                is_own = message.created_at >= session.created_at
                prompts += message.role == "user" and is_own
                length += len(text) + 2
                pieces.append(text)
        if length > most and prompts >= ENOUGH_PROMPTS:
            break
    # Cut after it is masked: half a credential is none that would be recognised.
    whole = bindable(secrets.mask("\n\n".join(reversed(pieces))))
    if len(whole) > most:
        whole = LEFT_OUT + whole[len(LEFT_OUT) - most :]
    return Excerpt(whole, prompts, finished)


def _kept(session: Session, keys: Sequence[Key]) -> Sequence[Key]:
    """The keys before the message that was reverted to."""
    taken_back = (session.revert or {}).get("messageID")
    ids = [key.id for key in keys]
    return keys[: ids.index(taken_back)] if taken_back in ids else keys


def _text(message: Message) -> str:
    """A finished message as text; empty if there is nothing to tell."""
    data = message.data or {}
    if (
        message.role not in ("user", "assistant")
        or not message.finished
        or data.get("summary") is True
    ):
        return ""
    said = "\n".join(_said(message))
    return f"{'User' if message.role == 'user' else 'Assistant'}:\n{said}" if said else ""


def _said(message: Message) -> Iterator[str]:
    for part in message.parts:
        data = part.data or {}
        if part.type == "text" and not data.get("synthetic") and not data.get("ignored"):
            text = data.get("text")
            if isinstance(text, str) and text.strip():
                yield text.strip()
        elif part.type == "tool":
            given = data.get("state")
            state = given if isinstance(given, dict) else {}
            title = " ".join(str(state.get("title") or "").split())
            failed = " (failed)" if state.get("status") == "error" else ""
            yield f"[{data.get('tool') or 'tool'}{': ' + title if title else ''}{failed}]"
