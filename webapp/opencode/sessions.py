"""Sessions and messages out of OpenCode's database, for both runtimes and any schema version.

Columns are read by name and probed for, since the schema changes in most minor releases.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp.errors import MemoryAppError, Unreadable
from webapp.opencode.database import columns, reading
from webapp.opencode.records import Message, Part, Session

SETTLED_MS = 10_000
"""A user message with nothing after it counts as whole when it is this old: OpenCode writes its
parts within milliseconds."""

_RUNNING = ("assistant", "shell")
"""The newer runtime's messages that are there before they are complete."""


@dataclass(frozen=True, slots=True)
class Found:
    """Sessions of several databases, and one sentence for each database that could not be read."""

    sessions: tuple[Session, ...]
    problems: tuple[str, ...]


def list_sessions(databases: Iterable[Path]) -> Found:
    """Every session of every database, the last touched first. A database that cannot be read
    becomes a problem and leaves the others readable."""
    sessions: dict[str, Session] = {}
    problems: list[str] = []
    for path in databases:
        try:
            with reading(path) as connection:
                for session in _sessions(connection, path):
                    held = sessions.get(session.id)
                    if held is None or held.updated_at < session.updated_at:
                        sessions[session.id] = session
        except MemoryAppError as error:
            problems.append(error.message)
    ordered = sorted(sessions.values(), key=lambda s: (-s.updated_at, s.id))
    return Found(tuple(ordered), tuple(problems))


def find_session(databases: Iterable[Path], session_id: str) -> tuple[Session | None, list[str]]:
    """One session by id, from the database where it was touched last, and the problems met."""
    best: Session | None = None
    problems: list[str] = []
    for path in databases:
        try:
            with reading(path) as connection:
                for session in _sessions(connection, path, session_id):
                    if best is None or session.updated_at > best.updated_at:
                        best = session
        except MemoryAppError as error:
            problems.append(error.message)
    return best, problems


def session_in(connection: sqlite3.Connection, path: Path, session_id: str) -> Session | None:
    """One session as an open connection sees it, or None."""
    found = _sessions(connection, path, session_id)
    return found[0] if found else None


def _sessions(
    connection: sqlite3.Connection, path: Path, session_id: str | None = None
) -> list[Session]:
    have = columns(connection, "session")
    missing = {"id", "time_created", "time_updated"} - have
    if missing:
        raise Unreadable(
            f"OpenCode's database {path} has a layout that this version does not know: its table "
            f"“session” lacks {', '.join(sorted(missing)) if have else 'everything'}."
        )

    def column(name: str) -> str:
        return f"s.{name}" if name in have else "NULL"

    joined = {"id", "worktree"} <= columns(connection, "project") and "project_id" in have
    sql = (
        f"SELECT s.id, {column('directory')}, {column('title')}, {column('version')},"
        f" {column('parent_id')}, s.time_created, {_touched(connection)}, {column('time_archived')},"
        f" {column('revert')}, {'p.worktree' if joined else 'NULL'} FROM session s"
        + (" LEFT JOIN project p ON p.id = s.project_id" if joined else "")
        + (" WHERE s.id = ?" if session_id is not None else "")
    )
    rows = connection.execute(sql, (session_id,) if session_id is not None else ()).fetchall()
    return [
        Session(
            id=row[0], db=path, scope=_scope(row[9], row[1]), directory=row[1] or "",
            title=row[2] or "", version=row[3] or "", parent_id=row[4], created_at=row[5] or 0,
            updated_at=row[6] or 0, archived_at=row[7], revert=_object(row[8]),
        )
        for row in rows
    ]  # fmt: skip


def _touched(connection: sqlite3.Connection) -> str:
    """The last touch of a session `s` in SQL. The newer runtime leaves the session's own time alone
    when messages come in, so the last message's counts too."""
    times = ["coalesce(s.time_updated, 0)"]
    for table, order in (
        ("message", "time_created DESC, id DESC"),
        ("session_message", "seq DESC"),
    ):
        names = {word for word in order.replace(",", "").split() if word != "DESC"}
        if {"session_id", "time_updated", *names} <= columns(connection, table):
            times.append(
                f"coalesce((SELECT time_updated FROM {table} WHERE session_id = s.id"
                f" ORDER BY {order} LIMIT 1), 0)"
            )
    return f"max({', '.join(times)})" if len(times) > 1 else times[0]


def _scope(worktree: str | None, directory: str | None) -> str:
    if worktree and worktree != "/":
        return worktree
    return directory or "global"


def _object(text: str | None) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"unreadable": text}
    return found if isinstance(found, dict) else {"value": found}


def messages(connection: sqlite3.Connection, session_id: str, now: int) -> Iterator[Message]:
    """The messages of a session in order, with their parts; one message is held at a time.

    A session of the older runtime lives in `message` and `part`, one of the newer runtime in
    `session_message`. If a version ever fills both, both are given, the older first.
    """
    if {"id", "session_id", "data"} <= columns(connection, "message"):
        yield from _older(connection, session_id, now)
    if {"id", "session_id", "data", "type"} <= columns(connection, "session_message"):
        yield from _newer(connection, session_id)


def _older(connection: sqlite3.Connection, session_id: str, now: int) -> Iterator[Message]:
    have_parts = {"id", "message_id", "data"} <= columns(connection, "part")
    last_assistant: tuple[int, str] = (0, "")
    last: tuple[int, str] = (0, "")
    for row in connection.execute(
        "SELECT time_created, id, CAST(data AS TEXT) FROM message WHERE session_id = ?"
        " ORDER BY time_created DESC, id DESC",
        (session_id,),
    ):
        key = (row[0], row[1])
        last = max(last, key)
        if (_object(row[2]) or {}).get("role") == "assistant":
            last_assistant = key
            break
    cursor = connection.execute(
        "SELECT id, time_created, CAST(data AS TEXT) FROM message WHERE session_id = ?"
        " ORDER BY time_created, id",
        (session_id,),
    )
    for message_id, created, raw in cursor:
        data = _object(raw)
        readable = data is not None and "unreadable" not in data
        parts: list[Part] = []
        if have_parts:
            for part_id, part_raw in connection.execute(
                "SELECT id, CAST(data AS TEXT) FROM part WHERE message_id = ? ORDER BY id",
                (message_id,),
            ):
                parts.append(_part(part_id, part_raw))
        role = str((data or {}).get("role") or "unknown")
        key = (created, message_id)
        completed = bool(_time(data).get("completed")) or bool((data or {}).get("error"))
        if role == "assistant":
            interrupted = not completed and key < last_assistant
            finished = completed or interrupted
        else:
            interrupted = False
            finished = key < last or created <= now - SETTLED_MS
        yield Message(
            message_id, role, created, data if readable else None, tuple(parts), finished,
            interrupted, raw if not readable else "",
        )  # fmt: skip


def _time(data: Mapping[str, Any] | None) -> Mapping[str, Any]:
    value = (data or {}).get("time")
    return value if isinstance(value, dict) else {}


def _part(part_id: str, raw: str) -> Part:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        return Part(part_id, "unreadable", None, raw)
    if not isinstance(data, dict):
        return Part(part_id, "unreadable", None, raw)
    return Part(part_id, str(data.get("type") or "unknown"), data)


def _newer(connection: sqlite3.Connection, session_id: str) -> Iterator[Message]:
    order = "seq" if "seq" in columns(connection, "session_message") else "time_created, id"
    running = ", ".join(f"'{kind}'" for kind in _RUNNING)
    last = connection.execute(
        f"SELECT id FROM session_message WHERE session_id = ? AND type IN ({running})"
        f" ORDER BY {order.replace(',', ' DESC,')} DESC LIMIT 1",
        (session_id,),
    ).fetchone()
    seen_last = last is None
    for message_id, kind, created, raw in connection.execute(
        f"SELECT id, type, time_created, CAST(data AS TEXT) FROM session_message"
        f" WHERE session_id = ? ORDER BY {order}",
        (session_id,),
    ):
        data = _object(raw)
        if data is None or "unreadable" in data:
            part = Part(message_id + "/data", "unreadable", None, raw)
            yield Message(message_id, kind, created or 0, None, (part,), raw=raw)
            continue
        is_last = last is not None and message_id == last[0]
        completed = bool(_time(data).get("completed")) or bool(data.get("error"))
        interrupted = kind in _RUNNING and not completed and not seen_last and not is_last
        finished = kind not in _RUNNING or completed or interrupted
        seen_last = seen_last or is_last
        shown = _ENVELOPE - {"content"} if kind in ("user", "assistant") else {"time"}
        envelope = {key: value for key, value in data.items() if key in shown}
        yield Message(
            message_id, kind, created or 0, envelope, tuple(_newer_parts(message_id, kind, data)),
            finished, interrupted,
        )  # fmt: skip


_ENVELOPE = {"time", "agent", "model", "error", "content"}


def _newer_parts(message_id: str, kind: str, data: Mapping[str, Any]) -> Iterator[Part]:
    """The newer runtime keeps a whole message in one JSON value; this cuts it into parts of the
    older runtime's shape, and keeps every key it does not know as a part of its own."""
    rest = {key: value for key, value in data.items() if key not in _ENVELOPE}
    if kind not in ("user", "assistant"):
        rest = {key: value for key, value in data.items() if key != "time"}
        yield Part(f"{message_id}/data", kind, {"type": kind, **rest})
        return
    if isinstance(rest.get("text"), str):
        yield Part(f"{message_id}/text", "text", {"type": "text", "text": rest.pop("text")})
    content = data.get("content")
    for number, item in enumerate(content if isinstance(content, list) else []):
        part_id = f"{message_id}/{number}"
        if not isinstance(item, dict):
            yield Part(part_id, "unknown", {"type": "unknown", "value": item})
        elif item.get("type") == "tool":
            yield Part(part_id, "tool", _older_tool(item))
        else:
            yield Part(part_id, str(item.get("type") or "unknown"), item)
    if content is not None and not isinstance(content, list):
        rest["content"] = content
    if rest:
        kind = "step-finish" if "finish" in rest else "data"
        if kind == "step-finish":
            rest["reason"] = rest.pop("finish")
        yield Part(f"{message_id}/rest", kind, {"type": kind, **rest})


def _older_tool(item: Mapping[str, Any]) -> Mapping[str, Any]:
    given = item.get("state")
    state = dict(given) if isinstance(given, dict) else {}
    content = state.pop("content", None)
    texts, others = [], []
    for piece in content if isinstance(content, list) else [content]:
        if isinstance(piece, dict) and piece.get("type") == "text" and piece.keys() == {
            "type", "text"
        } and isinstance(piece["text"], str):  # fmt: skip
            texts.append(piece["text"])
        elif piece is not None:
            others.append(piece)
    if texts:
        state["output"] = "\n".join(texts)
    if others:
        state["attachments"] = others
    metadata = {
        key: state.pop(key)
        for key in list(state)
        if key not in {"status", "input", "output", "error", "attachments", "title", "time"}
    }
    error = state.get("error")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        state["error"] = error["message"]
        metadata["error"] = {key: value for key, value in error.items() if key != "message"}
    if given is not None and not isinstance(given, dict):
        metadata["state"] = given
    times = _time(item)
    started = times.get("ran") or times.get("created")
    state["time"] = {
        k: v for k, v in {"start": started, "end": times.get("completed"),
                          "compacted": times.get("pruned")}.items() if v
    }  # fmt: skip
    extra = {k: v for k, v in item.items() if k not in {"type", "id", "name", "state", "time"}}
    state["metadata"] = {**metadata, **extra}
    return {"type": "tool", "tool": item.get("name"), "callID": item.get("id"), "state": state}
