"""What the program costs by being there: its start and its memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench import data
from bench.library import whole_search
from bench.measure import Row, compared, in_turn, timed
from bench.place import Place
from bench.server import FRAGMENT, Server

MEMORY_MB = 80


def start(place: Place) -> Iterator[Row]:
    """From the start of the process to the first answered /healthz, and the help of the command."""
    home = place.home("start")

    def serve() -> float:
        with Server(home) as server:
            return server.first_answer

    def run(*args: str) -> float:
        return timed(
            lambda: subprocess.run([sys.executable, *args], capture_output=True, check=True)
        )

    served, helped, imported = in_turn(
        serve,
        lambda: run("-m", "webapp", "--help"),
        lambda: run("-c", "import flask, waitress, peewee"),
        rounds=7,
    )
    yield compared("start to /healthz; import flask, waitress, peewee", served, imported)
    yield compared("opencode-memory --help; the same import", helped, imported)


def memory(place: Place) -> Iterator[Row]:
    """Resident memory of one server after one thing and another."""
    home = place.record
    with Server(home) as server:
        yield _held("memory after the start", server)
        for _ in range(25):
            server.get("/")
            server.get("/", FRAGMENT, q="ba")
            server.get("/transcripts")
            server.get(f"/transcripts/{data.SESSION}")
        yield _held("memory after 100 requests", server)
        server.get(f"/transcripts/{data.SESSION}/{place.line}")
        yield _held(f"memory after line {place.line:,} of {place.size}", server)
        for text in (data.NEEDLE, data.ABSENT, data.EVERYWHERE):
            whole_search(server, text)
        yield _held(f"memory after searches of {place.size}", server)
        yield Row("its peak (MB)", server.peak(), None, "< 150", 150)
    with Server(place.full) as server:
        for text in (data.RARE, data.COMMON, data.CJK, ""):
            server.get("/", q=text)
        yield _held(f"memory after searches of {place.entries:,} entries", server)


def _held(what: str, server: Server) -> Row:
    return Row(f"{what} (MB)", server.megabytes(), None, f"< {MEMORY_MB}", MEMORY_MB)
