"""The watcher: what was compacted, or has been idle, is exported by itself, and nothing else."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.errors import NotFound
from webapp.opencode.touched import RETRY_MS
from webapp.settings import Settings
from webapp.store import Store, receipts
from webapp.transcripts import cleanup, library, watch
from webapp.transcripts.cleanup import Options
from webapp.transcripts.watch import CATCH_UP_MS, IDLE_MS, Watcher

if TYPE_CHECKING:
    from tests.conftest import Talk

NewTalk = Callable[..., "Talk"]
START = 1_790_000_000_000
NOW = START + 3_600_000


def compact(talk: Talk, done: bool = True, **data: Any) -> str:
    """A compaction as the older runtime writes it; returns the id of its summary."""
    request = talk.message({"role": "user", "agent": "build"})
    talk.part(request, {"type": "compaction", "auto": False})
    return talk.assistant("What was done.", done, agent="compaction", summary=True, **data)


def ended(talk: Talk, **data: Any) -> str:
    """A compaction as the newer runtime writes it."""
    return talk.newer("compaction", {"reason": "auto", "summary": "Done.", "recent": "", **data})


@pytest.fixture
def watcher(settings: Settings) -> Watcher:
    """A watcher that has just started."""
    return Watcher(Store(settings.db), settings)


def on_disk(settings: Settings) -> set[str]:
    return {path.stem for path in settings.transcripts_dir.glob("*/*.md")}


def connections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every SQLite connection that is opened from now on."""
    opened: list[str] = []
    connect = sqlite3.connect

    def noted(name: Any, *args: Any, **kwargs: Any) -> Any:
        opened.append(str(name))
        return connect(name, *args, **kwargs)

    monkeypatch.setattr("sqlite3.connect", noted)
    return opened


# What is exported --------------------------------------------------------------------------------


def test_nothing_is_made_while_no_compaction_happens(
    talk: Talk, settings: Settings, watcher: Watcher
) -> None:
    talk.user("Hello.")
    talk.assistant("Hi.")
    assert watcher.look(NOW) is False
    talk.user("And?")
    assert watcher.look(NOW + 10_000) is False
    assert watcher.status.ran_at == NOW + 10_000
    assert not settings.data_dir.exists()


def test_without_opencode_nothing_happens(settings: Settings, watcher: Watcher) -> None:
    assert watcher.look(NOW) is False
    assert watcher.status == watch.Status()
    assert not settings.data_dir.exists()


@pytest.mark.parametrize("runtime", [compact, ended])
def test_a_session_is_exported_once_it_was_compacted(
    talk: Talk, new_talk: NewTalk, settings: Settings, watcher: Watcher,
    runtime: Callable[[Talk], str],
) -> None:  # fmt: skip
    other = new_talk("ses_other")
    other.user("Not compacted.")
    talk.user("Hello.")
    watcher.look(NOW)
    made = runtime(talk)
    assert watcher.look(NOW + 3000) is True
    assert on_disk(settings) == {talk.id}
    (path,) = settings.transcripts_dir.glob("*/*.md")
    assert made in path.read_text()
    assert watcher.status.exported == 1 and not watcher.status.problem


@pytest.mark.parametrize("runtime", [compact, ended])
def test_it_is_not_exported_again_before_the_next_compaction(
    talk: Talk, settings: Settings, watcher: Watcher, runtime: Callable[[Talk], str]
) -> None:
    talk.user("Hello.")
    runtime(talk)
    assert watcher.look(NOW) is True
    (path,) = settings.transcripts_dir.glob("*/*.md")
    before = path.read_bytes()
    talk.user("More.")
    talk.assistant("Yes.")
    assert watcher.look(NOW + 60_000) is False
    assert Watcher(Store(settings.db), settings).look(NOW + 90_000) is False
    assert path.read_bytes() == before
    runtime(talk)
    assert watcher.look(NOW + 120_000) is True
    assert path.read_bytes().startswith(before) and len(path.read_bytes()) > len(before)
    assert watcher.status.exported == 2


def test_a_compaction_that_still_runs_or_failed_is_none(
    talk: Talk, settings: Settings, watcher: Watcher
) -> None:
    talk.user("Hello.")
    compact(talk, error={"name": "APIError", "data": {}})
    ended(talk, summary="")
    ended(talk, status="running", summary="So far")
    summary = compact(talk, done=False)
    assert watcher.look(NOW) is False
    assert on_disk(settings) == set()
    talk.finish(summary)
    assert watcher.look(NOW + 3000) is True
    assert on_disk(settings) == {talk.id}


def test_a_compaction_that_an_export_met_half_way_is_exported_when_it_is_done(
    talk: Talk, store: Store, settings: Settings, watcher: Watcher
) -> None:
    talk.user("Hello.")
    summary = compact(talk, done=False)
    talk.export(store, settings, NOW)
    assert watcher.look(NOW) is False
    talk.finish(summary)
    assert watcher.look(NOW + 3000) is True
    assert "What was done." in next(settings.transcripts_dir.glob("*/*.md")).read_text()


def test_what_a_person_exported_is_not_exported_again(
    talk: Talk, store: Store, settings: Settings, watcher: Watcher
) -> None:
    talk.user("Hello.")
    compact(talk)
    talk.export(store, settings, NOW)
    assert watcher.look(NOW) is False


def test_compactions_of_the_last_week_are_caught_up_at_the_start(
    new_talk: NewTalk, settings: Settings, watcher: Watcher
) -> None:
    for name in ("ses_recent", "ses_old"):
        compact(new_talk(name))
    old = new_talk("ses_old_too")
    compact(old)
    now = START + CATCH_UP_MS
    old.sql("UPDATE session SET time_updated = 5, time_created = 5 WHERE id = 'ses_old'")
    old.sql("UPDATE message SET time_created = 5, time_updated = 5 WHERE session_id = 'ses_old'")
    old.sql("UPDATE message SET time_created = time_created - ?, time_updated = 5,"
            " data = json_set(data, '$.time.completed', 6) WHERE session_id = 'ses_old_too'",
            CATCH_UP_MS)  # fmt: skip
    assert watcher.look(now) is True
    assert on_disk(settings) == {"ses_recent"}


def test_a_transcript_that_a_cleanup_removed_is_not_made_again(
    talk: Talk, store: Store, settings: Settings, watcher: Watcher
) -> None:
    talk.user("Hello.")
    talk.export(store, settings, NOW)
    options = Options((talk.id,), keep_recent=0)
    made = cleanup.plan(store, settings, options, NOW)
    list(cleanup.apply(store, settings, options, made.fingerprint, "tester", now=NOW))
    compact(talk)
    assert watcher.look(NOW) is False
    assert on_disk(settings) == set()
    with pytest.raises(NotFound):
        library.get(store, settings, talk.id)


# idle and off ------------------------------------------------------------------------------------


def test_an_idle_session_is_exported_a_minute_after_its_last_touch(
    talk: Talk, settings: Settings
) -> None:
    watcher = Watcher(Store(settings.db), replace(settings, auto_export="idle"))
    talk.user("Hello.")
    talk.assistant("Hi.")
    touched = talk.session().updated_at
    assert watcher.look(touched + 1000) is False
    assert watcher.look(touched + IDLE_MS - 1) is False
    assert on_disk(settings) == set()
    assert watcher.look(touched + IDLE_MS) is False
    assert on_disk(settings) == {talk.id}
    talk.user("Again.")
    talk.assistant("Yes.")
    later = talk.session().updated_at
    watcher.look(later + 1000)
    assert watcher.status.exported == 1
    watcher.look(later + IDLE_MS)
    assert watcher.status.exported == 2


def test_a_session_that_goes_on_is_not_idle(talk: Talk, settings: Settings) -> None:
    watcher = Watcher(Store(settings.db), replace(settings, auto_export="idle"))
    talk.user("Hello.")
    first = talk.session().updated_at
    watcher.look(first)
    for _ in range(30):
        talk.user("And another thing.")
    last = talk.session().updated_at
    watcher.look(last)
    watcher.look(first + IDLE_MS)
    assert on_disk(settings) == set()
    watcher.look(last + IDLE_MS)
    assert on_disk(settings) == {talk.id}


def test_off_opens_nothing(talk: Talk, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    compact(talk)
    watcher = Watcher(Store(settings.db), replace(settings, auto_export="off"))
    opened = connections(monkeypatch)
    assert watcher.look(NOW) is False
    assert opened == []
    assert watcher.status.ran_at is None


# What it costs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete", "held wal"])
def test_no_connection_is_opened_while_nothing_changed(
    talk: Talk, settings: Settings, watcher: Watcher, monkeypatch: pytest.MonkeyPatch, journal: str
) -> None:
    talk.sql(f"PRAGMA journal_mode = {journal.split()[-1]}")
    with closing(sqlite3.connect(talk.db)) as held:
        if journal == "held wal":
            held.execute("SELECT count(*) FROM session").fetchone()
        talk.user("Hello.")
        watcher.look(NOW)
        files = sorted(talk.db.parent.iterdir())
        opened = connections(monkeypatch)
        for second in range(0, 3600, 3):
            watcher.look(NOW + second * 1000)
        assert opened == []
        assert sorted(talk.db.parent.iterdir()) == files
        talk.user("And?")
        opened.clear()
        watcher.look(NOW + 3_700_000)
        assert len([name for name in opened if "opencode.db" in name]) in (1, 2)


def test_a_database_of_another_channel_is_watched_too(
    talk: Talk, settings: Settings, watcher: Watcher
) -> None:
    watcher.look(NOW)
    other = talk.db.with_name("opencode-beta.db")
    other.write_bytes(talk.db.read_bytes())
    talk.db = other
    compact(talk)
    assert watcher.look(NOW + 3000) is True


def test_opencode_can_write_while_the_watcher_looks(talk: Talk, watcher: Watcher) -> None:
    talk.sql("PRAGMA journal_mode = wal")
    stop = threading.Event()
    failed: list[Exception] = []

    def write() -> None:
        with closing(sqlite3.connect(talk.db, timeout=0)) as connection:
            while not stop.is_set():
                try:
                    with connection:
                        connection.execute("UPDATE session SET time_updated = time_updated + 1")
                except sqlite3.Error as error:
                    failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(50):
            watcher.look(NOW + number * 3000)
    finally:
        stop.set()
        thread.join()
    assert failed == [] and not watcher.status.problem


# What goes wrong ---------------------------------------------------------------------------------


def test_a_damaged_database_is_told_once_and_looked_at_again_later(
    talk: Talk, settings: Settings, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    compact(talk)
    whole = talk.db.read_bytes()
    talk.db.write_bytes(b"garbage" * 1000)
    for second in (0, 3, 63, 126):
        assert watcher.look(NOW + second * 1000) is False
    assert len(caplog.records) == 1 and "damaged" in caplog.text
    assert "damaged" in watcher.status.problem
    assert watcher.status.problem_at == NOW + 126_000
    talk.db.write_bytes(whole)
    assert watcher.look(NOW + 200_000) is True
    assert on_disk(settings) == {talk.id}


def test_a_session_that_cannot_be_exported_does_not_keep_the_others_and_is_tried_again(
    new_talk: NewTalk, settings: Settings, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    talks = [new_talk(f"ses_{number}") for number in range(3)]
    for one in talks:
        compact(one)
    foreign = settings.transcripts_dir / "home-demo-shop" / "ses_1.md"
    watcher.look(NOW)
    path = settings.transcripts_dir / next(settings.transcripts_dir.glob("*/")).name / "ses_1.md"
    assert path.exists() and not foreign.exists()
    path.unlink()
    with closing(sqlite3.connect(settings.db)) as db, db:
        db.execute("DELETE FROM transcripts")
    path.write_text("# Somebody else's\n")
    for other in ("ses_0", "ses_2"):
        (path.parent / f"{other}.md").unlink()
    again = Watcher(Store(settings.db), settings)
    caplog.clear()
    assert again.look(NOW) is True
    assert again.look(NOW + 3000) is False
    assert again.look(NOW + RETRY_MS) is False
    assert on_disk(settings) == {"ses_0", "ses_1", "ses_2"}
    assert len(caplog.records) == 1
    assert "written by another program" in again.status.problem
    path.unlink()
    assert again.look(NOW + 2 * RETRY_MS) is True
    assert path.read_text().startswith("# Invented ses_1")


def test_what_nobody_expected_is_logged_with_its_place_and_kills_nothing(
    talk: Talk, settings: Settings, watcher: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    compact(talk)
    settings.data_dir.mkdir(parents=True)
    settings.db.mkdir()
    assert watcher.look(NOW) is False
    assert watcher.status.problem.startswith("memory.db: ")
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_what_was_due_while_memory_db_was_held_is_exported_later(
    talk: Talk, store: Store, settings: Settings, watcher: Watcher
) -> None:
    with store.writing():
        receipts.write(store, "forget", "tester", "Forgot", {}, NOW)
    compact(talk)
    settings.db.rename(settings.db.with_name("away.db"))
    settings.db.mkdir()
    assert watcher.look(NOW) is False
    settings.db.rmdir()
    settings.db.with_name("away.db").rename(settings.db)
    assert watcher.look(NOW + RETRY_MS - 1) is False
    assert watcher.look(NOW + RETRY_MS) is True
    assert on_disk(settings) == {talk.id}


def test_a_session_that_was_deleted_before_it_was_idle_is_not_made(
    talk: Talk, settings: Settings
) -> None:
    watcher = Watcher(Store(settings.db), replace(settings, auto_export="idle"))
    talk.user("Hello.")
    touched = talk.session().updated_at
    watcher.look(touched)
    talk.sql("DELETE FROM session WHERE id = ?", talk.id)
    watcher.look(touched + IDLE_MS)
    assert not watcher.status.problem
    assert not settings.data_dir.exists()


# Cleaning up -------------------------------------------------------------------------------------


def exported(new_talk: NewTalk, store: Store, settings: Settings, count: int) -> list[str]:
    """So many exported sessions, the oldest first."""
    names = []
    for number in range(count):
        talk = new_talk(f"ses_{number}")
        talk.user("Hello.")
        talk.sql("UPDATE session SET time_updated = ? WHERE id = ?", START + number * 9000, talk.id)
        talk.export(store, settings, NOW)
        names.append(talk.id)
    return names


def test_the_limits_of_the_settings_are_applied(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = exported(new_talk, store, settings, 5)
    limited = replace(settings, max_sessions=3, keep_recent=1)
    watcher = Watcher(Store(settings.db), limited)
    watcher.sweep(now=NOW)
    assert on_disk(settings) == set(names[2:])
    (receipt,) = receipts.listing(store)
    assert (receipt.action, receipt.actor, receipt.at) == ("cleanup", "auto-sweep", NOW)
    assert [item["id"] for item in receipt.detail["transcripts"]] == names[:2]
    watcher.sweep(now=NOW + 1)
    assert len(receipts.listing(store)) == 1
    assert cleanup.undo_receipt(store, settings, receipt.id, "tester") == (2, [])


@pytest.mark.parametrize(
    "change", [{}, {"max_sessions": 1, "auto_sweep": False}, {"max_sessions": 99},
               {"max_sessions": 1, "keep_recent": 9}]
)  # fmt: skip
def test_nothing_is_removed_without_a_limit_or_when_it_is_off(
    new_talk: NewTalk, store: Store, settings: Settings, change: dict[str, Any]
) -> None:
    names = exported(new_talk, store, settings, 3)
    watcher = Watcher(Store(settings.db), replace(settings, **{"keep_recent": 0, **change}))
    watcher.sweep(now=NOW)
    assert on_disk(settings) == set(names)
    assert receipts.listing(store) == [] and not watcher.status.problem


@pytest.mark.parametrize("how", ["damaged", "gone", "locked"])
def test_nothing_is_removed_when_opencode_cannot_be_asked(
    new_talk: NewTalk, store: Store, settings: Settings, caplog: pytest.LogCaptureFixture,
    invented_db: Path, how: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    names = exported(new_talk, store, settings, 3)
    watcher = Watcher(Store(settings.db), replace(settings, max_sessions=1, keep_recent=0))
    monkeypatch.setattr("webapp.opencode.database.BUSY_TIMEOUT_S", 0.1)
    with closing(sqlite3.connect(invented_db)) as held:
        if how == "damaged":
            invented_db.write_bytes(b"garbage" * 1000)
        elif how == "gone":
            os.unlink(invented_db)
        else:
            held.execute("BEGIN EXCLUSIVE")
        watcher.sweep(now=NOW)
    assert on_disk(settings) == set(names)
    assert receipts.listing(store) == []
    assert watcher.status.problem.startswith("cleanup: ") and len(caplog.records) == 1


def test_the_thread_exports_cleans_up_and_stops(
    talk: Talk, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_S", 0.01)
    monkeypatch.setattr(watch, "SWEEP_S", 0.2)
    monkeypatch.setattr(watch, "CATCH_UP_MS", 10**12)
    compact(talk)
    limited = replace(settings, retention_days=1, keep_recent=0, auto_export="compacted")
    watcher = Watcher(Store(settings.db), limited)
    stopping = threading.Event()
    thread = threading.Thread(target=watcher.run, args=(stopping,))
    thread.start()
    try:
        for _ in range(1000):
            with Store(settings.db).session() as store:
                if receipts.listing(store):
                    break
            stopping.wait(0.01)
        assert (settings.data_dir / "trash").exists()
        assert on_disk(settings) == set()
        assert watcher.status.exported == 1 and not watcher.status.problem
    finally:
        stopping.set()
        thread.join(5)
    assert not thread.is_alive()
