"""What stands in OpenCode's configuration for us: each piece, how it is known for ours, and what a person
does whose own piece is in its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from webapp.integration import token
from webapp.integration.inject import inject_url
from webapp.integration.program import NAME, address, command
from webapp.settings import Settings

PROVIDER = "opencode-memory"
"""Begins with “opencode”, since OpenCode 1.3.2 names the session only to such a provider."""

MODEL = "pointer"
CONTEXT = 1_000_000
OUTPUT = 8_192


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for besides the tools."""

    compaction: bool = True
    inject: bool = False
    commands: bool = True


@dataclass(frozen=True, slots=True)
class Piece:
    """One value at a path of keys, or with `is_item` one of the array there. `is_ours` tells whether a
    value that stands in its place is from us, of this or an older version; `instead` says what to do when
    it is not."""

    name: str
    path: tuple[str, ...]
    value: Any
    is_ours: Callable[[Any], bool]
    instead: str
    is_item: bool = False


SERVER = ("mcp", "memory")
ENDPOINT = ("provider", PROVIDER)
COMPACTION = ("agent", "compaction", "model")
INSTRUCTIONS = ("instructions",)


def pieces(settings: Settings, wanted: Wanted, scope: str | None) -> list[Piece]:
    """The pieces of a configuration for one project, or with None for all. Makes the token where a piece
    needs one."""
    found = [known(SERVER, {"type": "local", "command": command(settings, "mcp")})]
    if wanted.compaction:
        found += [
            known(ENDPOINT, {
                "npm": "@ai-sdk/openai-compatible",
                "name": "OpenCode memory",
                "options": {
                    "baseURL": address(settings) + "v1",
                    "apiKey": f"{{file:{token.path(settings)}}}",
                },
                "models": {MODEL: {
                    "name": "Pointer to the transcript",
                    "limit": {"context": CONTEXT, "output": OUTPUT},
                }},
            }),
            known(COMPACTION, f"{PROVIDER}/{MODEL}"),
        ]  # fmt: skip
    if wanted.inject:
        found.append(known(INSTRUCTIONS, inject_url(settings, scope)))
    return found


def known(path: tuple[str, ...], value: Any = None) -> Piece:
    """The piece that stands at a path, with a value."""
    return {
        SERVER: Piece(
            "the tools", SERVER, value, _is_our_server,
            "Give your own server another name there, and run this again.",
        ),
        ENDPOINT: Piece(
            "the endpoint of the compaction", ENDPOINT, value, _is_our_endpoint,
            "Rename your provider there, or leave the compaction to OpenCode with --no-compaction.",
        ),
        COMPACTION: Piece(
            "the model of the compaction", COMPACTION, value, _is_our_model,
            "Remove that line to have compactions without a model call, or keep it with --no-compaction.",
        ),
        INSTRUCTIONS: Piece(
            "the inventory on every turn", INSTRUCTIONS, value, _is_our_address, "", is_item=True
        ),
    }[path]  # fmt: skip


EVERY = (SERVER, ENDPOINT, COMPACTION, INSTRUCTIONS)


def _is_our_server(value: Any) -> bool:
    words = value.get("command") if isinstance(value, Mapping) else None
    if not isinstance(words, Sequence) or isinstance(words, str):
        return False
    texts = [word for word in words if isinstance(word, str)]
    started = PurePath(texts[0]).name == NAME if texts else False
    return "mcp" in texts and (started or texts[1:3] == ["-m", "webapp"])


def _is_our_endpoint(value: Any) -> bool:
    options = value.get("options") if isinstance(value, Mapping) else None
    key = options.get("apiKey") if isinstance(options, Mapping) else None
    return isinstance(key, str) and key.startswith("{file:") and key.endswith(f"/{token.NAME}}}")


def _is_our_model(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(f"{PROVIDER}/")


def _is_our_address(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("http://") and "/inject?scope=" in value
