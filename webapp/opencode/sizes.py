"""How much OpenCode keeps of some sessions, estimated from its indexes and a few rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from webapp.opencode.database import columns, reading
from webapp.opencode.records import Session

SAMPLED = 40
FIRST = 20
"""Sessions that are looked into, and of each the first messages."""

CHUNK = 500
_TABLES = (("message", "part"), ("session_message", None))


def estimate_bytes(sessions: Sequence[Session]) -> int:
    """About the bytes that OpenCode keeps of the messages of these sessions.

    Messages are counted in an index, and their size is taken from the first FIRST of SAMPLED
    sessions, so that no table is read as a whole. Raises Unreadable or Busy.
    """
    total = 0.0
    for path in {session.db for session in sessions}:
        ids = [session.id for session in sessions if session.db == path]
        step = max(1, len(ids) // SAMPLED)
        with reading(path) as connection:
            for table, parts in _TABLES:
                if not {"id", "session_id", "data"} <= columns(connection, table):
                    continue
                held = {"message_id", "data"} <= columns(connection, parts) if parts else False
                looked = size = 0
                for session_id in ids[::step][:SAMPLED]:
                    one, its_size = _look(connection, table, parts if held else None, session_id)
                    looked += one
                    size += its_size
                if looked:
                    total += _count(connection, table, ids) * size / looked
    return int(total)


def _look(
    connection: sqlite3.Connection, table: str, parts: str | None, session_id: str
) -> tuple[int, int]:
    """How many messages of a session were looked at, and the bytes of these."""
    count = size = 0
    for message_id, length in connection.execute(
        f"SELECT id, length(CAST(data AS BLOB)) FROM {table} WHERE session_id = ? LIMIT {FIRST}",
        (session_id,),
    ):
        count += 1
        size += length or 0
        if parts:
            (more,) = connection.execute(
                f"SELECT coalesce(sum(length(CAST(data AS BLOB))), 0) FROM {parts} WHERE message_id = ?",
                (message_id,),
            ).fetchone()
            size += more
    return count, size


def _count(connection: sqlite3.Connection, table: str, ids: Sequence[str]) -> int:
    total = 0
    for start in range(0, len(ids), CHUNK):
        chunk = ids[start : start + CHUNK]
        marks = ",".join("?" * len(chunk))
        (count,) = connection.execute(
            f"SELECT count(*) FROM {table} WHERE session_id IN ({marks})", chunk
        ).fetchone()
        total += count
    return total
