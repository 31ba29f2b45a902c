"""A write to AGENTS.md that is killed: nothing is lost, and its receipt tells how far it came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from webapp.memory import agents_md
from webapp.settings import Settings
from webapp.store import Store, receipts

ROOT = Path(__file__).parents[2]
BEFORE = "# Rules\n\nOne.\n"
AFTER = "# Rules\n\nOne.\n\nNew.\n"

PROGRAM = """
import os, signal, sys
from pathlib import Path
from webapp.memory import agents_md
from webapp.memory.agents_md import writing
from webapp.settings import load
from webapp.store import Store

home, project, where = sys.argv[1:]
settings = load({}, {"HOME": home, "USER": "tester"})

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def then_kill(real):
    def work(*args, **kwargs):
        real(*args, **kwargs)
        kill()
    return work

with Store(settings.db).session() as store:
    target = agents_md.targets(project, None, settings.places)[0]
    plan = agents_md.propose(target, "New.", "end")
    if where == "before the receipt":
        writing.receipts.write = kill
    elif where == "before the file":
        writing._put = kill
    elif where == "within the file":
        writing.os.replace = kill
    elif where == "between two names":
        writing.os.link = then_kill(os.link)
    elif where == "after the file":
        writing._put = then_kill(writing._put)
    agents_md.write(store, settings.backups_dir, target, "New.", "end", plan.fingerprint, "tester",
                    project, {})
"""


@pytest.fixture
def project(tmp_path: Path, settings: Settings) -> Path:
    settings.places.config_dir.mkdir(parents=True)
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "AGENTS.md").write_text(BEFORE)
    return folder


def killed(tmp_path: Path, project: Path, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "home"), str(project), where],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def only_receipt(settings: Settings) -> receipts.Receipt:
    with Store(settings.db).session() as store:
        (found,) = receipts.listing(store)
    return found


def test_before_the_receipt_nothing_was_done_and_nothing_is_told(
    tmp_path: Path, project: Path, settings: Settings
) -> None:
    killed(tmp_path, project, "before the receipt")
    assert (project / "AGENTS.md").read_text() == BEFORE
    with Store(settings.db).session() as store:
        assert receipts.listing(store) == []
    (backup,) = settings.backups_dir.iterdir()
    assert backup.read_text() == BEFORE


@pytest.mark.parametrize("where", ["before the file", "within the file"])
def test_with_its_receipt_it_is_told_that_it_was_not_written(
    where: str, tmp_path: Path, project: Path, settings: Settings
) -> None:
    killed(tmp_path, project, where)
    assert (project / "AGENTS.md").read_text() == BEFORE
    receipt = only_receipt(settings)
    assert receipt.summary.startswith("Adding 2 lines")
    change = agents_md.change_of(receipt, settings.backups_dir, settings.places)
    assert change.interrupted and change.state == "former"
    assert "was not written: the program ended before that" in change.told
    # What was begun beside it goes with the next write.
    target = agents_md.targets(str(project), None, settings.places)[0]
    plan = agents_md.propose(target, "New.", "end")
    with Store(settings.db).session() as store:
        agents_md.write(
            store, settings.backups_dir, target, "New.", "end", plan.fingerprint, "t", "global", {}
        )
    assert (project / "AGENTS.md").read_text() == AFTER
    assert {path.name for path in project.iterdir()} == {".git", "AGENTS.md"}


def test_after_the_file_it_is_told_as_written_and_can_be_taken_back(
    tmp_path: Path, project: Path, settings: Settings
) -> None:
    killed(tmp_path, project, "after the file")
    assert (project / "AGENTS.md").read_text() == AFTER
    receipt = only_receipt(settings)
    change = agents_md.change_of(receipt, settings.backups_dir, settings.places)
    assert change.interrupted and change.state == "written"
    assert "still as it was written. The program ended before it could say so" in change.told
    with Store(settings.db).session() as store:
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert (project / "AGENTS.md").read_text() == BEFORE


def test_a_new_file_with_two_names_can_be_taken_back_and_proposed_to(
    tmp_path: Path, project: Path, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    path.unlink()
    killed(tmp_path, project, "between two names")
    assert path.stat().st_nlink == 2
    (target, *_) = agents_md.targets(str(project), None, settings.places)
    assert target.problem == ""
    with Store(settings.db).session() as store:
        receipt = only_receipt(settings)
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert os.listdir(project) == [".git"]
