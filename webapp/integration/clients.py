"""What to write into the configuration of each program so that it uses the memory's tools.

The forms are those of the programs' own documentation: opencode.ai/docs/mcp-servers,
code.claude.com/docs/en/mcp, developers.openai.com/codex/mcp, cursor.com/docs/mcp,
code.visualstudio.com/docs/copilot/reference/mcp-configuration, geminicli.com/docs/tools/mcp-server.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.integration import program, token
from webapp.settings import Settings

NAME = "memory"
VARIABLE = "MEMORY_TOKEN"
"""What holds the token for programs that take it from their environment. Not with our prefix, under
which every name is a setting."""

HERE = "It starts the server in the folder of the project, whose git worktree is the scope."
NOT_HERE = (
    "It may start the server in another folder, so --scope names the project. Open the root of the git"
    " worktree there, or write its path in place of ${workspaceFolder}."
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of configuration: where it belongs (a file, or a shell), its text, and what to know."""

    where: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Client:
    """A program, and its snippets: any one of them is enough."""

    name: str
    snippets: tuple[Snippet, ...]


def by_command(settings: Settings) -> tuple[Client, ...]:
    """The programs that start our server themselves."""
    words = program.command(settings, "mcp")
    started = {"command": words[0], "args": words[1:]}
    typed = {"type": "stdio"}
    scoped = {"command": words[0], "args": [*words[1:], "--scope", "${workspaceFolder}"]}
    shell = shlex.join(words)
    codex = f"[mcp_servers.{NAME}]\ncommand = {_toml(words[0])}\nargs = {_toml(words[1:])}\n"
    return (
        Client("OpenCode", (
            Snippet("~/.config/opencode/opencode.json, or opencode.json in a project",
                    _json({"mcp": {NAME: {"type": "local", "command": words}}}), HERE),
        )),
        Client("Claude Code", (
            Snippet("A shell, once for all projects",
                    f"claude mcp add --scope user {NAME} -- {shell}\n", HERE),
            Snippet(".mcp.json in a project", _json({"mcpServers": {NAME: typed | started}}),
                    "Others who check the project out need the same path."),
        )),
        Client("Codex", (
            Snippet("~/.codex/config.toml", codex,
                    "It starts the server in the folder in which Codex was started. Where that is not the"
                    ' project, add "--scope" and the path of the project to args.'),
            Snippet("A shell, for the same", f"codex mcp add {NAME} -- {shell}\n"),
        )),
        Client("Cursor", (
            Snippet(".cursor/mcp.json in a project", _json({"mcpServers": {NAME: scoped}}),
                    f"{NOT_HERE} In ~/.cursor/mcp.json, for all projects, leave --scope and its value out"
                    " and let the agent name the scope."),
        )),
        Client("VS Code", (
            Snippet(".vscode/mcp.json in a project", _json({"servers": {NAME: typed | scoped}}),
                    NOT_HERE),
        )),
        Client("Gemini CLI", (
            Snippet("~/.gemini/settings.json, or .gemini/settings.json in a project",
                    _json({"mcpServers": {NAME: started}}),
                    "It starts the server in the folder in which Gemini was started."),
        )),
    )  # fmt: skip


def by_http(settings: Settings) -> tuple[Client, ...]:
    """The programs that ask the running server, and how each gets the token, which is never in a
    snippet."""
    file = token.path(settings)
    url = f"{program.address(settings)}mcp?scope=/path/of/the/project"
    read = f"$(cat {shlex.quote(str(file))})"
    export = f'export {VARIABLE}="{read}"\n'
    variable = f"Bearer ${{env:{VARIABLE}}}"
    codex = f"[mcp_servers.{NAME}]\nurl = {_toml(url)}\nbearer_token_env_var = {_toml(VARIABLE)}\n"
    from_shell = Snippet("A shell, before the program is started from it", export)
    return (
        Client("OpenCode", (
            Snippet("opencode.json in a project", _json({"mcp": {NAME: {
                "type": "remote", "url": url, "oauth": False,
                "headers": {"Authorization": f"Bearer {{file:{file}}}"}}}}),
                "OpenCode reads the token from its file."),
        )),
        Client("Claude Code", (
            Snippet("A shell, in the project", f"claude mcp add --transport http {NAME} {shlex.quote(url)}"
                    f' --header "Authorization: Bearer {read}"\n',
                    "This writes the token into ~/.claude.json."),
        )),
        Client("Codex", (Snippet(".codex/config.toml in a project", codex), from_shell)),
        Client("Cursor", (
            Snippet(".cursor/mcp.json in a project",
                    _json({"mcpServers": {NAME: {"url": url, "headers": {"Authorization": variable}}}})),
            from_shell,
        )),
    )  # fmt: skip


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _toml(value: str | Sequence[str]) -> str:
    """A text, or a list of texts, in TOML, whose basic strings are those of JSON but for U+007F."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
