"""The first start on a large store of the plugin: it is indexed in slices, while others write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import Store, connection, index, layout

LAYOUT = Path(__file__).parents[1] / "writers" / "layout.sql"
COLUMNS = "id, scope, kind, title, body, tags, created_at, updated_at, expires_at"
ROWS = 60
ALL_OK = dict.fromkeys(("entries_fts", "webapp_words", "webapp_grams"), "ok")


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the plugin, which takes six slices of no time at all."""
    monkeypatch.setattr(layout, "SLICE", 10)
    monkeypatch.setattr(connection, "INDEXING_S", 0)
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as plugin:
        plugin.execute("PRAGMA journal_mode = WAL")
        plugin.executescript(LAYOUT.read_text("utf-8"))
        for number in range(ROWS):
            add(plugin, number)
    return path


def add(plugin: sqlite3.Connection, number: int) -> None:
    """Writes an entry as the plugin does."""
    plugin.execute(
        f"INSERT INTO entries ({COLUMNS}) VALUES (?, 'global', 'fact', ?, ?, '[]', 1, 1, NULL)",
        (f"id{number:03}", f"title{number:03}", f"word{number:03} shared 数据"),
    )


def open_and_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[int], None]
) -> list[int]:
    """Opens the store; in every pause between two slices `work` is called with its number."""
    pauses: list[int] = []

    def pause(_seconds: float) -> None:
        pauses.append(len(pauses))
        work(pauses[-1])

    with monkeypatch.context() as patched:
        patched.setattr("webapp.store.connection.time.sleep", pause)
        with Store(path).session():
            pass
    return pauses


def test_others_write_between_the_slices_and_the_index_is_right(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as plugin:

        def work(number: int) -> None:
            # One row behind the place that the indexing has come to and one ahead of it, each.
            for row in (number * 10 + 3, number * 10 + 15):
                plugin.execute("DELETE FROM entries WHERE id = ?", (f"id{row:03}",))
            for row in (number * 10 + 5, number * 10 + 17):
                plugin.execute("UPDATE entries SET body = 'changed' WHERE id = ?", (f"id{row:03}",))
            add(plugin, 100 + number)

        assert len(open_and_meanwhile(path, monkeypatch, work)) == 6
    with Store(path).session() as store:
        assert index.check(store) == ALL_OK
        left = int(store.value("SELECT count(*) FROM entries"))
        changed = int(store.value("SELECT count(*) FROM entries WHERE body = 'changed'"))
        assert 6 <= changed < left < ROWS
        assert search(store, SearchQuery("changed")).total == changed
        assert search(store, SearchQuery("shared")).total == left - changed
        assert search(store, SearchQuery("word005")).total == 0


def test_an_indexing_that_was_killed_is_taken_up_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_and_meanwhile(path, monkeypatch, kill)
    assert len(open_and_meanwhile(path, monkeypatch, lambda number: None)) == 3
    with Store(path).session() as store:
        assert index.check(store) == ALL_OK
        assert search(store, SearchQuery("shared")).total == ROWS


def test_a_half_made_index_is_not_searched_in_a_file_that_cannot_be_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_and_meanwhile(path, monkeypatch, stop)
    path.chmod(0o400)
    monkeypatch.setattr("os.access", lambda *_: False)
    with Store(path).session() as store:
        assert store.read_only and not store.indexed
        assert search(store, SearchQuery("shared")).total == ROWS


def test_a_small_store_is_indexed_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "INDEXING_S", 60)
    assert open_and_meanwhile(path, monkeypatch, lambda number: None) == []
    with Store(path).session() as store:
        assert index.check(store) == ALL_OK
