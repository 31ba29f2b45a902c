"""Databases that eight versions of OpenCode wrote while they played one scenario, and two in which
both runtimes wrote: whatever stands in them stands in the transcripts, once and in order.

`1.17.0-events` ran with an experimental flag that notes the older runtime's messages in the newer
one's table too; in `mixed-1.17.19` a session was continued by the other runtime.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, copy_fixture
from webapp.opencode import list_sessions
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.export import export, export_many

FILES = sorted(path.name for path in FIXTURES.glob("opencode-*.db"))
HEADING = re.compile(
    r"## (?!notice)(?P<role>\S+) · .*(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ) · (?P<id>\S+)"
)


def rows(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(sql).fetchall()


def has(db: Path, table: str) -> bool:
    return bool(rows(db, f"SELECT 1 FROM sqlite_master WHERE name = '{table}'"))


@pytest.fixture(params=FILES)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    target = tmp_path / request.param
    shutil.copyfile(FIXTURES / request.param, target)
    return target


@pytest.fixture
def texts(db: Path, store: Store, settings: Settings) -> dict[str, str]:
    """Every session of the database, exported."""
    used = replace(settings, opencode_db=db)
    sessions = list(list_sessions([db]).sessions)
    found = {}
    for step in export_many(store, used, sessions):
        assert step.exported is not None, step.problem
        found[step.session.id] = step.exported.path.read_bytes().decode()
    return found


def test_there_are_databases_of_many_versions() -> None:
    assert len(FILES) >= 7


def test_every_session_is_exported_and_nothing_is_unreadable(
    db: Path, texts: dict[str, str]
) -> None:
    assert list_sessions([db]).problems == ()
    assert set(texts) == {row[0] for row in rows(db, "SELECT id FROM session")}
    assert not [text for text in texts.values() if "### unreadable" in text]


def leaves(value: Any) -> Iterator[str]:
    """What a person would miss: texts, reasoning, outputs and errors."""
    if isinstance(value, dict):
        for key, held in value.items():
            if key in ("text", "output", "error", "message") and isinstance(held, str):
                yield held
            elif key not in ("summary", "snapshot", "metadata"):
                yield from leaves(held)
    elif isinstance(value, list):
        for held in value:
            yield from leaves(held)


def test_every_text_stands_in_its_transcript(db: Path, texts: dict[str, str]) -> None:
    looked = 0
    for table in ("message", "part", "session_message"):
        if not has(db, table):
            continue
        for session_id, data in rows(db, f"SELECT session_id, data FROM {table}"):
            lines = set(texts[session_id].split("\n"))
            for leaf in leaves(json.loads(data)):
                for line in leaf.encode("utf-8", "backslashreplace").decode().split("\n"):
                    assert line in lines or any(line in other for other in lines), (table, line)
                    looked += 1
    assert looked >= 10


def test_no_message_stands_there_twice(db: Path, texts: dict[str, str]) -> None:
    mirrored = {row[0] for row in rows(db, "SELECT DISTINCT session_id FROM message")}
    mixed = "mixed" in db.name
    for session_id, text in texts.items():
        ids = Counter(match["id"] for match in HEADING.finditer(text))
        assert not [name for name, count in ids.items() if count > 1]
        if session_id in mirrored and not mixed:
            expected = {
                row[0]
                for row in rows(db, f"SELECT id FROM message WHERE session_id = '{session_id}'")
            }
            assert set(ids) <= expected


def test_messages_of_both_runtimes_stand_in_the_order_of_their_times(
    db: Path, texts: dict[str, str]
) -> None:
    for text in texts.values():
        times = [match["time"] for match in HEADING.finditer(text)]
        assert times == sorted(times)


def test_a_second_export_adds_nothing(
    db: Path, texts: dict[str, str], store: Store, settings: Settings
) -> None:
    for session in list_sessions([db]).sessions:
        assert export(store, settings, session).added == 0


def test_a_coincidence_of_times_hides_no_more_than_one_row(
    talk: Any, store: Store, settings: Settings
) -> None:
    talk.user("an older prompt")
    ((at,),) = rows(talk.db, "SELECT max(time_created) FROM message")
    talk.newer("agent-switched", {"agent": "plan"})
    talk.sql("UPDATE session_message SET time_created = ?", at)
    talk.newer("user", {"text": "a newer prompt"}, touch=True)
    talk.newer("assistant", {"content": [{"type": "text", "text": "a newer answer"}],
                             "time": {"created": 1, "completed": 2}})  # fmt: skip
    text = talk.export(store, settings).path.read_text("utf-8")
    for words in ("an older prompt", "a newer prompt", "a newer answer"):
        assert text.count(words) == 1


def test_an_upgrade_that_empties_the_newer_table_is_no_removal(
    store: Store, settings: Settings, tmp_path: Path
) -> None:
    """1.14 to 1.17 noted the switches of an older session's agent and model there."""
    db = copy_fixture("1.14.48", tmp_path)
    assert rows(db, "SELECT count(*) FROM session_message")[0][0] > 0
    sessions = list_sessions([db]).sessions
    for session in sessions:
        export(store, settings, session)
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("DELETE FROM session_message")
    for session in sessions:
        assert export(store, settings, session).added == 0


def test_a_switch_that_an_earlier_export_wrote_is_not_told_as_removed(
    talk: Any, store: Store, settings: Settings
) -> None:
    talk.newer("user", {"text": "first"}, touch=True)
    talk.newer("agent-switched", {"agent": "plan"})
    assert "plan" in talk.export(store, settings).path.read_text("utf-8")
    talk.sql("DELETE FROM session_message WHERE type = 'agent-switched'")
    assert talk.export(store, settings).added == 0
    talk.sql("DELETE FROM session_message")
    assert talk.export(store, settings).added > 0
