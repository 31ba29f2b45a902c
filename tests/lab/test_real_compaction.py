"""A real OpenCode whose compaction agent has our endpoint as its model: a compaction takes no call of a
model, and what was there before it is found again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import NEEDS_LAB, Played, play
from webapp.integration import token
from webapp.settings import Settings, load

ROOT = Path(__file__).parents[2]
PLANTED = "PLANTED-BEFORE-THE-COMPACTION-815"
REQUEST = "Now rename the column, please."
SECRET = "ghp_" + "Zk3Wq9Lm5Rt7Vy1Bx8Nc2Hd6Jf4Gs0PaQe3T"
RECALL = "What was the old name?"
TITLE = "Rename a column"
MODEL_MADE = "a summary that a model made"
SCENARIO = {
    "summary": MODEL_MADE,
    "sessions": [
        {"title": TITLE, "turns": [
            {"user": f"The old name is {PLANTED}.", "steps": [{"text": "Noted."}]},
            {"user": f"{REQUEST} {SECRET}", "steps": [{"text": "Renamed."}]},
        ]},
        # The model knows this turn once it was played; the test asks it again in the first session.
        {"title": "Elsewhere", "turns": [
            {"user": RECALL, "steps": [
                {"tool": "memory_session_search", "args": {"query": "PLANTED-BEFORE"}},
                {"text": "That one."},
            ]},
        ]},
    ],
}  # fmt: skip

pytestmark = NEEDS_LAB


@dataclass(frozen=True)
class Lab:
    """A real OpenCode, our server beside it, and the session that both know."""

    played: Played
    settings: Settings

    @property
    def session(self) -> str:
        return self.played.sessions[TITLE]

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """What OpenCode's API answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.played.port}/session/{self.session}{path}",
            None if body is None else json.dumps(body).encode(), {"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())

    def say(self, text: str) -> Any:
        return self.call("/message", {"parts": [{"type": "text", "text": text}]})

    def compact(self) -> float:
        """Compacts as a person does; how long it took, in seconds."""
        begun = time.monotonic()
        self.call("/summarize", {"providerID": "scripted", "modelID": "m1"})
        return time.monotonic() - begun

    def summaries(self) -> list[str]:
        """The texts of the summaries in the order in which they were written."""
        return [
            "".join(part.get("text", "") for part in message["parts"] if part["type"] == "text")
            for message in self.call("/message") if message["info"].get("summary") is True
        ]  # fmt: skip

    def asked_for_a_summary(self) -> list[dict[str, Any]]:
        """The requests of a compaction that reached the scripted model."""
        return [
            r for r in self.played.requests() if "summar" in json.dumps(r["body"]["messages"][-1])
        ]


def serve(data_dir: Path, opencode_db: Path) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """Our server on a free port, and what it says of itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "webapp", "serve", "--port", "0", "--json", "--data-dir", str(data_dir),
         "--opencode-db", str(opencode_db)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if line == "}\n":
            break
    return process, json.loads(told)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """OpenCode with our tools and our endpoint, after two turns of a session."""
    folder = tmp_path_factory.mktemp("opencode")
    root = folder / "lab"
    data, db = root / "data" / "opencode-memory", root / "data" / "opencode" / "opencode.db"
    settings = load({"data_dir": data, "opencode_db": db}, {"HOME": str(root)})
    token.ensure(settings)
    process, told = serve(data, db)
    tools = [sys.executable, "-m", "webapp", "mcp"]
    config = {
        "mcp": {"memory": {"type": "local", "command": tools,
                           "environment": {"PYTHONPATH": str(ROOT), "OPENCODE_MEMORY_KEEP_SERVING": "0"}}},
        "agent": {"compaction": {"model": "opencode-memory/pointer"}},
        "provider": {"opencode-memory": {
            "npm": "@ai-sdk/openai-compatible", "name": "opencode-memory",
            "options": {"baseURL": told["url"] + "v1", "apiKey": f"{{file:{token.path(settings)}}}"},
            "models": {"pointer": {"name": "pointer", "limit": {"context": 1_000_000, "output": 8_000}}},
        }},
    }  # fmt: skip
    assert process.stdout is not None
    try:
        with closing(process.stdout), play(folder, SCENARIO, config) as played:
            yield Lab(played, settings)
    finally:
        process.terminate()
        process.wait(20)


def test_compactions_are_answered_with_the_pointer_and_lose_nothing(lab: Lab) -> None:
    lab.compact()
    (first,) = lab.summaries()
    path = next(lab.settings.transcripts_dir.glob(f"*/{lab.session}.md"))
    lines = path.read_text().split("\n")
    assert str(path) in first and lab.session in first
    assert f"> {REQUEST} ghp_…[masked" in first
    number = int(first.split("user (line ")[1].split(")")[0].replace(",", ""))
    assert REQUEST in "\n".join(lines[number - 1 : number + 4])

    lab.say(RECALL)
    calls = [part for message in lab.call("/message")[-3:] for part in message["parts"]
             if part["type"] == "tool"]  # fmt: skip
    assert [call["tool"] for call in calls] == ["memory_session_search"]
    assert f": The old name is {PLANTED}." in calls[0]["state"]["output"]

    lab.compact()
    second = lab.summaries()[-1]
    assert len(lab.summaries()) == 2 and second != first
    at = int(second.split("stands in line ")[1].split(",", 1)[0])
    assert "compaction summary" in path.read_text().split("\n")[at - 1]
    assert f"> {RECALL}" in second

    # Over the 124,000 tokens that the window holds, OpenCode compacts by itself.
    lab.say("many words " * 50_000)
    lab.say("And now?")
    # 1.14.48 keeps the long request in view, and so compacts once more.
    third, *_more = lab.summaries()[2:]
    assert "many words many words" in third
    assert "characters are in the record]" in third

    assert lab.asked_for_a_summary() == []
    assert MODEL_MADE not in path.read_text()
    assert path.read_text().split("\n")[: len(lines) - 1] == lines[:-1]
