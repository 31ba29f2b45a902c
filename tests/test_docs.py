"""README tells of every command, option, setting and route."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from webapp import create_app
from webapp.cli import cli
from webapp.mcp.tools import TOOLS
from webapp.settings import TABLE, Settings

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
CONTEXT = click.Context(cli)
SHARED = {"--db", "--data-dir", "--opencode-db", "--port", "--scope", "--json", "--help"}


@pytest.mark.parametrize("name", cli.list_commands(CONTEXT))
def test_every_command_and_option_is_in_the_readme(name: str) -> None:
    row = next((line for line in README.split("\n") if line.startswith(f"| `{name}")), None)
    assert row is not None, f"README has no row for the command {name}"
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    options = {flag for p in command.params for flag in p.opts if flag.startswith("--")}
    assert sorted(flag for flag in options - SHARED if flag not in row) == []


@pytest.mark.parametrize("flag", sorted(SHARED))
def test_the_shared_options_are_in_the_readme(flag: str) -> None:
    assert f"`{flag}`" in README or f"{flag}`" in README


def test_every_setting_is_in_the_readme_with_its_default() -> None:
    for row in TABLE:
        default = str(row.default).lower() if isinstance(row.default, bool) else str(row.default)
        pattern = rf"\| `{row.name}` \| " + (".*" if row.default is None else rf"`{default}`")
        assert re.search(pattern, README), f"README lacks the setting {row.name} or its default"


def test_every_route_is_in_the_readme(settings: Settings) -> None:
    app = create_app(settings)
    missing = []
    for rule in app.url_map.iter_rules():
        if rule.endpoint == "static":
            continue
        path = re.sub(r"<(?:\w+:)?(\w+)>", r"<\1>", rule.rule)
        short = path.replace("/transcripts/<session_id>/", "…/")
        if f"`{path}`" not in README and f"`{short}?" not in README:
            missing.append(path)
    assert missing == []


def test_no_command_of_the_readme_is_unknown() -> None:
    named = set(re.findall(r"^\| `([a-z]+)[ `]", README.split("## On the command line")[1]
                           .split("## For agents")[0], re.MULTILINE))  # fmt: skip
    assert named == set(cli.list_commands(CONTEXT))


def test_every_tool_is_in_the_readme() -> None:
    told = README.split("## For agents")[1].split("## Settings")[0]
    rows = [line for line in told.split("\n") if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split(" | ")[0])]
    assert sorted(named) == sorted(tool.name for tool in TOOLS)
