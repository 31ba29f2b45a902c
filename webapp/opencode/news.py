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

_TABLES = ("session", "message", "session_message")


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a reader has seen a session: the last message of each runtime, empty where there is
    none, when the last of them was touched (epoch milliseconds), and how many parts it had."""

    older: str = ""
    newer: str = ""
    touched: int = 0
    parts: int = 0

    def dump(self) -> str:
        """As it stands in an address."""
        return json.dumps(astuple(self), separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Seen:
        """What `dump` wrote. Raises InvalidInput."""
        try:
            older, newer, touched, parts = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise _unknown() from None
        if not (isinstance(older, str) and isinstance(newer, str)):
            raise _unknown()
        if not (isinstance(touched, int) and isinstance(parts, int)):
            raise _unknown()
        return cls(older, newer, touched, parts)


def _unknown() -> InvalidInput:
    return InvalidInput(
        "The address does not say what was seen already. Reload the page that asked.", "seen"
    )


@dataclass(frozen=True, slots=True)
class News:
    """The messages that came after what was seen, in order; not `complete` when there are more than
    MOST. `changed` says that the last message went on, or that what was seen last is gone."""

    messages: tuple[Key, ...] = ()
    complete: bool = True
    changed: bool = False


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
    )  # fmt: skip


def since(connection: sqlite3.Connection, session_id: str, held: Seen) -> News:
    """What came into a session after `held`."""
    now = seen(connection, session_id)
    if now == held:
        return News()
    for last in (held.older, held.newer):
        if last and not is_there(connection, session_id, last):
            return News(changed=True)
    keys, complete = newest(connection, session_id, lambda name: name in (held.older, held.newer))
    return News(keys, complete, not keys)


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
    for table in _runtimes(connection):
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
    if any(key.table == "session_message" for key in merged) and _is_older(connection, session_id):
        counted = {(key.table, key.rowid) for key in message_keys(connection, session_id)}
        merged = [key for key in merged if (key.table, key.rowid) in counted]
    return tuple(merged), complete


def _runtimes(connection: sqlite3.Connection) -> list[str]:
    return [name for name in ("message", "session_message") if name in message_tables(connection)]


def _is_older(connection: sqlite3.Connection, session_id: str) -> bool:
    return "message" in _runtimes(connection) and any(_newest(connection, "message", session_id))


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
    """How far a reader has seen the sessions of several databases: for each the last rows of its
    tables of sessions and messages."""

    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def dump(self) -> str:
        """As it stands in an address."""
        return json.dumps(dict(self.rows), separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> Ends:
        """What `dump` wrote. Raises InvalidInput."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise _unknown() from None
        if not isinstance(found, dict):
            raise _unknown()
        rows: dict[str, tuple[int, ...]] = {}
        for name, numbers in found.items():
            if not isinstance(numbers, list) or len(numbers) != len(_TABLES):
                raise _unknown()
            if not all(isinstance(number, int) and abs(number) < 2**63 for number in numbers):
                raise _unknown()
            rows[name] = tuple(numbers)
        return cls(rows)


def ends(databases: Iterable[Path]) -> Ends:
    """How far a reader sees the sessions of these databases who reads them now. One that cannot be
    read is left out."""
    rows = {}
    for path in databases:
        try:
            with reading(path) as connection:
                rows[path.name] = tuple(
                    connection.execute(f"SELECT coalesce(max(rowid), 0) FROM {table}").fetchone()[0]
                    if columns(connection, table) else 0
                    for table in _TABLES
                )  # fmt: skip
        except MemoryAppError:
            continue
    return Ends(rows)


def went_on(databases: Iterable[Path], held: Ends) -> tuple[int, bool]:
    """How many sessions are new or have new messages since `held`, and whether these are all: the
    newest MOST rows of each table are looked at. A database that cannot be read, or that `held` does
    not name, counts as nothing new; its own page tells of it."""
    found: set[str] = set()
    complete = True
    for path in databases:
        if path.name not in held.rows:
            continue
        try:
            with reading(path) as connection:
                for table, last in zip(_TABLES, held.rows[path.name], strict=True):
                    name = "id" if table == "session" else "session_id"
                    if name not in columns(connection, table):
                        continue
                    rows = connection.execute(
                        f"SELECT {name} FROM {table} WHERE rowid > ? ORDER BY rowid DESC"
                        f" LIMIT {MOST}",
                        (last,),
                    ).fetchall()
                    complete = complete and len(rows) < MOST
                    found.update(row[0] for row in rows if is_id(row[0]))
        except MemoryAppError:
            continue
    return len(found), complete
