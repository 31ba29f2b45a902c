"""How many lines a transcript has gained since a reader looked, those counted that an export would
append now. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from webapp import opencode
from webapp.opencode import Message, messages, news, reading
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.transcripts import files, library, render
from webapp.transcripts.export import UNFINISHED_MS, safe_path


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a reader has seen a transcript: its lines when the page was made. `disk` are those it
    had when it was looked at last, `more` the lines that were counted beyond these, up to the message
    `upto`."""

    lines: int
    disk: int
    more: int = 0
    upto: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """`lines` new ones, more than that unless `complete`; `seen` is how far they were counted.
    `changed` says that the session was touched in another way, of which an export will tell."""

    lines: int
    complete: bool
    seen: Seen
    changed: bool = False


def version(path: Path, database: Path | None) -> tuple[int, ...]:
    """Changes whenever something may have been written to a transcript or to the database that it
    came from. Neither is opened."""
    found = opencode.version([database]) if database else ()
    try:
        state = path.stat()
    except OSError:
        return (*found, -1)
    return (*found, state.st_ino, state.st_mtime_ns, state.st_size)


def place(store: Store, settings: Settings, session_id: str) -> tuple[Path, Path | None]:
    """Where the transcript of a session lies, and the database that it came from, if that is there.
    Raises NotFound."""
    row = None
    if store.has_table("transcripts"):
        row = store.first(
            TranscriptRow.select(TranscriptRow.path, TranscriptRow.source_db).where(
                TranscriptRow.session_id == session_id, TranscriptRow.removed_at.is_null()
            )
        )
    path = safe_path(settings, session_id, str(row.path)) if row is not None else None
    if row is None or path is None:
        return library.get(store, settings, session_id).path, None
    databases = settings.opencode_databases()
    return path, next((each for each in databases if str(each) == str(row.source_db)), None)


def since(
    store: Store, settings: Settings, session_id: str, database: Path | None, held: Seen, now: int
) -> News:  # fmt: skip
    """What came after `held`: the lines on disk, and those of the finished messages that are not
    exported yet from the database that `place` told. Raises NotFound for a transcript that is gone,
    and what the database raises."""
    item = library.get(store, settings, session_id)
    if item.lines != held.disk:
        # Somebody has exported meanwhile: what was counted ahead stands in the file.
        held = Seen(held.lines, item.lines)
    complete, changed = True, False
    if item.ours and database is not None:
        with reading(database, news.PATIENCE_S) as connection:
            session = opencode.session_in(connection, database, session_id)
            if held.upto and not news.is_there(connection, session_id, held.upto):
                held = Seen(held.lines, item.lines)
            known = files.last_messages(item.path) | {held.upto}
            keys, complete = news.newest(connection, session_id, known.__contains__)
            # An unfinished message puts the index before the session's last touch, by UNFINISHED_MS.
            changed = not keys and session is not None and session.updated_at not in (
                item.touched_at, item.touched_at + UNFINISHED_MS
            )  # fmt: skip
            if complete and keys:
                found = messages(connection, session_id, now, only=keys)
                held = _counted(held, found, settings.inline_output_max_bytes)
    return News(max(0, item.lines - held.lines) + held.more, complete, held, changed)


def _counted(held: Seen, found: Iterable[Message], inline_max: int) -> Seen:
    """The finished ones counted too. What follows an unfinished message waits for it, as an export
    does."""
    for item in found:
        if not item.finished:
            break
        more = held.more + count(render.message(item, inline_max))
        held = replace(held, more=more, upto=item.id)
    return held


def count(rendered: render.Rendered) -> int:
    """The lines that a message takes in a transcript, with the empty one above it."""
    return 1 + sum(
        block.text.count("\n") + 1 for block in (rendered.heading, *rendered.parts)
    )  # fmt: skip
