"""What agents wait for: the start of the tools, their answers, and a compaction."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from bench import data
from bench.exporting import once
from bench.measure import Row, compared, in_turn, timed
from bench.place import Place
from bench.server import ROOT, Server, environment, settings_of
from webapp.integration import token

BARE = ("-m", "bench.bare_mcp")
OURS = ("-m", "webapp", "mcp", "--scope", "/home/demo/project-1")
TOOL_MS = 20
COMPACTION_MS = 500
TOKENS = 40_000
PARTS = 130
"""A session of so many parts holds some 160 KB of text, 40,000 tokens at four characters each."""


class Tools:
    """A server of tools over its standard input and output, from its start to its end."""

    def __init__(self, home: Path, arguments: tuple[str, ...]) -> None:
        self._begun = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, *arguments], cwd=ROOT, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment(home) | {"OPENCODE_MEMORY_KEEP_SERVING": "0"},
        )  # fmt: skip
        self._count = 0
        self._ask("initialize", {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        })  # fmt: skip
        self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._ask("tools/list", {})
        self.first_answer = time.perf_counter() - self._begun

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._count += 1
        self._tell({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.get("id") == self._count:
                return answer["result"]
        raise RuntimeError(f"{method} was not answered")

    def call(self, name: str, **given: object) -> float:
        """Seconds that an answer takes."""
        begun = time.perf_counter()
        answer = self._ask("tools/call", {"name": name, "arguments": given})
        took = time.perf_counter() - begun
        if answer.get("isError"):
            raise RuntimeError(f"{name}: {answer['content'][0]['text']}")
        return took

    def __enter__(self) -> Tools:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=20)


def tools(place: Place) -> Iterator[Row]:
    """From the start of the process to the first list of tools, and the answers on a large store."""
    home = place.full

    def begin(arguments: tuple[str, ...]) -> float:
        with Tools(home, arguments) as server:
            return server.first_answer

    ours, bare = in_turn(lambda: begin(OURS), lambda: begin(BARE), rounds=7)
    yield compared("mcp: start to the first answer; a bare SDK server", ours, bare, 1.3)
    kinds: tuple[tuple[str, dict[str, object]], ...] = (
        ("search", {"query": data.RARE}),
        ("search", {"query": f"{data.COMMON} {data.ALSO_COMMON}"}),
        ("list", {}),
        ("stats", {}),
        ("save", {"kind": "fact", "title": "A measured fact", "body": "It takes some time."}),
        ("transcript_list", {}),
    )
    with Tools(home, OURS) as mine, Tools(home, BARE) as theirs:
        for name, given in kinds:
            took, empty = in_turn(
                lambda name=name, given=given: mine.call(name, **given),  # type: ignore[misc]
                lambda: theirs.call("echo"),
                rounds=25, warm=3,
            )  # fmt: skip
            words = f" {given['query']}" if "query" in given else ""
            what = f"mcp: {name}{words}, {place.entries:,} entries; an empty answer"
            yield compared(what, took, empty, 1, TOOL_MS)


def compaction(place: Place) -> Iterator[Row]:
    """A first compaction of a session, whose transcript it makes, against the bare export."""
    home, apart = place.home("compaction"), place.home("compaction-export")
    settings = settings_of(home)
    settings.opencode_dir.mkdir(parents=True)
    database = settings.opencode_dir / "opencode.db"
    data.make_session(database, PARTS)
    shown = token.ensure(settings)
    request = json.dumps({
        "model": "pointer", "stream": True,
        "messages": [{"role": "user", "content": "x" * TOKENS * 4}],
    })  # fmt: skip

    def ask(server: Server) -> float:
        for path in (settings.transcripts_dir, *settings.data_dir.glob("memory.db*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return timed(lambda: _compact(server.port, request, shown))

    def export() -> float:
        shutil.rmtree(apart)
        apart.mkdir()
        return once(database, apart)

    settings.transcripts_dir.mkdir(parents=True)
    with Server(home) as server:
        asked, bare = in_turn(lambda: ask(server), export, rounds=9)
    what = f"compaction of {TOKENS:,} tokens; the bare export"
    yield compared(what, asked, bare, 0, COMPACTION_MS)


def _compact(port: int, request: str, shown: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {shown}", "x-session-id": data.SESSION}
    connection.request("POST", "/v1/chat/completions", request, headers)
    answer = connection.getresponse().read().decode()
    connection.close()
    if "The full record of this session is" not in answer:
        raise RuntimeError(f"the compaction was answered with {answer[:300]}")
