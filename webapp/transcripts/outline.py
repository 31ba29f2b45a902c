"""The outline beside a transcript: its messages, errors and compactions, by line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from webapp import secrets
from webapp.transcripts.files import Mark
from webapp.transcripts.render import LABEL

AROUND = 60
KINDS = ("message:user", "message:compaction", "error", "notice")
_LAST_WORD = re.compile(r"[!-~]*$")


@dataclass(frozen=True, slots=True)
class Item:
    """A line to jump to. `current` is the last one that begins at or above the window's top."""

    line: int
    kind: str
    label: str
    current: bool


@dataclass(frozen=True, slots=True)
class Outline:
    """The items near a line, and how many there are above and below them."""

    items: tuple[Item, ...]
    above: int
    below: int


def outline(marks: Sequence[Mark], top: int, mask: bool) -> Outline:
    """What a person asked, what failed and where the context was compacted, around line `top`."""
    wanted = [mark for mark in marks if _is_item(mark)]
    index = max((n for n, mark in enumerate(wanted) if mark.line <= top), default=0)
    start = max(0, index - AROUND // 2)
    chosen = wanted[start : start + AROUND]
    items = tuple(
        Item(
            mark.line, mark.kind.removeprefix("message:"), label(mark, mask),
            start + number == index,
        )
        for number, mark in enumerate(chosen)
    )  # fmt: skip
    return Outline(items, start, len(wanted) - start - len(chosen))


def _is_item(mark: Mark) -> bool:
    return mark.kind in KINDS


def label(mark: Mark, mask: bool) -> str:
    """The short name of a message or part."""
    text = mark.label
    if mask and len(text) >= LABEL:
        # The cut may have gone through a credential, and the half of one is not known for it.
        text = _LAST_WORD.sub("…", text)
    text = secrets.mask(text) if mask else text
    if mark.kind == "error" and not text.startswith("error"):
        return f"error: {text}"
    return text or mark.kind.removeprefix("message:")
