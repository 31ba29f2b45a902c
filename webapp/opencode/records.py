"""What OpenCode keeps, as plain values that do not depend on its version or runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Session:
    """One session. Times are epoch milliseconds. `scope` is its project's worktree, or its own
    folder where the project has none."""

    id: str
    db: Path
    scope: str
    directory: str
    title: str
    version: str
    parent_id: str | None
    created_at: int
    updated_at: int
    archived_at: int | None
    revert: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message. `data` is None when its JSON could not be read; `raw` is the text that
    was stored."""

    id: str
    type: str
    data: Mapping[str, Any] | None
    raw: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its parts in order.

    `role` is `user`, `assistant` or the newer runtime's own word (`model-switched`, …). `finished`
    is false while an assistant may still be writing; `interrupted` says that it never finished
    although the session went on. `fingerprint` is of all that is stored of it; `same` says that the
    reader knew that one already, so that the rest was left out.
    """

    id: str
    role: str
    created_at: int
    data: Mapping[str, Any] | None
    parts: tuple[Part, ...]
    finished: bool = True
    interrupted: bool = False
    raw: str = ""
    fingerprint: str = ""
    same: bool = False
