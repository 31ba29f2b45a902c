"""A window of a transcript: numbered lines, what each belongs to, masked where secrets stand."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from webapp import secrets
from webapp.lines import MAX_WINDOW, LineRange, line_hash
from webapp.transcripts.files import LINE_SHOWN, Mark, load_marks, read_window
from webapp.transcripts.library import Transcript

SIZE = 200
ABOVE = 8
"""Lines shown above a linked one, so that it does not stick to the top."""

FULL_LINE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """A line as it is shown. `kind` colours the gutter; `heading` is 2 for a message, 3 for a part;
    `hash` is of the verbatim text; `cut` counts bytes left out of a very long line."""

    number: int
    text: str
    kind: str
    heading: int
    hash: int
    cut: int


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
    last = max(first + SIZE - 1, min(selected.last + ABOVE, first + MAX_WINDOW - 1))
    return LineRange(first, max(first, min(last, total)))


def read(
    transcript: Transcript, shown: LineRange, mask: bool = True, full: int | None = None
) -> Window:
    """Reads a window. `full` names one line to show whole, up to 8 MiB of it."""
    lines = read_window(
        transcript.path, shown.first, shown.last, transcript.size, transcript.ours, LINE_SHOWN
    )
    if full is not None and any(line.number == full and line.cut for line in lines):
        whole = read_window(
            transcript.path, full, full, transcript.size, transcript.ours, FULL_LINE
        )
        lines = [whole[0] if line.number == full and whole else line for line in lines]
    texts = [line.text for line in lines]
    shown_texts = secrets.mask("\n".join(texts)).split("\n") if mask else texts
    kinds = _Kinds(load_marks(transcript.path) if transcript.ours else [])
    rows = tuple(
        Row(line.number, text, *kinds.of(line.number, line.text), line_hash(line.text), line.cut)
        for line, text in zip(lines, shown_texts, strict=True)
    )
    last = rows[-1].number if rows else shown.first - 1
    return Window(rows, shown.first, last, transcript.lines)


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
            return ("plain" if not text and self._before_message(index, number) else kind), 0
        if mark.kind.startswith("message:") or mark.kind == "notice":
            return kind, 2
        return kind, 3 if text.startswith("### ") else 0

    def _before_message(self, index: int, number: int) -> bool:
        return index + 1 < len(self._lines) and self._lines[index + 1] == number + 1
