"""What of OpenCode's sessions is not in the library yet, and the disk that it would take."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.errors import InvalidInput, MemoryAppError
from webapp.opencode import Session, estimate_bytes, list_sessions
from webapp.settings import Settings
from webapp.store import Store
from webapp.store.values import as_text, as_time
from webapp.transcripts.export import UNFINISHED_MS

CHOICES = ("new", "missing", "every")
"""The sessions without a transcript, those that went on and those that may have; only the first;
every session."""

WRITTEN = 1.15
"""Bytes on disk for each byte that OpenCode keeps: of 50,000 parts with 66 MB the text took 0.97 and
its marks and counts 0.09; of short messages with little text, more."""


@dataclass(frozen=True, slots=True)
class Pending:
    """OpenCode's sessions, the last touched first: those without a transcript, those whose transcript
    is behind, those of which all but an unfinished message is there (it may be finished without
    another touch of the session), and all `total` that are not `removed` by a cleanup. `problems`
    are databases that could not be read."""

    absent: tuple[Session, ...]
    behind: tuple[Session, ...]
    writing: tuple[Session, ...]
    every: tuple[Session, ...]
    total: int
    removed: int
    problems: tuple[str, ...]

    def chosen(self, which: str) -> tuple[Session, ...]:
        """The sessions that one of CHOICES names. Raises InvalidInput."""
        if which not in CHOICES:
            raise InvalidInput(
                f"“{which[:20]}” is no choice of sessions. Known: {', '.join(CHOICES)}.", "which"
            )
        if which == "every":
            return self.every
        if which == "missing":
            return self.absent
        return self.absent + self.behind + self.writing


@dataclass(frozen=True, slots=True)
class Room:
    """About the bytes that an export would write, and the bytes that are free there."""

    bytes: int
    free: int

    @property
    def is_enough(self) -> bool:
        """Whether it fits, with a tenth to spare."""
        return self.bytes * 1.1 < self.free


def pending(store: Store, settings: Settings) -> Pending:
    """What could be exported now. A session whose transcript a cleanup removed is not among it, else
    an export of everything would undo the cleanup."""
    found = list_sessions(settings.opencode_databases())
    absent, behind, writing, every, removed = [], [], [], [], 0
    rows: dict[str, tuple[bool, int]] = {}
    if store.has_table("transcripts"):
        for name, gone, touched in store.rows(
            "SELECT session_id, removed_at IS NOT NULL, updated_at FROM transcripts"
        ):
            rows[as_text(name)] = (bool(gone), as_time(touched) or 0)
    for session in found.sessions:
        row = rows.get(session.id)
        if row is not None and row[0]:
            removed += 1
            continue
        every.append(session)
        if row is None:
            absent.append(session)
        elif row[1] == session.updated_at - UNFINISHED_MS:
            writing.append(session)
        elif row[1] != session.updated_at:
            behind.append(session)
    return Pending(
        tuple(absent), tuple(behind), tuple(writing), tuple(every), len(every), removed, found.problems
    )  # fmt: skip


def room(settings: Settings, sessions: Sequence[Session]) -> Room | None:
    """The disk that an export of sessions without a transcript takes, or None if it cannot be told."""
    folder = settings.transcripts_dir
    while not folder.exists():
        folder = folder.parent
    try:
        return Room(int(estimate_bytes(sessions) * WRITTEN), shutil.disk_usage(folder).free)
    except (MemoryAppError, OSError):
        return None
