"""The token's file: private, one for all processes, and never half of it."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from webapp.errors import Unreadable
from webapp.integration import token
from webapp.settings import Settings, load


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"data_dir": tmp_path / "data"}, {"HOME": str(tmp_path)})


def test_looking_makes_nothing(settings: Settings) -> None:
    assert token.read(settings) is None
    assert not token.matches(settings, "")
    assert not settings.data_dir.exists()


def test_it_is_private_whatever_the_umask(settings: Settings) -> None:
    before = os.umask(0)
    try:
        made = token.ensure(settings)
    finally:
        os.umask(before)
    assert stat.S_IMODE(token.path(settings).stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    assert token.ensure(settings) == made
    assert token.matches(settings, made)
    assert not token.matches(settings, made + "x")
    assert not token.matches(settings, "é" + made)


def test_many_at_once_get_the_same(settings: Settings) -> None:
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(token.ensure(settings))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 16
    assert set(made) == {token.read(settings)}
    assert [file.name for file in settings.data_dir.iterdir()] == ["token"]


@pytest.mark.parametrize(
    "content", [b"", b"short", b"x" * 5000, b"two words of a token, long enough"]
)
def test_a_file_that_holds_none_is_said(settings: Settings, content: bytes) -> None:
    token.ensure(settings)
    token.path(settings).write_bytes(content)
    with pytest.raises(Unreadable, match="holds no token"):
        token.ensure(settings)
