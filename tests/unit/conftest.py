"""What the tests of layers 0 to 2 share: another user of the machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


def as_stranger(work: Callable[[], str]) -> str:
    """What `work` answers in a process of a user who owns none of these files."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(name="as_stranger")
def as_stranger_fixture() -> Callable[[Callable[[], str]], str]:
    """`as_stranger`, for tests, which cannot import this file."""
    return as_stranger
