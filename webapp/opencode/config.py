"""OpenCode's configuration as the files of this machine make it, in the order of their merging.

Source: `loadInstanceState` in packages/opencode/src/config/config.ts and config/paths.ts of the
public repository. What an organisation's account or a plugin adds is not here. Of each file only
what is asked for is held, so that no credential of a provider stays in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp import jsonc
from webapp.opencode.disk import exists, head, upwards
from webapp.opencode.records import Session
from webapp.opencode.values import bindable
from webapp.settings import Places

MAX_CONFIG = 1_048_576
MAX_ALL = 4_194_304
"""Bytes of one configuration file, and of all that are read for one folder."""

HELD = ("instructions", "provider", "providers", "compaction")
"""The keys that are kept of a configuration."""

_OLDER_KEYS = frozenset({
    "logLevel", "server", "command", "reference", "snapshot", "plugin", "autoshare",
    "disabled_providers", "enabled_providers", "small_model", "mode", "agent", "provider",
    "permission", "tools", "attachment", "layout",
})  # fmt: skip
"""A configuration with one of these is of the older form (`isV1`, 1.18.33), else of the newer."""


@dataclass(frozen=True, slots=True)
class Document:
    """One configuration file or text: what it sets, and where it stands. `is_global` says that it
    is of the global folder, where a list replaces the one before it; `is_older` tells its form."""

    source: str
    data: Mapping[str, Any]
    is_global: bool
    is_older: bool


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration for one folder: its documents, the first to be merged first. `root` is
    where the walk upwards ends; `problems` are sentences."""

    folder: Path
    root: Path
    documents: tuple[Document, ...]
    problems: tuple[str, ...]


def within(data: Any, *keys: str) -> Any:
    """The value below these keys, or None."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def read_config(session: Session, worktree: Path | None, places: Places) -> Config:
    """The configuration that an OpenCode started in a session's folder would read.

    `worktree` is the root where the walk upwards ends; None looks for the nearest `.git`, and
    without one goes up to `/`, as OpenCode does (`fromDirectory` in
    packages/opencode/src/project/project.ts).
    """
    problems: list[str] = []
    folder = Path(os.path.abspath(os.path.join("/", session.directory or session.scope)))
    if not os.path.isdir(folder):
        problems.append(f"The session's folder {folder} is not there, or may not be entered.")
    root = _root(folder, worktree, problems)
    documents = [*_documents(places, folder, root, problems)]
    return Config(folder, root, tuple(documents), tuple(bindable(problem) for problem in problems))


def _root(folder: Path, worktree: Path | None, problems: list[str]) -> Path:
    if worktree is not None:
        worktree = Path(os.path.abspath(worktree))
        if folder.is_relative_to(worktree):
            return worktree
        problems.append(
            f"The session's folder {folder} is not inside {worktree}; the root was looked for anew."
        )
    for candidate in (folder, *folder.parents):
        if exists(candidate / ".git") is True:
            return candidate
    return Path("/")


def _documents(places: Places, folder: Path, root: Path, problems: list[str]) -> Iterator[Document]:
    """The global files, then the later ones: the project's from the root down, those of the
    `.opencode` folders, the nearest first, what the environment holds, and the managed ones."""
    room = _Room()
    for name in ("config.json", "opencode.json", "opencode.jsonc"):
        yield from _file(places.config_dir / name, problems, room, is_global=True)
    later: list[Path] = [places.config_file] if places.config_file is not None else []
    above = list(upwards(folder, root)) if places.project else []
    later += _both(reversed(above))
    dots = [candidate / ".opencode" for candidate in above]
    dots.append(places.home / ".opencode")
    if places.own_config_dir is not None:
        dots.append(places.own_config_dir)
    for path in (*later, *_both(dict.fromkeys(dots))):
        yield from _file(path, problems, room)
    if places.config_content:
        yield from _parsed(places.config_content, "OPENCODE_CONFIG_CONTENT", problems)
    for path in _both([places.managed_dir]):
        yield from _file(path, problems, room)


def _both(folders: Iterable[Path]) -> list[Path]:
    return [f / name for f in folders for name in ("opencode.json", "opencode.jsonc")]


@dataclass(slots=True)
class _Room:
    """How many bytes may still be read."""

    left: int = MAX_ALL


def _file(
    path: Path, problems: list[str], room: _Room, is_global: bool = False
) -> Iterator[Document]:
    there = exists(path)
    if there is False:
        return
    if isinstance(there, OSError):
        problems.append(f"{path} cannot be looked at: {there.strerror}.")
        return
    got = head(str(path), MAX_CONFIG)
    if isinstance(got, str):
        problems.append(f"{path} {got}")
        return
    data, size = got
    if size > len(data):
        problems.append(f"{path} is larger than {MAX_CONFIG:,} bytes and was not read.")
        return
    if size > room.left:
        problems.append(
            f"{path} was not read: with it the configuration has more than {MAX_ALL:,} bytes."
        )
        return
    room.left -= size
    yield from _parsed(data.decode("utf-8-sig", "replace"), str(path), problems, is_global)


def _parsed(
    text: str, source: str, problems: list[str], is_global: bool = False
) -> Iterator[Document]:
    if not text.strip():
        return
    try:
        data = jsonc.loads(text)
    except jsonc.JsoncError:
        problems.append(
            f"{source} cannot be parsed, so what it sets is not known. OpenCode 1.18.33 does not"
            " start with it."
        )
        return
    if not isinstance(data, dict):
        return
    held = {key: data[key] for key in HELD if key in data}
    for key in ("provider", "providers"):
        if key in held:
            held[key] = _limits_only(held[key])
    yield Document(source, held, is_global, not _OLDER_KEYS.isdisjoint(data))


def _limits_only(providers: Any) -> dict[str, Any]:
    """Of the providers the models, and of these what tells their limits: the rest holds keys."""
    found: dict[str, Any] = {}
    for name, provider in providers.items() if isinstance(providers, dict) else ():
        models = within(provider, "models")
        found[name] = {"models": {
            model: {key: held[key] for key in ("id", "limit") if key in held}
            for model, held in (models.items() if isinstance(models, dict) else ())
            if isinstance(held, dict)
        }}  # fmt: skip
    return found
