"""A search of a large library against `rg` over the same folder, and the pages of its list."""

from __future__ import annotations

import functools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench import data
from bench.measure import Row, Times, compared, in_turn, timed
from bench.place import Place
from bench.server import FRAGMENT, Server, settings_of
from webapp.store import Store
from webapp.transcripts import grep, library, ripgrep

SEARCHING = b'class="banner searching"'
HIT = b'class="is-hit"'


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
                functools.partial(whole_search, server, text, firsts),
                functools.partial(_grep, home, text),
                functools.partial(_rg, *bare, "-e", text, folder),
                rounds=5,
            )  # fmt: skip
            yield compared(f"{what} in {size}: page; rg", page, rg, 1.3)
            yield compared(f"{what} in {size}: grep(); rg", inside, rg, 1.3)
            if firsts.seconds:
                yield compared(
                    f"{what} in {size}: first hit on the page; the whole", firsts, page, 0.1
                )
        yield Row("peak memory of the server after these (MB)", server.peak(), None, "< 150", 150)


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
        time.sleep(0.02)
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
