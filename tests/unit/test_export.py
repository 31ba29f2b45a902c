"""Export: everything that OpenCode holds of a session, once, in a private file."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.errors import Conflict, InvalidInput, MemoryAppError, Unreadable
from webapp.opencode import Session, list_sessions
from webapp.scope import scope_folder
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.transcripts import render
from webapp.transcripts.export import check_id, export, export_many, path_of
from webapp.transcripts.files import Mark, load_marks, marks_path
from webapp.transcripts.library import get
from webapp.transcripts.pending import pending, room

if TYPE_CHECKING:
    from tests.conftest import Talk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NOW = 1_800_000_000_000


def sections(path: Path) -> dict[str, str]:
    """The text that stands under each message and part, by id."""
    text = path.read_bytes().decode().split("\n")
    marks = [mark for mark in load_marks(path) if mark.kind != "end"]
    ends = [mark.line for mark in marks[1:]] + [len(text)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        part = "\n".join(text[mark.line - 1 : end - 1])
        found[mark.id] = found.get(mark.id, "") + part + "\n"
    return found


def texts(value: Any) -> Iterator[str]:
    """Every text inside a JSON value."""
    if isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


def shown(text: str, section: str) -> bool:
    """Whether a text stands in a section as it is, or inside JSON."""
    return text.removesuffix("\n") in section or json.dumps(text, ensure_ascii=False) in section


def rows(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(sql).fetchall()


def everything(store: Store, settings: Settings, db: Path) -> dict[str, Path]:
    """All sessions of a database exported, with the path of each."""
    found = list_sessions([db])
    paths = {}
    for step in export_many(store, settings, list(found.sessions), NOW):
        assert step.exported is not None, step.problem
        assert step.exported.unfinished == 0
        paths[step.session.id] = step.exported.path
    return paths


@pytest.fixture
def uncut(settings: Settings) -> Settings:
    """Settings under which no output is cut."""
    return replace(settings, inline_output_max_bytes=10**9)


def test_every_session_message_and_part_has_its_place(
    opencode_db: Path, store: Store, settings: Settings
) -> None:
    paths = everything(store, settings, opencode_db)
    assert set(paths) == {row[0] for row in rows(opencode_db, "SELECT id FROM session")}
    marked = {key: {mark.id for mark in load_marks(path)} for key, path in paths.items()}
    for table in ("message", "part"):
        for row_id, session in rows(opencode_db, f"SELECT id, session_id FROM {table}"):
            assert row_id in marked[session]
    if "1.18" in opencode_db.name:
        found = rows(opencode_db, "SELECT id, session_id FROM session_message")
        assert found and all(row_id in marked[session] for row_id, session in found)


def test_every_mark_points_at_the_line_it_names(
    opencode_db: Path, store: Store, settings: Settings
) -> None:
    for session, path in everything(store, settings, opencode_db).items():
        lines = path.read_bytes().decode().split("\n")
        marks = load_marks(path)
        assert [mark.line for mark in marks] == sorted(mark.line for mark in marks)
        assert marks[0] == Mark(1, "header", session, marks[0].digest, marks[0].label)
        for mark in marks:
            if mark.kind.startswith("message:"):
                assert lines[mark.line - 1].startswith("## ") and mark.id in lines[mark.line - 1]
        assert marks[-1].kind == "end" and int(marks[-1].digest) == path.stat().st_size


def test_every_text_of_every_part_stands_verbatim_under_its_part(
    opencode_db: Path, store: Store, uncut: Settings
) -> None:
    placed = {k: sections(p) for k, p in everything(store, uncut, opencode_db).items()}
    checked = 0
    for part_id, session, raw in rows(opencode_db, "SELECT id, session_id, data FROM part"):
        data = json.loads(raw)
        state = data.get("state") or {}
        section = placed[session][part_id]
        for text in (data.get("text"), state.get("output"), state.get("error"), data.get("url")):
            if text:
                assert text.removesuffix("\n") in section
                checked += 1
        for text in texts([state.get("input"), data.get("files"), data.get("filename")]):
            assert shown(text, section)
            checked += 1
        for text in texts(state.get("metadata")):
            assert shown(text, section) or text.strip() in str(state.get("output"))
    assert checked > 150
    for message_id, session, raw in rows(opencode_db, "SELECT id, session_id, data FROM message"):
        data = json.loads(raw)
        heading = placed[session][message_id]
        assert heading.startswith(f"## {data['role']} · ")
        assert data.get("agent", "") in heading and data.get("modelID", "") in heading
        for text in texts(data.get("error")):
            assert shown(text, placed[session][f"{message_id}/error"])


def test_every_text_of_the_newer_runtime_stands_in_the_transcript(
    newest_db: Path, store: Store, uncut: Settings
) -> None:
    paths = everything(store, uncut, newest_db)
    found = rows(newest_db, "SELECT session_id, data FROM session_message")
    assert len(found) == 7
    for session, raw in found:
        whole = paths[session].read_text("utf-8")
        for text in texts({k: v for k, v in json.loads(raw).items() if k != "time"}):
            if text not in ("default", "text", "tool", "text-0"):
                assert shown(text, whole), text


def test_every_part_type_appears_with_its_own_heading(
    opencode_db: Path, store: Store, settings: Settings
) -> None:
    placed: dict[str, str] = {}
    for path in everything(store, settings, opencode_db).values():
        placed |= sections(path)
    types = set()
    for part_id, raw in rows(opencode_db, "SELECT id, data FROM part"):
        kind = json.loads(raw)["type"]
        types.add(kind)
        assert kind == "text" or placed[part_id].startswith(f"### {kind}")
    assert types >= {"text", "reasoning", "tool", "file", "step-start", "step-finish", "compaction"}


def test_nothing_in_a_real_database_is_unknown_to_the_rendering(
    opencode_db: Path, store: Store, settings: Settings
) -> None:
    for path in everything(store, settings, opencode_db).values():
        for mark in load_marks(path):
            assert not mark.id.endswith("/more") and "unreadable" not in mark.label


def test_counts_in_the_index_are_those_of_the_file(
    opencode_db: Path, store: Store, settings: Settings
) -> None:
    for session, path in everything(store, settings, opencode_db).items():
        row = store.first(TranscriptRow.select().where(TranscriptRow.session_id == session))
        data = path.read_bytes()
        assert data.endswith(b"\n")
        assert (row.size, row.lines) == (len(data), data.count(b"\n"))
        assert row.marks_size == marks_path(path).stat().st_size
        assert row.path == str(path.relative_to(settings.transcripts_dir))
        assert row.exported_at == NOW
        older = rows(opencode_db, f"SELECT count(*) FROM message WHERE session_id = '{session}'")
        assert row.messages == older[0][0] or "New session" in row.title


def test_an_export_says_what_it_did(talk: Talk, store: Store, settings: Settings) -> None:
    talk.user("one\ntwo")
    done = talk.export(store, settings)
    assert done.created and done.added == done.lines > 0 and done.unfinished == 0
    again = talk.export(store, settings)
    assert not again.created and again.added == 0 and again.lines == done.lines
    talk.assistant("three")
    talk.assistant("fo", done=False)
    more = talk.export(store, settings)
    assert more.lines == done.lines + more.added and more.added > 0
    assert more.unfinished == 1 and not more.created


def test_an_empty_session_is_a_header(talk: Talk, store: Store, settings: Settings) -> None:
    done = talk.export(store, settings)
    lines = done.path.read_text().split("\n")
    assert lines[1:3] == [render.FORMAT, f"session: {talk.id}"] and lines[-1] == ""


def test_unknown_and_unparsable_rows_appear_as_they_are(
    talk: Talk, store: Store, settings: Settings
) -> None:
    first = talk.message('{"role": "user", broken')
    kept = talk.part(first, {"type": "text", "text": "kept"})
    second = talk.message({"role": "prophet", "vision": "a teal beam"})
    future = talk.part(second, {"type": "hologram", "beam": {"colour": "teal"}})
    broken = talk.part(second, '{"type": "text", "text": "half a')
    number = talk.part(second, "[1, 2]")
    newer = talk.newer("omen", {"sign": ["x", 1]})
    bad = talk.newer("assistant", "no json at all")
    done = talk.export(store, settings)

    placed = sections(done.path)
    assert '{"role": "user", broken' in placed[first] and "kept" in placed[kept]
    assert placed[second].startswith("## prophet · ")
    assert "vision: a teal beam" in done.path.read_text()
    assert '{"type": "hologram", "beam": {"colour": "teal"}}' in placed[future]
    assert '{"type": "text", "text": "half a' in placed[broken]
    assert "[1, 2]" in placed[number]
    assert '["x", 1]' in placed[f"{newer}/data"]
    assert "no json at all" in placed[f"{bad}/data"]


ODD = "cr\rvt\x0bff\x0cfs\x1cnel\x85ls\u2028ps\u2029nul\x00esc\x1b[31mbom\ufeffemoji😀 tab\t."


def test_only_newlines_become_lines_and_all_other_characters_stay(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user(f"{ODD}\n{ODD}\r\nlast")
    done = talk.export(store, settings)
    lines = done.path.read_bytes().decode().split("\n")
    at = lines.index(ODD)
    assert lines[at : at + 3] == [ODD, ODD + "\r", "last"]
    assert len(lines) == done.lines + 1


def test_a_lone_surrogate_is_written_as_its_escape(
    talk: Talk, store: Store, settings: Settings
) -> None:
    message = talk.message({"role": "user"})
    talk.part(message, '{"type": "text", "text": "lone \\ud83d here"}')
    done = talk.export(store, settings)
    assert "lone \\ud83d here" in done.path.read_bytes().decode()
    assert talk.export(store, settings).added == 0


@pytest.mark.parametrize("depth", [900, 960, 975, 980, 985, 990, 995, 5_000, 100_000])
def test_deeply_nested_json_is_exported(
    depth: int, talk: Talk, store: Store, settings: Settings
) -> None:
    message = talk.user("Hello")
    for number, step in enumerate(range(depth, depth + 5)):
        nested = '{"n": ' * step + "7" + "}" * step
        talk.part(message, '{"type": "odd", "value": ' + nested + "}", f"prt_z{number}")
        state = '{"status": "completed", "input": {"x": ' + nested + "}}"
        talk.part(message, '{"type": "tool", "state": ' + state + "}", f"prt_zz{number}")
    talk.newer("odd", '{"value": ' + "[" * depth + "]" * depth + "}")
    done = talk.export(store, settings)
    text = done.path.read_text()
    for step in range(depth, depth + 5):
        assert text.count('{"n": ' * step + "7") >= 2
    assert "[" * depth + "]" * depth in text
    assert talk.export(store, settings).added == 0


def test_files_are_0600_and_folders_0700_whatever_the_umask(talk: Talk, settings: Settings) -> None:
    talk.user("private")
    before = os.umask(0)
    try:
        with Store(settings.db).session() as store:
            done = talk.export(store, settings)
            talk.assistant("and more")
            talk.export(store, settings)
    finally:
        os.umask(before)
    path, top = done.path, settings.data_dir
    for folder in (top, settings.transcripts_dir, path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = [each for each in top.rglob("*") if each.is_file()]
    assert {path, marks_path(path), settings.db} <= set(files)
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_a_transcript_that_others_could_read_is_closed_again(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("private")
    path = talk.export(store, settings).path
    path.chmod(0o644)
    talk.assistant("more")
    talk.export(store, settings)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b", "a\nb", "-x", ".hidden", "x" * 201]
)
def test_an_id_that_is_no_file_name_is_refused(
    bad: str, talk: Talk, store: Store, settings: Settings
) -> None:
    with pytest.raises(InvalidInput):
        check_id(bad)
    with pytest.raises(InvalidInput):
        export(store, settings, replace(talk.session(), id=bad), NOW)
    assert not settings.transcripts_dir.exists()


def test_transcripts_lie_in_a_folder_of_their_scope(
    new_talk: Callable[..., Talk], store: Store, settings: Settings
) -> None:
    one = new_talk("ses_a", scope="/home/a/b-c").export(store, settings).path
    two = new_talk("ses_b", scope="/home/a-b/c").export(store, settings).path
    assert one.parent != two.parent
    assert one.parent.name == scope_folder("/home/a/b-c")
    assert {one.parent.parent, two.parent.parent} == {settings.transcripts_dir}


def test_a_session_whose_project_moved_stays_in_its_file(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("one")
    first = talk.export(store, settings)
    before = first.path.read_bytes()
    talk.sql("UPDATE project SET worktree = '/home/demo/moved'")
    talk.assistant("two")
    second = talk.export(store, settings)
    assert second.path == first.path and second.path.read_bytes().startswith(before)
    assert len(list(settings.transcripts_dir.rglob("*.md"))) == 1
    assert get(store, settings, talk.id).scope == "/home/demo/moved"


def foreign(path: Path) -> bytes:
    path.parent.mkdir(parents=True)
    path.write_text("# Somebody else's notes\n\nnot ours\n")
    return path.read_bytes()


def test_a_file_of_another_program_is_never_appended_to(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    path = path_of(settings, talk.session())
    before = foreign(path)
    path.chmod(0o644)
    with pytest.raises(Conflict, match="another program"):
        talk.export(store, settings)
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert not marks_path(path).exists()
    with pytest.raises(Conflict):
        talk.export(store, settings)


def test_a_symbolic_link_in_the_place_of_a_transcript_is_not_followed(
    talk: Talk, store: Store, settings: Settings, tmp_path: Path
) -> None:
    path = path_of(settings, talk.session())
    path.parent.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(Unreadable):
        talk.export(store, settings)
    assert victim.read_text() == "precious"
    path.unlink()
    marks_path(path).symlink_to(victim)
    with pytest.raises(Unreadable):
        talk.export(store, settings)
    assert victim.read_text() == "precious"


def test_a_read_only_store_exports_nothing(talk: Talk, store: Store, settings: Settings) -> None:
    talk.user("hello")
    path = talk.export(store, settings).path
    before = path.read_bytes()
    talk.assistant("more")
    store.close()
    settings.db.chmod(0o400)
    with Store(settings.db).session() as guarded, pytest.raises(MemoryAppError, match="read-only"):
        talk.export(guarded, settings)
    store.open()
    assert path.read_bytes() == before


@contextmanager
def unreadable(db: Path, how: str) -> Iterator[None]:
    whole = db.read_bytes()
    if how == "missing":
        db.unlink()
    elif how == "corrupt":
        db.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    elif how == "no database":
        db.write_bytes(b"nonsense" * 1000)
    yield
    db.write_bytes(whole)


@pytest.mark.parametrize("how", ["missing", "corrupt", "no database"])
def test_an_opencode_that_cannot_be_read_leaves_the_transcript_as_it_was(
    how: str, talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    path = talk.export(store, settings).path
    before = path.read_bytes(), marks_path(path).read_bytes()
    talk.assistant("more")
    session = talk.session()
    with unreadable(talk.db, how), pytest.raises(Unreadable) as caught:
        export(store, settings, session, NOW)
    assert caught.value.message.endswith(".") and "\n" not in caught.value.message
    assert (path.read_bytes(), marks_path(path).read_bytes()) == before
    assert export(store, settings, session, NOW).added > 0


def test_a_failed_first_export_leaves_nothing_that_looks_like_a_transcript(
    talk: Talk, store: Store, settings: Settings
) -> None:
    session = talk.session()
    with unreadable(talk.db, "missing"), pytest.raises(Unreadable):
        export(store, settings, session, NOW)
    assert [path for path in settings.transcripts_dir.rglob("*.md") if path.stat().st_size] == []
    assert export(store, settings, session, NOW).created


def test_a_full_disk_loses_nothing_and_the_next_export_goes_on(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    path = talk.export(store, settings).path
    before = path.read_bytes(), marks_path(path).read_bytes()
    for _ in range(4):
        talk.assistant("x" * 79 + "\n" + "long answer " * 100_000)
    session = talk.session()
    store.close()

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        try:
            with Store(settings.db).session() as mine:
                export(mine, settings, session, NOW)
        except Unreadable as error:
            os._exit(7 if "cannot be written" in error.message else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert (path.read_bytes(), marks_path(path).read_bytes()) == before

    store.open()
    done = export(store, settings, session, NOW)
    assert done.added > 0 and path.read_bytes().startswith(before[0])
    assert path.read_text().count("long answer " * 100_000) == 4


def test_one_session_that_fails_does_not_stop_the_others(
    new_talk: Callable[..., Talk], store: Store, settings: Settings
) -> None:
    talks = [new_talk(f"ses_{name}") for name in "abc"]
    sessions: list[Session] = [talk.session() for talk in talks]
    foreign(path_of(settings, sessions[1]))
    steps = list(export_many(store, settings, sessions, NOW))
    assert [(step.done, step.total) for step in steps] == [(1, 3), (2, 3), (3, 3)]
    assert [bool(step.problem) for step in steps] == [False, True, False]
    assert [step.exported is None for step in steps] == [False, True, False]


def test_what_is_missing_and_what_is_behind(
    new_talk: Callable[..., Talk], store: Store, settings: Settings
) -> None:
    new, done, grown, newer = (new_talk(f"ses_{name}") for name in ("a", "b", "c", "d"))
    for talk in (done, grown, newer):
        talk.user("hello")
        talk.export(store, settings)
    grown.assistant("more")
    newer.newer("user", {"text": "the newer runtime leaves the session's time alone"})
    found = pending(store, replace(settings, opencode_db=new.db))
    assert [session.id for session in found.absent] == [new.id]
    assert {session.id for session in found.behind} == {grown.id, newer.id}
    assert {session.id for session in found.chosen("every")} == {"ses_a", "ses_b", "ses_c", "ses_d"}
    assert found.chosen("new") == found.absent + found.behind
    assert found.chosen("missing") == found.absent


def test_a_session_with_an_unfinished_answer_stays_behind_until_it_is_there(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    answer = talk.assistant("on its way", done=False)
    assert talk.export(store, settings).unfinished == 1
    used = replace(settings, opencode_db=talk.db)
    found = pending(store, used)
    assert found.behind == () and found.writing == found.chosen("new") != ()
    talk.finish(answer)
    talk.export(store, settings)
    found = pending(store, used)
    assert (found.absent, found.behind, found.total) == ((), (), 1)


def test_what_an_export_takes_is_estimated_from_a_few_rows(
    new_talk: Callable[..., Talk], store: Store, settings: Settings
) -> None:
    talks = [new_talk(f"ses_{number:03}") for number in range(60)]
    for number, talk in enumerate(talks):
        for _ in range(1 + number % 5):
            talk.user("some words " * 300)
            talk.assistant("more of them " * 300)
    used = replace(settings, opencode_db=talks[0].db)
    found = pending(store, used)
    told = room(used, found.absent)
    assert told is not None and told.free > 0 and told.is_enough
    assert not settings.data_dir.exists()
    for step in export_many(store, used, list(found.absent)):
        assert step.exported is not None
    written = sum(path.stat().st_size for path in settings.transcripts_dir.glob("*/*"))
    assert 0.7 < told.bytes / written < 1.4
    assert room(replace(used, opencode_db=talks[0].db.with_name("none.db")), []) is not None


def test_the_inline_limit_is_that_of_the_settings(
    talk: Talk, store: Store, settings: Settings
) -> None:
    message = talk.assistant()
    state = {"status": "completed", "input": {}, "output": "0123456789" * 100}
    talk.part(message, {"type": "tool", "callID": "call_9", "tool": "bash", "state": state})
    done = talk.export(store, replace(settings, inline_output_max_bytes=200))
    text = done.path.read_text()
    assert "\n" + "0123456789" * 10 + "\n[… 800 bytes are cut here · call_9" in text
