"""The index is in a file that others write and that may be older than the transcripts."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from webapp.errors import Busy, Conflict, NotFound, Unreadable
from webapp.memory import entries, trash
from webapp.opencode import find_session
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.transcripts import cleanup, library
from webapp.transcripts.cleanup import Options
from webapp.transcripts.export import Exported, export
from webapp.transcripts.files import locked

LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
NOW = 1_800_000_000_000


def exported(store: Store, settings: Settings) -> Exported:
    session, problems = find_session(settings.opencode_databases(), LONG)
    assert session is not None and problems == []
    return export(store, settings, session, NOW)


def test_an_index_older_than_the_transcript_cuts_nothing_off(
    store: Store, settings: Settings, newest_db: Path, tmp_path: Path
) -> None:
    settings = replace(settings, opencode_db=newest_db)
    whole = tmp_path / "whole.db"
    shutil.copyfile(newest_db, whole)
    with closing(sqlite3.connect(newest_db)) as db, db:
        last = db.execute(
            "SELECT id FROM message WHERE session_id = ? ORDER BY time_created DESC LIMIT 9",
            (LONG,),
        ).fetchall()
        db.executemany("DELETE FROM part WHERE message_id = ?", last)
        db.executemany("DELETE FROM message WHERE id = ?", last)
    exported(store, settings)
    old = store.all(TranscriptRow.select())[0]
    shutil.copyfile(whole, newest_db)
    done = exported(store, settings)
    text = done.path.read_bytes()
    values = {name: getattr(old, name) for name in TranscriptRow._meta.fields}
    with store.writing():
        store.run(TranscriptRow.insert(**values).on_conflict_replace())
    with closing(sqlite3.connect(newest_db)) as db, db:
        db.executemany("DELETE FROM part WHERE message_id = ?", last)
        db.executemany("DELETE FROM message WHERE id = ?", last)
    library.open_transcript(store, settings, LONG)
    exported(store, settings)
    assert done.path.read_bytes().startswith(text)


@pytest.mark.parametrize("path", ["../../../victim.md", "/etc/hostname", f"../{LONG}.md", "a/b/c.md",
                                  "shop/other.md", "", f"/{LONG}.md"])  # fmt: skip
def test_a_path_out_of_the_library_is_neither_shown_nor_written(
    store: Store, settings: Settings, newest_db: Path, path: str
) -> None:
    settings = replace(settings, opencode_db=newest_db)
    done = exported(store, settings)
    text = done.path.read_bytes()
    victim = settings.data_dir.parent / "victim.md"
    victim.write_text("mine\n" * 20)
    with store.writing():
        store.run(TranscriptRow.update(path=path, size=10, lines=1))
    opened = library.open_transcript(store, settings, LONG)
    assert opened.transcript.path == done.path
    assert done.path.read_bytes() == text
    assert victim.read_text() == "mine\n" * 20
    with store.writing():
        store.run(TranscriptRow.update(path=path, removed_at=NOW, removed_by="x", removed_why="y"))
    assert not cleanup.can_undo(store, settings, LONG)
    with pytest.raises(NotFound):
        cleanup.undo(store, settings, LONG, "tester")


def test_a_transcript_that_another_holds_is_waited_for_only_so_long(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.touch()
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        begun = time.monotonic()
        with pytest.raises(Busy), locked(path, patience=0.1):
            pass
        assert time.monotonic() - begun < 5
    with locked(path, patience=0.1) as descriptor:
        assert os.fstat(descriptor).st_size == 0


def test_a_cleanup_by_age_needs_an_opencode_that_can_be_asked(
    store: Store, settings: Settings, newest_db: Path
) -> None:
    settings = replace(settings, opencode_db=newest_db)
    exported(store, settings)
    newest_db.write_bytes(b"garbage" * 1000)
    later = NOW + 400 * cleanup.DAY_MS
    for options in (Options(retention_days=1, keep_recent=0), Options(max_sessions=1)):
        with pytest.raises(Unreadable, match="still in use"):
            cleanup.plan(store, settings, options, later)
    assert len(cleanup.plan(store, settings, Options((LONG,), keep_recent=0), later).steps) == 1


def test_the_plan_says_when_a_transcript_is_the_only_copy(
    store: Store, settings: Settings, newest_db: Path
) -> None:
    settings = replace(settings, opencode_db=newest_db)
    exported(store, settings)
    options = Options((LONG,), keep_recent=0)
    assert cleanup.plan(store, settings, options, NOW).steps[0].why == "named"
    with closing(sqlite3.connect(newest_db)) as db, db:
        db.execute("DELETE FROM session WHERE id = ?", (LONG,))
    step = cleanup.plan(store, settings, options, NOW).steps[0]
    assert step.why == "named; OpenCode no longer has it"


def test_emptying_the_trash_destroys_only_what_was_seen(store: Store) -> None:
    def forget(title: str, at: int) -> str:
        draft = entries.draft(scope="global", kind="fact", title=title, body="b", now=at)
        saved = entries.save(store, draft, "tester", at)
        entries.forget(store, [saved.entry.id], "tester", at + 1)
        return saved.entry.id

    first = forget("A", NOW)
    seen = trash.seen(store)[1]
    trash.restore(store, first, "tester", now=NOW + 5)
    forget("B", NOW + 10)
    with pytest.raises(Conflict):
        trash.purge(store, None, "tester", count=1, until=seen)
    assert trash.count(store) == 1
    assert trash.purge(store, None, "tester", count=1, until=trash.seen(store)[1]) == 1
