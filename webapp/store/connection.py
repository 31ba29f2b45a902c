"""Connections to memory.db: one a request, short writes that take the lock first, plain errors."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import peewee

from webapp.errors import Busy, InvalidInput, MemoryAppError, ReadOnly, Unreadable
from webapp.store import layout
from webapp.store.values import as_text

BUSY_TIMEOUT_MS = 5000
WRITE_PATIENCE_S = 15.0
"""How long a write waits for another process before it gives up."""

INDEXING_S = 0.5
PAUSE_S = 0.2
"""The time that indexing a large store takes the lock for, and leaves it for: SQLite asks again for
a lock at least every 100 ms, so that a writer that waits comes in between."""


def now_ms() -> int:
    """The present in epoch milliseconds, the unit of every time in memory.db."""
    return time.time_ns() // 1_000_000


# Peewee translates what executing raises, but not what fetching a row raises. The last two come
# from a value that SQLite cannot hold.
_ERRORS = (peewee.DatabaseError, sqlite3.Error, UnicodeEncodeError, OverflowError)


class _Memory(peewee.SqliteDatabase):
    """Stands in for a file that does not exist yet, so that reading it finds it empty."""


class Store:
    """memory.db at `path`. Open it with `session()`; read with `rows`, `all`, `first`, `value`;
    write inside `writing()`.

    A missing file reads as an empty store and is created by the first write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        pragmas = [("busy_timeout", BUSY_TIMEOUT_MS), ("foreign_keys", 1), ("synchronous", 1)]
        uri = "file:" + quote(os.fsencode(path))
        timeout = BUSY_TIMEOUT_MS / 1000
        self._file = peewee.SqliteDatabase(
            uri + "?mode=rw", uri=True, autoconnect=False, timeout=timeout, pragmas=pragmas
        )
        looking = [("busy_timeout", BUSY_TIMEOUT_MS), ("query_only", 1)]
        self._guarded_file = peewee.SqliteDatabase(
            uri + "?mode=rw", uri=True, autoconnect=False, timeout=timeout, pragmas=looking
        )
        self._read_only_file = peewee.SqliteDatabase(
            uri + "?mode=ro", uri=True, autoconnect=False, timeout=timeout, pragmas=looking
        )
        self._immutable_file = peewee.SqliteDatabase(
            uri + "?mode=ro&immutable=1", uri=True, autoconnect=False
        )
        self._empty = _Memory(":memory:", autoconnect=False)
        self._local = threading.local()
        self._upgrading = threading.Lock()
        self._known: tuple[int, int, int] | None = None

    @property
    def db(self) -> Any:
        """The open database of this thread."""
        db = getattr(self._local, "db", None)
        if db is None:
            raise RuntimeError("the store is not open in this thread; use `with store.session()`")
        return db

    @property
    def read_only(self) -> str | None:
        """Why this store must not be written, or None."""
        return getattr(self._local, "read_only", None)

    @property
    def indexed(self) -> bool:
        """Whether our own search index is in the open file."""
        return bool(getattr(self._local, "indexed", False))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `entries` that the open file has, of those we know."""
        return getattr(self._local, "columns", layout.ENTRY_COLUMNS)

    @property
    def exists(self) -> bool:
        """Whether there is anything on disk yet."""
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False
        except OSError as error:
            raise Unreadable(f"{self.path} cannot be reached: {error.strerror}.") from error

    @contextmanager
    def session(self, in_place: bool = False) -> Iterator[Store]:
        """Opens the store for this thread and closes it at the end. Nested use is one session. With
        `in_place` a file that cannot be read counts as an empty store."""
        if getattr(self._local, "db", None) is not None:
            yield self
            return
        try:
            self.open()
        except MemoryAppError as error:
            if not in_place:
                raise
            self.open_in_place(error.message)
        try:
            yield self
        finally:
            self.close()

    def open(self, create: bool = False) -> None:
        """Connects this thread. Raises Unreadable or Busy with a sentence; nothing stays open.

        With `create` a file without tables gets its layout, else it reads as an empty store and
        stays as it is.
        """
        self._local.read_only = None
        self._local.indexed = True
        self._local.columns = layout.ENTRY_COLUMNS
        try:
            if create or self.exists:
                self._open_file(create)
            else:
                self._open_empty()
        except _ERRORS as error:
            self.close()
            raise self._plain(error) from error
        except MemoryAppError:
            self.close()
            raise

    def open_in_place(self, why: str) -> None:
        """Connects this thread to an empty store in place of a file that cannot be read; `why` is
        the reason that a write is refused with."""
        self._open_empty()
        self._local.read_only = why

    def close(self) -> None:
        """Closes this thread's connection; it is fine when there is none."""
        db = getattr(self._local, "db", None)
        self._local.db = None
        if db is not None and not db.is_closed():
            db.close()

    def _open_empty(self) -> None:
        self._connect(self._empty)
        layout.migrate(self._empty, now_ms())

    def _connect(self, db: Any) -> None:
        self._local.db = db
        db.connect(reuse_if_open=True)
        # Bun writes a string that was cut inside an emoji as bytes that are no UTF-8. Such a row is
        # shown with a replacement character; it must not hide every other.
        db.connection().text_factory = lambda raw: raw.decode("utf-8", "replace")
        db.connection().create_function("fold", 1, _fold, deterministic=True)

    def _open_file(self, create: bool) -> None:
        state = self.path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise Unreadable(f"{self.path} is not a file. Choose another with --db.")
        if not state.st_mode & 0o222 or not os.access(self.path, os.W_OK):
            self._open_read_only(f"{self.path} is write-protected")
            return
        try:
            self._connect(self._file)
            schema = self._pragma("schema_version")
        except peewee.OperationalError as error:
            if not _is_protected(error):
                raise
            self.close()
            self._open_read_only(f"the folder of {self.path} is write-protected")
            return
        key = (state.st_dev, state.st_ino, schema)
        if key == self._known:
            self._use_wal()
            self._assert_pragmas()
            return
        found = layout.inspect(self._file)
        if found.kind == "unreadable":
            raise Unreadable(
                f"{self.path} is not a memory database: {found.difference}. It was left as it is; "
                "choose another file with --db."
            )
        if found.kind in ("foreign", "newer"):
            self.close()
            whose = "" if found.kind == "newer" else "was written by another program: "
            self._open_read_only(f"{self.path} {whose}{found.difference}", self._guarded_file)
            return
        if found.kind == "empty" and not create:
            self.close()
            self._open_empty()
            return
        try:
            self._use_wal()
        except peewee.OperationalError as error:
            if not _is_protected(error):
                raise
            self.close()
            self._open_read_only(f"the folder of {self.path} is write-protected")
            return
        if found.missing or found.kind == "empty":
            # One thread at a time: several at once would leave another program's writes no gap.
            with self._upgrading:
                with self._transaction():
                    layout.migrate(self._file, now_ms())
                self._index()
            schema = self._pragma("schema_version")
        self._assert_pragmas()
        self._known = (state.st_dev, state.st_ino, schema)

    def _index(self) -> None:
        more = True
        while more:
            with self._transaction():
                more = layout.index_some(self._file, INDEXING_S)
            if more:
                time.sleep(PAUSE_S)

    def _use_wal(self) -> None:
        if self._pragma("journal_mode") != "wal":
            # The switch needs the file alone, and SQLite does not wait for that: two processes that
            # create it at the same moment would fail at once.
            self._patiently("PRAGMA journal_mode = wal")

    def _is_idle_wal(self) -> bool:
        """Whether the file is in WAL mode and nobody has it open: no -wal and no -shm beside it."""
        try:
            with self.path.open("rb") as file:
                header = file.read(20)
        except OSError:
            return False
        beside = (self.path.with_name(self.path.name + suffix) for suffix in ("-wal", "-shm"))
        return header[18:20] == b"\2\2" and not any(path.exists() for path in beside)

    def _open_read_only(self, why: str, db: peewee.SqliteDatabase | None = None) -> None:
        if db is None:
            # Read-only, an idle WAL file leaves -wal and -shm behind, write-protected like itself
            # and in the way of the next writer, or cannot be opened at all in a folder where they
            # cannot be made. Immutable needs neither, and hides nothing when there is no WAL.
            db = self._immutable_file if self._is_idle_wal() else self._read_only_file
        self._connect(db)
        found = layout.inspect(self.db)
        self._local.read_only = f"{why}. It is shown read-only."
        if found.kind == "empty":
            self.close()
            self._open_empty()
            return
        if found.kind == "unreadable":
            raise Unreadable(
                f"{self.path} is not a memory database: {found.difference}. Choose another file "
                "with --db."
            )
        present = layout.columns(self.db, "entries")
        self._local.columns = tuple(c for c in layout.ENTRY_COLUMNS if c in present)
        self._local.indexed = found.kind == "ours" and not found.missing

    def _pragma(self, name: str) -> Any:
        return self.db.execute_sql(f"PRAGMA {name}").fetchone()[0]

    def _assert_pragmas(self) -> None:
        wanted = {"journal_mode": "wal", "busy_timeout": BUSY_TIMEOUT_MS, "foreign_keys": 1,
                  "synchronous": 1}  # fmt: skip
        found = {name: self._pragma(name) for name in wanted}
        if found != wanted:
            raise Unreadable(
                f"{self.path} cannot be used safely: SQLite answered {found}, expected {wanted}. "
                "A network file system may be the reason."
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._patiently("BEGIN IMMEDIATE")
        try:
            yield
            self.db.commit()
        except BaseException:
            # A full disk, for one, has rolled back already.
            if self.db.connection().in_transaction:
                self.db.rollback()
            raise

    def _patiently(self, sql: str) -> None:
        deadline = time.monotonic() + WRITE_PATIENCE_S
        while True:
            try:
                self.db.execute_sql(sql).fetchall()
                return
            except peewee.OperationalError as error:
                if not _is_lock(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    @contextmanager
    def writing(self, create: bool = True) -> Iterator[None]:
        """A write transaction. Keep it short: every other writer waits for it.

        A missing file is created, unless `create` is false: then the writer looks for what it is
        to change in an empty store.

        It takes the lock at once, because "if a read transaction tries to upgrade and another
        connection has modified the database, the result is SQLITE_BUSY" whatever the timeout
        (sqlite.org/lang_transaction.html, 2.2). Raises ReadOnly, Busy or Unreadable; then nothing
        was changed.
        """
        if self.db is self._empty and create:
            self._create()
        if self.read_only:
            raise ReadOnly(f"{self.read_only} Nothing was changed.")
        try:
            with self._transaction():
                yield
        except _ERRORS as error:
            raise self._plain(error) from error

    def _create(self) -> None:
        try:
            private_folder(self.path.parent)
            private_file(self.path)
        except OSError as error:
            raise Unreadable(
                f"{self.path} cannot be created: {error.strerror}. Nothing was saved."
            ) from error
        self.close()
        self.open(create=True)

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Runs a statement and returns all its rows."""
        try:
            return list(self.db.execute_sql(sql, tuple(params)).fetchall())
        except _ERRORS as error:
            raise self._plain(error) from error

    def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        found = self.rows(sql, params)
        return found[0][0] if found else None

    def all(self, query: Any) -> list[Any]:
        """Runs a Peewee select and returns its rows as models."""
        try:
            return list(query.execute(self.db))
        except _ERRORS as error:
            raise self._plain(error) from error

    def first(self, query: Any) -> Any:
        """The first row of a Peewee select, or None."""
        found = self.all(query.limit(1))
        return found[0] if found else None

    def run(self, query: Any) -> int:
        """Runs a Peewee insert, update or delete; returns the count of rows (or the new id)."""
        try:
            return int(query.execute(self.db) or 0)
        except _ERRORS as error:
            raise self._plain(error) from error

    def has_table(self, name: str) -> bool:
        """Whether the open file has a table; a read-only file may lack those that are ours."""
        return bool(self.value("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def has_columns(self, table: str, names: Sequence[str]) -> bool:
        """Whether a table is there with these columns; one of another program may lack them, and opens
        the file read-only (webapp/store/layout.py)."""
        found = {row[0] for row in self.rows("SELECT name FROM pragma_table_info(?)", (table,))}
        return found.issuperset(names)

    def add_table(self, name: str) -> None:
        """Makes a table that is there only where it is used, inside the caller's write transaction."""
        try:
            layout.add(self.db, name, now_ms())
        except _ERRORS as error:
            raise self._plain(error) from error

    def disk_bytes(self) -> int:
        """Bytes of the database and its write-ahead log."""
        total = 0
        for suffix in ("", "-wal"):
            try:
                total += self.path.with_name(self.path.name + suffix).stat().st_size
            except FileNotFoundError:
                continue
        return total

    def version(self) -> tuple[int, ...]:
        """Changes whenever any process has written: the times and sizes of the files. The log is made
        anew, empty, by the first connection of a while, also by one that only reads."""
        found: list[int] = []
        for suffix in ("", "-wal"):
            try:
                state = self.path.with_name(self.path.name + suffix).stat()
            except OSError:
                continue
            if state.st_size:
                found += [state.st_ino, state.st_mtime_ns, state.st_size]
        return tuple(found)

    def _plain(self, error: Exception) -> MemoryAppError:
        text = str(error)
        if isinstance(error, UnicodeEncodeError):
            return InvalidInput("A text is not valid Unicode; nothing can be kept under it.")
        if isinstance(error, OverflowError):
            return InvalidInput("A number is too large to be kept.")
        if _is_lock(error):
            return Busy(
                f"Another program has been writing to {self.path} for too long. Nothing was "
                "changed; try again in a moment."
            )
        if "full" in text:
            return Unreadable(f"The disk that holds {self.path} is full. Nothing was changed.")
        if "readonly" in text:
            return ReadOnly(f"{self.path} is write-protected. Nothing was changed.")
        if "unable to open" in text:
            return Unreadable(
                f"{self.path} cannot be opened; check who may read it and its folder."
            )
        if "malformed" in text or "not a database" in text or "corrupt" in text:
            return Unreadable(
                f"{self.path} is damaged or not an SQLite database ({text}). It was left as it is. "
                "Run “opencode-memory doctor”, or move the file away to start anew."
            )
        return Unreadable(f"{self.path}: {text}.")


def _fold(value: object) -> str:
    """In SQL what `casefold` is here: SQLite's own LIKE and lower() know ASCII letters only."""
    return as_text(value).casefold()


def _is_lock(error: Exception) -> bool:
    for cause in (error, error.__cause__, error.__context__):
        code = getattr(cause, "sqlite_errorcode", None)
        if code is not None:
            return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return "locked" in str(error)


def _is_protected(error: Exception) -> bool:
    return "readonly" in str(error) or "unable to open" in str(error)


def private_folder(folder: Path) -> None:
    """Creates a folder, 0700 whatever the umask; one that exists is left as it is."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(0o700, exist_ok=True)
        path.chmod(0o700)


def private_file(path: Path) -> None:
    """Creates an empty file, 0600 whatever the umask; one that exists is left as it is."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return
    os.fchmod(descriptor, 0o600)
    os.close(descriptor)
