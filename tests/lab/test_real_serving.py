"""A real OpenCode whose tools start the web server: it is there while OpenCode runs, and after its end."""

from __future__ import annotations

import socket
import sys
import time
import urllib.request
from pathlib import Path

from tests.lab.conftest import NEEDS_LAB, play
from webapp.integration import serving
from webapp.integration.serving import State
from webapp.settings import load

ROOT = Path(__file__).parents[2]
SCENARIO = {
    "summary": "## Objective\n- Say hello.",
    "sessions": [{"title": "Hello", "turns": [{"user": "Hello.", "steps": [{"text": "Hello."}]}]}],
}

pytestmark = NEEDS_LAB


def test_the_server_that_the_tools_start_outlives_opencode(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    data_dir = tmp_path / "memory"
    settings = load({"port": str(port), "data_dir": data_dir}, {"HOME": str(tmp_path)})
    words = ["mcp", "--port", str(port), "--data-dir", str(data_dir)]
    tools = {
        "type": "local", "command": [sys.executable, "-m", "webapp", *words],
        "environment": {"PYTHONPATH": str(ROOT)},
    }  # fmt: skip
    with play(tmp_path, SCENARIO, {"mcp": {"memory": tools}}) as played:
        deadline = time.monotonic() + 30
        while serving.look(settings).state is not State.OURS:
            assert time.monotonic() < deadline, serving.look(settings).text
            time.sleep(0.1)
        note = serving.look(settings).note
        assert note is not None
        # A SIGTERM ends OpenCode at once; this is the orderly end, which ends what descends from its tools.
        address = (
            f"http://127.0.0.1:{played.port}/instance/dispose?directory={played.root / 'shop'}"
        )
        request = urllib.request.Request(address, method="POST")
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
        time.sleep(3)
    try:
        assert serving.look(settings).note == note
    finally:
        serving.stop(settings, note)
    assert not data_dir.exists()
