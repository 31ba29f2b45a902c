"""Values as they are kept: other programs write the same file, and SQLite holds any value in any
column, so what is read is made into what was meant."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from peewee import fn

_LARGEST = 2**63 - 1


def as_text(value: object) -> str:
    """A text column as text, whatever another program has put there."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def as_time(value: object) -> int | None:
    """A time column in epoch milliseconds; an ISO text is taken as one, None if it is no time."""
    try:
        if isinstance(value, int | float):
            return max(-_LARGEST, min(_LARGEST, int(value)))
        if isinstance(value, str | bytes):
            moment = datetime.fromisoformat(as_text(value).strip())
            return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return None


def _as_kept(value: object) -> object:
    if isinstance(value, bytes):
        return as_text(value)
    return as_time(value) if isinstance(value, float) else value


def tolerant(model: Any, names: Iterable[str] | None = None) -> list[Any]:
    """The columns of a model to select, so that bytes which are no UTF-8 do not stop the reading,
    as Peewee's own conversion would."""
    fields = model._meta.fields
    columns = [fields[name].clone() for name in (fields if names is None else names)]
    for column in columns:
        column.python_value = _as_kept
    return columns


def has_text_id(model: Any) -> Any:
    """The condition that a row's id is a text. A NULL id equals no other, so that a write to one such
    row would reach all of them."""
    return fn.typeof(model.id) == "text"
