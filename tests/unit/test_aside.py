"""A cleanup is kept for some days and can be taken back, line for line."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from webapp.errors import Conflict, InvalidInput, NotFound
from webapp.opencode import list_sessions
from webapp.settings import Settings
from webapp.store import Store, receipts
from webapp.transcripts import aside, cleanup, library
from webapp.transcripts.cleanup import Options
from webapp.transcripts.export import export

NOW = 1_800_000_000_000
DAY = 86_400_000
LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"


@pytest.fixture
def removed(store: Store, settings: Settings, newest_db: Path) -> tuple[Settings, dict[str, bytes]]:
    """A library whose transcripts were all removed, and what they said."""
    settings = replace(settings, opencode_db=newest_db)
    for session in list_sessions([newest_db]).sessions:
        export(store, settings, session, NOW)
    texts = {t.id: t.path.read_bytes() for t in library.transcripts(store, settings)}
    options = Options(tuple(texts), keep_recent=0)
    plan = cleanup.plan(store, settings, options, NOW)
    for _ in cleanup.apply(store, settings, options, plan.fingerprint, "tester", now=NOW):
        pass
    assert library.transcripts(store, settings) == []
    return settings, texts


def test_one_comes_back_as_it_was_and_goes_on(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    assert cleanup.can_undo(store, settings, LONG)
    cleanup.undo(store, settings, LONG, "tester", NOW)
    item = library.get(store, settings, LONG)
    assert item.path.read_bytes() == texts[LONG]
    assert item.ours
    assert not cleanup.can_undo(store, settings, LONG)
    session = next(s for s in list_sessions(settings.opencode_databases()).sessions if s.id == LONG)
    assert export(store, settings, session, NOW).added == 0
    assert receipts.listing(store)[0].action == "undo"


def test_a_whole_cleanup_is_taken_back_by_its_receipt(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    receipt = next(r for r in receipts.listing(store) if r.action == "cleanup")
    assert cleanup.undo_receipt(store, settings, receipt.id, "tester") == (len(texts), [])
    found = {t.id: t.path.read_bytes() for t in library.transcripts(store, settings)}
    assert found == texts
    done, problems = cleanup.undo_receipt(store, settings, receipt.id, "tester")
    assert (done, len(problems)) == (0, len(texts))


def test_what_lies_aside_is_private_and_neither_listed_nor_searched(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    kept = list((settings.data_dir / "trash").glob("*/*.md"))
    assert {path.stem for path in kept} == set(texts)
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in kept} == {0o700}
    assert library.listing(store, settings).total == 0


def test_its_bytes_go_after_a_week_and_not_before(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    assert aside.sweep(settings, NOW + aside.DAYS * DAY) == 0
    assert cleanup.can_undo(store, settings, LONG)
    assert aside.sweep(settings, NOW + aside.DAYS * DAY + 1) > sum(map(len, texts.values()))
    assert not cleanup.can_undo(store, settings, LONG)
    with pytest.raises(NotFound, match="7 days"):
        cleanup.undo(store, settings, LONG, "tester")


def test_one_that_was_exported_anew_is_not_overwritten(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, _ = removed
    gone = library.removed(store, LONG)
    assert gone is not None
    path = settings.transcripts_dir / gone.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("another")
    with pytest.raises(Conflict):
        cleanup.undo(store, settings, LONG, "tester")
    assert path.read_text() == "another"
    assert cleanup.can_undo(store, settings, LONG)


def test_only_a_cleanup_can_be_undone(store: Store, settings: Settings) -> None:
    with store.writing():
        number = receipts.write(store, "forget", "tester", "Forgot", {}, NOW)
    with pytest.raises(InvalidInput):
        cleanup.undo_receipt(store, settings, number, "tester")


def test_an_empty_file_that_a_failed_export_left_is_no_obstacle(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    gone = library.removed(store, LONG)
    assert gone is not None
    path = settings.transcripts_dir / gone.path
    path.touch()
    path.with_suffix(".marks").write_text("1\theader\thalf")
    cleanup.undo(store, settings, LONG, "tester", NOW)
    item = library.get(store, settings, LONG)
    assert item.ours and item.path.read_bytes() == texts[LONG]
