"""What is new in a session, or in all of them, since a reader looked.

Told from the ends of OpenCode's indexes: of what the reader has seen already, one row a table is
read.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from pathlib import Path

from webapp.errors import InvalidInput, MemoryAppError
from webapp.opencode.database import columns, reading
from webapp.opencode.sessions import Key, message_keys, message_tables
from webapp.opencode.values import as_when, bindable, is_id

MOST = 200
"""New messages that are counted; of more it is only told that there are more."""

PATIENCE_S = 0.2
"""How long a locked database is waited for: a page asks again soon, and twenty of them that wait hold
every thread of the server."""

_TABLES = ("session", "message", "session_message")


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a reader has seen a session: the last message of each runtime, empty where there is
    none, when the last of them was touched (epoch milliseconds), how many parts it had, and when the
    session itself was touched, as it is by a title, a revert or a message that sorts further up."""

    older: str = ""
    newer: str = ""
    touched: int = 0
    parts: int = 0
    session: int = 0

    def dump(self) -> str:
        """As it stands in an address."""
        return json.dumps(astuple(self), separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Seen:
        """What `dump` wrote. Raises InvalidInput."""
        try:
            older, newer, *numbers = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise _unknown() from None
        if not (isinstance(older, str) and isinstance(newer, str)):
            raise _unknown()
        if len(numbers) != 3 or not all(isinstance(number, int) for number in numbers):
            raise _unknown()
        return cls(older, newer, *numbers)


def _unknown() -> InvalidInput:
    return InvalidInput(
        "The address does not say what was seen already. Reload the page that asked.", "seen"
    )


@dataclass(frozen=True, slots=True)
class News:
    """The messages that came after what was seen, in order; not `complete` when there are more than
    MOST. `went_on` says that the last message did, `changed` that something else of the session is not
    what it was, `gone` that OpenCode has no such session any more."""

    messages: tuple[Key, ...] = ()
    complete: bool = True
    went_on: bool = False
    changed: bool = False
    gone: bool = False


def seen(connection: sqlite3.Connection, session_id: str) -> Seen:
    """How far a reader sees a session who reads it now."""
    ends: dict[str, Key] = {}
    for table in _runtimes(connection):
        for key in _newest(connection, table, session_id):
            ends[table] = key
            break
    last = max(ends.values(), key=lambda key: key.created_at, default=None)
    touched = parts = 0
    if last is not None and "time_updated" in columns(connection, last.table):
        for (time,) in connection.execute(
            f"SELECT time_updated FROM {last.table} WHERE rowid = ?", (last.rowid,)
        ):
            touched = as_when(time)
    if last is not None and last.table == "message":
        (parts,) = connection.execute(
            "SELECT count(*) FROM part WHERE message_id = ?", (bindable(last.id),)
        ).fetchone()
    return Seen(
        ends["message"].id if "message" in ends else "",
        ends["session_message"].id if "session_message" in ends else "", touched, parts,
        _session_touched(connection, session_id) or 0,
    )  # fmt: skip


def _session_touched(connection: sqlite3.Connection, session_id: str) -> int | None:
    """When the row of a session was touched, None where there is no such row."""
    if not {"id", "time_updated"} <= columns(connection, "session"):
        return None
    for (time,) in connection.execute(
        "SELECT time_updated FROM session WHERE id = ?", (bindable(session_id),)
    ):
        return as_when(time)
    return None


def since(connection: sqlite3.Connection, session_id: str, held: Seen) -> News:
    """What came into a session after `held`."""
    now = seen(connection, session_id)
    if now == held:
        return News()
    if _session_touched(connection, session_id) is None:
        return News(gone=True)
    for last in (held.older, held.newer):
        if last and not is_there(connection, session_id, last):
            return News(changed=True)
    keys, complete = newest(connection, session_id, lambda name: name in (held.older, held.newer))
    went_on = not keys and (now.touched, now.parts) != (held.touched, held.parts)
    return News(keys, complete, went_on, not keys and not went_on)


def is_there(connection: sqlite3.Connection, session_id: str, message_id: str) -> bool:
    """Whether a session has a message of that id, as its primary key tells."""
    return any(
        connection.execute(
            f"SELECT 1 FROM {table} WHERE id = ? AND session_id = ?",
            (bindable(message_id), bindable(session_id)),
        ).fetchone()
        for table in _runtimes(connection)
    )


def newest(
    connection: sqlite3.Connection, session_id: str, is_known: Callable[[str], bool],
    most: int = MOST,
) -> tuple[tuple[Key, ...], bool]:  # fmt: skip
    """The messages of a session after the last whose id is known, in order, and whether these are
    all; of each runtime at most `most`, the newest.

    Where both runtimes have written a session (1.14 to 1.17 note switches a second time), which rows
    count is told only by all of its keys, so there these are read, from the index.
    """
    found: list[list[Key]] = []
    complete = True
    tables = _runtimes(connection)
    for table in tables:
        keys: list[Key] = []
        for key in _newest(connection, table, session_id):
            if is_known(key.id):
                break
            if len(keys) == most:
                complete = False
                break
            keys.append(key)
        found.append(keys[::-1])
    merged = list(heapq.merge(*found, key=lambda key: key.created_at))
    if "message" not in tables:
        return tuple(merged), complete
    merged = [
        key
        for key in merged
        if key.table == "message" or not _is_noted_twice(connection, session_id, key)
    ]
    has_newer = any(key.table == "session_message" for key in merged)
    if has_newer and any(_newest(connection, "message", session_id)):
        counted = {(key.table, key.rowid) for key in message_keys(connection, session_id)}
        merged = [key for key in merged if (key.table, key.rowid) in counted]
    return tuple(merged), complete


def _is_noted_twice(connection: sqlite3.Connection, session_id: str, key: Key) -> bool:
    """Whether a row is a switch of the older runtime that 1.14 to 1.17 noted at the very time of a
    message. Asked row by row, so that all keys of a session need be read for other rows only."""
    return bool(
        connection.execute(
            "SELECT 1 FROM session_message s WHERE s.rowid = ? AND CAST(s.type AS TEXT) IN"
            " ('agent-switched', 'model-switched') AND EXISTS (SELECT 1 FROM message m WHERE"
            " m.session_id = ? AND m.time_created = s.time_created)",
            (key.rowid, bindable(session_id)),
        ).fetchone()
    )


def _runtimes(connection: sqlite3.Connection) -> list[str]:
    tables = message_tables(connection)
    return [name for name in ("message", "session_message") if name in tables]


def _newest(connection: sqlite3.Connection, table: str, session_id: str) -> Iterator[Key]:
    """The keys of one table from the last to the first, read as they are asked for."""
    by_number = table == "session_message" and "seq" in columns(connection, table)
    order = "seq DESC" if by_number else "time_created DESC, id DESC"
    for rowid, message_id, time in connection.execute(
        f"SELECT rowid, id, time_created FROM {table} WHERE session_id = ? ORDER BY {order}",
        (bindable(session_id),),
    ):
        if is_id(message_id):
            yield Key(message_id, as_when(time), table, rowid)


@dataclass(frozen=True, slots=True)
class Ends:
    """How far a reader has seen the sessions of several databases: for each, the last row of its
    tables of sessions and messages and the id that this row has."""

    rows: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)

    def dump(self) -> str:
        """As it stands in an address."""
        return json.dumps(dict(self.rows), separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Ends:
        """What `dump` wrote. Raises InvalidInput."""
        try:
            found = json.loads(text)
            rows = {
                name: tuple((number, row_id) for number, row_id in ends)
                for name, ends in found.items()
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise _unknown() from None
        for held in rows.values():
            if len(held) != len(_TABLES) or not all(
                isinstance(number, int) and abs(number) < 2**63 and isinstance(row_id, str)
                for number, row_id in held
            ):
                raise _unknown()
        return cls(rows)


def ends(databases: Iterable[Path]) -> Ends:
    """How far a reader sees the sessions of these databases who reads them now. One that cannot be
    read is left out."""
    rows = {}
    for path in databases:
        try:
            with reading(path, PATIENCE_S) as connection:
                rows[path.name] = tuple(_end(connection, table) for table in _TABLES)
        except MemoryAppError:
            continue
    return Ends(rows)


def _end(connection: sqlite3.Connection, table: str) -> tuple[int, str]:
    if "id" not in columns(connection, table):
        return 0, ""
    for rowid, row_id in connection.execute(
        f"SELECT rowid, id FROM {table} WHERE rowid = (SELECT max(rowid) FROM {table})"
    ):
        return rowid, row_id if is_id(row_id) else ""
    return 0, ""


@dataclass(frozen=True, slots=True)
class WentOn:
    """How many sessions are new or have new messages; not `complete` when there may be more.
    `changed` says that rows went, so that what is new cannot be told by number; `unread` that a
    database could not be read just now."""

    count: int = 0
    complete: bool = True
    changed: bool = False
    unread: bool = False


def went_on(databases: Iterable[Path], held: Ends) -> WentOn:
    """What happened to the sessions since `held`: the newest MOST rows of each table are looked at. A
    database that `held` does not name counts as nothing new; its own page tells of it."""
    found: set[str] = set()
    complete, changed, unread = True, False, False
    for path in databases:
        if path.name not in held.rows:
            continue
        try:
            with reading(path, PATIENCE_S) as connection:
                for table, (last, row_id) in zip(_TABLES, held.rows[path.name], strict=True):
                    name = "id" if table == "session" else "session_id"
                    if name not in columns(connection, table):
                        continue
                    # After a removal SQLite gives the numbers of the last rows again.
                    for (now,) in connection.execute(
                        f"SELECT coalesce((SELECT id FROM {table} WHERE rowid = ?), '')", (last,)
                    ):
                        changed = changed or (now if is_id(now) else "") != row_id
                    rows = connection.execute(
                        f"SELECT {name} FROM {table} WHERE rowid > ? ORDER BY rowid DESC"
                        f" LIMIT {MOST}",
                        (last,),
                    ).fetchall()
                    complete = complete and len(rows) < MOST
                    found.update(row[0] for row in rows if is_id(row[0]))
        except MemoryAppError:
            unread = True
    return WentOn(len(found), complete, changed, unread)
