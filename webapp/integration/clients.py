"""What other programs write into their configuration to start the same server of tools."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from webapp.integration import token
from webapp.integration.program import address, command
from webapp.settings import Settings

PROJECT = "/path/to/project"


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text for one program: the file or place where it goes, and what there is to know."""

    name: str
    where: str
    text: str
    note: str


def snippets(settings: Settings) -> list[Snippet]:
    """The texts for OpenCode and for other programs, with the paths of this installation filled in."""
    words = command(settings, "mcp")
    started = {"command": words[0], "args": words[1:]}
    here = "It is started in the folder of the project, whose git worktree is the scope."
    return [
        Snippet(
            "OpenCode", "in a terminal", shlex.join([words[0], *_without_mcp(words), "install"]),
            "Brings the tools, compactions without a model, and the commands.",
        ),
        Snippet(
            "Claude Code", "in a terminal", shlex.join(
                ["claude", "mcp", "add", "--scope", "user", "memory", "--", *words]
            ), here,
        ),
        Snippet(
            "Claude Code, for one project", ".mcp.json in the project",
            _json({"mcpServers": {"memory": started}}), here,
        ),
        Snippet(
            "Codex", "~/.codex/config.toml",
            f"[mcp_servers.memory]\ncommand = {json.dumps(words[0])}\nargs = {json.dumps(words[1:])}", here,
        ),
        Snippet(
            "Cursor", ".cursor/mcp.json in the project",
            _json({"mcpServers": {"memory": {
                "command": words[0], "args": [*words[1:], "--scope", PROJECT]}}}),
            f"Cursor may start it elsewhere, so name the project's folder in place of {PROJECT}.",
        ),
        Snippet(
            "Over HTTP", "any program that speaks Streamable HTTP",
            f"{address(settings)}mcp?scope={PROJECT}\nAuthorization: Bearer <what stands in"
            f" {token.path(settings)}>",
            "Only while the server runs. Without scope it is global. The token is made by"
            " opencode-memory install.",
        ),
    ]  # fmt: skip


def _without_mcp(words: list[str]) -> list[str]:
    return [word for word in words[1:] if word != "mcp"]


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
