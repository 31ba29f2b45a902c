"""What a memory.db may turn out to be: the plugin's, ours, somebody else's; what we do to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from webapp.errors import NotFound, ReadOnly, Unreadable
from webapp.memory import entries, stats, trash
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import Store, TranscriptRow, index, layout, receipts

LAYOUT = (Path(__file__).parents[1] / "writers" / "layout.sql").read_text("utf-8")
PUBLIC = (
    "id", "scope", "kind", "title", "body", "tags", "created_at", "updated_at", "expires_at",
)  # fmt: skip
INSERT = (
    "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at, expires_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
ROWS = [
    ("1f", "global", "fact", "Harbour", "Boats lie in the harbour", '["sea"]', 1000, 2000, None),
    ("2e", "/home/a/shop", "decision", "Orchard", "Apples and pears", "[]", 3000, 4000, None),
    ("3d", "/home/a/shop", "lesson", "Gone", "This one has expired", "[]", 5000, 6000, 7000),
]


def run(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Runs statements as another program would; returns the rows of the last."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows: list[tuple[object, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        return rows


def plugin_file(path: Path, wal: bool = True) -> Path:
    """A file as the npm plugin leaves it, with ROWS."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(LAYOUT)
        connection.executemany(INSERT, ROWS)
    return path


def our_file(path: Path) -> Path:
    """A file that we made, with one entry, one in the trash, and receipts."""
    with Store(path).session() as store:
        for title in ("Kept", "Forgotten"):
            draft = entries.draft(scope="global", kind="fact", title=title, body="apples")
            saved = entries.save(store, draft, "tester")
        entries.forget(store, [saved.entry.id], "tester")
    return path


def schema(path: Path) -> list[tuple[object, ...]]:
    """Everything that CREATE made."""
    return run(path, "SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2")


def beside(path: Path) -> list[str]:
    """The names of all files in the folder."""
    return sorted(entry.name for entry in path.parent.iterdir())


def draft(title: str = "New") -> entries.Draft:
    return entries.draft(scope="global", kind="fact", title=title, body="Some apples")


# --- the plugin's layout --------------------------------------------------------------------------


def test_our_public_layout_is_the_plugins_word_for_word(tmp_path: Path) -> None:
    theirs = plugin_file(tmp_path / "theirs.db")
    with Store(tmp_path / "ours.db").session() as store:
        entries.save(store, draft(), "tester")

    def words(path: Path) -> dict[object, str]:
        return {
            name: "".join(str(sql).lower().split()).replace("ifnotexists", "")
            for _, name, sql in schema(path)
            if str(name).startswith("entries") and not str(name).startswith("entries_fts_")
        }

    expected = words(theirs)
    found = words(tmp_path / "ours.db")
    assert set(found) == set(expected)
    assert found.pop("entries").replace(",sourcetext)", ")") == expected.pop("entries")
    assert found == expected


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback journal"])
def test_opening_the_plugins_file_keeps_its_rows_and_adds_ours(tmp_path: Path, wal: bool) -> None:
    path = plugin_file(tmp_path / "memory.db", wal)
    run(path, "PRAGMA user_version = 7", "PRAGMA application_id = 99")
    before = [row for row in schema(path) if row[1] != "entries"]
    with Store(path).session() as store:
        assert store.read_only is None
        assert store.indexed
    assert run(path, f"SELECT {', '.join(PUBLIC)} FROM entries ORDER BY id") == ROWS
    assert run(path, "SELECT DISTINCT source FROM entries") == [(None,)]
    assert [row for row in schema(path) if row in before] == before
    names = {row[1] for row in schema(path)}
    assert {"trash", "transcripts", "receipts", "webapp_migrations"} < names
    assert run(path, "PRAGMA user_version") == [(7,)]
    assert run(path, "PRAGMA application_id") == [(99,)]
    assert run(path, "PRAGMA journal_mode") == [("wal",)]


def test_rows_that_the_plugin_wrote_before_us_are_found_and_shown(tmp_path: Path) -> None:
    with Store(plugin_file(tmp_path / "memory.db")).session() as store:
        (hit,) = search(store, SearchQuery("boat")).hits
        assert (hit.entry.id, hit.entry.tags, hit.entry.source) == ("1f", ("sea",), None)
        assert index.check(store) == {
            "entries_fts": "ok", "webapp_words": "ok", "webapp_grams": "ok",
        }  # fmt: skip


def test_the_plugins_open_connection_and_its_triggers_go_on_working(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as plugin:
        plugin.execute(INSERT, ("4c", "global", "fact", "Early", "quince", "[]", 1, 1, None))
        with Store(path).session() as store:
            entries.save(store, draft("Ours"), "tester")
        plugin.execute(INSERT, ("5b", "global", "fact", "Late", "medlar", "[]", 1, 1, None))
        plugin.execute("UPDATE entries SET body = 'damson' WHERE id = '4c'")
        plugin.execute("DELETE FROM entries WHERE id = '1f'")

        def theirs(word: str) -> list[str]:
            sql = "SELECT title FROM entries_fts WHERE entries_fts MATCH ?"
            return [row[0] for row in plugin.execute(sql, (word,))]

        with Store(path).session() as store:

            def ours(word: str) -> list[str]:
                return [hit.entry.title for hit in search(store, SearchQuery(word)).hits]

            for word, titles in {
                "medlar": ["Late"], "damson": ["Early"], "quince": [], "harbour": [],
                "some": ["Ours"], "pears": ["Orchard"],
            }.items():  # fmt: skip
                assert (theirs(word), ours(word)) == (titles, titles), word
            assert set(index.check(store).values()) == {"ok"}


def test_what_we_rewrite_and_forget_leaves_the_plugins_index_too(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    with Store(path).session() as store:
        rewritten = entries.draft(scope="global", kind="fact", title="Harbour", body="Ships")
        assert entries.save(store, rewritten, "tester").entry.id == "1f"
        entries.forget(store, ["2e"], "tester")
    matches = "SELECT count(*) FROM entries_fts('{}')"
    assert run(path, matches.format("boats")) == [(0,)]
    assert run(path, matches.format("ships")) == [(1,)]
    assert run(path, matches.format("pears")) == [(0,)]


def test_a_second_open_changes_nothing(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    with Store(path).session():
        pass
    once = (schema(path), run(path, "SELECT * FROM webapp_migrations"), path.read_bytes())
    store = Store(path)
    for _ in range(2):
        with store.session():
            assert store.read_only is None
    with Store(path).session():
        pass
    assert (schema(path), run(path, "SELECT * FROM webapp_migrations"), path.read_bytes()) == once


def test_every_migration_is_recorded_once(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    with Store(path).session():
        pass
    recorded = [row[0] for row in run(path, "SELECT name FROM webapp_migrations ORDER BY 1")]
    assert recorded == sorted(name for name, _ in layout.MIGRATIONS)


@pytest.mark.parametrize("lost", [name for name, _ in layout.MIGRATIONS])
def test_a_migration_that_was_applied_but_not_recorded_is_applied_again_without_harm(
    tmp_path: Path, lost: str
) -> None:
    path = our_file(tmp_path / "memory.db")
    run(path, f"DELETE FROM webapp_migrations WHERE name = '{lost}'")
    with Store(path).session() as store:
        assert search(store, SearchQuery("apples")).total == 1
        assert trash.count(store) == 1
        assert set(index.check(store).values()) == {"ok"}
    assert len(run(path, "SELECT 1 FROM webapp_migrations")) == len(layout.MIGRATIONS)


def test_a_failing_migration_leaves_the_plugins_file_as_it_was(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    run(path, "CREATE VIEW webapp_words AS SELECT 1")
    before = schema(path)
    with pytest.raises(Unreadable), Store(path).session():
        pass
    assert schema(path) == before


def test_a_file_with_entries_but_without_the_plugins_index_gets_one_that_is_filled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    run(path, LAYOUT.split(";")[0])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executemany(INSERT, ROWS)
    with Store(path).session() as store:
        entries.forget(store, ["2e"], "tester")
        assert set(index.check(store)) == {"entries_fts", "webapp_words", "webapp_grams"}
        assert set(index.check(store).values()) == {"ok"}
    assert run(path, "SELECT rowid FROM entries_fts('harbour')") == [(1,)]


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_without_tables_reads_as_empty_and_a_look_leaves_it_so(
    tmp_path: Path, journal: str
) -> None:
    path = tmp_path / "memory.db"
    run(path, f"PRAGMA journal_mode = {journal}", "PRAGMA user_version = 3")
    before = path.read_bytes()
    assert before
    with Store(path).session() as store:
        assert search(store, SearchQuery("apples")).total == 0
        assert stats.stats(store).total == 0
    assert path.read_bytes() == before
    with Store(path).session() as store:
        entries.save(store, draft(), "tester")
    assert run(path, "SELECT title FROM entries") == [("New",)]
    assert run(path, "PRAGMA user_version") == [(3,)]


def test_a_plugin_that_finds_our_file_can_use_it_at_once(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as plugin:
        plugin.execute("PRAGMA journal_mode = WAL")
        plugin.executescript(LAYOUT)
        plugin.executemany(INSERT, ROWS)
        found = plugin.execute("SELECT title FROM entries_fts('apples') ORDER BY 1").fetchall()
    assert found == [("Kept",), ("Orchard",)]
    with Store(path).session() as store:
        assert store.read_only is None
        assert set(index.check(store).values()) == {"ok"}


def test_other_tables_in_the_file_do_not_matter(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    run(
        path,
        "CREATE TABLE plugin_meta (key TEXT, value TEXT)",
        "INSERT INTO plugin_meta VALUES (1, 2)",
    )
    with Store(path).session() as store:
        assert store.read_only is None
    assert run(path, "SELECT * FROM plugin_meta") == [("1", "2")]


# --- files that are not ours ----------------------------------------------------------------------

FOREIGN = {
    "entries, the plugin's": ("plugin", "ALTER TABLE entries ADD COLUMN weight REAL", "entries"),
    "entries, ours": ("ours", "ALTER TABLE entries ADD COLUMN weight REAL", "entries"),
    "trash": ("ours", "ALTER TABLE trash ADD COLUMN weight REAL", "trash"),
    "transcripts": ("ours", "ALTER TABLE transcripts ADD COLUMN weight REAL", "transcripts"),
    "receipts": ("ours", "ALTER TABLE receipts ADD COLUMN weight REAL", "receipts"),
    "trash beside the plugin's": (
        "plugin", "CREATE TABLE trash (id TEXT PRIMARY KEY, weight REAL)", "trash",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback journal"])
@pytest.mark.parametrize(("made_by", "change", "table"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_with_unknown_columns_is_read_and_never_written(
    tmp_path: Path, made_by: str, change: str, table: str, wal: bool
) -> None:
    make = {"plugin": plugin_file, "ours": our_file}[made_by]
    path = make(tmp_path / "memory.db")
    run(path, change, f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
    before = path.read_bytes()
    with Store(path).session() as store:
        assert store.read_only is not None
        assert f"“{table}”" in store.read_only
        assert "“weight”" in store.read_only
        (hit,) = search(store, SearchQuery("apples")).hits
        assert entries.get(store, hit.entry.id) == hit.entry
        assert stats.stats(store).total == search(store, SearchQuery()).total
        assert stats.facets(store).total == stats.stats(store).total
        for write in (
            lambda: entries.save(store, draft(), "tester"),
            lambda: entries.forget(store, [hit.entry.id], "tester"),
            lambda: entries.edit(store, hit.entry.id, draft(), "tester"),
            lambda: trash.restore(store, "1f", "tester"),
            lambda: trash.purge(store, None, "tester"),
            lambda: index.rebuild(store),
            lambda: index.vacuum(store, "tester"),
        ):
            with pytest.raises(ReadOnly, match=r"“weight”.*Nothing was changed"):
                write()
        assert trash.sweep(store, 1, now=10**13) == 0
    assert path.read_bytes() == before
    assert beside(path) == ["memory.db"]


def test_a_read_only_file_of_the_plugins_has_an_empty_trash_and_no_receipts(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    path.chmod(0o444)
    with Store(path).session() as store:
        assert (trash.listing(store), trash.count(store), receipts.listing(store)) == ([], 0, [])
        with pytest.raises(NotFound):
            trash.get(store, "1f")
        with pytest.raises(NotFound):
            receipts.get(store, 1)
        twin = entries.live_twin(store, "global", "Harbour", 1)
        assert twin.id == "1f"
        assert index.check(store)["entries_fts"] != "ok"


def test_a_foreign_trash_is_still_listed_by_the_columns_that_we_know(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    run(path, "ALTER TABLE trash ADD COLUMN weight REAL")
    with Store(path).session() as store:
        assert [item.entry.title for item in trash.listing(store)] == ["Forgotten"]
        assert [receipt.action for receipt in receipts.listing(store)] == ["forget"]


@pytest.mark.parametrize("column", PUBLIC)
def test_entries_without_a_public_column_are_not_taken_for_a_memory(
    tmp_path: Path, column: str
) -> None:
    path = tmp_path / "memory.db"
    others = ", ".join(name for name in PUBLIC if name != column)
    run(path, f"CREATE TABLE entries ({others})", "INSERT INTO entries DEFAULT VALUES")
    before = path.read_bytes()
    with pytest.raises(Unreadable, match=f"“entries” lacks “{column}”"), Store(path).session():
        pass
    assert path.read_bytes() == before
    assert beside(path) == ["memory.db"]


@pytest.mark.parametrize(
    ("table", "column"),
    [("trash", "trashed_by"), ("transcripts", "marks_size"), ("receipts", "detail")],
)
def test_a_table_of_ours_that_lacks_a_column_makes_the_file_read_only(
    tmp_path: Path, table: str, column: str
) -> None:
    path = our_file(tmp_path / "memory.db")
    run(path, f"ALTER TABLE {table} DROP COLUMN {column}")
    before = path.read_bytes()
    with Store(path).session() as store:
        assert f"“{table}” lacks “{column}”" in str(store.read_only)
        assert search(store, SearchQuery("apples")).total == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "ddl",
    [
        LAYOUT.split(";")[0].replace("id TEXT PRIMARY KEY", "id TEXT"),
        LAYOUT.split(";")[0].replace(
            "expires_at INTEGER", "expires_at INTEGER, PRIMARY KEY (id, scope)"
        ).replace("id TEXT PRIMARY KEY", "id TEXT"),
        LAYOUT.split(";")[0] + " WITHOUT ROWID",
    ],
    ids=["no key", "another key", "no rowid"],
)  # fmt: skip
def test_entries_with_another_key_are_read_and_never_written(tmp_path: Path, ddl: str) -> None:
    path = tmp_path / "memory.db"
    run(path, ddl)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executemany(INSERT, ROWS)
    before = path.read_bytes()
    with Store(path).session() as store:
        assert "“entries”" in str(store.read_only)
        assert [hit.entry.id for hit in search(store, SearchQuery("pears")).hits] == ["2e"]
    assert path.read_bytes() == before


def test_a_file_that_a_newer_version_changed_is_read_and_never_written(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    run(path, "INSERT INTO webapp_migrations VALUES ('9999-things-to-come', 1)")
    before = path.read_bytes()
    with Store(path).session() as store:
        assert "newer version of this program" in str(store.read_only)
        assert "9999-things-to-come" in str(store.read_only)
        assert "another program" not in str(store.read_only)
        assert search(store, SearchQuery("apples")).total == 1
        assert trash.count(store) == 1
        with pytest.raises(ReadOnly):
            entries.save(store, draft(), "tester")
    assert path.read_bytes() == before
    assert beside(path) == ["memory.db"]


@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback journal"])
def test_a_database_of_another_program_is_refused_by_name_and_left_alone(
    tmp_path: Path, wal: bool
) -> None:
    path = tmp_path / "bookmarks.db"
    run(
        path,
        f"PRAGMA journal_mode = {'wal' if wal else 'delete'}",
        "CREATE TABLE bookmarks (url TEXT)",
        "INSERT INTO bookmarks VALUES ('https://example.org')",
    )
    before = path.read_bytes()
    store = Store(path)
    for _ in range(2):
        with pytest.raises(Unreadable, match=r"not a memory database.*bookmarks"), store.session():
            pass
    assert path.read_bytes() == before
    assert beside(path) == ["bookmarks.db"]


def test_a_file_that_turns_foreign_while_we_run_is_no_longer_written(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    store = Store(path)
    with store.session():
        assert store.read_only is None
    run(path, "ALTER TABLE entries ADD COLUMN weight REAL")
    with store.session():
        assert "“weight”" in str(store.read_only)
        with pytest.raises(ReadOnly):
            entries.save(store, draft(), "tester")
    run(path, "ALTER TABLE entries DROP COLUMN weight")
    with store.session():
        assert store.read_only is None
        entries.save(store, draft(), "tester")


def test_a_file_that_is_replaced_while_we_run_is_looked_at_anew(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    store = Store(path)
    with store.session():
        assert search(store, SearchQuery("apples")).total == 1
    plugin_file(tmp_path / "other.db").rename(path)
    with store.session():
        assert search(store, SearchQuery("harbour")).total == 1
        assert store.indexed
    path.unlink()
    with store.session():
        assert search(store, SearchQuery()).total == 0
        assert store.read_only is None
    assert not path.exists()


def test_the_transcript_model_has_exactly_the_columns_of_its_table(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    found = [row[1] for row in run(path, "PRAGMA table_info(transcripts)")]
    assert tuple(found) == layout.TRANSCRIPT_COLUMNS
    assert set(TranscriptRow._meta.fields) == set(found)


# --- tables of what is off by default -------------------------------------------------------------


def reflected(path: Path) -> None:
    """Makes the table as its first use does."""
    with Store(path).session() as store, store.writing():
        store.add_table("reflections")


def test_a_table_on_demand_is_made_once_and_leaves_the_plugins_layout(tmp_path: Path) -> None:
    path = plugin_file(tmp_path / "memory.db")
    with Store(path).session() as store:
        assert not store.has_table("reflections") and store.read_only is None
    before = schema(path)
    reflected(path)
    reflected(path)
    assert [row for row in schema(path) if row in before] == before
    assert tuple(row[1] for row in run(path, "PRAGMA table_info(reflections)")) == (
        layout.REFLECTION_COLUMNS
    )
    names = run(path, "SELECT name FROM webapp_migrations WHERE name LIKE '%reflections'")
    assert names == [("0011-reflections",)]
    assert run(path, f"SELECT {', '.join(PUBLIC)} FROM entries ORDER BY id") == ROWS
    with Store(path).session() as store:
        assert store.read_only is None and store.indexed
        entries.save(store, draft(), "tester")


def test_a_table_on_demand_that_was_dropped_is_made_again(tmp_path: Path) -> None:
    path = our_file(tmp_path / "memory.db")
    reflected(path)
    run(path, "DROP TABLE reflections")
    with Store(path).session() as store:
        assert store.read_only is None and not store.has_table("reflections")
    reflected(path)
    assert run(path, "SELECT count(*) FROM reflections") == [(0,)]


@pytest.mark.parametrize(
    "ddl", ["CREATE TABLE reflections (theirs)", "CREATE TABLE reflections (session_id TEXT, at)"]
)
def test_a_foreign_table_of_that_name_makes_the_file_read_only(tmp_path: Path, ddl: str) -> None:
    path = our_file(tmp_path / "memory.db")
    run(path, ddl)
    with Store(path).session() as store:
        assert "“reflections”" in (store.read_only or "")
        with pytest.raises(ReadOnly):
            entries.save(store, draft(), "tester")
