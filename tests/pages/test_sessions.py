"""`/sessions`: the list, its filters and its links; databases that give nothing."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from webapp.opencode import overview
from webapp.opencode.database import BRIEF_S, Patience
from webapp.settings import Settings
from webapp.web import filters

SESSIONS = 15
MIGRATE = "Migrate the price lists (long, compacted twice)"


def titles(answer: Any) -> list[str]:
    """The titles on the page, in their order."""
    return [row.one("h2").text for row in answer.doc.all(class_="session", data_item="")]


def row(answer: Any, title: str) -> Any:
    """The row of a session."""
    found = answer.doc.all(class_="session", data_item="")
    return next(node for node in found if node.one("h2").text == title)


def change(db: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute(sql, values)


def test_every_session_is_listed_with_what_is_known_of_it(site: Any) -> None:
    answer = site.get("/sessions")
    assert answer.status == 200 and len(titles(answer)) == SESSIONS
    answer.assert_inert()
    assert f"{SESSIONS} sessions, subagents among them." in answer.text
    rail = answer.doc.one("a", data_go="o")
    assert rail.attrs["aria-current"] == "page" and rail.one(class_="count").text == str(SESSIONS)
    failed = row(answer, "The model failed")
    assert failed.one(class_="badge").text == "error"
    assert failed.all("a")[1].attrs["href"] == "/sessions?project=/home/demo/shop"
    figures = [node.text for node in row(answer, MIGRATE).all(class_="fig")]
    assert figures[:4] == ["31 messages", "105K tokens", "$0 cost", "0 lines"]
    assert "Hello from the newer runtime." in titles(answer)
    assert row(answer, "Archived: spring cleaning").one(class_="badge").text == "archived"
    assert row(answer, "Empty session").all(class_="fig")[3].text == "— lines"


def test_a_subagent_stands_below_its_session_and_a_fork_names_its_origin(site: Any) -> None:
    answer = site.get("/sessions")
    (branch,) = answer.doc.all("details", class_="branch")
    assert branch.one("summary").text == "1 subagent" and "open" in branch.attrs
    assert branch.one("h2").text == "Find price code (@general subagent)"
    fork = row(answer, f"{MIGRATE} (fork #1)")
    assert f"likely fork of {MIGRATE}" in fork.text


def test_subagents_that_are_not_listed_are_counted_with_a_link(
    site: Any, newest_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "DEPTH", 0)
    answer = site.get("/sessions")
    (link,) = (node for node in answer.doc.all("a") if node.text == "1 subagent")
    below = site.get(link.attrs["href"])
    assert len(titles(below)) == 1 and "1 subagent of" in below.text


def test_each_row_leads_to_its_transcript(site: Any) -> None:
    for node in site.get("/sessions").doc.all(class_="session", data_item=""):
        for link, name in zip(node.all("a")[-2:], ("transcript", "context"), strict=True):
            assert link.text.startswith(name)
            assert site.get(link.attrs["href"]).status == 200


def test_a_filter_lists_subagents_by_themselves(site: Any) -> None:
    answer = site.get("/sessions?agent=general")
    assert titles(answer) == ["Find price code (@general subagent)"]
    assert "subagent of Delegate the survey" in answer.text
    assert "3 sessions without a noted agent cannot be found by it." in answer.text
    assert titles(site.get("/sessions?compacted=1")) == [f"{MIGRATE} (fork #1)", MIGRATE]
    answer = site.get("/sessions?errors=1")
    assert titles(answer) == ["The model failed"]
    assert f"among the {SESSIONS} looked into of {SESSIONS} sessions" in answer.text
    assert titles(site.get("/sessions?archived=only")) == ["Archived: spring cleaning"]
    assert len(titles(site.get("/sessions?archived=no"))) == SESSIONS - 1
    assert len(titles(site.get("/sessions?since=2026-11-30&until=2026-11-30"))) == SESSIONS
    assert not titles(site.get("/sessions?until=2026-11-29"))
    parent = site.get("/sessions?parent=ses_dd3fa5dbcffesTY3Sj4Z1px1nH")
    assert "1 subagent of Delegate the survey" in parent.text


def test_the_filter_form_keeps_what_was_chosen_and_works_without_script(site: Any) -> None:
    answer = site.get("/sessions?agent=build&archived=no&errors=1&order=project&since=2020-01-01")
    form = answer.form("/sessions")
    sent = dict(answer.fields(form))
    assert sent == {
        "q": "", "project": "", "agent": "build", "model": "", "archived": "no", "errors": "1",
        "since": "2020-01-01", "until": "", "order": "project",
    }  # fmt: skip
    assert titles(site.submit(answer, form, "Filter", q="failed")) == ["The model failed"]


def test_htmx_gets_the_fragment_that_the_page_includes(site: Any) -> None:
    answer = site.fragment("/sessions?q=failed&agent=&order=touched", "results")
    assert not answer.is_page and titles(answer) == ["The model failed"]
    assert answer.headers["HX-Replace-Url"] == "/sessions?q=failed"
    assert "HX-Target" in answer.headers["Vary"]


def test_by_project_each_has_a_heading(site: Any, newest_db: Path) -> None:
    change(newest_db, "UPDATE session SET project_id = 'gone', directory = '/home/demo/gone'"
           " WHERE title = 'Empty session'")  # fmt: skip
    answer = site.get("/sessions?order=project")
    headings = [node.text for node in answer.doc.all("li", class_="group")]
    assert headings == ["/home/demo/gone", "/home/demo/shop"]
    assert titles(answer)[0] == "Empty session"


def test_pages_follow_each_other_with_their_filters(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = titles(site.get("/sessions?archived=no"))
    monkeypatch.setattr("webapp.pages.sessions.PAGE", 4)
    answer = site.get("/sessions?archived=no")
    seen = titles(answer)
    while answer.doc.all("a", rel="next"):
        answer = site.get(answer.doc.one("a", rel="next").attrs["href"])
        seen += titles(answer)
    assert seen == everything
    first = answer.doc.one("a", rel="first").attrs["href"]
    assert parse_qs(urlsplit(first).query) == {"archived": ["no"]}
    past = site.get("/sessions?after=1~opencode.db/ses_0")
    assert past.doc.one(class_="empty").one("h2").text == "Nothing more"


def test_a_walk_that_found_nothing_offers_to_look_further(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "WALK", 1)
    answer = site.get("/sessions?errors=1")
    assert answer.doc.one(class_="empty").one("h2").text == "None among these 1"
    further = site.get(answer.doc.one("a", rel="next").attrs["href"])
    assert titles(further) == ["The model failed"]


@pytest.mark.parametrize(
    "query",
    ["order=worst", "archived=maybe", "since=soon", "until=x", "after=x", "project=" + "x" * 9000],
)
def test_a_bad_argument_is_refused_with_a_sentence(site: Any, query: str) -> None:
    answer = site.get(f"/sessions?{query}")
    assert answer.status == 400 and answer.doc.one(role="alert").text


def test_credentials_in_titles_and_requests_are_masked(site: Any, newest_db: Path) -> None:
    key = "ghp_" + "FakeFixture0" * 3
    change(newest_db, "UPDATE session SET title = ? WHERE title = ?", f"Use {key}", MIGRATE)
    change(newest_db, "UPDATE session SET title = ? WHERE title LIKE '%fork #1)'",
           f"Use {key} (fork #1)")  # fmt: skip
    change(newest_db, "UPDATE session SET title = 'New session - 2026-11-30T10:35:01.848Z'"
           " WHERE title LIKE 'A key%'")  # fmt: skip
    change(newest_db, "UPDATE session SET model = ? WHERE title = 'Empty session'", f"{{{key}")
    for path in ("/sessions", "/sessions?q=use"):
        answer = site.get(path)
        assert "Use ghp_" in answer.text and "masked" in answer.text
        assert "FakeFixture0FakeFixture0" not in answer.main.one(id="results").raw


def test_a_long_title_is_cut(site: Any, newest_db: Path) -> None:
    change(newest_db, "UPDATE session SET title = ? WHERE title = ?", "x" * 9000, MIGRATE)
    assert "x" * 300 + "…" in site.get("/sessions").text
    assert "x" * 301 not in site.get("/sessions").html


def test_with_several_databases_each_row_names_its_own(
    settings: Settings, newest_db: Path, make_site: Callable[[Settings], Any]
) -> None:
    settings.opencode_dir.mkdir(parents=True)
    for name in ("opencode.db", "opencode-dev.db"):
        (settings.opencode_dir / name).write_bytes(newest_db.read_bytes())
    (settings.opencode_dir / "opencode-old.db").write_bytes(b"nothing of the kind" * 50)
    answer = make_site(settings).get("/sessions")
    assert f"{2 * SESSIONS} sessions" in answer.text
    assert "opencode-dev.db" in answer.text and "opencode-old.db" in answer.text
    assert answer.doc.one(class_="banner").text.endswith("(file is not a database).")


# Databases that give nothing ----------------------------------------------------------------------


def test_without_opencode_the_page_says_where_it_looked(
    settings: Settings, make_site: Callable[[Settings], Any]
) -> None:
    answer = make_site(settings).get("/sessions")
    assert answer.status == 200
    assert str(settings.opencode_dir) in answer.doc.one(class_="banner").text
    assert answer.doc.one(class_="empty").one("h2").text == "OpenCode has not been found"


def test_a_page_waits_once_for_all_locked_databases(
    settings: Settings, newest_db: Path, make_site: Callable[[Settings], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("webapp.opencode.database.BUSY_TIMEOUT_S", 0.2)
    waits: list[float] = []
    wait = Patience.wait

    def noted(patience: Patience, path: Path, timeout: float) -> float:
        waits.append(wait(patience, path, timeout))
        return waits[-1]

    monkeypatch.setattr(Patience, "wait", noted)
    settings.opencode_dir.mkdir(parents=True, exist_ok=True)
    data = newest_db.read_bytes()
    newest_db.unlink()
    locks = []
    for name in ("opencode.db", "opencode-a.db", "opencode-b.db"):
        path = settings.opencode_dir / name
        path.write_bytes(data)
        locks.append(sqlite3.connect(path, isolation_level=None))
        locks[-1].execute("PRAGMA journal_mode = delete")
    site = make_site(settings)
    for lock in locks:
        lock.execute("BEGIN EXCLUSIVE")
    for address in ("/sessions", "/transcripts"):
        waits.clear()
        answer = site.get(address)
        assert answer.status == 200 and answer.text.count("locked by another program") == 3
        assert len(waits) >= 6 and sorted(waits, reverse=True)[:4] == [0.2, BRIEF_S, BRIEF_S, 0]
    for lock in locks:
        lock.close()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("missing", "is not there"),
        ("folder", "is no file but a folder"),
        ("garbage", "damaged or no SQLite database"),
        ("empty", "is empty: there is no table in it"),
        ("newer", "A newer OpenCode may have written it"),
        ("no rows", "a problem of its schema"),
        ("unused", "holds no session yet"),
        ("locked", "locked by another program"),
    ],
)
def test_each_kind_of_unreadable_database_has_its_own_message(
    settings: Settings, newest_db: Path, make_site: Callable[[Settings], Any],
    monkeypatch: pytest.MonkeyPatch, kind: str, words: str,
) -> None:  # fmt: skip
    site = make_site(replace(settings, opencode_db=newest_db))
    site.save("An entry")
    lock = sqlite3.connect(newest_db, isolation_level=None)
    if kind in ("missing", "folder", "garbage", "empty"):
        newest_db.unlink()
    if kind == "folder":
        newest_db.mkdir()
    if kind == "garbage":
        newest_db.write_bytes(b"\1\2 nothing" * 400)
    elif kind == "empty":
        newest_db.touch()
    elif kind == "newer":
        change(newest_db, "ALTER TABLE session RENAME TO sessions")
    elif kind == "no rows":
        change(newest_db, "DELETE FROM session")
    elif kind == "unused":
        for table in ("session", "message", "part", "session_message"):
            change(newest_db, f"DELETE FROM {table}")
    elif kind == "locked":
        lock.execute("PRAGMA journal_mode = delete")
        lock.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr("webapp.opencode.database.reading.__wrapped__.__defaults__", (0.01,))
    began = time.monotonic()
    answer = site.get("/sessions")
    assert answer.status == 200
    banner = answer.doc.one(class_="banner").text
    assert words in banner and str(newest_db) in banner
    heading = "No session yet" if kind == "unused" else "No database can be shown"
    assert answer.doc.one(class_="empty").one("h2").text == heading
    for path in ("/", "/stats", "/trash", "/settings"):
        assert site.get(path).status == 200, path
    assert time.monotonic() - began < 2
    if kind in ("no rows", "unused"):
        for address in ("/sessions/ses_a", "/context/ses_a"):
            one = site.get(address)
            assert one.status == (503 if kind == "no rows" else 404)
            assert (words in one.text) == (kind == "no rows")
    lock.close()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "0"), (9999, "9,999"), (10_000, "10.0K"), (123_456, "123K"), (999_949, "1.0M"),
     (1_250_000, "1.2M"), (5e12, "5.0T"), (5e15, "5000T")],
)  # fmt: skip
def test_a_number_is_short(number: float, expected: str) -> None:
    assert filters.short(number) == expected


@pytest.mark.parametrize(
    ("dollars", "expected"),
    [(0, "$0"), (0.001, "<$0.01"), (0.12, "$0.12"), (1234.5, "$1,234.50")],
)
def test_a_cost_is_in_dollars(dollars: float, expected: str) -> None:
    assert filters.cost(dollars) == expected
