"""What a person wrote in a session: the first or the last of it, found without reading the rest."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator

from webapp.opencode.database import columns
from webapp.opencode.values import as_object, as_text, bindable, is_id

_MESSAGES = 5
_PARTS = 20


def first_request(
    connection: sqlite3.Connection, tables: Collection[str], session_id: str, most: int
) -> str:
    """The first text that a person wrote in a session, up to `most` characters, empty when there is
    none among its first messages. JSON that does not parse is given as it is. `tables` are those of
    messages that the database has."""
    found = _older_first(connection, session_id) if "message" in tables else ""
    if not found and "session_message" in tables:
        for _, raw in _newer(connection, session_id, "ASC"):
            text = (as_object(raw) or {}).get("text")
            found = text.strip() if isinstance(text, str) else raw
            break
    # An escape in JSON may be half a character, which no page can be made of.
    return bindable(found[:most])


def last_request(
    connection: sqlite3.Connection, tables: Collection[str], session_id: str
) -> tuple[str, str] | None:
    """The id of the last message that a person wrote in a session, and its text; None when there is
    none. Prompts that OpenCode wrote by itself and messages that only ask for a compaction are no
    such message."""
    if "session_message" in tables:
        for message_id, raw in _newer(connection, session_id, "DESC"):
            text = (as_object(raw) or {}).get("text")
            if isinstance(text, str) and text.strip():
                return message_id, bindable(text)
    if "message" in tables:
        for message_id, exact_id, raw in _older(connection, session_id, "DESC", -1):
            if (as_object(raw) or {}).get("role") != "user":
                continue
            text = "\n".join(text for text, _ in _texts(connection, exact_id))
            if text.strip():
                return message_id, bindable(text)
    return None


def _older_first(connection: sqlite3.Connection, session_id: str) -> str:
    for _, exact_id, raw in _older(connection, session_id, "ASC", _MESSAGES):
        data = as_object(raw) or {}
        if "unreadable" in data:
            return raw
        if data.get("role") == "user":
            for text, raw_part in _texts(connection, exact_id, broken=True):
                return raw_part or text.strip()
    return ""


def _older(
    connection: sqlite3.Connection, session_id: str, order: str, limit: int
) -> Iterator[tuple[str, bytes, str]]:
    for message_id, exact_id, raw in connection.execute(
        "SELECT id, CAST(id AS BLOB), CAST(data AS TEXT) FROM message WHERE session_id = ?"
        f" ORDER BY time_created {order}, id {order} LIMIT ?",
        (bindable(session_id), limit),
    ):
        if is_id(message_id):
            yield message_id, exact_id, as_text(raw)


def _texts(
    connection: sqlite3.Connection, exact_id: bytes, broken: bool = False
) -> Iterator[tuple[str, str]]:
    """The texts that a person wrote in a message; with `broken` also the first part whose JSON does
    not parse, as it is stored."""
    for (stored,) in connection.execute(
        "SELECT CAST(data AS TEXT) FROM part WHERE message_id = CAST(? AS TEXT)"
        f" ORDER BY id LIMIT {_PARTS}",
        (exact_id,),
    ):
        part = as_object(as_text(stored)) or {}
        if broken and "unreadable" in part:
            yield "", as_text(stored)
        text = part.get("text")
        hidden = part.get("synthetic") or part.get("ignored")
        if part.get("type") == "text" and isinstance(text, str) and not hidden:
            yield text, ""


def _newer(
    connection: sqlite3.Connection, session_id: str, order: str
) -> Iterator[tuple[str, str]]:
    key = "seq" if "seq" in columns(connection, "session_message") else "time_created"
    for message_id, stored in connection.execute(
        "SELECT id, CAST(data AS TEXT) FROM session_message WHERE session_id = ?"
        f" AND type = 'user' ORDER BY {key} {order}",
        (bindable(session_id),),
    ):
        if is_id(message_id):
            yield message_id, as_text(stored)
