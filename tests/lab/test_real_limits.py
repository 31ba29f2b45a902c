"""When a real OpenCode compacts by itself, held against the limits that are shown."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import BINARY, NEEDS_OPENCODE
from webapp import settings as setting_table
from webapp.opencode import (
    History,
    Limits,
    State,
    find_limits,
    find_session,
    messages,
    overflow,
    read_config,
    reading,
    seen_by_model,
)

pytestmark = NEEDS_OPENCODE

MODELS: dict[str, dict[str, int]] = {
    "narrow": {"context": 50_000, "output": 8_000},
    "fed": {"context": 200_000, "input": 50_000, "output": 8_000},
    "talkative": {"context": 90_000, "output": 64_000},
    "endless": {},
}
CATALOGUE = {
    "scripted": {
        "id": "scripted", "name": "scripted", "env": [], "npm": "@ai-sdk/openai-compatible",
        "models": {
            "listed": {
                "id": "listed", "name": "listed", "release_date": "2026-01-01", "attachment": False,
                "reasoning": False, "temperature": True, "tool_call": True, "options": {},
                "cost": {"input": 0, "output": 0},
                "limit": {"context": 30_000, "input": 26_000, "output": 2_000},
            },
        },
    },
}  # fmt: skip


class Model(BaseHTTPRequestHandler):
    """Answers “Use N.” as if it had taken N tokens, and anything else as if it had taken 100."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        last = json.dumps(body["messages"][-1])
        asked = re.fullmatch(r'.*"Use (\d+)\."?.*', last) if "summary" not in last else None
        count = int(asked[1]) if asked else 100
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": count - 20, "completion_tokens": 20, "total_tokens": count}
        for choice, more in (
            ({"delta": {"role": "assistant", "content": "## Objective\n- Used."}}, {}),
            ({"delta": {}, "finish_reason": "stop"}, {"usage": usage}),
        ):
            chunk = {**base, "choices": [{"index": 0, **choice}], **more}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")


class Lab:
    """A running OpenCode with its own home, and what is shown of its sessions."""

    def __init__(self, port: int, root: Path, env: dict[str, str]) -> None:
        self.port = port
        self.db = root / "data" / "opencode" / "opencode.db"
        self.places = setting_table.places(env)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """What the API answers, None for what is no JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
            {"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        with suppress(ValueError):
            return json.loads(text)
        return None

    def begin(self) -> str:
        return str(self.post("/session", {"title": "asked"})["id"])

    def use(self, session: str, model: str, count: int) -> None:
        """Asks a model something whose answer takes so many tokens."""
        self.post(
            f"/session/{session}/message",
            {"parts": [{"type": "text", "text": f"Use {count}."}],
             "model": {"providerID": "scripted", "modelID": model}},
        )  # fmt: skip

    def shown(self, session_id: str, before: str | None = None) -> tuple[History, Limits]:
        session, problems = find_session([self.db], session_id)
        assert session is not None and problems == []
        with reading(self.db) as connection:
            rows = list(messages(connection, session_id, int(time.time() * 1000)))
        history = seen_by_model(rows, version=session.version, before=before)
        assert history.model is not None
        config = read_config(session, None, self.places)
        return history, find_limits(
            history.model, config, self.places, newer=history.newer, version=session.version
        )

    def answered(self, session_id: str) -> int:
        """How many answers of a session are finished."""
        with reading(self.db) as connection:
            rows = messages(connection, session_id, int(time.time() * 1000))
            return sum(row.role == "assistant" and row.finished for row in rows)


@functools.cache
def release() -> tuple[int, ...]:
    """The version of the OpenCode under test."""
    told = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True)
    return tuple(map(int, told.stdout.strip().split(".")))


def usable(history: History, limits: Limits) -> Any:
    """The way to the next automatic compaction, by the limits that are found."""
    return overflow(
        history, context=limits.context or 0, output=limits.output, input_limit=limits.input,
        reserved=limits.reserved, output_max=limits.output_max,
    )  # fmt: skip


@contextmanager
def opencode(root: Path, config: dict[str, Any], **env: str) -> Iterator[Lab]:
    """Starts OpenCode in a project below `root`, with a model of its own on loopback."""
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shop = root / "shop"
    shop.mkdir(parents=True)
    (shop / "opencode.json").write_text(json.dumps({
        "model": "scripted/narrow", "small_model": "scripted/narrow", "share": "disabled",
        "provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible", "name": "scripted",
            "options": {"baseURL": f"http://127.0.0.1:{model.server_port}/v1", "apiKey": "none"},
            "models": {name: {"name": name, **({"limit": limit} if limit else {})}
                       for name, limit in MODELS.items()},
        }}, **config,
    }))  # fmt: skip
    subprocess.run(["git", "init", "-q", str(shop)], check=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "OPENCODE"))}
    own = {
        "HOME": str(root), "XDG_DATA_HOME": str(root / "data"), "XDG_CACHE_HOME": str(root / "cache"),
        "XDG_CONFIG_HOME": str(root / "config"), "XDG_STATE_HOME": str(root / "state"),
        "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1", **env,
    }  # fmt: skip
    with (root / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [BINARY, "serve", "--port", str(port)], cwd=shop, env={**clean, **own}, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/session", timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline, (root / "serve.log").read_text()[-2000:]
                time.sleep(0.3)
        yield Lab(port, root, own)
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
        model.shutdown()
        model.server_close()


def catalogue(folder: Path, name: str = "models.json") -> Path:
    """OpenCode's copy of the catalogue. It empties a cache folder that names another version."""
    path = folder / "cache" / "opencode" / name
    path.parent.mkdir(parents=True)
    (path.parent / "version").write_text("21")
    path.write_text(json.dumps(CATALOGUE))
    return path


def compacts_exactly_at_the_limit(lab: Lab, model: str, expected: int) -> None:
    """One token below the limit nothing happens; at it OpenCode compacts by itself, at the latest
    before the next prompt is answered."""
    session = lab.begin()
    lab.use(session, model, expected - 1)
    history, limits = lab.shown(session)
    room = usable(history, limits)
    assert limits.auto and (room.count, room.usable) == (expected - 1, expected)
    assert not room.over and history.compactions == ()
    lab.use(session, model, expected)
    history, limits = lab.shown(session)
    if not history.compactions:
        assert usable(history, limits).over
        lab.use(session, model, 100)
        history, _ = lab.shown(session)
    (compaction,) = history.compactions
    assert compaction.automatic and compaction.state is State.FINISHED
    then, limits = lab.shown(session, before=compaction.id)
    room = usable(then, limits)
    assert room.over and room.count == expected
    assert not usable(history, limits).over


def test_it_compacts_exactly_where_the_configuration_says(tmp_path: Path) -> None:
    with opencode(tmp_path, {}) as lab:
        compacts_exactly_at_the_limit(lab, "narrow", 42_000)
        compacts_exactly_at_the_limit(lab, "talkative", 58_000)
        takes_input = release() >= (1, 14, 34)
        compacts_exactly_at_the_limit(lab, "fed", 42_000 if takes_input else 192_000)


@pytest.mark.parametrize("most", [5_000, 64_000])
def test_it_compacts_exactly_where_the_reserve_and_the_environment_say(
    tmp_path: Path, most: int
) -> None:
    env = {"OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": str(most)}
    with opencode(tmp_path, {"compaction": {"reserved": 12_345}}, **env) as lab:
        if release() >= (1, 15, 13):
            most = max(most, 32_000)
        takes_input = release() >= (1, 14, 34)
        compacts_exactly_at_the_limit(
            lab, "fed", 37_655 if takes_input else 200_000 - min(8_000, most)
        )
        compacts_exactly_at_the_limit(lab, "talkative", 90_000 - min(64_000, most))
        compacts_exactly_at_the_limit(lab, "narrow", 50_000 - min(8_000, most))


def test_it_compacts_exactly_where_its_catalogue_says(tmp_path: Path) -> None:
    path = catalogue(tmp_path)
    with opencode(tmp_path, {}) as lab:
        compacts_exactly_at_the_limit(lab, "listed", 24_000)
        assert path.exists()
        session = lab.begin()
        lab.use(session, "endless", 900_000)
        history, limits = lab.shown(session)
        assert history.compactions == () and limits.context == 0
        assert "without a limit" in limits.reasons[0]


@pytest.mark.parametrize("by", ["OPENCODE_MODELS_PATH", "OPENCODE_MODELS_URL"])
def test_the_catalogue_is_where_the_environment_says(tmp_path: Path, by: str) -> None:
    if by == "OPENCODE_MODELS_PATH":
        env = {by: str(catalogue(tmp_path / "elsewhere"))}
    else:
        env = {by: "http://127.0.0.1:9/none"}
        digest = hashlib.sha1(env[by].encode(), usedforsecurity=False).hexdigest()
        name = f"models-{digest}.json" if release() >= (1, 14, 34) else "models.json"
        catalogue(tmp_path, name)
    with opencode(tmp_path, {}, **env) as lab:
        compacts_exactly_at_the_limit(lab, "listed", 24_000)


@pytest.mark.parametrize("by", ["configuration", "environment"])
def test_it_does_not_compact_where_that_is_switched_off(tmp_path: Path, by: str) -> None:
    config = {"compaction": {"auto": False}} if by == "configuration" else {}
    env = {} if config else {"OPENCODE_DISABLE_AUTOCOMPACT": "true"}
    with opencode(tmp_path, config, **env) as lab:
        session = lab.begin()
        lab.use(session, "narrow", 49_000)
        history, limits = lab.shown(session)
        assert history.compactions == () and not limits.auto
        assert ("compaction.auto" if config else "DISABLE_AUTOCOMPACT") in limits.reasons[-1]


@pytest.mark.parametrize(
    ("compaction", "environment", "compacts"),
    [({}, {}, False), ({"reserved": 45_000}, {}, True), ({"reserved": 45_000, "auto": False}, {}, False),
     ({"reserved": 45_000}, {"OPENCODE_DISABLE_AUTOCOMPACT": "1"}, True)],
)  # fmt: skip
def test_the_newer_runtime_takes_the_reserve_for_its_buffer(
    tmp_path: Path, compaction: dict[str, Any], environment: dict[str, str], compacts: bool
) -> None:
    """Its own estimate is not stored: one of some 10,000 tokens is on one side of each threshold."""
    config = {"compaction": {"preserve_recent_tokens": 100, **compaction}}
    with opencode(tmp_path, config, **environment) as lab:
        made = lab.post("/api/session", {})
        if not made or "data" not in made:
            pytest.skip("this OpenCode has no newer runtime")
        session = made["data"]["id"]
        model = {"model": {"id": "narrow", "providerID": "scripted"}}
        lab.post(f"/api/session/{session}/model", model)
        for n in range(3):
            lab.post(f"/api/session/{session}/prompt", {"prompt": {"text": "word " * 2_000}})
            deadline = time.monotonic() + 30
            while lab.answered(session) <= n and time.monotonic() < deadline:
                time.sleep(0.3)
        history, limits = lab.shown(session)
        room = usable(history, limits)
        assert history.newer and limits.auto == ("auto" not in compaction)
        assert room.usable == (5_000 if compaction else 30_000) and room.count is None
        assert any(one.automatic for one in history.compactions) == compacts
