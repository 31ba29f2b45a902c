"""A window of a transcript: numbered lines, what each belongs to, masked where secrets stand."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from webapp import secrets
from webapp.lines import MAX_WINDOW, LineRange, line_hash
from webapp.transcripts.files import LINE_SHOWN, Line, Mark, marks_around, read_window
from webapp.transcripts.library import Transcript

SIZE = 200
ABOVE = 8
"""Lines shown above a linked one, so that it does not stick to the top."""

MASK_ABOVE = 120
"""Lines read above a window, so that a private key which begins there is masked to its end."""

SPARE = 1_024
"""Bytes of a cut line that are read beyond what is shown, to know a credential at its end."""

_LABELS = ("#### output", "#### error", "#### metadata")
FULL_LINE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """A line as it is shown. `kind` colours the gutter; `heading` is 2 for a message, 3 for a
    part, 4 for a label in it; `hash` is of the verbatim text, of a very long line of its beginning,
    whose other bytes `cut` counts; `masked` says that a credential in it is hidden."""

    number: int
    text: str
    kind: str
    heading: int
    hash: int
    cut: int
    masked: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """Lines `first` to `last` of `total`; empty past the end."""

    rows: tuple[Row, ...]
    first: int
    last: int
    total: int

    @property
    def has_before(self) -> bool:
        """Whether there are lines above."""
        return self.first > 1

    @property
    def has_after(self) -> bool:
        """Whether there are lines below."""
        return self.last < self.total


def span(selected: LineRange, total: int) -> LineRange:
    """The lines to show for a selection: a few above, and SIZE in all or as many as it takes."""
    if selected.first > total:
        return selected
    first = max(1, selected.first - ABOVE)
    last = max(first + SIZE - 1, min(selected.last + ABOVE, selected.first + MAX_WINDOW - 1))
    return LineRange(first, max(first, min(last, total)))


def read(
    transcript: Transcript,
    shown: LineRange,
    mask: bool = True,
    full: int | None = None,
    reveal: int | None = None,
) -> Window:
    """Reads a window. `full` names one line to show whole, up to 8 MiB of it, `reveal` one to show
    without a mask."""
    above = shown.first - max(1, shown.first - MASK_ABOVE) if mask else 0
    long = read_window(
        transcript.path, shown.first - above, shown.last, transcript.size, transcript.ours,
        LINE_SHOWN + SPARE,
    )  # fmt: skip
    lines = [shortened(line, LINE_SHOWN) for line in long]
    # Of a cut line, so that a link means the same whether the line is shown whole or not.
    hashes = [line_hash(line.text) for line in lines]
    texts = [
        masked_end(line.text, short.text) if mask and short.cut else short.text
        for line, short in zip(long, lines, strict=True)
    ]
    for index, line in enumerate(lines):
        if line.number == full and line.cut:
            (lines[index],) = read_window(
                transcript.path, full, full, transcript.size, transcript.ours, FULL_LINE
            ) or (line,)
            texts[index] = lines[index].text
    shown_texts = secrets.mask("\n".join(texts)).split("\n") if mask and texts else texts
    marks = marks_around(transcript.path, shown.first, shown.last) if transcript.ours else []
    kinds = _Kinds(marks)
    rows = tuple(
        Row(
            line.number,
            line.text if line.number == reveal else text,
            *kinds.of(line.number, line.text),
            hashed,
            line.cut,
            text != line.text and line.number != reveal,
        )
        for line, text, hashed in zip(lines, shown_texts, hashes, strict=True)
        if line.number >= shown.first
    )
    last = rows[-1].number if rows else shown.first - 1
    return Window(rows, shown.first, last, transcript.lines)


def masked_line(transcript: Transcript, number: int) -> str:
    """One line, masked with the lines around it in view; empty if it is not there any more."""
    first = max(1, number - MASK_ABOVE)
    lines = read_window(
        transcript.path, first, number + MASK_ABOVE, transcript.size, transcript.ours
    )
    texts = secrets.mask("\n".join(line.text for line in lines)).split("\n")
    return texts[number - first] if number - first < len(lines) else ""


def shortened(line: Line, limit: int) -> Line:
    """A line cut to `limit` bytes."""
    data = line.text.encode()
    if len(data) <= limit:
        return line
    text = data[:limit].decode("utf-8", "ignore")
    return Line(line.number, text, line.cut + len(data) - limit)


def masked_end(long: str, short: str) -> str:
    """The text of a cut line, masked with what follows the cut in view: the half of a credential,
    or one whose next character is gone, is not known for what it is."""
    pieces, position = [], 0
    for secret in secrets.find(long):
        if secret.start >= len(short):
            break
        hidden = f"{secret.prefix}…[masked {secret.end - secret.start}]"
        pieces += [long[position : secret.start], hidden]
        position = secret.end
    return "".join([*pieces, long[position : max(position, len(short))]])


class _Kinds:
    """Which message or part a line belongs to."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._marks = [mark for mark in marks if mark.kind != "end"]
        self._lines = [mark.line for mark in self._marks]

    def of(self, number: int, text: str) -> tuple[str, int]:
        """The kind of a line and the level of the heading it is, 0 for none."""
        if not self._marks:
            level = len(text) - len(text.lstrip("#")) if text.startswith("## ") else 0
            return "plain", 2 if level == 2 else 0
        index = bisect.bisect_right(self._lines, number) - 1
        if index < 0:
            return "plain", 0
        mark = self._marks[index]
        kind = mark.kind.removeprefix("message:")
        if mark.line != number:
            if not text and self._before_message(index, number):
                return "plain", 0
            return kind, 4 if kind in ("tool", "error") and text in _LABELS else 0
        if mark.kind.startswith("message:") or mark.kind == "notice":
            return kind, 2
        return kind, 3 if text.startswith("### ") else 0

    def _before_message(self, index: int, number: int) -> bool:
        return index + 1 < len(self._lines) and self._lines[index + 1] == number + 1
