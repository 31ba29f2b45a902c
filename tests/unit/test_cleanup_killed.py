"""A cleanup that is killed: its receipt tells what was removed, and puts it back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webapp.settings import Settings
from webapp.store import Store, receipts
from webapp.transcripts import aside, cleanup, library
from webapp.transcripts.cleanup import BATCH, Options
from webapp.transcripts.export import export

if TYPE_CHECKING:
    from tests.conftest import Talk

NewTalk = Callable[..., "Talk"]
ROOT = Path(__file__).parents[2]
NOW = 1_790_000_000_000 + 86_400_000
COUNT = BATCH + 7

PROGRAM = """
import json, os, signal, sys
from webapp.settings import load
from webapp.store import Store
from webapp.transcripts import aside, cleanup

home, what, event, name, number = sys.argv[1:]
left = int(number)

def kill(seen, args):
    global left
    if seen == event and str(args[0]).endswith(name):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

settings = load({}, {"HOME": home, "USER": "tester"})
with Store(settings.db).session() as store:
    if what == "sweep":
        sys.addaudithook(kill)
        aside.sweep(store, settings, int(os.environ["NOW"]))
    else:
        options = cleanup.Options(tuple(json.loads(what)), keep_recent=0)
        plan = cleanup.plan(store, settings, options)
        sys.addaudithook(kill)
        for _ in cleanup.apply(store, settings, options, plan.fingerprint, "tester"):
            pass
"""


@pytest.fixture
def texts(new_talk: NewTalk, store: Store, settings: Settings) -> dict[str, bytes]:
    """So many exported sessions, and what their transcripts say."""
    for number in range(COUNT):
        talk = new_talk(f"ses_{number:03}")
        talk.user("Hello.")
        talk.export(store, settings, NOW)
    return {t.id: t.path.read_bytes() for t in library.transcripts(store, settings)}


def killed(tmp_path: Path, what: str, event: str, name: str, number: int, now: int = 0) -> None:
    """Runs the program in a process that is killed at the n-th such event."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "home"), what, event, name, str(number)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NOW": str(now)}, capture_output=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def on_disk(settings: Settings) -> set[str]:
    return {path.stem for path in settings.transcripts_dir.glob("*/*.md")}


@pytest.mark.parametrize(
    ("event", "name", "number", "gone"),
    [
        ("shutil.move", ".md", 1, 0),
        ("shutil.move", ".marks", 1, 1),
        ("shutil.move", ".md", 12, 11),
        ("shutil.move", ".marks", BATCH, BATCH),
        ("shutil.move", ".md", BATCH + 1, BATCH),
        ("shutil.move", ".marks", COUNT, COUNT),
    ],
)
def test_what_was_removed_is_told_and_put_back(
    tmp_path: Path, store: Store, settings: Settings, texts: dict[str, bytes], event: str,
    name: str, number: int, gone: int,
) -> None:  # fmt: skip
    killed(tmp_path, json.dumps(sorted(texts)), event, name, number)
    removed = set(texts) - on_disk(settings)
    assert len(removed) == gone

    (stored,) = receipts.listing(store)
    assert (stored.action, stored.actor) == ("cleanup", "tester")
    assert stored.detail["interrupted"] and stored.detail["planned"] == COUNT
    assert stored.detail["removed"] == (number - 1) // BATCH * BATCH
    whole = cleanup.whole(store, settings, stored)
    named = [item["id"] for item in whole.detail["transcripts"]]
    # The transcript at which it was killed had been noted already.
    assert removed <= set(named) and len(named) == len(set(named)) == number
    assert whole.summary == cleanup._summary(number, 0, COUNT, True)
    assert whole.detail["removed"] == number and whole.detail["bytes"] > 0
    assert all(
        item["title"] and item["lines"] and item["why"] for item in whole.detail["transcripts"]
    )

    assert cleanup.undo_receipt(store, settings, stored.id, "tester") == (number, [])
    items = library.transcripts(store, settings)
    assert {t.id: t.path.read_bytes() for t in items} == texts
    assert all(t.ours for t in items)
    assert receipts.get(store, stored.id).detail["removed"] == number
    for session in (item.id for item in items):
        assert not cleanup.can_undo(store, settings, session)


def test_after_it_another_cleanup_and_an_export_go_on(
    tmp_path: Path, new_talk: NewTalk, store: Store, settings: Settings, texts: dict[str, bytes]
) -> None:
    killed(tmp_path, json.dumps(sorted(texts)), "shutil.move", ".md", 5)
    options = Options(tuple(sorted(texts)), keep_recent=0)
    made = cleanup.plan(store, settings, options)
    *_, done = cleanup.apply(store, settings, options, made.fingerprint, "tester")
    assert done.done == COUNT - 5 and not done.problems
    half = "ses_004"  # noted as removed and not moved
    assert on_disk(settings) == {half}
    opened = library.open_transcript(store, settings, half)
    assert opened.transcript.path.read_bytes() == texts[half]
    from webapp.opencode import find_session

    session, _ = find_session(settings.opencode_databases(), half)
    assert session is not None
    assert export(store, settings, session, NOW, again=True).added == 0
    assert library.get(store, settings, half).ours


def test_a_receipt_that_was_finished_is_left_as_it_is(
    store: Store, settings: Settings, texts: dict[str, bytes]
) -> None:
    options = Options(tuple(sorted(texts)), keep_recent=0)
    made = cleanup.plan(store, settings, options)
    *_, done = cleanup.apply(store, settings, options, made.fingerprint, "tester")
    assert done.receipt is not None
    receipt = receipts.get(store, done.receipt)
    assert cleanup.whole(store, settings, receipt) is receipt
    assert not receipt.detail["interrupted"]


def test_a_sweep_that_is_killed_leaves_a_receipt_and_goes_on(
    tmp_path: Path, store: Store, settings: Settings, texts: dict[str, bytes]
) -> None:
    options = Options(tuple(sorted(texts)), keep_recent=0)
    made = cleanup.plan(store, settings, options, NOW)
    list(cleanup.apply(store, settings, options, made.fingerprint, "tester", now=NOW))
    later = NOW + 8 * aside.DAY_MS
    killed(tmp_path, "sweep", "os.remove", ".md", 10, later)
    assert aside.contents(settings).count == COUNT - 9
    (first,) = (r for r in receipts.listing(store) if r.action == "swept")
    assert first.detail["interrupted"] and first.detail["ids"] == sorted(texts)
    assert first.summary == f"Giving back the bytes of {COUNT} removed transcripts, interrupted"
    assert aside.sweep(store, settings, later + 1) > 0
    assert not list((settings.data_dir / "trash").glob("*/*"))
