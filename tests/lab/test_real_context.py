"""What is shown of a session's context, held against what a real OpenCode goes on to send."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import NEEDS_LAB, Played, play
from webapp.opencode import History, Why, find_session, messages, reading, seen_by_model

CONFIG = {"compaction": {"auto": False, "preserve_recent_tokens": 1500}}
TITLE = "Count the rows"
SCENARIO = {
    "summary": "## Objective\n- Count the rows.",
    "sessions": [
        {
            "title": TITLE,
            "turns": [
                {"user": f"Count {what}, please.", "steps": [
                    {"tool": "bash", "args": {"command": f"seq -f '{what} %04.0f' 1 150",
                                              "description": "Count"}, "think": "Look first."},
                    {"text": f"There are 150 {what}."},
                ]}
                for what in ("rows", "columns", "sheets", "cells")
            ],
        }
    ],
}  # fmt: skip

pytestmark = NEEDS_LAB


class Lab:
    """A running OpenCode, its database and what its model is sent."""

    def __init__(self, played: Played) -> None:
        self.port, self.db, self.log = played.port, played.db, played.log
        self.session = played.sessions[TITLE]

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/session/{self.session}{path}",
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    @property
    def version(self) -> str:
        """The version that the session names."""
        session, _ = find_session([self.db], self.session)
        assert session is not None
        return session.version

    def shown(self, **moment: Any) -> History:
        """What is shown of the session now."""
        session, problems = find_session([self.db], self.session)
        assert session is not None and problems == []
        with reading(self.db) as connection:
            rows = list(messages(connection, self.session, int(time.time() * 1000)))
        return seen_by_model(rows, revert=session.revert, version=session.version, **moment)

    def sent_for(self, text: str) -> list[dict[str, Any]]:
        """Says something, and returns what the model was sent first."""
        before = len(self.log.read_text().splitlines())
        self.call("/message", {"parts": [{"type": "text", "text": text}]})
        request = json.loads(self.log.read_text().splitlines()[before])
        return [m for m in request["body"]["messages"] if m["role"] != "system"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A real OpenCode that has played SCENARIO and waits for more."""
    with play(tmp_path, SCENARIO, CONFIG) as played:
        yield Lab(played)


def test_what_is_shown_is_what_is_sent_next(lab: Lab, wire: Any) -> None:
    views = []
    for step in ("whole", "compacted", "gone on", "compacted again", "taken back"):
        if step.startswith("compacted"):
            lab.call("/summarize", {"providerID": "scripted", "modelID": "m1"})
        if step == "taken back":
            prompts = [m for m in lab.call("/message") if m["info"]["role"] == "user"]
            lab.call("/revert", {"messageID": prompts[-1]["info"]["id"]})
        shown = lab.shown()
        views.append(shown)
        prompt = f"Is this {step}?"
        expected = [*wire.as_sent(shown.items), ("user", (prompt,))]
        sent = wire.as_received(lab.sent_for(prompt))
        if any("1.14.34" in doubt for doubt in shown.doubts):
            assert expected != sent
            expected, sent = sorted(expected, key=repr), sorted(sent, key=repr)
        else:
            assert shown.certain, shown.doubts
        assert expected == sent, step
    assert {item.why for item in views[0].items} == {Why.WHOLE}
    retains = not lab.version.startswith(("1.2.", "1.3."))
    assert {item.why for item in views[1].items} == {Why.SUMMARY, *[Why.TAIL] * retains}
    assert views[4].reverted and not views[3].reverted
    first = views[1].compactions[0]
    assert lab.shown(after=first.id).items == views[1].items
