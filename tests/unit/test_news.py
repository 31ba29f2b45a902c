"""What is new in a session since a reader looked: messages, lines, sessions, and how little is read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import FIXTURES as FOLDER
from tests.conftest import Talk, Trace
from webapp.errors import InvalidInput, NotFound
from webapp.opencode import find_session, list_sessions, news, reading
from webapp.opencode.news import Ends, News, Seen, WentOn
from webapp.opencode.sessions import message_keys
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import news as transcript_news
from webapp.transcripts.export import export

FIXTURES = sorted(FOLDER.glob("opencode-*.db"))
LATER = 1_900_000_000_000


def seen(talk: Talk) -> Seen:
    with reading(talk.db) as connection:
        return news.seen(connection, talk.id)


def since(talk: Talk, held: Seen) -> News:
    with reading(talk.db) as connection:
        return news.since(connection, talk.id, held)


def ids(found: News) -> list[str]:
    return [key.id for key in found.messages]


def test_new_messages_are_told_in_order(talk: Talk) -> None:
    talk.user("First.")
    talk.assistant("Done.")
    held = seen(talk)
    assert since(talk, held) == News()
    second, answer = talk.user("Second."), talk.assistant("Done too.")
    found = since(talk, held)
    assert ids(found) == [second, answer]
    assert found.complete and not found.changed
    assert since(talk, seen(talk)) == News()


def test_an_empty_session_gets_its_first_messages(talk: Talk) -> None:
    held = seen(talk)
    assert (held.older, held.newer) == ("", "")
    first = talk.user("First.")
    assert ids(since(talk, held)) == [first]


def test_an_answer_that_goes_on_is_told_without_a_new_message(talk: Talk) -> None:
    talk.user("First.")
    answer = talk.assistant("Half", done=False)
    held = seen(talk)
    talk.part(answer, {"type": "text", "text": "and half"})
    assert since(talk, held) == News(went_on=True)
    held = seen(talk)
    talk.finish(answer)
    assert since(talk, held) == News(went_on=True)


def test_messages_that_were_taken_back_are_told_as_a_change(talk: Talk) -> None:
    talk.user("First.")
    held = seen(talk)
    talk.sql("DELETE FROM message")
    for number in range(news.MOST + 5):
        talk.user(f"Again {number}.")
    assert since(talk, held) == News(changed=True)


def test_a_message_that_sorts_further_up_a_title_and_a_revert_are_told_as_a_change(
    talk: Talk,
) -> None:
    talk.user("First.")
    talk.user("Second.")
    held = seen(talk)
    talk.sql(
        "INSERT INTO message (id, session_id, time_created, time_updated, data)"
        " SELECT 'msg_0', session_id, time_created - 5000, time_updated, data FROM message LIMIT 1"
    )
    assert since(talk, held) == News()  # OpenCode touches the session too
    talk.sql("UPDATE session SET time_updated = time_updated + 1, title = 'Other'")
    assert since(talk, held) == News(changed=True)


def test_a_session_that_is_deleted_is_told(talk: Talk) -> None:
    talk.user("First.")
    held = seen(talk)
    talk.sql("DELETE FROM session")
    assert since(talk, held) == News(gone=True)


def test_rows_that_take_the_numbers_of_removed_ones_are_told(talk: Talk) -> None:
    for number in range(4):
        talk.user(f"Question {number}.")
    held = news.ends([talk.db])
    talk.sql("DELETE FROM message WHERE rowid > 1")
    talk.user("Another.")
    assert news.went_on([talk.db], held).changed


def test_of_very_many_only_that_there_are_more(talk: Talk) -> None:
    talk.user("First.")
    held = seen(talk)
    for number in range(news.MOST + 1):
        talk.message({"role": "user"}, f"msg_more_{number:04}")
    found = since(talk, held)
    assert len(found.messages) == news.MOST and not found.complete


def test_the_newer_runtime_is_told_by_its_own_order(talk: Talk) -> None:
    talk.newer("user", {"text": "First."})
    held = seen(talk)
    second = talk.newer("assistant", {"content": [{"type": "text", "text": "Done."}]})
    assert ids(since(talk, held)) == [second]


def test_a_switch_that_is_noted_twice_counts_once(talk: Talk) -> None:
    """1.14 to 1.17 note the switches of the older runtime in `session_message` too, at the very
    time of the message."""
    talk.user("First.")
    held = seen(talk)
    answer = talk.user("Second.")
    talk.sql(
        "INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data)"
        " SELECT 'msg_mirror', session_id, 'agent-switched', 1, time_created, time_updated, '{}'"
        " FROM message WHERE id = ?", answer,
    )  # fmt: skip
    assert ids(since(talk, held)) == [answer]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_every_layout_tells_what_came_after_half_of_a_session(path: Path) -> None:
    counted = 0
    for session in list_sessions([path]).sessions:
        with reading(path) as connection:
            keys = message_keys(connection, session.id)
            assert news.since(connection, session.id, news.seen(connection, session.id)) == News()
            for half in (len(keys) // 2, 0):
                known = {key.id for key in keys[:half]}
                found, complete = news.newest(connection, session.id, known.__contains__)
                assert complete
                assert [key.id for key in found] == [key.id for key in keys[half:]], session.id
                counted += len(found)
    assert counted


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[1,2,3,4,5]", '["a","b","c",1,1]', '["a","b",1,2,3,4]', "nul", "{}", "[" * 5000, "1e999"],
)  # fmt: skip
def test_an_address_that_says_nothing_is_an_input_error(text: str) -> None:
    with pytest.raises(InvalidInput):
        Seen.load(text)
    if text != "{}":
        with pytest.raises(InvalidInput):
            Ends.load(text)
    with pytest.raises(InvalidInput):
        Ends.load('{"opencode.db": [[1, "a"], [2, "b"], [1e30, "c"]]}')


def test_what_is_seen_survives_its_address(talk: Talk) -> None:
    talk.message({"role": "user"}, 'msg_"odd",é')
    held = seen(talk)
    assert Seen.load(held.dump()) == held
    all_ends = news.ends([talk.db])
    assert Ends.load(all_ends.dump()) == all_ends


def test_sessions_that_went_on_are_counted_once_each(new_talk: Callable[..., Talk]) -> None:
    one, two, still = new_talk("ses_one"), new_talk("ses_two"), new_talk("ses_still")
    still.user("Before.")
    held = news.ends([one.db])
    assert news.went_on([one.db], held) == WentOn()
    one.user("First.")
    one.assistant("Done.")
    two.newer("user", {"text": "First."})
    new_talk("ses_new")
    assert news.went_on([one.db], held) == WentOn(3)
    for number in range(news.MOST):
        one.message({"role": "user"}, f"msg_more_{number:04}")
    assert news.went_on([one.db], held) == WentOn(3, False)
    missing = one.db.with_name("opencode-next.db")
    unread = news.went_on([missing, one.db], Ends({missing.name: ((0, ""),) * 3}))
    assert unread == WentOn(unread=True)
    assert news.ends([missing]) == Ends()


@pytest.fixture
def shown(talk: Talk, store: Store, settings: Settings) -> Callable[[], transcript_news.Seen]:
    """Exports the session; what a page that is made now has seen."""

    def show() -> transcript_news.Seen:
        done = talk.export(store, settings, LATER)
        return transcript_news.Seen(done.lines, done.lines)

    return show


def look(
    store: Store, settings: Settings, session_id: str, held: transcript_news.Seen, now: int
) -> transcript_news.News:
    """What came into a transcript, told from the database that it came from."""
    _, database = transcript_news.place(store, settings, session_id)
    return transcript_news.since(store, settings, session_id, database, held, now)


def test_new_lines_are_as_many_as_an_export_then_appends(
    talk: Talk, store: Store, settings: Settings, shown: Callable[[], transcript_news.Seen]
) -> None:
    talk.user("First.")
    talk.assistant("Done.")
    held = shown()
    assert look(store, settings, talk.id, held, LATER).lines == 0
    talk.user("Second\nof three\nlines.")
    talk.assistant("One.\nTwo.")
    one = look(store, settings, talk.id, held, LATER)
    talk.user("Third.")
    two = look(store, settings, talk.id, one.seen, LATER)
    assert 0 < one.lines < two.lines
    assert two.seen.more == two.lines
    before = held.lines
    done = talk.export(store, settings, LATER)
    assert done.added == two.lines
    after = look(store, settings, talk.id, two.seen, LATER)
    assert after.lines == two.lines and after.seen.more == 0
    assert after.seen.disk == before + two.lines
    talk.assistant("Done again.")
    assert look(store, settings, talk.id, after.seen, LATER).lines > two.lines


def test_what_is_not_finished_is_not_counted(
    talk: Talk, store: Store, settings: Settings, shown: Callable[[], transcript_news.Seen]
) -> None:
    talk.user("First.")
    held = shown()
    answer = talk.assistant("Half.", done=False)
    now = talk.session().updated_at + 100
    assert look(store, settings, talk.id, held, now).lines == 0
    talk.finish(answer)
    assert look(store, settings, talk.id, held, now).lines > 0


def test_what_an_export_would_note_is_told_as_a_change(
    talk: Talk, store: Store, settings: Settings, shown: Callable[[], transcript_news.Seen]
) -> None:
    talk.user("First.")
    talk.assistant("Done.")
    held = shown()
    assert not look(store, settings, talk.id, held, LATER).changed
    talk.sql("UPDATE session SET title = 'Other', time_updated = time_updated + 1000")
    found = look(store, settings, talk.id, held, LATER)
    assert (found.lines, found.changed) == (0, True)
    assert talk.export(store, settings, LATER).added > 0
    talk.sql("DELETE FROM session")
    gone = look(store, settings, talk.id, held, LATER)
    assert (gone.complete, gone.changed) == (True, False)


def test_counted_messages_that_are_taken_back_are_counted_anew(
    talk: Talk, store: Store, settings: Settings, shown: Callable[[], transcript_news.Seen]
) -> None:
    talk.user("First.")
    held = shown()
    gone = talk.user("Second.\nTo be taken back.")
    one = look(store, settings, talk.id, held, LATER)
    talk.sql("DELETE FROM message WHERE id = ?", gone)
    talk.user("Third.")
    two = look(store, settings, talk.id, one.seen, LATER)
    assert talk.export(store, settings, LATER).lines - held.lines > two.lines - 3
    assert two.lines == one.lines - 1


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_of_every_session_just_exported_nothing_is_new(
    path: Path, store: Store, settings: Settings
) -> None:
    settings = replace(settings, opencode_db=path)
    for session in list_sessions([path]).sessions:
        done = export(store, settings, session, LATER)
        held = transcript_news.Seen(done.lines, done.lines)
        found = look(store, settings, session.id, held, LATER)
        assert (found.lines, found.complete, found.seen.disk) == (0, True, done.lines)


def test_a_version_changes_with_either_file_and_only_then(
    talk: Talk, store: Store, settings: Settings, shown: Callable[[], transcript_news.Seen]
) -> None:
    talk.user("First.")
    shown()
    path, database = transcript_news.place(store, settings, talk.id)
    assert database == talk.db
    first = transcript_news.version(path, database)
    assert first and transcript_news.version(path, database) == first
    talk.user("Second.")
    second = transcript_news.version(path, database)
    assert second != first
    shown()
    assert transcript_news.version(path, database) not in (first, second)
    assert transcript_news.version(path.with_name("none.md"), None) == (-1,)


def test_a_transcript_that_is_gone_is_told(store: Store, settings: Settings) -> None:
    with pytest.raises(NotFound):
        transcript_news.since(store, settings, "ses_none", None, transcript_news.Seen(1, 1), LATER)
    with pytest.raises(NotFound):
        transcript_news.place(store, settings, "ses_none")


def test_a_session_of_another_id_is_not_read(talk: Talk) -> None:
    talk.user("First.")
    with reading(talk.db) as connection:
        assert news.seen(connection, "ses_\ud800") == Seen()
        assert news.since(connection, "ses_\ud800", Seen("msg_\ud800")) == News(gone=True)
    assert find_session([talk.db], "ses_\ud800") == (None, [])


def test_a_message_without_an_id_is_passed_over(talk: Talk) -> None:
    talk.user("First.")
    held = seen(talk)
    with closing(sqlite3.connect(talk.db)) as connection, connection:
        connection.execute(
            "INSERT INTO message (id, session_id, time_created, time_updated, data)"
            " VALUES (x'00', ?, 1900000000000, 1, '{}')", (talk.id,),
        )  # fmt: skip
    assert since(talk, held) == News()


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_a_look_for_news_goes_through_no_table(path: Path, tmp_path: Path, trace: Trace) -> None:
    db = Path(shutil.copyfile(path, tmp_path / "opencode.db"))
    for session in list_sessions([db]).sessions:
        with reading(db) as connection:
            held = news.seen(connection, session.id)
            trace.clear()
            news.since(connection, session.id, held)
            news.since(connection, session.id, replace(held, touched=1))
            news.newest(connection, session.id, {held.older, held.newer}.__contains__)
        trace.assert_frugal(db)
    trace.clear()
    news.went_on([db], Ends({db.name: ((0, ""),) * 3}))
    assert news.ends([db]).rows
    trace.assert_frugal(db)
