"""One message of a transcript as it is read beside its lines: its texts, and the rest by name.

A message may be of any length. What is read of it is bounded by TEXT_LIMIT, LINE_LIMIT and
PIECES; `Message.rest` says from which line on the lines alone have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from webapp import secrets
from webapp.transcripts.export import CONTINUED
from webapp.transcripts.files import (
    LINE_SHOWN,
    Line,
    Mark,
    heading_at,
    heading_below,
    iter_window,
    parts_between,
    places_of,
    read_window,
)
from webapp.transcripts.library import Transcript
from webapp.transcripts.outline import label
from webapp.transcripts.window import MASK_ABOVE, SPARE, masked_end, shortened

TEXT_LIMIT = 100_000
"""Bytes of text of one message. The slowest Markdown of that length that was found (brackets, tables,
one-line lists) takes a second to render, prose a fifth of one."""

LINE_LIMIT = 50_000
"""Bytes of one line of text."""

PIECES = 200
"""Parts of one message."""

TEXTS = ("user", "assistant")
_SILENT = ("step-start", "step-finish", "snapshot")
_OWN_HEADING = re.compile(r"### text((?: · (?:synthetic|ignored))*)")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}Z")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a message. `text` is what is to be rendered, None where only `label` is told;
    `cuts` are lines of it that are too long, with the bytes that were left out of each."""

    line: int
    kind: str
    label: str
    text: str | None = None
    cuts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """Lines `first` to `last` of a transcript. `kind` is its role or `compaction`; `time` is when it
    began. `rest` is the first line that is not in `pieces`; `begins` and `goes_on` are where the
    same message stands as well, for one that was continued lower down."""

    first: int
    last: int
    kind: str
    role: str
    time: str
    pieces: tuple[Piece, ...]
    rest: int | None
    begins: int | None
    goes_on: int | None


def read(transcript: Transcript, line: int, mask: bool = True) -> Message | None:
    """The message that a line belongs to, past the end the last one. None for the head of a
    transcript, for a notice, and where no marks tell messages apart."""
    head = heading_at(transcript.path, min(line, transcript.lines)) if transcript.ours else None
    if head is None or not head.kind.startswith("message:"):
        return None
    below = heading_below(transcript.path, head.line)
    # An empty line stands above every heading.
    last = transcript.lines if below is None else min(below - 2, transcript.lines)
    places = places_of(transcript.path, head.id) if head.id else []
    begins = min(places, default=head.line)
    heading = _heading(transcript, begins, mask)
    time = _TIME.search(heading)
    pieces, rest = _pieces(transcript, head, last, mask)
    return Message(
        head.line, last, head.kind.removeprefix("message:"),
        heading.removeprefix("## ").split(" · ", 1)[0][:40], time[0] if time else "", tuple(pieces), rest,
        begins if begins < head.line else None,
        min((place for place in places if place > head.line), default=None),
    )  # fmt: skip


def _heading(transcript: Transcript, line: int, mask: bool) -> str:
    lines = read_window(transcript.path, line, line, transcript.size, transcript.ours)
    text = lines[0].text if lines else ""
    return secrets.mask(text) if mask else text


def _pieces(
    transcript: Transcript, head: Mark, last: int, mask: bool
) -> tuple[list[Piece], int | None]:
    """The parts, and the first line that is left out."""
    pieces: list[Piece] = []
    left = TEXT_LIMIT
    for mark, end in _extents(parts_between(transcript.path, head.line + 1, last), last):
        if len(pieces) == PIECES:
            return pieces, mark.line
        if mark.kind not in TEXTS:
            if mark.label not in _SILENT:
                pieces.append(Piece(mark.line, mark.kind, label(mark, mask)))
            continue
        opening = mark.line == head.line + 1 and head.digest != CONTINUED
        piece, used, rest = _text(transcript, mark, end, left, mask, opening)
        left -= used
        if piece.text is not None:
            pieces.append(piece)
        if rest is not None:
            return pieces, rest
    return pieces, None


def _extents(marks: Iterator[Mark], last: int) -> Iterator[tuple[Mark, int]]:
    """Each part with its last line."""
    before: Mark | None = None
    for mark in marks:
        if before is not None:
            yield before, mark.line - 1
        before = mark
    if before is not None:
        yield before, last


def _text(
    transcript: Transcript, mark: Mark, last: int, left: int, mask: bool, opening: bool
) -> tuple[Piece, int, int | None]:
    """A text of at most `left` bytes, the bytes that it took, and the first line left out of it.

    The lines above and below are masked with it, as a private key may begin or end there.
    """
    first = mark.line
    above = read_window(
        transcript.path, max(1, first - MASK_ABOVE), first - 1, transcript.size, True, LINE_SHOWN
    )  # fmt: skip
    long: list[Line] = []
    below: list[Line] = []
    used, rest = 0, None
    for line in iter_window(
        transcript.path, first, last + MASK_ABOVE, transcript.size, True, LINE_LIMIT + SPARE
    ):
        took = len(line.text.encode()) + 1
        if line.number <= last and rest is None and used + min(took, LINE_LIMIT) <= left:
            long.append(line)
            used += min(took, LINE_LIMIT)
            continue
        if line.number <= last and rest is None:
            rest = line.number
        below.append(shortened(line, LINE_SHOWN))
        if len(below) == MASK_ABOVE:
            break
    lines = [shortened(line, LINE_LIMIT) for line in long]
    texts = [short.text for short in lines]
    if mask:
        texts = [
            masked_end(line.text, short.text) if short.cut else short.text
            for line, short in zip(long, lines, strict=True)
        ]
        around = [line.text for line in above], [line.text for line in below]
        masked = secrets.mask("\n".join([*around[0], *texts, *around[1]])).split("\n")
        texts = masked[len(above) : len(above) + len(texts)]
    # The first text of a message has no heading of its own unless something is to be said of it.
    own = _OWN_HEADING.fullmatch(texts[0]) if texts else None
    flags = own[1].removeprefix(" · ") if own else ""
    if own and (flags or not opening):
        texts = texts[1:]
    cuts = tuple((line.number, line.cut) for line in lines if line.cut)
    text = "\n".join(texts) if lines else None
    return Piece(first, mark.kind, flags or "text", text, cuts), used, rest
