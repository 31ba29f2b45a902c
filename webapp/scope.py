"""The scope of an entry or a session: the absolute path of a git worktree, or `global`."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from webapp.errors import InvalidInput

GLOBAL = "global"
MAX_SCOPE = 4096

# Control characters, and the lone surrogates that Python makes of a path that is no UTF-8.
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def worktree(folder: Path) -> str:
    """The nearest folder at or above `folder` that holds `.git`, else `folder` itself."""
    folder = folder.expanduser().resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return str(candidate)
    return str(folder)


def parse_scope(text: str) -> str:
    """Checks a scope given by a person or a program. Raises InvalidInput if it is neither
    `global` nor an absolute path."""
    text = text.strip()
    if text == GLOBAL:
        return text
    if not text.startswith("/") or _CONTROL.search(text) or len(text) > MAX_SCOPE:
        raise InvalidInput(
            "A scope is “global” or the absolute path of a project, such as /home/me/shop.", "scope"
        )
    return text.rstrip("/") or "/"


def scope_folder(scope: str) -> str:
    """The folder name for a scope: readable, and different for every scope.

    `/home/a/b-c` and `/home/a-b/c` read alike, so a short hash of the scope is part of the name.
    """
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", scope).strip("-.")[-80:].strip("-.") or "root"
    return f"{readable}-{hashlib.sha256(scope.encode('utf-8', 'replace')).hexdigest()[:8]}"
