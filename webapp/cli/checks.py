"""What `doctor` looks at."""

from __future__ import annotations

import sqlite3
import subprocess
from dataclasses import dataclass
from pathlib import Path

from webapp.errors import MemoryAppError
from webapp.opencode import list_sessions
from webapp.settings import Settings
from webapp.store import Store, index
from webapp.transcripts import grep, library


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str


def checks(settings: Settings, rebuild: bool = False) -> list[Check]:
    """Looks at the store, its indexes, the transcripts, OpenCode and ripgrep; changes nothing
    unless `rebuild` asks for new indexes."""
    found = [Check("SQLite", True, sqlite3.sqlite_version)]
    found += _store(settings, rebuild)
    found.append(_ripgrep())
    found += _opencode(settings)
    return found


def _store(settings: Settings, rebuild: bool) -> list[Check]:
    store = Store(settings.db)
    try:
        with store.session():
            if not store.exists:
                return [Check("memory.db", True, f"{settings.db} is made by the first save")]
            if store.read_only:
                return [Check("memory.db", False, store.read_only)]
            result = [_integrity(store), _private(settings.db)]
            if rebuild:
                names = ", ".join(index.rebuild(store))
                result.append(Check("rebuild", True, f"built anew: {names}"))
            for name, state in index.check(store).items():
                mend = "" if state == "ok" else " Mend it with: opencode-memory doctor --rebuild"
                result.append(Check(f"index {name}", state == "ok", state + mend))
            return result + _transcripts(store, settings)
    except MemoryAppError as error:
        return [Check("memory.db", False, error.message)]


def _integrity(store: Store) -> Check:
    state = store.value("PRAGMA quick_check(1)")
    count = store.value("SELECT count(*) FROM entries")
    ok = state == "ok"
    return Check("memory.db", ok, f"{store.path}, {count} entries" if ok else str(state))


def _private(path: Path) -> Check:
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        text = f"{mode:04o}: others may read {path}; keep them out with: chmod 600 {path}"
        return Check("permissions", True, text)
    return Check("permissions", True, f"{mode:04o}")


def _transcripts(store: Store, settings: Settings) -> list[Check]:
    items = library.transcripts(store, settings)
    short = [t for t in items if t.path.stat().st_size < t.size]
    if short:
        return [Check("transcripts", False,
                      f"{short[0].path} is shorter than what was written to it")]  # fmt: skip
    return [Check("transcripts", True, f"{len(items)} in {settings.transcripts_dir}")]


def _ripgrep() -> Check:
    try:
        path = grep.ripgrep()
        version = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.split("\n")[0]
        return Check("ripgrep", True, f"{version}, {path}")
    except (MemoryAppError, OSError, subprocess.SubprocessError) as error:
        return Check("ripgrep", False, str(error))


def _opencode(settings: Settings) -> list[Check]:
    databases = settings.opencode_databases()
    if not databases:
        return [Check("OpenCode", True, f"no database in {settings.opencode_dir}; is OpenCode "
                      "installed? Name its database with --opencode-db")]  # fmt: skip
    result = []
    for path in databases:
        found = list_sessions([path])
        text = found.problems[0] if found.problems else f"{path}, {len(found.sessions)} sessions"
        result.append(Check("OpenCode", not found.problems, text))
    return result
