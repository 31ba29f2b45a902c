"""What of our installation in OpenCode is there, what is missing, and what does not fit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp.errors import MemoryAppError
from webapp.integration import serving, token
from webapp.integration.commands import texts
from webapp.integration.installation import NO_MODEL, commands_dir, config_files, jsonc_of, load
from webapp.integration.pieces import COMPACTION, ENDPOINT, EVERY, SERVER, known
from webapp.integration.program import address
from webapp.opencode import last_version
from webapp.settings import PLUGIN, Settings

TELLS = (1, 17, 19)
"""OpenCode 1.17.9 and older pass what a server of tools says of itself on to no model."""

PATIENCE_S = 10.0
NAME = "OpenCode "


@dataclass(frozen=True, slots=True)
class Finding:
    """One piece that was looked at; `ok` is false where something is broken, not where it is left
    out."""

    name: str
    ok: bool
    text: str


def look(settings: Settings, project: Path | None, version: str) -> list[Finding]:
    """Every piece in the global configuration and in that of a project, and whether the server that runs
    is of this `version`. Nothing is changed, and nothing
    is started but `opencode --version`."""
    found: list[Finding] = []
    configs: dict[Path, Mapping[str, Any]] = {}
    for where in [None, *([project] if project else [])]:
        merged = sorted(
            config_files(settings, where)[1], key=lambda p: (p.parent.name[0] == ".", p.name)
        )
        for path in merged:
            try:
                data = load(path)
                if data is not None:
                    text = data.decode("utf-8-sig", "replace")
                    configs[path] = jsonc_of(path, text).value
            except MemoryAppError as error:
                found.append(Finding(f"{NAME}configuration", False, error.message))
    if configs:
        found.append(
            Finding(f"{NAME}configuration", True, ", ".join(map(str, configs)))
        )  # fmt: skip
    held: _Held = {
        piece: (path, _at(data, piece))
        for path, data in configs.items() for piece in EVERY if _at(data, piece) is not None
    }  # fmt: skip
    found += _server(held)
    found += _compaction(settings, held, configs)
    ours = [path for path in held if known(path).is_ours(held[path][1])]
    if ours:
        found += _commands(settings, project)
        found += _answer(settings, version)
    found += _version(settings)
    found += _plugin(settings, project, configs)
    return found


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


_Held = Mapping[tuple[str, ...], tuple[Path, Any]]


def _server(held: _Held) -> Iterator[Finding]:
    name = f"{NAME}tools"
    if SERVER not in held:
        yield Finding(name, True, "not installed; connect OpenCode with: opencode-memory install")
        return
    path, value = held[SERVER]
    if not known(SERVER).is_ours(value):
        yield Finding(name, True, f"the server memory in {path} is your own, not ours")
        return
    words = [str(word) for word in value["command"]]
    if not shutil.which(words[0]):
        yield Finding(name, False, f"{words[0]}, which {path} starts, is not there or cannot be started."
                      " Set it right with: opencode-memory install")  # fmt: skip
    elif value.get("enabled") is False:
        yield Finding(name, True, f"switched off in {path} (“enabled” is false)")
    else:
        yield Finding(name, True, f"{shlex.join(words)} in {path}")


def _compaction(
    settings: Settings, held: _Held, configs: Mapping[Path, Mapping[str, Any]]
) -> Iterator[Finding]:
    name = f"{NAME}compaction"
    path, model = held.get(COMPACTION, (None, None))
    where, endpoint = held.get(ENDPOINT, (None, None))
    if endpoint is not None:
        yield from _endpoint(settings, f"{NAME}endpoint", where, endpoint)
        if not any(isinstance(data.get("model"), str) for data in configs.values()):
            yield Finding(f"{NAME}model", True, NO_MODEL)
    if model is None:
        yield Finding(name, True, "OpenCode's own: its model is not set")
    elif not known(COMPACTION).is_ours(model):
        yield Finding(name, True, f"your own model {str(model)[:80]}, set in {path}")
    elif endpoint is None:
        yield Finding(name, False, f"{path} names our model, but no configuration has our provider, so"
                      " compactions fail. Set it right with: opencode-memory install")  # fmt: skip
    else:
        yield Finding(name, True, f"{model} in {path}")


def _endpoint(settings: Settings, name: str, path: Path | None, value: Any) -> Iterator[Finding]:
    if not known(ENDPOINT).is_ours(value):
        yield Finding(name, True, f"the provider of our name in {path} is your own")
        return
    mend = "Set it right with: opencode-memory install"
    wanted, url = f"{address(settings)}v1", str(_at(value, ("options", "baseURL")))
    is_same = url.rstrip("/") == wanted
    yield Finding(name, is_same, f"{url} in {path}" if is_same else
                  f"{path} asks {url}, but by the settings the server is at {wanted}. {mend}. Or name the"
                  " port that it asks in config.toml, such as: port = 5000")  # fmt: skip
    secret = Path(str(_at(value, ("options", "apiKey")))[len("{file:") : -1])
    try:
        mode = stat.S_IMODE(os.stat(secret).st_mode)
    except OSError as error:
        yield Finding(f"{NAME}token", False, f"{secret}: {error.strerror}. OpenCode does not start"
                      f" without it. {mend}")  # fmt: skip
        return
    if secret != token.path(settings):
        yield Finding(f"{NAME}token", False, f"{path} shows {secret}, but the server asks for"
                      f" {token.path(settings)}. {mend}")  # fmt: skip
        return
    try:
        there = token.read(settings) is not None
    except MemoryAppError as error:
        yield Finding(f"{NAME}token", False, error.message)
        return
    shut = not mode & 0o077
    text = f"{secret}, {mode:04o}"
    if not shut:
        text += ": others may read it; keep them out with: chmod 600 " + shlex.quote(str(secret))
    yield Finding(f"{NAME}token", there and shut, text)


def _commands(settings: Settings, project: Path | None) -> Iterator[Finding]:
    names = sorted(texts(["x"], "x"))
    folders = [
        commands_dir(settings, None),
        *([commands_dir(settings, project)] if project else []),
    ]
    missing = [n for n in names if not any((f / f"{n}.md").is_file() for f in folders)]
    told = ", ".join(f"/{name}" for name in missing)
    yield Finding(f"{NAME}commands", True, f"without {told}; add them with: opencode-memory install"
                  if missing else ", ".join(f"/{name}" for name in names))  # fmt: skip


def _answer(settings: Settings, version: str) -> Iterator[Finding]:
    try:
        seen = serving.look(settings)
    except MemoryAppError as error:
        yield Finding(f"{NAME}server", False, error.message)
        return
    old = serving.outdated(seen.note, version) if seen.note is not None else ""
    text = f"{seen.text} {old}".rstrip()
    if seen.state is serving.State.SILENT:
        text += " The tools start it; so does: opencode-memory serve"
    yield Finding(f"{NAME}server", seen.state is not serving.State.FOREIGN and not old, text)


def _version(settings: Settings) -> Iterator[Finding]:
    told = _of_program() or last_version(settings.opencode_databases())
    numbers = re.match(r"\s*v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})", told)
    if numbers is None:
        return
    found = tuple(map(int, numbers.groups()))
    text = ".".join(map(str, found))
    if found < TELLS:
        text += ": before 1.17.19 a new session is not told the titles of what is known;"
        text += " for that: opencode-memory install --inject"
    yield Finding(f"{NAME}version", True, text)


def _of_program() -> str:
    program = shutil.which("opencode")
    if program is None:
        return ""
    try:
        return subprocess.run(
            [program, "--version"], capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=PATIENCE_S, check=False,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""


def _plugin(
    settings: Settings, project: Path | None, configs: Mapping[Path, Mapping[str, Any]]
) -> Iterator[Finding]:
    places = []
    for path, data in configs.items():
        listed = data.get("plugin")
        for entry in listed if isinstance(listed, list) else ():
            name = entry[0] if isinstance(entry, list) and entry else entry
            if isinstance(name, str) and f"{name}@".startswith(PLUGIN + "@"):
                places.append(str(path))
    parents = [settings.places.config_dir, *([project / ".opencode"] if project else [])]
    for folder in (parent / name for parent in parents for name in ("plugin", "plugins")):
        try:
            places += [str(f) for f in folder.iterdir() if f.name.startswith("opencode-memory")]
        except OSError:
            continue
    if places:
        yield Finding(f"{NAME}plugin", True, f"{PLUGIN} is there too ({', '.join(places)}), so an agent has"
                      " two sets of tools for the same memory. One is enough")  # fmt: skip
