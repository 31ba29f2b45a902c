"""`/settings/clients`: what each program takes can be parsed, and starts this installation."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from webapp.integration import token
from webapp.integration.clients import snippets
from webapp.settings import Settings


def test_every_snippet_parses_and_names_this_memory(
    settings: Settings, make_site: Callable[[Settings], Any], tmp_path: Path
) -> None:
    odd = tmp_path / 'a b"c'
    origins = {**settings.origins, "data_dir": "--data-dir", "port": "--port"}
    settings = replace(settings, data_dir=odd, db=odd / "memory.db", port=4999, origins=origins)
    secret = token.ensure(settings)
    found = {one.name: one.text for one in snippets(settings)}
    words = [
        shlex.split(found["Claude Code"])[7:],
        [(server := json.loads(found["Claude Code, for one project"])["mcpServers"]["memory"])["command"],
         *server["args"]],
        [(server := tomllib.loads(found["Codex"])["mcp_servers"]["memory"])["command"], *server["args"]],
        [(server := json.loads(found["Cursor"])["mcpServers"]["memory"])["command"], *server["args"]][:-2],
    ]  # fmt: skip
    assert len({tuple(each) for each in words}) == 1
    assert words[0][1:] == ["mcp", "--data-dir", str(odd), "--port", "4999"]
    told = subprocess.run([words[0][0], "mcp", "--help"], capture_output=True, text=True)
    assert told.returncode == 0 and "Serves the memory's tools" in told.stdout
    assert "http://127.0.0.1:4999/mcp?scope=" in found["Over HTTP"]
    page = make_site(settings).get("/settings/clients")
    page.assert_inert()
    assert page.status == 200 and secret not in page.text
    assert [node.text for node in page.doc.all("h2")][1:] != []
    links = [node.attrs["href"] for node in make_site(settings).get("/settings").doc.all("a")]
    assert "/settings/clients" in links
