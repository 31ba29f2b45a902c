"""How another program starts us."""

from __future__ import annotations

import sys
from pathlib import Path

from webapp.settings import Settings

NAME = "opencode-memory"
CARRIED = ("data_dir", "db", "opencode_db", "port")
"""The settings that say which memory it is, so that a start from elsewhere opens the same."""

LASTING = ("default", ".toml", ".json", ".jsonc")


def command(settings: Settings, *arguments: str) -> list[str]:
    """The words that start this very installation on this very memory: what a flag or the environment
    said is carried as flags, what a file says is found again."""
    script = Path(sys.executable).parent / NAME
    words = [str(script)] if script.is_file() else [sys.executable, "-m", "webapp"]
    return [*words, *arguments, *flags(settings)]


def flags(settings: Settings) -> list[str]:
    """The flags for the settings of CARRIED that would else be lost."""
    found: list[str] = []
    for name in CARRIED:
        if not settings.origins.get(name, "default").endswith(LASTING):
            found += ["--" + name.replace("_", "-"), str(getattr(settings, name))]
    return found


def address(settings: Settings) -> str:
    """Where our pages are, with a slash at the end."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{settings.port}/"
