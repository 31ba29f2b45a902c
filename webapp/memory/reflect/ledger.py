"""Which sessions were asked about, when, and what it cost: one row a session in `reflections`.

A row is claimed before the call, in a write transaction, so that of several servers one asks, and
once. A row that stays `calling` is of a server that ended in the middle: it may have cost, so it is
not asked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from webapp.memory.reflect.endpoint import ANSWER_S, CONNECT_S
from webapp.store import Store
from webapp.store.layout import REFLECTION_COLUMNS
from webapp.store.values import as_text, as_time

TABLE = "reflections"
CALLING, DONE, FAILED, RETRY, UNSENT = "calling", "done", "failed", "retry", "unsent"
INTERRUPTED = "interrupted"
"""What a row that stays `calling` is shown as."""

MINUTE_MS = 60_000
PAUSES_MS = (MINUTE_MS, 5 * MINUTE_MS, 25 * MINUTE_MS, 125 * MINUTE_MS)
"""How long a call that could not be sent waits before the next attempt; after the last it is given up."""

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
PER_HOUR, PER_DAY = 20, 100
"""Calls that are made at most, by all servers together: a guard against a loop, not a budget."""

CALL_MS = int((CONNECT_S + ANSWER_S) * 1000) + 30_000
"""Longer than any call takes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What asking for a session led to: `attempt` counts from 1 when it is ours to call; else, if
    `until` is set, it is to be asked for then (`is_full` says that there were too many calls), and if
    not, never."""

    attempt: int = 0
    until: int | None = None
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended. Tokens are None where the endpoint did not count them, or did not answer."""

    state: str
    problem: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    saved: int = 0
    skipped: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Reflection:
    """One session that was asked about; `at` is when, in epoch milliseconds. The state of its outcome is
    `done`, `failed`, `calling`, `interrupted`, `retry` (it could not be sent yet) or `unsent` (given
    up)."""

    session_id: str
    at: int
    attempts: int
    model: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Totals:
    """Calls that were sent or may have been, and the sums over them; `uncounted` are those of which no
    tokens are known although they may have cost."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    uncounted: int = 0
    saved: int = 0
    skipped: int = 0
    refused: int = 0


def claim(store: Store, session_id: str, model: str, now: int) -> Claim:
    """Takes the call for a session, if nobody has. Makes the table where it is missing."""
    with store.writing():
        store.add_table(TABLE)
        attempt = 1
        for state, at, attempts in store.rows(
            "SELECT state, at, attempts FROM reflections WHERE session_id = ?", (session_id,)
        ):
            if state != RETRY:
                return Claim()
            until = retry_at(at, attempts)
            if until > now:
                return Claim(until=until)
            attempt = attempts + 1
        for window, most in ((HOUR_MS, PER_HOUR), (DAY_MS, PER_DAY)):
            count = store.value(
                "SELECT count(*) FROM reflections WHERE at > ? AND state <> ?",
                (now - window, RETRY),
            )
            if count >= most:
                return Claim(until=now + 10 * MINUTE_MS, is_full=True)
        store.rows(
            "INSERT OR REPLACE INTO reflections (session_id, at, state, attempts, model)"
            " VALUES (?, ?, ?, ?, ?)",
            (session_id, now, CALLING, attempt, model),
        )
    return Claim(attempt)


def retry_at(at: int, attempts: int) -> int:
    """When a call is tried again that could not be sent at a time, after so many attempts."""
    return at + PAUSES_MS[min(attempts, len(PAUSES_MS)) - 1]


def settle(store: Store, session_id: str, outcome: Outcome) -> None:
    """Notes how a claimed call ended."""
    with store.writing():
        store.rows(
            "UPDATE reflections SET state = ?, problem = ?, prompt_tokens = ?, completion_tokens = ?,"
            " saved = ?, skipped = ?, refused = ? WHERE session_id = ? AND state IN (?, ?)",
            (
                outcome.state, outcome.problem, outcome.prompt_tokens, outcome.completion_tokens,
                outcome.saved, outcome.skipped, outcome.refused, session_id, CALLING, RETRY,
            ),
        )  # fmt: skip


def give_up(store: Store, session_id: str, problem: str) -> None:
    """Ends the attempts for a session, if there are any."""
    if session_id in retries(store):
        settle(store, session_id, Outcome(UNSENT, problem))


def retries(store: Store) -> dict[str, int]:
    """The sessions whose call could not be sent yet, and when it is tried again."""
    if not store.has_columns(TABLE, REFLECTION_COLUMNS):
        return {}
    rows = store.rows("SELECT session_id, at, attempts FROM reflections WHERE state = ?", (RETRY,))
    return {row[0]: retry_at(row[1], row[2]) for row in rows if isinstance(row[0], str)}


def listing(store: Store, now: int, limit: int) -> list[Reflection]:
    """The sessions that were asked about, the newest first."""
    if not store.has_columns(TABLE, REFLECTION_COLUMNS):
        return []
    rows = store.rows(
        "SELECT session_id, at, attempts, model, state, problem, prompt_tokens, completion_tokens, saved,"
        " skipped, refused FROM reflections ORDER BY at DESC, session_id LIMIT ?",
        (limit,),
    )
    return [_read(row, now) for row in rows]


def _read(row: tuple[Any, ...], now: int) -> Reflection:
    session_id, when, attempts, model, state, problem, asked, answered, *lessons = row
    at = as_time(when) or 0
    if state == CALLING and at < now - CALL_MS:
        state = INTERRUPTED
    outcome = Outcome(
        as_text(state), as_text(problem), _number(asked), _number(answered),
        *(_number(count) or 0 for count in lessons),
    )  # fmt: skip
    return Reflection(as_text(session_id), at, _number(attempts) or 0, as_text(model), outcome)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def totals(store: Store) -> Totals:
    """What all calls came to."""
    if not store.has_columns(TABLE, REFLECTION_COLUMNS):
        return Totals()
    (row,) = store.rows(
        "SELECT count(*), total(prompt_tokens), total(completion_tokens),"
        " total(prompt_tokens IS NULL AND completion_tokens IS NULL), total(saved), total(skipped),"
        " total(refused) FROM reflections WHERE state NOT IN (?, ?)",
        (RETRY, UNSENT),
    )
    return Totals(*map(int, row))
