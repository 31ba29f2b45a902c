"""The outline beside a transcript: its messages, tool calls, errors and compactions, by line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from webapp import secrets
from webapp.transcripts.files import Mark
from webapp.transcripts.render import LABEL

AROUND = 60
INNER = 40
"""Items that are shown at once: of the whole transcript, and of what was done after the current one."""

NEAR = 3_000
"""Lines above and below the window within which that is looked for."""

KINDS = ("message:user", "message:compaction", "error", "notice")
INNER_KINDS = ("message:assistant", "tool")
_LAST_WORD = re.compile(r"[!-~]*$")


@dataclass(frozen=True, slots=True)
class Item:
    """A line to jump to. `current` is the last one that begins at or above the window's top; it has
    `inner`, the answers and tool calls up to the next one."""

    line: int
    kind: str
    label: str
    current: bool
    inner: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Outline:
    """The items near a line, and how many there are above and below them."""

    items: tuple[Item, ...]
    above: int
    below: int


def outline(marks: Sequence[Mark], near: Sequence[Mark], top: int, mask: bool) -> Outline:
    """What a person asked, what failed and where the context was compacted, around line `top`, and
    what was done for the current one. `marks` are those of KINDS, `near` all of the lines around."""
    wanted = [mark for mark in marks if _is_item(mark)]
    index = max((n for n, mark in enumerate(wanted) if mark.line <= top), default=0)
    start = max(0, index - AROUND // 2)
    chosen = wanted[start : start + AROUND]
    items = []
    for number, mark in enumerate(chosen, start):
        inner: tuple[Item, ...] = ()
        if number == index:
            after = wanted[index + 1].line if index + 1 < len(wanted) else None
            inner = _inner(near, mark.line, after, top, mask)
        items.append(Item(mark.line, _kind(mark), label(mark, mask), number == index, inner))
    return Outline(tuple(items), start, len(wanted) - start - len(chosen))


def _inner(
    near: Sequence[Mark], first: int, after: int | None, top: int, mask: bool
) -> tuple[Item, ...]:
    found = [
        mark
        for mark in near
        if mark.kind in INNER_KINDS
        and first < mark.line
        and (after is None or mark.line < after)
        # An answer that only calls tools has no words to be known by.
        and mark.label != "assistant"
    ]
    index = max((n for n, mark in enumerate(found) if mark.line <= top), default=0)
    start = max(0, min(index - INNER // 2, len(found) - INNER))
    return tuple(
        Item(mark.line, _kind(mark), label(mark, mask), False)
        for mark in found[start : start + INNER]
    )


def _kind(mark: Mark) -> str:
    return mark.kind.removeprefix("message:")


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
