"""Slash commands: what a person types or pastes reaches our program as it is, and runs nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from webapp.errors import InvalidInput
from webapp.integration.commands import ending, texts

HOSTILE = [
    "plain words", "it's \"quoted\" \\ $HOME ; touch {}", "\"'; touch {}; '\"", "x' ; touch {} ; '",
    "$(touch {})", "a\ntouch {}\n", "a `touch {}` b", "$'\ntouch {}", "$`\ntouch {}", "$& && touch {}",
    "\nopencode-memory-\ntouch {}",
]  # fmt: skip


def as_opencode(template: str, typed: str, shell: str) -> str:
    """What OpenCode's `SessionPrompt.command` makes of a command file (1.3.2 to 1.18.33)."""
    before, _, after = template.partition("$ARGUMENTS")
    # JavaScript's replaceAll: these mean what stands before, behind and in the match.
    filled = re.sub(
        r"\$[&`'$]",
        lambda m: {"$&": "$ARGUMENTS", "$`": before, "$'": after, "$$": "$"}[m[0]], typed,
    )  # fmt: skip
    whole = template.replace("$ARGUMENTS", filled)
    return re.sub(
        r"!`([^`]+)`",
        lambda m: (
            subprocess.run(
                [shell, "-c", m[1]], capture_output=True, text=True, timeout=20, check=False
            ).stdout
        ),
        whole,
    )


@pytest.mark.parametrize("typed", HOSTILE)
@pytest.mark.parametrize("name", ["memory-continue", "memory-cleanup", "recall", "remember"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_nothing_that_is_typed_is_run(tmp_path: Path, name: str, typed: str, shell: str) -> None:
    found = shutil.which(shell)
    if not found:
        pytest.skip(f"there is no {shell}")
    echo = tmp_path / "a program"
    echo.write_text(f"#!{sys.executable}\nimport sys\nprint('GOT', sys.stdin.read())\n")
    echo.chmod(0o700)
    trap = tmp_path / "ran"
    template = texts([str(echo)], ending(tmp_path))[name]
    told = as_opencode(template, typed.format(trap), found)
    assert not trap.exists()
    if "`" not in typed and "$" not in typed and name != "remember":
        assert f"GOT {typed.format(trap)}" in told


def test_the_end_of_the_input_stays_that_of_the_commands_that_are_there(tmp_path: Path) -> None:
    first = ending(tmp_path)
    assert ending(tmp_path) != first
    (tmp_path / "memory-continue.md").write_text(texts(["x"], first)["memory-continue"])
    assert ending(tmp_path) == first


def test_an_output_puts_no_file_into_the_prompt(tmp_path: Path) -> None:
    echo = tmp_path / "program"
    echo.write_text("#!/bin/sh\necho see @AGENTS.md\n")
    echo.chmod(0o700)
    told = as_opencode(texts([str(echo)], ending(tmp_path))["memory"], "", "/bin/sh")
    assert "see ＠AGENTS.md" in told and "@" not in told


@pytest.mark.parametrize("word", ["/opt/$1/x", "/opt/`x`/y", "/opt/a\nb"])
def test_a_program_that_opencode_could_not_start_is_refused(word: str) -> None:
    with pytest.raises(InvalidInput, match="--no-commands"):
        texts([word], "x")
