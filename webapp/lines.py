r"""What a line of a transcript is: text up to "\n", and nothing else ends it.

`str.splitlines` also splits at \r, \x0b, \x0c, \x1c-\x1e, \x85, U+2028 and U+2029; numbers made that
way would disagree with `sed -n`, `rg -n` and `less -N`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from webapp.errors import InvalidInput

MAX_WINDOW = 2_000
"""Lines that one page, or one link, may span."""

MAX_LINE = 10**12
"""A larger line number is a typing error: such a file would be over a terabyte."""

_RANGE = re.compile(r"L?([0-9]{1,30})(?:-L?([0-9]{1,30}))?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LineRange:
    """Lines `first` to `last`, both included, counted from 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    def __contains__(self, line: int) -> bool:
        return self.first <= line <= self.last

    def __len__(self) -> int:
        return self.last - self.first + 1


def parse_range(text: str, limit: int = MAX_WINDOW) -> LineRange:
    """Reads `120`, `120-140` or `L120-L140`.

    Raises InvalidInput for anything else, for line 0, for a range that runs backwards, and for one
    of more than `limit` lines.
    """
    match = _RANGE.fullmatch(text.strip())
    if not match:
        raise InvalidInput(
            f"“{text[:40]}” is not a line range. Write one line, such as 120, or a range, such as "
            "120-140.",
            "range",
        )
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if first < 1 or last < 1:
        raise InvalidInput("Lines are counted from 1; there is no line 0.", "range")
    if first > last:
        raise InvalidInput(
            f"The range {first}-{last} runs backwards. Did you mean {last}-{first}?", "range"
        )
    if last > MAX_LINE:
        raise InvalidInput(f"Line {last} is further than any transcript reaches.", "range")
    if last - first >= limit:
        raise InvalidInput(
            f"A range may hold up to {limit:,} lines; {first}-{last} holds {last - first + 1:,}. "
            f"Try {first}-{first + limit - 1}.",
            "range",
        )
    return LineRange(first, last)


def line_hash(text: str) -> int:
    """A 32-bit checksum of one line, as the copied link is built from."""
    return zlib.crc32(text.encode("utf-8", "replace"))


def fingerprint(hashes: Iterable[int]) -> str:
    """Eight hex digits over the `line_hash` of consecutive lines; a copied link carries it as `?h=`.

    static/app.js folds the same value for any selection.
    """
    value = 0
    for one in hashes:
        value = (value * 31 + one) & 0xFFFFFFFF
    return f"{value:08x}"
