"""The full-text indexes: drift is noticed, mended, and never made by our own VACUUM."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from webapp.errors import ReadOnly
from webapp.memory import entries
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import Store, index, receipts

LAYOUT = Path(__file__).parents[1] / "writers" / "layout.sql"
NAMES = ("entries_fts", "webapp_words", "webapp_grams")
ALL_OK = dict.fromkeys(NAMES, "ok")
COLUMNS = "id, scope, kind, title, body, tags, created_at, updated_at, expires_at"


def foreign(path: Path, *statements: str) -> None:
    """Runs statements as a program would that knows nothing of us."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def titles(store: Store, text: str) -> list[str]:
    return sorted(hit.entry.title for hit in search(store, SearchQuery(text, limit=100)).hits)


def plugin_titles(store: Store, word: str) -> list[str]:
    """What the plugin's own search answers."""
    rows = store.rows(
        "SELECT e.title FROM entries_fts f JOIN entries e ON e.rowid = f.rowid"
        " WHERE entries_fts MATCH ? ORDER BY 1",
        (word,),
    )
    return [row[0] for row in rows]


def renumber(path: Path) -> None:
    """Gives the entries new rowids, as a dump that is loaded again does, and VACUUM may."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        for name, _ in (found := triggers.fetchall()):
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute("CREATE TEMP TABLE kept AS SELECT * FROM entries ORDER BY rowid")
        connection.execute("DELETE FROM entries")
        connection.execute("INSERT INTO entries SELECT * FROM kept ORDER BY rowid")
        for _, sql in found:
            connection.execute(sql)


def assert_all_found(store: Store) -> None:
    """Every entry of the fixture is found by its own word, part of a word and characters, and by
    the plugin's search."""
    assert index.check(store) == ALL_OK
    for number in range(1, 40, 2):
        expected = [f"title{number:02}"]
        assert titles(store, f"word{number:02}") == expected
        assert titles(store, f'"ord{number:02} 数"') == expected
        assert titles(store, f"据{chr(0x4E00 + number)}") == expected
        assert plugin_titles(store, f"word{number:02}") == expected
    assert len(titles(store, "shared")) == 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file whose rowids have gaps: of 40 entries every second was deleted for good."""
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as plugin:
        plugin.execute("PRAGMA journal_mode = WAL")
        plugin.executescript(LAYOUT.read_text("utf-8"))
        plugin.executemany(
            f"INSERT INTO entries ({COLUMNS}) VALUES (?, 'global', 'fact', ?, ?, '[]', ?, ?, NULL)",
            [
                (f"id{n:02}", f"title{n:02}", f"word{n:02} 数据{chr(0x4E00 + n)} shared", n, n)
                for n in range(40)
            ],
        )
    with Store(path).session():
        pass
    foreign(path, "DELETE FROM entries WHERE rowid % 2 = 1")
    return path


def test_a_sound_index_passes(path: Path) -> None:
    with Store(path).session() as store:
        assert index.check(store) == ALL_OK


def test_the_check_writes_nothing(path: Path) -> None:
    with Store(path).session() as store:
        before = store.rows("SELECT id, block FROM webapp_words_data")
        index.check(store)
        assert store.rows("SELECT id, block FROM webapp_words_data") == before


def test_insert_or_replace_by_another_program_is_found_by_its_new_text_only(path: Path) -> None:
    foreign(
        path,
        f"INSERT OR REPLACE INTO entries ({COLUMNS})"
        " VALUES ('id05', 'global', 'fact', 'replaced', 'walnut', '[]', 1, 1, NULL)",
    )
    with Store(path).session() as store:
        assert titles(store, "walnut") == ["replaced"]
        assert titles(store, "word05") == []
        assert titles(store, "ord05") == []
        assert len(titles(store, "shared")) == 19
        assert search(store, SearchQuery("shared")).total == 19


def test_insert_or_replace_leaves_stale_rows_that_the_check_names_and_a_rebuild_mends(
    path: Path,
) -> None:
    foreign(
        path,
        f"INSERT OR REPLACE INTO entries ({COLUMNS})"
        " VALUES ('id05', 'global', 'fact', 'replaced', 'walnut', '[]', 1, 1, NULL)",
    )
    with Store(path).session() as store:
        assert store.value("PRAGMA integrity_check") == "ok"
        for name, state in index.check(store).items():
            assert "does not match the entries" in state, name
            assert "move the file away" not in state, name
        assert sorted(index.rebuild(store)) == sorted(NAMES)
        assert index.check(store) == ALL_OK
        assert titles(store, "walnut") == plugin_titles(store, "walnut") == ["replaced"]
        assert titles(store, "word05") == []


@pytest.mark.parametrize("name", NAMES)
def test_drift_of_one_index_is_told_from_the_others(path: Path, name: str) -> None:
    foreign(path, f"INSERT INTO {name}({name}) VALUES ('delete-all')")
    with Store(path).session() as store:
        states = index.check(store)
        assert states.pop(name) != "ok"
        assert set(states.values()) == {"ok"}
        index.rebuild(store)
        assert index.check(store) == ALL_OK


def test_our_vacuum_keeps_every_index_right_and_gives_space_back(path: Path) -> None:
    foreign(path, "UPDATE entries SET body = body || printf('%.*c', 20000, 'x')")
    foreign(path, "UPDATE entries SET body = substr(body, 1, length(body) - 20000)")
    with Store(path).session() as store:
        size = store.disk_bytes()
        done = index.vacuum(store, "tester")
        assert done.before == size > done.after
        assert path.stat().st_size <= done.after
        assert_all_found(store)
        receipt = receipts.get(store, done.receipt)
        assert (receipt.action, receipt.actor) == ("vacuum", "tester")
        assert receipt.detail == {
            "before": size, "after": done.after, "bytes": size - done.after,
        }  # fmt: skip


def test_a_vacuum_is_offered_where_it_is_worth_it(path: Path) -> None:
    with Store(path).session() as store:
        assert index.slack(store) == 0
    foreign(path, "UPDATE entries SET body = body || printf('%.*c', 200000, 'x')")
    with Store(path).session() as store:
        assert index.slack(store) < store.disk_bytes() / 10
    foreign(path, "UPDATE entries SET body = substr(body, 1, length(body) - 200000)")
    with Store(path).session() as store:
        slack = index.slack(store)
        assert slack > 1_000_000
        done = index.vacuum(store, "tester")
        assert done.before - done.after >= slack
        assert index.slack(store) == 0


def test_a_vacuum_is_not_offered_where_it_cannot_be_done(path: Path, tmp_path: Path) -> None:
    foreign(path, "UPDATE entries SET body = body || printf('%.*c', 200000, 'x')")
    foreign(path, "UPDATE entries SET body = substr(body, 1, length(body) - 200000)")
    path.chmod(0o400)
    with Store(path).session() as store:
        assert index.slack(store) == 0
        with pytest.raises(ReadOnly):
            index.vacuum(store, "tester")
    with Store(tmp_path / "none.db").session() as store:
        assert index.slack(store) == 0


def test_our_vacuum_mends_an_index_that_had_come_loose(path: Path) -> None:
    renumber(path)
    with Store(path).session() as store:
        index.vacuum(store, "tester")
        assert_all_found(store)


def test_rowids_that_another_program_renumbered_are_noticed_and_mended(path: Path) -> None:
    renumber(path)
    with Store(path).session() as store:
        states = index.check(store)
        assert set(states) == set(NAMES)
        assert "ok" not in states.values()
        index.rebuild(store)
        assert_all_found(store)


def test_a_bare_vacuum_by_another_program_harms_nothing_that_the_check_does_not_name(
    path: Path,
) -> None:
    with Store(path).session() as store:
        before = store.rows("SELECT id, rowid FROM entries")
    foreign(path, "VACUUM")
    with Store(path).session() as store:
        moved = store.rows("SELECT id, rowid FROM entries") != before
        assert ("ok" in index.check(store).values()) is not moved
        if moved:
            index.rebuild(store)
        assert_all_found(store)


def test_saves_after_our_vacuum_are_indexed(path: Path) -> None:
    with Store(path).session() as store:
        index.vacuum(store, "tester")
        draft = entries.draft(scope="global", kind="fact", title="later", body="chestnut")
        entries.save(store, draft, "tester")
        entries.forget(store, ["id39"], "tester")
        assert titles(store, "chestnut") == ["later"]
        assert titles(store, "word39") == []
        assert index.check(store) == ALL_OK
