"""What `doctor` says of the installation in OpenCode."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest


def told(cli: Any, *args: str) -> dict[str, tuple[bool, str]]:
    """The checks of OpenCode by name."""
    return {
        check["name"].removeprefix("OpenCode "): (check["ok"], check["text"])
        for check in cli("doctor", "--json", *args).data["checks"]
        if check["name"].startswith("OpenCode ")
    }


@pytest.fixture
def config(cli: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The global configuration after an install on a port where nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    monkeypatch.setenv("OPENCODE_MEMORY_PORT", str(port))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    folder: Path = cli.home / ".config" / "opencode"
    folder.mkdir(parents=True)
    path = folder / "opencode.json"
    path.write_text('{"model": "a/b"}')
    assert cli("install", "--yes").code == 0
    return path


def change(path: Path, edit: Any) -> None:
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_what_is_not_installed_is_a_hint(cli: Any) -> None:
    found = told(cli)
    assert found["tools"] == (True, "not installed; connect OpenCode with: opencode-memory install")
    assert "token" not in found and "server" not in found


def test_a_whole_installation_is_told_piece_by_piece(cli: Any, config: Path) -> None:
    found = told(cli)
    assert {name for name, (ok, _) in found.items() if not ok} == set()
    assert str(config) in found["configuration"][1]
    assert found["compaction"][1].startswith("opencode-memory/pointer in ")
    assert found["token"][1].endswith(", 0600")
    assert "/memory-continue" in found["commands"][1]
    assert "Nothing listens on " in found["server"][1]
    assert "model" not in found


def test_a_missing_token_keeps_opencode_from_starting_and_that_is_said(
    cli: Any, config: Path
) -> None:
    token = cli.data_dir / "token"
    token.chmod(0o644)
    assert "chmod 600" in told(cli)["token"][1] and not told(cli)["token"][0]
    token.unlink()
    ok, text = told(cli)["token"]
    assert not ok and "does not start without it" in text
    assert cli("doctor").code == 2


@pytest.mark.parametrize(
    ("edit", "name", "ok", "words"),
    [
        (lambda d: d["mcp"]["memory"].update(command=["/gone/opencode-memory", "mcp"]), "tools", False,
         "is not there"),
        (lambda d: d["mcp"]["memory"].update(enabled=False), "tools", True, "switched off"),
        (lambda d: d["mcp"].update(memory={"type": "remote", "url": "http://x"}), "tools", True,
         "your own"),
        (lambda d: d["agent"]["compaction"].update(model="a/b"), "compaction", True, "your own model"),
        (lambda d: d.pop("agent"), "compaction", True, "OpenCode's own"),
        (lambda d: d.pop("provider"), "compaction", False, "compactions fail"),
        (lambda d: d["provider"]["opencode-memory"]["options"].update(baseURL="http://127.0.0.1:1/v1"),
         "endpoint", False, "asks http://127.0.0.1:1/v1, but"),
        (lambda d: d.pop("model"), "model", True, "No configuration names a “model”"),
        (lambda d: d.update(plugin=["@log0u7/opencode-memory@1.0.0"]), "plugin", True, "two sets of tools"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(
    cli: Any, config: Path, edit: Any, name: str, ok: bool, words: str
) -> None:
    change(config, edit)
    found = told(cli)
    assert found[name][0] is ok and words in found[name][1], found


def test_a_configuration_that_cannot_be_parsed_is_bad_with_its_place(
    cli: Any, config: Path
) -> None:
    config.write_text('{\n  "a": 1 "b": 2}')
    found = told(cli)
    assert not found["configuration"][0] and "line 2, column 10" in found["configuration"][1]


def test_missing_commands_and_a_plugin_file_are_told(cli: Any, config: Path) -> None:
    (config.parent / "command" / "recall.md").unlink()
    (config.parent / "plugin").mkdir()
    (config.parent / "plugin" / "opencode-memory.js").write_text("")
    found = told(cli)
    assert found["commands"][1].startswith("without /recall; ")
    assert "opencode-memory.js" in found["plugin"][1]


def test_another_program_on_the_port_is_bad(cli: Any, config: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", int(os.environ["OPENCODE_MEMORY_PORT"])))
        sock.listen()
        ok, text = told(cli)["server"]
    assert not ok and "does not answer: another program" in text


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 1.3.2", "before 1.17.19"),
        ("echo 1.18.33", "1.18.33"),
        ("echo no", None),
        ("exit 3", None),
    ],
)
def test_an_opencode_too_old_is_told(
    cli: Any,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    words: str | None,
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "opencode"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    found = told(cli).get("version")
    assert (found is None) if words is None else (found is not None and words in found[1])


def test_without_the_program_the_newest_session_tells_the_version(
    cli: Any, config: Path, newest_db: Path
) -> None:
    assert told(cli, "--opencode-db", str(newest_db))["version"] == (True, "1.18.33")


def test_install_says_that_no_model_is_named(cli: Any) -> None:
    assert "“model”" in cli("install", "--yes").err
    assert "“model”" not in cli("install", "--yes", "--no-compaction").err
