"""Marks and line counts of long transcripts: only what a window needs is read, and it is the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from webapp.transcripts.files import (
    BLOCK,
    Mark,
    Offsets,
    first_lines,
    load_marks,
    marks_around,
    marks_of,
    marks_path,
    offsets_path,
    read_window,
)
from webapp.transcripts.window import _Kinds


def written(path: Path, marks: list[Mark]) -> Path:
    marks_path(path).write_text("".join(mark.dump() for mark in marks))
    return path


def some_marks(seed: int) -> list[Mark]:
    """Marks of a session with several appends, as an export writes them."""
    chance = random.Random(seed)
    marks = [Mark(1, "header", "ses", "d", "Title")]
    line = 8
    for number in range(chance.randrange(80)):
        kind = chance.choice(("message:user", "message:assistant", "tool", "text", "error", "end"))
        if kind == "end" and marks[-1].kind == "end":
            continue
        at = line - 1 if kind == "end" else line
        marks.append(Mark(at, kind, f"id_{number}", "d", "\tmessage:user\t in a label"))
        line += 0 if kind == "end" else chance.randint(1, 4)
    return marks


@pytest.mark.parametrize("seed", range(40))
def test_a_few_marks_say_of_every_line_what_all_of_them_say(seed: int, tmp_path: Path) -> None:
    path = written(tmp_path / "a.md", some_marks(seed))
    every = load_marks(path)
    total = every[-1].line + 3
    for first in range(1, total + 1):
        last = min(first + seed % 7, total)
        few = _Kinds(marks_around(path, first, last))
        for number in range(first, last + 1):
            for text in ("", "### tool", "#### output"):
                assert few.of(number, text) == _Kinds(every).of(number, text), (number, text)


def test_of_many_marks_only_a_few_are_read(tmp_path: Path) -> None:
    marks = [Mark(number * 10, "tool", f"prt_{number}", "d", "x") for number in range(1, 20_000)]
    path = written(tmp_path / "a.md", marks)
    assert len(marks_around(path, 100_005, 100_205)) < 30
    every = _Kinds(marks)
    for first in random.Random(5).sample(range(1, 200_000), 200):
        few = _Kinds(marks_around(path, first, first + 25))
        for number in range(first, first + 26):
            assert few.of(number, "x") == every.of(number, "x"), number
    assert marks_around(path, 1, 5)[0] == marks[0]
    assert marks_around(path, 10**9, 10**9 + 200)[-1] == marks[-1]


def test_marks_that_are_missing_or_torn_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    assert marks_around(path, 1, 200) == marks_of(path, ["tool"]) == []
    marks = [Mark(1, "header", "s", "d", "T"), Mark(5, "tool", "p", "d", "x")]
    written(path, marks)
    with marks_path(path).open("a") as file:
        file.write("9\ttool\tprt")
    assert marks_around(path, 1, 200) == marks
    assert marks_of(path, ["tool"]) == marks[1:]


@pytest.mark.parametrize("seed", range(10))
def test_marks_of_some_kinds_are_those_of_all_marks(seed: int, tmp_path: Path) -> None:
    path = written(tmp_path / "a.md", some_marks(seed))
    kinds = ("message:user", "error", "header")
    assert marks_of(path, kinds) == [mark for mark in load_marks(path) if mark.kind in kinds]


def test_lines_are_counted_no_further_than_to_the_window_and_then_on(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    lines = [f"line {number} {'x' * 50}" for number in range(1, 20_001)]
    path.write_text("\n".join(lines) + "\n")
    size = path.stat().st_size
    counted = []
    for first in (2_500, 9_000, 4_000, 20_000, 20_001):
        found = read_window(path, first, first + 2, size)
        assert [line.text for line in found] == lines[first - 1 : first + 2]
        counted.append(offsets_path(path).stat().st_size)
    assert counted == sorted(counted)
    assert counted[0] < counted[1] == counted[2] < counted[3]
    assert len(Offsets.of(path, size, True).counts) == size // BLOCK
    assert Offsets.of(path, size, True).total() == len(lines)


def test_the_first_lines_of_what_is_asked_for_are_found_wherever_they_stand(tmp_path: Path) -> None:
    marks = [Mark(number * 10, "tool", f"prt_{number}", "d", "x") for number in range(1, 90_000)]
    odd = "odd\\id\twith a tab"
    marks += [
        Mark(900_005, "message:user", odd, "d", ""),
        Mark(900_010, "end", "prt_5", "d", ""),
        Mark(900_020, "text", "prt_7", "d", "again"),
        Mark(900_030, "notice", "n", "d", ""),
    ]
    path = written(tmp_path / "a.md", marks)
    wanted = {"prt_1", "prt_7", "prt_89999", odd, "n", "nowhere"}
    assert first_lines(path, wanted) == {
        "prt_1": 10, "prt_7": 70, "prt_89999": 899_990, odd: 900_005
    }  # fmt: skip
    assert first_lines(tmp_path / "none.md", wanted) == {}
