"""What the tests of the command line share: the program in this process, and as a process of its own.

`cli(...)` calls `main` here, where many cases are needed; `program(...)` runs `python -m webapp`.
Both see a home of their own and stand in a git worktree, `cli.project`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from webapp.cli import main

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """How a run of the program ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """The one line on stderr, without the name of the program."""
        assert self.err.startswith("opencode-memory: "), self.err
        assert self.err.endswith("\n") and self.err.count("\n") == 1, self.err
        return self.err.removeprefix("opencode-memory: ").rstrip("\n")


def environment(home: Path) -> dict[str, str]:
    """This environment without a setting of OpenCode's or ours, and with a home of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
    return {**env, "HOME": str(home), "USER": "tester", "PYTHONPATH": str(ROOT)}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of the person who types."""
    folder = tmp_path / "home"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git worktree, with a folder `src/deep` in it."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "src" / "deep").mkdir(parents=True)
    return folder.resolve()


class Cli:
    """`main` in this process."""

    def __init__(self, home: Path, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.project = project
        self.data_dir = home / ".local" / "share" / "opencode-memory"
        self.db = self.data_dir / "memory.db"
        self._capsys = capsys

    def __call__(self, *args: str) -> Outcome:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(list(args))
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        assert "Traceback" not in out + err
        return Outcome(ended.value.code, out, err)

    def done(self, *args: str) -> Outcome:
        """A run that must end well."""
        outcome = self(*args)
        assert outcome.code == 0, (args, outcome)
        assert outcome.err == "", (args, outcome)
        return outcome

    def save(self, title: str, body: str = "A body.", *more: str, kind: str = "fact") -> str:
        """Saves an entry and returns its id."""
        made = self.done("save", "--kind", kind, "--title", title, "--body", body, "--json", *more)
        entry_id: str = made.data["id"]
        return entry_id


@pytest.fixture
def cli(
    home: Path,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    """`cli("list", "--json")` runs the command and gives its Outcome."""
    for name in list(os.environ):
        if name.startswith(("OPENCODE", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "tester")
    monkeypatch.chdir(project)
    return Cli(home, project, capsys)


class Program:
    """`python -m webapp` as a process of its own."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home = home
        self.project = project

    def command(self, *args: str | bytes) -> list[str | bytes]:
        return [sys.executable, "-m", "webapp", *args]

    def __call__(
        self,
        *args: str | bytes,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Outcome:
        done = subprocess.run(
            self.command(*args), cwd=cwd or self.project,
            env={**environment(self.home), **(env or {})}, input=stdin, capture_output=True,
            timeout=60, check=False,
        )  # fmt: skip
        out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        assert "Traceback" not in out + err, err
        return Outcome(done.returncode, out, err)


@pytest.fixture
def program(home: Path, project: Path) -> Program:
    """`program("list")` runs the real program and gives its Outcome."""
    return Program(home, project)
