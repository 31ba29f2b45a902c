"""The layout of memory.db: what the plugin wrote, what we add, and how a foreign file is told.

Everything we add is additive and recorded in `webapp_migrations`; `user_version` is not ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Runs(Protocol):
    """Anything that runs one SQL statement: a Peewee database."""

    def execute_sql(self, sql: str, params: Any = None) -> Any:
        """Runs one statement and returns its cursor."""


PUBLIC_COLUMNS = (
    "id", "scope", "kind", "title", "body", "tags", "created_at", "updated_at", "expires_at",
)  # fmt: skip
ENTRY_COLUMNS = (*PUBLIC_COLUMNS, "source")
TRASH_COLUMNS = (*ENTRY_COLUMNS, "trashed_at", "trashed_by")
TRANSCRIPT_COLUMNS = (
    "session_id", "scope", "path", "title", "source_db", "created_at", "updated_at", "exported_at",
    "messages", "lines", "size", "marks_size", "removed_at", "removed_by", "removed_why",
)  # fmt: skip
RECEIPT_COLUMNS = ("id", "at", "action", "actor", "summary", "detail")
ORIGIN_COLUMNS = ("entry_id", "session_id", "first_line", "last_line", "hash", "at")
REFLECTION_COLUMNS = (
    "session_id", "at", "state", "attempts", "model", "prompt_tokens", "completion_tokens", "saved",
    "skipped", "refused", "problem",
)  # fmt: skip

PUBLIC_DDL = (
    """CREATE TABLE IF NOT EXISTS entries (
      id TEXT PRIMARY KEY, scope TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL,
      body TEXT NOT NULL, tags TEXT NOT NULL DEFAULT '[]', created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL, expires_at INTEGER)""",
    """CREATE VIRTUAL TABLE IF NOT EXISTS entries_fts USING fts5(
      title, body, tags, content='entries', content_rowid='rowid')""",
    """CREATE TRIGGER IF NOT EXISTS entries_ai AFTER INSERT ON entries BEGIN
      INSERT INTO entries_fts(rowid, title, body, tags)
      VALUES (new.rowid, new.title, new.body, new.tags); END""",
    """CREATE TRIGGER IF NOT EXISTS entries_ad AFTER DELETE ON entries BEGIN
      INSERT INTO entries_fts(entries_fts, rowid, title, body, tags)
      VALUES ('delete', old.rowid, old.title, old.body, old.tags); END""",
    """CREATE TRIGGER IF NOT EXISTS entries_au AFTER UPDATE ON entries BEGIN
      INSERT INTO entries_fts(entries_fts, rowid, title, body, tags)
      VALUES ('delete', old.rowid, old.title, old.body, old.tags);
      INSERT INTO entries_fts(rowid, title, body, tags)
      VALUES (new.rowid, new.title, new.body, new.tags); END""",
)

OUR_INDEXES = ("webapp_words", "webapp_grams")
SEARCH_INDEX = "0005-search-index"
SLICE = 200
"""Entries that are indexed between two looks at the clock; of the longest, a tenth of a second."""

_ALL = 2**63 - 1
"""The largest rowid: what `webapp_indexed` holds once every entry is in our indexes."""

_ADD = (
    "INSERT INTO {t}(rowid, title, body, tags) VALUES (new.rowid, new.title, new.body, new.tags);"
)
_DROP = (
    "INSERT INTO {t}({t}, rowid, title, body, tags)"
    " VALUES ('delete', old.rowid, old.title, old.body, old.tags);"
)


def _index_ddl() -> tuple[str, ...]:
    add = " ".join(_ADD.format(t=name) for name in OUR_INDEXES)
    drop = " ".join(_DROP.format(t=name) for name in OUR_INDEXES)
    content = "title, body, tags, content='entries', content_rowid='rowid'"
    return (
        f"CREATE VIRTUAL TABLE IF NOT EXISTS webapp_words USING fts5({content},"
        " tokenize='porter unicode61 remove_diacritics 2', prefix='2 3')",
        f"CREATE VIRTUAL TABLE IF NOT EXISTS webapp_grams USING fts5({content}, tokenize='trigram')",
        "INSERT INTO webapp_words(webapp_words, rank) VALUES ('rank', 'bm25(8.0, 1.0, 4.0)')",
        # `index_some` goes through the entries in the order of their rowids; until it has come to
        # a row, the triggers leave it alone.
        "CREATE TABLE IF NOT EXISTS webapp_indexed (upto INTEGER NOT NULL)",
        *(f"DROP TRIGGER IF EXISTS {name}" for name in ("webapp_ai", "webapp_ad", "webapp_au")),
        "CREATE TRIGGER webapp_ai AFTER INSERT ON entries"
        f" WHEN new.rowid <= (SELECT upto FROM webapp_indexed) BEGIN {add} END",
        "CREATE TRIGGER webapp_ad AFTER DELETE ON entries"
        f" WHEN old.rowid <= (SELECT upto FROM webapp_indexed) BEGIN {drop} END",
        "CREATE TRIGGER webapp_au AFTER UPDATE OF title, body, tags ON entries"
        f" WHEN old.rowid <= (SELECT upto FROM webapp_indexed) BEGIN {drop} {add} END",
        *(f"INSERT INTO {name}({name}) VALUES ('delete-all')" for name in OUR_INDEXES),
        "DELETE FROM webapp_indexed",
        f"INSERT INTO webapp_indexed SELECT coalesce(min(rowid) - 1, {_ALL}) FROM entries",
    )


def _add_source(db: Runs) -> None:
    if "source" not in columns(db, "entries"):
        db.execute_sql("ALTER TABLE entries ADD COLUMN source TEXT")


def _run(*statements: str) -> Callable[[Runs], None]:
    def apply(db: Runs) -> None:
        for statement in statements:
            db.execute_sql(statement)

    return apply


MIGRATIONS: tuple[tuple[str, Callable[[Runs], None]], ...] = (
    ("0001-entries-source", _add_source),
    (
        "0002-trash",
        _run(
            """CREATE TABLE IF NOT EXISTS trash (
              id TEXT PRIMARY KEY, scope TEXT NOT NULL, kind TEXT NOT NULL, title TEXT NOT NULL,
              body TEXT NOT NULL, tags TEXT NOT NULL DEFAULT '[]', created_at INTEGER NOT NULL,
              updated_at INTEGER NOT NULL, expires_at INTEGER, source TEXT,
              trashed_at INTEGER NOT NULL, trashed_by TEXT NOT NULL)""",
            "CREATE INDEX IF NOT EXISTS webapp_trash_at ON trash(trashed_at)",
        ),
    ),
    (
        "0003-transcripts",
        _run(
            """CREATE TABLE IF NOT EXISTS transcripts (
              session_id TEXT PRIMARY KEY, scope TEXT NOT NULL, path TEXT NOT NULL,
              title TEXT NOT NULL, source_db TEXT NOT NULL, created_at INTEGER NOT NULL,
              updated_at INTEGER NOT NULL, exported_at INTEGER NOT NULL, messages INTEGER NOT NULL,
              lines INTEGER NOT NULL, size INTEGER NOT NULL, marks_size INTEGER NOT NULL,
              removed_at INTEGER, removed_by TEXT, removed_why TEXT)""",
            "CREATE INDEX IF NOT EXISTS webapp_transcripts_scope ON transcripts(scope, updated_at)",
        ),
    ),
    (
        "0004-receipts",
        _run(
            """CREATE TABLE IF NOT EXISTS receipts (
              id INTEGER PRIMARY KEY, at INTEGER NOT NULL, action TEXT NOT NULL,
              actor TEXT NOT NULL, summary TEXT NOT NULL, detail TEXT NOT NULL DEFAULT '{}')""",
        ),
    ),
    (SEARCH_INDEX, _run(*_index_ddl())),
    (
        "0006-entries-by-age",
        _run(
            "CREATE INDEX IF NOT EXISTS webapp_entries_updated ON entries(updated_at)",
            "CREATE INDEX IF NOT EXISTS webapp_entries_scope ON entries(scope, title)",
        ),
    ),
    (
        # A count by scope, kind or source from this index takes a fifth of a scan of the entries.
        "0007-entries-counted",
        _run(
            "CREATE INDEX IF NOT EXISTS webapp_entries_facets"
            " ON entries(scope, kind, source, expires_at, created_at)",
            "CREATE INDEX IF NOT EXISTS webapp_entries_expires ON entries(expires_at)"
            " WHERE expires_at IS NOT NULL",
        ),
    ),
    (
        # Without them a page of a library of 20,000 takes 30 ms of sorting, with them 1.
        "0008-transcripts-sorted",
        _run(
            *(
                f"CREATE INDEX IF NOT EXISTS webapp_transcripts_by_{name} ON transcripts({key})"
                " WHERE removed_at IS NULL"
                for name, key in (
                    ("touch", "updated_at, session_id"),
                    ("title", "title COLLATE NOCASE, session_id"),
                    ("size", "size, session_id"),
                    ("lines", "lines, session_id"),
                    # The totals come from this one alone; for that SQLite wants every column that
                    # the query names, also the one that the index is partial by.
                    ("scope", "scope, session_id, lines, size, removed_at"),
                )
            )
        ),
    ),
    (
        "0009-origins",
        _run(
            """CREATE TABLE IF NOT EXISTS origins (
              entry_id TEXT PRIMARY KEY, session_id TEXT NOT NULL, first_line INTEGER NOT NULL,
              last_line INTEGER NOT NULL, hash TEXT NOT NULL, at INTEGER NOT NULL)""",
        ),
    ),
    (
        # Without it the newest of one project in 100,000 entries take 18 ms of sorting, with it 1.
        "0010-entries-newest",
        _run(
            "CREATE INDEX IF NOT EXISTS webapp_entries_newest"
            " ON entries(scope, updated_at, expires_at)"
        ),
    ),
)

ON_DEMAND: dict[str, tuple[str, Callable[[Runs], None]]] = {
    "reflections": (
        "0011-reflections",
        _run(
            """CREATE TABLE IF NOT EXISTS reflections (
              session_id TEXT PRIMARY KEY, at INTEGER NOT NULL, state TEXT NOT NULL,
              attempts INTEGER NOT NULL, model TEXT NOT NULL, prompt_tokens INTEGER,
              completion_tokens INTEGER, saved INTEGER NOT NULL DEFAULT 0,
              skipped INTEGER NOT NULL DEFAULT 0, refused INTEGER NOT NULL DEFAULT 0,
              problem TEXT NOT NULL DEFAULT '')""",
            "CREATE INDEX IF NOT EXISTS webapp_reflections_at ON reflections(at)",
        ),
    ),
}
"""Tables of what is off by default, made when it is first used: `add`."""

_MADE_AGAIN = {"0004-receipts": "receipts", "0009-origins": "origins"}
"""Tables that one migration makes whole: one that somebody dropped is made again."""

_MIGRATIONS_DDL = (
    "CREATE TABLE IF NOT EXISTS webapp_migrations"
    " (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file turned out to be.

    `missing` names what we add and is not there, or not to its end.

    kind: `empty`, `public` (the plugin's), `ours`, `foreign` or `newer` (readable, never written)
    or `unreadable` (its entries cannot even be read). `difference` says in words what is not ours.
    """

    kind: str
    difference: str = ""
    missing: tuple[str, ...] = ()


def columns(db: Runs, table: str) -> list[str]:
    """The column names of a table, empty when there is no such table."""
    return [row[1] for row in db.execute_sql(f"PRAGMA table_info({table})").fetchall()]


def inspect(db: Runs) -> Layout:
    """Tells what the open file is, without writing."""
    tables = {
        row[0]
        for row in db.execute_sql("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    }
    if not tables:
        return Layout("empty")
    if "entries" not in tables:
        some = ", ".join(sorted(tables)[:4])
        return Layout("unreadable", f"it has no table “entries” (it has {some})")
    found = columns(db, "entries")
    lacking = [name for name in PUBLIC_COLUMNS if name not in found]
    if lacking:
        return Layout("unreadable", f"its table “entries” lacks {_names(lacking)}")
    for table, known in (
        ("entries", ENTRY_COLUMNS),
        ("trash", TRASH_COLUMNS),
        ("transcripts", TRANSCRIPT_COLUMNS),
        ("receipts", RECEIPT_COLUMNS),
        ("origins", ORIGIN_COLUMNS),
        ("reflections", REFLECTION_COLUMNS),
    ):
        if table not in tables:
            continue
        found = columns(db, table)
        strange = [name for name in found if name not in known]
        if strange:
            return Layout("foreign", f"its table “{table}” also has {_names(strange)}")
        lacking = [name for name in known if name not in found and name != "source"]
        if lacking:
            return Layout("foreign", f"its table “{table}” lacks {_names(lacking)}")
    key = [row[1] for row in db.execute_sql("PRAGMA table_info(entries)").fetchall() if row[5]]
    if key != ["id"]:
        return Layout("foreign", "the primary key of its table “entries” is not “id”")
    (ddl,) = db.execute_sql("SELECT sql FROM sqlite_master WHERE name = 'entries'").fetchone()
    if "WITHOUT ROWID" in " ".join(ddl.upper().split()):
        return Layout("foreign", "its table “entries” has no rowids, so it cannot be indexed")
    if "webapp_migrations" not in tables:
        return Layout("public", missing=tuple(name for name, _ in MIGRATIONS))
    applied = {row[0] for row in db.execute_sql("SELECT name FROM webapp_migrations").fetchall()}
    newer = sorted(applied - {name for name, _ in (*MIGRATIONS, *ON_DEMAND.values())})
    if newer:
        return Layout(
            "newer", f"was changed by a newer version of this program ({', '.join(newer)})"
        )
    missing = tuple(
        name for name, _ in MIGRATIONS
        if name not in applied or _MADE_AGAIN.get(name, "entries") not in tables
    )  # fmt: skip
    if not missing and "webapp_indexed" in tables:
        (upto,) = db.execute_sql("SELECT upto FROM webapp_indexed").fetchone()
        missing = () if upto == _ALL else (SEARCH_INDEX,)
    return Layout("ours", missing=missing)


def _names(names: list[str]) -> str:
    return ", ".join(f"“{name}”" for name in names)


def migrate(db: Runs, now: int) -> list[str]:
    """Creates the public layout where it is missing and applies what we add. Returns the names
    applied. To be called inside a write transaction; running it again changes nothing."""
    indexed = bool(columns(db, "entries_fts"))
    for statement in PUBLIC_DDL:
        db.execute_sql(statement)
    if not indexed:
        db.execute_sql("INSERT INTO entries_fts(entries_fts) VALUES ('rebuild')")
    db.execute_sql(_MIGRATIONS_DDL)
    applied = {row[0] for row in db.execute_sql("SELECT name FROM webapp_migrations").fetchall()}
    done = []
    for name, apply in MIGRATIONS:
        table = _MADE_AGAIN.get(name)
        if name not in applied or (table and not columns(db, table)):
            apply(db)
            db.execute_sql("INSERT OR REPLACE INTO webapp_migrations VALUES (?, ?)", (name, now))
            done.append(name)
    return done


def add(db: Runs, table: str, now: int) -> None:
    """Makes one of ON_DEMAND where it is missing. To be called inside a write transaction."""
    if not columns(db, table):
        name, apply = ON_DEMAND[table]
        apply(db)
        db.execute_sql("INSERT OR REPLACE INTO webapp_migrations VALUES (?, ?)", (name, now))


def index_some(db: Runs, seconds: float) -> bool:
    """Puts the next entries into our search indexes, for about so long; says whether there are
    more. To be called inside a write transaction, of whatever process, until it says no.

    A rebuild in one go holds the write lock for 13 s where there are 100,000 entries, and the
    plugin gives up after 5.
    """
    deadline = time.monotonic() + seconds
    while True:
        (upto,) = db.execute_sql("SELECT upto FROM webapp_indexed").fetchone()
        last, count = db.execute_sql(
            "SELECT max(rowid), count(*) FROM"
            f" (SELECT rowid FROM entries WHERE rowid > ? ORDER BY rowid LIMIT {SLICE})",
            (upto,),
        ).fetchone()
        for name in OUR_INDEXES if count else ():
            db.execute_sql(
                f"INSERT INTO {name}(rowid, title, body, tags) SELECT rowid, title, body, tags"
                " FROM entries WHERE rowid > ? AND rowid <= ? ORDER BY rowid",
                (upto, last),
            )
        more: bool = count == SLICE
        db.execute_sql("UPDATE webapp_indexed SET upto = ?", (last if more else _ALL,))
        if not more or time.monotonic() > deadline:
            return more
