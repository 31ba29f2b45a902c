"""Sessions and messages of OpenCode's database: both runtimes, any layout, nothing left out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.opencode import Message, find_session, list_sessions, messages, reading
from webapp.opencode.sessions import SETTLED_MS

if TYPE_CHECKING:
    from tests.conftest import Talk

NOW = 1_790_000_000_000 + 86_400_000
NewTalk = Callable[..., "Talk"]


def read(talk: Talk, now: int = NOW) -> list[Message]:
    with reading(talk.db) as connection:
        return list(messages(connection, talk.id, now))


def by_id(talk: Talk, now: int = NOW) -> dict[str, Message]:
    return {message.id: message for message in read(talk, now)}


def test_every_session_of_a_real_database_is_listed_last_touched_first(opencode_db: Path) -> None:
    found = list_sessions([opencode_db])
    with closing(sqlite3.connect(opencode_db)) as connection:
        ids = {row[0] for row in connection.execute("SELECT id FROM session")}
    assert {session.id for session in found.sessions} == ids
    assert found.problems == ()
    times = [session.updated_at for session in found.sessions]
    assert times == sorted(times, reverse=True)
    assert all(session.scope == "/home/demo/shop" for session in found.sessions)


def test_facts_of_a_real_session_are_read(opencode_db: Path) -> None:
    by_title = {session.title: session for session in list_sessions([opencode_db]).sessions}
    child = by_title["Find price code (@general subagent)"]
    parent = by_title["Delegate the survey to a subagent"]
    assert child.parent_id == parent.id and parent.parent_id is None
    assert by_title["Archived: spring cleaning"].archived_at is not None
    assert parent.archived_at is None
    revert = by_title["Work that was taken back"].revert
    assert revert is not None and str(revert["messageID"]).startswith("msg_")
    assert child.db == opencode_db and child.directory == "/home/demo/shop"
    assert child.version in opencode_db.name


@pytest.mark.parametrize(
    ("worktree", "directory", "scope"),
    [
        ("/home/demo/shop", "/home/demo/shop/api", "/home/demo/shop"),
        ("/", "/home/demo/notes", "/home/demo/notes"),
        ("", "/home/demo/notes", "/home/demo/notes"),
        ("/", "", "global"),
    ],
)
def test_the_scope_is_the_worktree_or_the_folder(
    worktree: str, directory: str, scope: str, talk: Talk
) -> None:
    talk.sql("UPDATE project SET worktree = ?", worktree)
    talk.sql("UPDATE session SET directory = ?", directory)
    assert talk.session().scope == scope


def test_a_session_of_two_databases_is_taken_where_it_was_touched_last(
    talk: Talk, tmp_path: Path
) -> None:
    other = tmp_path / "opencode-beta.db"
    other.write_bytes(talk.db.read_bytes())
    talk.sql("UPDATE session SET time_updated = time_updated + 5, title = 'newer'")
    for order in ([talk.db, other], [other, talk.db]):
        found = list_sessions(order)
        assert [(session.title, session.db) for session in found.sessions] == [("newer", talk.db)]
        session, _ = find_session(order, talk.id)
        assert session is not None and session.title == "newer"


def test_an_unknown_session_is_not_a_problem(talk: Talk) -> None:
    assert find_session([talk.db], "ses_nobody") == (None, [])


@pytest.mark.parametrize("column", ["title", "version", "directory", "parent_id", "revert",
                                    "time_archived", "project_id"])  # fmt: skip
def test_a_layout_without_a_column_is_read_without_it(
    column: str, talk: Talk, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.db"
    with closing(sqlite3.connect(talk.db)) as connection, connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(session)")]
        kept = ", ".join(name for name in names if name != column)
        connection.execute("ATTACH DATABASE ? AS plain", (str(plain),))
        connection.execute(f"CREATE TABLE plain.session AS SELECT {kept} FROM session")
    found = list_sessions([plain])
    assert found.problems == () and [session.id for session in found.sessions] == [talk.id]


def test_the_last_touch_of_a_session_is_that_of_its_last_message(talk: Talk) -> None:
    """OpenCode's newer runtime does not touch the session when messages come in."""
    talk.newer("user", {"text": "Are you there?"}, touch=True)
    before = talk.session().updated_at
    talk.newer("assistant", {"content": [{"type": "text", "text": "Yes."}]})
    assert talk.session().updated_at > before
    assert list_sessions([talk.db]).sessions[0].updated_at > before


def test_a_message_that_is_finished_counts_as_a_touch(talk: Talk) -> None:
    talk.user("Count to three.")
    answer = talk.assistant("One, two", done=False)
    before = talk.session().updated_at
    talk.finish(answer)
    assert talk.session().updated_at > before


def test_the_last_touch_in_a_real_database_is_not_before_its_last_message(
    newest_db: Path,
) -> None:
    sessions = {session.id: session for session in list_sessions([newest_db]).sessions}
    with closing(sqlite3.connect(newest_db)) as connection:
        for table in ("message", "session_message"):
            for session_id, at in connection.execute(
                f"SELECT session_id, max(time_created) FROM {table} GROUP BY session_id"
            ):
                assert sessions[session_id].updated_at >= at


def test_messages_come_by_time_and_parts_by_id(talk: Talk) -> None:
    late = talk.message({"role": "user"}, "msg_a")
    early = talk.message({"role": "user"}, "msg_z")
    talk.sql("UPDATE message SET time_created = time_created - 5000 WHERE id = 'msg_z'")
    talk.part(late, {"type": "text", "text": "second"}, "prt_2")
    talk.part(late, {"type": "text", "text": "first"}, "prt_1")
    found = read(talk)
    assert [message.id for message in found] == [early, late]
    assert [part.id for part in found[1].parts] == ["prt_1", "prt_2"]


def test_every_message_and_part_of_a_real_database_is_given_in_order(opencode_db: Path) -> None:
    with closing(sqlite3.connect(opencode_db)) as connection:
        wanted = [
            (session, message, part)
            for session, message, part in connection.execute(
                "SELECT m.session_id, m.id, p.id FROM message m LEFT JOIN part p"
                " ON p.message_id = m.id ORDER BY m.session_id, m.time_created, m.id, p.id"
            )
        ]
    given: list[tuple[str, str, str | None]] = []
    with reading(opencode_db) as connection:
        for session in sorted({row[0] for row in wanted}):
            for message in messages(connection, session, NOW * 2):
                given += [(session, message.id, part.id) for part in message.parts]
                given += [] if message.parts else [(session, message.id, None)]
    assert given == wanted


def test_an_answer_is_finished_when_it_is_completed_or_failed(talk: Talk) -> None:
    talk.user("Go.")
    done = talk.assistant("Done.")
    failed = talk.assistant(None, False, error={"name": "APIError", "data": {"message": "no"}})
    running = talk.assistant("Wait", done=False)
    found = by_id(talk)
    assert found[done].finished and not found[done].interrupted
    assert found[failed].finished and not found[failed].interrupted
    assert not found[running].finished and not found[running].interrupted


def test_an_answer_that_never_finished_is_interrupted_once_another_began(talk: Talk) -> None:
    crashed = talk.assistant("Half a sen", done=False)
    talk.user("Are you there?")
    assert not by_id(talk, NOW - 86_000_000)[crashed].finished
    running = talk.assistant("Yes", done=False)
    found = by_id(talk)
    assert found[crashed].finished and found[crashed].interrupted
    assert not found[running].finished


def test_a_prompt_is_whole_when_something_follows_or_it_has_settled(talk: Talk) -> None:
    prompt = talk.user("Hello")
    at = read(talk)[0].created_at
    assert not by_id(talk, at)[prompt].finished
    assert not by_id(talk, at + SETTLED_MS - 1)[prompt].finished
    assert by_id(talk, at + SETTLED_MS)[prompt].finished
    talk.assistant("Hi", done=False)
    assert by_id(talk, at)[prompt].finished


def test_a_last_message_without_parts_settles_too(talk: Talk) -> None:
    message = talk.message({"role": "user"})
    at = read(talk)[0].created_at
    assert not by_id(talk, at)[message].finished
    assert by_id(talk, at + SETTLED_MS)[message].finished


UNPARSABLE = ["", "{", "not json", '{"type": "text"', "[1, 2", "\x00", "{'a': 1}"]


@pytest.mark.parametrize("raw", UNPARSABLE)
def test_a_part_that_is_no_json_is_given_as_it_is(raw: str, talk: Talk) -> None:
    message = talk.user("Hello")
    part = talk.part(message, raw)
    found = read(talk)[0].parts[1]
    assert (found.id, found.type, found.data, found.raw) == (part, "unreadable", None, raw)


@pytest.mark.parametrize("raw", ["7", "null", "true", '"text"', "[1, 2]", "1e999", "NaN"])
def test_a_part_that_is_json_but_no_object_is_given_as_it_is(raw: str, talk: Talk) -> None:
    message = talk.user("Hello")
    talk.part(message, raw)
    found = read(talk)[0].parts[1]
    assert (found.type, found.data, found.raw) == ("unreadable", None, raw)


@pytest.mark.parametrize("raw", UNPARSABLE)
def test_a_message_that_is_no_json_is_given_as_it_is_with_its_parts(raw: str, talk: Talk) -> None:
    message = talk.message(raw)
    part = talk.part(message, {"type": "text", "text": "still here"})
    found = read(talk)[0]
    assert (found.data, found.raw, found.role) == (None, raw, "unknown")
    assert [each.id for each in found.parts] == [part]
    assert found.finished


@pytest.mark.parametrize("value", [b"\xff\xfe\x00", b'{"type": "text"', 42, 4.5])
@pytest.mark.parametrize("table", ["message", "part", "session_message"])
def test_a_row_whose_data_is_no_text_is_given_as_text(
    table: str, value: bytes | float, talk: Talk
) -> None:
    if table == "session_message":
        talk.newer("user", {"text": "Hello"})
    else:
        talk.user("Hello")
    talk.sql(f"UPDATE {table} SET data = ?", value)
    found = read(talk)[0]
    wanted = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    held = [dict(part.data or {}).get("value") for part in found.parts]
    held += [(found.data or {}).get("value"), found.raw, *(part.raw for part in found.parts)]
    assert wanted in map(str, held)


def test_deeply_nested_json_is_given_in_one_way_or_the_other(talk: Talk) -> None:
    message = talk.user("Hello")
    for depth in (10, 500, 5_000, 100_000):
        talk.part(message, '{"type": "odd", "value": ' + "[" * depth + "]" * depth + "}")
    parts = read(talk)[0].parts
    assert len(parts) == 5
    assert all(part.data is not None or part.raw for part in parts)


def test_invalid_utf_8_and_lone_surrogates_do_not_stop_the_reading(talk: Talk) -> None:
    message = talk.message({"role": "user"})
    talk.part(message, '{"type": "text", "text": "lone \\ud800 surrogate"}')
    broken = b'{"type": "text", "text": "broken \xff byte"}'
    talk.sql("UPDATE part SET data = CAST(? AS TEXT) WHERE id = ?", broken, talk.part(message, "x"))
    first, second = read(talk)[0].parts
    assert first.data is not None and first.data["text"] == "lone \ud800 surrogate"
    assert second.data is not None and second.data["text"] == "broken \ufffd byte"


def test_a_session_of_a_real_newer_runtime_is_cut_into_parts(newest_db: Path) -> None:
    with closing(sqlite3.connect(newest_db)) as connection:
        (session,) = {
            row[0] for row in connection.execute("SELECT session_id FROM session_message")
        }
    with reading(newest_db) as connection:
        found = list(messages(connection, session, NOW * 2))
    assert [message.role for message in found] == [
        "model-switched", "user", "assistant", "user", "assistant", "assistant", "assistant",
    ]  # fmt: skip
    assert all(message.finished for message in found)
    assert [part.type for part in found[4].parts] == ["tool", "step-finish"]
    tool: Any = found[4].parts[0].data
    assert tool["tool"] == "glob"
    assert tool["state"]["status"] == "error"
    assert tool["state"]["input"] == {"pattern": "**/*.py", "path": "/home/demo/shop"}
    assert tool["state"]["error"] == "Unable to find files matching **/*.py"


def leaves(value: Any) -> list[Any]:
    """Every text and number in a JSON value."""
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value in (None, "") or isinstance(value, bool) else [value]


ANSWER = {
    "agent": "build",
    "model": {"id": "m1", "providerID": "p1", "variant": "high"},
    "content": [
        {"type": "reasoning", "id": "r0", "text": "Let me think."},
        {"type": "text", "id": "t0", "text": "Here you are."},
        {"type": "hologram", "beam": {"colour": "teal"}},
        "a bare string",
        {
            "type": "tool", "id": "call_1", "name": "bash", "provider": {"executed": True},
            "state": {
                "status": "completed", "input": {"command": "ls"}, "structured": {"exit": 3},
                "content": [
                    {"type": "text", "text": "one"}, {"type": "text", "text": "two"},
                    {"type": "file", "uri": "file:///tmp/picture.png"},
                ],
            },
        },
        {
            "type": "tool", "id": "call_2", "name": "read", "metadata": {"why": "curiosity"},
            "state": {"status": "error", "error": {"type": "denied", "message": "not allowed"}},
        },
        {"type": "tool", "id": "call_3", "name": "odd", "state": "no object"},
    ],
    "finish": "stop", "cost": 0.25, "snapshot": {"start": "abc", "files": ["a.py"]},
    "retries": 2,
}  # fmt: skip


def test_nothing_of_a_newer_answer_is_lost_between_its_parts(talk: Talk) -> None:
    talk.newer("assistant", ANSWER | {"time": {"created": 5, "completed": 6}})
    (message,) = read(talk)
    kept = leaves([dict(part.data or {}) for part in message.parts]) + leaves(message.data)
    in_parts = [str(leaf) for leaf in leaves([dict(part.data or {}) for part in message.parts])]
    for leaf in [*leaves(ANSWER["content"]), "stop", 0.25, "abc", "a.py", 2]:
        assert any(str(leaf) in each for each in in_parts), leaf
    assert "build" in kept
    assert len({part.id for part in message.parts}) == len(message.parts)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("agent-switched", {"agent": "plan"}),
        ("model-switched", {"model": {"id": "m2", "providerID": "p1", "variant": "high"}}),
        ("synthetic", {"text": "a background task is done"}),
        ("system", {"text": "instructions have changed"}),
        ("shell", {"callID": "call_1", "command": "date", "output": "now",
                   "time": {"created": 1, "completed": 2}}),
        ("compaction", {"reason": "manual", "summary": "so far so good", "recent": "msg_1"}),
        ("from-the-future", {"beam": {"colour": "teal"}}),
        ("user", {"text": "look", "files": [{"uri": "file:///a.txt", "name": "a.txt"}],
                  "agents": [{"name": "general"}]}),
    ],
)  # fmt: skip
def test_every_kind_of_newer_message_keeps_what_it_holds(
    kind: str, data: dict[str, Any], talk: Talk
) -> None:
    talk.newer(kind, data)
    (message,) = read(talk)
    assert message.role == kind and message.finished
    held = json.dumps([dict(part.data or {}) for part in message.parts])
    for leaf in leaves({key: value for key, value in data.items() if key != "time"}):
        assert str(leaf) in held


def test_newer_messages_come_by_their_sequence(talk: Talk) -> None:
    first = talk.newer("user", {"text": "one"})
    second = talk.newer("user", {"text": "two"})
    talk.sql("UPDATE session_message SET time_created = 1 WHERE id = ?", second)
    assert [message.id for message in read(talk)] == [first, second]
    talk.sql("UPDATE session_message SET seq = 9 WHERE id = ?", first)
    assert [message.id for message in read(talk)] == [second, first]


def test_a_newer_answer_is_finished_interrupted_or_running(talk: Talk) -> None:
    crashed = talk.newer("assistant", {"content": [{"type": "text", "text": "Half a"}]})
    found = by_id(talk)
    assert not found[crashed].finished
    running = talk.newer("assistant", {"content": []})
    failed_time = {"created": 1}
    found = by_id(talk)
    assert found[crashed].finished and found[crashed].interrupted
    assert not found[running].finished and not found[running].interrupted
    failed = talk.newer(
        "assistant", {"error": {"type": "unknown", "message": "no"}, "time": failed_time}
    )
    assert by_id(talk)[failed].finished and not by_id(talk)[failed].interrupted


def test_a_newer_shell_command_is_given_when_it_has_ended(talk: Talk) -> None:
    shell = talk.newer("shell", {"callID": "c", "command": "sleep 9", "output": ""})
    assert not by_id(talk)[shell].finished
    talk.sql(
        "UPDATE session_message SET data = json_set(data, '$.output', 'done',"
        " '$.time.completed', 9) WHERE id = ?",
        shell,
    )
    assert by_id(talk)[shell].finished


@pytest.mark.parametrize("raw", ["{", "not json", "[1"])
def test_a_newer_message_that_is_no_json_is_given_as_it_is(raw: str, talk: Talk) -> None:
    talk.newer("assistant", raw)
    talk.newer("user", {"text": "and on it goes"})
    first, second = read(talk)
    assert (first.data, first.raw, [part.raw for part in first.parts]) == (None, raw, [raw])
    assert first.finished and second.finished


def test_a_session_of_both_runtimes_gives_all_messages(talk: Talk) -> None:
    older = talk.user("from before")
    newer = talk.newer("user", {"text": "from after"})
    assert [message.id for message in read(talk)] == [older, newer]


@pytest.mark.parametrize("table", ["message", "session_message", "project"])
def test_a_layout_without_a_table_is_read_without_it(table: str, talk: Talk) -> None:
    older = talk.user("older")
    newer = talk.newer("user", {"text": "newer"})
    talk.sql(f"DROP TABLE {table}")
    assert talk.session().id == talk.id
    wanted = {"message": [newer], "session_message": [older]}.get(table, [older, newer])
    assert [message.id for message in read(talk)] == wanted


def test_messages_of_other_sessions_stay_out(new_talk: NewTalk) -> None:
    one, two = new_talk("ses_one"), new_talk("ses_two")
    mine = one.user("mine")
    two.user("theirs")
    one.newer("user", {"text": "mine too"})
    assert read(one)[0].id == mine
    assert len(read(one)) == 2 and len(read(two)) == 1
