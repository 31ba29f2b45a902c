"""Notices sessions that went idle, and asks about each once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from webapp.errors import Busy, MemoryAppError, Problems
from webapp.memory.reflect import ledger
from webapp.memory.reflect.endpoint import Endpoint, Failed, NotSent, ask, read_key
from webapp.memory.reflect.excerpt import ENOUGH_PROMPTS, Excerpt, excerpt
from webapp.memory.reflect.keep import Kept, keep
from webapp.memory.reflect.ledger import Outcome
from webapp.memory.reflect.lessons import instructions, parse
from webapp.opencode import Session, find_session, reading, session_in
from webapp.opencode.touched import LOOK_S, RETRY_MS, Touched
from webapp.settings import Settings
from webapp.store import Store, now_ms

IDLE_MS = 5 * 60_000
"""How long nothing touches a session before it counts as idle. Longer than for an export, as a session is
asked about once: after a minute a person may still be reading the first answer."""

LITTLE = 400
"""Characters of a session under which nothing is asked."""


GONE = "The session is not in OpenCode any more."


@dataclass(frozen=True, slots=True)
class _Wait:
    session: Session
    until: int


def missing(settings: Settings) -> str:
    """What else has to be set for a reflection, in a sentence; empty if nothing."""
    names = [n for n in ("reflection_url", "reflection_model") if not getattr(settings, n)]
    return f"Set {' and '.join(names)} too: until then nothing is asked." if names else ""


def unusable(settings: Settings) -> str:
    """What keeps a reflection from being sent, as far as it can be told without asking anybody."""
    try:
        read_key(settings.reflection_key_file)
    except NotSent as error:
        return missing(settings) or error.message
    return missing(settings)


def host(settings: Settings) -> str:
    """The host that the ends of sessions are sent to; empty while none is set."""
    return urlsplit(settings.reflection_url or "").netloc


class Reflector:
    """Watches OpenCode's databases for one server. Only a session that becomes idle while it runs is
    asked about: none that already was when it `began` (epoch milliseconds)."""

    def __init__(self, store: Store, settings: Settings, began: int | None = None) -> None:
        self.problems = Problems(logging.getLogger(__name__))
        self._store = store
        self._settings = settings
        self._endpoint = Endpoint(
            settings.reflection_url or "",
            settings.reflection_model or "",
            settings.reflection_key_file,
        )
        self._began = now_ms() if began is None else began
        self._touched = Touched(IDLE_MS, self.problems)
        self._waiting: dict[str, _Wait] = {}
        self._over: set[str] = set()
        self._resumed = False

    def run(self, stopping: threading.Event) -> None:
        """Looks every LOOK_S seconds until `stopping`. Returns at once when it is off, or when what has
        to be set is not."""
        if not self._settings.reflection:
            return
        if why := missing(self._settings):
            logging.getLogger(__name__).warning("reflection is on, but not set up. %s", why)
            return
        while not stopping.wait(LOOK_S):
            self.problems.guarded("reflection", partial(self.look, None, stopping.is_set), now_ms())

    def look(self, now: int | None = None, stopped: Callable[[], bool] = lambda: False) -> None:
        """Asks about the sessions that are due. What goes wrong is told by `problems`."""
        if not self._settings.reflection or missing(self._settings):
            return
        at = now_ms() if now is None else now
        if not self._resumed:
            self._resumed = bool(self.problems.guarded("memory.db", self._resume, at))
        for session in self._touched.look(self._settings.opencode_databases(), at) or ():
            self._notice(session, at)
        for wait in [w for w in self._waiting.values() if w.until <= at]:
            if stopped():
                return
            del self._waiting[wait.session.id]
            moment = now_ms() if now is None else now  # the calls before this one took their time
            work = partial(self._one, wait.session, moment)
            if self.problems.guarded("reflection", work, moment) is None:
                self._waiting[wait.session.id] = _Wait(wait.session, moment + RETRY_MS)

    def _resume(self) -> bool:
        """Takes up the calls that an earlier server could not send."""
        with self._store.session():
            for session_id, until in ledger.retries(self._store).items():
                found, problems = find_session(self._settings.opencode_databases(), session_id)
                if found is not None:
                    self._waiting[session_id] = _Wait(found, until)
                elif not problems:
                    ledger.give_up(self._store, session_id, GONE)
        return True

    def _notice(self, session: Session, at: int) -> None:
        idle_at = min(session.updated_at, at) + IDLE_MS
        if session.parent_id is None and session.id not in self._over and idle_at >= self._began:
            self._waiting[session.id] = _Wait(session, idle_at)

    def _one(self, session: Session, at: int) -> bool:
        """Asks about a session, if it is idle, long enough and nobody has; True once that is settled."""
        with reading(session.db) as connection:
            fresh = session_in(connection, session.db, session.id)
            if fresh is not None:
                idle_at = min(fresh.updated_at, at) + IDLE_MS
                if idle_at > at:
                    self._waiting[fresh.id] = _Wait(fresh, idle_at)
                    return True
                found = excerpt(connection, fresh, self._settings.transcript_chars, at)
        if fresh is None:
            with self._store.session():
                ledger.give_up(self._store, session.id, GONE)
        elif not found.finished:
            self._waiting[fresh.id] = _Wait(fresh, at + IDLE_MS)
        elif found.prompts >= ENOUGH_PROMPTS and len(found.text) >= LITTLE:
            self._claim(fresh, found, at)
        return True

    def _claim(self, session: Session, found: Excerpt, at: int) -> None:
        with self._store.session():
            claim = ledger.claim(self._store, session.id, self._endpoint.model, at)
        if claim.is_full:
            self.problems.tell(
                "reflection", Busy("Too many calls of late; the next one waits."), at
            )
        if claim.attempt:
            self._call(session, found, at, claim.attempt)
        elif claim.until is not None:
            self._waiting[session.id] = _Wait(session, claim.until)
        else:
            self._over.add(session.id)

    def _call(self, session: Session, found: Excerpt, at: int, attempt: int) -> None:
        outcome = self._asked(session, found, at)
        if outcome.state == ledger.UNSENT and attempt <= len(ledger.PAUSES_MS):
            outcome = replace(outcome, state=ledger.RETRY)
            self._waiting[session.id] = _Wait(session, ledger.retry_at(at, attempt))
        else:
            self._over.add(session.id)
        with self._store.session():
            ledger.settle(self._store, session.id, outcome)

    def _asked(self, session: Session, found: Excerpt, at: int) -> Outcome:
        asked = f"<session>\n{found.text}\n</session>"
        try:
            answer = ask(self._endpoint, instructions(self._settings.max_lessons), asked)
        except (NotSent, Failed) as error:
            self.problems.tell("endpoint", error, at)
            unsent = isinstance(error, NotSent)
            return Outcome(ledger.UNSENT if unsent else ledger.FAILED, error.message)
        parsed = parse(answer.text, self._settings.max_lessons)
        problem = parsed.problem
        if problem and answer.is_cut:
            problem = "The model's answer was cut off at its limit, so nothing was saved."
        kept = Kept()
        try:
            with self._store.session():
                kept = keep(self._store, session, parsed.lessons, at)
        except MemoryAppError as error:
            problem = f"The lessons could not be saved: {error.message}"
        return Outcome(
            ledger.DONE, problem, answer.prompt_tokens, answer.completion_tokens, kept.saved,
            kept.skipped + parsed.dropped, kept.refused,
        )  # fmt: skip
