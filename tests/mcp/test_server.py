"""The server as a process: what an agent's client sends over standard input, and what comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from webapp.memory import entries
from webapp.settings import Settings
from webapp.store import Store

ROOT = Path(__file__).parents[2]


class Client:
    """A client that has begun as OpenCode does, by the handshake of the protocol of 2025."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._count = 0
        self.hello = self.ask("initialize", {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "opencode", "version": "1.18.33"},
        })["result"]  # fmt: skip
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Sends a request and gives its answer; every line on standard output is a message."""
        self._count += 1
        self._send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self._count:
                return answer

    def call(self, name: str, **given: Any) -> Any:
        return self.ask("tools/call", {"name": name, "arguments": given})["result"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    return folder


@pytest.fixture
def connect(tmp_path: Path, project: Path) -> Iterator[Callable[..., Client]]:
    """Starts the server in a folder inside the project, and connects."""
    started: list[subprocess.Popen[str]] = []

    def start(**env: str) -> Client:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
        process = subprocess.Popen(
            [sys.executable, "-m", "webapp", "mcp"], cwd=project / "src", text=True,
            env={**own, "HOME": str(home), "PYTHONPATH": str(ROOT),
                 "OPENCODE_MEMORY_KEEP_SERVING": "0", **env},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return Client(process)

    yield start
    for process in started:
        process.communicate(timeout=20)
        assert process.returncode == 0


def test_a_client_saves_and_finds_in_the_worktree_of_its_folder(
    connect: Callable[..., Client], project: Path, tmp_path: Path
) -> None:
    client = connect()
    assert client.hello["serverInfo"]["name"] == "memory"
    assert "instructions" not in client.hello
    listed = client.ask("tools/list", {})["result"]["tools"]
    assert len(listed) == 10
    hints = {tool["name"]: tool["annotations"]["readOnlyHint"] for tool in listed}
    assert hints["search"] and not hints["save"]
    assert not (tmp_path / "home" / ".local").exists()
    made = client.call("save", kind="lesson", title="Use WAL", body="Readers do not block.")
    assert made["structuredContent"]["scope"] == str(project) and not made.get("isError")
    found = client.call("search", query="readers")
    assert found["structuredContent"]["entries"][0]["source"] == "opencode"
    assert "Use WAL" in found["content"][0]["text"]
    told = connect().hello["instructions"]
    assert "- lesson: Use WAL (by opencode)" in told


def test_what_goes_wrong_is_an_error_of_the_tool_with_a_sentence(
    connect: Callable[..., Client],
) -> None:
    client = connect()
    for name, given, words in (
        ("save", {"kind": "fact", "title": "t"}, "body is missing"),
        ("search", {"query": "x", "limit": "many"}, "whole number"),
        ("restore", {"id": "none"}, "trash"),
        ("session_read", {"sessionID": "ses_none"}, "ses_none"),
        ("no_such_tool", {}, "Known: save, search"),
    ):  # fmt: skip
        answer = client.call(name, **given)
        assert answer["isError"], name
        assert words in answer["content"][0]["text"]
        assert "Traceback" not in answer["content"][0]["text"]
    assert not client.call("list").get("isError")


def test_a_memory_that_cannot_be_read_keeps_no_agent_from_starting(
    connect: Callable[..., Client], tmp_path: Path
) -> None:
    folder = tmp_path / "home" / ".local" / "share" / "opencode-memory"
    folder.mkdir(parents=True)
    (folder / "memory.db").write_bytes(b"no database at all" * 400)
    client = connect()
    assert "instructions" not in client.hello
    answer = client.call("search", query="x")
    assert answer["isError"] and "memory.db" in answer["content"][0]["text"]


def test_without_retrieval_the_tools_of_sessions_are_not_there(
    connect: Callable[..., Client],
) -> None:
    client = connect(OPENCODE_MEMORY_RETRIEVAL="false")
    names = {tool["name"] for tool in client.ask("tools/list", {})["result"]["tools"]}
    assert len(names) == 8 and "session_search" not in names
    assert client.call("session_search", query="x")["isError"]


def test_the_newer_protocol_of_the_sdks_own_client_is_answered_too(
    settings: Settings, store: Store
) -> None:
    anyio = pytest.importorskip("anyio")
    from mcp import Client as SdkClient

    from webapp.mcp.server import make_server

    entries.save(
        store, entries.draft(scope="global", kind="lesson", title="Known", body="x"), "ann"
    )

    async def talk() -> None:
        async with SdkClient(make_server(settings, "/home/demo/shop", "1")) as client:
            assert len((await client.list_tools()).tools) == 10
            answer = await client.call_tool("search", {"query": "known"})
            assert answer.structured_content["entries"][0]["title"] == "Known"
            wrong = await client.call_tool("save", {"kind": "fact"})
            assert wrong.is_error

    # Not in this thread: the event loop of a browser test may run in it.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, talk).result()
