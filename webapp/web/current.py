"""The store and the settings of the running request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flask import Flask, current_app, g, request

from webapp import opencode
from webapp.errors import MemoryAppError, ReadOnly
from webapp.memory import trash
from webapp.memory.reflect import Reflector
from webapp.memory.search import count_live
from webapp.memory.stats import Cache, Facets, facets
from webapp.opencode import overview
from webapp.opencode.database import Patience, share_patience
from webapp.settings import Settings
from webapp.store import Store, now_ms
from webapp.transcripts.library import totals
from webapp.transcripts.pending import Pending, Room, pending, room
from webapp.transcripts.watch import Watcher
from webapp.web.jobs import Jobs
from webapp.web.searches import Searches

KEY = "opencode-memory"
STORELESS = ("static", "care.healthz", "mcp.answer")
"""What answers also while another process holds the store. A tool opens it in a thread of its own."""


@dataclass(frozen=True)
class Services:
    """What create_app wires: one of each for the process."""

    settings: Settings
    store: Store
    jobs: Jobs
    watcher: Watcher
    reflector: Reflector
    cache: Cache = field(default_factory=Cache)
    searches: Searches = field(default_factory=Searches)


def services() -> Services:
    """The services of this app."""
    found: Services = current_app.extensions[KEY]
    return found


def settings() -> Settings:
    """The settings in force."""
    return services().settings


def store() -> Store:
    """The open store of this request. Raises the error that opening it met."""
    _open_once()
    error: MemoryAppError | None = g.get("store_error")
    if error is not None:
        raise error
    return services().store


def writable() -> Store:
    """The open store for a write that does more than one call. Raises ReadOnly with the reason."""
    held = store()
    if held.read_only:
        raise ReadOnly(f"{held.read_only} Nothing was changed.")
    return held


def record_store() -> Store:
    """The store for the pages of transcripts. One that cannot be read counts as empty and
    read-only there, so that the files on disk can still be read."""
    _open_once()
    error: MemoryAppError | None = g.get("store_error")
    if error is not None:
        services().store.open_in_place(error.message)
    return services().store


def jobs() -> Jobs:
    """The jobs of this process."""
    return services().jobs


def cached_pending(held: Store) -> tuple[Pending, Room | None]:
    """What could be exported, and the disk it takes; looked up anew when OpenCode has written."""

    def make() -> tuple[Pending, Room | None]:
        found = pending(held, settings())
        # Of 50,000 sessions that are all exported, nothing need be kept.
        return replace(found, every=()), room(settings(), found.absent) if found.absent else None

    databases = settings().opencode_databases()
    also = opencode.version(databases)
    return services().cache.get(held, "pending", make, also, hold=False)


RAIL_WAIT_S = 0.05
"""How long the count of the rail, which stands on every page, waits for a locked database."""


def session_count() -> int | None:
    """How many sessions OpenCode has, None when that cannot be told now."""
    databases = settings().opencode_databases()
    return services().cache.get(
        services().store, "session count", lambda: overview.count(databases, RAIL_WAIT_S),
        opencode.version(databases),
    )  # fmt: skip


def cached_session_facets(readable: Sequence[Path]) -> overview.Facets:
    """Counts for the filters of the sessions, looked up anew when OpenCode has written; of many
    sessions a little later."""
    also = (*opencode.version(readable), len(readable))
    return services().cache.get(
        services().store, "session facets", lambda: overview.facets(readable), also
    )


def searches() -> Searches:
    """The searches of the transcripts that go on in this process."""
    return services().searches


def cached_facets() -> Facets:
    """Counts for the filters, kept until somebody writes, and of a large store a little longer."""
    held = store()
    return services().cache.get(held, "facets", lambda: facets(held))


def read_only() -> str | None:
    """Why nothing can be written now, or None. A fragment asks this and has no rail to count for."""
    try:
        return store().read_only
    except MemoryAppError as error:
        return error.message


def rail() -> dict[str, Any]:
    """The counts in the rail; a store that cannot be read has none."""
    sessions = session_count()
    try:
        held = store()
        return {
            "sessions": sessions, "entries": count_live(held, now_ms()), "trash": trash.count(held),
            "transcripts": totals(held, settings()).total, "read_only": held.read_only,
        }  # fmt: skip
    except MemoryAppError as error:
        return {"sessions": sessions, "entries": None, "trash": None, "transcripts": None,
                "read_only": error.message}  # fmt: skip


def tilde(path: Path | str) -> str:
    """A path with the home folder as `~`; in full where OpenCode's home is not the person's own, as in
    the demo."""
    text, home = str(path), str(Path.home())
    if home != str(settings().places.home):
        return text
    return "~" + text[len(home) :] if text == home or text.startswith(home + "/") else text


def _open_once() -> None:
    if g.get("store_tried"):
        return
    g.store_tried = True
    try:
        services().store.open()
    except MemoryAppError as error:
        g.store_error = error


def init_app(app: Flask) -> None:
    """Opens the store for each request that may need it, and closes it after."""

    @app.before_request
    def _open() -> None:
        share_patience(Patience())
        if request.endpoint not in STORELESS:
            _open_once()

    @app.teardown_request
    def _close(_error: BaseException | None) -> None:
        share_patience(None)
        services().store.close()
