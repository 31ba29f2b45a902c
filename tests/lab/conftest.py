"""What the tests beside a real OpenCode share: the lab, which plays sessions against a scripted model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

LAB = Path(__file__).parents[3] / "shared" / "opencode-lab"
BINARY = os.environ.get("OPENCODE_BIN", "")
NEEDS_OPENCODE = [
    pytest.mark.opencode,
    pytest.mark.skipif(not BINARY, reason="needs a real OpenCode: set OPENCODE_BIN to its binary"),
]
NEEDS_LAB = [
    *NEEDS_OPENCODE,
    pytest.mark.skipif(not LAB.is_dir(), reason=f"the OpenCode lab is not at {LAB}"),
]


@dataclass(frozen=True)
class Played:
    """An OpenCode that has played a scenario and waits for more: the port of its API, the folder that
    it lives in, its sessions by title, and the log of what its model was sent."""

    port: int
    root: Path
    sessions: Mapping[str, str]
    log: Path

    @property
    def db(self) -> Path:
        """Its database."""
        return self.root / "data" / "opencode" / "opencode.db"

    def requests(self) -> list[dict[str, Any]]:
        """What its model was sent so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def play(folder: Path, scenario: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Played]:
    """Runs the lab below a folder, whose subfolder `lab` may be filled before."""
    root, log = folder / "lab", folder / "requests.jsonl"
    log.touch()
    for name, content in (("scenario", scenario), ("config", config)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    process = subprocess.Popen(
        [sys.executable, str(LAB / "make_sessions.py"), "--opencode", BINARY, "--root", str(root),
         "--scenario", str(folder / "scenario.json"), "--config", str(folder / "config.json"),
         "--log", str(log), "--keep"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        with closing(process.stdout):
            line = process.stdout.readline()
            assert line, "the lab did not start"
            found = json.loads(line)
            yield Played(found["opencode"], root.resolve(), found["sessions"], log)
    finally:
        os.killpg(process.pid, 15)
        process.wait(20)
        # Some of 1.14 and 1.15 outlive a SIGTERM; the group is this test's own.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
