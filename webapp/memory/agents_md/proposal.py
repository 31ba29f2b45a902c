"""A proposal: the exact change that puts a text into an instruction file, byte for byte."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from webapp import secrets
from webapp.errors import Conflict, InvalidInput, SecretRefused
from webapp.memory.agents_md.files import MAX_FILE, load
from webapp.memory.agents_md.targets import Target

MAX_TEXT = 8_000
MAX_HEADINGS = 200
MAX_SHOWN_LINE = 2_000
"""Characters of a line around a change that a diff shows; the others are counted."""

AROUND = 3
MASK_ABOVE = 120
END = "end"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Zero width, bidirectional, line separators, and the tags and variation selectors that spell a text which
# a model reads and nobody sees; not the joiners of an emoji.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a file; `place` is what names the end of its own text."""

    place: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change as it would be made: `before` is None for a file that is not there. `diff` are the
    lines of a unified diff, credentials in the lines around it masked; `added` counts its `+` lines;
    `notes` are sentences."""

    target: Target
    text: str
    place: str
    before: bytes | None
    after: bytes
    diff: tuple[str, ...]
    added: int
    notes: tuple[str, ...]
    fingerprint: str


def headings(target: Target) -> tuple[Heading, ...]:
    """The headings under which a text may go: none inside a code block or a comment."""
    if target.problem:
        return ()
    before = load(target.file)
    if before is None:
        return ()
    places, _ = _sections(before.decode("utf-8"))
    return tuple(
        Heading(str(number), level, secrets.mask(text)[:200])
        for number, (_, level, text) in enumerate(places[:MAX_HEADINGS])
    )


def _sections(text: str) -> tuple[list[tuple[int, int, str]], bool]:
    """The headings, each with its line (from 0), level and text; none in a list, a quotation, a code
    block or a comment, nor in settings at the top, which an empty line before them makes text. And
    whether a text at the end would be one of its own, and not part of a block that is still open
    there."""
    from markdown_it import MarkdownIt  # 60 ms to import, and rarely needed

    lines = text.removeprefix("\ufeff").split("\n")
    skipped = _front_matter(lines)
    lines[:skipped] = [""] * skipped
    # To Markdown a CR alone ends a line, to every count of lines here it does not.
    plain = re.sub("\r(?!\n)", " ", "\n".join([*lines, "", _PROBE]))
    parser = MarkdownIt("commonmark")
    parser.core.ruler.enableOnly(["normalize", "block"])
    tokens = parser.parse(plain)
    found = [
        (token.map[0], int(token.tag[1:]), " ".join(inside.content.split()))
        for token, inside in pairwise(tokens)
        if token.type == "heading_open" and token.level == 0 and token.map
    ]
    # A paragraph is its beginning, its text and its end.
    return found, [token.content for token in tokens[-2:]] == [_PROBE, ""] and not tokens[-1].level


_PROBE = "the end"


def _front_matter(lines: Sequence[str]) -> int:
    """The lines of settings that some programs keep at the top, between two lines of `---`."""
    if lines[0].rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:200], 1):
        if line.rstrip() == "---":
            return number + 1
    return 0


def check(text: str) -> str:
    """The text as it would be written. Raises InvalidInput and SecretRefused."""
    text = text.replace("\r\n", "\n").strip("\n")
    if not text.strip():
        raise InvalidInput("The text is empty; write what the file is to say.", "text")
    if len(text) > MAX_TEXT:
        raise InvalidInput(
            f"The text has {len(text):,} characters; at most {MAX_TEXT:,} fit. Every session pays for"
            " each of them.",
            "text",
        )
    odd = sorted({match[0] for match in _CONTROL.finditer(text)})
    if odd:
        raise InvalidInput(
            f"The text holds control characters ({named(odd)}), which can hide what it says. Take them"
            " out.",
            "text",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput("The text is not valid Unicode.", "text") from error
    if not _sections(f"\n{text}")[1]:
        raise InvalidInput(
            "A code block, a comment or another block of the text is not closed, so what follows it in"
            " the file would be part of it. Close it first.",
            "text",
        )
    secret = secrets.find(text)
    if secret:
        raise SecretRefused(
            f"The text looks like it holds a secret ({secret[0].kind}). Nothing was written; take it out"
            " and say where the secret is kept instead.",
            "text", kind=secret[0].kind,
        )  # fmt: skip
    return text


def named(characters: Sequence[str]) -> str:
    """Characters that are not seen, by name."""
    return ", ".join(f"U+{ord(char):04X}" for char in characters)


def propose(target: Target, text: str, place: str) -> Proposal:
    """The change that puts a text at the end of a file or of a heading's own text.

    Raises InvalidInput and SecretRefused for the text and the place, Conflict for a file that
    cannot be written.
    """
    text = check(text)
    if target.problem:
        raise Conflict(f"{target.problem} Nothing was written.")
    before = load(target.file)
    after = _with(before, text, place, target.file)
    if len(after) > MAX_FILE:
        raise Conflict(
            f"{target.path} would have {len(after):,} bytes with that text; no file of more than"
            f" {MAX_FILE:,} is written here, as it could not be taken back. Nothing was written."
        )
    notes = []
    unseen = sorted({match[0] for match in _UNSEEN.finditer(text)})
    if unseen:
        notes.append(
            f"The text holds characters that are not seen ({named(unseen)}). They are shown by name;"
            " take them out unless you know what they are for."
        )
    if before and text in before.decode("utf-8").replace("\r\n", "\n"):
        notes.append("The file holds this text already.")
    if before is not None and b"\r\n" in before:
        notes.append("Lines of this file end with CR and LF; so do the new ones.")
    diff = difference(target.path, before, after)
    digest = hashlib.sha256(os.fsencode(target.file) + b"\0")
    for data in (before, after):
        digest.update(b"-" if data is None else hashlib.sha256(data).digest())
    return Proposal(
        target, text, place, before, after, diff,
        sum(line.startswith("+") for line in diff[3:]), tuple(notes),
        digest.hexdigest()[:16],
    )  # fmt: skip


def _with(before: bytes | None, text: str, place: str, file: Path) -> bytes:
    whole = (before or b"").decode("utf-8")
    if before is None or not whole.removeprefix("\ufeff").strip():
        if place != END:
            raise InvalidInput("That heading is not in the file any more. Choose again.", "place")
        bom = "\ufeff" if whole.startswith("\ufeff") else ""
        return f"{bom}{text}\n".encode()
    lines = whole.split("\n")
    found, is_closed = _sections(whole)
    stop = len(lines)
    behind = len(found)
    if place != END:
        number = int(place) if place.isascii() and place.isdigit() and len(place) < 6 else -1
        if not 0 <= number < len(found):
            raise InvalidInput("That heading is not in the file any more. Choose again.", "place")
        behind = number + 1
        if behind < len(found):
            stop = found[behind][0]
    if stop == len(lines) and not is_closed:
        raise Conflict(
            f"A code block, a comment or another block of {file} is not closed, so what is added at its"
            " end would be part of it. Close it first, or choose a heading further up."
        )
    last = stop
    while last > 1 and not lines[last - 1].strip():
        last -= 1
    end = "\r" if whole.count("\r\n") * 2 > whole.count("\n") else ""
    new = [line + end for line in text.split("\n")]
    # An item after an item belongs to its list; else one empty line is between.
    apart = [] if _ITEM.match(lines[last - 1]) and _ITEM.match(new[0]) else [end]
    above, below = lines[:last], lines[last:]
    if below and stop < len(lines):
        if not any(not line.strip() for line in below[: stop - last]):
            below = [end, *below]
    elif not below:
        # The file ends without a line end, and goes on doing so.
        above[-1] += end
        new[-1] = new[-1].removesuffix("\r")
    after = "\n".join([*above, *apart, *new, *below])
    own = _sections(f"\n{text}")[0]
    if _named(_sections(after)[0]) != _named([*found[:behind], *own, *found[behind:]]):
        raise Conflict(
            f"At this place of {file} Markdown would read a heading of the text, or one that follows it,"
            " as part of a list or of another block. Begin the lines of the text without spaces, or"
            " choose another place. Nothing was written."
        )
    return after.encode()


def _named(found: Sequence[tuple[int, int, str]]) -> list[tuple[int, str]]:
    return [(level, text) for _, level, text in found]


def difference(path: Path, before: bytes | None, after: bytes | None) -> tuple[str, ...]:
    """A unified diff of one stretch, which is all that an addition changes. Written here, since
    difflib takes minutes for a file of many equal lines."""
    old, new = _lines(before), _lines(after)
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    behind = 0
    while behind < min(len(old), len(new)) - first and old[-1 - behind] == new[-1 - behind]:
        behind += 1
    start = max(0, first - AROUND)
    tail = min(behind, AROUND)
    head = max(0, start - MASK_ABOVE)
    rows = [(" ", line) for line in old[head:first]]
    rows += [("-", line) for line in old[first : len(old) - behind]]
    rows += [("+", line) for line in new[first : len(new) - behind]]
    rows += [(" ", line) for line in old[len(old) - behind : len(old) - behind + tail + MASK_ABOVE]]
    masked = secrets.mask("\n".join(line.removesuffix("\n") for _, line in rows)).split("\n")
    shown = []
    keep = range(start - head, len(rows) - max(0, min(behind, tail + MASK_ABOVE) - tail))
    crlf = all(line.endswith("\r\n") or not line.endswith("\n") for line in (*old, *new))
    for number in keep:
        sign, line = rows[number]
        text = masked[number].removesuffix("\r") if crlf else masked[number]
        # A longer line than a text may be was there before: the last one, without its line end.
        most = MAX_SHOWN_LINE if sign == " " else MAX_TEXT
        if len(text) > most:
            text = f"{text[:most]}… ({len(text) - most:,} more characters)"
        shown.append(sign + text)
        if not line.endswith("\n"):
            shown.append("\\ No newline at end of file")
    name = _CONTROL.sub("\ufffd", str(path).encode("utf-8", "replace").decode())
    counts = len(old) - behind - start + tail, len(new) - behind - start + tail
    hunk = f"@@ -{_span(start, counts[0])} +{_span(start, counts[1])} @@"
    return (
        f"--- {'/dev/null' if before is None else name}",
        f"+++ {'/dev/null' if after is None else name}", hunk, *shown,
    )  # fmt: skip


def _span(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _lines(data: bytes | None) -> list[str]:
    """Lines up to and with "\\n", and nothing else ends one."""
    found = (data or b"").decode("utf-8", "replace").split("\n")
    return [line + "\n" for line in found[:-1]] + ([found[-1]] if found[-1] else [])
