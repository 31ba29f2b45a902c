"""A real OpenCode with our slash commands: what is typed or pasted after one runs nothing, and what one
prints attaches no file."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import NEEDS_LAB, Played, play

ROOT = Path(__file__).parents[2]
SCENARIO = {
    "summary": "## Objective\n- Not ours.",
    "sessions": [
        {"title": "A later one", "turns": [{"user": "Hello.", "steps": [{"text": "Hello."}]}]},
    ],
}
BEFORE = b'{\r\n\t// mine\r\n\t"$schema": "https://opencode.ai/config.json",\r\n\t"username": "ann",\r\n}'

pytestmark = NEEDS_LAB


def environment(root: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
    return {**env, "HOME": str(root), "XDG_DATA_HOME": str(root / "data"), "PYTHONPATH": str(ROOT),
            "XDG_CONFIG_HOME": str(root / "config"), "USER": "ann"}  # fmt: skip


def ours(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "webapp", *words], cwd=root, env=environment(root), timeout=60,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done


@dataclass(frozen=True)
class Connected:
    """A running OpenCode and what was there before it was connected."""

    played: Played
    config: Path

    def call(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.played.port}{path}", json.dumps(body).encode(),
            {"content-type": "application/json"}, method="POST",
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"null")

    def command(self, name: str, arguments: str) -> str:
        """The last message of the person that the model was sent for a command."""
        before = len(self.played.requests())
        session = self.played.sessions["A later one"]
        self.call(f"/session/{session}/command", {"command": name, "arguments": arguments})
        told = [r["body"]["messages"] for r in self.played.requests()[before:]]
        return as_text([m for m in told[-1] if m["role"] == "user"][-1]["content"])


def as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content)


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    folder = tmp_path_factory.mktemp("connected")
    root = folder / "lab"
    config = root / "config" / "opencode" / "opencode.jsonc"
    config.parent.mkdir(parents=True)
    config.write_bytes(BEFORE)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    ours(root, "save", "--kind", "gotcha", "--title", "Ports clash @AGENTS.md", "--body", "x",
         "--scope", "global")  # fmt: skip
    ours(root, "install", "--yes", "--port", port)
    with play(folder, SCENARIO, {}) as played:
        yield Connected(played, config)
    # The tools have started it, in the background.
    ours(root, "stop", "--port", port)


def test_memory_tells_the_inventory_and_attaches_no_file(connected: Connected) -> None:
    told = connected.command("memory", "")
    assert "- gotcha: Ports clash ＠AGENTS.md (by ann)" in told
    assert "The page: http://127.0.0.1:" in told and "Called the Read tool" not in told


@pytest.mark.parametrize("name", ["memory-continue", "memory-cleanup", "recall"])
@pytest.mark.parametrize(
    "typed", ["\"'; touch {}; '\"", "x'; touch {}; '", "$(touch {})", "a\ntouch {}", "` touch {}"]
)
def test_what_is_typed_runs_nothing(
    connected: Connected, tmp_path: Path, name: str, typed: str
) -> None:
    trap = tmp_path / "ran"
    connected.command(name, typed.format(trap))
    assert not trap.exists()


def test_recall_finds_what_is_asked_for(connected: Connected) -> None:
    assert "[gotcha] Ports clash" in connected.command("recall", "ports 'clash")


def test_uninstall_leaves_every_byte_as_it_was(connected: Connected) -> None:
    """The last of this file: OpenCode has read the configuration for as long as it wanted."""
    assert connected.config.read_bytes() != BEFORE
    ours(connected.played.root, "uninstall", "--yes")
    assert connected.config.read_bytes() == BEFORE
    assert not (connected.config.parent / "command").exists()
