"""OpenCode's database, opened read-only for as short as possible."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import quote

from webapp.errors import Busy, MemoryAppError, Unreadable

BUSY_TIMEOUT_S = 3.0
BRIEF_S = 0.1
"""How long a locked database is still waited for when the others have taken all patience."""

FORBIDDEN = frozenset(
    {"account", "account_state", "control_account", "credential", "session_share", "event"}
)
"""Tables that hold tokens, and the event log, which can be most of the file. Never read."""


_READS = frozenset(
    {
        sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION,
    }
)  # fmt: skip


def _authorize(action: int, first: str | None, _second: object, _db: object, _by: object) -> int:
    if action == sqlite3.SQLITE_READ and first in FORBIDDEN:
        return sqlite3.SQLITE_DENY
    if action in _READS or (action == sqlite3.SQLITE_PRAGMA and first == "table_info"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _mode(path: Path) -> str:
    """How to open a database so that it is left as it was.

    Mostly mode=ro, which sees what is still in the WAL. With it an idle WAL database (whose -wal
    its last user took away) would get a -wal and a -shm that only a connection that may write takes
    away again; so there mode=rw, with every write refused, or in a folder that is not ours
    immutable, which hides nothing where no -wal is.
    """
    with path.open("rb") as file:
        is_wal = file.read(20)[18:] == b"\2\2"
    if not is_wal or path.with_name(path.name + "-wal").exists():
        return "mode=ro"
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK):
        return "mode=rw"
    return "mode=ro&immutable=1"


class Patience:
    """What one page waits for locked databases: BUSY_TIMEOUT_S in all, and for none twice."""

    def __init__(self) -> None:
        self.left = BUSY_TIMEOUT_S
        self.locked: set[Path] = set()

    def wait(self, path: Path, timeout: float) -> float:
        """Seconds to wait for a database."""
        return 0.0 if path in self.locked else min(timeout, max(self.left, BRIEF_S))


_patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


def share_patience(patience: Patience | None) -> None:
    """Lets all that this thread opens from now on share a patience, or none."""
    _patience.set(patience)


@contextmanager
def reading(path: Path, timeout: float = BUSY_TIMEOUT_S) -> Iterator[sqlite3.Connection]:
    """A read-only connection inside one read transaction, so that all reads see one moment.

    What is still in the WAL is seen, nothing can be written, and no file is left behind. Raises
    Unreadable or Busy with a sentence for a missing, locked, corrupt or foreign file.
    """
    connection: sqlite3.Connection | None = None
    patience = _patience.get()
    began = time.monotonic()
    if patience is not None:
        timeout = patience.wait(path, timeout)
    try:
        mode = _openable(path)
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?{mode}", uri=True, timeout=timeout,
            isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        connection.execute("PRAGMA query_only = 1")
        connection.set_authorizer(_authorize)
        connection.execute("BEGIN")
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            if patience is not None:
                patience.left -= time.monotonic() - began
        yield connection
    except sqlite3.Error as error:
        told = plain(path, error)
        if patience is not None and isinstance(told, Busy):
            patience.locked.add(path)
        raise told from error
    finally:
        if connection is not None:
            connection.close()


def _openable(path: Path) -> str:
    try:
        if path.is_file():
            return _mode(path)
    except OSError as error:
        raise Unreadable(
            f"OpenCode's database {path} cannot be opened: {error.strerror}."
        ) from error
    if os.path.lexists(path):
        raise Unreadable(
            f"OpenCode's database {path} is no file but a folder, a device or a link that leads nowhere."
            " Name the database that OpenCode uses with --opencode-db."
        )
    raise Unreadable(
        f"OpenCode's database {path} is not there. If OpenCode keeps it elsewhere, name it with "
        "--opencode-db."
    )


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


def version(databases: Iterable[Path]) -> tuple[int, ...]:
    """Changes whenever something is written to one of the databases: the times and sizes of their
    files. None is opened."""
    found: list[int] = []
    for path in databases:
        for file in (path, path.with_name(path.name + "-wal")):
            try:
                state = file.stat()
            except OSError:
                continue
            if state.st_size:
                found += [state.st_ino, state.st_mtime_ns, state.st_size]
    return tuple(found)


def last_version(databases: Iterable[Path]) -> str:
    """The version of OpenCode that made the newest session, empty where that is not known."""
    for path in databases:
        try:
            with reading(path) as connection:
                row = connection.execute(
                    "SELECT version FROM session ORDER BY time_created DESC LIMIT 1"
                ).fetchone()
        except (MemoryAppError, sqlite3.Error):
            continue
        if row and isinstance(row[0], str):
            return row[0]
    return ""


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """The columns of a table, empty when there is no such table."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
