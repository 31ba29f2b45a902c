"""Values of OpenCode's columns as they are meant, whatever another writer has put there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

LATEST = 253_370_764_800_000
"""The year 9999. A time beyond it, or before 1970, is no time."""


def as_text(value: object) -> str:
    """A value of a text column as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def as_when(value: object) -> int:
    """A value of a time column in milliseconds, or 0 when it is no time of the calendar."""
    try:
        number = int(value) if isinstance(value, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0
    return number if 0 <= number <= LATEST else 0


def sql_when(column: str) -> str:
    """The same in SQL, so that an odd value does not hide the others from max()."""
    number = f"CAST({column} AS INTEGER)"
    return f"CASE WHEN {number} BETWEEN 0 AND {LATEST} THEN {number} ELSE 0 END"


def as_number(value: object) -> float | None:
    """A value of a column of counts or costs, or None when it is no number that can be shown."""
    if not isinstance(value, (int, float)) or not -1e18 < value < 1e18:
        return None
    return value


MOST_TOKENS = 10**12
"""No count of tokens is as large, and no cost."""


def as_count(value: object) -> int | None:
    """A number of tokens as JSON has it, None where it can be none."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value < MOST_TOKENS else None  # type: ignore[operator, call-overload]


def context_size(tokens: object) -> int | None:
    """The tokens of a context as OpenCode counts them (overflow.ts: `tokens.total`, else the sum of
    input, output and both kinds of cache); None where nothing is told, or a number that can be none."""
    if not isinstance(tokens, dict):
        return None
    cache = tokens.get("cache")
    cache = cache if isinstance(cache, dict) else {}
    given = [tokens["total"]] if tokens.get("total") else [
        tokens.get("input"), tokens.get("output"), cache.get("read"), cache.get("write")
    ]  # fmt: skip
    counts = [0 if number is None else as_count(number) for number in given]
    return None if None in counts else sum(count or 0 for count in counts)


def is_id(value: object) -> bool:
    """Whether a value can be the id of a row."""
    return isinstance(value, str) and value != ""


def bindable(text: str) -> str:
    """Text without lone surrogates, which neither SQLite nor a page takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def as_object(text: str) -> Mapping[str, Any] | None:
    """A JSON object, None for an empty text. What is no object, or no JSON, is kept under a name."""
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"unreadable": text}
    return found if isinstance(found, dict) else {"value": found}


def release(version: str) -> tuple[int, ...]:
    """A version as numbers, or nothing if it names none."""
    found = re.match(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})", version)
    return tuple(int(number) for number in found.groups()) if found else ()
