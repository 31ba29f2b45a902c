"""Rows that OpenCode itself would not leave: crashes, unknown layouts and another writer's values."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.errors import Unreadable
from webapp.opencode import Message, find_session, list_sessions, messages, reading
from webapp.opencode.sessions import ABANDONED_MS, CRASHED_MS, SETTLED_MS
from webapp.settings import Settings
from webapp.store import Store

if TYPE_CHECKING:
    from tests.conftest import Talk

START = 1_790_000_000_000
LATER = START + 3_600_000
"""An hour after every invented session: long after a crash, but no day."""

RUNTIMES = pytest.mark.parametrize("runtime", ["older", "newer"])
TABLE = {"older": "message", "newer": "session_message"}


def read(talk: Talk, now: int = LATER) -> list[Message]:
    with reading(talk.db) as connection:
        return list(messages(connection, talk.id, now))


def by_id(talk: Talk, now: int = LATER) -> dict[str, Message]:
    return {message.id: message for message in read(talk, now)}


def unfinished(talk: Talk, runtime: str) -> str:
    if runtime == "older":
        return talk.assistant("Half a sen", done=False)
    return talk.newer("assistant", {"content": [{"type": "text", "text": "Half a sen"}]})


def prompt(talk: Talk, runtime: str, text: str = "Are you there?") -> str:
    return talk.user(text) if runtime == "older" else talk.newer("user", {"text": text})


@RUNTIMES
def test_a_crashed_answer_is_interrupted_when_a_prompt_follows(runtime: str, talk: Talk) -> None:
    crashed = unfinished(talk, runtime)
    asked = prompt(talk, runtime)
    found = by_id(talk)
    assert found[crashed].finished and found[crashed].interrupted and found[asked].finished


@RUNTIMES
def test_a_running_answer_with_a_queued_prompt_is_not_taken_as_crashed(
    runtime: str, talk: Talk
) -> None:
    running = unfinished(talk, runtime)
    prompt(talk, runtime)
    created = START + 1000
    assert not by_id(talk, created + CRASHED_MS)[running].finished
    assert by_id(talk, created + CRASHED_MS + 1)[running].interrupted
    talk.sql(f"UPDATE {TABLE[runtime]} SET time_updated = ? WHERE id = ?", LATER - 5000, running)
    assert not by_id(talk)[running].finished
    talk.sql(f"UPDATE {TABLE[runtime]} SET time_updated = time_created")
    talk.sql(f"UPDATE {TABLE[runtime]} SET time_created = ? WHERE id <> ?", LATER, running)
    assert not by_id(talk, LATER + SETTLED_MS)[running].finished
    assert by_id(talk, LATER + SETTLED_MS + 1)[running].interrupted


def test_a_touched_part_keeps_a_running_answer_running(talk: Talk) -> None:
    running = unfinished(talk, "older")
    talk.part(running, {"type": "tool", "state": {"status": "running"}})
    odd = talk.part(running, {"type": "text", "text": "odd"})
    talk.user("queued")
    talk.sql("UPDATE part SET time_updated = ? WHERE message_id = ?", LATER - 5000, running)
    talk.sql("UPDATE part SET time_updated = 'soon' WHERE id = ?", odd)
    assert not by_id(talk)[running].finished


@RUNTIMES
def test_a_last_answer_is_interrupted_when_untouched_for_a_day(runtime: str, talk: Talk) -> None:
    last = unfinished(talk, runtime)
    touched = START + 1000
    assert not by_id(talk, touched + ABANDONED_MS)[last].finished
    assert by_id(talk, touched + ABANDONED_MS + 1)[last].interrupted
    talk.sql(f"UPDATE {TABLE[runtime]} SET time_updated = time_updated + 5 WHERE id = ?", last)
    assert not by_id(talk, touched + ABANDONED_MS + 1)[last].finished


@RUNTIMES
def test_a_crashed_answer_that_is_completed_after_all_only_appends(
    runtime: str, talk: Talk, store: Store, settings: Settings
) -> None:
    crashed = unfinished(talk, runtime)
    prompt(talk, runtime)
    done = talk.export(store, settings, LATER)
    before = done.path.read_bytes()
    assert done.unfinished == 0
    assert b"interrupted, never finished" in before and b"Are you there?" in before
    talk.set(TABLE[runtime], crashed, "$.time.completed", LATER)
    prompt(talk, runtime, "And now?")
    again = talk.export(store, settings, LATER + 60_000)
    after = again.path.read_bytes()
    assert after.startswith(before) and b"And now?" in after[len(before) :]
    assert b"no longer in OpenCode" not in after
    assert talk.export(store, settings, LATER + 70_000).added == 0


@pytest.mark.parametrize(
    ("table", "column"),
    [("message", "id"), ("message", "session_id"), ("message", "data"), ("part", "id"),
     ("part", "message_id"), ("part", "data"), ("session_message", "id"),
     ("session_message", "session_id"), ("session_message", "type"),
     ("session_message", "data")],
)  # fmt: skip
def test_an_unknown_layout_is_unreadable_and_writes_no_false_history(
    table: str, column: str, talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("older")
    talk.newer("user", {"text": "newer"})
    done = talk.export(store, settings, LATER)
    before = done.path.read_bytes()
    with closing(sqlite3.connect(talk.db)) as connection, connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        kept = ", ".join(name if name != column else f"{name} AS renamed" for name in names)
        connection.execute(f"CREATE TABLE kept AS SELECT {kept} FROM {table}")
        connection.execute(f"DROP TABLE {table}")
        connection.execute(f"ALTER TABLE kept RENAME TO {table}")
    with pytest.raises(Unreadable, match=f"“{table}” lacks {column}"):
        read(talk)
    session = list_sessions([talk.db]).sessions[0]
    assert session.id == talk.id
    with pytest.raises(Unreadable):
        talk.export(store, settings, LATER)
    assert done.path.read_bytes() == before


@pytest.mark.parametrize(
    ("dropped", "named"),
    [(["part"], "“part”"), (["message", "session_message"], "“message”"),
     (["message", "part", "session_message"], "“session_message”")],
)  # fmt: skip
def test_a_layout_without_the_tables_of_messages_is_unreadable(
    dropped: list[str], named: str, talk: Talk
) -> None:
    talk.user("older")
    for table in dropped:
        talk.sql(f"DROP TABLE {table}")
    with pytest.raises(Unreadable, match=named):
        read(talk)


@pytest.mark.parametrize("dropped", [["session_message"], ["message", "part"], ["message"]])
def test_one_runtime_s_tables_are_enough(dropped: list[str], talk: Talk) -> None:
    older, newer = talk.user("older"), talk.newer("user", {"text": "newer"})
    for table in dropped:
        talk.sql(f"DROP TABLE {table}")
    assert [each.id for each in read(talk)] == [newer if "message" in dropped else older]


def loosen(db: Path) -> None:
    """The same tables without types, keys and constraints, so that they hold any value."""
    with closing(sqlite3.connect(db)) as connection, connection:
        for table in ("session", "message", "part", "session_message", "project"):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            connection.execute(f"CREATE TABLE loose ({', '.join(names)})")
            connection.execute(f"INSERT INTO loose SELECT * FROM {table}")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE loose RENAME TO {table}")


ODD: list[Any] = [
    None, "soon", "", b"\xff\xfe", b"", -5, 2**63 - 1, -(2**63), 1e300, float("inf"), 4.5,
    10**15, "9" * 5000, "\x00",
]  # fmt: skip
COLUMNS = [
    ("session", "title directory version parent_id revert time_created time_updated"
                " time_archived project_id"),
    ("project", "worktree id"),
    ("message", "time_created time_updated data"),
    ("part", "time_created time_updated data"),
    ("session_message", "type seq time_created time_updated data"),
]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize(
    ("table", "column"), [(table, name) for table, names in COLUMNS for name in names.split()]
)
def test_no_value_of_another_writer_stops_the_reading(
    table: str, column: str, value: Any, talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("one")
    talk.assistant("two", done=False)
    talk.newer("user", {"text": "three"})
    talk.newer("assistant", {"content": []})
    loosen(talk.db)
    talk.sql(f"UPDATE {table} SET {column} = ?", value)
    found = list_sessions([talk.db])
    assert found.problems == () and len(found.sessions) == 1
    session = found.sessions[0]
    given = read(talk)
    assert len(given) == 4
    texts: list[Any] = [session.title, session.directory, session.version, session.scope]
    texts += [text for message in given for text in (message.role, message.raw)]
    texts += [part.raw for message in given for part in message.parts]
    times: list[Any] = [session.created_at, session.updated_at, session.archived_at or 0]
    times += [message.created_at for message in given]
    assert all(isinstance(text, str) for text in texts)
    assert all(isinstance(time, int) and 0 <= time < 2**53 for time in times)
    talk.export(store, settings, LATER)


def test_an_odd_time_does_not_hide_the_last_touch(talk: Talk) -> None:
    talk.newer("user", {"text": "hello"})
    for odd in ("soon", 2**62):
        talk.sql("UPDATE session SET time_updated = ?", odd)
        assert talk.session().updated_at == START + 1000


@pytest.mark.parametrize("value", [None, b"ses_blob", b"\xff", "", 7, 4.5])
@pytest.mark.parametrize("table", ["session", "message", "part", "session_message"])
def test_a_row_without_an_id_is_left_out_and_told(table: str, value: Any, talk: Talk) -> None:
    talk.user("one")
    talk.user("two")
    talk.newer("user", {"text": "three"})
    whole = len(read(talk)), sum(len(message.parts) for message in read(talk))
    loosen(talk.db)
    names = {"session": "id", "part": "id, message_id, data"}.get(table, "id, session_id, data")
    rest = {"part": ", message_id, data", "session": ""}.get(table, ", session_id, data")
    talk.sql(f"INSERT INTO {table} ({names}) SELECT ?{rest} FROM {table} LIMIT 1", value)
    found = list_sessions([talk.db])
    assert [session.id for session in found.sessions] == [talk.id]
    assert len(found.problems) == 1
    assert f"1 row in its table “{table}”" in found.problems[0]
    given = read(talk)
    assert (len(given), sum(len(message.parts) for message in given)) == whole


def test_the_parts_of_a_message_whose_id_is_no_utf_8_are_found(talk: Talk) -> None:
    talk.user("one")
    for table, column in (("message", "id"), ("part", "message_id")):
        talk.sql(f"UPDATE {table} SET {column} = CAST(? AS TEXT)", b"msg_\xff")
    (message,) = read(talk)
    assert message.id == "msg_\ufffd" and len(message.parts) == 1


def test_a_session_id_that_is_no_unicode_is_not_found(talk: Talk) -> None:
    assert find_session([talk.db], "ses_\ud800") == (None, [])
