"""The watcher: exports a session by itself once it was compacted, or idle, and then cleans up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from webapp import opencode
from webapp.errors import Problems
from webapp.opencode import Session
from webapp.opencode.touched import LOOK_S, RETRY_MS, Touched
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow, now_ms
from webapp.transcripts import cleanup
from webapp.transcripts.export import export

SWEEP_S = 30.0
"""Seconds after the start before anything is cleaned up."""

IDLE_MS = 60_000

CATCH_UP_MS = 7 * 86_400_000
"""The first look takes up what was touched in this time; what is older waits for its next touch."""

COMPACTING_MS = 3_600_000
"""The longest that a compaction takes; one may have begun before and finished after an export."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the watcher has done since the start: when it last looked into a database (epoch
    milliseconds), how many exports added something, and the last problem."""

    ran_at: int | None = None
    exported: int = 0
    problem: str = ""
    problem_at: int | None = None


@dataclass(frozen=True, slots=True)
class _Wait:
    session: Session
    until: int


class Watcher:
    """Looks after OpenCode's databases for one server. Nothing is opened while their files stay as
    they are, and nothing is created before there is something to export."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._problems = Problems(logging.getLogger(__name__))
        self._touched = Touched(CATCH_UP_MS, self._problems)
        self._ran_at: int | None = None
        self._exported = 0
        self._waiting: dict[str, _Wait] = {}
        self._checked: dict[str, int] = {}
        self._compacted: dict[str, int] = {}

    @property
    def status(self) -> Status:
        """What was done since the start."""
        return Status(self._ran_at, self._exported, self._problems.text, self._problems.at)

    def run(self, stopping: threading.Event) -> None:
        """Looks every LOOK_S seconds until `stopping`; cleans up SWEEP_S seconds after the start and
        after each export of a compaction."""
        begun = time.monotonic()
        is_due = True
        while not stopping.wait(LOOK_S):
            is_due = bool(self._problems.guarded("OpenCode", self.look, now_ms())) or is_due
            if is_due and time.monotonic() - begun >= SWEEP_S:
                is_due = False
                self.sweep(stopping.is_set)

    def look(self, now: int | None = None) -> bool:
        """Exports what is due now; says whether the export of a compaction was among it. Never
        raises: what goes wrong is logged once per kind and told by `status`."""
        if self._settings.auto_export == "off":
            return False
        at = now_ms() if now is None else now
        touched = self._touched.look(self._settings.opencode_databases(), at)
        if touched is not None:
            self._ran_at = at
        due = {
            session.id: session
            for session in touched or ()
            if self._checked.get(session.id) != session.updated_at
        }
        for wait in [w for w in self._waiting.values() if w.until <= at]:
            due.setdefault(wait.session.id, wait.session)
            self._checked.pop(wait.session.id, None)
        if not due:
            return False
        done = self._problems.guarded("memory.db", lambda: self._export(list(due.values()), at), at)
        if done is None:
            self._waiting |= {name: _Wait(session, at + RETRY_MS) for name, session in due.items()}
        return bool(done)

    def sweep(self, stopped: Callable[[], bool] = lambda: False, now: int | None = None) -> None:
        """Cleans up by the limits of the settings, if there are any. Never raises."""
        at = now_ms() if now is None else now

        def work() -> None:
            with self._store.session():
                cleanup.sweep(self._store, self._settings, stopped, at)

        self._problems.guarded("cleanup", work, at)

    def _export(self, sessions: list[Session], at: int) -> bool:
        is_compacted = False
        with self._store.session():
            for session in sessions:
                done = self._problems.guarded("export", lambda s=session: self._one(s, at), at)  # type: ignore[misc]
                if done is None:
                    self._waiting[session.id] = _Wait(session, at + RETRY_MS)
                is_compacted = bool(done) or is_compacted
        return is_compacted

    def _one(self, session: Session, at: int) -> bool:
        """Exports a session if it is due; says whether that was for a compaction."""
        self._waiting.pop(session.id, None)
        self._checked[session.id] = session.updated_at
        row = None
        if self._store.has_table("transcripts"):
            row = self._store.first(
                TranscriptRow.select().where(TranscriptRow.session_id == session.id)
            )
        if row is not None and (row.removed_at is not None or row.updated_at == session.updated_at):
            return False
        exported_to = row.updated_at if row is not None else at - CATCH_UP_MS
        with opencode.reading(session.db) as connection:
            fresh = opencode.session_in(connection, session.db, session.id)
            if fresh is None:
                return False  # removed in OpenCode meanwhile
            finished = opencode.last_compaction(
                connection, session.id, exported_to - COMPACTING_MS
            ) or 0  # fmt: skip
        compacted = finished > max(exported_to, self._compacted.get(session.id, 0))
        idle_at = min(fresh.updated_at, at) + IDLE_MS
        if not compacted and self._settings.auto_export != "idle":
            return False
        if not compacted and idle_at > at:
            self._waiting[session.id] = _Wait(fresh, idle_at)
            return False
        done = export(self._store, self._settings, fresh, at)
        if done.added:
            self._exported += 1
        if compacted and done.unfinished and not done.added:
            self._waiting[session.id] = _Wait(fresh, at + RETRY_MS)
        elif compacted:
            self._compacted[session.id] = finished
        if self._settings.auto_export == "idle" and idle_at > at:
            self._waiting.setdefault(session.id, _Wait(fresh, idle_at))
        return compacted
