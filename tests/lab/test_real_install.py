"""A real OpenCode with what `install` wrote: its model has the tools, the commands say what is known, and a
compaction is answered by us."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import NEEDS_LAB, Played, play

ROOT = Path(__file__).parents[2]
PLANTED = "PLANTED-FOR-A-LATER-SESSION-99"
BEFORE = '{\n  // of the person\n  "theme": "system",\n}\n'
SCENARIO = {
    "summary": "a summary that a model made",
    "sessions": [
        {"title": "Earlier", "turns": [{"user": f"Note {PLANTED}.", "steps": [{"text": "Noted."}]}]},
        {"title": "Later", "turns": [{"user": "Hello.", "steps": [{"text": "Hello."}]}]},
    ],
}  # fmt: skip

pytestmark = NEEDS_LAB


@dataclass(frozen=True)
class Lab:
    """A real OpenCode, connected by the command, and the home that it lives in."""

    played: Played
    home: Path
    port: int

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Our command, as a person who lives there runs it."""
        return ours(self.home, self.port, *args)

    def call(self, session: str, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.played.port}/session/{session}{path}",
            json.dumps(body).encode(), {"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())

    def prompted(self, command: str, arguments: str = "") -> str:
        """What the model is sent when a person runs a command in the later session."""
        before = len(self.played.requests())
        self.call(
            self.played.sessions["Later"], "/command", {"command": command, "arguments": arguments}
        )
        (request, *_) = self.played.requests()[before:]
        content = [m for m in request["body"]["messages"] if m["role"] == "user"][-1]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)


def environment(home: Path, port: int) -> dict[str, str]:
    return {
        "HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OPENCODE_MEMORY_PORT": str(port), "USER": "ann",
    }  # fmt: skip


def ours(home: Path, port: int, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webapp", *args], cwd=home, env=environment(home, port), text=True,
        capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """OpenCode on a configuration that `install` wrote, after two sessions; our server beside it."""
    folder = tmp_path_factory.mktemp("opencode")
    home = folder / "lab"
    config = home / "config" / "opencode" / "opencode.jsonc"
    config.parent.mkdir(parents=True)
    config.write_text(BEFORE)
    assert (
        ours(
            home, 4748, "remember", "--scope", "global", "Ports clash. Take a free one."
        ).returncode
        == 0
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "webapp", "serve", "--port", "0", "--json"], cwd=ROOT, text=True,
        env=environment(home, 0), stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        with closing(server.stdout):
            text = "".join(iter(lambda: server.stdout.readline(), "}\n")) + "}"  # type: ignore[union-attr]
            port = json.loads(text)["port"]
            done = ours(home, port, "install", "--yes", "--inject")
            assert done.returncode == 0, done.stderr
            with play(folder, SCENARIO, {}) as played:
                yield Lab(played, home.resolve(), port)
    finally:
        server.terminate()
        server.wait(20)


def test_what_install_wrote_connects_opencode(lab: Lab) -> None:
    first = lab.played.requests()[0]["body"]
    talk = next(r["body"] for r in lab.played.requests() if r["body"].get("tools"))
    names = {tool["function"]["name"] for tool in talk["tools"]}
    assert {"memory_save", "memory_session_search"} <= names
    assert first is not None

    known = lab.prompted("memory")
    assert (
        "- fact: Ports clash (by ann)" in known and f"http://127.0.0.1:{lab.port}/?scope=" in known
    )
    earlier = lab.played.sessions["Earlier"]
    pointed = lab.prompted("memory-continue", earlier)
    assert f"/{earlier}.md" in pointed and f"> Note {PLANTED}." in pointed
    assert "Take a free one." in lab.prompted("recall", 'it\'s the "ports"; echo $(echo oops)')
    cleaned = lab.prompted("memory-cleanup")
    assert "transcripts would go" in cleaned and "Fingerprint: " in cleaned
    refused = lab.prompted("memory-cleanup", "apply 000000000000")
    assert "nothing was removed" in refused
    assert "never on a Friday" in lab.prompted("remember", "Deploy, but never on a Friday")

    lab.call(earlier, "/summarize", {"providerID": "scripted", "modelID": "m1"})
    path = next((lab.home / "data" / "opencode-memory" / "transcripts").glob(f"*/{earlier}.md"))
    with urllib.request.urlopen(
        f"http://127.0.0.1:{lab.played.port}/session/{earlier}/message"
    ) as answer:
        texts = [part.get("text", "") for m in json.load(answer) if m["info"].get("summary") is True
                 for part in m["parts"]]  # fmt: skip
    assert any(str(path) in text for text in texts)

    done = lab.run("uninstall", "--yes")
    assert done.returncode == 0, done.stderr
    folder = lab.home / "config" / "opencode"
    assert (folder / "opencode.jsonc").read_text() == BEFORE
    assert not (folder / "command").exists()
