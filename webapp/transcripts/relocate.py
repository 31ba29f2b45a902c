"""Where the text of a copied link stands now, when it is not where the link says."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from webapp.lines import line_hash
from webapp.transcripts.files import BLOCK, LINE_SHOWN
from webapp.transcripts.library import Transcript

MOST = 5
PATIENCE_S = 2.0
_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Places:
    """First lines at which the text stands, at most MOST; `complete` is false when the file was too
    long to be looked through in time, up to line `searched`."""

    lines: tuple[int, ...]
    complete: bool
    searched: int


def places(transcript: Transcript, wanted: str, count: int, patience: float = PATIENCE_S) -> Places:
    """Looks for `count` consecutive lines whose `fingerprint` is `wanted`.

    The fingerprint is a polynomial of the lines' hashes, so it rolls: one step a line, whatever
    `count` is. One file is read once, in constant memory, for at most `patience` seconds.
    """
    try:
        target = int(wanted, 16)
    except ValueError:
        return Places((), True, 0)
    top = pow(31, count, _MASK + 1)
    held: deque[int] = deque(maxlen=count)
    value = number = 0
    found: list[int] = []
    deadline = time.monotonic() + patience
    left = transcript.size
    rest = b""
    with transcript.path.open("rb") as file:
        while left > 0:
            if time.monotonic() > deadline:
                return Places(tuple(found), False, number)
            chunk = file.read(min(16 * BLOCK, left))
            if not chunk:
                break
            left -= len(chunk)
            pieces = (rest + chunk).split(b"\n")
            rest = pieces.pop()
            if not left and rest:
                pieces.append(rest)
            for piece in pieces:
                number += 1
                dropped = held[0] if len(held) == count else 0
                one = _hash(piece)
                held.append(one)
                value = (value * 31 + one - dropped * top) & _MASK
                if value == target and len(held) == count:
                    found.append(number - count + 1)
                    if len(found) == MOST:
                        return Places(tuple(found), True, number)
    return Places(tuple(found), True, number)


def _hash(line: bytes) -> int:
    """The hash that a page gives a line: of its beginning where it is too long to be shown."""
    text = line[:LINE_SHOWN].decode("utf-8", "ignore" if len(line) > LINE_SHOWN else "replace")
    return line_hash(text)
