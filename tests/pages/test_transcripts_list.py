"""`/transcripts`: the library, the sessions that are not exported, export."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from webapp.settings import Settings

SHOP = "/home/demo/shop"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
SESSIONS = 15
"""Sessions in the newest fixture."""


def titles(answer: Any) -> list[str]:
    """The titles in the table, in their order."""
    return [row.all("td")[0].one("a").text for row in answer.doc.all("tr", data_item="")]


@pytest.fixture
def three(site: Any) -> Any:
    """Three transcripts of another program that differ in all that can be sorted by."""
    for name, scope, lines, touched in (
        ("alpha", "/home/demo/zoo", 30, 1_790_000_300),
        ("Beta", "/home/demo/shop", 10, 1_790_000_100),
        ("gamma", "/home/demo/blog", 20, 1_790_000_200),
    ):
        text = f"# {name}\nscope: {scope}\n" + "x" * lines + "\n" * lines
        path = site.foreign_transcript(f"ses_{name}", text)
        os.utime(path, (touched, touched))
    return site


def test_sessions_that_hold_nothing_are_said_to(site: Any, newest_db: Path) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        for table in ("message", "part", "session_message"):
            connection.execute(f"DELETE FROM {table}")
    banner = site.get("/transcripts").doc.one(class_="banner").text
    assert f"{SESSIONS} sessions not exported yet, almost no text (" in banner, banner


def test_before_any_export_the_page_says_how_many_sessions_wait(site: Any) -> None:
    answer = site.get("/transcripts")
    assert answer.status == 200
    banner = answer.doc.one(class_="banner")
    assert f"{SESSIONS} sessions not exported yet" in banner.text
    assert banner.one("button").text == "Export all" and not banner.all("select")
    assert re.search(r"about \d+ KB of text \([\d.]+ .B are free\)", banner.text), banner.text
    assert answer.doc.one(class_="empty").one("h2").text == "No transcripts yet"
    assert not site.settings.db.exists()


def test_export_all_writes_every_session_and_the_list_shows_them(site: Any) -> None:
    answer = site.get("/transcripts")
    job = site.finished(site.submit(answer, answer.form("/transcripts/export"), "Export all"))
    assert job.doc.one(class_="banner").text == "Done."
    assert f"{SESSIONS} of {SESSIONS}" in job.text
    after = site.get("/transcripts")
    assert len(titles(after)) == SESSIONS
    assert not after.has_form("/transcripts/export")
    assert after.main.one("h1").one(class_="count").text == str(SESSIONS)
    row = next(r for r in after.doc.all("tr", data_item="") if "A key was pasted" in r.text)
    cells = [cell.text for cell in row.all("td")]
    assert cells[1:3] == [SHOP, "16"]
    (lead,) = [p.text for p in after.doc.all("p", class_="lead")]
    total = sum(
        int(r.all("td")[2].text.replace(",", "")) for r in after.doc.all("tr", data_item="")
    )
    assert f"{total:,} lines" in lead


def test_export_all_twice_says_that_nothing_is_left(site: Any) -> None:
    site.export_all()
    again = site.post("/transcripts/export")
    assert again.location == "/transcripts"
    assert site.follow(again).toasts == ["Every session has its transcript already."]


def test_a_session_that_went_on_counts_as_grown(site: Any, newest_db: Path) -> None:
    site.export_all()
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE session SET time_updated = time_updated + 99000 WHERE title LIKE 'A key%'"
        )
    answer = site.get("/transcripts")
    assert "1 grown since" in answer.doc.one(class_="banner").text


def test_only_the_missing_or_every_session_can_be_chosen(site: Any, newest_db: Path) -> None:
    site.export_all()
    (gone,) = site.settings.transcripts_dir.glob(f"*/{KEYS}.md")
    with site.store() as store, store.writing():
        store.rows("DELETE FROM transcripts WHERE session_id = ?", (KEYS,))
    gone.unlink()
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE session SET time_updated = time_updated + 99000 WHERE title LIKE 'Empty%'"
        )
    answer = site.get("/transcripts")
    form = answer.form("/transcripts/export")
    assert [option.attrs["value"] for option in form.all("option")] == ["new", "missing", "every"]
    assert [int(option.text.split(": ")[1]) for option in form.all("option")] == [2, 1, SESSIONS]
    job = site.finished(site.submit(answer, form, "Export all", which="missing"))
    assert "1 of 1" in job.text and gone.is_file()
    job = site.finished(site.post("/transcripts/export", {"which": "every"}))
    assert f"{SESSIONS} of {SESSIONS}" in job.text and "Done." in job.text
    assert site.post("/transcripts/export", {"which": "some"}).status == 400


def test_a_library_that_the_disk_cannot_hold_is_told_before(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1000))
    assert (
        "more than the disk has room for" in site.get("/transcripts").doc.one(class_="banner").text
    )


def test_many_missing_sessions_come_in_pages(site: Any, newest_db: Path) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(session)")]
        columns = ", ".join("id || '_' || n" if name in ("id", "slug") else name for name in names)
        connection.execute(
            f"INSERT INTO session SELECT {columns} FROM session, (WITH RECURSIVE c(n) AS (SELECT 1"
            " UNION ALL SELECT n + 1 FROM c WHERE n < 8) SELECT n FROM c)"
        )
    first = site.get("/transcripts?show=missing")
    second = site.get(first.doc.one("a", rel="next").attrs["href"])
    assert len(titles(first)) == 100 and len(titles(second)) == 9 * SESSIONS - 100
    assert not second.doc.all("a", rel="next")
    assert site.get("/transcripts?show=missing&page=3").doc.one(class_="empty")


def test_a_session_with_an_unfinished_answer_is_no_growth(site: Any, newest_db: Path) -> None:
    site.export_all()
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE session SET time_updated = time_updated + 1 WHERE id = ?", (KEYS,)
        )
    assert not site.get("/transcripts").has_form("/transcripts/export")
    page = site.get("/transcripts?show=missing")
    assert "still being written" in page.doc.one(class_="empty").text
    job = site.finished(site.submit(page, page.form("/transcripts/export"),
                                    f"Look through all {SESSIONS} again"))  # fmt: skip
    assert f"{SESSIONS} of {SESSIONS}" in job.text


def test_what_a_cleanup_removed_is_not_called_exported(site: Any) -> None:
    site.export_all()
    page = site.get(f"/cleanup?session={KEYS}&keep_recent=0")
    site.finished(site.submit(page, page.form("/cleanup", method="post"), "Remove 1 transcript"))
    empty = site.get("/transcripts?show=missing").doc.one(class_="empty").text
    assert "Nothing to export" in empty and "1 session whose transcript a cleanup removed" in empty


def test_the_missing_tab_lists_what_is_not_exported_and_each_link_exports_it(site: Any) -> None:
    answer = site.get("/transcripts?show=missing")
    assert len(titles(answer)) == SESSIONS
    assert answer.doc.one("a", aria_current="page", href="/transcripts?show=missing")
    link = next(a for a in answer.main.all("a") if a.text == "Empty session").attrs["href"]
    assert site.get(link).status == 200
    assert len(titles(site.get("/transcripts?show=missing"))) == SESSIONS - 1
    assert titles(site.get("/transcripts")) == ["Empty session"]
    site.export_all()
    done = site.get("/transcripts?show=missing")
    assert done.doc.one(class_="empty").one("h2").text == "Every session has its transcript"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["alpha", "gamma", "Beta"]),
        ("sort=touched", ["alpha", "gamma", "Beta"]),
        ("sort=touched&order=asc", ["Beta", "gamma", "alpha"]),
        ("sort=title", ["alpha", "Beta", "gamma"]),
        ("sort=title&order=desc", ["gamma", "Beta", "alpha"]),
        ("sort=lines", ["alpha", "gamma", "Beta"]),
        ("sort=lines&order=asc", ["Beta", "gamma", "alpha"]),
        ("sort=size&order=asc", ["Beta", "gamma", "alpha"]),
        ("sort=scope", ["gamma", "Beta", "alpha"]),
        ("sort=scope&order=sideways", ["gamma", "Beta", "alpha"]),
    ],
)
def test_the_columns_sort(three: Any, query: str, expected: list[str]) -> None:
    answer = three.get(f"/transcripts?{query}")
    assert titles(answer) == expected


def test_a_column_says_how_it_is_sorted_and_its_link_turns_it_round(three: Any) -> None:
    answer = three.get("/transcripts?sort=lines&scope=&q=a&page=1")
    (head,) = [th for th in answer.doc.all("th") if "aria-sort" in th.attrs]
    assert head.attrs["aria-sort"] == "descending"
    link = head.one("a").attrs["href"]
    assert parse_qs(urlsplit(link).query) == {"q": ["a"], "sort": ["lines"], "order": ["asc"]}
    turned = three.get(link)
    assert titles(turned) == ["Beta", "gamma", "alpha"]
    (head,) = [th for th in turned.doc.all("th") if "aria-sort" in th.attrs]
    assert head.attrs["aria-sort"] == "ascending"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("scope=/home/demo/blog", ["gamma"]),
        ("q=BETA", ["Beta"]),
        ("q=ses_+a&sort=title", ["alpha", "Beta", "gamma"]),
        ("q=ses_gamma", ["gamma"]),
        ("q=gamma&scope=/home/demo/zoo", []),
        ("scope=/home/demo", []),
        ("q=%3Cscript%3E", []),
    ],
)
def test_the_list_is_narrowed_by_project_and_words(
    three: Any, query: str, expected: list[str]
) -> None:
    answer = three.get(f"/transcripts?{query}")
    assert titles(answer) == expected
    assert answer.main.one("h1").one(class_="count").text == str(len(expected))
    if not expected:
        assert answer.doc.one(class_="empty").one("h2").text == "No transcript matches"
        assert answer.doc.one(class_="empty").one("a").attrs["href"] == "/transcripts"


def test_the_filter_form_keeps_the_order(three: Any) -> None:
    answer = three.get("/transcripts?sort=size&order=asc&scope=/home/demo/zoo")
    form = answer.main.one("form", class_="filters")
    assert dict(answer.fields(form)) == {
        "scope": "/home/demo/zoo", "q": "", "sort": "size", "order": "asc",
    }  # fmt: skip
    assert titles(three.submit(answer, form, "Filter", scope="", q="a")) == [
        "Beta",
        "gamma",
        "alpha",
    ]


@pytest.mark.parametrize(
    "query",
    ["sort=worst", "sort=", "after=x", "before=~x", "after=" + "9" * 5000, "sort=" + "s" * 5000],
)
def test_a_bad_argument_is_refused_with_a_sentence(three: Any, query: str) -> None:
    answer = three.get(f"/transcripts?{query}")
    assert answer.status == 400
    assert answer.doc.one(role="alert").text


def test_pages_follow_each_other_with_their_filters(site: Any) -> None:
    for number in range(120):
        site.foreign_transcript(f"ses_{number:03}", f"# Talk {number:03}\n")
    first = site.get("/transcripts?sort=title&q=talk")
    assert len(titles(first)) == 100
    assert not first.doc.all("a", rel="prev")
    second = site.get(first.doc.one("a", rel="next").attrs["href"])
    assert titles(first) + titles(second) == [f"Talk {number:03}" for number in range(120)]
    assert not second.doc.all("a", rel="next")
    back = site.get(second.doc.one("a", rel="prev").attrs["href"])
    assert titles(back) == titles(first)
    assert titles(site.get(second.doc.one("a", rel="first").attrs["href"])) == titles(first)


def test_a_transcript_whose_file_is_gone_is_marked_as_such(site: Any) -> None:
    site.export_all()
    (path,) = site.settings.transcripts_dir.glob(f"*/{KEYS}.md")
    path.unlink()
    row = next(
        r
        for r in site.get("/transcripts").doc.all("tr", data_item="")
        if KEYS in str(r.one("a").attrs)
    )
    assert row.one(class_="badge").text == "file missing"
    assert site.get(row.one("a").attrs["href"]).status == 200
    assert path.is_file()


def test_another_programs_file_is_marked_as_such(three: Any) -> None:
    answer = three.get("/transcripts?q=alpha")
    assert answer.doc.one("tr", data_item="").one(class_="badge").text == "foreign"


@pytest.mark.parametrize(
    "name",
    ["notes on x", "ünïcode", "-dash", ".hidden", "a#b?c", "100%", "x" * 240, "日本語", "a'b\"c",
     "<b>", "_under", "new", "a~b", "a~notes"],
)  # fmt: skip
def test_every_listed_transcript_opens_whatever_its_file_is_called(site: Any, name: str) -> None:
    site.foreign_transcript(name, f"# Title of {name}\nThe one needle.\n")
    answer = site.get("/transcripts")
    answer.assert_inert()
    links = [row.one("a").attrs["href"] for row in answer.doc.all("tr", data_item="")]
    for link in links:
        opened = site.get(link)
        assert opened.status == 200, (link, opened.text)
        assert "The one needle." in opened.text
    for li in site.get("/?tab=transcripts&q=needle").doc.all("li", class_="is-hit"):
        opened = site.get(li.one("a").attrs["href"])
        assert opened.status == 200, li.one("a").attrs["href"]


def test_a_file_whose_name_is_no_text_takes_nothing_else_down(site: Any) -> None:
    path = site.foreign_transcript("ses_real", "# Real\nneedle\n")
    (path.parent / os.fsdecode(b"ses_\xff.md")).write_text("# Odd\nneedle\n")
    folder = path.parent.parent / os.fsdecode(b"odd\xff")
    folder.mkdir()
    (folder / "ses_in.md").write_text("# In\nneedle\n")
    assert titles(site.get("/transcripts")) == ["Real"]
    for page in ("/?tab=transcripts&q=needle", "/stats", "/cleanup?max_sessions=1"):
        assert site.get(page).status == 200


def test_two_files_of_one_name_are_both_there(site: Any) -> None:
    site.foreign_transcript("ses_same", "# In one\nbody one\n", "one")
    site.foreign_transcript("ses_same", "# In two\nbody two\n", "two")
    answer = site.get("/transcripts?sort=title")
    assert titles(answer) == ["In one", "In two"]
    texts = [
        site.get(row.one("a").attrs["href"]).text for row in answer.doc.all("tr", data_item="")
    ]
    assert "body one" in texts[0] and "body two" in texts[1]


def test_a_link_out_of_the_folder_is_not_followed(site: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("# A secret\n")
    site.foreign_transcript("ses_real", "# Real\n")
    folder = site.settings.transcripts_dir / "notes"
    (folder / "ses_link.md").symlink_to(secret)
    (site.settings.transcripts_dir / "away").symlink_to(tmp_path)
    assert titles(site.get("/transcripts")) == ["Real"]
    assert site.get("/transcripts/ses_link").status == 404
    assert site.get("/transcripts/secret").status == 404


def test_a_key_in_a_title_is_masked_wherever_the_title_stands(site: Any, newest_db: Path) -> None:
    key = "ghp_" + "FakeFixture0" * 3
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        (session_id,) = connection.execute(
            "SELECT id FROM session WHERE title LIKE 'A key%'"
        ).fetchone()
        connection.execute("UPDATE session SET title = ? WHERE id = ?", (f"Use {key}", session_id))
    pages = [site.get("/transcripts?show=missing")]
    site.export_all()
    site.foreign_transcript("ses_other", f"# Also {key}\nscope: /x\n")
    for path in ("/transcripts", f"/transcripts/{session_id}", "/?tab=transcripts&q=Use",
                 "/?tab=transcripts&q=token", f"/cleanup?session={session_id}&keep_recent=0"):  # fmt: skip
        pages.append(site.get(path))
    for page in pages:
        assert page.status == 200
        assert "Use ghp_" in page.text or "token ghp_" in page.text, page.path
        assert key not in page.html and "Fixture0FakeFixture0" not in page.html, page.path


# OpenCode is not there, or is damaged -----------------------------------------------------------


def test_without_opencode_the_page_says_where_it_looked(
    settings: Settings, make_site: Callable[[Settings], Any]
) -> None:
    site = make_site(settings)
    site.foreign_transcript("ses_one", "# One\nx\n")
    answer = site.get("/transcripts")
    assert answer.status == 200
    warning = answer.doc.one(class_="banner").text
    assert "No OpenCode database was found" in warning and str(settings.opencode_dir) in warning
    assert titles(answer) == ["One"]
    assert site.get("/transcripts/ses_one").status == 200
    nothing = site.post("/transcripts/export")
    assert site.get(nothing.location).status == 200


@pytest.mark.parametrize("kind", ["missing", "garbage", "other tables", "folder", "empty"])
def test_an_unreadable_opencode_database_is_told_and_hides_nothing_else(
    settings: Settings, newest_db: Path, make_site: Callable[[Settings], Any], kind: str
) -> None:
    made = make_site(replace(settings, opencode_db=newest_db))
    made.export_all()
    made.save("An entry")
    newest_db.unlink()
    if kind == "garbage":
        newest_db.write_bytes(os.urandom(64) * 400)
    elif kind == "other tables":
        with closing(sqlite3.connect(newest_db)) as connection:
            connection.execute("CREATE TABLE session (id TEXT)")
    elif kind == "folder":
        newest_db.mkdir()
    elif kind == "empty":
        newest_db.touch()
    answer = made.get("/transcripts")
    assert answer.status == 200
    assert str(newest_db) in answer.doc.one(class_="banner").text
    assert len(titles(answer)) == SESSIONS
    opened = made.get(
        next(a for a in answer.main.all("a") if a.text == "Empty session").attrs["href"]
    )
    assert opened.status == 200
    assert "Not brought up to date" in opened.doc.one(class_="banner").text
    for path in ("/", "/?tab=transcripts&q=key", "/stats", "/cleanup", "/settings", "/trash",
                 "/healthz"):  # fmt: skip
        assert made.get(path).status == 200, path
    # Which transcripts are still in use is not known now, so none is proposed.
    plan = made.get("/cleanup?keep_recent=0&max_sessions=1")
    assert plan.status == 503 and "still in use" in plan.doc.one(class_="banner").text
    absent = made.get("/transcripts/ses_nosuch")
    assert absent.status in (404, 503)
    assert str(newest_db) in absent.text
    told = made.post("/transcripts/ses_nosuch/export")
    assert told.status == 503
    assert str(newest_db) in told.text
    everything = made.post("/transcripts/export")
    assert any(str(newest_db) in toast for toast in made.follow(everything).toasts)
