"""The words that start us again are those of this installation and this memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from webapp.integration import program
from webapp.settings import load


def test_what_a_flag_or_the_environment_said_is_carried(tmp_path: Path) -> None:
    settings = load(
        {"data_dir": tmp_path / "a b"},
        {"HOME": str(tmp_path), "OPENCODE_MEMORY_PORT": "5001", "OPENCODE_MEMORY_TRASH_DAYS": "3"},
    )
    words = program.command(settings, "stats")
    assert words[-4:] == ["--data-dir", str(tmp_path / "a b"), "--port", "5001"]
    assert program.command(load({}, {"HOME": str(tmp_path)}), "mcp")[1:][-1:] == ["mcp"]


def test_what_a_file_says_is_not(tmp_path: Path) -> None:
    config = tmp_path / ".config" / "opencode-memory" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("port = 5002\n")
    assert program.flags(load({}, {"HOME": str(tmp_path)})) == []


def test_the_words_start_it(tmp_path: Path) -> None:
    settings = load({"data_dir": tmp_path / "data"}, {"HOME": str(tmp_path)})
    done = subprocess.run(
        program.command(settings, "stats", "--json"), capture_output=True, text=True, cwd="/",
        env={"HOME": str(tmp_path)}, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)
