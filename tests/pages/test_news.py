"""`/news/…`: what open pages ask, how little that costs, and what they are told."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Talk, Trace
from webapp.opencode.news import MOST
from webapp.settings import Settings

MINUTE = 24
"""Looks of one open page in a minute: one every 2.5 s."""


@pytest.fixture
def site(settings: Settings, invented_db: Path, make_site: Callable[[Settings], Any]) -> Any:
    """The app on an empty store and an empty OpenCode database."""
    return make_site(replace(settings, opencode_db=invented_db))


class Open:
    """A page that is open: it asks as static/app.js does."""

    def __init__(self, site: Any, path: str) -> None:
        self.site = site
        answer = site.get(path)
        assert answer.status == 200, answer.html
        self._take(answer, answer.doc.one(id="news").attrs["data-tag"])

    def _take(self, answer: Any, tag: str) -> None:
        box = answer.doc.one(id="news")
        self.poll, self.tag, self.text = box.attrs["data-poll"], tag, box.text
        links = box.all("a")
        self.link = links[0].attrs["href"] if links else None

    def look(self) -> int:
        """Asks once; the status of the answer."""
        headers = {"If-None-Match": self.tag} if self.tag else {}
        answer = self.site.get(self.poll, headers=headers)
        if answer.status == 200:
            self._take(answer, answer.headers.get("ETag", ""))
        return int(answer.status)


def paths(talk: Talk) -> list[str]:
    return [f"/sessions/{talk.id}", f"/sessions/{talk.id}?order=newest", f"/transcripts/{talk.id}",
            f"/context/{talk.id}", "/sessions", "/transcripts"]  # fmt: skip


def test_while_nothing_is_written_no_database_is_opened(
    site: Any, talk: Talk, trace: Trace
) -> None:
    talk.user("First.")
    talk.assistant("Done.")
    pages = [Open(site, path) for path in paths(talk)]
    trace.clear()
    for page in pages:
        assert page.look() == 304
        assert page.text == ""
    assert trace.opened == 0


def test_a_minute_of_a_page_while_opencode_writes_reads_it_less_than_thirty_times(
    site: Any, talk: Talk, new_talk: Callable[..., Talk], trace: Trace
) -> None:
    talk.user("First.")
    other = new_talk("ses_busy")
    for page in [Open(site, path) for path in paths(talk)]:
        trace.clear()
        for number in range(MINUTE):
            other.user(f"Line {number}.")
            assert page.look() == 200
        assert trace.opened <= MINUTE
        trace.assert_frugal(talk.db)


def test_new_messages_are_told_with_a_link_to_the_first(site: Any, talk: Talk) -> None:
    talk.user("First.")
    oldest, newest = (Open(site, path) for path in paths(talk)[:2])
    second = talk.user("Second.")
    assert oldest.look() == newest.look() == 200
    assert (oldest.text, oldest.link) == ("1 new messageshow", f"/sessions/{talk.id}/{second}")
    assert newest.link == f"/sessions/{talk.id}?order=newest"
    talk.assistant("Done.")
    assert oldest.look() == 200
    assert oldest.text.startswith("2 new messages")
    assert f'id="{second}"' in site.get(oldest.link).html
    assert oldest.look() == 304


def test_an_answer_that_goes_on_is_told(site: Any, talk: Talk) -> None:
    talk.user("First.")
    answer = talk.assistant("Half", done=False)
    page = Open(site, f"/sessions/{talk.id}")
    talk.part(answer, {"type": "text", "text": "and half"})
    assert page.look() == 200
    assert page.text.startswith("The last message went on")


def test_new_lines_are_told_as_many_as_then_are_there(site: Any, talk: Talk) -> None:
    talk.user("First.")
    talk.assistant("Done.")
    page = Open(site, f"/transcripts/{talk.id}")
    before = site.rows("SELECT lines FROM transcripts")[0][0]
    talk.user("Second.\nIn two lines.")
    talk.assistant("Done too.")
    page.look()
    count = int(page.text.split(" ")[0])
    assert page.link == f"/transcripts/{talk.id}/from/{before + 1}"
    shown = site.get(page.link)
    assert site.rows("SELECT lines FROM transcripts")[0][0] == before + count
    assert "In two lines." in shown.html
    # The first page was not reloaded: what it has not seen is still new to it.
    page.look()
    assert int(page.text.split(" ")[0]) == count


def test_of_very_many_new_ones_it_is_told_that_there_are_more(site: Any, talk: Talk) -> None:
    talk.user("First.")
    session, transcript = Open(site, paths(talk)[0]), Open(site, paths(talk)[2])
    for number in range(MOST + 1):
        talk.message({"role": "user"}, f"msg_more_{number:04}")
    session.look()
    transcript.look()
    assert session.text.startswith(f"over {MOST} new messages")
    assert transcript.text.startswith(f"over {MOST} new lines")


def test_a_list_tells_which_sessions_went_on(
    site: Any, talk: Talk, new_talk: Callable[..., Talk]
) -> None:
    lists = [Open(site, path) for path in paths(talk)[4:]]
    talk.user("First.")
    new_talk("ses_other")
    for page in lists:
        assert page.look() == 200
        assert (page.text, page.link) == ("2 sessions went onshow", "")


def test_a_transcript_of_another_program_that_grows_is_told(site: Any, tmp_path: Path) -> None:
    path = site.foreign_transcript("notes", "one\ntwo\n")
    page = Open(site, "/transcripts/notes")
    assert page.look() == 304
    path.write_text("one\ntwo\nthree\nfour\n")
    os.utime(path, (2_000_000_000, 2_000_000_000))
    assert page.look() == 200
    assert page.text.startswith("2 new lines")


def test_a_database_that_cannot_be_read_is_told_and_asked_again(site: Any, talk: Talk) -> None:
    talk.user("First.")
    page = Open(site, f"/sessions/{talk.id}")
    held = talk.db.read_bytes()
    talk.db.write_bytes(b"no database at all" * 100)
    assert page.look() == 200
    assert "damaged or no SQLite database" in page.text and page.link is None
    talk.db.write_bytes(held)
    assert page.look() == 200
    assert page.text == ""


def test_a_lock_is_not_waited_for_and_told_only_as_long_as_it_is_held(
    site: Any, talk: Talk
) -> None:
    talk.user("First.")
    pages = [Open(site, path) for path in paths(talk)]
    with closing(sqlite3.connect(talk.db)) as other:
        other.execute("PRAGMA journal_mode = delete")
        talk.user("Second.")
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        for page in pages:
            assert page.look() == 200
            assert page.text == "" or "locked by another program" in page.text
        assert time.monotonic() - began < 2.5
        other.rollback()
    for page in pages:
        page.look()
        assert "locked" not in page.text
        assert page.text


def test_a_database_that_is_moved_away_and_back_is_asked_again(site: Any, talk: Talk) -> None:
    talk.user("First.")
    page = Open(site, f"/sessions/{talk.id}")
    away = talk.db.rename(talk.db.with_name("away"))
    assert page.look() == 200
    assert page.link is None and "not there" in page.text
    away.rename(talk.db)
    talk.user("Second.")
    assert page.look() == 200
    assert page.text.startswith("1 new message")


def test_a_session_that_opencode_deleted_leads_to_what_is_kept(site: Any, talk: Talk) -> None:
    talk.user("First.")
    site.get(f"/transcripts/{talk.id}")
    page = Open(site, f"/sessions/{talk.id}")
    for table in ("part", "message", "session"):
        talk.sql(f"DELETE FROM {table}")
    page.look()
    assert page.text.startswith("OpenCode has this session no more")
    gone = site.get(page.link)
    assert gone.status == 404 and "its transcript is kept" in gone.text


def test_later_and_filtered_pages_of_the_list_are_told_too(
    site: Any, talk: Talk, new_talk: Callable[..., Talk]
) -> None:
    for number in range(60):
        new_talk(f"ses_{number:02}")
    onward = site.get("/sessions").doc.one("a", rel="next").attrs["href"]
    later, filtered = Open(site, onward), Open(site, "/sessions?q=nothing+like+it")
    talk.user("First.")
    later.look()
    filtered.look()
    assert (later.text, later.link) == ("1 session went onshow", "/sessions")
    assert filtered.text == "1 session went on, of all there areshow"


def test_half_of_a_character_takes_no_page_down(site: Any, talk: Talk) -> None:
    answer = talk.assistant("x")
    talk.part(answer, '{"type": "text", "text": "half \\ud83d of it"}')
    talk.part(answer, '{"type": "tool", "tool": "a\\ud83d", "state": {"status": "completed",'
                      ' "input": {"a": "\\ud83d"}, "output": "\\ud83d"}}')  # fmt: skip
    for path in paths(talk):
        assert site.get(path).status == 200, path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/news/sessions", 400), ("/news/sessions?seen=[]", 400),
        ("/news/sessions?seen={%22a%22:[1]}", 400), ("/news/sessions/ses_x?seen=[]", 400),
        ("/news/sessions/ses_x?db=opencode.db&seen=[]", 400),
        ("/news/sessions/ses_x?db=../../opencode.db&seen=[%22%22,%22%22,0,0,0]", 200),
        ("/news/transcripts/ses_x?lines=-1", 400), ("/news/transcripts/ses_x?lines=1e9", 400),
        ("/news/transcripts/ses_x?lines=" + "9" * 40, 400), ("/news/transcripts/ses_x", 200),
        ("/news/transcripts/..%2f..%2fmemory", 404),
    ],
)  # fmt: skip
def test_odd_addresses_are_answered_in_words(site: Any, path: str, status: int) -> None:
    answer = site.get(path)
    assert answer.status == status
    assert answer.text.strip()


def test_a_look_leaves_nothing_behind(site: Any, talk: Talk, settings: Settings) -> None:
    talk.user("First.")
    page = Open(site, f"/sessions/{talk.id}")
    talk.user("Second.")
    page.look()
    assert not settings.db.exists()
