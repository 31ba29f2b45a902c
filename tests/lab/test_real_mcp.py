"""A real OpenCode with the memory's tools: what its model calls lands in the store, and what is known
stands in its system prompt."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import BINARY, NEEDS_LAB, play
from webapp.memory import entries
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import Store

ROOT = Path(__file__).parents[2]
PLANTED = "PLANTED-IN-THE-LAB-4711"
SCENARIO = {
    "summary": "## Objective\n- Count the rows.",
    "sessions": [
        {"title": "Count the rows", "turns": [
            {"user": f"The checkpoint is {PLANTED}.", "steps": [
                {"tool": "memory_save", "args": {
                    "kind": "lesson", "title": "Count twice", "body": "The first count was wrong."}},
                {"text": "Saved."},
            ]},
            {"user": "What did we plant?", "steps": [
                {"tool": "memory_session_search", "args": {"query": PLANTED}}, {"text": "That."},
            ]},
            {"user": "Save a wrong one.", "steps": [
                {"tool": "memory_save", "args": {"kind": "lesson", "title": "", "body": "x"}},
                {"text": "Refused."},
            ]},
        ]},
    ],
}  # fmt: skip

pytestmark = NEEDS_LAB


@dataclass(frozen=True)
class Lab:
    """What a real OpenCode left behind: the store, the project, and the requests to its model."""

    store: Store
    project: Path
    requests: list[dict[str, Any]]

    def results(self, tool: str) -> list[str]:
        """What the model was answered when it called a tool, in the session's last request."""
        messages = max((request["body"]["messages"] for request in self.requests), key=len)
        calls = {
            call["id"]: call["function"]["name"]
            for message in messages for call in message.get("tool_calls") or ()
        }  # fmt: skip
        return [
            as_text(message["content"]) for message in messages
            if message["role"] == "tool" and calls.get(message["tool_call_id"]) == tool
        ]  # fmt: skip


def as_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A real OpenCode that has played SCENARIO with our server as `memory`."""
    folder = tmp_path_factory.mktemp("opencode")
    root = folder / "lab"
    store = Store(root / "data" / "opencode-memory" / "memory.db")
    root.mkdir()
    with store.session():
        entries.save(
            store, entries.draft(scope="global", kind="gotcha", title="Ports clash", body="x"), "ann"
        )  # fmt: skip
    command = [sys.executable, "-m", "webapp", "mcp"]
    server = {
        "type": "local",
        "command": command,
        "environment": {"PYTHONPATH": str(ROOT), "OPENCODE_MEMORY_KEEP_SERVING": "0"},
    }
    with play(folder, SCENARIO, {"mcp": {"memory": server}}) as played:
        talk = [request for request in played.requests() if request["body"].get("tools")]
        yield Lab(store, root / "shop", talk)


def test_what_the_model_saves_is_in_the_store_with_the_project_as_its_scope(lab: Lab) -> None:
    with lab.store.session() as store:
        (hit,) = search(store, SearchQuery("first count")).hits
    assert (hit.entry.title, hit.entry.scope) == ("Count twice", str(lab.project.resolve()))
    assert hit.entry.source == "opencode"
    first, second = lab.results("memory_save")
    assert first.startswith("Created “Count twice”")
    assert "title is empty" in second


def test_the_model_finds_exact_lines_of_its_own_session(lab: Lab) -> None:
    (found,) = lab.results("memory_session_search")
    assert f": The checkpoint is {PLANTED}." in found


def test_the_tools_and_the_inventory_reach_the_model(lab: Lab) -> None:
    names = {tool["function"]["name"] for tool in lab.requests[0]["body"]["tools"]}
    assert len({name for name in names if name.startswith("memory_")}) == 10
    version = subprocess.run([BINARY, "--version"], capture_output=True, text=True).stdout
    # 1.17.9 and the versions before it read a server's instructions and send none of them.
    told = tuple(map(int, version.split("."))) >= (1, 17, 19)
    prompt = "\n".join(
        as_text(message["content"]) for message in lab.requests[0]["body"]["messages"]
        if message["role"] == "system"
    )  # fmt: skip
    assert ("- gotcha: Ports clash (by ann)" in prompt) is told
