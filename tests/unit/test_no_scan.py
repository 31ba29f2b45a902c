"""OpenCode's large tables are looked up in, never gone through; its event log is left alone.

Every statement that SQLite runs is noted by its trace and explained on the same database.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import FIXTURES as FOLDER
from tests.conftest import Talk, Trace, assert_indexed, plan_of
from webapp.opencode import estimate_bytes, find_session, list_sessions, overview
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.export import export, export_many
from webapp.transcripts.watch import CATCH_UP_MS, Watcher

FIXTURES = sorted(FOLDER.glob("opencode-*.db"))


@pytest.fixture(params=FIXTURES, ids=lambda path: path.stem)
def opencode_db(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of each database that a real OpenCode wrote."""
    return Path(shutil.copyfile(request.param, tmp_path / "opencode.db"))


def later(db: Path) -> int:
    """Twenty minutes after the last touch."""
    return max(session.updated_at for session in list_sessions([db]).sessions) + 1_200_000


def test_the_check_itself_finds_a_scan(newest_db: Path) -> None:
    with closing(sqlite3.connect(newest_db)) as connection:
        for statement in ("SELECT count(*) FROM part", "SELECT id FROM message WHERE data = 'x'",
                          "SELECT * FROM session_message ORDER BY seq"):  # fmt: skip
            steps = plan_of(connection, statement)
            with pytest.raises(AssertionError):
                for step in steps:
                    assert_indexed(step, statement)


def test_an_estimate_of_sizes_scans_none_of_them(opencode_db: Path, trace: Trace) -> None:
    sessions = list_sessions([opencode_db]).sessions
    trace.clear()
    assert estimate_bytes(sessions) > 1000
    trace.assert_frugal(opencode_db)


def test_listing_and_finding_sessions_scans_none_of_them(opencode_db: Path, trace: Trace) -> None:
    found = list_sessions([opencode_db])
    assert len(found.sessions) > 1 and not found.problems
    session, _ = find_session([opencode_db], found.sessions[1].id)
    assert session is not None
    trace.assert_frugal(opencode_db)


@pytest.mark.parametrize("order", overview.ORDERS)
def test_a_page_of_sessions_scans_none_of_them(opencode_db: Path, trace: Trace, order: str) -> None:
    with closing(sqlite3.connect(opencode_db)) as connection, connection:
        connection.execute(
            "UPDATE session SET title = 'New session - 2026-11-30T10:35:01.848Z' WHERE rowid % 2 = 0"
        )
    filters = (
        overview.Filter(), overview.Filter(agent="build", text="the"),
        overview.Filter(errors=True, compacted=True), overview.Filter(model="scripted/m1"),
        overview.Filter(project="/home/demo/shop", since=1, until=2, archived=False),
    )  # fmt: skip
    for wanted in filters:
        found = overview.page([opencode_db], wanted, order, limit=3)
        if found.after:
            overview.page([opencode_db], wanted, order, found.after, limit=3)
    overview.facets([opencode_db])
    assert overview.count([opencode_db], 1)
    asked = " ".join(trace.selects())
    assert "FROM part" in asked and "FROM message" in asked
    trace.assert_frugal(opencode_db)


def test_a_page_of_sessions_reads_parts_only_for_a_placeholder(
    newest_db: Path, trace: Trace
) -> None:
    assert overview.page([newest_db], overview.Filter()).items
    assert not [text for text in trace.selects() if "FROM part" in text]


def test_the_export_of_every_session_scans_none_of_them(
    opencode_db: Path, store: Store, settings: Settings, trace: Trace
) -> None:
    asked: set[str] = set()
    now = later(opencode_db)
    for session in list_sessions([opencode_db]).sessions:
        trace.clear()
        export(store, settings, session, now)
        trace.assert_frugal(opencode_db)
        asked.update(re.findall(r"FROM (\w+)", " ".join(trace.selects())))
    assert {"session", "message", "part"} <= asked


@pytest.mark.parametrize("mode", ["compacted", "idle"])
def test_the_watcher_scans_none_of_them(
    opencode_db: Path, settings: Settings, trace: Trace, mode: str
) -> None:
    settings = replace(settings, opencode_db=opencode_db, auto_export=mode)
    watcher = Watcher(Store(settings.db), settings)
    now = later(opencode_db)
    trace.clear()
    is_compacted = watcher.look(now)
    compacted = "SELECT count(*) FROM message WHERE json_extract(data, '$.summary') = 1"
    with closing(sqlite3.connect(opencode_db)) as connection:
        assert is_compacted is (connection.execute(compacted).fetchone()[0] > 0)
    assert watcher.status.exported >= (2 if is_compacted or mode == "idle" else 0)
    assert not watcher.status.problem
    assert any("touch" in text or "time_updated" in text for text in trace.selects())
    trace.assert_frugal(opencode_db)
    trace.clear()
    watcher.look(now + 3000)
    assert trace.opened == 0
    with closing(sqlite3.connect(opencode_db)) as connection, connection:
        connection.execute("UPDATE session SET time_updated = ?", (now,))
    watcher.look(now + 6000)
    assert trace.opened > 1
    trace.assert_frugal(opencode_db)


def test_compactions_are_looked_up_by_session_and_time(
    talk: Talk, settings: Settings, trace: Trace
) -> None:
    watcher = Watcher(Store(settings.db), settings)
    for number in range(300):
        talk.user(f"Question {number}.")
    at = talk.session().updated_at
    watcher.look(at)
    trace.clear()
    talk.newer("compaction", {"reason": "auto", "summary": "Done.", "recent": ""})
    talk.assistant("What was done.", summary=True)
    assert watcher.look(at + 6000) is True
    trace.assert_frugal(talk.db)
    (asked,) = (text for text in trace.selects() if "instr" in text)
    with closing(sqlite3.connect(talk.db)) as connection:
        steps = plan_of(connection, asked)
    assert any("(session_id=? AND time_created>?)" in step for step in steps), steps


def test_a_log_of_events_costs_the_watcher_nothing(
    talk: Talk, settings: Settings, trace: Trace, count_steps: Callable[[], int]
) -> None:
    talk.user("Hello.")
    talk.assistant("What was done.", summary=True)
    at = talk.session().updated_at
    Watcher(Store(settings.db), settings).look(at)
    few = count_steps()
    talk.sql(
        "INSERT INTO event (id, aggregate_id, seq, type, data)"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
        " SELECT 'evt_' || i, 'agg', i, 'message.updated', printf('%.*c', 200, 'x') FROM n"
    )
    for number in range(50):
        other = type(talk)(talk.db, f"ses_old_{number}")
        other.sql(
            "UPDATE session SET time_updated = ? WHERE id = ?", at - 2 * CATCH_UP_MS, other.id
        )
    Watcher(Store(settings.db), settings).look(at)
    assert count_steps() - few < 3 * few


@pytest.fixture
def count_steps(trace: Trace) -> Callable[[], int]:
    """How many statements have been run so far."""
    return lambda: len(trace.statements)


def test_an_export_of_all_opens_one_connection_a_session(
    opencode_db: Path, store: Store, settings: Settings, trace: Trace
) -> None:
    sessions = list(list_sessions([opencode_db]).sessions)
    now = later(opencode_db)
    trace.clear()
    for step in export_many(store, settings, sessions, now):
        assert not step.problem
    assert trace.opened == len(sessions)
