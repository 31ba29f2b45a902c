"""What all tests share: settings in a folder of their own, an open store, the fixtures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from webapp import settings as setting_table
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import ripgrep

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("1.2.27", "1.18.33")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that see nothing of the machine's own."""
    home = tmp_path / "home"
    home.mkdir()
    return replace(setting_table.load({}, {"HOME": str(home), "USER": "tester"}))


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """The open store of those settings; its file does not exist yet."""
    with Store(settings.db).session() as opened:
        yield opened


@pytest.fixture(params=VERSIONS)
def opencode_db(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a database that a real OpenCode wrote, one for each version."""
    return copy_fixture(request.param, tmp_path)


@pytest.fixture
def newest_db(tmp_path: Path) -> Path:
    """A copy of the newest version's database."""
    return copy_fixture(VERSIONS[-1], tmp_path)


def copy_fixture(version: str, folder: Path) -> Path:
    """Copies a fixture to where a test may write to it."""
    target = folder / f"opencode-{version}.db"
    shutil.copyfile(FIXTURES / f"opencode-{version}.db", target)
    return target


@pytest.fixture
def slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ripgrep that takes a minute for a transcript called `slow`; and every transcript is searched
    by one of its own, the last touched first."""
    script = tmp_path / "slow-rg"
    script.write_text(
        '#!/bin/sh\nfor word; do case "$word" in */slow.md) exec sleep 60;; esac; done\n'
        f'exec {ripgrep.program()} "$@"\n'
    )
    script.chmod(0o700)
    monkeypatch.setattr("webapp.transcripts.ripgrep.program", lambda: str(script))
    monkeypatch.setattr("webapp.transcripts.grep.FIRST_BATCH", 1)
    monkeypatch.setattr("webapp.transcripts.grep.LAST_BATCH", 1)
