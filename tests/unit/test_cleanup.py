"""Cleanup: a plan that is pure, an apply of that very plan, and a receipt that tells the truth."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.errors import InvalidInput, MemoryAppError, NotFound, PlanChanged, ReadOnly
from webapp.lines import LineRange
from webapp.opencode import list_sessions
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow, receipts
from webapp.transcripts import window
from webapp.transcripts.cleanup import (
    BATCH,
    DAY_MS,
    Applied,
    Options,
    Plan,
    apply,
    make_plan,
    plan,
)
from webapp.transcripts.export import export_many
from webapp.transcripts.files import marks_path, offsets_path
from webapp.transcripts.library import Transcript, get, open_transcript, transcripts
from webapp.transcripts.pending import pending

if TYPE_CHECKING:
    from tests.conftest import Talk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NewTalk = Callable[..., "Talk"]
NOW = 1_800_000_000_000


def item(name: str, age_days: float = 0, scope: str = "/s", ours: bool = True) -> Transcript:
    touched = int(NOW - age_days * DAY_MS)
    return Transcript(
        name, scope, name.upper(), Path(f"/t/{name}.md"), 10, 100, touched, touched, touched, ours
    )


def goes(found: Plan) -> dict[str, str]:
    return {step.transcript.id: step.why for step in found.steps}


def stays(found: Plan) -> dict[str, str]:
    return {kept.transcript.id: kept.why for kept in found.kept}


TEN = [item(f"t{age}", age) for age in range(10)]
"""Ten transcripts of one scope, t0 touched today and t9 nine days ago."""


def test_without_a_rule_nothing_goes() -> None:
    found = make_plan(TEN, Options(keep_recent=0), NOW)
    assert (found.steps, found.kept, found.unknown, found.considered) == ((), (), (), 10)


def test_named_ones_go_and_unknown_names_are_told() -> None:
    names = ("t3", "nobody", "t9", "t3")
    found = make_plan(TEN, Options(sessions=names, keep_recent=0), NOW)
    assert goes(found) == {"t9": "named", "t3": "named"}
    assert found.unknown == ("nobody",)
    assert found.bytes == 200


def test_the_oldest_goes_first() -> None:
    found = make_plan(TEN, Options(sessions=("t1", "t8", "t4"), keep_recent=0), NOW)
    assert [step.transcript.id for step in found.steps] == ["t8", "t4", "t1"]


def test_untouched_ones_go_and_the_reason_tells_the_days() -> None:
    found = make_plan(TEN, Options(retention_days=6, keep_recent=0), NOW)
    assert goes(found) == {
        "t7": "untouched for 7 days, over 6",
        "t8": "untouched for 8 days, over 6",
        "t9": "untouched for 9 days, over 6",
    }


def test_on_the_very_day_of_retention_a_transcript_stays() -> None:
    library = [item("on", 6), item("over", 6 + 1 / DAY_MS)]
    assert goes(make_plan(library, Options(retention_days=6, keep_recent=0), NOW)).keys() == {
        "over"
    }


def test_a_later_touch_in_opencode_counts() -> None:
    touched = {"t9": NOW - DAY_MS, "t8": 5, "nobody": NOW}
    found = make_plan(TEN, Options(retention_days=6, keep_recent=0), NOW, touched)
    assert goes(found).keys() == {"t7", "t8"}


def test_over_the_most_per_scope_the_oldest_go() -> None:
    library = [*TEN, item("other", 99, scope="/o"), item("third", 98, scope="/o")]
    found = make_plan(library, Options(max_sessions=7, keep_recent=0), NOW)
    assert goes(found) == dict.fromkeys(("t7", "t8", "t9"), "more than 7 in its project")


def test_what_goes_by_an_earlier_rule_does_not_count_for_a_later_one() -> None:
    options = Options(sessions=("t0", "t1"), retention_days=7, max_sessions=5, keep_recent=0)
    found = make_plan(TEN, options, NOW)
    assert goes(found) == {
        "t0": "named", "t1": "named",
        "t8": "untouched for 8 days, over 7", "t9": "untouched for 9 days, over 7",
        "t7": "more than 5 in its project",
    }  # fmt: skip


def test_the_first_rule_that_applies_gives_the_reason() -> None:
    options = Options(sessions=("t9",), retention_days=1, max_sessions=1, keep_recent=0)
    assert goes(make_plan(TEN, options, NOW))["t9"] == "named"


@pytest.mark.parametrize(
    "rule", [{"sessions": tuple(f"t{n}" for n in range(10))}, {"retention_days": 1},
             {"max_sessions": 1}]
)  # fmt: skip
@pytest.mark.parametrize("keep", [1, 3, 10, 50])
def test_the_newest_of_each_scope_never_go(keep: int, rule: dict[str, Any]) -> None:
    library = [each for scope in "ab" for each in (replace(t, id=t.id + scope, scope=scope)
               for t in TEN)]  # fmt: skip
    if "sessions" in rule:
        rule = {"sessions": tuple(each.id for each in library)}
    found = make_plan(library, Options(keep_recent=keep, **rule), NOW)
    for scope in "ab":
        newest = {f"t{n}{scope}" for n in range(min(keep, 10))}
        assert not newest & goes(found).keys()
        for name in newest & stays(found).keys():
            assert stays(found)[name] == f"among the {keep} newest of its project"
    if "sessions" in rule:
        assert len(found.steps) == 2 * max(0, 10 - keep)
        assert len(found.kept) == 2 * min(keep, 10)


def test_the_newest_are_those_touched_last_in_opencode() -> None:
    found = make_plan(TEN, Options(max_sessions=1, keep_recent=1), NOW, {"t9": NOW + 5})
    assert "t9" not in goes(found) and "t0" in goes(found)


def test_files_of_another_program_stay() -> None:
    library = [*TEN, item("theirs", 99, ours=False)]
    options = Options(sessions=("theirs",), retention_days=1, max_sessions=1, keep_recent=0)
    found = make_plan(library, options, NOW)
    assert "theirs" not in goes(found)
    assert stays(found)["theirs"] == "written by another program"


def test_one_scope_is_cleaned_and_of_the_others_only_what_is_named() -> None:
    library = [*TEN, item("other", 99, scope="/o"), item("third", 99, scope="/o")]
    options = Options(sessions=("other", "t9"), retention_days=5, keep_recent=0, scope="/s")
    found = make_plan(library, options, NOW)
    assert goes(found).keys() == {"t6", "t7", "t8", "t9", "other"}
    assert found.unknown == () and found.considered == 11
    kept = make_plan(library, replace(options, keep_recent=1, sessions=("other", "third")), NOW)
    assert stays(kept).keys() == {"other"}


def test_a_plan_is_pure() -> None:
    library = list(TEN)
    options = Options(max_sessions=3, keep_recent=1)
    first = make_plan(library, options, NOW)
    assert library == TEN
    assert make_plan(list(reversed(library)), options, NOW) == first


@pytest.mark.parametrize(
    "change",
    [
        lambda library: [*library, item("new", 1)],
        lambda library: library[:-1],
        lambda library: [replace(library[0], size=101), *library[1:]],
        lambda library: [replace(library[0], touched_at=NOW + 1), *library[1:]],
        lambda library: [replace(library[0], scope="/moved"), *library[1:]],
        lambda library: [replace(library[0], id="renamed"), *library[1:]],
    ],
)
def test_the_fingerprint_changes_with_the_library(
    change: Callable[[list[Transcript]], list[Transcript]],
) -> None:
    options = Options(max_sessions=20, keep_recent=0)
    first = make_plan(TEN, options, NOW)
    assert make_plan(change(list(TEN)), options, NOW).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    "options",
    [
        Options(max_sessions=21, keep_recent=0), Options(max_sessions=20, keep_recent=1),
        Options(max_sessions=20, keep_recent=0, retention_days=99),
        Options(max_sessions=20, keep_recent=0, sessions=("nobody",)),
        Options(max_sessions=20, keep_recent=0, scope="/s"),
    ],
)  # fmt: skip
def test_the_fingerprint_changes_with_the_options(options: Options) -> None:
    first = make_plan(TEN, Options(max_sessions=20, keep_recent=0), NOW)
    assert make_plan(TEN, options, NOW).fingerprint != first.fingerprint


def test_the_fingerprint_does_not_change_with_what_does_not_matter() -> None:
    options = Options(retention_days=4, keep_recent=0)
    library = [item(f"t{age}", age + 0.5) for age in range(10)]
    first = make_plan(library, options, NOW)
    same = make_plan(list(reversed(library)), options, NOW + 60_000, {}, lambda _: 7)
    assert same.fingerprint == first.fingerprint
    renamed = [replace(each, title="new", lines=99) for each in library]
    assert make_plan(renamed, options, NOW).fingerprint == first.fingerprint


def test_the_fingerprint_changes_when_time_makes_another_one_due() -> None:
    options = Options(retention_days=4, keep_recent=0)
    first = make_plan(TEN, options, NOW)
    assert make_plan(TEN, options, NOW + DAY_MS).fingerprint != first.fingerprint


def test_a_change_in_another_scope_does_not_change_the_fingerprint_of_one() -> None:
    options = Options(retention_days=4, keep_recent=0, scope="/s")
    first = make_plan(TEN, options, NOW)
    assert make_plan([*TEN, item("other", 1, "/o")], options, NOW).fingerprint == first.fingerprint


def fill(new_talk: NewTalk, store: Store, settings: Settings, count: int) -> list[str]:
    """Exported sessions, the last one touched last."""
    names = [f"ses_{n:03d}" for n in range(count)]
    for number, name in enumerate(names):
        talk = new_talk(name)
        talk.user(f"hello from {name}\n" * 3)
        talk.sql(
            "UPDATE session SET time_updated = ? WHERE id = ?",
            NOW - (count - number) * DAY_MS,
            name,
        )
        talk.export(store, settings, NOW)
    return names


def run(store: Store, settings: Settings, options: Options, **more: Any) -> list[Applied]:
    """Plans and applies that plan."""
    made = plan(store, settings, options, NOW)
    return list(apply(store, settings, options, made.fingerprint, "tester", now=NOW, **more))


def on_disk(settings: Settings) -> set[str]:
    return {path.stem for path in settings.transcripts_dir.rglob("*.md")}


def test_exactly_the_plan_is_done_and_the_receipt_tells_it(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 8)
    for name in names:
        window.read(get(store, settings, name), LineRange(1, 5))
    options = Options(max_sessions=3, keep_recent=1)
    made = plan(store, settings, options, NOW)
    sizes = {
        step.transcript.id: sum(
            path.stat().st_size
            for path in step.transcript.path.parent.glob(step.transcript.id + ".*")
        )
        for step in made.steps
    }
    assert sizes.keys() == set(names[:5])
    assert {step.transcript.id: step.bytes for step in made.steps} == sizes

    (done,) = run(store, settings, options)

    assert (done.done, done.total, done.bytes) == (5, 5, sum(sizes.values()))
    assert done.problems == () and not done.interrupted and done.receipt is not None
    assert on_disk(settings) == set(names[5:])
    assert {each.id for each in transcripts(store, settings)} == set(names[5:])
    for name in names[:5]:
        assert not list(settings.transcripts_dir.rglob(f"{name}*"))
    receipt = receipts.get(store, done.receipt)
    assert (receipt.action, receipt.actor, receipt.at) == ("cleanup", "tester", NOW)
    assert receipt.summary == "Removed 5 transcripts"
    detail = receipt.detail
    assert (detail["planned"], detail["removed"], detail["interrupted"]) == (5, 5, False)
    assert detail["bytes"] == sum(sizes.values()) and detail["problems"] == []
    assert [each["id"] for each in detail["transcripts"]] == names[:5]
    for each in detail["transcripts"]:
        assert each["bytes"] == sizes[each["id"]] and each["why"] == "more than 3 in its project"
        assert each["title"] and each["scope"] == "/home/demo/shop" and each["lines"] > 0


def test_nothing_to_do_is_done_without_a_receipt(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    fill(new_talk, store, settings, 3)
    (done,) = run(store, settings, Options())
    assert done == Applied(0, 0, 0, (), False, None)
    assert receipts.listing(store) == []


def changed_by_export(talk: Talk, store: Store, settings: Settings) -> None:
    talk.assistant("more")
    talk.export(store, settings, NOW)


def changed_in_opencode(talk: Talk, store: Store, settings: Settings) -> None:
    talk.user("it goes on")


def changed_by_a_new_file(talk: Talk, store: Store, settings: Settings) -> None:
    path = settings.transcripts_dir / "x" / "theirs.md"
    path.parent.mkdir()
    path.write_text("# New\n")


def changed_by_hand(talk: Talk, store: Store, settings: Settings) -> None:
    get(store, settings, talk.id).path.unlink()


@pytest.mark.parametrize(
    "change", [changed_by_export, changed_in_opencode, changed_by_a_new_file, changed_by_hand]
)
def test_a_library_that_changed_is_not_touched_and_the_new_plan_is_offered(
    change: Callable[[Talk, Store, Settings], None],
    new_talk: NewTalk,
    store: Store,
    settings: Settings,
) -> None:
    fill(new_talk, store, settings, 5)
    talk = new_talk("ses_x")
    talk.user("hello")
    talk.export(store, settings, NOW)
    options = Options(max_sessions=2, keep_recent=0)
    made = plan(store, settings, options, NOW)
    change(talk, store, settings)
    before = sorted(settings.transcripts_dir.rglob("*"))
    with pytest.raises(PlanChanged) as caught:
        list(apply(store, settings, options, made.fingerprint, "tester", now=NOW))
    assert sorted(settings.transcripts_dir.rglob("*")) == before
    assert receipts.listing(store) == []
    offered = caught.value.details["plan"]
    assert offered == plan(store, settings, options, NOW)
    assert offered.fingerprint != made.fingerprint
    list(apply(store, settings, options, offered.fingerprint, "tester", now=NOW))
    assert len([name for name in on_disk(settings) if name.startswith("ses")]) <= 2


@pytest.mark.parametrize("wrong", ["", "0" * 12, "x", "\ud800"])
def test_a_wrong_fingerprint_removes_nothing(
    wrong: str, new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 3)
    with pytest.raises(PlanChanged):
        list(apply(store, settings, Options(sessions=(names[0],), keep_recent=0), wrong, "t"))
    assert on_disk(settings) == set(names)


def test_other_options_than_those_of_the_plan_remove_nothing(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 6)
    made = plan(store, settings, Options(max_sessions=3, keep_recent=0), NOW)
    more = Options(max_sessions=1, keep_recent=0)
    with pytest.raises(PlanChanged):
        list(apply(store, settings, more, made.fingerprint, "tester", now=NOW))
    assert on_disk(settings) == set(names)


def test_reading_does_not_make_a_plan_old(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 4)
    talk = new_talk("ses_long")
    talk.user("long\n" * 40_000)
    talk.export(store, settings, NOW)
    options = Options(sessions=(names[0], "ses_long"), keep_recent=0)
    made = plan(store, settings, options, NOW)
    for each in transcripts(store, settings):
        window.read(each, LineRange(each.lines, each.lines))
        open_transcript(store, settings, each.id)
    assert offsets_path(get(store, settings, "ses_long").path).exists()
    assert plan(store, settings, options, NOW).fingerprint == made.fingerprint
    (done,) = list(apply(store, settings, options, made.fingerprint, "tester", now=NOW))
    assert done.done == 2 and "ses_long" not in on_disk(settings)


def test_a_stop_half_way_says_so_and_the_receipt_tells_the_truth(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    count = BATCH * 2 + 7
    names = fill(new_talk, store, settings, count)
    stops = iter([False, True])
    steps = run(store, settings, Options(sessions=tuple(names), keep_recent=0),
                stopped=lambda: next(stops))  # fmt: skip
    assert [(step.done, step.total) for step in steps] == [(BATCH, count), (BATCH, count)]
    assert not steps[0].interrupted and steps[-1].interrupted
    assert on_disk(settings) == set(names[BATCH:])
    assert steps[-1].receipt is not None
    receipt = receipts.get(store, steps[-1].receipt)
    assert receipt.summary == f"Removed {BATCH} transcripts of {count} planned, then stopped"
    assert receipt.detail["interrupted"] and receipt.detail["planned"] == count
    assert receipt.detail["removed"] == len(receipt.detail["transcripts"]) == BATCH
    assert receipt.detail["bytes"] == steps[-1].bytes > 0
    assert {each["id"] for each in receipt.detail["transcripts"]} == set(names[:BATCH])
    assert len(receipts.listing(store)) == 1


def test_a_caller_who_leaves_half_way_leaves_a_receipt(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, BATCH + 3)
    options = Options(sessions=tuple(names), keep_recent=0)
    made = plan(store, settings, options, NOW)
    steps = apply(store, settings, options, made.fingerprint, "tester", now=NOW)
    assert next(steps).done == BATCH
    steps.close()  # type: ignore[attr-defined]
    (receipt,) = receipts.listing(store)
    assert receipt.detail["removed"] == BATCH and receipt.detail["interrupted"]
    assert on_disk(settings) == set(names[BATCH:])


def test_a_stop_before_the_first_one_removes_nothing(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 3)
    options = Options(sessions=tuple(names), keep_recent=0)
    (done,) = run(store, settings, options, stopped=lambda: True)
    assert done == Applied(0, 3, 0, (), True, None)
    assert on_disk(settings) == set(names) and receipts.listing(store) == []


def test_a_removed_transcript_opens_as_not_found_with_its_story(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 3)
    run(store, settings, Options(sessions=(names[0],), keep_recent=0))
    with pytest.raises(NotFound) as caught:
        open_transcript(store, settings, names[0])
    gone = caught.value.details["removed"]
    assert (gone.id, gone.why, gone.removed_at, gone.removed_by) == (
        names[0],
        "named",
        NOW,
        "tester",
    )


def test_a_removed_transcript_is_made_again_by_an_explicit_export_only(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 3)
    kept = get(store, settings, names[0]).path.read_bytes()
    run(store, settings, Options(sessions=(names[0],), keep_recent=0))
    found = pending(store, settings)
    assert (found.absent, found.behind, found.removed) == ((), (), 1)
    list(export_many(store, settings, list(found.chosen("every")), NOW))
    with pytest.raises(NotFound):
        open_transcript(store, settings, names[0])
    assert names[0] not in on_disk(settings)

    sessions = list_sessions(settings.opencode_databases()).sessions
    mine = [session for session in sessions if session.id == names[0]]
    (step,) = export_many(store, settings, mine, NOW, again=True)
    assert step.exported is not None and step.exported.created
    assert step.exported.path.read_bytes() == kept
    assert open_transcript(store, settings, names[0]).transcript.ours


def test_the_plan_looks_at_opencode_for_the_last_touch(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 6)
    options = Options(retention_days=3, keep_recent=0)
    assert goes(plan(store, settings, options, NOW)).keys() == set(names[:3])
    with closing(sqlite3.connect(settings.opencode_databases()[0])) as connection, connection:
        connection.execute("UPDATE session SET time_updated = ? WHERE id = ?", (NOW, names[0]))
    assert goes(plan(store, settings, options, NOW)).keys() == set(names[1:3])


def test_a_plan_without_opencode_is_made_of_what_the_transcripts_tell(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 6)
    settings.opencode_databases()[0].unlink()
    made = plan(store, settings, Options(retention_days=3, keep_recent=0), NOW)
    assert goes(made).keys() == set(names[:3])


@pytest.mark.parametrize("name", ["retention_days", "max_sessions", "keep_recent"])
@pytest.mark.parametrize("value", [-1, 1_000_001])
def test_numbers_out_of_bounds_are_refused(
    name: str, value: int, store: Store, settings: Settings
) -> None:
    with pytest.raises(InvalidInput) as caught:
        plan(store, settings, Options(**{name: value}), NOW)  # type: ignore[arg-type]
    assert caught.value.field == name


def test_a_write_protected_store_removes_nothing(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 3)
    store.close()
    settings.db.chmod(0o400)
    with Store(settings.db).session() as guarded, pytest.raises(ReadOnly):
        run(guarded, settings, Options(sessions=(names[0],), keep_recent=0))
    store.open()
    assert on_disk(settings) == set(names)


def test_a_locked_store_removes_nothing(
    new_talk: NewTalk, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = fill(new_talk, store, settings, 3)
    monkeypatch.setattr("webapp.store.connection.WRITE_PATIENCE_S", 0.0)
    store.rows("PRAGMA busy_timeout = 50")
    options = Options(sessions=tuple(names), keep_recent=0)
    with closing(sqlite3.connect(settings.db, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MemoryAppError):
            run(store, settings, options)
        other.execute("ROLLBACK")
    assert on_disk(settings) == set(names)
    assert {each.id for each in transcripts(store, settings)} == set(names)
    assert receipts.listing(store) == []


def test_a_file_that_cannot_be_removed_is_a_problem_and_stays_a_transcript(
    new_talk: NewTalk,
    store: Store,
    settings: Settings,
    open_folder: Path,
    as_stranger: Callable[[Callable[[], str]], str],
) -> None:
    names = fill(new_talk, store, settings, 3)
    store.close()
    place = open_folder / "data"
    settings.data_dir.rename(place)
    for path in [place, *place.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)
        if os.geteuid() == 0 and path.is_file():
            os.chown(path, 65534, 65534)
    # The files are the stranger's own, but in this folder nothing can be added or removed.
    (folder,) = [path for path in (place / "transcripts").iterdir() if path.is_dir()]
    folder.chmod(0o555)
    path = folder / f"{names[0]}.md"
    mine = replace(
        settings, data_dir=place, db=place / "memory.db", opencode_db=open_folder / "none.db"
    )

    def work() -> str:
        with Store(mine.db).session() as opened:
            options = Options(sessions=(names[0],), keep_recent=0)
            made = plan(opened, mine, options, NOW)
            steps = list(apply(opened, mine, options, made.fingerprint, "tester", now=NOW))
            (receipt,) = receipts.listing(opened)
            detail = receipt.detail
            listed = get(opened, mine, names[0]).ours
            return f"{len(steps[-1].problems)} {detail['removed']} {detail['bytes']} {listed}"

    answer = as_stranger(work)
    folder.chmod(0o700)
    assert path.exists()
    assert answer == "1 0 0 True"
    with Store(mine.db).session() as opened:
        assert open_transcript(opened, mine, names[0]).transcript.ours
        (receipt,) = receipts.listing(opened)
        assert "1" in receipt.summary and "could not be removed" in receipt.summary
        assert names[0] in receipt.detail["problems"][0]
    place.rename(settings.data_dir)
    store.open()


def test_side_files_that_stay_do_no_harm_and_are_told(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 2)
    path = get(store, settings, names[0]).path
    offsets_path(path).mkdir()
    (done,) = run(store, settings, Options(sessions=(names[0],), keep_recent=0))
    assert not path.exists() and not marks_path(path).exists()
    assert (done.done, done.total, done.interrupted) == (1, 1, False)
    assert done.problems == (f"{names[0]}: {offsets_path(path)} stays",)
    (receipt,) = receipts.listing(store)
    assert receipt.summary == "Removed 1 transcript"
    assert receipt.detail["problems"] == list(done.problems)
    assert names[0] not in {each.id for each in transcripts(store, settings)}


def test_a_transcript_that_went_meanwhile_does_not_stop_the_others(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, BATCH + 5)
    options = Options(sessions=tuple(names), keep_recent=0)
    made = plan(store, settings, options, NOW)
    steps = apply(store, settings, options, made.fingerprint, "tester", now=NOW)
    next(steps)
    get(store, settings, names[-1]).path.unlink()
    last = list(steps)[-1]
    assert last.done == BATCH + 5 and not last.interrupted
    assert on_disk(settings) == set()


def test_a_removed_transcript_keeps_its_row_so_that_its_links_can_tell(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    names = fill(new_talk, store, settings, 2)
    run(store, settings, Options(sessions=(names[0],), keep_recent=0))
    row = store.first(TranscriptRow.select().where(TranscriptRow.session_id == names[0]))
    assert (row.removed_at, row.removed_by, row.removed_why) == (NOW, "tester", "named")
    assert row.title == f"Invented {names[0]}"
