"""`/settings/clients`: each snippet is what its program reads, with the paths of this installation."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webapp.integration import clients, program, token
from webapp.settings import Settings


@pytest.fixture
def odd(settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a data folder whose name a shell, JSON and TOML each write in their own way."""
    folder = tmp_path / 'o\'neil "my" $HOME `data` \\ é 😀 \x7f'
    return replace(
        settings, data_dir=folder, db=folder / "memory.db",
        origins={**settings.origins, "data_dir": "--data-dir"},
    )  # fmt: skip


def texts(found: tuple[clients.Client, ...], name: str) -> list[str]:
    (client,) = (one for one in found if one.name == name)
    return [snippet.text for snippet in client.snippets]


def words_of(server: Mapping[str, Any]) -> list[str]:
    return [server["command"], *server["args"]]


def test_each_program_reads_the_words_that_start_this_installation(odd: Settings) -> None:
    words = program.command(odd, "mcp")
    assert str(odd.data_dir) in words
    found = clients.by_command(odd)
    opencode = json.loads(texts(found, "OpenCode")[0])["mcp"]["memory"]
    assert opencode == {"type": "local", "command": words}
    shell, file = texts(found, "Claude Code")
    assert shlex.split(shell) == ["claude", "mcp", "add", "--scope", "user", "memory", "--", *words]
    assert words_of(json.loads(file)["mcpServers"]["memory"]) == words
    file, shell = texts(found, "Codex")
    assert words_of(tomllib.loads(file)["mcp_servers"]["memory"]) == words
    assert shlex.split(shell) == ["codex", "mcp", "add", "memory", "--", *words]
    scoped = [*words, "--scope", "${workspaceFolder}"]
    assert words_of(json.loads(texts(found, "Cursor")[0])["mcpServers"]["memory"]) == scoped
    assert words_of(json.loads(texts(found, "VS Code")[0])["servers"]["memory"]) == scoped
    assert words_of(json.loads(texts(found, "Gemini CLI")[0])["mcpServers"]["memory"]) == words


def test_over_http_the_token_is_named_and_never_shown(odd: Settings) -> None:
    secret = token.ensure(odd)
    found = clients.by_http(odd)
    url = "http://127.0.0.1:4748/mcp?scope=/path/of/the/project"
    opencode = json.loads(texts(found, "OpenCode")[0])["mcp"]["memory"]
    assert opencode["url"] == url and opencode["oauth"] is False
    assert opencode["headers"] == {"Authorization": f"Bearer {{file:{token.path(odd)}}}"}
    (shell,) = texts(found, "Claude Code")
    assert shlex.quote(url) in shell
    codex, export = texts(found, "Codex")
    server = tomllib.loads(codex)["mcp_servers"]["memory"]
    assert server == {"url": url, "bearer_token_env_var": "MEMORY_TOKEN"}
    file, _ = texts(found, "Cursor")
    server = json.loads(file)["mcpServers"]["memory"]
    assert server == {"url": url, "headers": {"Authorization": "Bearer ${env:MEMORY_TOKEN}"}}
    every = [snippet.text for client in found for snippet in client.snippets]
    assert not any(secret in text for text in every)
    for text in (shell, export):
        assert f"$(cat {shlex.quote(str(token.path(odd)))})" in text


def test_a_shell_takes_the_token_from_its_file(odd: Settings) -> None:
    secret = token.ensure(odd)
    _, export = texts(clients.by_http(odd), "Codex")
    made = subprocess.run(
        ["sh", "-c", f'{export} printf %s "$MEMORY_TOKEN"'], capture_output=True, check=True, text=True
    )  # fmt: skip
    assert made.stdout == secret
    (shell,) = texts(clients.by_http(odd), "Claude Code")
    made = subprocess.run(
        ["sh", "-c", f"claude() {{ printf '%s\\n' \"$@\"; }}; {shell}"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert made.stdout.splitlines()[-3].startswith("http://127.0.0.1:4748/mcp?")
    assert made.stdout.splitlines()[-1] == f"Authorization: Bearer {secret}"


def test_the_page_shows_every_snippet_as_text(
    odd: Settings, make_site: Callable[[Settings], Any]
) -> None:
    site = make_site(odd)
    assert site.get("/settings").doc.one("a", href="/settings/clients").text == "Clients"
    page = site.get("/settings/clients")
    page.assert_inert()
    assert page.status == 200 and not odd.data_dir.exists()
    found = (*clients.by_command(odd), *clients.by_http(odd))
    shown = [node.raw for node in page.doc.all("code") if node.parent.tag == "pre"]
    assert shown == [snippet.text for client in found for snippet in client.snippets]
    for button in page.doc.all("button"):
        if "data-copies" in button.attrs:
            assert page.doc.one("pre", id=button.attrs["data-copies"])
    assert "which is not there yet" in page.text
    secret = token.ensure(odd)
    page = site.get("/settings/clients")
    assert "which is not there yet" not in page.text and secret not in page.text
