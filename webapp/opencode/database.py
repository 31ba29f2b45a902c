"""OpenCode's database, opened read-only for as short as possible."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from webapp.errors import Busy, MemoryAppError, Unreadable

BUSY_TIMEOUT_S = 3.0
FORBIDDEN = frozenset(
    {"account", "account_state", "control_account", "credential", "session_share", "event"}
)
"""Tables that hold tokens, and the event log, which can be most of the file. Never read."""


def _authorize(action: int, table: str | None, _column: object, _db: object, _by: object) -> int:
    if action == sqlite3.SQLITE_READ and table in FORBIDDEN:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection inside one read transaction, so that all reads see one moment.

    Opened with mode=ro, which sees what is still in the WAL; `immutable=1` would not. Raises
    Unreadable or Busy with a sentence for a missing, locked, corrupt or foreign file.
    """
    if not path.is_file():
        raise Unreadable(
            f"OpenCode's database {path} is not there. If OpenCode keeps it elsewhere, name it with "
            "--opencode-db."
        )
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S,
            isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA query_only = 1")
        connection.set_authorizer(_authorize)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield connection
    except sqlite3.Error as error:
        raise plain(path, error) from error
    finally:
        if connection is not None:
            connection.close()


def plain(path: Path, error: sqlite3.Error) -> MemoryAppError:
    """An SQLite error on OpenCode's database as a sentence for the person who meets it."""
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy(f"OpenCode's database {path} is locked by another program; try again shortly.")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Unreadable(f"OpenCode's database {path} is damaged or no SQLite database ({text}).")
    if code == sqlite3.SQLITE_CANTOPEN:
        return Unreadable(f"OpenCode's database {path} cannot be opened; check who may read it.")
    return Unreadable(f"OpenCode's database {path} cannot be read: {text}.")


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table, empty when there is no such table."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
