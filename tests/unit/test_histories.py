"""Line N never changes: invented histories of a session, played against the real exporter.

Each history is a list of events: OpenCode writes, edits, removes; time goes on; the program exports,
is killed in the middle of it, loses its index. What an export reported once must stand for good.
HISTORIES=5000 plays that many histories, other ones each time; without it they are the same ones.
"""

from __future__ import annotations

import bisect
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from webapp.errors import Conflict, NotFound
from webapp.lines import LineRange
from webapp.opencode import Session, find_session
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.transcripts import cleanup, library, window
from webapp.transcripts.export import Exported, export
from webapp.transcripts.files import (
    LINE_SHOWN,
    Mark,
    Offsets,
    load_marks,
    marks_path,
    offsets_path,
    read_window,
    sources_path,
)
from webapp.transcripts.pending import pending

if TYPE_CHECKING:
    from tests.conftest import Talk

HISTORIES = int(os.environ.get("HISTORIES", "0"))
START = 1_790_000_000_000
ID = "ses_history"
SECOND = 1_000
CRASHED = 600_000
LIMITS = (50_000, 100, 1_000)

LONG = {
    "<a long line>": "x" * 70_000,
    "<many lines>": "".join(f"line {number}\n" for number in range(12_000)),
    "<some lines>": "".join(f"{number} of some\n" for number in range(90)),
}
"""Texts that stand under a name, so that a history can be read."""

HOSTILE = (
    "word", "\n", "", "\r", "a\rb\r\nc\n", "\x0b", "\x0c", "\x1c\x1d\x1e", "\x85", "\u2028\u2029",
    "\0", "\t", "\ufeff", "\x1b[31mred\x1b[0m", "\ud800", "\udfff\ud83d", "é😀", " \n \n", "\n\n\n",
    "## user · build · 2026-09-21 14:13:21Z · msg_000\n",
    "## notice · 2027-01-15 09:00:00Z · removed\nmsg_000 (line 9) is no longer in OpenCode.\n",
    "### tool bash · completed\n", "#### output\n", "[… 5 bytes are cut here · call · …]\n",
    "9\tend\t\t512\t\n", "1\theader\tses_history\tabc\tlabel\n", *LONG,
)  # fmt: skip
ODD = ("thing", "", "a\tb", "a\nb", "end", "header", "notice", "\r", "\x85 x", "\ud800", "é·")
"""Types and roles that no version has."""

PIECES = st.lists(st.sampled_from(HOSTILE), max_size=3)
WHICH = st.integers(0, 9)
CUT = st.integers(0, 1_000)
"""Where something is cut, in thousandths."""


def said(pieces: list[str]) -> str:
    text = "".join(LONG.get(piece, piece) for piece in pieces)
    # In JSON two halves of a pair that meet are one character.
    return str(json.loads(json.dumps(text)))


def same_bytes(one: bytes, other: bytes) -> int:
    """How many bytes at the beginning of both are the same."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def stored(data: Any, escaped: bool) -> str:
    """JSON as a program may write it; a lone surrogate can be there as an escape only."""
    return json.dumps(data, ensure_ascii=escaped).encode("utf-8", "backslashreplace").decode()


@dataclass
class Part:
    """A part of a message; a string is JSON that does not parse."""

    id: str
    data: Any


@dataclass
class Message:
    """A message as OpenCode has it now. `raw` stands in the place of its JSON."""

    id: str
    kind: str
    created: int
    touched: int
    parts: list[Part] = field(default_factory=list)
    completed: int = 0
    more: dict[str, Any] = field(default_factory=dict)
    raw: str | None = None

    @property
    def runs(self) -> bool:
        """Whether OpenCode may still be writing it."""
        if self.raw is not None:
            return False
        return self.kind == "assistant" and not self.completed and "error" not in self.more


class OpenCode:
    """The session as one of the two runtimes keeps it. Every change is written to the database."""

    def __init__(self, talk: Talk, newer: bool) -> None:
        self.talk, self.newer = talk, newer
        self.now = START + SECOND
        self.messages: list[Message] = []
        self.number = 0

    def tick(self) -> int:
        self.now += SECOND
        return self.now

    def touch(self) -> None:
        """The newer runtime leaves the session's own time alone."""
        if not self.newer:
            self.session(time_updated=self.now)

    def session(self, **values: Any) -> None:
        sets = ", ".join(f"{name} = ?" for name in values)
        self.talk.sql(f"UPDATE session SET {sets} WHERE id = ?", *values.values(), ID)

    def next(self, kind: str) -> str:
        self.number += 1
        return f"{kind}_{self.number:05d}"

    def say(self, kind: str, parts: list[Any], **more: Any) -> Message:
        at = self.tick()
        message = Message(self.next("msg"), kind, at, at, more=more)
        message.parts = [Part(self.next("prt"), data) for data in parts]
        if kind not in ("assistant", "shell"):
            message.completed = at
        self.messages.append(message)
        self.save(message)
        return message

    def save(self, message: Message) -> None:
        message.touched = self.now
        time = {"created": message.created}
        if message.kind in ("assistant", "shell") and message.completed:
            time["completed"] = message.completed
        data: dict[str, Any] = {"time": time, "agent": "build", **message.more}
        if self.newer:
            self._save_newer(message, data)
        else:
            self._save_older(message, data)
        self.touch()

    def _save_older(self, message: Message, data: dict[str, Any]) -> None:
        raw = message.raw
        if raw is None:
            raw = stored({"role": message.kind, **data}, self.number % 2 > 0)
        self.talk.sql(
            "INSERT INTO message (id, session_id, time_created, time_updated, data)"
            " VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET time_updated = excluded.time_updated, data = excluded.data",
            message.id, ID, message.created, self.now, raw,
        )  # fmt: skip
        held = {part.id for part in message.parts}
        for part in message.parts:
            raw = part.data if isinstance(part.data, str) else stored(part.data, len(held) % 2 > 0)
            self.talk.sql(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
                " SET time_updated = excluded.time_updated, data = excluded.data"
                " WHERE data != excluded.data",
                part.id, message.id, ID, self.now, self.now, raw,
            )  # fmt: skip
        marks = ", ".join("?" * len(held))
        self.talk.sql(
            f"DELETE FROM part WHERE message_id = ? AND id NOT IN ({marks})", message.id, *held
        )

    def _save_newer(self, message: Message, data: dict[str, Any]) -> None:
        content = [part.data for part in message.parts]
        if message.kind == "user":
            texts = [part["text"] for part in content if is_text(part)]
            data |= {"text": texts[0]} if texts else {}
            data |= {"files": content[1:]} if content[1:] else {}
        elif content:
            data["content"] = content
        raw = message.raw
        self.talk.sql(
            "INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated,"
            " data) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET time_updated = excluded.time_updated, data = excluded.data",
            message.id, ID, message.kind.encode("utf-8", "replace").decode(), message.created,
            message.created, self.now, stored(data, self.number % 2 > 0) if raw is None else raw,
        )  # fmt: skip

    def remove(self, message: Message) -> None:
        self.messages.remove(message)
        for table in ("message", "session_message"):
            self.talk.sql(f"DELETE FROM {table} WHERE id = ?", message.id)
        self.talk.sql("DELETE FROM part WHERE message_id = ?", message.id)
        self.touch()

    def put_back(self, message: Message) -> None:
        bisect.insort(self.messages, message, key=lambda each: each.created)
        self.save(message)

    def tool(self, status: str, text: str) -> dict[str, Any]:
        given = {"command": "ls", "text": text[:100]}
        if self.newer:
            time = {"created": START, "ran": START + 1}
            state: dict[str, Any] = {"status": status, "input": given}
            if status == "completed":
                time["completed"] = self.now
                state["content"] = [{"type": "text", "text": text}]
            if status == "error":
                state["error"] = {"type": "unknown", "message": text}
            return {"type": "tool", "id": "call_1", "name": "bash", "state": state, "time": time}
        state = {"status": status, "input": given, "time": {"start": START}}
        if status == "completed":
            state |= {"output": text, "title": "ls", "metadata": {"output": text, "exit": 0}}
            state["time"] = {"start": START, "end": self.now}
        if status == "error":
            state["error"] = text
        return {"type": "tool", "callID": "call_1", "tool": "bash", "state": state}

    def texts(self) -> Iterator[tuple[Message, str, str]]:
        """Each text part that can be read: its message, its id in the transcript, its text."""
        for message in self.messages:
            if self.newer and (
                message.raw is not None or message.kind not in ("user", "assistant")
            ):
                continue
            for place, part in enumerate(message.parts):
                if not is_text(part.data):
                    continue
                part_id = part.id
                if self.newer:
                    part_id = f"{message.id}/{'text' if message.kind == 'user' else place}"
                    if message.kind == "user" and place:
                        continue
                yield message, part_id, part.data["text"]


def is_text(data: Any) -> bool:
    return isinstance(data, dict) and data.get("type") == "text"


class History(RuleBasedStateMachine):
    """The events, and what must be true after each export."""

    talk_class: type[Talk]
    empty: bytes
    plain_settings: Settings

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.plain_settings.data_dir.parent))
        db = self.folder / "opencode.db"
        db.write_bytes(self.empty)
        self.settings = replace(
            self.plain_settings, data_dir=self.folder, db=self.folder / "memory.db", opencode_db=db
        )
        self.store = Store(self.settings.db)
        self.store.open()
        self.talk = self.talk_class(db, ID)
        self.known: Session | None = None
        self.path: Path | None = None
        self.promised = b""
        self.aside: bytes | None = None
        self.dirty = True
        self.attic: list[tuple[Message, int, Part | None]] = []
        self.rows: list[dict[str, Any]] = []
        self.older_sources: bytes | None = None

    def teardown(self) -> None:
        try:
            if self.promised:
                self.check_with_other_programs()
        finally:
            self.store.close()
            shutil.rmtree(self.folder)

    @initialize(runtime=st.sampled_from(["older", "newer"]), every=st.sampled_from([99, 1, 2, 4]))
    def begins(self, runtime: str, every: int) -> None:
        """An export comes after every so many events, besides those that are events themselves."""
        self.every, self.events = every, 0
        self.opencode = OpenCode(self.talk, runtime == "newer")
        self.asleep: list[Message] | None = None

    # --- what OpenCode does ---

    @property
    def awake(self) -> bool:
        """Whether OpenCode has the session."""
        return self.asleep is None

    @contextmanager
    def event(self) -> Iterator[OpenCode]:
        self.dirty = True
        self.opencode.tick()
        yield self.opencode
        self.known = find_session([self.talk.db], ID)[0] or self.known
        self.events += 1
        if self.events % self.every == 0:
            self.export_and_check(LIMITS[0])

    def pick(self, which: int, running: bool = False) -> Message | None:
        found = [m for m in self.opencode.messages if m.runs or not running]
        return found[-1 - which % len(found)] if found else None

    def pick_part(self, which: int, kind: str = "") -> tuple[Message, Part] | None:
        found = [
            (message, part)
            for message in self.opencode.messages
            for part in message.parts
            if not kind or (isinstance(part.data, dict) and part.data.get("type") == kind)
        ]
        return found[-1 - which % len(found)] if found else None

    @precondition(lambda self: self.awake)
    @rule(text=PIECES, more=st.booleans())
    def prompt(self, text: list[str], more: bool) -> None:
        with self.event() as opencode:
            parts: list[Any] = [{"type": "text", "text": said(text)}]
            if more:
                parts.append({"type": "file", "mime": "text/plain", "url": said(text)})
            opencode.say("user", parts)

    @precondition(lambda self: self.awake)
    @rule(text=PIECES)
    def answer_starts(self, text: list[str]) -> None:
        with self.event() as opencode:
            opencode.say("assistant", [{"type": "text", "text": said(text)}])

    @precondition(lambda self: self.awake)
    @rule(text=PIECES)
    def answer(self, text: list[str]) -> None:
        with self.event() as opencode:
            message = opencode.say("assistant", [{"type": "text", "text": said(text)}])
            message.completed = opencode.now
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick(0, running=True))
    @rule(which=WHICH, text=PIECES, how=st.sampled_from(["grows", "text", "reasoning"]))
    def answer_streams(self, which: int, text: list[str], how: str) -> None:
        with self.event() as opencode:
            message = self.pick(which, running=True)
            assert message is not None
            if how == "grows" and message.parts and is_text(message.parts[-1].data):
                message.parts[-1].data["text"] += "·" + said(text)
            else:
                kind = "reasoning" if how == "reasoning" else "text"
                part = Part(opencode.next("prt"), {"type": kind, "text": said(text)})
                message.parts.append(part)
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick(0, running=True))
    @rule(which=WHICH, failed=st.booleans(), text=PIECES)
    def answer_ends(self, which: int, failed: bool, text: list[str]) -> None:
        with self.event() as opencode:
            message = self.pick(which, running=True)
            assert message is not None
            if failed:
                message.more["error"] = {"name": "Failed", "data": {"message": said(text)}}
            message.completed = opencode.now
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick(0))
    @rule(which=WHICH)
    def fails_late(self, which: int) -> None:
        with self.event() as opencode:
            message = self.pick(which)
            assert message is not None
            message.more["error"] = {"name": "Aborted", "data": {"message": "stop"}}
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick(0, running=True))
    @rule(which=WHICH, status=st.sampled_from(["pending", "running", "completed", "error"]))
    def tool_is_called(self, which: int, status: str) -> None:
        with self.event() as opencode:
            message = self.pick(which, running=True)
            assert message is not None
            message.parts.append(Part(opencode.next("prt"), opencode.tool(status, "early")))
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick_part(0, "tool"))
    @rule(
        which=WHICH, status=st.sampled_from(["running", "completed", "error"]), text=PIECES
    )  # fmt: skip
    def tool_goes_on(self, which: int, status: str, text: list[str]) -> None:
        with self.event() as opencode:
            found = self.pick_part(which, "tool")
            assert found is not None
            found[1].data = opencode.tool(status, said(text))
            opencode.save(found[0])

    @precondition(lambda self: self.awake and self.pick_part(0, "tool"))
    @rule(which=WHICH, erased=st.booleans())
    def prune(self, which: int, erased: bool) -> None:
        with self.event() as opencode:
            found = self.pick_part(which, "tool")
            assert found is not None
            message, part = found
            part.data = json.loads(json.dumps(part.data))
            state = part.data["state"]
            if opencode.newer:
                part.data["time"]["pruned"] = opencode.now
                state.pop("content", None) if erased else None
            else:
                state["time"]["compacted"] = opencode.now
                state |= {"output": ""} if erased and "output" in state else {}
            opencode.save(message)

    @precondition(lambda self: self.awake)
    @rule(text=PIECES)
    def compaction(self, text: list[str]) -> None:
        with self.event() as opencode:
            if opencode.newer:
                opencode.say("compaction", [], reason="auto", summary=said(text))
                return
            opencode.say("user", [{"type": "compaction", "auto": True}])
            message = opencode.say(
                "assistant", [{"type": "text", "text": said(text)}], summary=True, mode="compaction"
            )
            message.completed = opencode.now
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick_part(0))
    @rule(which=WHICH, text=PIECES)
    def edit(self, which: int, text: list[str]) -> None:
        with self.event() as opencode:
            found = self.pick_part(which)
            assert found is not None
            found[1].data = {"type": "text", "text": said(text)}
            opencode.save(found[0])

    @precondition(lambda self: self.awake and self.pick_part(0))
    @rule(which=WHICH)
    def remove_part(self, which: int) -> None:
        with self.event() as opencode:
            found = self.pick_part(which)
            assert found is not None
            message, part = found
            self.attic.append((message, message.parts.index(part), part))
            message.parts.remove(part)
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick(0))
    @rule(which=WHICH)
    def remove_message(self, which: int) -> None:
        with self.event() as opencode:
            message = self.pick(which)
            assert message is not None
            self.attic.append((message, 0, None))
            opencode.remove(message)

    @precondition(lambda self: self.awake and self.attic)
    @rule(which=WHICH)
    def comes_back(self, which: int) -> None:
        with self.event() as opencode:
            message, place, part = self.attic.pop(-1 - which % len(self.attic))
            if part is None:
                opencode.put_back(message)
            elif message in opencode.messages:
                message.parts.insert(place, part)
                opencode.save(message)

    @precondition(lambda self: self.awake)
    @rule(role=st.sampled_from(ODD), type=st.sampled_from(ODD), text=PIECES)
    def odd_message(self, role: str, type: str, text: list[str]) -> None:
        with self.event() as opencode:
            opencode.say(role, [{"type": type, "text": said(text), "n": [None]}], extra=said(text))

    @precondition(lambda self: self.awake and self.pick(0))
    @rule(which=WHICH, type=st.sampled_from([*ODD, "snapshot", "retry", "patch"]), text=PIECES)
    def odd_part(self, which: int, type: str, text: list[str]) -> None:
        with self.event() as opencode:
            message = self.pick(which)
            assert message is not None
            data: Any = {"type": type, "text": said(text), type: text}
            message.parts.append(Part(opencode.next("prt"), data))
            opencode.save(message)

    @precondition(lambda self: self.awake and self.pick(0))
    @rule(which=WHICH, raw=st.sampled_from(['{"role": "us', "not JSON", "{\n\n", "\0"]))
    def message_that_does_not_parse(self, which: int, raw: str) -> None:
        with self.event() as opencode:
            message = self.pick(which)
            assert message is not None
            message.raw = raw if message.raw is None else None
            opencode.save(message)

    @precondition(lambda self: self.awake and not self.opencode.newer and self.pick_part(0))
    @rule(which=WHICH, raw=st.sampled_from(['{"type": "te', "", "[1]", "7", "{\n\n", "\0"]))
    def part_that_does_not_parse(self, which: int, raw: str) -> None:
        with self.event() as opencode:
            found = self.pick_part(which)
            assert found is not None
            found[1].data = raw
            opencode.save(found[0])

    @precondition(lambda self: self.awake and self.pick(0))
    @rule(which=WHICH, part=st.booleans())
    def revert(self, which: int, part: bool) -> None:
        with self.event() as opencode:
            message = self.pick(which)
            assert message is not None
            target = {"messageID": message.id, "snapshot": "abc"}
            if part and message.parts:
                target["partID"] = message.parts[0].id
            opencode.session(revert=json.dumps(target), time_updated=opencode.now)

    @precondition(lambda self: self.awake)
    @rule()
    def unrevert(self) -> None:
        with self.event() as opencode:
            opencode.session(revert=None, time_updated=opencode.now)

    @precondition(lambda self: self.awake and self.known and self.known.revert)
    @rule(text=PIECES)
    def prompt_after_revert(self, text: list[str]) -> None:
        with self.event() as opencode:
            assert self.known is not None and self.known.revert is not None
            first = str(self.known.revert["messageID"])
            for message in [each for each in opencode.messages if each.id >= first]:
                opencode.remove(message)
            opencode.session(revert=None, time_updated=opencode.now)
            opencode.say("user", [{"type": "text", "text": said(text)}])

    @precondition(lambda self: self.awake)
    @rule(text=PIECES)
    def rename(self, text: list[str]) -> None:
        with self.event() as opencode:
            title = said(text).encode("utf-8", "replace").decode()[:500]
            opencode.session(title=title, time_updated=opencode.now)

    @precondition(lambda self: self.awake)
    @rule(folder=st.sampled_from(["/home/demo/shop", "/home/demo/moved", "/"]))
    def project_moves(self, folder: str) -> None:
        with self.event():
            self.talk.sql("UPDATE project SET worktree = ?", folder)

    @precondition(lambda self: self.awake and self.known)
    @rule()
    def session_is_deleted(self) -> None:
        with self.event() as opencode:
            self.asleep = list(opencode.messages)
            for message in self.asleep:
                opencode.remove(message)
            self.talk.sql("UPDATE session SET id = 'ses_deleted' WHERE id = ?", ID)

    @precondition(lambda self: not self.awake)
    @rule()
    def session_comes_back(self) -> None:
        with self.event() as opencode:
            self.talk.sql("UPDATE session SET id = ? WHERE id = 'ses_deleted'", ID)
            for message in self.asleep or []:
                opencode.put_back(message)
            self.asleep = None

    @rule(seconds=st.sampled_from([11, 660, 90_000]))
    def time_passes(self, seconds: int) -> None:
        self.opencode.now += seconds * SECOND
        self.dirty = True

    # --- what happens to our own files ---

    def row(self) -> dict[str, Any] | None:
        if not self.store.has_table("transcripts"):
            return None
        found = self.store.first(TranscriptRow.select().where(TranscriptRow.session_id == ID))
        return dict(found.__data__) if found is not None else None

    def set_row(self, values: dict[str, Any] | None) -> None:
        if not self.store.has_table("transcripts"):
            return
        with self.store.writing():
            self.store.run(TranscriptRow.delete().where(TranscriptRow.session_id == ID))
            if values is not None:
                self.store.run(TranscriptRow.insert(**values))

    def state(self) -> tuple[bytes, bytes, int]:
        assert self.path is not None
        marks = marks_path(self.path)
        return (
            self.path.read_bytes() if self.path.exists() else b"",
            marks.read_bytes() if marks.exists() else b"",
            self.path.stat().st_mtime_ns if self.path.exists() else 0,
        )

    @property
    def there(self) -> bool:
        """Whether there is a transcript that was reported and not removed."""
        return bool(self.promised)

    @precondition(lambda self: self.there)
    @rule()
    def index_is_lost(self) -> None:
        self.set_row(None)

    @precondition(lambda self: self.there and self.rows)
    @rule(which=WHICH)
    def index_is_restored(self, which: int) -> None:
        row = self.rows[-1 - which % len(self.rows)]
        self.set_row(row)

    @precondition(lambda self: self.there)
    @rule(data=st.sampled_from([None, b"", b"\xff", "older"]))
    def sources_are_lost(self, data: bytes | str | None) -> None:
        assert self.path is not None
        place = sources_path(self.path)
        if data is None:
            place.unlink(missing_ok=True)
        elif isinstance(data, bytes):
            place.write_bytes(data)
        elif self.older_sources is not None:
            place.write_bytes(self.older_sources)

    @precondition(lambda self: self.there)
    @rule()
    def sources_are_copied(self) -> None:
        assert self.path is not None
        if sources_path(self.path).is_file():
            self.older_sources = sources_path(self.path).read_bytes()

    @precondition(lambda self: self.there)
    @rule(data=st.sampled_from([None, b"", b"OMLINES2", b"\0" * 64, b"OMLINES2" + b"\1" * 56]))
    def offsets_are_lost(self, data: bytes | None) -> None:
        assert self.path is not None
        if data is None:
            offsets_path(self.path).unlink(missing_ok=True)
        else:
            offsets_path(self.path).write_bytes(data)

    @precondition(lambda self: self.there)
    @rule(
        text=st.sampled_from([b"", b"half", b"line\n", b"\n", b"\0\xff"]),
        marks=st.sampled_from([b"", b"99\tus", b"99\tuser\tmsg_half\tabc\tlabel\n", b"\0"]),
        times=st.sampled_from([1, 20_000]),
    )
    def tail_is_left(self, text: bytes, marks: bytes, times: int) -> None:
        assert self.path is not None
        for path, more in ((self.path, text * times), (marks_path(self.path), marks)):
            with path.open("ab") as file:
                file.write(more)

    @precondition(lambda self: self.known)
    @rule(text=CUT, marks=CUT, zeros=st.booleans(), at_once=st.booleans())
    def export_is_killed(self, text: int, marks: int, zeros: bool, at_once: bool) -> None:
        """An export, then its files and the index as they would be had it ended earlier: the end
        mark is written when the text is on disk, the index after both."""
        row, rows, promised, path = self.row(), list(self.rows), self.promised, self.path
        before = self.state() if promised else (b"", b"", 0)
        self.export_and_check(LIMITS[0])
        after = self.state()
        assert self.path is not None
        self.set_row(row)
        self.rows = rows
        # Of a tail that an earlier kill has left, some marks may be those that were written again.
        whole_marks = same_bytes(before[1], after[1])
        marks_cut = whole_marks + (len(after[1]) - whole_marks) * marks // 1_000
        text_cut = len(promised) + (len(after[0]) - len(promised)) * text // 1_000
        if not promised:
            # The first mark is there before the text, and the head is written at once.
            marks_cut = max(marks_cut, after[1].index(b"\n") + 1)
            head = len(b"\n".join(after[0].split(b"\n")[:3])) + 1
            text_cut = max(text_cut, head) if text_cut else 0
        if marks_cut < len(after[1]) and len(promised) < len(after[0]):
            rest = b"\0" * (len(after[0]) - text_cut) if zeros and text_cut else b""
            self.path.write_bytes(after[0][:text_cut] + rest)
            marks_path(self.path).write_bytes(after[1][:marks_cut])
            self.promised, self.dirty = promised, True
            self.path = path or self.path
        if at_once:
            self.export_and_check(LIMITS[0])
            assert self.state()[:2] == after[:2], "what a kill left leads to another transcript"

    @precondition(lambda self: self.there)
    @rule()
    def cleanup_removes(self) -> None:
        options = cleanup.Options((ID,), keep_recent=0)
        self.opencode.now += 1
        now = self.opencode.now
        plan = cleanup.plan(self.store, self.settings, options, now)
        if not plan.steps:
            return
        for _ in cleanup.apply(
            self.store, self.settings, options, plan.fingerprint, "tester", now=now
        ):
            pass
        assert self.path is not None and not self.path.exists()
        self.aside, self.promised, self.rows = self.promised, b"", []
        self.dirty = True

    @precondition(lambda self: self.aside is not None)
    @rule()
    def cleanup_is_undone(self) -> None:
        possible = not self.promised
        try:
            cleanup.undo(self.store, self.settings, ID, "tester", self.opencode.now)
        except (NotFound, Conflict):
            assert not possible or self.path_is_taken()
            return
        assert possible and self.aside is not None
        self.promised, self.aside = self.aside, None
        assert self.path is not None
        assert self.path.read_bytes().startswith(self.promised)

    def path_is_taken(self) -> bool:
        return self.path is not None and self.path.exists() and self.path.stat().st_size > 0

    # --- export, and what must be true ---

    @precondition(lambda self: self.known)
    @rule(limit=st.sampled_from(LIMITS))
    def export(self, limit: int) -> None:
        self.export_and_check(limit)

    def export_and_check(self, limit: int) -> Exported:
        assert self.known is not None
        settings = replace(self.settings, inline_output_max_bytes=limit)
        written = self.written() if self.promised else set()
        waiting = self.waiting(written)
        done = export(self.store, settings, self.known, self.opencode.now, again=True)
        if self.promised:
            assert done.path == self.path, "the transcript is in another file now"
        self.path = done.path
        data = done.path.read_bytes()
        assert data.startswith(self.promised), "a line above has changed"
        added = data[len(self.promised) :].count(b"\n")
        assert self.dirty or not added, f"nothing has changed and {added} lines came"
        row = self.row()
        assert row is not None
        self.check_counts(done, data, row)
        self.check_marks(row)
        self.check_messages(done, data, written, waiting)
        self.check_quiet(settings, done)
        if not done.unfinished and self.awake:
            found = pending(self.store, replace(self.settings, opencode_db=self.known.db))
            assert not found.absent + found.behind, "it counts as behind right after its export"
        self.promised, self.dirty = data, False
        self.rows.append(row)
        return done

    def check_counts(self, done: Exported, data: bytes, row: dict[str, Any]) -> None:
        lines = data.count(b"\n")
        assert data.endswith(b"\n")
        assert (row["lines"], row["size"]) == (lines, len(data)) == (done.lines, len(data))
        assert row["marks_size"] == marks_path(done.path).stat().st_size
        assert Offsets.of(done.path, len(data), stable=True).total() == lines
        item = library.get(self.store, self.settings, ID)
        assert (item.ours, item.path, item.lines, item.size) == (True, done.path, lines, len(data))

    def check_marks(self, row: dict[str, Any]) -> None:
        assert self.path is not None
        raw = marks_path(self.path).read_bytes()
        marks = load_marks(self.path)
        assert len(marks) == raw.count(b"\n"), "a mark cannot be read"
        numbers = [mark.line for mark in marks]
        assert numbers == sorted(numbers) and numbers[0] == 1 and numbers[-1] <= row["lines"]
        written = [
            mark.id for mark in marks
            if mark.kind not in ("notice", "end") and mark.digest != "continued"
        ]  # fmt: skip
        assert len(set(written)) == len(written), "something was written twice"

    def written(self) -> set[str]:
        """The messages that stand in the transcript already."""
        assert self.path is not None
        size = self.promised.count(b"\n")
        marks = load_marks(self.path) if self.path.exists() else []
        return {m.id for m in marks if m.kind.startswith("message:") and m.line <= size}

    def waiting(self, written: set[str]) -> set[str]:
        """The messages that an export must not begin to write: from one that may go on."""
        answers = [
            m for m in self.opencode.messages
            if m.kind == "assistant" and (self.opencode.newer or m.raw is None)
        ]  # fmt: skip
        last = answers[-1] if answers else None
        if last is None or not last.runs or last.id in written:
            return set()
        if last.touched < self.opencode.now - CRASHED:
            return set()
        return {m.id for m in self.opencode.messages if m.created >= last.created}

    def check_messages(
        self, done: Exported, data: bytes, written: set[str], waiting: set[str]
    ) -> None:
        """What is finished stands in the transcript word for word; what may go on does not."""
        marks = load_marks(done.path)
        have = {mark.id for mark in marks if mark.kind.startswith("message:")}
        absent = [m for m in self.opencode.messages if m.id not in have]
        assert len(absent) == done.unfinished
        assert not (have - written) & waiting, "a message that goes on was written"
        if absent:
            open_since = absent[0]
            is_last = open_since is self.opencode.messages[-1]
            fresh = open_since.created > self.opencode.now - 10 * SECOND
            assert open_since.runs or (is_last and fresh), f"{open_since.id} is not written"
        places = Sections(data, marks)
        for message, part_id, text in self.opencode.texts():
            if message.id in have:
                assert places.hold(part_id, text), f"the text of {part_id} is not there"

    def check_quiet(self, settings: Settings, done: Exported) -> None:
        """A further export, in which nothing has changed."""
        assert self.known is not None
        before = self.state(), self.row()
        again = export(self.store, settings, self.known, self.opencode.now, again=True)
        assert (again.added, again.lines, again.created) == (0, done.lines, False)
        assert (self.state(), self.row()) == before, "an export of nothing changed something"

    @precondition(lambda self: self.there)
    @rule(at=CUT, length=st.integers(0, 40), mask=st.booleans())
    def read(self, at: int, length: int, mask: bool) -> None:
        """At any time a reader sees lines that were reported, under their numbers."""
        try:
            item = library.get(self.store, self.settings, ID)
        except NotFound:
            assert not self.awake
            raise
        assert item.path == self.path
        data = self.path.read_bytes()[: item.size]
        lines = data.split(b"\n")[:-1]
        assert item.lines == len(lines) and data.endswith(b"\n")
        assert data.startswith(self.promised) or self.promised.startswith(data)
        first = 1 + len(lines) * at // 1_000
        wanted = lines[first - 1 : first + length]
        found = read_window(item.path, first, first + length, item.size, item.ours, 1 << 30)
        assert [(line.number, line.text) for line in found] == [
            (first + n, line.decode()) for n, line in enumerate(wanted)
        ]
        shown = window.read(item, LineRange(first, first + length), mask=mask)
        assert shown.total == len(lines) and len(shown.rows) == len(wanted)
        for row, line in zip(shown.rows, wanted, strict=True):
            assert row.masked or row.text == line[:LINE_SHOWN].decode("utf-8", "ignore")
            assert row.cut in (max(0, len(line) - LINE_SHOWN + n) for n in range(4))

    def check_with_other_programs(self) -> None:
        """The lines that `sed` and `wc` count are those of the index."""
        assert self.path is not None
        whole = self.folder / "whole"
        whole.write_bytes(self.promised)
        lines = self.promised.count(b"\n")
        for command in (["sed", "-n", "$=", str(whole)], ["wc", "-l", str(whole)]):
            output = subprocess.run(
                command, capture_output=True, check=True, env={**os.environ, "LC_ALL": "C"}
            ).stdout
            assert int(output.split()[0]) == lines


class Sections:
    """What stands under the marks of each id."""

    def __init__(self, data: bytes, marks: list[Mark]) -> None:
        lines = data.split(b"\n")
        marks = [mark for mark in marks if mark.kind != "end"]
        ends = [mark.line for mark in marks[1:]] + [len(lines)]
        self._of: dict[str, list[bytes]] = {}
        for mark, end in zip(marks, ends, strict=True):
            section = b"\n" + b"\n".join(lines[mark.line - 1 : end - 1]) + b"\n"
            self._of.setdefault(mark.id, []).append(section)

    def hold(self, part_id: str, text: str) -> bool:
        wanted = text.removesuffix("\n").encode("utf-8", "backslashreplace")
        return any(b"\n" + wanted + b"\n" in each for each in self._of.get(part_id, []))


def test_what_an_export_has_reported_stands_for_good(
    talk: Talk, invented_db: Path, settings: Settings
) -> None:
    # Only what a history finds in an empty database is in it.
    talk.sql("DELETE FROM session")
    talk.sql("DELETE FROM project")

    class Played(History):
        talk_class = type(talk)
        empty = invented_db.read_bytes()
        plain_settings = settings

    run_state_machine_as_test(
        Played,
        settings=hypothesis_settings(
            max_examples=HISTORIES or 60,
            stateful_step_count=40,
            derandomize=not HISTORIES,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
