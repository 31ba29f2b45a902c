"""Notices which sessions OpenCode touches, for what goes on by itself while the server runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from webapp.errors import Problems
from webapp.opencode.database import reading, version
from webapp.opencode.records import Session
from webapp.opencode.sessions import touched_since

LOOK_S = 3.0
"""Seconds between two looks at the times and sizes of OpenCode's files."""

RETRY_MS = 60_000
"""How long what failed is left alone, unless OpenCode goes on with it."""

OVERLAP_MS = 60_000
"""OpenCode notes the time of a change before it commits it; so much later it is still seen."""


class Touched:
    """What one reader has seen of OpenCode's databases so far. The first look takes up what was
    touched in `catch_up_ms`; what cannot be read is told to `problems`."""

    def __init__(self, catch_up_ms: int, problems: Problems) -> None:
        self._catch_up_ms = catch_up_ms
        self._problems = problems
        self._seen: dict[Path, tuple[int, ...]] = {}
        self._upto: dict[Path, int] = {}
        self._failed: dict[Path, int] = {}

    def look(self, databases: Iterable[Path], at: int) -> list[Session] | None:
        """The sessions that were touched since the last look, in no order; one may come again as it
        is. None when nothing was written: no database is opened while its files stay as they are, but
        for one that could not be read RETRY_MS ago."""
        changed = [path for path in databases if self._is_changed(path, at)]
        if not changed:
            return None
        found: list[Session] = []
        for path in changed:
            work = partial(self._sessions, path, at)
            found += self._problems.guarded("OpenCode", work, at) or []
        return found

    def _is_changed(self, path: Path, at: int) -> bool:
        signature = version([path])
        if signature == self._seen.get(path) and self._failed.get(path, at + 1) > at:
            return False
        self._seen[path] = signature
        self._failed.pop(path, None)
        return True

    def _sessions(self, path: Path, at: int) -> list[Session]:
        upto = min(self._upto.get(path, at - self._catch_up_ms), at)
        self._failed[path] = at + RETRY_MS
        with reading(path) as connection:
            found = touched_since(connection, path, upto - OVERLAP_MS)
        del self._failed[path]
        self._upto[path] = max([upto, *(session.updated_at for session in found)])
        return found
