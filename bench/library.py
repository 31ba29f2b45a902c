"""A search of a large library against `rg` over the same folder, and the pages of its list."""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

from bench import data
from bench.measure import Row, Times, compared, in_turn, timed
from bench.place import Place
from bench.server import FRAGMENT, Server, settings_of
from webapp.store import Store
from webapp.transcripts import grep, library, ripgrep

SEARCHING = b'class="banner searching"'
HIT = b'class="is-hit"'
ASKED_AGAIN_S = 0.1
"""A browser asks again after half a second; so often, the end is known more exactly."""

PEOPLE = 10
OTHERS = ("/", "/transcripts", "/stats")


def search(place: Place) -> Iterator[Row]:
    """The whole library through the page, as a browser does that asks until all is read, and through
    our function; then until the page shows the first hit."""
    home = place.library
    size = f"{place.library_bytes / 1e9:g} GB in {place.files:,} files"
    bare = (ripgrep.program(), "--no-config", "-i", "-F", "--json")
    folder = str(settings_of(home).transcripts_dir)
    with Server(home) as server:
        for what, text in (("a rare text", data.NEEDLE), ("an absent text", data.ABSENT)):
            firsts = Times()
            page, inside, rg = in_turn(
                partial(whole_search, server, text, firsts),
                partial(_grep, home, text),
                partial(_rg, *bare, "-e", text, folder),
                rounds=5,
            )  # fmt: skip
            yield compared(f"{what} in {size}: page; rg", page, rg, 1.3)
            yield compared(f"{what} in {size}: grep(); rg", inside, rg, 1.3)
            if firsts.seconds:
                yield compared(
                    f"{what} in {size}: first hit on the page; the whole", firsts, page, 0.1
                )
        yield Row("peak memory of the server after these (MB)", server.peak(), None, "< 150", 150)


def starve(place: Place) -> Iterator[Row]:
    """Other pages while ten people search the whole library for ten texts, and at rest."""
    with Server(place.library) as server:
        at_rest = _others(server)
        over = threading.Event()
        people = [threading.Thread(target=_person, args=(server, n, over)) for n in range(PEOPLE)]
        for person in people:
            person.start()
        time.sleep(1.0)
        meanwhile = _others(server)
        over.set()
        for person in people:
            person.join()
    for what, quiet, busy in zip(OTHERS, at_rest, meanwhile, strict=True):
        yield compared(f"{what} while {PEOPLE} search; at rest", busy, quiet, 10)


def _others(server: Server) -> list[Times]:
    return in_turn(*(partial(_page, server, path) for path in OTHERS), rounds=15, warm=2)


def _page(server: Server, path: str) -> float:
    return server.get(path).whole


def _person(server: Server, number: int, over: threading.Event) -> None:
    """Asks as a browser does: at once, and then every half second."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    round_number = 0
    while not over.is_set():
        round_number += 1
        text = f"{data.ABSENT} {number} {round_number}"
        query = {"q": text, "tab": "transcripts"}
        while not over.is_set():
            connection.request("GET", f"/?{urlencode(query)}", headers=FRAGMENT)
            if SEARCHING not in connection.getresponse().read():
                break
            query["more"] = "1"
            over.wait(0.5)
    connection.close()


def whole_search(server: Server, text: str, firsts: Times | None = None) -> float:
    """Seconds until the page of a search says that all is read; into `firsts` go those until it
    shows a hit."""
    start = time.perf_counter()
    answer = server.get("/", FRAGMENT, q=text, tab="transcripts")
    has_hit = False
    while True:
        if firsts is not None and not has_hit and HIT in answer.body:
            has_hit = True
            firsts.seconds.append(time.perf_counter() - start)
        if SEARCHING not in answer.body:
            return time.perf_counter() - start
        time.sleep(ASKED_AGAIN_S)
        answer = server.get("/", FRAGMENT, q=text, tab="transcripts", more="1")


def listing(place: Place) -> Iterator[Row]:
    """The first page of the list and one in its depth, of the large library and of one with a page
    of transcripts."""
    home = place.library
    few = place.home("few-transcripts")
    data.make_library(settings_of(few), 10_000_000, 100)
    with Store(settings_of(home).db).session() as store:
        place_of = library.listing(store, settings_of(home), limit=place.files // 2).after or ""
    with Server(home) as server, Server(few) as small:
        first, deep, title, bare = in_turn(
            lambda: server.get("/transcripts").whole,
            lambda: server.get("/transcripts", after=place_of).whole,
            lambda: server.get("/transcripts", sort="title").whole,
            lambda: small.get("/transcripts").whole,
            rounds=15, warm=3,
        )  # fmt: skip
    for what, times in (("the first page", first), ("the middle", deep), ("by title", title)):
        yield compared(f"list of {place.files:,}, {what}; list of 100", times, bare, 2)


def _rg(*command: str) -> float:
    return timed(lambda: subprocess.run(command, capture_output=True, check=False))


def _grep(home: Path, text: str) -> float:
    settings = settings_of(home)
    with Store(settings.db).session() as store:
        return timed(lambda: grep.grep(store, settings, text, context=1, patience=600))
