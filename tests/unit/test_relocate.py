"""A copied link's text is found again where it stands now."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from webapp.lines import fingerprint, line_hash
from webapp.transcripts import relocate
from webapp.transcripts.library import Transcript


def transcript(tmp_path: Path, data: bytes) -> Transcript:
    path = tmp_path / "a.md"
    path.write_bytes(data)
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    return Transcript("a", "global", "A", path, lines, len(data), 0, 0, 0, True)


def fingerprint_of(lines: list[str]) -> str:
    return fingerprint(line_hash(line) for line in lines)


@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_every_range_is_found_where_it_stands(tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    lines = [f"{number} {rng.random()} naïve 日本" for number in range(2_000)]
    item = transcript(tmp_path, ("\n".join(lines) + "\n").encode())
    for first in (1, 2, 999, 2_000 - count + 1):
        wanted = fingerprint_of(lines[first - 1 : first - 1 + count])
        assert relocate.places(item, wanted, count) == relocate.Places((first,), True, 2_000)


def test_several_places_are_all_told_up_to_a_few(tmp_path: Path) -> None:
    item = transcript(tmp_path, b"x\ny\n" * 50)
    found = relocate.places(item, fingerprint_of(["x", "y"]), 2)
    assert found.lines == (1, 3, 5, 7, 9)


@pytest.mark.parametrize("wanted", ["00000001", "zz", "", "-1"])
def test_text_that_stands_nowhere_is_not_found(tmp_path: Path, wanted: str) -> None:
    assert relocate.places(transcript(tmp_path, b"x\ny\n"), wanted, 1).lines == ()


def test_a_range_over_the_border_of_two_blocks_is_found(tmp_path: Path) -> None:
    lines = ["a" * 70_000, "here", "it is", "b" * 1_200_000, "last"]
    item = transcript(tmp_path, "\n".join(lines).encode())
    assert relocate.places(item, fingerprint_of(["here", "it is"]), 2).lines == (2,)
    assert relocate.places(item, fingerprint_of(["last"]), 1).lines == (5,)


def test_a_file_that_is_too_long_is_told_as_not_looked_through(tmp_path: Path) -> None:
    found = relocate.places(transcript(tmp_path, b"x\n"), "00000001", 1, patience=-1)
    assert found == relocate.Places((), False, 0)
