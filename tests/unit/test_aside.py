"""A cleanup is kept for some days and can be taken back, line for line."""

from __future__ import annotations

import contextlib
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
from webapp.transcripts.export import export, export_many
from webapp.transcripts.files import marks_path

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
    assert {path.stem for path in kept} == {f"{name}.{NOW}" for name in texts}
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in kept} == {0o700}
    assert library.listing(store, settings).total == 0


def swept(store: Store) -> list[receipts.Receipt]:
    return [r for r in receipts.listing(store) if r.action == "swept"]


def test_its_bytes_go_after_a_week_and_not_before(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    assert aside.sweep(store, settings, NOW + aside.DAYS * DAY) == 0
    assert cleanup.can_undo(store, settings, LONG)
    assert swept(store) == []
    held = aside.contents(settings)
    assert (held.count, held.first_at, held.last_at) == (len(texts), NOW, NOW)
    assert held.next_at == NOW + aside.DAYS * DAY
    freed = aside.sweep(store, settings, NOW + aside.DAYS * DAY + 1)
    assert freed == held.bytes > sum(map(len, texts.values()))
    assert not cleanup.can_undo(store, settings, LONG)
    with pytest.raises(NotFound, match="7 days"):
        cleanup.undo(store, settings, LONG, "tester")
    assert aside.contents(settings) == aside.Aside(0, 0, None, None)
    assert aside.contents(settings).next_at is None


def test_the_end_of_the_bytes_leaves_a_receipt(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    at = NOW + 8 * DAY
    freed = aside.sweep(store, settings, at)
    (receipt,) = swept(store)
    assert (receipt.actor, receipt.at) == ("sweep", at)
    assert receipt.summary == f"Gave back the bytes of {len(texts)} removed transcripts for good"
    assert receipt.detail == {
        "why": "after 7 days", "bytes": freed, "count": len(texts), "problems": [],
        "ids": sorted(texts),
    }  # fmt: skip
    assert aside.sweep(store, settings, at + DAY) == 0
    assert len(swept(store)) == 1
    assert receipts.total(store, "swept", "bytes") == freed


def test_only_what_is_due_goes(store: Store, removed: tuple[Settings, dict[str, bytes]]) -> None:
    settings, texts = removed
    old = settings.data_dir / "trash" / next((settings.data_dir / "trash").glob("*/*.md"))
    name = old.stem.removesuffix(f".{NOW}")
    old.rename(old.with_name(f"{name}.{NOW - 5 * DAY}.md"))
    assert aside.sweep(store, settings, NOW + 3 * DAY) > 0
    assert swept(store)[0].detail["ids"] == [name]
    assert aside.contents(settings).count == len(texts) - 1


def test_bytes_are_given_back_at_once_when_asked_for(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, _ = removed
    assert aside.give_back(store, settings, "tester", NOW - 1, NOW + 5) == 0
    assert swept(store) == []
    held = aside.contents(settings)
    assert aside.give_back(store, settings, "tester", NOW, NOW + 5) == held.bytes
    (receipt,) = swept(store)
    assert (receipt.actor, receipt.detail["why"]) == ("tester", "on demand")
    assert aside.contents(settings).count == 0
    assert not list((settings.data_dir / "trash").glob("*/*"))


@pytest.mark.parametrize(
    ("jump", "words"),
    [
        (-1, "later than the clock says"),
        (-400 * DAY, "later than the clock says"),
        (31 * DAY, "more than 30 days beyond"),
        (9000 * DAY, "more than 30 days beyond"),
    ],
)
def test_a_wrong_clock_destroys_nothing(
    store: Store, removed: tuple[Settings, dict[str, bytes]], jump: int, words: str
) -> None:
    settings, texts = removed
    assert words in aside.doubt(store, settings, NOW + jump)
    with pytest.raises(Conflict, match=words):
        aside.sweep(store, settings, NOW + jump)
    assert aside.contents(settings).count == len(texts)
    with contextlib.suppress(Conflict):
        assert aside.sweep(store, settings, NOW + DAY) == 0
    assert aside.contents(settings).count == len(texts)
    assert swept(store) == []
    assert aside.sweep(store, settings, NOW + 8 * DAY) > 0


def test_a_clock_that_has_gone_on_for_a_day_is_believed_and_a_restart_is_no_day(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    for later in (0, 3_000, DAY - 1):
        with pytest.raises(Conflict):
            aside.sweep(store, settings, NOW + 400 * DAY + later)
    assert aside.contents(settings).count == len(texts)
    # It was right again meanwhile, and has jumped once more.
    assert aside.sweep(store, settings, NOW + DAY) == 0
    with pytest.raises(Conflict):
        aside.sweep(store, settings, NOW + 401 * DAY)
    assert aside.sweep(store, settings, NOW + 402 * DAY) > 0


def test_of_two_cleanups_at_once_only_one_removes(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    """The second has made its plan before the first was done."""
    settings, texts = removed
    receipt = next(r for r in receipts.listing(store) if r.action == "cleanup")
    cleanup.undo_receipt(store, settings, receipt.id, "tester")
    options = cleanup.Options(sessions=tuple(texts), keep_recent=0)
    plan = cleanup.plan(store, settings, options, NOW)
    for at in (NOW + 1, NOW + 2):
        for step in plan.steps:
            with contextlib.suppress(NotFound, FileNotFoundError):
                cleanup._remove(store, settings, step, "tester", at)
    assert aside.contents(settings).count == len(texts)
    assert not list(settings.transcripts_dir.glob("*/*.md"))
    for name, text in texts.items():
        cleanup.undo(store, settings, name, "tester")
        assert library.get(store, settings, name).path.read_bytes() == text


def test_a_removal_never_overwrites_an_earlier_one(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, _ = removed
    session = next(s for s in list_sessions(settings.opencode_databases()).sessions if s.id == LONG)
    (old,) = (settings.data_dir / "trash").glob(f"*/{LONG}.*.md")
    before = old.read_bytes()
    export(store, settings, session, NOW, again=True)
    options = cleanup.Options(sessions=(LONG,), keep_recent=0)
    plan = cleanup.plan(store, settings, options, NOW + 5)
    list(cleanup.apply(store, settings, options, plan.fingerprint, "tester", now=NOW + 5))
    assert len(list((settings.data_dir / "trash").glob(f"*/{LONG}.*.md"))) == 2
    assert old.read_bytes() == before


def test_marks_that_a_kill_left_alone_are_found_again(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    (text,) = (settings.data_dir / "trash").glob(f"*/{LONG}.*.md")
    place = settings.transcripts_dir / text.parent.name / f"{LONG}.marks"
    text.with_suffix(".marks").rename(place)
    marks = place.read_bytes()
    cleanup.undo(store, settings, LONG, "tester")
    item = library.get(store, settings, LONG)
    assert item.path.read_bytes() == texts[LONG] and marks_path(item.path).read_bytes() == marks
    session = next(s for s in list_sessions(settings.opencode_databases()).sessions if s.id == LONG)
    assert export(store, settings, session, NOW).added == 0


def test_an_export_that_was_planned_before_the_cleanup_does_not_undo_it(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    sessions = list(list_sessions(settings.opencode_databases()).sessions)
    steps = list(export_many(store, settings, sessions, NOW))
    assert len(steps) == len(sessions) and not any(step.exported or step.problem for step in steps)
    assert aside.contents(settings).count == len(texts)
    with pytest.raises(Conflict, match="removed by a cleanup"):
        export(store, settings, sessions[0], NOW)


def test_a_transcript_from_the_future_makes_the_sweep_wait(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, texts = removed
    session = next(s for s in list_sessions(settings.opencode_databases()).sessions if s.id == LONG)
    export(store, settings, session, NOW + 20 * DAY, again=True)
    with pytest.raises(Conflict, match="later than the clock says"):
        aside.sweep(store, settings, NOW + 8 * DAY)
    assert aside.contents(settings).count == len(texts)


def test_a_server_that_runs_every_day_never_doubts_its_clock(
    store: Store, removed: tuple[Settings, dict[str, bytes]]
) -> None:
    settings, _ = removed
    assert [aside.sweep(store, settings, NOW + day * DAY + 1) > 0 for day in range(9)] == [
        False, False, False, False, False, False, False, True, False,
    ]  # fmt: skip
    assert aside.doubt(store, settings, NOW) == ""


def test_an_unused_installation_has_nothing_to_sweep(store: Store, settings: Settings) -> None:
    assert aside.sweep(store, settings, NOW) == 0
    assert aside.give_back(store, settings, "tester", NOW, NOW) == 0
    assert aside.contents(settings).count == 0 and aside.doubt(store, settings, NOW) == ""
    assert not settings.data_dir.exists()


def test_the_total_of_receipts_counts_no_odd_ones(store: Store) -> None:
    details = ['{"bytes": 5}', '{"bytes": 7}', '{"bytes": "9"}', "no json", "[]", '{"bytes": 1.5}']
    with store.writing():
        for detail in details:
            store.rows(
                "INSERT INTO receipts (at, action, actor, summary, detail)"
                " VALUES (1, 'swept', 'x', 'y', ?)",
                (detail,),
            )
        receipts.write(store, "cleanup", "x", "y", {"bytes": 100}, 1)
    assert receipts.total(store, "swept", "bytes") == 12


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
