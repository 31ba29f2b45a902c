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
