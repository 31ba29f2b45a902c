"""What the page of one session reads: 50 of its messages, its todos, and how its context grew."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.errors import NotFound
from webapp.opencode.database import columns
from webapp.opencode.records import Message, Session
from webapp.opencode.sessions import Key, messages
from webapp.opencode.values import MOST_TOKENS, as_count, bindable, context_size

PAGE = 50
MAX_TODOS = 500

POINTS = 400
"""Points of the plot; where there are more answers, the largest of those beside each other stands."""

LOOKED_AT = 10_000
"""Messages, from the last, whose tokens are read: of the newer runtime each holds its parts too."""


@dataclass(frozen=True, slots=True)
class Todo:
    """A line of the session's list of things to do."""

    content: str
    status: str
    priority: str


@dataclass(frozen=True, slots=True)
class Point:
    """An answer: which message of the session it is, and how many tokens its context had.
    `compaction` says that the context was compacted there."""

    number: int
    id: str
    tokens: int
    compaction: bool


@dataclass(frozen=True, slots=True)
class Growth:
    """How the context of a session grew, and what its answers cost: `tokens` of all kinds, of which
    `output` were written. `skipped` messages at its beginning were not looked at."""

    points: tuple[Point, ...]
    answers: int
    cost: float
    tokens: int
    output: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Place:
    """A page of the messages of a session, as keys in the order that was asked for. `first` is the
    number of its first message, counted from the session's beginning; `before` and `after` are the
    ids that the pages around it are asked for with."""

    keys: tuple[Key, ...]
    numbers: tuple[int, ...]
    total: int
    before: str | None
    after: str | None


def place(
    keys: Sequence[Key], newest: bool, at: str = "", before: str = "", after: str = ""
) -> Place:
    """The page that holds the message `at`, or that ends `before` or begins `after` one; else the
    first. Raises NotFound for a message that is not in the session.

    The keys of all messages are held, rather than a place in the table: they come from an index
    (100,000 in 0.2 s), two runtimes may have written one session, and the page tells how many
    messages there are and which these are.
    """
    order = list(range(len(keys)))
    if newest:
        order.reverse()
    where = {keys[index].id: position for position, index in enumerate(order)}

    def position(message_id: str) -> int:
        if message_id not in where:
            raise NotFound(f"This session has no message {message_id[:60]}.")
        return where[message_id]

    start, stop = 0, PAGE
    if at:
        start = position(at) // PAGE * PAGE
        stop = start + PAGE
    elif after:
        start = position(after) + 1
        stop = start + PAGE
    elif before:
        stop = position(before)
        start = max(0, stop - PAGE)
    shown = order[start:stop]
    return Place(
        tuple(keys[index] for index in shown), tuple(index + 1 for index in shown), len(keys),
        keys[shown[0]].id if shown and start else None,
        keys[shown[-1]].id if shown and start + len(shown) < len(keys) else None,
    )  # fmt: skip


def read(
    connection: sqlite3.Connection, session: Session, keys: Sequence[Key], now: int
) -> Iterator[Message]:
    """These messages with their parts, in the order of the session, one held at a time; nothing of
    the others is read."""
    return messages(connection, session.id, now, only=keys) if keys else iter(())


def message_of_part(connection: sqlite3.Connection, part_id: str) -> str | None:
    """The id of the message that a part belongs to. Of the newer runtime it stands in the part's."""
    if {"id", "message_id"} <= columns(connection, "part"):
        for (message_id,) in connection.execute(
            "SELECT message_id FROM part WHERE id = ?",
            (bindable(part_id),),
        ):
            return str(message_id)
    head, slash, _ = part_id.rpartition("/")
    return head if slash else None


def todos(connection: sqlite3.Connection, session_id: str) -> list[Todo]:
    """The session's list of things to do, as it is now; empty where there is none."""
    have = columns(connection, "todo")
    if not {"session_id", "content"} <= have:
        return []
    status, priority = (name if name in have else "''" for name in ("status", "priority"))
    order = "position" if "position" in have else "rowid"
    return [
        Todo(*("" if value is None else str(value) for value in row))
        for row in connection.execute(
            f"SELECT content, {status}, {priority} FROM todo WHERE session_id = ? ORDER BY {order}"
            f" LIMIT {MAX_TODOS}",
            (bindable(session_id),),
        )
    ]


def growth(connection: sqlite3.Connection, session_id: str, keys: Sequence[Key]) -> Growth:
    """How the context grew over these messages, which are all of the session's."""
    session_id = bindable(session_id)
    facts: dict[tuple[str, int], tuple[Any, ...]] = {}
    for table, wanted, compaction in (
        ("message", "", "CASE WHEN ok THEN json_type(d, '$.summary') = 'true' END"),
        ("session_message", " AND type IN ('assistant', 'compaction')", "kind = 'compaction'"),
    ):
        have = columns(connection, table)
        if not {"session_id", "time_created", "data"} <= have:
            continue
        kind = "type" if "type" in have else "''"
        for rowid, *row in connection.execute(
            f"SELECT r, CASE WHEN ok THEN json_extract(d, '$.tokens') END,"
            f" CASE WHEN ok THEN json_extract(d, '$.cost') END, {compaction} FROM"
            " (SELECT r, kind, d, json_valid(d) AS ok FROM"
            f" (SELECT rowid AS r, {kind} AS kind, CAST(data AS TEXT) AS d FROM {table}"
            f" WHERE session_id = ?{wanted} ORDER BY time_created DESC, id DESC LIMIT {LOOKED_AT}))",
            (session_id,),
        ):
            facts[table, rowid] = tuple(row)
    points: list[Point] = []
    cost, total, output = 0.0, 0, 0
    for number, key in enumerate(keys, 1):
        stored, paid, compacted = facts.get((key.table, key.rowid), (None, None, None))
        tokens = _tokens(stored)
        size = context_size(tokens) or 0
        output += as_count(tokens.get("output")) or 0
        total += all_kinds(tokens)
        cost += paid if isinstance(paid, (int, float)) and 0 <= paid < MOST_TOKENS else 0
        if size or compacted:
            points.append(Point(number, key.id, size, bool(compacted)))
    skipped = max(0, len(keys) - LOOKED_AT)
    return Growth(tuple(_thinned(points)), len(points), cost, total, output, skipped)


def all_kinds(tokens: dict[str, Any]) -> int:
    """The tokens of an answer of every kind, as the list of sessions adds them up."""
    cache = tokens.get("cache")
    held = cache if isinstance(cache, dict) else {}
    kinds = (tokens.get("input"), tokens.get("output"), tokens.get("reasoning"), held.get("read"),
             held.get("write"))  # fmt: skip
    return sum(as_count(kind) or 0 for kind in kinds)


def _tokens(stored: object) -> dict[str, Any]:
    try:
        found = json.loads(stored) if isinstance(stored, str) else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most about POINTS of them, every compaction among these where they are fewer than that."""
    step = -(-len(points) // POINTS) or 1
    if step == 1:
        return list(points)
    kept: list[Point] = []
    compactions = 0
    for start in range(0, len(points), step):
        group = points[start : start + step]
        largest = max(group, key=lambda point: point.tokens)
        marks = [point for point in group if point.compaction][: max(0, POINTS - compactions)]
        compactions += len(marks)
        kept += sorted({largest, *marks}, key=lambda point: point.number)
    return kept
