"""The promise “line N never changes”, kept beside a real OpenCode that goes on working."""

from __future__ import annotations

import itertools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.lab.conftest import NEEDS_LAB, Played, play
from webapp.opencode import find_session, list_sessions, news, reading, version
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import library
from webapp.transcripts import news as transcript_news
from webapp.transcripts.export import export

CONFIG = {"compaction": {"prune": True, "auto": False}}
PLANTED = "PLANTED-IN-THE-LAB-4711"
SCENARIO = {
    "summary": "## Objective\n- Count the rows.",
    "sessions": [
        {
            "title": "Count the rows",
            "turns": [
                {"user": "Count the rows, please.", "steps": [
                    {"tool": "bash", "args": {"command": f"echo '{PLANTED} rows=900'",
                                              "description": "Count"}},
                    {"text": "There are 900 rows."},
                ]},
                {"user": "And the columns?", "steps": [{"text": "Seven columns."}]},
                {"user": "Write a note.", "steps": [
                    {"tool": "write", "args": {"filePath": "{PROJECT}/note.txt", "content": "x\n"}},
                    {"text": "Written."},
                ]},
                {"user": "One more thing.", "steps": [{"text": "Yes?"}]},
                # Of these outputs 40,000 tokens stay in view, and what is older goes if it is 20,000.
                {"user": "Read a lot.", "steps": [
                    *({"tool": "bash", "args": {"command": f"seq -f 'number {n} %06.0f of many' 1 1900",
                                                "description": f"Read {n}"}} for n in range(9)),
                    {"text": "Read."},
                ]},
            ],
        }
    ],
}  # fmt: skip

pytestmark = NEEDS_LAB


class Lab:
    """A running OpenCode and its database."""

    def __init__(self, played: Played) -> None:
        self.port, self.db = played.port, played.db
        self.session = played.sessions["Count the rows"]

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/session/{self.session}{path}",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def say(self, text: str) -> None:
        self.post("/message", {"parts": [{"type": "text", "text": text}]})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A real OpenCode that has played SCENARIO and waits for more."""
    with play(tmp_path_factory.mktemp("opencode"), SCENARIO, CONFIG) as played:
        yield Lab(played)


def settled(lab: Lab, store: Store, settings: Settings) -> bytes:
    """Exports until nothing is being written any more, and returns the transcript."""
    deadline = time.monotonic() + 20
    while True:
        session, problems = find_session([lab.db], lab.session)
        assert session is not None and problems == []
        done = export(store, settings, session, now=int(time.time() * 1000) + 60_000)
        if not done.unfinished or time.monotonic() > deadline:
            assert done.unfinished == 0
            return done.path.read_bytes()
        time.sleep(0.3)


def until(read: Callable[[], bytes], wanted: bytes) -> bytes:
    """What `read` answers once `wanted` stands in it."""
    deadline = time.monotonic() + 20
    while wanted not in (found := read()):
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.3)
    return found


def test_no_line_moves_while_a_session_is_continued_compacted_reverted_and_pruned(
    lab: Lab, store: Store, settings: Settings
) -> None:
    settings = replace(settings, opencode_db=lab.db)
    texts = [settled(lab, store, settings)]
    assert PLANTED.encode() in texts[0]

    lab.say("Ask me again: And the columns?")
    texts.append(settled(lab, store, settings))

    lab.post("/summarize", {"providerID": "scripted", "modelID": "m1"})
    texts.append(settled(lab, store, settings))
    assert b"compaction summary" in texts[-1] and b"- Count the rows." in texts[-1]

    lab.say("Is anything left?")
    texts.append(settled(lab, store, settings))
    assert b"echo: Is anything left?" in texts[-1]

    with urllib.request.urlopen(
        f"http://127.0.0.1:{lab.port}/session/{lab.session}/message", timeout=30
    ) as answer:
        last_user = [m["info"]["id"] for m in json.load(answer) if m["info"]["role"] == "user"][-1]
    lab.post("/revert", {"messageID": last_user})
    texts.append(settled(lab, store, settings))
    assert b"was taken back" in texts[-1].removeprefix(texts[-2])

    lab.say("Go on from here.")
    texts.append(settled(lab, store, settings))
    assert b"is no longer in OpenCode" in texts[-1].removeprefix(texts[-2])
    assert b"echo: Go on from here." in texts[-1]

    for text in ("Read a lot.", "And now?", "And then?", "Well?"):
        lab.say(text)
    texts.append(until(lambda: settled(lab, store, settings), b"has left the model's view"))
    assert texts[-1].count(b"number 0 000001 of many") >= 1

    for earlier, later in itertools.pairwise(texts):
        assert later.startswith(earlier), "a line above the end has changed"
        assert len(later) > len(earlier)
    assert settled(lab, store, settings) == texts[-1]


def test_its_database_is_neither_locked_nor_changed_by_reading(
    lab: Lab, store: Store, settings: Settings
) -> None:
    settings = replace(settings, opencode_db=lab.db)
    settled(lab, store, settings)
    before = {p.name: p.stat().st_size for p in lab.db.parent.glob("opencode.db*")}
    for _ in range(20):
        assert list_sessions([lab.db]).problems == ()
    after = {p.name: p.stat().st_size for p in lab.db.parent.glob("opencode.db*")}
    assert after == before
    lab.say("Still able to write?")
    assert b"Still able to write?" in settled(lab, store, settings)


def test_what_is_told_as_new_is_what_an_export_then_appends(
    lab: Lab, store: Store, settings: Settings
) -> None:
    settings = replace(settings, opencode_db=lab.db)
    settled(lab, store, settings)
    before = library.get(store, settings, lab.session).lines
    held = transcript_news.Seen(before, before)
    with reading(lab.db) as connection:
        seen = news.seen(connection, lab.session)
        assert news.since(connection, lab.session, seen) == news.News()
    was = version([lab.db])
    lab.say("Ask me again: And the columns?")
    assert version([lab.db]) != was
    later = int(time.time() * 1000) + 60_000
    _, database = transcript_news.place(store, settings, lab.session)
    told = transcript_news.since(store, settings, lab.session, database, held, later)
    with reading(lab.db) as connection:
        found = news.since(connection, lab.session, seen)
    assert len(found.messages) == 2 and found.complete and not found.changed
    settled(lab, store, settings)
    assert told.lines == library.get(store, settings, lab.session).lines - before > 0
