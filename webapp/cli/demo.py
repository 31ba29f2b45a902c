"""Invented data for `demo`: every page has something to show.

What a person or an agent would have done in five months is done again in order, through the same
functions and at the times when it would have happened. All but the times is the same in every run.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from webapp.cli import demo_data as data
from webapp.cli.demo_opencode import DAY_MS, write_database
from webapp.cli.demo_parts import PROVIDER
from webapp.cli.demo_sessions import SCRIPTS
from webapp.errors import Conflict, InvalidInput
from webapp.memory import entries, trash
from webapp.opencode import list_sessions
from webapp.settings import Places, Settings
from webapp.settings import places as setting_places
from webapp.store import EntryRow, Store, TrashRow, now_ms
from webapp.transcripts import cleanup
from webapp.transcripts.cleanup import Options
from webapp.transcripts.export import export

SWEEP_DAYS = 30
EXPORT_DELAY_MS = 90_000


def build(settings: Settings) -> None:
    """Writes an invented OpenCode database, its transcripts and a memory into the files that the
    settings name.

    Raises InvalidInput where no OpenCode database is named, and Conflict where one of the files is
    there already: invented data never mixes with real.
    """
    if settings.opencode_db is None:
        raise InvalidInput("Invented data needs a file for OpenCode's database.", "opencode_db")
    for path in (settings.opencode_db, settings.db, settings.transcripts_dir):
        if path.exists():
            raise Conflict(f"{path} is there already, so no invented data was written.")
    now = now_ms()
    write_database(settings.opencode_db, SCRIPTS, now)
    with Store(settings.db).session() as store:
        _export(store, settings)
        past = _Past(store, settings, now)
        for event in _in_order(chain(data.NOTES, data.GONE, data.EVENTS)):
            past.replay(event)


def invented_home(folder: Path) -> Places:
    """A home with a configuration of OpenCode, in a folder that is the demo's own: that of whoever
    runs it is no part of invented data."""
    places = setting_places({"HOME": str(folder)})
    places.config_dir.mkdir(parents=True)
    (places.home / ".claude").mkdir()
    places.cache_dir.mkdir(parents=True)
    (places.cache_dir / "models.json").write_text("{}")
    models = {name: {"limit": limit} for name, limit in data.LIMITS.items()}
    config = {"provider": {PROVIDER: {"models": models}}}
    (places.config_dir / "opencode.json").write_text(json.dumps(config, indent=2) + "\n")
    (places.config_dir / "AGENTS.md").write_text(data.GLOBAL_AGENTS)
    (places.home / ".claude" / "CLAUDE.md").write_text(data.CLAUDE_HOME)
    return places


def _in_order(events: Iterable[data.Event]) -> list[data.Event]:
    return sorted(events, key=lambda event: -event.age)


def _export(store: Store, settings: Settings) -> None:
    """Writes the transcripts, each as if shortly after its session."""
    chosen = {script.id for script in SCRIPTS if script.exported}
    found = list_sessions(settings.opencode_databases()).sessions
    for session in sorted(found, key=lambda session: session.updated_at):
        if session.id in chosen:
            export(store, settings, session, session.updated_at + EXPORT_DELAY_MS)


class _Past:
    """Does again what happened, one event after the other, the oldest first."""

    def __init__(self, store: Store, settings: Settings, now: int) -> None:
        self.store = store
        self.settings = settings
        self.now = now
        self.ids: dict[tuple[str, str], str] = {}
        """The ids by scope and title, live or in the trash."""

    def replay(self, event: data.Event) -> None:
        """Does what the event says, at its time."""
        at = self._time(event.age)
        match event:
            case data.Note():
                self._save(event, at)
            case data.Edited():
                self._edit(event, at)
            case data.Forgotten():
                ids = [self.ids[event.scope, title] for title in event.titles]
                entries.forget(self.store, ids, self._name(event.actor), at)
            case data.Restored():
                entry_id = self.ids[event.scope, event.title]
                trash.restore(self.store, entry_id, self._name(event.actor), now=at)
            case data.Purged():
                entry_id = self.ids.pop((event.scope, event.title))
                trash.purge(self.store, [entry_id], self._name(event.actor), at)
            case data.Swept():
                trash.sweep(self.store, SWEEP_DAYS, at)
            case data.CleanedUp():
                self._clean_up(event, at)

    def _time(self, age: float) -> int:
        return self.now - int(age * DAY_MS)

    def _name(self, actor: str) -> str:
        return actor if actor != data.PERSON else self.settings.user

    def _save(self, note: data.Note, at: int) -> None:
        new = entries.draft(
            scope=note.scope, kind=note.kind, title=note.title, body=note.body, tags=note.tags,
            expires_at=self._expiry(note, at), now=at,
        )  # fmt: skip
        saved = entries.save(self.store, new, self._name(note.source), at)
        if saved.created:
            self.ids[note.scope, note.title] = self._settle(EntryRow, saved.entry)

    def _expiry(self, note: data.Note, at: int) -> int | None:
        return at + int(note.lasts * DAY_MS) if note.lasts else None

    def _edit(self, event: data.Edited, at: int) -> None:
        before = entries.get(self.store, self.ids.pop((event.scope, event.title)))
        new = entries.draft(
            scope=before.scope, kind=before.kind, title=event.new_title, body=event.new_body,
            tags=before.tags, now=at,
        )  # fmt: skip
        entries.edit(self.store, before.id, new, self._name(event.actor), now=at)
        self.ids[event.scope, event.new_title] = before.id
        self._settle(TrashRow, trash.listing(self.store, limit=1)[0].entry)

    def _settle(self, table: type[EntryRow] | type[TrashRow], entry: entries.Entry) -> str:
        """Gives a new row an id that is the same in every run, so that links to it stay good."""
        words = f"{table.__name__}\n{entry.scope}\n{entry.title}\n{entry.body}"
        digest = hashlib.sha256(words.encode()).digest()
        steady = str(uuid.UUID(bytes=digest[:16], version=4))
        with self.store.writing():
            self.store.run(table.update(id=steady).where(table.id == entry.id))
        return steady

    def _clean_up(self, event: data.CleanedUp, at: int) -> None:
        options = Options(retention_days=event.retention_days, keep_recent=event.keep_recent)
        plan = cleanup.plan(self.store, self.settings, options, at)
        actor = self._name(event.actor)
        for _ in cleanup.apply(self.store, self.settings, options, plan.fingerprint, actor, now=at):
            pass
