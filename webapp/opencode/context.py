"""What is read of one session for the page of its context: every message once, and those that are
seen a second time, one held at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from webapp.opencode.history import (
    Compaction,
    Excerpts,
    History,
    Read,
    list_compactions,
    outline,
    seen_by_model,
)
from webapp.opencode.modelview import weigh
from webapp.opencode.records import Message, Session
from webapp.opencode.sessions import Key, messages

AT_ONCE = 2_000
"""Messages that are asked for by their rows; more are picked out of all of the session's."""


@dataclass(frozen=True, slots=True)
class Context:
    """A moment of a session. `compactions` are all that it has, also those after the moment.
    `order` holds the ids of all its messages, `units` the length of each in full, as a model would
    get it, in UTF-16 units."""

    history: History
    compactions: tuple[Compaction, ...]
    order: tuple[str, ...]
    units: Mapping[str, int]


def read_context(
    connection: sqlite3.Connection, session: Session, keys: Sequence[Key], now: int, *,
    before: str | None, after: str | None, excerpts: Excerpts,
) -> Context:  # fmt: skip
    """What the model sees of a session now, `before` a message or `after` a compaction.

    `keys` are those of all its messages. Raises NotFound for a moment that is not there.
    """
    outlines: list[Message] = []
    lengths: dict[str, int] = {}
    for message in messages(connection, session.id, now):
        outlines.append(outline(message, session.revert))
        lengths[message.id] = weigh(message)
    history = seen_by_model(
        outlines, revert=session.revert, before=before, after=after, version=session.version,
        read=_reader(connection, session.id, keys, now), excerpts=excerpts,
    )  # fmt: skip
    compactions = history.compactions
    if before is not None or after is not None:
        compactions = list_compactions(outlines)
    return Context(history, compactions, tuple(lengths), lengths)


def _reader(connection: sqlite3.Connection, session_id: str, keys: Iterable[Key], now: int) -> Read:
    by_id = {key.id: key for key in keys}

    def read(wanted: Sequence[Message]) -> Iterator[Message]:
        ids = {message.id for message in wanted}
        only = [by_id[name] for name in ids] if len(ids) <= AT_ONCE else None
        return (m for m in messages(connection, session_id, now, only=only) if m.id in ids)

    return read
