"""`/sessions/<id>`: every type of part, paging, deep links, hostile and huge data, what is read."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from tests.conftest import Trace
from webapp.opencode import list_sessions, overview
from webapp.settings import Settings
from webapp.transcripts import files

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("opencode-*.db"))
NEWEST = next(path for path in FIXTURES if path.stem == "opencode-1.18.33")
LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
HOSTILE = "ses_dd3fa60a9ffeTXS1icqe58uEPT"
EMPTY = "ses_dd3fa4afcffekVr5jSKEyzYeLu"
FIX = "ses_dd3fa6caeffev6OGTMDvzIlttd"
BACK = "ses_dd3fa4df7ffel4G8oPC6RhaO0i"
ATTACHED = "ses_dd3fa4af8ffeUmt8s6yKqGiuR2"
FAILED = "ses_dd3fa4941ffeeSbqlOoz7qD9n8"
TASK = "ses_dd3fa5dbcffesTY3Sj4Z1px1nH"
NEWER = "ses_dd3fa48b8ffeTVh5fVD8sckXhm"
START = 1_790_000_000_000
KEY = "ghp_" + "FakeFixture0" * 3
PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 30).decode()
EVIL = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>{{ 7*7 }}\u202e"
)


class Talk:
    """A session that a test writes row by row into a real database."""

    def __init__(self, db: Path, session_id: str = "ses_made", title: str = "Made") -> None:
        self.db, self.id, self._clock, self._parts = db, session_id, START, 0
        self.sql(
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created,"
            " time_updated) SELECT ?, project_id, 'slug', directory, ?, '1.18.33', ?, ?"
            " FROM session LIMIT 1",
            session_id, title, START, START,
        )  # fmt: skip

    def sql(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.db)) as connection, connection:
            connection.execute(statement, values)

    def message(self, data: Any, *parts: Any, at: int | None = None) -> str:
        """A message with parts; a string is stored as it is."""
        self._clock += 1000
        at = self._clock if at is None else at
        message_id = f"msg_made{self._clock - START:09d}"
        if isinstance(data, dict):
            completed = {"created": at, "completed": at + 1500}
            data = json.dumps({"time": completed} | data)
        self.sql("INSERT INTO message (id, session_id, time_created, time_updated, data)"
                 " VALUES (?, ?, ?, ?, ?)", message_id, self.id, at, at, data)  # fmt: skip
        for part in parts:
            self._parts += 1
            stored = part if isinstance(part, str) else json.dumps(part)
            self.sql(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                f"prt_made{self._parts:06d}", message_id, self.id, at, at, stored,
            )  # fmt: skip
        return message_id

    def assistant(self, *parts: Any, **data: Any) -> str:
        return self.message({"role": "assistant", "agent": "build", "modelID": "m1"} | data, *parts)

    def user(self, text: str) -> str:
        return self.message({"role": "user"}, {"type": "text", "text": text})

    def many(self, count: int) -> None:
        """That many messages of one part each, quickly."""
        with closing(sqlite3.connect(self.db)) as connection, connection:
            for n in range(count):
                role = "assistant" if n % 2 else "user"
                data = {"role": role, "time": {"created": START + n, "completed": START + n},
                        "tokens": {"input": n, "output": 1, "cache": {"read": 0, "write": 0}},
                        "cost": 0.001, "summary": n == 2001}  # fmt: skip
                # Two of each three share their time, so that the id decides.
                connection.execute(
                    "INSERT INTO message (id, session_id, time_created, time_updated, data)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (f"msg_many{n:06d}", self.id, START + n // 3, START, json.dumps(data)),
                )
                connection.execute(
                    "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (f"prt_many{n:06d}", f"msg_many{n:06d}", self.id, START, START,
                     json.dumps({"type": "text", "text": f"Text {n}."})),
                )  # fmt: skip


@pytest.fixture
def talk(site: Any, newest_db: Path) -> Talk:
    """A session of its own beside those of the newest fixture."""
    return Talk(newest_db)


def ids(answer: Any) -> list[str]:
    """The messages on a page, in order."""
    return [node.attrs["id"] for node in answer.doc.all(class_="msg")]


def numbered(answer: Any) -> list[int]:
    return [int(n.one("h2").one(class_="count").text.replace(",", ""))
            for n in answer.doc.all(class_="msg")]  # fmt: skip


def part(answer: Any, text: str = "", type_: str = "") -> Any:
    """The only part whose text or type that is."""
    found = [
        node
        for node in answer.doc.all(class_="part")
        if text in node.text and type_ in ("", node.all(class_="type")[0].text)
    ]
    assert len(found) == 1, (len(found), answer.main.text[:2000])
    return found[0]


def assert_inert(answer: Any) -> None:
    """As everywhere, but that an image may stand there as data of a known kind."""
    for node in answer.doc.walk():
        if node.tag == "img":
            assert re.fullmatch(
                r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", node.attrs["src"]
            )
            assert set(node.attrs) == {"src", "alt", "loading", "decoding"}
            node.tag, node.attrs = "span", {}
    answer.assert_inert()


# Every session opens ----------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
@pytest.mark.parametrize("exported", [False, True])
def test_every_session_of_every_version_opens_whole_in_both_orders(
    fixture: Path, exported: bool, settings: Settings, make_site: Callable[..., Any], tmp_path: Path
) -> None:
    db = Path(shutil.copyfile(fixture, tmp_path / "opencode.db"))
    site = make_site(replace(settings, opencode_db=db))
    if exported:
        site.export_all()
    sessions = list_sessions([db]).sessions
    assert len(sessions) > 1
    for session in sessions:
        answer = site.get(f"/sessions/{session.id}")
        assert answer.status == 200, (session.title, answer.text[:300])
        assert_inert(answer)
        assert len(set(ids(answer))) == len(ids(answer))
        assert numbered(answer) == list(range(1, len(ids(answer)) + 1))
        newest = site.get(f"/sessions/{session.id}?order=newest")
        assert ids(newest) == ids(answer)[::-1]
        every = [node.attrs["id"] for node in answer.doc.walk() if "id" in node.attrs]
        assert len(set(every)) == len(every)
        for node in answer.doc.all(class_="msg"):
            lines = node.one("header").all("a", class_="n")
            assert bool(lines) is exported, node.text[:200]


def test_the_line_of_a_message_and_of_a_part_is_where_they_stand(site: Any) -> None:
    site.export_all()
    (path,) = site.settings.transcripts_dir.glob(f"*/{FIX}.md")
    lines = path.read_text("utf-8").split("\n")
    answer = site.get(f"/sessions/{FIX}")
    for node in answer.doc.all(class_="msg"):
        link = node.one("header").one("a", class_="n").attrs["href"]
        line = re.fullmatch(rf"/transcripts/{FIX}/(\d+)#L\1", link)
        assert line and lines[int(line[1]) - 1].endswith(node.attrs["id"])
    tool = part(answer, "tool edit")
    place = urlsplit(tool.one("a", class_="n").attrs["href"])
    assert "### tool edit" in lines[int(place.fragment[1:]) - 1]
    assert site.get(place.path).status == 200


def test_the_transcript_links_to_the_session_and_back(site: Any) -> None:
    transcript = site.get(f"/transcripts/{FIX}")
    (there,) = [a.attrs["href"] for a in transcript.main.all("a") if a.text == "Session"]
    assert there == f"/sessions/{FIX}"
    (back,) = [a.attrs["href"] for a in site.get(there).main.all("a") if a.text == "Transcript"]
    assert back == f"/transcripts/{FIX}"
    site.foreign_transcript("other", "# Another\nprogram\n")
    assert not site.get("/transcripts/other").main.all("nav", class_="tabs views")


# What is shown ----------------------------------------------------------------------------------


def test_tools_show_their_state_input_output_error_and_duration(site: Any) -> None:
    answer = site.get(f"/sessions/{FIX}")
    edit = part(answer, "tool edit")
    assert {n.text for n in edit.all(class_="badge")} == {"completed"}
    assert re.search(r"\d ms|\d s", edit.one(class_="part-head").text)
    assert {"d-add", "d-del", "d-hunk", "d-head"} <= {
        name for n in edit.all("span") for name in n.attrs.get("class", "").split()
    }
    assert edit.one(class_="d-del").raw.startswith("-")
    assert "Edit applied successfully." in edit.text
    grep = part(answer, "tool grep")
    error = grep.one("details", class_="b-error")
    assert "open" in error.attrs and "ripgrep execution failed" in error.text
    todo = part(answer, "tool todowrite")
    assert len(todo.all("li")) == 3


def test_the_four_states_of_a_tool(site: Any, talk: Talk) -> None:
    for status, more in (
        ("pending", {"input": {}, "raw": '{"path": "half'}),
        ("running", {"input": {"command": "sleep 1"}, "time": {"start": START}}),
        ("completed", {"input": {"a": 1, "long": "x\ny"}, "output": "fine", "title": "T",
                       "time": {"start": START, "end": START + 2500, "compacted": START}}),
        ("error", {"input": "text", "error": "it broke", "time": {"start": START, "end": START + 90_000}}),
    ):  # fmt: skip
        talk.assistant(
            {
                "type": "tool",
                "tool": f"t-{status}",
                "callID": "c",
                "state": {"status": status, **more},
            }
        )
    answer = site.get(f"/sessions/{talk.id}")
    pending, running = part(answer, "t-pending"), part(answer, "t-running")
    assert '{"path": "half' in pending.text and "pending" in pending.text
    assert "sleep 1" in running.text and running.all(class_="b-warn")
    completed = part(answer, "t-completed").text
    assert (
        "2.5 s" in completed
        and "fine" in completed
        and "cleared from the model's view" in completed
    )
    failed = part(answer, "t-error").text
    assert "it broke" in failed and "1 min 30 s" in failed


def test_every_type_of_part_is_shown_and_an_unknown_one_as_json(site: Any, talk: Talk) -> None:
    parts: list[Any] = [
        {"type": "text", "text": "**bold** text", "synthetic": True},
        {"type": "reasoning", "text": "because", "time": {"start": START, "end": START + 1200}},
        {"type": "file", "mime": "text/plain", "filename": "n.txt", "url": "file:///home/demo/n.txt"},
        {"type": "patch", "hash": "abcdef", "files": ["/a/b.py", 7]},
        {"type": "step-start", "snapshot": "5nap"},
        {"type": "step-finish", "reason": "stop", "cost": 0.25,
         "tokens": {"input": 1234, "output": 5, "reasoning": 6, "cache": {"read": 7, "write": 8}}},
        {"type": "compaction", "auto": True, "tail": "kept"},
        {"type": "subtask", "agent": "general", "description": "look", "prompt": "Look well."},
        {"type": "agent", "name": "plan"},
        {"type": "retry", "attempt": 2, "error": {"name": "APIError", "data": {"message": "429"}}},
        {"type": "snapshot", "snapshot": "5nap2"},
        {"type": "hologram", "beams": [1, 2], "deep": {"er": None}},
        '{"type": "text", "text": "half',
        "[1, 2]",
        "",
        {"text": "no type"},
        {"type": "text", "text": {"not": "text"}},
        {"type": "tool", "tool": 5, "state": "odd"},
        {"type": ["a"], "x": 1},
    ]  # fmt: skip
    talk.assistant(*parts, futureField={"kept": True})
    answer = site.get(f"/sessions/{talk.id}")
    assert answer.status == 200
    shown = answer.doc.all(class_="part")
    assert len(shown) == len(parts) + 1
    texts = [node.text for node in shown]
    for number, words in enumerate((
        ("bold text", "synthetic"), ("because", "1.2 s"), ("file:///home/demo/n.txt", "text/plain"),
        ("/a/b.py", "abcdef"), ("5nap",), ("stop", "1,234 in", "5 out", "7 cache read", "$0.25"),
        ("automatic", "kept"), ("general", "Look well."), ("plan",), ("429", "APIError"), ("5nap2",),
        ("hologram", '"beams": [', '"er": null'), ('{"type": "text", "text": "half', "does not parse"),
        ("[1, 2]",), ("does not parse",), ('"no type"',), ('"not": "text"',), ("odd",), ('"x": 1',),
        ("futureField", '"kept": true'),
    )):  # fmt: skip
        for word in words:
            assert word in texts[number], (word, texts[number])
    assert answer.doc.all("strong")


def test_a_message_whose_json_does_not_parse_is_shown_as_it_is(site: Any, talk: Talk) -> None:
    talk.message('{"role": "user", "broken', {"type": "text", "text": "its part"})
    talk.user("The next one.")
    answer = site.get(f"/sessions/{talk.id}")
    assert '{"role": "user", "broken' in answer.main.text
    assert "its part" in answer.main.text and "The next one." in answer.main.text


def test_errors_and_unfinished_answers_are_told(site: Any, talk: Talk) -> None:
    failed = site.get(f"/sessions/{FAILED}")
    assert "failed" in [n.text for n in failed.doc.all(class_="badge")]
    assert "scripted failure" in part(failed, "APIError").text
    old = talk.message({"role": "assistant", "time": {"created": 1}})
    now = int(time.time() * 1000)
    fresh = talk.message({"role": "assistant", "time": {"created": now}}, at=now)
    answer = site.get(f"/sessions/{talk.id}")
    told = {n.attrs["id"]: n.one("header").text for n in answer.doc.all(class_="msg")}
    assert "interrupted, never finished" in told[old]
    assert "still being written" in told[fresh]


def test_todos_the_revert_point_and_the_other_sessions(site: Any) -> None:
    box = site.get(f"/sessions/{FIX}").doc.one(class_="todo-box")
    assert "1 of 3 done" in box.text and "Document the rounding rule" in box.text
    back = site.get(f"/sessions/{BACK}")
    banner = back.doc.one(class_="banner")
    assert "Reverted to before message 1" in banner.text
    target = banner.all("a")[0].attrs["href"]
    assert site.get(urlsplit(target).path).doc.one(class_="selected").attrs["id"] in target
    assert banner.one(class_="d-del").raw == "-oops"
    assert len(back.doc.all(class_="reverted")) == 5
    task = part(site.get(f"/sessions/{TASK}"), "tool task")
    child = site.get(next(a.attrs["href"] for a in task.all("a") if a.text == "its session"))
    assert child.status == 200
    parents = [
        a.attrs["href"] for a in child.main.all("a") if a.text == "the session that started it"
    ]
    assert parents == [f"/sessions/{TASK}"]


def test_the_newer_runtime_is_shown_alike(site: Any) -> None:
    answer = site.get(f"/sessions/{NEWER}")
    assert [n.one("h2").all("a")[0].text for n in answer.doc.all(class_="msg")] == [
        "model-switched", "user", "assistant", "user", "assistant", "assistant", "assistant"
    ]  # fmt: skip
    assert "Unable to find files" in part(answer, "tool glob").text
    link = part(answer, "tool glob").one("a", class_="type").attrs["href"]
    there = site.get(urlsplit(link).path)
    assert part(there, "tool glob").attrs["id"] == urlsplit(link).fragment.replace("%2F", "/")


def test_the_context_is_plotted_with_its_compactions_and_told_in_a_table(site: Any) -> None:
    answer = site.get(f"/sessions/{LONG}")
    chart = answer.doc.one(class_="chart")
    numbers, tokens = (json.loads(chart.attrs[f"data-{name}"]) for name in ("numbers", "tokens"))
    marks = json.loads(chart.attrs["data-marks"])
    assert len(numbers) == len(tokens) == 20 and len(marks) == 2 and set(marks) <= set(numbers)
    assert "2 compactions" in chart.attrs["aria-label"]
    rows = answer.doc.one("table").one("tbody").all("tr")
    assert [r.all("td")[2].text for r in rows] == [f"{n:,}" for n in tokens]
    assert sum("compacted" in r.text for r in rows) == 2
    assert site.get(urlsplit(rows[0].one("a").attrs["href"]).path).status == 200


# Paging and links -------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["oldest", "newest"])
def test_paging_both_ways_shows_each_message_once(site: Any, talk: Talk, order: str) -> None:
    talk.many(173)
    want = [f"msg_many{n:06d}" for n in range(173)]
    want = want if order == "oldest" else want[::-1]
    seen: list[str] = []
    path = f"/sessions/{talk.id}?order={order}"
    while path:
        answer = site.get(path)
        assert 0 < len(ids(answer)) <= 50
        seen += ids(answer)
        links = answer.doc.one(id="more").all("a", rel="next")
        path = links[0].attrs["href"] if links else ""
    assert seen == want
    back = ids(answer)
    while links := answer.doc.all("a", rel="prev"):
        answer = site.get(links[0].attrs["href"])
        back = ids(answer) + back
    assert back == want


def test_a_page_loaded_by_htmx_is_the_next_messages_and_nothing_else(site: Any, talk: Talk) -> None:
    talk.many(120)
    first = site.get(f"/sessions/{talk.id}")
    more = first.doc.one(id="more").one("a")
    assert more.attrs["hx-get"] == more.attrs["href"] and more.attrs["hx-target"] == "#more"
    got = site.fragment(more.attrs["hx-get"], "more")
    assert not got.is_page and len(ids(got)) == 50
    assert ids(got)[0] == "msg_many000050" and len(got.doc.all(id="more")) == 1
    assert "HX-Request" in got.headers["Vary"]
    assert got.html in site.get(more.attrs["href"]).html


def test_a_link_to_a_message_or_a_part_opens_the_page_that_holds_it(site: Any, talk: Talk) -> None:
    talk.many(173)
    for order in ("oldest", "newest"):
        for n in (0, 49, 50, 99, 172):
            for path in (f"/sessions/{talk.id}/msg_many{n:06d}?order={order}",
                         f"/sessions/{talk.id}?at=msg_many{n:06d}&order={order}",
                         f"/sessions/{talk.id}?at=prt_many{n:06d}&order={order}"):  # fmt: skip
                answer = site.get(path)
                assert answer.doc.one(class_="selected").attrs["id"] == f"msg_many{n:06d}"
                assert answer.doc.all(data_here="")
                assert f"prt_many{n:06d}" in [p.attrs["id"] for p in answer.doc.all(class_="part")]
    for node in answer.doc.all(class_="msg"):
        for link in (node.one("h2").one("a"), *node.all("a", class_="type")):
            path, _, anchor = link.attrs["href"].partition("#")
            assert anchor in (node.attrs["id"], node.all(class_="part")[0].attrs["id"])
            assert path == f"/sessions/{talk.id}/{node.attrs['id']}"


def test_an_odd_id_is_linked_so_that_it_is_found(site: Any, talk: Talk) -> None:
    for name in ("a/b", "..", "?x=1#y", 'q"<b>', "日本", "%2F", "a b"):
        talk.sql("INSERT INTO message (id, session_id, time_created, time_updated, data)"
                 " VALUES (?, ?, 1, 1, '{}')", name, talk.id)  # fmt: skip
    answer = site.get(f"/sessions/{talk.id}")
    assert len(ids(answer)) == 7
    for node in answer.doc.all(class_="msg"):
        there = site.get(node.one("h2").one("a").attrs["href"].partition("#")[0])
        assert there.doc.one(class_="selected").attrs["id"] == node.attrs["id"]
    answer.assert_inert()


@pytest.mark.parametrize(
    "path", ["/msg_nosuch", "?at=prt_nosuch", "?after=zzz", "?before=%00", "?at=%ff"]
)
def test_an_unknown_message_is_a_404_with_a_link_to_the_session(site: Any, path: str) -> None:
    answer = site.get(f"/sessions/{FIX}{path}")
    assert answer.status == 404
    assert "has no message" in answer.doc.one(role="alert").text
    assert f"/sessions/{FIX}" in [a.attrs["href"] for a in answer.main.all("a")]


def test_an_unknown_order_is_refused(site: Any) -> None:
    assert site.get(f"/sessions/{FIX}?order=sideways").status == 400


def test_many_parts_of_one_message_are_shown_when_they_are_asked_for(site: Any, talk: Talk) -> None:
    talk.assistant(*({"type": "agent", "name": f"a{n}"} for n in range(320)))
    answer = site.get(f"/sessions/{talk.id}")
    assert len(answer.doc.all(class_="part")) == 300
    (link,) = [a for a in answer.main.all("a") if a.text == "Show all of them"]
    assert "20 more parts" in answer.text
    assert len(site.get(link.attrs["href"].partition("#")[0]).doc.all(class_="part")) == 320


def test_a_message_of_very_many_parts_stays_a_bearable_page(
    site: Any, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.web.parts.EVERY_PART", 310)
    monkeypatch.setattr("webapp.web.contextview.PIECES", 310)
    message = talk.assistant(*({"type": "text", "text": f"Text {n}."} for n in range(320)))
    answer = site.get(f"/sessions/{talk.id}/{message}?parts=all")
    assert len(answer.doc.all(class_="part")) == 310
    assert "10 more parts of this message are not shown. Its transcript has all." in answer.text
    seen = site.get(f"/context/{talk.id}")
    assert "10 more parts of this message are not shown here" in seen.text
    assert "Text 309." in seen.text and "Text 310." not in seen.text


# What is not there, or cannot be read -----------------------------------------------------------


def test_an_empty_session_says_so(site: Any) -> None:
    answer = site.get(f"/sessions/{EMPTY}")
    assert answer.status == 200 and "No messages" in answer.main.text


def test_an_unknown_session_is_a_404_with_a_sentence_and_a_link(site: Any) -> None:
    answer = site.get("/sessions/ses_nosuch")
    assert answer.status == 404
    assert "OpenCode has no session ses_nosuch" in answer.doc.one(role="alert").text
    assert "/transcripts" in [a.attrs["href"] for a in answer.main.all("a")]


def test_a_session_that_opencode_removed_leads_to_its_transcript(
    site: Any, newest_db: Path
) -> None:
    site.export_all()
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("DELETE FROM session WHERE id = ?", (FIX,))
    answer = site.get(f"/sessions/{FIX}")
    assert answer.status == 404 and "its transcript is kept" in answer.text
    assert f"/transcripts/{FIX}" in [a.attrs["href"] for a in answer.main.all("a")]


def _missing(db: Path) -> None:
    db.unlink()


def _empty(db: Path) -> None:
    db.write_bytes(b"")


def _corrupt(db: Path) -> None:
    db.write_bytes(b"no database at all, " * 500)


def _newer(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("ALTER TABLE session RENAME COLUMN time_updated TO touched_at")


def _other_messages(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("ALTER TABLE message RENAME COLUMN data TO content")


@pytest.mark.parametrize(
    ("harm", "words"),
    [(_missing, "is not there"), (_empty, "is empty"), (_corrupt, "damaged or no SQLite database"),
     (_newer, "layout that this version does not know"), (_other_messages, "“message” lacks data")],
)  # fmt: skip
def test_a_database_that_cannot_be_read_says_why_and_the_rest_works(
    site: Any, newest_db: Path, harm: Callable[[Path], None], words: str
) -> None:
    site.save("An entry")
    harm(newest_db)
    answer = site.get(f"/sessions/{FIX}")
    assert answer.status == 503 and words in answer.doc.one(role="alert").text
    for path in ("/", "/transcripts", "/stats"):
        assert site.get(path).status == 200


def test_a_locked_database_says_so(
    site: Any, newest_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.opencode.database.BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(newest_db, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        answer = site.get(f"/sessions/{FIX}")
    assert answer.status == 503 and "locked by another program" in answer.text


def test_without_any_database_the_page_says_how_to_name_it(
    settings: Settings, make_site: Any
) -> None:
    answer = make_site(settings).get(f"/sessions/{FIX}")
    assert answer.status == 404 and "--opencode-db" in answer.doc.one(role="alert").text


# Hostile and huge data --------------------------------------------------------------------------


def hostile_parts() -> list[Any]:
    value: Any = {EVIL: [EVIL, {EVIL: EVIL}]}
    diff = f"--- {EVIL}\n+{EVIL}\n-{EVIL}\n@@ {EVIL}"
    attached = {"mime": EVIL, "filename": EVIL, "url": f"javascript:{EVIL}"}
    state = {"status": EVIL, "input": value, "output": EVIL, "error": EVIL, "title": EVIL,
             "metadata": {"diff": diff, EVIL: EVIL, "sessionId": EVIL},
             "attachments": [attached, EVIL]}  # fmt: skip
    kinds = ("text", "reasoning", "tool", "file", "patch", "step-start", "step-finish", "compaction",
             "subtask", "agent", "retry", "snapshot", "shell", "skill", EVIL)  # fmt: skip
    return [
        {"type": kind, "text": f"{EVIL}\n\n[a](javascript:alert(4)) ![b](http://evil.example/p.png) <b>",
         "tool": EVIL, "state": state, "mime": EVIL, "filename": EVIL, "url": EVIL, "hash": EVIL,
         "files": [EVIL], "reason": EVIL, "tokens": value, "cost": EVIL, "snapshot": EVIL, "auto": EVIL,
         "name": EVIL, "agent": EVIL, "error": {"name": EVIL, "data": {"message": EVIL}}, EVIL: EVIL}
        for kind in kinds
    ]  # fmt: skip


def test_hostile_text_is_inert_in_every_part(site: Any, newest_db: Path) -> None:
    talk = Talk(newest_db, title=EVIL)
    talk.message({"role": EVIL, "agent": EVIL, "modelID": EVIL, "finish": EVIL, EVIL: EVIL,
                  "error": {"name": EVIL, "message": EVIL, "data": EVIL},
                  "summary": {"diffs": [{"file": EVIL, "patch": EVIL}, EVIL]}},
                 *hostile_parts())  # fmt: skip
    talk.message(f'{{"{EVIL}', f'{{"{EVIL}')
    talk.sql("UPDATE session SET revert = ?, parent_id = ?, version = ? WHERE id = ?",
             json.dumps({"messageID": EVIL, "diff": EVIL}), EVIL, EVIL, talk.id)  # fmt: skip
    talk.sql("INSERT INTO todo (session_id, content, status, priority, position, time_created,"
             " time_updated) VALUES (?, ?, ?, ?, 0, 1, 1)", talk.id, EVIL, EVIL, EVIL)  # fmt: skip
    for path in (f"/sessions/{talk.id}", f"/sessions/{talk.id}?order=newest"):
        answer = site.get(path)
        assert answer.status == 200
        assert_inert(answer)
        assert answer.text.count("<script>alert(1)</script>") > 60
        assert "49" not in re.findall(r"onload=alert\(3\)>.{0,20}", answer.html)
    assert_inert(site.fragment(f"/sessions/{talk.id}", "more"))


def test_only_small_images_of_known_kinds_become_images(site: Any, talk: Talk) -> None:
    good = {
        "png": PNG,
        "gif": "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
        "jpeg": "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQEA",
    }
    bad = (
        "http://evil.example/p.png", "https://evil.example/p.png", "//evil.example/p.png", "file:///a.png",
        "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+",
        "data:text/html;base64,PHNjcmlwdD4=AAAAAAAA",
        "data:image/png,<svg>", 'data:image/png;base64,iVBORw0KGgoAAAAA" onerror="alert(1)',
        "data:image/png;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+", PNG + "A" * 1_000_000,
        "DATA:image/png;base64,iVBORw0KGgoAAAA",
    )  # fmt: skip
    talk.assistant(*({"type": "file", "mime": "image/png", "filename": f"f{n}", "url": url}
                     for n, url in enumerate((*good.values(), *bad))))  # fmt: skip
    talk.assistant(
        {
            "type": "tool",
            "tool": "read",
            "state": {"status": "completed", "attachments": [{"mime": "image/png", "url": PNG}]},
        }
    )
    answer = site.get(f"/sessions/{talk.id}")
    assert [img.attrs["src"] for img in answer.doc.all("img")] == [*good.values(), PNG]
    assert_inert(answer)
    for n in range(len(good), len(good) + len(bad)):
        (node,) = (p for p in answer.doc.all(class_="part") if p.all("strong")[0].text == f"f{n}")
        assert node.all("dl")
    assert len(answer.body) < 100_000


def test_credentials_are_masked_wherever_they_stand(site: Any, newest_db: Path) -> None:
    talk = Talk(newest_db, title=f"Use {KEY}")
    escaped = "".join(f"\\u{ord(char):04x}" if n % 3 else char for n, char in enumerate(KEY))
    state = {"status": "completed", "input": {"command": f"curl {KEY}", KEY: {"deep": [KEY]}},
             "output": f"x {KEY}", "error": KEY, "title": KEY, "raw": f'{{"a": "{escaped}',
             "metadata": {"diff": f"+{KEY}", "k": KEY},
             "attachments": [{"filename": KEY, "url": f"file:///{KEY}"}]}  # fmt: skip
    talk.message(
        {"role": "assistant", "agent": KEY, "error": {"name": "E", "data": {"message": KEY}}, "more": KEY},
        {"type": "text", "text": f"A **{KEY}** and ghp\\_{KEY[4:]}"}, {"type": "reasoning", "text": KEY},
        {"type": "tool", "tool": "bash", "state": state}, {"type": "odd", "a": KEY},
        f'{{"broken": "{KEY}', f'{{"broken": "{escaped}',
        {"type": "text", "text": "y" * 19_990 + " " + KEY},
        {"type": "subtask", "prompt": KEY, "agent": KEY}, {"type": "patch", "files": [KEY], "hash": KEY},
    )  # fmt: skip
    talk.sql("INSERT INTO todo (session_id, content, status, priority, position, time_created,"
             " time_updated) VALUES (?, ?, 'x', 'y', 0, 1, 1)", talk.id, f"Rotate {KEY}")  # fmt: skip
    talk.sql("UPDATE session SET revert = ? WHERE id = ?",
             json.dumps({"messageID": "m", "diff": f"-{KEY}"}), talk.id)  # fmt: skip
    answer = site.get(f"/sessions/{talk.id}")
    assert answer.status == 200
    for text in (answer.html, answer.text):
        assert KEY not in text and KEY[4:20] not in text and escaped[:60] not in text
    assert answer.text.count("[masked 40]") >= 20
    assert KEY not in site.get(f"/sessions/{KEYS}").html


def test_a_text_and_an_output_of_5_mb_do_not_hold_the_page_up(site: Any, talk: Talk) -> None:
    huge = "word <b> **x** [y](z) \x1b[31m\u202e\n" * 170_000
    state = {
        "status": "completed",
        "input": {"content": huge},
        "output": huge,
        "metadata": {"diff": huge},
    }
    talk.message(
        {"role": "user", "summary": {"diffs": [{"file": "f", "patch": huge}]}},
        {"type": "text", "text": huge}, {"type": "text", "text": "#" * 5_000_000},
        {"type": "tool", "tool": "write", "state": state}, {"type": "odd", "list": [huge]},
        '{"broken": "' + huge,
    )  # fmt: skip
    started = time.monotonic()
    answer = site.get(f"/sessions/{talk.id}")
    assert answer.status == 200
    assert time.monotonic() - started < 10
    assert len(answer.body) < 3_000_000
    assert "characters are not shown" in answer.text
    links = [a.attrs["href"] for a in answer.main.all("a") if a.text == "Read on in the transcript"]
    assert f"/transcripts/{talk.id}" in links
    assert_inert(answer)


def test_a_page_of_long_texts_stays_within_its_limit(site: Any, talk: Talk) -> None:
    for _ in range(50):
        talk.assistant(*({"type": "text", "text": "long " * 10_000} for _ in range(6)))
    answer = site.get(f"/sessions/{talk.id}")
    assert len(ids(answer)) == 50 and len(answer.body) < 3_000_000


@pytest.mark.parametrize("value", ["\\ud800", "\\udfff half"])
def test_half_a_surrogate_is_shown(site: Any, talk: Talk, value: str) -> None:
    talk.message(f'{{"role": "{value}", "agent": "{value}", "{value}": 1}}',
                 f'{{"type": "{value}", "x": "{value}"}}',
                 f'{{"type": "tool", "tool": "task", "state": {{"metadata": {{"sessionId": "{value}"}}}}}}',
                 f'{{"type": "text", "text": "{value}"}}')  # fmt: skip
    assert site.get(f"/sessions/{talk.id}").status == 200


def test_odd_numbers_and_shapes_are_survived(site: Any, talk: Talk) -> None:
    for odd in ("1e999", "-1", "1" * 400, "null", "true", '"x"', "[]", '{"a": 1}', "NaN", "0.1"):
        talk.message(
            f'{{"role": "assistant", "cost": {odd}, "tokens": {odd}, "time": {odd}, "error": {odd},'
            f' "model": {odd}, "summary": {odd}, "agent": {odd}, "finish": {odd}}}',
            f'{{"type": "step-finish", "cost": {odd}, "tokens": {odd}, "reason": {odd}}}',
            f'{{"type": "step-start", "snapshot": {odd}}}',
            f'{{"type": "step-finish", "cost": 1, "tokens": {{"input": {odd}, "cache": {odd}}}}}',
            f'{{"type": "tool", "tool": {odd}, "state": {odd}}}',
            f'{{"type": "tool", "state": {{"status": {odd}, "input": {odd}, "output": {odd}, "time": {odd},'
            f' "metadata": {odd}, "attachments": {odd}, "error": {odd}, "title": {odd}, "raw": {odd}}}}}',
            f'{{"type": "tool", "state": {{"input": {{"todos": {odd}}}}}}}',
            f'{{"type": "tool", "state": {{"time": {{"start": {odd}, "end": {odd}}}}}}}',
            f'{{"type": "patch", "files": {odd}, "hash": {odd}}}', f'{{"type": {odd}}}', f"{odd}",
            f'{{"type": "file", "url": {odd}, "mime": {odd}, "filename": {odd}}}',
            f'{{"type": "retry", "error": {odd}, "name": {odd}}}',
            f'{{"type": "reasoning", "text": "t", "time": {{"start": {odd}, "end": {odd}}}}}',
        )  # fmt: skip
    answer = site.get(f"/sessions/{talk.id}")
    assert answer.status == 200 and len(ids(answer)) == 10
    talk.message(
        {"role": "user"}, "[" * 100_000, '{"type": "odd", "a": ' + "[" * 900 + "]" * 900 + "}"
    )
    for revert in ("[]", "1", "{", '{"messageID": 5}', '{"messageID": {"a": 1}, "diff": 5}'):
        talk.sql("UPDATE session SET revert = ? WHERE id = ?", revert, talk.id)
        assert site.get(f"/sessions/{talk.id}").status == 200, revert


# What is read -----------------------------------------------------------------------------------


def test_a_long_session_costs_as_many_statements_as_a_short_one(
    site: Any, newest_db: Path, trace: Trace
) -> None:
    short, long = Talk(newest_db, "ses_short"), Talk(newest_db, "ses_long")
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        for table in ("part", "message"):
            connection.execute(f"DELETE FROM {table}")
    long.many(5_000)
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        for table in ("message", "part"):
            names = "session_id, time_created, time_updated, data" + (
                ", message_id" if table == "part" else ""
            )
            changed = names.replace("session_id", "'ses_short'").replace(
                "message_id", "'s' || message_id"
            )
            connection.execute(
                f"INSERT INTO {table} (id, {names}) SELECT 's' || id, {changed} FROM {table}"
                " WHERE substr(id, 9) BETWEEN '000100' AND '000150'"
            )
    counts = []
    site.get("/settings")  # after it the number of sessions in the rail is known
    for talk in (short, long):
        for path in ("", "?order=newest"):
            trace.clear()
            answer = site.get(f"/sessions/{talk.id}{path}")
            assert len(ids(answer)) == 50
            counts.append(len(trace.statements))
            read = [text for text in trace.statements if "FROM part" in text]
            asked = {
                match[1]
                for text in read
                if (match := re.search(r"message_id = CAST\((x?'[^']*')", text.lower()))
            }
            assert len(read) <= 52 and len(asked) in (0, 50)
            trace.assert_frugal(newest_db)
    assert len(set(counts)) == 1 and counts[0] < 100
    chart = answer.doc.one(class_="chart")
    assert len(json.loads(chart.attrs["data-numbers"])) <= 402
    assert json.loads(chart.attrs["data-marks"]) == [2002]


def test_the_parts_of_other_messages_are_never_read(site: Any, talk: Talk, newest_db: Path) -> None:
    talk.many(120)
    # A page of the file with the part of another message on it is damaged: whoever reads it fails.
    talk.sql("UPDATE part SET data = ? WHERE id = 'prt_many000100'", "MARK" + "z" * 20_000)
    data = bytearray(newest_db.read_bytes())
    answer = site.get(f"/sessions/{talk.id}")
    assert "MARK" not in answer.html and bytes(data).count(b"MARKz") == 1
    assert "MARK" in site.get(f"/sessions/{talk.id}/msg_many000100").html


# Marks ------------------------------------------------------------------------------------------


def test_lines_are_looked_up_in_long_marks_without_parsing_them_all(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    rows, line = [], 9
    for n in range(40_000):
        rows.append(files.Mark(line, "message:user", f"msg_{n}", "d" * 16, f"\tmsg_{n}\t").dump())
        rows += [
            files.Mark(line + k, "tool", f"prt_{n}_{k}", "d" * 16, "x" * 40).dump()
            for k in (1, 2, 3)
        ]
        line += 10
    files.marks_path(path).write_text("".join(rows))
    assert files.marks_path(path).stat().st_size > 10_000_000
    started = time.monotonic()
    found = files.lines_of(path, [f"msg_{n}" for n in range(39_000, 39_050)])
    assert time.monotonic() - started < 1
    assert all(found[f"msg_{n}"] == 9 + 10 * n for n in range(39_000, 39_050))
    assert found["prt_39049_3"] == 9 + 10 * 39_049 + 3
    assert len(found) < 20_000
    assert files.lines_of(path, ["msg_0"])["msg_0"] == 9
    assert files.lines_of(path, ["msg_nosuch"]) == {}
    assert files.lines_of(tmp_path / "none.md", ["msg_0"]) == {}


def test_a_message_that_is_continued_stands_where_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    marks = [("message:user", "odd\tid", 3), ("end", "odd\tid", 4), ("message:assistant", "b", 5),
             ("message:user", "odd\tid", 9), ("text", "p", 10)]  # fmt: skip
    files.marks_path(path).write_text(
        "".join(files.Mark(n, kind, id, "d", "").dump() for kind, id, n in marks)
    )
    assert files.lines_of(path, ["odd\tid", "b"]) == {"odd\tid": 3, "b": 5, "p": 10}


def test_every_link_of_a_session_leads_somewhere(site: Any) -> None:
    site.export_all()
    for session in (FIX, BACK, TASK, NEWER):
        answer = site.get(f"/sessions/{session}")
        places = set()
        for node in answer.main.all("a"):
            parts = urlsplit(urljoin(f"http://localhost{answer.path}", node.attrs["href"]))
            if parts.netloc == "localhost":
                places.add(parts._replace(scheme="", netloc="", fragment="").geturl())
        for path in sorted(places)[::3]:
            assert site.get(path).status == 200, path


def test_what_a_person_typed_is_shown_as_it_is_and_an_unfinished_answer_cannot_be_promoted(
    site: Any, talk: Talk
) -> None:
    now = int(time.time() * 1000)
    said = "2*3*4 and __init__\n  indented"
    asked = talk.message({"role": "user", "time": {"created": now}},
                         {"type": "text", "text": said}, at=now - 60_000)  # fmt: skip
    running = talk.message({"role": "assistant", "time": {"created": now}}, at=now)
    answer = site.get(f"/sessions/{talk.id}")
    assert said in answer.main.one(id=asked).one("div", class_="said").raw
    assert "promote" in answer.main.one(id=asked).text
    assert "promote" not in answer.main.one(id=running).text


def test_the_tokens_of_a_session_are_those_of_the_list(site: Any) -> None:
    page = site.get(f"/sessions/{LONG}")
    (told,) = re.findall(r"([\d,]+) tokens in all", page.text)
    (item,) = overview.page([site.settings.opencode_db], overview.Filter(text=LONG)).items
    assert item.tokens is not None
    assert int(told.replace(",", "")) == item.tokens.total
