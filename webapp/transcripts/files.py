r"""A transcript on disk: the text, its marks, and the counts of lines per block.

`<id>.md` is the text. `<id>.marks` says, one line each, where every message and part begins and
what its text was when it was written; `<id>.offsets` holds the number of "\n" up to the end of each
64 KiB block, so that a window needs one block read; `<id>.sources` says what each message was made
of in OpenCode, so that an export renders only what is new. All can be lost: offsets are counted and
messages rendered anew, and without marks a transcript is read as plain text.
"""

from __future__ import annotations

import array
import bisect
import codecs
import os
import re
import threading
import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from webapp.errors import Busy, NotFound, Unreadable

try:
    import fcntl
except ImportError:  # pragma: no cover - a platform without flock
    fcntl = None  # type: ignore[assignment]

BLOCK = 64 * 1024
LINE_SHOWN = 4_000
"""Bytes of one line that a window carries; the rest is told as a number."""

LOCK_PATIENCE_S = 5.0
"""How long an export waits for another that writes the same transcript."""

_HEADING = re.compile(rb"\n([0-9]+\t(?:message:[^\t\n]*|notice|header)\t[^\n]*)")

_MAGIC = b"OMLINES2"
_HEAD = 32
"""Bytes before the counts: the magic, time and size of the text, a checksum of the counts."""


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n"})


class Mark(NamedTuple):
    """Where a message or part begins: its line, what it is, and a digest of its text. A long session
    has 60,000, and a tuple is made in a third of the time that a dataclass takes."""

    line: int
    kind: str
    id: str
    digest: str
    label: str

    def dump(self) -> str:
        """One line of the marks file."""
        kind, label = " ".join(self.kind.split()), " ".join(self.label.split())
        id = self.id.translate(_ESCAPES)
        return f"{self.line}\t{kind}\t{id}\t{self.digest}\t{label}\n"


def parse_mark(line: str) -> Mark | None:
    """A line of a marks file, or None when it is not whole."""
    pieces = line.rstrip("\n").split("\t")
    if len(pieces) != 5 or not pieces[0].isascii() or not pieces[0].isdigit():
        return None
    id = re.sub(r"\\(.)", _unescaped, pieces[2]) if "\\" in pieces[2] else pieces[2]
    return Mark(int(pieces[0]), pieces[1], id, pieces[3], pieces[4])


def _unescaped(match: re.Match[str]) -> str:
    return {"t": "\t", "n": "\n"}.get(match[1], match[1])


def marks_path(path: Path) -> Path:
    """The marks beside a transcript."""
    return path.with_suffix(".marks")


def offsets_path(path: Path) -> Path:
    """The line counts beside a transcript."""
    return path.with_suffix(".offsets")


def sources_path(path: Path) -> Path:
    """Beside a transcript, what each of its messages was made of in OpenCode."""
    return path.with_suffix(".sources")


def load_marks(path: Path, size: int | None = None) -> list[Mark]:
    """All marks of a transcript in order, of the first `size` bytes of the marks file."""
    try:
        data = marks_path(path).read_bytes()
    except FileNotFoundError:
        return []
    return _parsed(data[:size])


def marks_around(path: Path, first: int, last: int) -> list[Mark]:
    """The marks that say what lines `first` to `last` are: those in between, what is in force above
    them, and the next one below.

    A session of 1 GB has some 200,000 marks, which take half a second to parse. They stand in the
    order of their lines, so that few need to be read."""
    try:
        with marks_path(path).open("rb") as file:
            return _parsed(b"".join(_around(file, first, last)))
    except FileNotFoundError:
        return []


def heading_at(path: Path, line: int) -> Mark | None:
    """The mark of the message, notice or head of the file that a line belongs to."""
    try:
        with marks_path(path).open("rb") as file:
            # Upwards from below every mark of a line at or above this one.
            stop, rest = (_block_of(file, line) + 2) * BLOCK, b""
            while stop > 0:
                stop -= BLOCK
                file.seek(stop)
                data = file.read(BLOCK) + rest
                rest, _, whole = data.partition(b"\n") if stop else (b"", b"", data)
                for found in reversed(_HEADING.findall(b"\n" + whole)):
                    if _mark_line(found) <= line:
                        return next(iter(_parsed(found)), None)
                rest += b"\n"
    except FileNotFoundError:
        pass
    return None


def heading_below(path: Path, line: int) -> int | None:
    """The line of the next message or notice below a line."""
    try:
        with marks_path(path).open("rb") as file:
            _seek_above(file, _block_of(file, line))
            while lines := file.read(BLOCK) + file.readline():
                for found in _HEADING.findall(b"\n" + lines):
                    if _mark_line(found) > line:
                        return _mark_line(found)
    except FileNotFoundError:
        pass
    return None


def parts_between(path: Path, first: int, last: int) -> Iterator[Mark]:
    """The marks of the parts in lines `first` to `last`, one after the other."""
    try:
        with marks_path(path).open("rb") as file:
            _seek_above(file, _block_of(file, first))
            for data in file:
                if _mark_line(data) > last:
                    return
                if _mark_line(data) >= first:
                    yield from (mark for mark in _parsed(data) if mark.kind != "end")
    except FileNotFoundError:
        return


def places_of(path: Path, message_id: str) -> list[int]:
    """The lines where a message begins and where it is continued."""
    needle = f"\t{message_id}\t".encode()
    found: list[bytes] = []
    try:
        with marks_path(path).open("rb") as file:
            while lines := file.read(16 * BLOCK) + file.readline():
                if needle in lines:
                    found += [line for line in lines.split(b"\n") if needle in line]
    except FileNotFoundError:
        return []
    marks = _parsed(b"\n".join(found))
    return [m.line for m in marks if m.id == message_id and m.kind.startswith("message:")]


STRETCH = 1024 * 1024
SEEKS = 4
"""Bytes of marks that `lines_of` parses for each of so many places where it looks."""


def lines_of(path: Path, message_ids: Sequence[str]) -> dict[str, int]:
    """The lines where these messages, and the parts of all messages near them, begin, by id.

    The marks of messages that follow each other stand together, so that the first is looked for and
    those below are parsed: to search 10 MB of marks for one id takes 5 ms, to parse them 400. Of
    messages that were written in more than SEEKS places, some may be missing."""
    found: dict[str, int] = {}
    try:
        with marks_path(path).open("rb") as file:
            seeks = 0
            for message_id in message_ids:
                if message_id in found:
                    continue
                if seeks == SEEKS:
                    break
                seeks += 1
                place = _place_of(file, message_id)
                if place is None:
                    continue
                file.seek(place)
                for mark in _parsed(file.read(STRETCH) + file.readline()):
                    if mark.kind != "end":
                        found.setdefault(mark.id, mark.line)
    except FileNotFoundError:
        pass
    return found


_NAMED = re.compile(rb"\n([0-9]+)\t([^\t\n]*)\t([^\t\n]*)\t")


def first_lines(path: Path, ids: Collection[str]) -> dict[str, int]:
    """The lines where these messages and parts begin, by id, wherever they stand.

    All marks are looked through, and only what is asked for is held: 0.2 s for the 10 MB of a
    session of 1 GB, where to parse them takes twice as long and holds 90 MB."""
    wanted = {name.translate(_ESCAPES).encode("utf-8", "replace"): name for name in ids}
    found: dict[str, int] = {}
    try:
        with marks_path(path).open("rb") as file:
            while lines := file.read(16 * BLOCK) + file.readline():
                for line, kind, name in _NAMED.findall(b"\n" + lines):
                    if name in wanted and kind not in (b"end", b"notice"):
                        found.setdefault(wanted[name], int(line))
    except FileNotFoundError:
        pass
    return found


def _place_of(file: BinaryIO, message_id: str) -> int | None:
    """Where in the marks the first mark of a message begins."""
    name = message_id.translate(_ESCAPES).encode("utf-8", "replace")
    mark = re.compile(rb"\n[0-9]+\tmessage:[^\t\n]*\t" + re.escape(name) + rb"\t")
    file.seek(0)
    start = 0
    while lines := file.read(16 * BLOCK) + file.readline():
        # The id is looked for first: the pattern alone would take ten times as long.
        if name in lines and (match := mark.search(b"\n" + lines)):
            return start + match.start()
        start += len(lines)
    return None


def _around(file: BinaryIO, first: int, last: int) -> list[bytes]:
    _seek_above(file, _block_of(file, first))
    found: list[bytes] = []
    above = below = 0
    for data in file:
        line = _mark_line(data)
        if 0 <= line <= first:
            above = len(found)
        below += line > last
        found.append(data)
        if below == 2:
            break
    return found[max(0, above - 1) :]


def last_messages(path: Path) -> set[str]:
    """The ids of the messages that the last BLOCK of the marks names: of those that were written
    last, whatever notices came after them."""
    try:
        with marks_path(path).open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - BLOCK)
            file.seek(start)
            if start:
                file.readline()
            marks = _parsed(file.read())
    except FileNotFoundError:
        return set()
    return {mark.id for mark in marks if mark.kind.startswith("message:")}


def _block_of(file: BinaryIO, first: int) -> int:
    """The last block whose first whole mark is of line `first` or above."""
    low, high = 0, file.seek(0, os.SEEK_END) // BLOCK
    while low < high:
        middle = (low + high + 1) // 2
        file.seek(middle * BLOCK)
        file.readline()
        if 0 <= _mark_line(file.readline()) <= first:
            low = middle
        else:
            high = middle - 1
    return low


def _seek_above(file: BinaryIO, block: int) -> None:
    """To the first whole mark of the block above, as the last one above a line may be the end of an
    append, which says nothing of a line."""
    file.seek(max(0, block - 1) * BLOCK)
    if block > 1:
        file.readline()


def _mark_line(data: bytes) -> int:
    number = data.partition(b"\t")[0]
    return int(number) if number.isdigit() else -1


def marks_of(path: Path, kinds: Sequence[str]) -> list[Mark]:
    """The marks of some kinds; the others are not parsed."""
    wanted = "|".join(re.escape(kind) for kind in kinds).encode()
    mark = re.compile(rb"\n([0-9]+\t(?:" + wanted + rb")\t[^\n]*)")
    found: list[bytes] = []
    try:
        with marks_path(path).open("rb") as file:
            # A pattern that begins with "^" would take six times as long.
            while lines := file.read(16 * BLOCK) + file.readline():
                found += mark.findall(b"\n" + lines)
    except FileNotFoundError:
        return []
    return _parsed(b"\n".join(found))


def _parsed(data: bytes) -> list[Mark]:
    lines = data.decode("utf-8", "replace").split("\n")
    return [mark for mark in map(parse_mark, lines) if mark is not None]


_SOURCES = "opencode-memory sources 1"


def load_sources(path: Path, size: int, marks_size: int) -> dict[str, str]:
    """What the messages of a transcript were made of in OpenCode when its text and its marks had
    these sizes, by message id; empty where that is not known."""
    try:
        head, _, rest = sources_path(path).read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return {}
    if head != _sources_head(rest, size, marks_size):
        return {}
    pairs = (line.split("\t") for line in rest.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def save_sources(path: Path, sources: Mapping[str, str], size: int, marks_size: int) -> None:
    """Keeps what `load_sources` reads. They only spare work, so where they cannot be kept nothing is
    lost."""
    rest = "".join(f"{name}\t{found}\n" for name, found in sources.items() if name.isprintable())
    _replace(sources_path(path), f"{_sources_head(rest, size, marks_size)}\n{rest}".encode())


def _sources_head(rest: str, size: int, marks_size: int) -> str:
    return f"{_SOURCES}\t{size}\t{marks_size}\t{zlib.crc32(rest.encode()):08x}"


def _replace(target: Path, data: bytes) -> None:
    """Writes a file whole or not at all; one that is only a shortcut, so that a failure is none."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(scratch, target)
    except OSError:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, patience: float = LOCK_PATIENCE_S, create: bool = True) -> Iterator[int]:
    """The transcript opened for reading and appending, with an exclusive lock on it. Without `create`
    one that is not there is FileNotFoundError, and also one that goes while the lock is waited for.

    Whoever waited for the lock may have waited for a file that was removed meanwhile, so the inode
    is compared after the lock is held. Raises Busy when another holds it for longer than `patience`
    seconds: a stopped process would else hold every thread of a server.
    """
    deadline = time.monotonic() + patience
    while True:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if fcntl is not None:
                _flock(descriptor, path, deadline)
            try:
                same = os.path.samestat(os.fstat(descriptor), os.stat(path))
            except FileNotFoundError:
                same = False
            if same:
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _flock(descriptor: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise Busy(
                    f"Another process has been writing {path.name} for some time; try again later."
                ) from error
            time.sleep(0.02)


class Offsets:
    """The number of line ends up to the end of each full block of a file."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.counts = array.array("Q")
        self._signed = b""

    @classmethod
    def of(cls, path: Path, size: int, stable: bool, line: int | None = None) -> Offsets:
        """The counts for the first `size` bytes, from the file beside it and counted on from there;
        with `line` no further than to that line.

        `stable` says that the file only ever grows (our own). Another program's file is counted
        anew when its time or size is no longer what was noted.
        """
        found = cls(path, size)
        found._load(stable)
        done = len(found.counts)
        found._count(line)
        if len(found.counts) > done:
            found._save()
        return found

    def _signature(self) -> bytes:
        state = os.stat(self.path)
        return state.st_mtime_ns.to_bytes(8, "little") + state.st_size.to_bytes(8, "little")

    def _load(self, stable: bool) -> None:
        self._signed = self._signature()
        try:
            data = offsets_path(self.path).read_bytes()
        except OSError:
            return
        head, rest = data[:_HEAD], data[_HEAD:]
        if head != self._head(rest, head[8:24]) or len(rest) % 8:
            return
        if not stable and head[8:24] != self._signed:
            return
        counts = array.array("Q")
        counts.frombytes(rest)
        self.counts = counts[: self.size // BLOCK]

    @staticmethod
    def _head(counts: bytes, signed: bytes) -> bytes:
        return _MAGIC + signed + zlib.crc32(counts).to_bytes(8, "little")

    def _count(self, line: int | None) -> None:
        full = self.size // BLOCK
        if len(self.counts) >= full:
            return
        total = self.counts[-1] if self.counts else 0
        with self.path.open("rb", buffering=0) as file:
            file.seek(len(self.counts) * BLOCK)
            for _ in range(len(self.counts), full):
                if line is not None and total >= line - 1:
                    break
                total += file.read(BLOCK).count(b"\n")
                self.counts.append(total)

    def _save(self) -> None:
        counts = self.counts.tobytes()
        _replace(offsets_path(self.path), self._head(counts, self._signed) + counts)

    def total(self) -> int:
        """Lines in the file; an unfinished last line counts."""
        total = self.counts[-1] if self.counts else 0
        start = len(self.counts) * BLOCK
        if self.size > start:
            with self.path.open("rb") as file:
                file.seek(start)
                rest = file.read(self.size - start)
            total += rest.count(b"\n") + (not rest.endswith(b"\n"))
        elif self.size:
            with self.path.open("rb") as file:
                file.seek(self.size - 1)
                total += file.read(1) != b"\n"
        return total

    def locate(self, line: int) -> tuple[int, int]:
        """Where to begin reading for a line: the start of a block, and the line ends before it."""
        block = bisect.bisect_left(self.counts, line - 1)
        return block * BLOCK, self.counts[block - 1] if block else 0


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number, its text, and how many bytes of it were left out."""

    number: int
    text: str
    cut: int = 0


def read_window(
    path: Path, first: int, last: int, size: int, stable: bool = True, line_limit: int = LINE_SHOWN
) -> list[Line]:
    """Lines `first` to `last` of the first `size` bytes. Past the end there are none.

    Constant memory: of each line at most `line_limit` bytes are kept.
    """
    return list(iter_window(path, first, last, size, stable, line_limit))


def iter_window(
    path: Path, first: int, last: int, size: int, stable: bool = True, line_limit: int = LINE_SHOWN
) -> Iterator[Line]:
    """The lines of `read_window` one after the other, for who may have enough before the last."""
    try:
        offsets = Offsets.of(path, size, stable, first)
        start, before = offsets.locate(first)
        with path.open("rb") as file:
            file.seek(start)
            yield from _lines(file, first, last, before, size - start, line_limit)
    except FileNotFoundError as error:
        raise NotFound(f"The transcript {path.name} is no longer on disk.") from error
    except OSError as error:
        raise Unreadable(f"The transcript {path} cannot be read: {error.strerror}.") from error


def _lines(
    file: object, first: int, last: int, before: int, left: int, line_limit: int
) -> Iterator[Line]:
    number = before + 1
    kept = bytearray()
    length = 0
    while left > 0:
        chunk = file.read(min(BLOCK, left))  # type: ignore[attr-defined]
        if not chunk:
            break
        left -= len(chunk)
        position = 0
        if number < first:
            # Skip whole lines inside the chunk without cutting it up.
            for _ in range(first - number):
                end = chunk.find(b"\n", position)
                if end < 0:
                    position = len(chunk)
                    break
                position = end + 1
                number += 1
        while position < len(chunk) and number >= first:
            end = chunk.find(b"\n", position)
            piece = chunk[position : end if end >= 0 else len(chunk)]
            length += len(piece)
            if len(kept) < line_limit:
                kept += piece[: line_limit - len(kept)]
            if end < 0:
                break
            yield _line(number, kept, length)
            kept.clear()
            length = 0
            number += 1
            position = end + 1
            if number > last:
                return
    if length and first <= number <= last:
        yield _line(number, kept, length)


def _line(number: int, kept: bytearray, length: int) -> Line:
    cut = length - len(kept)
    if not cut:
        return Line(number, kept.decode("utf-8", "replace"))
    # Of a cut line a character at the end may be incomplete: it is left out, not replaced.
    return Line(number, codecs.getincrementaldecoder("utf-8")("replace").decode(kept), cut)
