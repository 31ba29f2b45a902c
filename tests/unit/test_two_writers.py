"""memory.db is shared: the plugin and other processes of ours write while we write."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from webapp.memory import entries
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import Store, index

WRITERS = Path(__file__).parents[1] / "writers"
ROWS = 2_000
ALL_OK = {"entries_fts": "ok", "webapp_words": "ok", "webapp_grams": "ok"}


def save(store: Store, title: str) -> None:
    """Saves one entry of ours."""
    draft = entries.draft(scope="global", kind="fact", title=title, body=f"own row, {title}")
    entries.save(store, draft, "tester")


def wait_for_theirs(store: Store) -> None:
    """Waits until the other has begun, however late it got its turn."""
    deadline = time.monotonic() + 60
    while not store.value("SELECT 1 FROM entries WHERE title LIKE 'theirs %' LIMIT 1"):
        assert time.monotonic() < deadline, "the other never began"
        time.sleep(0.005)


def write_against(command: list[str], path: Path, env: dict[str, str] | None = None) -> None:
    """Lets the command create the file and write ROWS rows while this process writes ROWS."""
    go = path.with_name("go")
    path.parent.mkdir(parents=True)
    with subprocess.Popen(
        [*command, str(path), str(ROWS), str(go)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
    ) as writer:  # fmt: skip
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with Store(path).session() as store:
            save(store, "ours 0")
            go.touch()
            for number in range(1, ROWS):
                if number == ROWS // 2:
                    wait_for_theirs(store)
                save(store, f"ours {number}")
        _, problems = writer.communicate(timeout=60)
    assert (writer.returncode, problems) == (0, "")


def assert_nothing_is_lost(path: Path) -> None:
    """Every row of both is there once, was written among those of the other, and is indexed."""
    with Store(path).session() as store:
        titles = [row[0] for row in store.rows("SELECT title FROM entries")]
        expected = [f"{who} {number}" for who in ("ours", "theirs") for number in range(ROWS)]
        assert sorted(titles) == sorted(expected)
        spans = {
            row[0]: (row[1], row[2])
            for row in store.rows(
                "SELECT substr(title, 1, 4), min(rowid), max(rowid) FROM entries GROUP BY 1"
            )
        }
        assert spans["ours"][0] < spans["thei"][1], "the other wrote before us, not beside us"
        assert spans["thei"][0] < spans["ours"][1], "the other wrote after us, not beside us"
        assert index.check(store) == ALL_OK
        assert search(store, SearchQuery('"plugin row"')).total == ROWS
        assert search(store, SearchQuery('"own row"')).total == ROWS
        assert store.value("SELECT count(*) FROM entries_fts('\"plugin row\"')") == ROWS
        assert store.value("SELECT count(*) FROM entries_fts('\"own row\"')") == ROWS
        assert store.value("PRAGMA integrity_check") == "ok"


def test_a_python_writer_of_the_public_layout_and_we_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "shared" / "memory.db"
    write_against([sys.executable, str(WRITERS / "plugin.py")], path)
    assert_nothing_is_lost(path)


@pytest.mark.opencode
@pytest.mark.skipif(
    not os.environ.get("OPENCODE_BIN"),
    reason="needs a real OpenCode: set OPENCODE_BIN to its binary, which is a Bun too",
)
def test_opencodes_own_bun_and_we_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "shared" / "memory.db"
    home = tmp_path / "bun"
    home.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "BUN_BE_BUN": "1"}
    write_against([os.environ["OPENCODE_BIN"], "run", str(WRITERS / "plugin.ts")], path, env)
    assert_nothing_is_lost(path)


def test_two_processes_of_ours_may_create_the_file_at_the_same_moment(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" / "data" / "memory.db" for number in range(12)]
    command = [sys.executable, str(WRITERS / "ours.py")]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as two,
    ):
        both = (one, two)
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for path in paths:
            for name, process in zip("ab", both, strict=True):
                assert process.stdin is not None
                process.stdin.write(f"{path}\t{name}\n")
                process.stdin.flush()
            answers = [process.stdout.readline() for process in both if process.stdout is not None]
            assert answers == ["ok\n", "ok\n"]
    for path in paths:
        with Store(path).session() as store:
            assert sorted(store.rows("SELECT title, source FROM entries")) == [
                ("a", "ours"),
                ("b", "ours"),
            ]
            assert index.check(store) == ALL_OK


def test_another_processes_write_shows_in_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    ours = Store(path)
    with ours.session():
        save(ours, "first")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(
            "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
            " VALUES ('x', 'global', 'fact', 'second', 'written elsewhere', 1, 1)"
        )
        with ours.session():
            assert entries.get(ours, "x").title == "second"
            assert search(ours, SearchQuery("elsewhere")).total == 1
        other.execute("DELETE FROM entries WHERE id = 'x'")
        with ours.session():
            assert search(ours, SearchQuery("elsewhere")).total == 0


def test_a_file_that_another_process_creates_shows_in_the_next_session(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    looking = Store(path)
    with looking.session():
        assert search(looking, SearchQuery()).total == 0
        with Store(path).session() as other:
            save(other, "made meanwhile")
    with looking.session():
        assert search(looking, SearchQuery()).total == 1


def test_a_first_write_into_a_file_that_appeared_meanwhile_keeps_what_is_in_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    with Store(path).session() as late:
        with Store(path).session() as early:
            save(early, "early")
        save(late, "late")
        assert {hit.entry.title for hit in search(late, SearchQuery()).hits} == {"early", "late"}


def test_no_read_lock_stays_behind_a_read_or_a_session(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Store(path).session() as store:
        save(store, "one")
        search(store, SearchQuery("one"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA busy_timeout = 0")
            other.execute("UPDATE entries SET body = 'changed between two reads'")
            busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy == 0
        assert search(store, SearchQuery("changed")).total == 1
