"""A window and a search of a large transcript against `sed` and `rg`."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import data
from bench.measure import Row, alone, compared, in_turn, timed
from bench.place import Place
from bench.server import FRAGMENT, Server, settings_of
from webapp.store import Store
from webapp.transcripts import grep, ripgrep
from webapp.transcripts.files import offsets_path


def _run(*commands: Sequence[str]) -> float:
    """Seconds until some commands have ended, one after the other. Their output goes into a pipe,
    as that of ripgrep does under ours."""
    return timed(lambda: [subprocess.run(c, capture_output=True, check=False) for c in commands])


def window(place: Place) -> Iterator[Row]:
    """The first byte of the page at a far line, before and after the lines have been counted."""
    first = place.line
    path = place.transcript.path
    sed = ("sed", "-n", f"{first},{first + 200}p;{first + 200}q", str(path))
    for whose, home in (("", place.record), (", another program's file", place.foreign)):
        what = f"line {first:,} of {place.size}{whose}"
        beside = settings_of(home).transcripts_dir / path.parent.name / path.name
        with Server(home) as server:
            top, far, near, bare = in_turn(
                functools.partial(_first_byte, server, 1),
                functools.partial(_first_byte, server, first, offsets_path(beside)),
                functools.partial(_first_byte, server, first),
                functools.partial(_run, sed),
                rounds=7,
            )
        # Another program's file is counted to its end the first time, for its number of lines.
        yield alone(f"page cost: 200 lines{whose}", top)
        yield compared(f"{what}: first time; sed", far, bare, None if whose else 2, top.ms)
        yield compared(f"{what}: again; sed", near, bare, 1, top.ms)


def _first_byte(server: Server, line: int, counts: Path | None = None) -> float:
    """Seconds to the first byte of the page at a line; with `counts` of lines taken away before."""
    if counts is not None:
        counts.unlink(missing_ok=True)
    return server.get(f"/transcripts/{data.SESSION}/{line}").first_byte


def search(place: Place) -> Iterator[Row]:
    """Texts that are rare, absent, apart and everywhere, over HTTP and through our function."""
    path = str(place.transcript.path)
    bare = (ripgrep.program(), "--no-config", "-i")
    first, second = data.APART.split()
    every = (*bare, "--json", "-e", f"{first}.*{second}|{second}.*{first}", path)
    with Server(place.record) as server:
        for what, text in (("a rare text", data.NEEDLE), ("an absent text", data.ABSENT)):
            as_json, counted = ((*bare, "-F", option, text, path) for option in ("--json", "-c"))
            page, inside, *bares = in_turn(
                functools.partial(_page, server, text),
                functools.partial(_grep, place, text),
                functools.partial(_run, as_json),
                functools.partial(_run, counted),
                rounds=7,
            )
            for name, yardstick in zip(("rg --json", "rg -c"), bares, strict=True):
                yield compared(f"{what} in {place.size}: page; {name}", page, yardstick, 2)
                yield compared(f"{what} in {place.size}: grep(); {name}", inside, yardstick, 2)
        # Ours looks for the text first and then for lines that hold both words, so rg does too.
        page, twice = in_turn(
            functools.partial(_page, server, data.APART),
            functools.partial(_run, (*bare, "-F", "--json", data.APART, path), every),
            rounds=5,
        )
        yield compared(f"two words apart in {place.size}: page; rg --json, twice", page, twice, 2)
        # As JSON rg would write out the whole file; ours stops after some thousand hits.
        page, once = in_turn(
            functools.partial(_page, server, data.EVERYWHERE),
            functools.partial(_run, (*bare, "-F", "-c", data.EVERYWHERE, path)),
            rounds=5,
        )
        yield compared(f"a text of every line in {place.size}: page; rg -c", page, once, 2)


def _page(server: Server, text: str) -> float:
    return server.get("/", FRAGMENT, q=text, tab="transcripts").whole


def _grep(place: Place, text: str) -> float:
    with Store(place.settings.db).session() as store:
        return timed(lambda: grep.grep(store, place.settings, text, context=1))
