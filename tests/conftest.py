"""What all tests share: settings in a folder of their own, an open store, the fixtures."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webapp import settings as setting_table
from webapp.opencode import Item, Kind
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import ripgrep

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = ("1.2.27", "1.18.33")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings that see nothing of the machine's own."""
    home = tmp_path / "home"
    home.mkdir()
    return replace(setting_table.load({}, {"HOME": str(home), "USER": "tester"}))


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    """The open store of those settings; its file does not exist yet."""
    with Store(settings.db).session() as opened:
        yield opened


@pytest.fixture(params=VERSIONS)
def opencode_db(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a database that a real OpenCode wrote, one for each version."""
    return copy_fixture(request.param, tmp_path)


@pytest.fixture
def newest_db(tmp_path: Path) -> Path:
    """A copy of the newest version's database."""
    return copy_fixture(VERSIONS[-1], tmp_path)


def copy_fixture(version: str, folder: Path) -> Path:
    """Copies a fixture to where a test may write to it."""
    target = folder / f"opencode-{version}.db"
    shutil.copyfile(FIXTURES / f"opencode-{version}.db", target)
    return target


@pytest.fixture
def slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ripgrep that takes a minute for a transcript called `slow`; and every transcript is searched
    by one of its own, the last touched first."""
    script = tmp_path / "slow-rg"
    script.write_text(
        '#!/bin/sh\nfor word; do case "$word" in */slow.md) exec sleep 60;; esac; done\n'
        f'exec {ripgrep.program()} "$@"\n'
    )
    script.chmod(0o700)
    monkeypatch.setattr("webapp.transcripts.ripgrep.program", lambda: str(script))
    monkeypatch.setattr("webapp.transcripts.grep.FIRST_BATCH", 1)
    monkeypatch.setattr("webapp.transcripts.grep.LAST_BATCH", 1)


class Wire:
    """Puts what history.py shows and what a model was sent into one shape, to be compared."""

    MEDIA = "(media)"
    REMINDER = "<system-reminder>\n"
    TOOL_MEDIA = ("Attached media from tool result:", "Attached image(s) from tool result:")

    @staticmethod
    def as_sent(items: Sequence[Item]) -> list[tuple[Any, ...]]:
        """Items as the messages of an OpenAI-compatible request."""
        sent: list[tuple[Any, ...]] = []
        for _, found in itertools.groupby(items, lambda item: item.group):
            group = list(found)
            role = group[0].role
            assert {item.role for item in group} == {role}
            joint = "\n" if "/" in group[0].part_id else ""
            media = [item for item in group if item.kind is Kind.MEDIA]
            texts = [item.text for item in group if item.kind is Kind.TEXT]
            if role == "assistant":
                calls = tuple(
                    (item.call_id, item.tool, item.text) for item in group if item.kind is Kind.CALL
                )
                thought = "".join(item.text for item in group if item.kind is Kind.REASONING)
                sent.append((role, joint.join(texts), thought, calls))
            elif role == "tool":
                sent.append((role, group[0].call_id, group[0].text))
                if media:
                    sent.append(("tool media", len(media)))
            elif joint and not media:
                sent.append((role, (joint.join(texts),)))
            else:
                sent.append(
                    (role, tuple(Wire.MEDIA if i.kind is Kind.MEDIA else i.text for i in group))
                )
        return sent

    @staticmethod
    def as_received(
        request: Sequence[dict[str, Any]], reminders: bool = True
    ) -> list[tuple[Any, ...]]:
        """The messages of a request in the same shape."""
        received: list[tuple[Any, ...]] = []
        for message in request:
            role, content = message["role"], message.get("content") or ""
            pieces = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts = tuple(
                piece["text"]
                if piece["type"] == "text" and not piece["text"].startswith("ERROR: Cannot read")
                else Wire.MEDIA
                for piece in pieces
            )
            if role == "assistant":
                calls = tuple(
                    (call["id"], call["function"]["name"], call["function"]["arguments"])
                    for call in message.get("tool_calls") or ()
                )
                received.append(
                    (role, "".join(texts), message.get("reasoning_content") or "", calls)
                )
            elif role == "tool":
                received.append((role, message["tool_call_id"], "".join(texts)))
            elif texts[0] in Wire.TOOL_MEDIA:
                received.append(("tool media", len(texts) - 1))
            else:
                kept = tuple(t for t in texts if reminders or not t.startswith(Wire.REMINDER))
                received.append((role, kept))
        return received


@pytest.fixture
def wire() -> type[Wire]:
    """`Wire`, for tests, which cannot import this file."""
    return Wire
