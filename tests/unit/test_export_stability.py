"""Line N of a session never changes, whatever OpenCode, a crash or a second process does."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.errors import Conflict, MemoryAppError
from webapp.lines import LineRange
from webapp.opencode import Session, list_sessions
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.transcripts import window
from webapp.transcripts.export import export, export_many
from webapp.transcripts.files import load_marks, marks_path, offsets_path
from webapp.transcripts.grep import grep
from webapp.transcripts.library import get, open_transcript, transcripts

if TYPE_CHECKING:
    from tests.conftest import Talk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NOW = 1_800_000_000_000
LATER = NOW + 3_600_000
RUNNING = 1_790_000_000_000 + 300_000
"""So soon that an unfinished answer may still be on its way."""
DATED = "## notice · 2027-01-15 09:00:00Z · "
"""How a notice of an export at LATER begins."""


def lines_of(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")


class Transcript:
    """A session's transcript, exported step by step; what stood before must stay."""

    def __init__(self, talk: Talk, store: Store, settings: Settings) -> None:
        self.talk, self.store, self.settings = talk, store, settings
        self.path = talk.export(store, settings, NOW).path

    def grow(self, now: int = LATER) -> list[str]:
        """Exports again and gives the lines that came; those above are the same bytes."""
        before = self.path.read_bytes()
        self.talk.export(self.store, self.settings, now)
        after = self.path.read_bytes()
        assert after.startswith(before), "a line above has changed"
        assert before.endswith(b"\n") and (after.endswith(b"\n"))
        return after[len(before) :].decode().split("\n")[:-1]

    def quiet(self) -> None:
        """A further export finds nothing to add and leaves every byte, and the index, as it was."""
        state = self.state()
        assert self.grow(LATER + 1) == []
        assert self.state() == state

    def state(self) -> tuple[bytes, bytes, int, dict[str, Any]]:
        row = self.store.first(
            TranscriptRow.select().where(TranscriptRow.session_id == self.talk.id)
        )
        return (
            self.path.read_bytes(), marks_path(self.path).read_bytes(),
            self.path.stat().st_mtime_ns, row.__data__,
        )  # fmt: skip

    def line(self, part_id: str) -> int:
        return next(mark.line for mark in load_marks(self.path) if mark.id == part_id)


@pytest.fixture
def told(talk: Talk, store: Store, settings: Settings) -> Transcript:
    """A session of a prompt, an answer with a tool, and another prompt and answer, exported."""
    talk.user("Which files are there?")
    answer = talk.assistant("Let me look.")
    state = {
        "status": "completed", "input": {"command": "ls"}, "output": "a.py\nb.py",
        "time": {"start": 1, "end": 2},
    }  # fmt: skip
    talk.part(answer, {"type": "tool", "callID": "call_1", "tool": "bash", "state": state}, "tool")
    talk.user("Thanks.")
    talk.assistant("You are welcome.")
    return Transcript(talk, store, settings)


def test_a_second_export_adds_nothing_and_leaves_the_bytes(
    opencode_db: Path, store: Store, settings: Settings
) -> None:
    sessions = list(list_sessions([opencode_db]).sessions)
    first = [step.exported for step in export_many(store, settings, sessions, NOW)]
    files = sorted(path for path in settings.transcripts_dir.rglob("*") if path.is_file())
    before = [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    rows = store.rows("SELECT * FROM transcripts ORDER BY session_id")

    again = [step.exported for step in export_many(store, settings, sessions, LATER)]

    assert len(first) == len(again) > 10
    assert all(done is not None and done.added == 0 and not done.created for done in again)
    files = sorted(path for path in settings.transcripts_dir.rglob("*") if path.is_file())
    assert [(path, path.read_bytes(), path.stat().st_mtime_ns) for path in files] == before
    assert store.rows("SELECT * FROM transcripts ORDER BY session_id") == rows


def test_the_same_session_gives_the_same_bytes_in_another_place(
    opencode_db: Path, store: Store, settings: Settings, tmp_path: Path
) -> None:
    sessions = list(list_sessions([opencode_db]).sessions)
    list(export_many(store, settings, sessions, NOW))
    other = replace(settings, data_dir=tmp_path / "other", db=tmp_path / "other" / "memory.db")
    with Store(other.db).session() as elsewhere:
        list(export_many(elsewhere, other, sessions, LATER))
    mine = {path.name: path.read_bytes() for path in settings.transcripts_dir.rglob("*.md")}
    theirs = {path.name: path.read_bytes() for path in other.transcripts_dir.rglob("*.md")}
    reverted = {session.id + ".md" for session in sessions if session.revert}
    assert mine.keys() == theirs.keys() and len(reverted) == 1
    assert {k: v for k, v in mine.items() if k not in reverted} == {
        k: v for k, v in theirs.items() if k not in reverted
    }


def test_a_real_session_that_grows_keeps_every_earlier_line(
    newest_db: Path, store: Store, settings: Settings
) -> None:
    session = max(
        list_sessions([newest_db]).sessions,
        key=lambda each: export(store, settings, each, NOW).lines,
    )
    path = export(store, settings, session, NOW).path
    for number in range(6):
        before = path.read_bytes()
        with sqlite3.connect(newest_db) as connection:
            at = session.updated_at + 1000 * (number + 1)
            connection.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
                (f"msg_zz{number}", session.id, at, at,
                 f'{{"role":"assistant","time":{{"created":{at},"completed":{at}}}}}'),
            )  # fmt: skip
            connection.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
                (f"prt_zz{number}", f"msg_zz{number}", session.id, at, at,
                 f'{{"type":"text","text":"answer\\nnumber {number}"}}'),
            )  # fmt: skip
        connection.close()
        done = export(store, settings, session, NOW)
        after = path.read_bytes()
        assert after.startswith(before) and after.endswith(f"answer\nnumber {number}\n".encode())
        assert done.added == after.count(b"\n") - before.count(b"\n") == 4
        assert "notice" not in after[len(before) :].decode()


def test_a_new_message_comes_after_an_empty_line(told: Transcript) -> None:
    message = told.talk.user("One more\nthing")
    added = told.grow()
    assert added[0] == "" and added[1].startswith("## user") and message in added[1]
    assert added[2:] == ["One more", "thing"]
    told.quiet()


def test_an_unfinished_answer_is_not_written_until_it_is_finished(told: Transcript) -> None:
    answer = told.talk.assistant("Half of it", done=False)
    assert told.grow(RUNNING) == []
    told.talk.part(answer, {"type": "text", "text": "and the other half"})
    assert told.grow(RUNNING) == []
    told.talk.finish(answer)
    added = told.grow()
    assert answer in added[1] and "interrupted" not in added[1]
    assert added[2:] == ["Half of it", "### text", "and the other half"]
    told.quiet()


def test_an_interrupted_answer_is_written_when_the_session_goes_on(told: Transcript) -> None:
    crashed = told.talk.assistant("Half of it", done=False)
    told.talk.user("Are you there?")
    told.talk.assistant("Yes.")
    added = told.grow()
    assert crashed in added[1] and added[1].endswith("interrupted, never finished")
    assert added[2] == "Half of it" and added[-1] == "Yes."
    told.quiet()


def test_what_follows_an_unfinished_answer_waits_so_that_the_order_is_kept(
    told: Transcript,
) -> None:
    running = told.talk.assistant("Working on it", done=False)
    queued = told.talk.user("When you are done, another thing")
    assert told.grow(RUNNING) == []
    told.talk.finish(running)
    headings = [line for line in told.grow() if line.startswith("## ")]
    assert running in headings[0] and queued in headings[1] and len(headings) == 2


def test_an_answer_that_was_interrupted_and_is_again_the_last_loses_nothing(
    told: Transcript,
) -> None:
    crashed = told.talk.assistant("Half of it", done=False)
    told.talk.user("Go on.")
    last = told.talk.assistant("Here.")
    told.grow()
    told.talk.sql("DELETE FROM part WHERE message_id = ?", last)
    told.talk.sql("DELETE FROM message WHERE id = ?", last)
    added = told.grow()
    assert [line for line in added if "no longer in OpenCode" in line] == [
        f"{last} (line {told.line(last)}) is no longer in OpenCode."
    ]
    assert not any(crashed in line for line in added)
    told.quiet()


def test_a_clock_that_was_set_back_removes_nothing(told: Transcript) -> None:
    told.talk.user("The last word")
    told.grow()
    assert told.grow(1_000_000_000_000) == []


def test_a_removed_message_is_a_dated_notice(told: Transcript) -> None:
    message = told.talk.user("Oops")
    told.grow()
    line = told.line(message)
    told.talk.sql("DELETE FROM part WHERE message_id = ?", message)
    told.talk.sql("DELETE FROM message WHERE id = ?", message)
    assert told.grow() == [
        "", f"{DATED}removed", f"{message} (line {line}) is no longer in OpenCode."
    ]  # fmt: skip
    told.quiet()


def test_a_removed_part_is_a_dated_notice(told: Transcript) -> None:
    line = told.line("tool")
    told.talk.sql("DELETE FROM part WHERE id = 'tool'")
    assert told.grow() == ["", f"{DATED}removed", f"tool (line {line}) is no longer in OpenCode."]
    told.quiet()


def test_what_was_removed_and_is_there_again_is_told_and_not_written_twice(
    told: Transcript,
) -> None:
    hide = "UPDATE {} SET session_id = 'x' WHERE id = ?"
    message = told.talk.user("Now you see me")
    told.grow()
    told.talk.sql("PRAGMA foreign_keys = off")
    told.talk.sql(hide.format("message"), message)
    assert told.grow()[1] == f"{DATED}removed"
    told.talk.sql("UPDATE message SET session_id = ? WHERE id = ?", told.talk.id, message)
    assert told.grow() == [
        "", f"{DATED}back", f"{message} (line {told.line(message)}) is there again."
    ]  # fmt: skip
    told.quiet()


def test_an_edited_part_is_a_dated_notice_with_the_new_text(told: Transcript) -> None:
    part = told.talk.part(told.talk.assistant(), {"type": "text", "text": "four"})
    told.grow()
    line = told.line(part)
    told.talk.set("part", part, "$.text", "five\nor six")
    added = told.grow()
    assert added[:3] == ["", f"{DATED}changed", f"{part} (line {line}) now reads:"]
    assert added[-2:] == ["five", "or six"]
    told.quiet()
    told.talk.set("part", part, "$.text", "four")
    assert told.grow()[-1] == "four"
    told.quiet()


def test_a_pruned_output_is_a_dated_notice(told: Transcript) -> None:
    told.talk.set("part", "tool", "$.state.time.compacted", 77)
    assert told.grow() == [
        "", f"{DATED}pruned",
        f"The output of tool (line {told.line('tool')}) has left the model's view; it stands above.",
    ]  # fmt: skip
    told.quiet()


def test_an_output_that_is_erased_when_it_is_pruned_stands_above(told: Transcript) -> None:
    told.talk.set("part", "tool", "$.state.time.compacted", 77)
    told.talk.set("part", "tool", "$.state.output", "")
    assert told.grow()[1] == f"{DATED}pruned"
    assert "a.py" in lines_of(told.path)
    told.quiet()


def test_an_output_pruned_before_the_first_export_is_no_news(
    talk: Talk, store: Store, settings: Settings
) -> None:
    state = {"status": "completed", "output": "kept", "time": {"compacted": 5}}
    talk.part(talk.assistant(), {"type": "tool", "tool": "bash", "state": state})
    told = Transcript(talk, store, settings)
    assert "kept" in lines_of(told.path) and "notice" not in told.path.read_text()
    told.quiet()


def test_a_new_title_is_a_dated_notice(told: Transcript) -> None:
    told.talk.sql("UPDATE session SET title = 'A better\nname'")
    assert told.grow() == ["", f"{DATED}title", "The title is now: A better name"]
    told.quiet()
    told.talk.sql("UPDATE session SET title = 'The best name'")
    assert told.grow()[-1] == "The title is now: The best name"
    told.quiet()


def test_revert_and_un_revert_are_dated_notices(told: Transcript) -> None:
    message = told.talk.user("Delete everything")
    told.grow()
    revert = f'{{"messageID": "{message}", "snapshot": "abc", "diff": ""}}'
    told.talk.sql("UPDATE session SET revert = ?", revert)
    where = f"{message} (line {told.line(message)})"
    assert told.grow() == ["", f"{DATED}revert", f"Everything from {where} on was taken back."]
    told.quiet()
    told.talk.sql("UPDATE session SET revert = NULL")
    assert told.grow() == ["", f"{DATED}un-revert", "What was taken back is in force again."]
    told.quiet()


def test_a_revert_to_a_part_names_the_part(told: Transcript) -> None:
    message = load_marks(told.path)[3].id
    told.talk.sql(
        "UPDATE session SET revert = ?", f'{{"messageID": "{message}", "partID": "tool"}}'
    )
    assert f"tool (line {told.line('tool')})" in told.grow()[-1]
    told.quiet()


def test_a_revert_that_a_new_prompt_made_final_is_not_called_undone(told: Transcript) -> None:
    message = told.talk.user("Delete everything")
    told.talk.sql("UPDATE session SET revert = ?", f'{{"messageID": "{message}"}}')
    told.grow()
    told.talk.sql("DELETE FROM part WHERE message_id = ?", message)
    told.talk.sql("DELETE FROM message WHERE id = ?", message)
    told.talk.sql("UPDATE session SET revert = NULL")
    told.talk.user("Something else")
    added = "\n".join(told.grow())
    assert "in force again" not in added
    assert f"{message} (line {told.line(message)}) is no longer in OpenCode." in added
    assert "gone for good" in added and "Something else" in added
    told.quiet()


@pytest.mark.parametrize("revert", ["{", "[]", '"x"', "{}", '{"messageID": 7}', ""])
def test_an_odd_revert_does_not_stop_the_export(revert: str, told: Transcript) -> None:
    told.talk.sql("UPDATE session SET revert = ?", revert)
    told.grow()
    told.quiet()


def test_a_part_that_comes_late_stands_under_a_continued_heading(told: Transcript) -> None:
    first = load_marks(told.path)[1].id
    late = told.talk.part(first, {"type": "text", "text": "by the way"})
    added = told.grow()
    assert added == ["", f"## user · continued · {first}", "### text", "by the way"]
    told.quiet()
    line = told.line(late)
    assert lines_of(told.path)[line - 1] == "### text"
    told.talk.sql("DELETE FROM part WHERE id = ?", late)
    assert told.grow()[1:] == [
        f"{DATED}removed",
        f"{late} (line {line}) is no longer in OpenCode.",
    ]


def test_a_late_part_goes_with_its_own_message(told: Transcript) -> None:
    first, last = (mark.id for mark in load_marks(told.path) if mark.kind == "message:user")
    late = told.talk.part(first, {"type": "text", "text": "by the way"})
    told.grow()
    told.talk.sql("DELETE FROM part WHERE message_id = ?", first)
    told.talk.sql("DELETE FROM message WHERE id = ?", first)
    gone = [line for line in told.grow() if line.endswith("no longer in OpenCode.")]
    assert [line.split()[0] for line in gone] == [first]
    assert late not in gone[0] and last not in gone[0]
    told.quiet()


def test_a_message_that_fails_late_gets_its_error_below(told: Transcript) -> None:
    answer = told.talk.assistant("Almost")
    told.grow()
    told.talk.set("message", answer, "$.error", {"name": "Aborted", "data": {"message": "stop"}})
    added = told.grow()
    assert "### error · Aborted" in added and "stop" in added
    told.quiet()


def test_a_shell_that_was_called_interrupted_and_ends_after_all_is_told(
    talk: Talk, store: Store, settings: Settings
) -> None:
    shell = talk.newer("shell", {"command": "sleep 9", "output": ""})
    done = {"time": {"created": 1, "completed": 2}}
    talk.newer("assistant", {"content": [{"type": "text", "text": "meanwhile"}]} | done)
    told = Transcript(talk, store, settings)
    assert "interrupted" in told.path.read_text()
    talk.sql(
        "UPDATE session_message SET data = json_set(data, '$.output', 'slept',"
        " '$.time.completed', 9) WHERE id = ?",
        shell,
    )
    added = told.grow()
    assert f"{DATED}changed" in added and "output: slept" in added
    assert any(line.startswith("## shell") and "interrupted" not in line for line in added)
    told.quiet()


def test_another_inline_limit_does_not_look_like_an_edit(
    talk: Talk, store: Store, settings: Settings
) -> None:
    state = {"status": "completed", "output": "x" * 5000, "metadata": {"log": "y" * 5000}}
    talk.part(talk.assistant(), {"type": "tool", "tool": "bash", "state": state})
    told = Transcript(talk, store, settings)
    for limit in (100, 600, 6000):
        told.settings = replace(settings, inline_output_max_bytes=limit)
        assert told.grow() == []


def test_all_at_once_touches_nothing_above(told: Transcript) -> None:
    talk = told.talk
    first = load_marks(told.path)[1].id
    talk.set("part", "tool", "$.state.time.compacted", 7)
    talk.sql("UPDATE session SET title = 'new', revert = ?", f'{{"messageID": "{first}"}}')
    talk.user("more")
    talk.sql("DELETE FROM part WHERE id IN (SELECT id FROM part WHERE data LIKE '%welcome%')")
    talk.newer("user", {"text": "from the newer runtime"})
    added = told.grow()
    kinds = [line.rsplit(" ", 1)[1] for line in added if line.startswith("## notice")]
    assert kinds == ["title", "pruned", "removed", "revert"]
    told.quiet()


def test_a_session_read_long_ago_does_not_bring_an_old_title_back(told: Transcript) -> None:
    stale = told.talk.session()
    told.talk.sql("UPDATE session SET title = 'new', time_updated = time_updated + 9")
    told.talk.user("more")
    told.grow()
    before = told.state()
    export(told.store, told.settings, stale, LATER)
    assert told.state() == before


def lose_index(store: Store, settings: Settings) -> None:
    """memory.db is deleted while nobody has it open."""
    store.close()
    for path in settings.data_dir.glob("memory.db*"):
        path.unlink()
    store.open()


def test_a_transcript_whose_index_was_lost_is_adopted_without_a_line_twice(
    told: Transcript,
) -> None:
    lose_index(told.store, told.settings)
    assert told.grow() == []
    assert get(told.store, told.settings, told.talk.id).ours
    told.quiet()
    lose_index(told.store, told.settings)
    told.talk.user("and on it goes")
    assert told.grow()[2:] == ["and on it goes"]
    assert len(list(told.settings.transcripts_dir.rglob("*.md"))) == 1
    told.quiet()


def test_a_transcript_whose_index_was_lost_goes_on_when_it_is_opened(told: Transcript) -> None:
    lose_index(told.store, told.settings)
    told.talk.user("and on it goes")
    before = told.path.read_bytes()
    opened = open_transcript(told.store, told.settings, told.talk.id)
    assert opened.transcript.ours and opened.problems == ()
    assert told.path.read_bytes().startswith(before)
    assert lines_of(told.path)[-2] == "and on it goes"


@pytest.mark.parametrize("garbage", ["half a mess", "line\n" * 50_000, "\n", "\0\xff"])
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_tail_beyond_the_good_length_is_cut_before_the_next_append(
    garbage: str, index: str, told: Transcript
) -> None:
    whole = told.path.read_bytes()
    with told.path.open("ab") as file:
        file.write(garbage.encode())
    with marks_path(told.path).open("ab") as file:
        file.write(b"99\tuser\tmsg_half\tabc\tlabel\n99\tus")
    if index == "lost":
        lose_index(told.store, told.settings)
        window.read(get(told.store, told.settings, told.talk.id), LineRange(1, 5))
    told.talk.user("the next one")
    told.talk.export(told.store, told.settings, LATER)
    after = told.path.read_bytes()
    assert after.startswith(whole)
    added = after[len(whole) :].decode().split("\n")
    assert len(added) == 4 and added[2] == "the next one"
    told.quiet()


def test_line_numbers_are_right_after_a_counted_tail_was_cut(told: Transcript) -> None:
    """Counts of lines may have been kept for what an export then cuts."""
    with told.path.open("ab") as file:
        file.write(b"garbage\n" * 40_000)
    lose_index(told.store, told.settings)
    item = get(told.store, told.settings, told.talk.id)
    window.read(item, LineRange(item.lines, item.lines))
    told.talk.user("z" * 200_000 + "\n" + counted(20_000))
    told.talk.export(told.store, told.settings, LATER)
    check_windows(told)


def test_line_numbers_are_right_after_the_text_was_deleted_and_written_anew(
    told: Transcript,
) -> None:
    told.talk.user(counted(40_000))
    told.grow()
    check_windows(told)
    told.path.unlink()
    told.talk.sql('UPDATE part SET data = \'{"type":"text","text":""}\' WHERE id != \'tool\'')
    told.talk.user("w" * 100_000 + "\n" + counted(30_000))
    told.talk.export(told.store, told.settings, LATER)
    check_windows(told)


def counted(lines: int) -> str:
    """Lines that are all different."""
    return "\n".join(f"short {number}" for number in range(lines))


def check_windows(told: Transcript) -> None:
    item = get(told.store, told.settings, told.talk.id)
    lines = lines_of(told.path)[:-1]
    assert item.lines == len(lines)
    for number in (1, 5, len(lines) // 3, len(lines) // 2, len(lines) - 1, len(lines)):
        (row,) = window.read(item, LineRange(number, number), mask=False).rows
        assert row.text == lines[number - 1][:4000]


@pytest.mark.parametrize("left", [b"", b"99\tuse"])
def test_lost_marks_never_lead_to_a_session_written_twice(left: bytes, told: Transcript) -> None:
    before = told.path.read_bytes()
    marks_path(told.path).write_bytes(left) if left else marks_path(told.path).unlink()
    told.talk.user("more")
    with pytest.raises(Conflict) as caught:
        told.talk.export(told.store, told.settings, LATER)
    assert "\n" not in caught.value.message
    assert told.path.read_bytes() == before
    opened = open_transcript(told.store, told.settings, told.talk.id)
    assert opened.problems and opened.transcript.size == len(before)


def test_a_transcript_that_was_cut_short_is_left_as_it_is(told: Transcript) -> None:
    whole = told.path.read_bytes()
    told.path.write_bytes(whole[:100])
    with pytest.raises(Conflict, match="shorter"):
        told.talk.export(told.store, told.settings, LATER)
    assert told.path.read_bytes() == whole[:100]


def test_without_index_and_marks_a_transcript_is_left_as_it_is(told: Transcript) -> None:
    whole = told.path.read_bytes()
    marks_path(told.path).unlink()
    lose_index(told.store, told.settings)
    with pytest.raises(Conflict):
        told.talk.export(told.store, told.settings, LATER)
    assert told.path.read_bytes() == whole


def test_a_deleted_transcript_is_written_anew(told: Transcript) -> None:
    whole = told.path.read_bytes()
    told.path.unlink()
    done = told.talk.export(told.store, told.settings, LATER)
    assert done.created and told.path.read_bytes() == whole
    told.quiet()


def test_a_copied_library_goes_on_elsewhere(told: Transcript, tmp_path: Path) -> None:
    told.store.close()
    moved = tmp_path / "moved"
    shutil.copytree(told.settings.data_dir, moved)
    settings = replace(told.settings, data_dir=moved, db=moved / "memory.db")
    with Store(settings.db).session() as store:
        told.talk.user("hello from the new place")
        done = told.talk.export(store, settings, LATER)
        assert not done.created and done.added == 3
        assert done.path.is_relative_to(moved)
    told.store.open()


BIG_PARTS = 8


def big(talk: Talk, first: int) -> None:
    """Messages of some megabytes, so that an export takes a while and flushes more than once."""
    for number in range(first, first + BIG_PARTS):
        message = talk.assistant(f"Answer {number}")
        talk.part(message, {"type": "text", "text": (f"part {number} " * 30 + "\n") * 900})


def child_export(settings: Settings, session: Session, ready: int = -1) -> int:
    """An export in a process of its own; its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if ready >= 0:
                os.read(ready, 1)
            with Store(settings.db).session() as store:
                export(store, settings, session, NOW)
            code = 0
        finally:
            os._exit(code)
    return child


def test_an_export_killed_at_any_moment_leaves_a_whole_transcript_for_the_next(
    talk: Talk, store: Store, settings: Settings, tmp_path: Path
) -> None:
    big(talk, 0)
    sessions = [talk.session()]
    wanted = talk.export(store, settings, NOW).path.read_bytes()
    big(talk, BIG_PARTS)
    sessions.append(talk.session())
    start = time.monotonic()
    grown = talk.export(store, settings, NOW).path.read_bytes()
    took = time.monotonic() - start
    store.close()
    assert grown.startswith(wanted)
    untouched = sqlite_at(talk, tmp_path)

    killed = finished = 0
    steps = 15
    for step in range(2 * steps):
        place = tmp_path / f"place{step}"
        mine = replace(settings, data_dir=place, db=place / "memory.db")
        session = replace(sessions[0], db=untouched)
        if step % 2:
            with Store(mine.db).session() as opened:
                path = export(opened, mine, session, NOW).path
            assert path.read_bytes() == wanted
            session = replace(sessions[1], db=talk.db)
        child = child_export(mine, session)
        time.sleep(took * 1.4 * (step // 2) / steps)
        os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        killed += code < 0
        finished += code == 0
        with Store(mine.db).session() as opened:
            done = export(opened, mine, session, NOW)
            assert done.path.read_bytes() == (grown if step % 2 else wanted)
            assert export(opened, mine, session, NOW).added == 0
            assert get(opened, mine, talk.id).lines == done.lines
        marks = load_marks(done.path)
        assert len({mark.id for mark in marks if mark.id}) == len([m for m in marks if m.id])
        shutil.rmtree(place)
    assert killed > steps // 2
    store.open()


def sqlite_at(talk: Talk, tmp_path: Path) -> Path:
    """A database in which the session has only its first messages."""
    path = tmp_path / "before.db"
    path.write_bytes(talk.db.read_bytes())
    other = talk.db
    talk.db = path
    talk.sql(
        "DELETE FROM part WHERE message_id IN (SELECT id FROM message ORDER BY time_created"
        f" LIMIT -1 OFFSET {BIG_PARTS})"
    )
    talk.sql(
        "DELETE FROM message WHERE id IN (SELECT id FROM message ORDER BY time_created"
        f" LIMIT -1 OFFSET {BIG_PARTS})"
    )
    talk.db = other
    return path


@pytest.mark.parametrize("held", ["nothing yet", "the first half"])
def test_processes_that_export_one_session_at_once_write_it_once(
    held: str, talk: Talk, store: Store, settings: Settings, tmp_path: Path
) -> None:
    talk.user("hello")
    if held == "the first half":
        talk.export(store, settings, NOW)
    big(talk, 0)
    session = talk.session()
    alone = replace(settings, data_dir=tmp_path / "alone", db=tmp_path / "alone" / "memory.db")
    with Store(alone.db).session() as other:
        wanted = export(other, alone, session, NOW).path.read_bytes()
    store.close()
    ready, go = os.pipe()
    children = [child_export(settings, session, ready) for _ in range(4)]
    os.write(go, b"1234")
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(ready)
    os.close(go)
    assert codes == [0, 0, 0, 0]
    store.open()
    item = get(store, settings, talk.id)
    assert item.path.read_bytes() == wanted
    assert (item.size, item.lines) == (len(wanted), wanted.count(b"\n"))
    assert talk.export(store, settings, NOW).added == 0


def test_threads_that_export_one_session_at_once_write_it_once(
    talk: Talk, settings: Settings
) -> None:
    big(talk, 0)
    session = talk.session()
    shared = Store(settings.db)

    def work(_: int) -> int:
        with shared.session() as opened:
            return export(opened, settings, session, NOW).added

    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(work, range(8)))
    assert sorted(added)[:-1] == [0] * 7 and max(added) > 0


def test_a_reader_during_an_export_sees_whole_lines_of_what_was_there(
    talk: Talk, store: Store, settings: Settings
) -> None:
    told = Transcript(talk, store, settings)
    big(talk, 0)
    session = talk.session()
    before = get(store, settings, talk.id)
    child = child_export(settings, session)
    seen: set[int] = set()
    try:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            item = get(store, settings, talk.id)
            seen.add(item.lines)
            rows = window.read(item, LineRange(1, 100)).rows
            assert len(rows) == min(100, item.lines)
    except MemoryAppError as error:  # pragma: no cover - the failure
        pytest.fail(str(error))
    after = get(store, settings, talk.id)
    assert seen <= {before.lines, after.lines} and after.lines > before.lines
    assert told.path == after.path


def test_a_reader_during_a_first_export_sees_nothing_or_all(
    talk: Talk, store: Store, settings: Settings
) -> None:
    big(talk, 0)
    session = talk.session()
    child = child_export(settings, session)
    seen = set()
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        with Store(settings.db).session() as reader:
            seen |= {item.lines for item in transcripts(reader, settings)}
            seen.add(grep(reader, settings, '"part 0 part 0"').count)
    with Store(settings.db).session() as reader:
        assert seen <= {0, 900, get(reader, settings, talk.id).lines}


@pytest.mark.parametrize("marks", ["no end", "header only"])
def test_a_first_export_that_died_is_not_shown_and_done_again(
    marks: str, talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello needle")
    done = talk.export(store, settings, NOW)
    whole = done.path.read_bytes()
    lines = marks_path(done.path).read_text().splitlines(keepends=True)
    marks_path(done.path).write_text("".join(lines[:1] if marks == "header only" else lines[:-1]))
    done.path.write_bytes(whole[:-4])
    lose_index(store, settings)
    assert transcripts(store, settings) == []
    assert grep(store, settings, "needle").count == 0
    opened = open_transcript(store, settings, talk.id)
    assert opened.transcript.path.read_bytes() == whole and opened.problems == ()


def test_a_transcript_without_its_index_is_shown_up_to_its_last_whole_message(
    told: Transcript,
) -> None:
    lines = told.path.read_bytes().count(b"\n")
    with told.path.open("ab") as file:
        file.write(b"half a message\n" * 3)
    lose_index(told.store, told.settings)
    item = get(told.store, told.settings, told.talk.id)
    assert item.lines == lines
    assert grep(told.store, told.settings, "half a message").count == 0
    assert len(window.read(item, LineRange(1, 500)).rows) == lines


def test_offsets_are_not_left_behind_by_an_export(told: Transcript) -> None:
    told.talk.user("short\n" * 20_000)
    told.grow()
    window.read(get(told.store, told.settings, told.talk.id), LineRange(15_000, 15_001))
    assert offsets_path(told.path).exists()
    told.path.unlink()
    told.talk.export(told.store, told.settings, LATER)
    assert not offsets_path(told.path).exists()


NewTalk = Callable[..., "Talk"]


def test_two_sessions_do_not_disturb_each_other(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    one = Transcript(new_talk("ses_one"), store, settings)
    two = Transcript(new_talk("ses_two"), store, settings)
    one.talk.user("in one")
    assert two.grow() == []
    assert one.grow()[2:] == ["in one"]
    two.quiet()


@pytest.mark.parametrize("role", ["a\tb", "a\nb", "\r"])
def test_a_message_of_an_odd_type_is_written_once(role: str, told: Transcript) -> None:
    told.talk.newer(role, {"text": "odd"})
    added = told.grow()
    assert len([line for line in added if "odd" in line]) == 1
    told.quiet()


def test_a_transcript_whose_index_was_lost_goes_on_in_its_file_when_the_project_has_moved(
    told: Transcript,
) -> None:
    lose_index(told.store, told.settings)
    told.talk.sql("UPDATE project SET worktree = '/home/demo/moved'")
    told.talk.user("and on it goes")
    assert told.grow()[2:] == ["and on it goes"]
    assert list(told.settings.transcripts_dir.rglob("*.md")) == [told.path]


def test_what_comes_back_with_another_text_is_told_with_its_text(told: Transcript) -> None:
    answer = told.talk.assistant()
    told.talk.part(answer, {"type": "text", "text": "first"}, "prt_back")
    told.grow()
    told.talk.sql("DELETE FROM part WHERE id = 'prt_back'")
    told.grow()
    told.talk.part(answer, {"type": "text", "text": "second"}, "prt_back")
    added = told.grow()
    assert added[1] == f"{DATED}back" and added[-1] == "second"
    told.quiet()


def test_a_first_export_whose_end_mark_is_torn_is_done_again(told: Transcript) -> None:
    whole, marks = told.path.read_bytes(), marks_path(told.path).read_bytes()
    for cut in range(1, len(marks) - marks.rindex(b"\n", 0, -1)):
        lose_index(told.store, told.settings)
        marks_path(told.path).write_bytes(marks[:-cut])
        told.talk.export(told.store, told.settings, NOW)
        assert (told.path.read_bytes(), marks_path(told.path).read_bytes()) == (whole, marks)


@pytest.mark.parametrize(
    "how", ["garbage marks", "smaller marks_size", "no marks_size", "odd size"]
)
def test_marks_that_are_not_those_of_the_text_never_lead_to_the_text_again(
    how: str, talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    talk.export(store, settings)
    talk.assistant("there")
    path = talk.export(store, settings).path
    before = path.read_bytes()
    marks = marks_path(path)
    with store.writing():
        if how == "garbage marks":
            marks.write_bytes(b"x" * marks.stat().st_size)
        elif how == "smaller marks_size":
            store.rows("UPDATE transcripts SET marks_size = marks_size - 90")
        elif how == "no marks_size":
            store.rows("UPDATE transcripts SET marks_size = 0")
        else:
            store.rows("UPDATE transcripts SET size = 'many'")
    if how == "garbage marks":
        with pytest.raises(Conflict):
            talk.export(store, settings)
    else:
        assert talk.export(store, settings).added == 0
    assert path.read_bytes() == before
