"""The tools keep the web server up: begun after the first answer, and nobody's descendant."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from webapp.integration import serving
from webapp.integration.serving import State
from webapp.settings import Settings, load

ROOT = Path(__file__).parents[2]
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    found = load({"port": str(port), "data_dir": tmp_path / "data"}, {"HOME": str(tmp_path)})
    yield found
    note = serving.look(found).note
    if note is not None:
        assert serving.stop(found, note)


@pytest.fixture
def tools(settings: Settings, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the tools."""
    started: list[subprocess.Popen[str]] = []

    def start(**env: str) -> subprocess.Popen[str]:
        started.append(subprocess.Popen(
            [sys.executable, "-m", "webapp", "mcp", "--port", str(settings.port), "--data-dir",
             str(settings.data_dir)],
            cwd=tmp_path, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"],
                                         "PYTHONPATH": str(ROOT), **env},
        ))  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def ask(process: subprocess.Popen[str], number: int, method: str, params: Any) -> Any:
    assert process.stdin is not None and process.stdout is not None
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())["result"]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def descendants(pid: int) -> set[int]:
    """As OpenCode walks them."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    pairs = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()]
    found = {pid}
    while more := {one for one, parent in pairs if parent in found} - found:
        found |= more
    return found - {pid}


def test_the_first_answers_come_before_the_server_is_begun(
    settings: Settings, tools: Callable[..., subprocess.Popen[str]]
) -> None:
    process = tools()
    ask(process, 1, "initialize", HELLO)
    assert ask(process, 2, "tools/list", {})["tools"]
    assert not settings.data_dir.exists()
    until(lambda: serving.look(settings).state is State.OURS)
    assert {path.name for path in settings.data_dir.iterdir()} == {"server.json", "server.log"}
    assert serving.log_path(settings).stat().st_size == 0
    process.communicate(timeout=20)


def test_it_outlives_the_end_of_the_whole_tree_of_the_tools(
    settings: Settings, tools: Callable[..., subprocess.Popen[str]]
) -> None:
    process = tools()
    until(lambda: serving.look(settings).state is State.OURS)
    pid = serving.look(settings).pid
    assert pid not in descendants(process.pid)
    for one in descendants(process.pid):
        os.kill(one, signal.SIGTERM)
    # Its pipes end with it: nobody else holds them. Nothing but the protocol was written to them.
    out, err = process.communicate(timeout=20)
    assert (out, err, process.returncode) == ("", "", 0)
    assert serving.look(settings).pid == pid


def test_a_killed_server_is_started_again_while_the_tools_run(
    settings: Settings, tools: Callable[..., subprocess.Popen[str]]
) -> None:
    process = tools()
    until(lambda: serving.look(settings).state is State.OURS)
    pid = serving.look(settings).pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: serving.look(settings).state is State.OURS)
    assert serving.look(settings).pid != pid
    process.communicate(timeout=20)


def test_switched_off_it_starts_nothing_and_makes_nothing(
    settings: Settings, tools: Callable[..., subprocess.Popen[str]]
) -> None:
    process = tools(OPENCODE_MEMORY_KEEP_SERVING="0")
    ask(process, 1, "initialize", HELLO)
    time.sleep(2)  # twice what a start waits for
    assert serving.look(settings).state is State.SILENT
    process.communicate(timeout=20)
    assert not settings.data_dir.exists()
