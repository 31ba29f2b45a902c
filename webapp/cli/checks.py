"""What `doctor` looks at."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from webapp import __version__
from webapp.errors import MemoryAppError
from webapp.integration import diagnosis
from webapp.memory import reflect
from webapp.opencode import list_sessions, messages, reading
from webapp.settings import Settings
from webapp.store import DatabaseError, Store, index, now_ms
from webapp.transcripts import library, ripgrep

# What damaged files and odd rows raise: each becomes a line of its own.
_ERRORS = (MemoryAppError, DatabaseError, sqlite3.Error, OSError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str


def checks(
    settings: Settings, rebuild: bool = False, vacuum: bool = False, project: Path | None = None
) -> list[Check]:
    """Looks at the store, its indexes, the transcripts, OpenCode, ripgrep and what is installed in
    OpenCode, for all and for a project; changes nothing
    unless `rebuild` asks for new indexes or `vacuum` for a smaller file."""
    found = [Check("SQLite", True, sqlite3.sqlite_version)]
    found += _store(settings, rebuild, vacuum)
    found.append(_ripgrep())
    found += _opencode(settings)
    if settings.reflection:
        found.append(_reflection(settings))
    return found + _guarded("OpenCode installation", lambda: _installation(settings, project))


def _store(settings: Settings, rebuild: bool, vacuum: bool) -> list[Check]:
    store = Store(settings.db)
    try:
        with store.session():
            if not store.exists:
                return [Check("memory.db", True, f"{settings.db} is made by the first save")]
            if store.read_only:
                return [Check("memory.db", False, store.read_only)]
            result = _guarded("memory.db", lambda: [_integrity(store)])
            result += _guarded("permissions", lambda: [_private(settings.db)])
            if rebuild:
                result += _guarded("rebuild", lambda: _rebuilt(store))
            if vacuum:
                result += _guarded("vacuum", lambda: _vacuumed(store, settings))
            result += _guarded("space", lambda: _space(store))
            result += _guarded("indexes", lambda: _indexes(store))
            return result + _guarded("transcripts", lambda: _transcripts(store, settings))
    except _ERRORS as error:
        return [Check("memory.db", False, _sentence(error))]


def _guarded(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    """What a look finds; an error in it is a finding and does not keep the others from looking."""
    try:
        return look()
    except _ERRORS as error:
        return [Check(name, False, _sentence(error))]


def _sentence(error: Exception) -> str:
    if isinstance(error, MemoryAppError):
        return error.message
    return f"It cannot be looked at: {error}."


def _rebuilt(store: Store) -> list[Check]:
    built, result = [], []
    for name in index.indexes(store):
        try:
            built += index.rebuild(store, [name])
        except _ERRORS as error:
            result.append(Check(f"rebuild {name}", False, _sentence(error)))
    if built:
        result.insert(0, Check("rebuild", True, f"built anew: {', '.join(built)}"))
    return result


def _vacuumed(store: Store, settings: Settings) -> list[Check]:
    done = index.vacuum(store, settings.user)
    text = f"{done.before:,} bytes before, {done.after:,} after; receipt {done.receipt}"
    return [Check("vacuum", True, text)]


def _space(store: Store) -> list[Check]:
    slack = index.slack(store)
    if not slack:
        return []
    text = f"{slack:,} bytes are unused; give them back with: opencode-memory doctor --vacuum"
    return [Check("space", True, text)]


def _indexes(store: Store) -> list[Check]:
    result = []
    for name, state in index.check(store).items():
        mend = "" if state == "ok" else " Mend it with: opencode-memory doctor --rebuild"
        result.append(Check(f"index {name}", state == "ok", state + mend))
    return result


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
        path = ripgrep.program()
        version = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.split("\n")[0]
        return Check("ripgrep", True, f"{version}, {path}")
    except (MemoryAppError, OSError, subprocess.SubprocessError) as error:
        return Check("ripgrep", False, str(error))


def _reflection(settings: Settings) -> Check:
    """Whether all is set; nobody is asked."""
    lacking = reflect.unusable(settings)
    text = f"{settings.reflection_model} at {reflect.host(settings)}, which was not asked just now"
    return Check("reflection", not lacking, lacking or text)


def _opencode(settings: Settings) -> list[Check]:
    databases = settings.opencode_databases()
    if not databases:
        return [Check("OpenCode", True, f"no database in {settings.opencode_dir}; is OpenCode "
                      "installed? Name its database with --opencode-db")]  # fmt: skip
    result = []
    for path in databases:
        result += _guarded("OpenCode", lambda path=path: _database(path))  # type: ignore[misc]
    return result


def _installation(settings: Settings, project: Path | None) -> list[Check]:
    return [
        Check(one.name, one.ok, one.text) for one in diagnosis.look(settings, project, __version__)
    ]


def _database(path: Path) -> list[Check]:
    found = list_sessions([path])
    if found.problems:
        return [Check("OpenCode", False, found.problems[0])]
    result = [Check("OpenCode", True, f"{path}, {len(found.sessions)} sessions")]
    if found.sessions:
        result += _guarded("OpenCode messages", lambda: _newest(path, found.sessions[0].id))
    return result


def _newest(path: Path, session_id: str) -> list[Check]:
    with reading(path) as connection:
        count = sum(1 for _ in messages(connection, session_id, now_ms()))
    return [Check("OpenCode messages", True, f"{count} in the session touched last")]
