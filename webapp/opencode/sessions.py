"""Sessions and messages out of OpenCode's database, for both runtimes and any schema version.

Columns are read by name and probed for, since the schema changes in most minor releases.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp.errors import MemoryAppError, Unreadable
from webapp.opencode.database import columns, reading
from webapp.opencode.records import Message, Part, Session
from webapp.opencode.values import as_object, as_text, as_when, bindable, is_id, sql_when

IsKnown = Callable[[str, str], bool]

SETTLED_MS = 10_000
"""A user message with nothing after it counts as whole when it is this old: OpenCode writes its
parts within milliseconds."""

_RUNNING = ("assistant", "shell")
"""The newer runtime's messages that are there before they are complete."""

CRASHED_MS = 600_000
"""An unfinished answer that a settled prompt follows counts as interrupted when nothing of it was
touched for so long: its OpenCode is gone, or the next prompt would still be queued behind it."""

ABANDONED_MS = 86_400_000
"""An unfinished answer that no other follows counts as interrupted when nothing of it was touched
for so long."""

_LAYOUT = {
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
    "session_message": ("id", "session_id", "type", "time_created", "data"),
}
"""What a table must have, if it is there, for its rows to be understood."""


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
                problems += without_id(connection, path)
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


def touched_since(connection: sqlite3.Connection, path: Path, since: int) -> list[Session]:
    """The sessions that were touched after a time in epoch milliseconds, in no order. Raises
    Unreadable for a layout that is not known."""
    return _sessions(connection, path, since=since)


def last_compaction(connection: sqlite3.Connection, session_id: str, since: int) -> int | None:
    """When the last compaction of a session finished, of those begun after `since`; None if there
    is none. Both in epoch milliseconds.

    The older runtime answers a compaction with a message that has `summary: true` and is there
    before it is complete. The newer one adds a row of type `compaction` once the summary is there
    (1.18.33: `{"reason": "auto", "summary": …, "recent": …}`); some versions of it begin with an
    empty summary, or say in `status` that it is running.
    """
    session_id = bindable(session_id)
    found = [0]
    tables = message_tables(connection)
    if "message" in tables:
        touch = _touch_column(columns(connection, "message"))
        for stored, touched in connection.execute(
            f"SELECT CAST(data AS TEXT), {touch} FROM message WHERE session_id = ?"
            " AND time_created > ? AND instr(CAST(data AS TEXT), '\"summary\"') > 0"
            " ORDER BY time_created DESC, id DESC",
            (session_id, since),
        ):
            data = as_object(as_text(stored)) or {}
            completed = as_when(_time(data).get("completed"))
            if data.get("summary") is True and completed and not data.get("error"):
                found.append(min(completed, as_when(touched) or completed))
                break
    if "session_message" in tables:
        touch = _touch_column(columns(connection, "session_message"))
        for stored, time, touched in connection.execute(
            f"SELECT CAST(data AS TEXT), time_created, {touch} FROM session_message"
            " WHERE session_id = ? AND type = 'compaction'",
            (session_id,),
        ):
            data = as_object(as_text(stored)) or {}
            if as_when(time) > since and data.get("summary") and data.get("status") != "running":
                found.append(max(as_when(time), as_when(touched)))
    return max(found) or None


def _touch_column(have: set[str]) -> str:
    return "time_updated" if "time_updated" in have else "NULL"


def _sessions(
    connection: sqlite3.Connection, path: Path, session_id: str | None = None,
    since: int | None = None,
) -> list[Session]:  # fmt: skip
    have = columns(connection, "session")
    missing = {"id", "time_created", "time_updated"} - have
    if not have and connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
        raise Unreadable(
            f"OpenCode's database {path} is empty: OpenCode has not written anything to it yet."
        )
    if missing:
        raise Unreadable(
            f"OpenCode's database {path} has a layout that this version does not know: its table "
            f"“session” lacks {', '.join(sorted(missing)) if have else 'everything'}."
        )

    def column(name: str) -> str:
        return f"s.{name}" if name in have else "NULL"

    joined = {"id", "worktree"} <= columns(connection, "project") and "project_id" in have
    touched = _touched(connection)
    sql = (
        f"SELECT s.id, {column('directory')}, {column('title')}, {column('version')},"
        f" {column('parent_id')}, s.time_created, {touched}, {column('time_archived')},"
        f" {column('revert')}, {'p.worktree' if joined else 'NULL'} FROM session s"
        + (" LEFT JOIN project p ON p.id = s.project_id" if joined else "")
        + (" WHERE s.id = ?" if session_id is not None else "")
        + (f" WHERE {touched} > ?" if since is not None else "")
    )
    values: tuple[str | int, ...] = () if since is None else (since,)
    if session_id is not None:
        values = (bindable(session_id),)
    return [
        Session(
            id=row[0], db=path, scope=_scope(as_text(row[9]), as_text(row[1])),
            directory=as_text(row[1]), title=as_text(row[2]), version=as_text(row[3]),
            parent_id=as_text(row[4]) if row[4] is not None else None, created_at=as_when(row[5]),
            updated_at=as_when(row[6]), archived_at=as_when(row[7]) if row[7] is not None else None,
            revert=as_object(as_text(row[8])),
        )
        for row in connection.execute(sql, values)
        if is_id(row[0])
    ]  # fmt: skip


def without_id(
    connection: sqlite3.Connection, path: Path, tables: Iterable[str] = ("session", *_LAYOUT)
) -> list[str]:
    """One sentence for each table with rows that have no id and so are left out. The ranges of
    this query are looked up in the index of the ids."""
    problems: list[str] = []
    for table in tables:
        if "id" not in columns(connection, table):
            continue
        (count,) = connection.execute(
            f"SELECT count(*) FROM {table} WHERE id IS NULL OR id <= '' OR id >= x''"
        ).fetchone()
        if count:
            rows = "1 row" if count == 1 else f"{count:,} rows"
            problems.append(
                f"OpenCode's database {path} has {rows} in its table “{table}” whose id is no text;"
                f" {'it is' if count == 1 else 'they are'} left out."
            )
    return problems


def _touched(connection: sqlite3.Connection) -> str:
    """The last touch of a session `s` in SQL. The newer runtime leaves the session's own time alone
    when messages come in, so the last message's counts too."""
    times = [sql_when("s.time_updated")]
    for table, order in (
        ("message", "time_created DESC, id DESC"),
        ("session_message", "seq DESC"),
    ):
        names = {word for word in order.replace(",", "").split() if word != "DESC"}
        if {"session_id", "time_updated", *names} <= columns(connection, table):
            times.append(
                f"coalesce((SELECT {sql_when('time_updated')} FROM {table} WHERE session_id = s.id"
                f" ORDER BY {order} LIMIT 1), 0)"
            )
    return f"max({', '.join(times)})" if len(times) > 1 else times[0]


def _scope(worktree: str, directory: str) -> str:
    if worktree and worktree != "/":
        return worktree
    return directory or "global"


@dataclass(frozen=True, slots=True)
class Key:
    """Where a message stands in its session, as an index tells it: enough to order and to find it."""

    id: str
    created_at: int
    table: str
    rowid: int


def message_keys(connection: sqlite3.Connection, session_id: str) -> list[Key]:
    """The keys of all messages of a session in the order of `messages`. No message is read."""
    tables = message_tables(connection)
    session_id = bindable(session_id)
    older: Iterator[Key] = iter(())
    newer: Iterator[Key] = iter(())
    if "message" in tables:
        older = (
            Key(row[1], as_when(row[2]), "message", row[0])
            for row in connection.execute(
                "SELECT rowid, id, time_created FROM message WHERE session_id = ?"
                " ORDER BY time_created, id",
                (session_id,),
            )
            if is_id(row[1])
        )
    if "session_message" in tables:
        mirror = _Mirror(connection, session_id, "message" in tables)
        newer = (
            Key(row[1], as_when(row[3]), "session_message", row[0])
            for row in connection.execute(
                "SELECT rowid, id, CAST(type AS TEXT), time_created FROM session_message"
                f" WHERE session_id = ? ORDER BY {_newer_order(connection)}",
                (session_id,),
            )
            if is_id(row[1]) and not mirror.hides(row[1], as_text(row[2]) or "unknown", row[3])
        )
    return list(heapq.merge(older, newer, key=lambda key: key.created_at))


def _newer_order(connection: sqlite3.Connection) -> str:
    return "seq" if "seq" in columns(connection, "session_message") else "time_created, id"


def messages(
    connection: sqlite3.Connection, session_id: str, now: int, is_known: IsKnown | None = None,
    only: Collection[Key] | None = None,
) -> Iterator[Message]:  # fmt: skip
    """The messages of a session in order, with their parts; one message is held at a time.

    A session of the older runtime lives in `message` and `part`, one of the newer runtime in
    `session_message`. One that both have written is given in the order of its times. Of a message
    whose id and fingerprint `is_known` says yes to, only these are given: to parse and to render it
    takes ten times as long as to read it. `only` names the messages to read, and no others are.
    """
    tables = message_tables(connection)
    if only is not None:
        tables &= {key.table for key in only}
    session_id = bindable(session_id)
    runtimes = []
    if "message" in tables:
        runtimes.append(_older(connection, session_id, now, is_known, only))
    if "session_message" in tables:
        mirror = _Mirror(connection, session_id, "message" in tables) if only is None else None
        runtimes.append(_newer(connection, session_id, now, is_known, mirror, only))
    yield from heapq.merge(*runtimes, key=lambda item: item.created_at)


_SWITCHES = "'agent-switched', 'model-switched'"


def count_messages(connection: sqlite3.Connection, tables: Iterable[str], session_id: str) -> int:
    """How many messages `messages` gives of a session, counted in the indexes; `tables` are those of
    `message_tables`."""
    session_id = bindable(session_id)
    counts = {
        table: connection.execute(
            f"SELECT count(*) FROM {table} WHERE session_id = ?", (session_id,)
        ).fetchone()[0]
        for table in ("message", "session_message")
        if table in tables
    }
    older, newer = counts.get("message", 0), counts.get("session_message", 0)
    if not older or not newer:
        return int(older + newer)
    mirror = _Mirror(connection, session_id, True)
    order = "seq" if "seq" in columns(connection, "session_message") else "time_created, id"
    rows = connection.execute(
        "SELECT id, CAST(type AS TEXT), time_created FROM session_message WHERE session_id = ?"
        f" ORDER BY {order}",
        (session_id,),
    )
    return int(older) + sum(
        not mirror.hides(message_id, as_text(kind) or "unknown", time)
        for message_id, kind, time in rows
        if is_id(message_id)
    )


class _Mirror:
    """Tells the rows of `session_message` that only repeat what stands in `message`. From 1.14 to
    1.17 the older runtime noted its switches there too, at the very time of the message, and with an
    experimental flag everything: the prompt at its very time, and after it the answers. What comes
    before the first prompt is taken for what that, or the first switch, is."""

    def __init__(self, connection: sqlite3.Connection, session_id: str, is_older: bool) -> None:
        self._ids: set[object] = set()
        self._times: set[object] = set()
        self._in_turn = False
        if is_older:
            for message_id, time in connection.execute(
                "SELECT id, time_created FROM message WHERE session_id = ?", (session_id,)
            ):
                self._ids.add(message_id)
                self._times.add(time)
        if self._times:
            for (time,) in connection.execute(
                "SELECT time_created FROM session_message WHERE session_id = ? AND type IN"
                f" ('user', {_SWITCHES}) ORDER BY {_newer_order(connection)} LIMIT 1", (session_id,),
            ):  # fmt: skip
                self._in_turn = time in self._times

    def hides(self, message_id: str, kind: str, time: object) -> bool:
        """Whether the next row, in their order, is a repetition."""
        if kind == "user":
            self._in_turn = time in self._times
        if kind in ("agent-switched", "model-switched"):
            return time in self._times
        return self._in_turn or message_id in self._ids


def message_tables(connection: sqlite3.Connection) -> set[str]:
    """The tables of messages that are there. Raises Unreadable for a layout that is not known:
    taken for a session without messages, it would look as if they had all been removed."""
    have = {table: columns(connection, table) for table in _LAYOUT}
    what = ""
    for table, wanted in _LAYOUT.items():
        missing = [name for name in wanted if name not in have[table]]
        if have[table] and missing:
            what = f"its table “{table}” lacks {', '.join(missing)}"
            break
    else:
        if have["message"] and not have["part"]:
            what = f"its table “part” lacks everything ({', '.join(_LAYOUT['part'])})"
        elif not have["message"] and not have["session_message"]:
            what = "it has neither a table “message” nor a table “session_message”"
    if what:
        raise Unreadable(
            f"OpenCode's database has a layout that this version does not know: {what}."
        )
    return {table for table, names in have.items() if names}


def _is_over(touched: int, prompts: Iterable[int], now: int) -> bool:
    """Whether an unfinished answer, last touched then, will not go on. `prompts` are the times of
    the prompts after it."""
    if touched < now - ABANDONED_MS:
        return True
    return touched < now - CRASHED_MS and any(at < now - SETTLED_MS for at in prompts)


def _among(only: Collection[Key] | None, table: str) -> str:
    """That a row is one of `only`, in SQL."""
    if only is None:
        return ""
    rows = ", ".join(str(key.rowid) for key in only if key.table == table)
    return f" AND rowid IN ({rows})"


def _older(
    connection: sqlite3.Connection, session_id: str, now: int, is_known: IsKnown | None,
    only: Collection[Key] | None,
) -> Iterator[Message]:  # fmt: skip
    last, last_assistant, is_over = _older_end(connection, session_id, now)
    for message_id, exact_id, time, stored in connection.execute(
        "SELECT id, CAST(id AS BLOB), time_created, CAST(data AS BLOB) FROM message"
        f" WHERE session_id = ?{_among(only, 'message')} ORDER BY time_created, id",
        (session_id,),
    ):
        if not is_id(message_id):
            continue
        stored_parts = connection.execute(
            "SELECT id, CAST(data AS BLOB) FROM part WHERE message_id = CAST(? AS TEXT) ORDER BY id",
            (exact_id,),
        ).fetchall()
        raw, created = as_text(stored), as_when(time)
        data = as_object(raw)
        readable = data is not None and "unreadable" not in data
        role = str((data or {}).get("role") or "unknown")
        if role == "assistant":
            completed = _is_complete(data)
            interrupted = not completed and (message_id != last_assistant or is_over)
            finished = completed or interrupted
        else:
            interrupted = False
            finished = message_id != last or created <= now - SETTLED_MS
        mark = _fingerprint((time, finished, interrupted), stored, stored_parts)
        if is_known is not None and is_known(message_id, mark):
            yield Message(message_id, role, created, None, (), fingerprint=mark, same=True)
            continue
        parts = [_part(part_id, as_text(held)) for part_id, held in stored_parts if is_id(part_id)]
        yield Message(
            message_id, role, created, data if readable else None, tuple(parts), finished,
            interrupted, raw if not readable else "", mark,
        )  # fmt: skip


def _fingerprint(
    facts: tuple[object, ...], stored: bytes | None, parts: Iterable[tuple[object, bytes | None]]
) -> str:
    """A short digest of all that a message is made of, as it is stored."""
    # The processor helps with it: of 66 MB it takes half the time of blake2b.
    found = hashlib.sha256(repr(facts).encode())
    found.update(stored or b"")
    for part_id, data in parts:
        found.update(f"\0{part_id}\0".encode("utf-8", "backslashreplace"))
        found.update(data or b"")
    return found.hexdigest()[:16]


def _older_end(
    connection: sqlite3.Connection, session_id: str, now: int
) -> tuple[str, str, bool]:  # fmt: skip
    """The ids of the last message and of the last answer, and whether that one, if it is
    unfinished, will not go on."""
    touch = _touch_column(columns(connection, "message"))
    last = ""
    prompts: list[int] = []
    for message_id, exact_id, time, touched, stored in connection.execute(
        f"SELECT id, CAST(id AS BLOB), time_created, {touch}, CAST(data AS TEXT) FROM message"
        " WHERE session_id = ? ORDER BY time_created DESC, id DESC",
        (session_id,),
    ):
        if not is_id(message_id):
            continue
        last = last or message_id
        role = (as_object(as_text(stored)) or {}).get("role")
        if role == "user":
            prompts.append(as_when(time))
        if role != "assistant":
            continue
        times = [as_when(time), as_when(touched)]
        if "time_updated" in columns(connection, "part"):
            times += connection.execute(
                f"SELECT coalesce(max({sql_when('time_updated')}), 0) FROM part"
                " WHERE message_id = CAST(? AS TEXT)",
                (exact_id,),
            ).fetchone()
        return last, message_id, _is_over(max(times), prompts, now)
    return last, "", False


def _is_complete(data: Mapping[str, Any] | None) -> bool:
    return bool(_time(data).get("completed")) or bool((data or {}).get("error"))


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


def _newer(
    connection: sqlite3.Connection, session_id: str, now: int, is_known: IsKnown | None,
    mirror: _Mirror | None, only: Collection[Key] | None,
) -> Iterator[Message]:  # fmt: skip
    have = columns(connection, "session_message")
    last, is_over = _newer_end(connection, session_id, now, have)
    for message_id, stored_kind, time, stored in connection.execute(
        f"SELECT id, CAST(type AS TEXT), time_created, CAST(data AS BLOB) FROM session_message"
        f" WHERE session_id = ?{_among(only, 'session_message')}"
        f" ORDER BY {_newer_order(connection)}",
        (session_id,),
    ):
        if not is_id(message_id):
            continue
        kind, created, raw = as_text(stored_kind) or "unknown", as_when(time), as_text(stored)
        if mirror is not None and mirror.hides(message_id, kind, time):
            continue
        data = as_object(raw)
        if data is None or "unreadable" in data:
            mark = _fingerprint((kind, time), stored, ())
            part = Part(message_id + "/data", "unreadable", None, raw)
            yield Message(message_id, kind, created, None, (part,), raw=raw, fingerprint=mark)
            continue
        completed = _is_complete(data)
        running = kind in _RUNNING and not completed
        interrupted = running and (message_id != last or is_over)
        finished = not running or interrupted
        mark = _fingerprint((kind, time, finished, interrupted), stored, ())
        if is_known is not None and is_known(message_id, mark):
            yield Message(message_id, kind, created, None, (), fingerprint=mark, same=True)
            continue
        shown = _ENVELOPE - {"content"} if kind in ("user", "assistant") else {"time"}
        envelope = {key: value for key, value in data.items() if key in shown}
        yield Message(
            message_id, kind, created, envelope, tuple(_newer_parts(message_id, kind, data)),
            finished, interrupted, fingerprint=mark,
        )  # fmt: skip


def _newer_end(
    connection: sqlite3.Connection, session_id: str, now: int, have: set[str]
) -> tuple[str, bool]:  # fmt: skip
    """The id of the last answer, and whether that one, if it is unfinished, will not go on."""
    order = "seq DESC" if "seq" in have else "time_created DESC, id DESC"
    touch = _touch_column(have)
    prompts: list[int] = []
    for message_id, kind, time, touched in connection.execute(
        f"SELECT id, CAST(type AS TEXT), time_created, {touch} FROM session_message"
        f" WHERE session_id = ? ORDER BY {order}",
        (session_id,),
    ):
        if not is_id(message_id):
            continue
        if kind in _RUNNING:
            return message_id, _is_over(max(as_when(time), as_when(touched)), prompts, now)
        if kind == "user":
            prompts.append(as_when(time))
    return "", False


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
