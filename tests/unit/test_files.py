"""Windows of lines: the same numbers as sed, rg and less, from any block, with or without counts."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.errors import Busy, NotFound, Unreadable
from webapp.transcripts import ripgrep
from webapp.transcripts.files import (
    BLOCK,
    Line,
    Mark,
    Offsets,
    load_marks,
    locked,
    marks_around,
    marks_of,
    marks_path,
    offsets_path,
    parse_mark,
    read_window,
)

generated = settings(max_examples=80, deadline=None, derandomize=True, database=None)
WHOLE = 10**9
"""A limit that cuts no line."""

PIECES = (
    b"a line", b"", b"cr\r", b"ls\xe2\x80\xa8ps\xe2\x80\xa9", b"nel\xc2\x85", b"ff\x0cvt\x0b",
    b"nul\x00nul", b"fs\x1cgs\x1drs\x1e", b"bad\xff\xfe\xe2\x82", b"\xed\xa0\xbd lone surrogate",
    "ümläut 日本語 😀".encode(), b"\xef\xbb\xbfbom", b"\r", b"\t tab", b"x" * 300,
)  # fmt: skip


def odd_file(path: Path, seed: int) -> bytes:
    """A file of some blocks with every awkward thing at hand, also at the borders of blocks."""
    chance = random.Random(seed)
    data = bytearray()
    target = chance.choice((0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 17, 5 * BLOCK))
    while len(data) < target:
        left = BLOCK - len(data) % BLOCK
        what = chance.randrange(10)
        if what == 0:
            data += b"y" * 70_000
        elif what == 1:
            data += b"z" * (left - 1) + b"\n" * chance.randrange(1, 5)
        elif what == 2:
            data += b"w" * left
        elif what == 3:
            data += b"\n" * chance.randrange(1, 300)
        elif what == 4:
            data += ("é" * (left // 2 + 1)).encode()
        else:
            for _ in range(chance.randrange(1, 200)):
                data += chance.choice(PIECES) + b"\n"
    if chance.random() < 0.5:
        del data[target:]
    if chance.random() < 0.5 and not data.endswith(b"\n"):
        data += b"\n"
    path.write_bytes(data)
    return bytes(data)


def lines_of(data: bytes) -> list[str]:
    r"""What the numbers mean: text up to "\n", an unfinished last line included."""
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.decode("utf-8", "replace") for line in lines]


def ranges(total: int, seed: int) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    found = [(1, 1), (1, 3), (max(1, total), max(1, total)), (total + 1, total + 9), (1, total + 5)]
    for _ in range(12):
        first = chance.randrange(1, total + 3)
        found.append((first, first + chance.choice((0, 1, 7, 200))))
    return found


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("seed", range(24))
def test_a_window_is_the_lines_of_the_text(seed: int, stable: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    data = odd_file(path, seed)
    lines = lines_of(data)
    for first, last in ranges(len(lines), seed):
        wanted = [Line(n, lines[n - 1]) for n in range(first, min(last, len(lines)) + 1)]
        assert read_window(path, first, last, len(data), stable, WHOLE) == wanted
    assert Offsets.of(path, len(data), stable).total() == len(lines)


@generated
@given(
    st.lists(st.sampled_from([*PIECES, b"q" * (BLOCK - 3), b"q" * BLOCK, b"q" * 70_000]),
             max_size=30),
    st.booleans(), st.integers(1, 40), st.integers(0, 40),
)  # fmt: skip
def test_a_window_of_any_text_is_the_lines_of_the_text(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[bytes],
    ended: bool,
    first: int,
    more: int,
) -> None:
    path = tmp_path_factory.mktemp("generated") / "t.md"
    data = b"\n".join(pieces) + (b"\n" if ended else b"")
    path.write_bytes(data)
    lines = lines_of(data)
    wanted = [Line(n, lines[n - 1]) for n in range(first, min(first + more, len(lines)) + 1)]
    assert read_window(path, first, first + more, len(data), True, WHOLE) == wanted


@pytest.mark.parametrize("seed", [3, 5, 8, 13, 21])
def test_numbers_agree_with_sed_and_ripgrep(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    data = odd_file(path, seed)
    total = len(lines_of(data))
    env = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    for first, last in ranges(total, seed)[:10]:
        sed = subprocess.run(
            ["sed", "-n", f"{first},{last}p", str(path)], capture_output=True, check=True, env=env
        ).stdout
        window = read_window(path, first, last, len(data), True, WHOLE)
        assert [line.text for line in window] == lines_of(sed)
    rg = subprocess.run(
        [ripgrep.program(), "--text", "--encoding", "none", "-n", "a line|ümläut|nul", str(path)],
        capture_output=True, check=False,
    ).stdout  # fmt: skip
    found = [line.split(b":", 1) for line in rg.split(b"\n")[:-1]]
    for number, text in found[:: max(1, len(found) // 40)]:
        (line,) = read_window(path, int(number), int(number), len(data), True, WHOLE)
        assert line.text == text.decode("utf-8", "replace")


def numbered(path: Path, count: int = 40_000) -> int:
    path.write_bytes(b"".join(b"line %d\n" % n for n in range(1, count + 1)))
    return path.stat().st_size


def test_past_the_end_there_are_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    assert read_window(path, 40_001, 40_100, size) == []
    assert read_window(path, 10**12, 10**12, size) == []
    assert [line.number for line in read_window(path, 39_999, 50_000, size)] == [39_999, 40_000]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    path.touch()
    assert read_window(path, 1, 10, 0) == []
    assert Offsets.of(path, 0, True).total() == 0


def test_only_the_first_bytes_count(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    with path.open("ab") as file:
        file.write(b"beyond\n" * 50_000)
    assert read_window(path, 40_000, 40_010, size) == [Line(40_000, "line 40000")]
    assert Offsets.of(path, size, True).total() == 40_000


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path, data: path.unlink(),
        lambda path, data: path.write_bytes(b""),
        lambda path, data: path.write_bytes(data[: len(data) // 2]),
        lambda path, data: path.write_bytes(data[:24]),
        lambda path, data: path.write_bytes(data[:10]),
        lambda path, data: path.write_bytes(data[:-3]),
        lambda path, data: path.write_bytes(data[:-8]),
        lambda path, data: path.write_bytes(data + b"\0" * 8),
        lambda path, data: path.write_bytes(data[: len(data) - 16] + b"\0" * 16),
        lambda path, data: path.write_bytes(data[:-8] + b"\xff" * 8),
        lambda path, data: path.write_bytes(bytes(reversed(data))),
        lambda path, data: path.write_bytes(os.urandom(len(data))),
        lambda path, data: path.write_bytes(data[:8] + random.Random(1).randbytes(len(data) - 8)),
        lambda path, data: (path.unlink(), path.mkdir()),
    ],
    ids=["missing", "empty", "half", "head", "part of the head", "odd", "one less", "one more",
         "zeros", "huge", "reversed", "noise", "noise behind the magic", "a folder"],
)  # fmt: skip
@pytest.mark.parametrize("stable", [True, False])
def test_spoilt_counts_still_give_the_right_lines(
    stable: bool, spoil: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    Offsets.of(path, size, stable)
    spoil(offsets_path(path), offsets_path(path).read_bytes())
    for number in (1, 9_000, 20_000, 39_999, 40_000):
        assert read_window(path, number, number, size, stable) == [Line(number, f"line {number}")]
    assert Offsets.of(path, size, stable).total() == 40_000


def test_counts_are_kept_used_and_carried_on(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    read_window(path, 39_000, 39_001, size)
    kept = offsets_path(path).read_bytes()
    assert stat.S_IMODE(offsets_path(path).stat().st_mode) == 0o600
    state = offsets_path(path).stat().st_mtime_ns
    read_window(path, 30_000, 30_001, size)
    assert offsets_path(path).stat().st_mtime_ns == state, "written again without a need"
    with path.open("ab") as file:
        file.write(b"more\n" * 50_000)
    size = path.stat().st_size
    assert read_window(path, 89_999, 90_005, size) == [Line(89_999, "more"), Line(90_000, "more")]
    assert len(offsets_path(path).read_bytes()) > len(kept)
    assert [each.name for each in sorted(tmp_path.iterdir())] == ["t.md", "t.offsets"]


def test_a_window_does_not_read_what_is_before_it(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path, 200_000)
    read_window(path, 1, 1, size)
    start, before = Offsets.of(path, size, True).locate(150_000)
    assert start > 1_000_000 and 0 < 150_000 - before < BLOCK


@pytest.mark.parametrize("change", ["same size", "longer", "shorter"])
def test_another_program_s_file_is_counted_anew_when_it_changed(
    change: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    Offsets.of(path, size, stable=False)
    lines = {"same size": size // 2, "longer": size, "shorter": size // 4}[change]
    path.write_bytes(b"y\n" * lines)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))
    size = path.stat().st_size
    assert Offsets.of(path, size, stable=False).total() == lines
    wanted = lines - 5
    assert read_window(path, wanted, wanted, size, stable=False) == [Line(wanted, "y")]


def test_counts_that_cannot_be_kept_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    offsets_path(path).mkdir()
    assert read_window(path, 40_000, 40_000, size) == [Line(40_000, "line 40000")]
    assert {each.name for each in tmp_path.iterdir()} == {"t.md", "t.offsets"}


def test_threads_that_count_at_once_leave_right_counts(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    wrong: list[object] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(25):
            number = chance.randrange(1, 40_001)
            found = read_window(path, number, number, size, chance.random() < 0.5)
            if found != [Line(number, f"line {number}")]:
                wrong.append(found)
            offsets_path(path).unlink(missing_ok=True)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert {each.name for each in tmp_path.iterdir()} <= {"t.md", "t.offsets"}


def test_a_long_line_is_cut_and_the_rest_is_told_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    path.write_bytes(b"before\n" + b"x" * 70_000 + b"\nafter\n" + b"y" * 4_000 + b"\n")
    size = path.stat().st_size
    before, long, after, just = read_window(path, 1, 9, size)
    assert (before.text, after.text) == ("before", "after")
    assert (long.number, long.text, long.cut) == (2, "x" * 4_000, 66_000)
    assert (just.text, just.cut) == ("y" * 4_000, 0)
    (whole,) = read_window(path, 2, 2, size, line_limit=70_000)
    assert (whole.text, whole.cut) == ("x" * 70_000, 0)


@pytest.mark.parametrize("limit", range(9, 17))
def test_a_cut_does_not_split_a_character_and_hides_no_bad_byte(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    data = b"a\xffb" + "é日😀".encode() + b"z" * 20
    path.write_bytes(data + b"\n")
    (line,) = read_window(path, 1, 1, len(data) + 1, line_limit=limit)
    assert line.cut == len(data) - limit
    assert "a\ufffdbé日😀".startswith(line.text[:6]) and line.text.startswith("a\ufffdbé")
    assert line.text.count("\ufffd") == 1


def test_a_huge_line_takes_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    with path.open("wb") as file:
        for _ in range(300):
            file.write(b"m" * 100_000)
        file.write(b"\nend\n")
    size = path.stat().st_size
    tracemalloc.start()
    found = read_window(path, 1, 2, size)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[1] == Line(2, "end") and found[0].cut == 30_000_000 - 4_000
    assert peak < 2_000_000


def test_a_file_that_is_gone_or_no_file_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_window(tmp_path / "gone.md", 1, 5, 100)
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(Unreadable):
        read_window(tmp_path / "folder.md", 1, 5, 100)


def test_a_file_that_shrank_gives_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    Offsets.of(path, size, stable=True)
    path.write_bytes(path.read_bytes()[:12])
    assert read_window(path, 1, 9, size) == [Line(1, "line 1"), Line(2, "line ")]
    assert read_window(path, 30_000, 30_009, size) == []


LABELS = st.text(max_size=60)


@generated
@given(
    st.integers(1, 10**12),
    st.sampled_from(["header", "message:user", "tool", "notice", "end", "error"]),
    st.from_regex(r"\A[A-Za-z0-9_/.~-]{0,60}\Z"),
    st.from_regex(r"\A[0-9a-f-]{1,20}\Z"),
    LABELS,
)
def test_a_mark_survives_its_file(line: int, kind: str, id: str, digest: str, label: str) -> None:
    dumped = Mark(line, kind, id, digest, label).dump()
    assert dumped.count("\n") == 1 and dumped.endswith("\n")
    found = parse_mark(dumped)
    assert found == Mark(line, kind, id, digest, " ".join(label.split()))


@pytest.mark.parametrize("text", ["", "\n", "7", "7\tuser\tid\tabc", "x\tuser\tid\tabc\tlabel",
                                  "٣\tuser\tid\tabc\tlabel", "-1\tuser\tid\tabc\tl"])  # fmt: skip
def test_half_a_mark_is_none(text: str) -> None:
    assert parse_mark(text) is None


def test_marks_are_read_up_to_their_good_length(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    assert load_marks(path) == []
    first, second = Mark(1, "header", "a", "d", "l"), Mark(9, "user", "b", "d", "l")
    marks_path(path).write_text(first.dump() + second.dump() + "12\tuser")
    assert load_marks(path) == [first, second]
    assert load_marks(path, len(first.dump())) == [first]


def test_only_as_much_is_counted_as_a_window_needs(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    size = numbered(path)
    assert len(Offsets.of(path, size, True, 1).counts) == 0
    some = Offsets.of(path, size, True, 20_000)
    assert 0 < len(some.counts) < size // BLOCK
    for number in (1, 19_999, 20_000, 39_000, 40_000, 7):
        assert read_window(path, number, number, size) == [Line(number, f"line {number}")]
    assert Offsets.of(path, size, True).total() == 40_000


KINDS = ("header", "message:user", "message:assistant", "tool", "error", "notice", "end")


def some_marks(path: Path, seed: int, count: int) -> list[Mark]:
    """Marks as exports leave them: an `end` on the last line of an append."""
    chance = random.Random(seed)
    marks, line = [Mark(1, "header", "ses", "d", "title")], 1
    while len(marks) < count:
        line += chance.choice((1, 1, 2, 50, 3_000))
        marks.append(Mark(line, chance.choice(KINDS[1:-1]), f"id{line}", "d", "label"))
        if chance.random() < 0.3:
            line += chance.choice((0, 1, 9))
            marks.append(Mark(line, "end", "", str(line * 10), ""))
    marks_path(path).write_text("".join(mark.dump() for mark in marks))
    return marks


@pytest.mark.parametrize("count", [1, 2, 3, 10, 400])
def test_the_marks_around_some_lines_tell_all_that_all_marks_tell(
    count: int, tmp_path: Path
) -> None:
    path = tmp_path / "t.md"
    for seed in range(6):
        marks = some_marks(path, seed, count)
        real = [mark for mark in marks if mark.kind != "end"]
        chance = random.Random(seed)
        for _ in range(60):
            first = chance.choice((chance.choice(marks).line, chance.randrange(1, 10**5)))
            last = first + chance.choice((0, 1, 200, 5_000))
            found = [m for m in marks_around(path, first, last) if m.kind != "end"]
            above = [mark for mark in real if mark.line <= first]
            below = [mark for mark in real if mark.line > last]
            needed = above[-1:] + [m for m in real if first < m.line <= last] + below[:1]
            assert [mark for mark in found if mark in needed] == needed
            assert len(found) <= len(needed) + 3


def test_the_marks_around_lines_without_marks_are_none(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    assert marks_around(path, 1, 9) == []
    marks_path(path).touch()
    assert marks_around(path, 1, 9) == []
    marks_path(path).write_text("12\tuser")
    assert marks_around(path, 1, 9) == []


def test_marks_of_some_kinds_are_those_of_all_marks(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    assert marks_of(path, ["notice"]) == []
    marks = some_marks(path, 1, 300)
    for kinds in (["notice"], ["message:user", "error"], ["header"], ["none"], ["mess", "."]):
        assert marks_of(path, kinds) == [mark for mark in marks if mark.kind in kinds]


def test_a_lock_is_exclusive_and_makes_the_file_private(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    before = os.umask(0)
    try:
        with locked(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(Busy), locked(path, patience=0):
                pass
    finally:
        os.umask(before)
    with locked(path, patience=0):
        pass


def test_whoever_waited_for_a_file_that_was_removed_gets_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    got: list[bool] = []

    def wait() -> None:
        with locked(path) as descriptor:
            got.append(os.path.samestat(os.fstat(descriptor), os.stat(path)))
            os.write(descriptor, b"new")

    with locked(path) as descriptor:
        os.write(descriptor, b"old")
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive(), "it did not wait"
        path.unlink()
    thread.join(10)
    assert got == [True] and path.read_bytes() == b"new"


def test_a_link_is_not_followed_by_a_lock(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o644)
    (tmp_path / "t.md").symlink_to(victim)
    with pytest.raises(OSError), locked(tmp_path / "t.md"):
        pass
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_sed_is_there() -> None:
    """Else the comparison above would say nothing."""
    assert shutil.which("sed")
