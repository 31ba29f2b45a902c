"""The library: what is on disk, ours and that of other programs, listed, opened and kept fresh."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webapp.errors import Busy, InvalidInput, MemoryAppError, NotFound, Unreadable
from webapp.lines import LineRange
from webapp.settings import Settings
from webapp.store import Store, now_ms
from webapp.transcripts import cleanup, library, window
from webapp.transcripts.export import path_of
from webapp.transcripts.files import marks_path
from webapp.transcripts.grep import grep
from webapp.transcripts.library import get, listing, open_transcript, transcripts
from webapp.transcripts.pending import pending

if TYPE_CHECKING:
    from tests.conftest import Talk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NewTalk = Callable[..., "Talk"]
NOW = 1_800_000_000_000
TOKEN = "gh" + "p_" + "FakeFixture0" * 3


def put(settings: Settings, name: str, text: str = "# Notes\nhello\n", folder: str = "x") -> Path:
    """A file of another program in the library's folder."""
    path = settings.transcripts_dir / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def ids(store: Store, settings: Settings) -> set[str]:
    return {item.id for item in transcripts(store, settings)}


def test_an_unused_installation_has_an_empty_library_and_leaves_nothing_behind(
    store: Store, settings: Settings
) -> None:
    assert transcripts(store, settings) == []
    found = listing(store, settings)
    assert (found.items, found.total, found.lines, found.size) == ((), 0, 0, 0)
    with pytest.raises(NotFound):
        open_transcript(store, settings, "ses_nobody")
    assert not settings.data_dir.exists()


def test_a_transcript_of_ours_tells_its_facts(talk: Talk, store: Store, settings: Settings) -> None:
    talk.user("one\ntwo")
    done = talk.export(store, settings, NOW)
    (item,) = transcripts(store, settings)
    assert item == get(store, settings, talk.id)
    assert (item.id, item.scope, item.title) == (talk.id, talk.scope, talk.session().title)
    assert (item.path, item.lines, item.size) == (done.path, done.lines, done.path.stat().st_size)
    assert item.created_at == talk.session().created_at
    assert item.touched_at == talk.session().updated_at
    assert item.exported_at == NOW and item.ours


def test_a_file_of_another_program_is_listed_read_and_searched(
    store: Store, settings: Settings
) -> None:
    path = put(settings, "ses_old.md", "# An older talk\nscope: /home/demo\nhello needle\nlast")
    os.utime(path, ns=(5 * 10**15, 5 * 10**15))
    before = path.read_bytes()
    (item,) = transcripts(store, settings)
    assert (item.id, item.title, item.scope) == ("ses_old", "An older talk", "/home/demo")
    assert (item.lines, item.size, item.ours) == (4, len(before), False)
    assert item.touched_at == item.exported_at == 5 * 10**9
    opened = open_transcript(store, settings, "ses_old")
    assert opened.transcript == item and opened.exported is None and opened.problems == ()
    rows = window.read(item, LineRange(3, 9)).rows
    assert [(row.number, row.text) for row in rows] == [(3, "hello needle"), (4, "last")]
    assert grep(store, settings, "NEEDLE").count == 1
    assert path.read_bytes() == before


def test_a_file_of_another_program_is_not_appended_to_when_its_session_is_opened(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello from OpenCode")
    path = path_of(settings, talk.session())
    put(settings, path.name, "# Theirs\nsession: of another kind\n", path.parent.name)
    before = path.read_bytes()
    opened = open_transcript(store, settings, talk.id)
    assert not opened.transcript.ours and opened.transcript.title == "Theirs"
    with pytest.raises(MemoryAppError, match="another program"):
        talk.export(store, settings, NOW)
    assert path.read_bytes() == before and not marks_path(path).exists()


@pytest.mark.parametrize(
    "name",
    ["my notes", "ümläut 日本", "a~b", "a~x", "~", "50%", "a#b?c", "-rf", ".hidden", "a.b.c", "'\"",
     "<b>", "x" * 240],
)  # fmt: skip
def test_whatever_is_listed_can_be_opened(name: str, store: Store, settings: Settings) -> None:
    put(settings, f"{name}.md", f"# T\nthis is {name}\n")
    put(settings, "other.md")
    assert ids(store, settings) == {name, "other"}
    opened = open_transcript(store, settings, name)
    assert opened.transcript.id == name
    (row,) = window.read(opened.transcript, LineRange(2, 2)).rows
    assert row.text == f"this is {name}"


def test_a_name_that_is_no_utf_8_does_not_hide_the_others(store: Store, settings: Settings) -> None:
    put(settings, "a.md")
    folder = os.fsencode(settings.transcripts_dir)
    os.mkdir(folder + b"/\xff\xfe")
    for name in (b"/\xff\xfe/b.md", b"/x/bad\xff.md"):
        with open(folder + name, "wb") as file:
            file.write(b"hello\n")
    assert "a" in ids(store, settings)
    assert grep(store, settings, "hello").count >= 1
    for item in transcripts(store, settings):
        f"{item.id} {item.title} {item.scope} {item.path}".encode()


def test_files_of_one_name_are_told_apart(talk: Talk, store: Store, settings: Settings) -> None:
    talk.user("ours")
    talk.export(store, settings, NOW)
    for folder in ("one", "two"):
        put(settings, f"{talk.id}.md", f"# T\nin {folder}\n", folder)
        put(settings, "same.md", f"# T\nin {folder}\n", folder)
    found = ids(store, settings)
    assert len(found) == 5
    assert {talk.id, f"{talk.id}~one", f"{talk.id}~two"} <= found
    texts = {
        name: window.read(get(store, settings, name), LineRange(2, 2)).rows[0].text
        for name in found
    }
    assert texts[f"{talk.id}~one"] == "in one" and texts[f"{talk.id}~two"] == "in two"
    same = {texts[name] for name in found if name.startswith("same")}
    assert same == {"in one", "in two"}
    assert get(store, settings, talk.id).ours


@pytest.mark.parametrize(
    "bad", ["", "..", "../x", "../../memory", "a/b", "/etc/passwd", "a\0b", "\udcff", "x" * 5000]
)
def test_an_id_that_names_nothing_is_an_error_for_people(
    bad: str, talk: Talk, store: Store, settings: Settings
) -> None:
    put(settings, "x.md")
    (settings.transcripts_dir.parent / "memory.md").write_text("outside")
    for look in (get, open_transcript):
        with pytest.raises((InvalidInput, NotFound)) as caught:
            look(store, settings, bad)
        assert len(caught.value.message) < 300


def test_what_is_no_transcript_is_not_listed(store: Store, settings: Settings) -> None:
    put(settings, "a.md")
    put(settings, "empty.md", "")
    put(settings, "a.txt")
    put(settings, "a.marks")
    put(settings, "deeper.md", folder="x/y")
    folder = settings.transcripts_dir
    (folder / "top.md").write_text("in no folder of a scope")
    (folder / "x" / "folder.md").mkdir()
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("outside")
    (folder / "x" / "link.md").symlink_to(outside / "secret.md")
    (folder / "linked").symlink_to(outside)
    assert ids(store, settings) == {"a"}
    for name in ("link", "secret", "empty"):
        with pytest.raises(NotFound):
            get(store, settings, name)


def test_a_library_that_is_no_folder_is_told(store: Store, settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True)
    settings.transcripts_dir.write_text("in the way")
    with pytest.raises(Unreadable):
        transcripts(store, settings)


def test_a_title_that_holds_a_credential_is_masked(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.sql("UPDATE session SET title = ?", f"use {TOKEN} please")
    talk.user("hello")
    talk.export(store, settings, NOW)
    put(settings, "theirs.md", f"# mine is {TOKEN}\n")
    for item in transcripts(store, settings):
        assert TOKEN not in item.title and "masked" in item.title
        assert get(store, settings, item.id).title == item.title
    open_settings = replace(settings, mask=False)
    assert TOKEN in get(store, open_settings, talk.id).title


def test_the_listing_is_sorted_filtered_and_paged(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    sizes = {"ses_a": 3, "ses_b": 1, "ses_c": 2}
    titles = {"ses_a": "Mend the Till", "ses_b": "apples", "ses_c": "Till and Drawer"}
    for number, (name, size) in enumerate(sizes.items()):
        talk = new_talk(name, scope=f"/home/{'yxz'[number]}", title=titles[name])
        for _ in range(size):
            talk.user("text " * 50)
        for _ in range(number * 3):
            talk.assistant("touched later")
        talk.export(store, settings, NOW)

    def order(**options: object) -> list[str]:
        found = listing(store, settings, **options)  # type: ignore[arg-type]
        return [item.id[-1] for item in found.items]

    assert order() == ["c", "b", "a"]
    assert order(descending=False) == ["a", "b", "c"]
    assert order(sort="title", descending=False) == ["b", "a", "c"]
    assert order(sort="scope", descending=False) == ["b", "a", "c"]
    by_size = sorted(transcripts(store, settings), key=lambda item: item.size)
    assert order(sort="size", descending=False) == [item.id[-1] for item in by_size]
    by_lines = sorted(transcripts(store, settings), key=lambda item: item.lines)
    assert order(sort="lines", descending=False) == [item.id[-1] for item in by_lines]
    assert order(text="till") == ["c", "a"]
    assert order(text="TILL mend") == ["a"]
    assert order(text="ses_b") == ["b"]
    assert order(text="nothing") == []
    assert order(scope="/home/x") == ["b"]
    page = listing(store, settings, limit=1)
    assert page.total == 3
    assert page.lines == sum(item.lines for item in by_size)
    assert page.size == sum(item.size for item in by_size)


SORTED = [(sort, descending) for sort in library.SORTS for descending in (True, False)]


def a_library(
    count: int, new_talk: NewTalk, store: Store, settings: Settings
) -> list[library.Transcript]:
    """Transcripts of ours and of another program, many of them alike in what is sorted by."""
    for number in range(count):
        talk = new_talk(
            f"ses_{number:02}", scope=f"/home/{number % 3}", title=f"Talk {'aB'[number % 2]}"
        )
        talk.user("x " * (number % 4))
        talk.export(store, settings, NOW)
    for number in range(count):
        path = put(
            settings, f"their_{number:02}.md", f"# Talk {'Ab'[number % 2]}\n" + "x\n" * number
        )
        os.utime(path, (1_700_000_000 + number // 2,) * 2)
    return transcripts(store, settings)


@pytest.mark.parametrize(("sort", "descending"), SORTED)
def test_pages_by_key_hold_each_transcript_once_and_lead_back_as_they_came(
    sort: str, descending: bool, new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    everything = a_library(9, new_talk, store, settings)
    seen: list[str] = []
    after = ""
    backs: list[tuple[str | None, list[str]]] = []
    while True:
        page = listing(store, settings, sort=sort, descending=descending, after=after, limit=4)
        assert page.total == 18
        backs.append((page.before, [item.id for item in page.items]))
        seen += backs[-1][1]
        if page.after is None:
            break
        after = page.after
    assert sorted(seen) == sorted(item.id for item in everything)
    whole = listing(store, settings, sort=sort, descending=descending, limit=50)
    assert [item.id for item in whole.items] == seen and whole.after is whole.before is None
    by_id = {item.id: item for item in everything}
    key = {"touched": "touched_at"}.get(sort, sort)
    values = [getattr(by_id[name], key) for name in seen]
    values = [value.lower() if isinstance(value, str) else value for value in values]
    assert values == sorted(values, reverse=descending)
    for (before, _), (_, expected) in zip(backs[1:], backs[:-1], strict=True):
        assert before is not None
        page = listing(store, settings, sort=sort, descending=descending, before=before, limit=4)
        assert [item.id for item in page.items] == expected
    assert backs[0][0] is None


def test_a_page_goes_on_where_it_ended_whatever_came_or_went_meanwhile(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    a_library(6, new_talk, store, settings)
    first = listing(store, settings, limit=3)
    assert first.after is not None
    rest = [item.id for item in listing(store, settings, limit=50).items][3:]
    gone = first.items[-1]
    options = cleanup.Options(sessions=(gone.id,), keep_recent=0)
    plan = cleanup.plan(store, settings, options)
    list(cleanup.apply(store, settings, options, plan.fingerprint, "tester"))
    put(settings, "newest.md")
    second = listing(store, settings, after=first.after, limit=50)
    assert [item.id for item in second.items] == rest


@pytest.mark.parametrize("bad", ["~nobody", "x", "~", "1" * 30, "\udcff", "~\0"])
def test_a_place_that_is_not_in_the_list_is_told(
    bad: str, store: Store, settings: Settings
) -> None:
    put(settings, "a.md")
    with pytest.raises(InvalidInput):
        listing(store, settings, sort="title", after=bad)


def test_a_transcript_whose_file_was_taken_away_is_listed_as_such_and_made_again(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    done = talk.export(store, settings, NOW)
    done.path.unlink()
    (item,) = listing(store, settings).items
    assert item.id == talk.id and not item.on_disk
    assert transcripts(store, settings) == []
    opened = open_transcript(store, replace(settings, opencode_db=talk.db), talk.id)
    assert opened.transcript.on_disk and opened.transcript.lines == done.lines


def test_a_file_that_another_program_rewrites_is_read_again(
    store: Store, settings: Settings
) -> None:
    path = put(settings, "a.md", "# One\n")
    assert [item.title for item in transcripts(store, settings)] == ["One"]
    path.write_text("# Two\nand more\n")
    (item,) = transcripts(store, settings)
    assert (item.title, item.lines) == ("Two", 2)
    put(settings, "b.md")
    assert ids(store, settings) == {"a", "b"}
    path.unlink()
    assert ids(store, settings) == {"b"}


def test_a_file_that_is_exported_is_foreign_no_more(
    talk: Talk, store: Store, settings: Settings
) -> None:
    put(settings, "a.md")
    assert ids(store, settings) == {"a"}
    talk.user("hello")
    talk.export(store, settings, NOW)
    assert [(item.id, item.ours) for item in transcripts(store, settings) if item.id != "a"] == [
        (talk.id, True)
    ]


def test_the_pages_of_the_list_are_read_from_the_indexes(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    a_library(2, new_talk, store, settings)
    for sort in library.SORTS:
        ran: list[str] = []
        store.db.connection().set_trace_callback(ran.append)
        try:
            first = listing(store, settings, sort=sort, limit=1)
            listing(store, settings, sort=sort, after=first.after or "", limit=1)
        finally:
            store.db.connection().set_trace_callback(None)
        pages = [sql for sql in ran if "ORDER BY" in sql]
        assert len(pages) == 2
        for sql in pages:
            plan = " ".join(row[3] for row in store.rows(f"EXPLAIN QUERY PLAN {sql}"))
            assert "USING INDEX webapp_transcripts_by" in plan and "TEMP B-TREE" not in plan, plan


def test_a_session_that_is_not_on_disk_is_exported_when_it_is_opened(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    opened = open_transcript(store, settings, talk.id)
    assert opened.exported is not None and opened.exported.created and opened.problems == ()
    assert opened.transcript.ours and opened.transcript.path.is_file()
    assert open_transcript(store, settings, talk.id).exported is None


@pytest.mark.parametrize("runtime", ["older", "newer"])
def test_a_session_that_went_on_is_brought_up_to_date_when_it_is_opened(
    runtime: str, talk: Talk, store: Store, settings: Settings
) -> None:
    if runtime == "older":
        talk.user("first")
    else:
        talk.newer("user", {"text": "first"}, touch=True)
    first = open_transcript(store, settings, talk.id).transcript
    if runtime == "older":
        talk.assistant("second")
    else:
        talk.newer("assistant", {"content": [{"type": "text", "text": "second"}],
                                 "time": {"created": 1, "completed": 2}})  # fmt: skip
    again = open_transcript(store, settings, talk.id)
    assert again.exported is not None and again.exported.added > 0
    assert again.transcript.lines > first.lines
    assert "second" in again.transcript.path.read_text()


def test_an_answer_that_finishes_without_a_touch_of_the_session_is_there_at_the_next_look(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("first")
    answer = talk.assistant("on its way", done=False)
    for table in ("message", "part"):
        column = "id" if table == "message" else "message_id"
        talk.sql(
            f"UPDATE {table} SET time_created = ?, time_updated = ? WHERE {column} = ?",
            now_ms(), now_ms(), answer,
        )  # fmt: skip
    opened = open_transcript(store, settings, talk.id)
    assert opened.exported is not None and opened.exported.unfinished == 1
    talk.sql("UPDATE message SET data = json_set(data, '$.time.completed', 5) WHERE id = ?", answer)
    assert "on its way" in open_transcript(store, settings, talk.id).transcript.path.read_text()


def test_a_brand_new_session_with_an_unfinished_answer_is_looked_at_again(
    talk: Talk, store: Store, settings: Settings
) -> None:
    """Its last touch may be the very moment when it was made."""
    answer = talk.assistant("on its way", done=False)
    talk.sql("UPDATE session SET time_updated = time_created")
    talk.sql("UPDATE message SET time_updated = (SELECT time_created FROM session)")
    open_transcript(store, settings, talk.id)
    talk.sql("UPDATE message SET data = json_set(data, '$.time.completed', 5) WHERE id = ?", answer)
    assert "on its way" in open_transcript(store, settings, talk.id).transcript.path.read_text()


def break_opencode(db: Path, how: str) -> None:
    if how == "missing":
        db.unlink()
    elif how == "corrupt":
        db.write_bytes(b"\xff" * 9000)
    else:
        with closing(sqlite3.connect(db)) as connection:
            connection.execute("ALTER TABLE session RENAME TO sitting")


@pytest.mark.parametrize("how", ["missing", "corrupt", "another layout"])
def test_without_opencode_what_is_on_disk_is_shown_and_the_rest_is_told(
    how: str, talk: Talk, store: Store, settings: Settings
) -> None:
    settings = replace(settings, opencode_db=talk.db)
    talk.user("hello")
    talk.export(store, settings, NOW)
    break_opencode(talk.db, how)
    opened = open_transcript(store, settings, talk.id)
    assert opened.transcript.lines > 0 and opened.exported is None
    assert len(opened.problems) == 1 and opened.problems[0].endswith(".")
    with pytest.raises(NotFound) as caught:
        open_transcript(store, settings, "ses_other")
    assert opened.problems[0] in caught.value.message


def test_a_session_that_opencode_deleted_can_still_be_read(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    talk.export(store, settings, NOW)
    talk.sql("DELETE FROM session")
    opened = open_transcript(store, settings, talk.id)
    assert opened.exported is None and opened.problems == ()
    assert "hello" in opened.transcript.path.read_text()


def test_a_store_that_is_write_protected_shows_what_is_there_and_says_why_it_is_old(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    talk.export(store, settings, NOW)
    talk.assistant("more")
    store.close()
    settings.db.chmod(0o400)
    with Store(settings.db).session() as guarded:
        opened = open_transcript(guarded, settings, talk.id)
        assert "write-protected" in opened.problems[0]
        assert "more" not in opened.transcript.path.read_text()
        with pytest.raises(MemoryAppError):
            open_transcript(guarded, settings, talk.id + "x")
    store.open()


def test_a_locked_store_shows_what_is_there_and_says_why_it_is_old(
    talk: Talk, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.user("hello")
    talk.export(store, settings, NOW)
    talk.assistant("more")
    before = get(store, settings, talk.id)
    monkeypatch.setattr("webapp.store.connection.WRITE_PATIENCE_S", 0.0)
    store.rows("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(settings.db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opened = open_transcript(store, settings, talk.id)
        assert opened.transcript == before and len(opened.problems) == 1
        with pytest.raises(Busy):
            talk.export(store, settings, NOW)
        other.execute("ROLLBACK")
    opened = open_transcript(store, settings, talk.id)
    text = opened.transcript.path.read_text()
    assert opened.problems == () and text.count("more") == 1


def test_a_removed_transcript_tells_when_and_why_and_comes_back_only_when_asked_for(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    path = talk.export(store, settings, NOW).path
    options = cleanup.Options(sessions=(talk.id,), keep_recent=0)
    plan = cleanup.plan(store, settings, options, NOW)
    list(cleanup.apply(store, settings, options, plan.fingerprint, "tester", now=NOW))
    talk.assistant("it went on")

    with pytest.raises(NotFound) as caught:
        open_transcript(store, settings, talk.id)
    gone = caught.value.details["removed"]
    assert (gone.id, gone.removed_at, gone.removed_by, gone.why) == (
        talk.id,
        NOW,
        "tester",
        "named",
    )
    assert gone.title == talk.session().title and gone.scope == talk.scope
    assert library.removed(store, talk.id) == gone
    found = pending(store, replace(settings, opencode_db=talk.db))
    assert (found.absent, found.behind, found.every, found.removed) == ((), (), (), 1)
    assert not path.exists() and transcripts(store, settings) == []

    done = talk.export(store, settings, NOW, again=True)
    assert done.created and done.path == path
    assert library.removed(store, talk.id) is None
    assert open_transcript(store, settings, talk.id).transcript.ours


def test_a_cleanup_that_died_between_index_and_file_leaves_a_file_that_can_be_read(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    path = talk.export(store, settings, NOW).path
    before = path.read_bytes()
    with store.writing():
        store.rows("UPDATE transcripts SET removed_at = 1, removed_by = 'x', removed_why = 'named'")
    talk.assistant("it went on")
    assert ids(store, settings) == {talk.id}
    opened = open_transcript(store, settings, talk.id)
    assert "hello" in window.read(opened.transcript, LineRange(1, 50)).rows[-1].text
    assert opened.exported is None and path.read_bytes() == before
    done = talk.export(store, settings, NOW, again=True)
    assert not done.created and path.read_bytes().startswith(before)


def test_nothing_was_removed_that_nobody_removed(store: Store, settings: Settings) -> None:
    assert library.removed(store, "ses_nobody") is None
    put(settings, "a.md")
    assert library.removed(store, "a") is None


def test_a_store_of_the_plugin_alone_is_fine(settings: Settings) -> None:
    """The plugin's own layout has no table of transcripts; write-protected, it gets none."""
    settings.data_dir.mkdir(parents=True)
    with closing(sqlite3.connect(settings.db)) as connection:
        connection.execute(
            "CREATE TABLE entries (id TEXT PRIMARY KEY, scope TEXT NOT NULL, kind TEXT NOT NULL,"
            " title TEXT NOT NULL, body TEXT NOT NULL, tags TEXT NOT NULL DEFAULT '[]',"
            " created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER)"
        )
    settings.db.chmod(0o400)
    put(settings, "a.md")
    with Store(settings.db).session() as store:
        assert store.read_only
        assert ids(store, settings) == {"a"}
        assert get(store, settings, "a").lines == 2
        assert library.removed(store, "a") is None
        assert pending(store, settings).total == 0


def test_another_user_s_files_are_listed_and_do_not_hide_the_others(
    open_folder: Path, settings: Settings, as_stranger: Callable[[Callable[[], str]], str]
) -> None:
    mine = replace(settings, data_dir=open_folder, db=open_folder / "memory.db")
    put(mine, "open.md").chmod(0o644)
    put(mine, "closed.md").chmod(0o000)
    put(mine, "b.md", folder="closed")
    for folder in (mine.transcripts_dir, mine.transcripts_dir / "x"):
        folder.chmod(0o755)
    (mine.transcripts_dir / "closed").chmod(0o000)

    def work() -> str:
        with Store(mine.db).session() as store:
            names = sorted(ids(store, mine))
            try:
                item = get(store, mine, "closed")
                window.read(item, LineRange(1, 5))
                return f"{names} was read"
            except Unreadable:
                return f"{names} {get(store, mine, 'open').lines}"

    answer = as_stranger(work)
    (mine.transcripts_dir / "closed").chmod(0o700)
    assert answer == "['closed', 'open'] 2"


def test_the_overview_counts_what_is_there(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    assert library.overview(store, settings) == library.Overview((), (), 0)
    everything = a_library(6, new_talk, store, settings)
    found = library.overview(store, settings)
    assert sum(row.count for row in found.by_scope) == len(everything) == 12
    for row in found.by_scope:
        mine = [item for item in everything if item.scope == row.scope]
        assert (row.count, row.lines, row.size) == (
            len(mine), sum(item.lines for item in mine), sum(item.size for item in mine)
        )  # fmt: skip
    assert [row.size for row in found.by_scope] == sorted(
        (row.size for row in found.by_scope), reverse=True
    )
    assert sum(count for _, _, count in found.by_day) == 12
    assert [day for day, _, _ in found.by_day] == sorted(day for day, _, _ in found.by_day)
    on_disk = [
        path for path in settings.transcripts_dir.glob("*/*") if path.suffix in (".md", ".marks")
    ]
    assert found.disk == sum(path.stat().st_size for path in on_disk)


def test_a_session_that_was_exported_while_the_clock_was_ahead_goes_on(
    talk: Talk, store: Store, settings: Settings
) -> None:
    used = replace(settings, opencode_db=talk.db)
    talk.user("first")
    talk.export(store, settings, NOW)
    with store.writing():
        store.rows("UPDATE transcripts SET updated_at = updated_at + 400000000000")
    talk.user("second")
    assert [session.id for session in pending(store, used).behind] == [talk.id]
    assert "second" in open_transcript(store, used, talk.id).transcript.path.read_text()


def test_a_scope_or_a_long_title_of_another_program_is_masked(
    store: Store, settings: Settings
) -> None:
    url = "https://user:hunter22secret@" + "h" * 40 + ".example"
    put(settings, "a.md", "# " + "x" * 165 + " " + url + f"\nscope: /home/{TOKEN}/x\n")
    (item,) = transcripts(store, settings)
    assert "hunter22secret" not in item.title and TOKEN not in item.scope
    assert library.scopes(store, settings) == [item.scope]
    assert listing(store, settings, scope=item.scope).total == 1
