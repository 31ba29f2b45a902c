"""What the tests of OpenCode's data and of transcripts share: an invented session that can grow."""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from webapp.opencode import Session, find_session
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.export import Exported, export

NEWEST = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
START = 1_790_000_000_000
"""When every invented session begins."""

NOW = START + 86_400_000
"""A day later: whatever was said has settled."""

SCOPE = "/home/demo/shop"


class Talk:
    """One session of one database in the newest layout. Every row is written by plain SQL."""

    def __init__(self, db: Path, session_id: str, scope: str = SCOPE, title: str = "") -> None:
        self.db = db
        self.id = session_id
        self.scope = scope
        self._clock = START
        self._parts = 0
        self._seq = 0
        project = "prj_" + scope.replace("/", "_")
        self.sql(
            "INSERT OR IGNORE INTO project (id, worktree, time_created, time_updated, sandboxes)"
            " VALUES (?, ?, ?, ?, '[]')",
            project, scope, START, START,
        )  # fmt: skip
        self.sql(
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created,"
            " time_updated) VALUES (?, ?, 'slug', ?, ?, '1.18.33', ?, ?)",
            session_id, project, scope, title or f"Invented {session_id}", START, START,
        )  # fmt: skip

    def sql(self, statement: str, *values: Any) -> None:
        """Runs one statement and commits it."""
        with closing(sqlite3.connect(self.db)) as connection, connection:
            connection.execute("PRAGMA synchronous = off")
            connection.execute(statement, values)

    def _tick(self) -> int:
        self._clock += 1000
        self.sql("UPDATE session SET time_updated = ? WHERE id = ?", self._clock, self.id)
        return self._clock

    def message(self, data: dict[str, Any] | str, message_id: str = "") -> str:
        """A message of the older runtime without parts; a string is stored as it is."""
        at = self._tick()
        message_id = message_id or f"msg_{at - START:09d}_{self.id}"
        if isinstance(data, dict):
            data = json.dumps({"time": {"created": at}} | data, ensure_ascii=False)
        self.sql(
            "INSERT INTO message (id, session_id, time_created, time_updated, data)"
            " VALUES (?, ?, ?, ?, ?)",
            message_id, self.id, at, at, data,
        )  # fmt: skip
        return message_id

    def part(self, message_id: str, data: Any, part_id: str = "") -> str:
        """A part of a message; anything but a dict or a list is stored as it is."""
        self._parts += 1
        part_id = part_id or f"prt_{self._parts:09d}_{self.id}"
        if isinstance(data, (dict, list)):
            data = json.dumps(data, ensure_ascii=False)
        self.sql(
            "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            part_id, message_id, self.id, self._clock, self._clock, data,
        )  # fmt: skip
        return part_id

    def user(self, text: str) -> str:
        """A prompt of one text part."""
        message_id = self.message({"role": "user", "agent": "build"})
        self.part(message_id, {"type": "text", "text": text})
        return message_id

    def assistant(self, text: str | None = None, done: bool = True, **data: Any) -> str:
        """An answer, finished or not."""
        time: dict[str, Any] = {"created": self._clock + 1000}
        if done:
            time["completed"] = self._clock + 1500
        message_id = self.message(
            {"role": "assistant", "agent": "build", "modelID": "m1", "providerID": "p1",
             "time": time} | data
        )  # fmt: skip
        if text is not None:
            self.part(message_id, {"type": "text", "text": text})
        return message_id

    def finish(self, message_id: str) -> None:
        """The answer is complete; OpenCode touches the message and not always its session."""
        self._clock += 1000
        self.sql(
            "UPDATE message SET data = json_set(data, '$.time.completed', ?), time_updated = ?"
            " WHERE id = ?",
            self._clock, self._clock, message_id,
        )  # fmt: skip

    def newer(self, kind: str, data: dict[str, Any] | str, touch: bool = False) -> str:
        """A row of the newer runtime, which leaves the session's own time alone."""
        self._clock += 1000
        if touch:
            self._tick()
        self._seq += 1
        message_id = f"msg_n{self._seq:06d}_{self.id}"
        if isinstance(data, dict):
            data = json.dumps({"time": {"created": self._clock}} | data, ensure_ascii=False)
        self.sql(
            "INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated,"
            " data) VALUES (?, ?, ?, ?, ?, ?, ?)",
            message_id, self.id, kind, self._seq, self._clock, self._clock, data,
        )  # fmt: skip
        return message_id

    def set(self, table: str, row_id: str, path: str, value: Any) -> None:
        """Changes one value inside the JSON of a row."""
        self.sql(
            f"UPDATE {table} SET data = json_set(data, ?, json(?)) WHERE id = ?",
            path, json.dumps(value), row_id,
        )  # fmt: skip

    def session(self) -> Session:
        """The session as our reader sees it now."""
        found, problems = find_session([self.db], self.id)
        assert found is not None, problems
        return found

    def export(
        self, store: Store, settings: Settings, now: int = NOW, again: bool = False
    ) -> Exported:
        """Exports the session as it is now."""
        return export(store, settings, self.session(), now, again)


@functools.cache
def empty_database() -> bytes:
    """The bytes of an empty database in the layout of the newest fixture."""
    with closing(sqlite3.connect(f"file:{NEWEST}?mode=ro&immutable=1", uri=True)) as source:
        ddl = [row[0] for row in source.execute("SELECT sql FROM sqlite_master WHERE sql > ''")]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "opencode.db"
        with closing(sqlite3.connect(path)) as target, target:
            for statement in ddl:
                target.execute(statement)
        return path.read_bytes()


@pytest.fixture
def invented_db(settings: Settings) -> Path:
    """An empty database where OpenCode keeps its own, found without being named."""
    settings.opencode_dir.mkdir(parents=True)
    path = settings.opencode_dir / "opencode.db"
    path.write_bytes(empty_database())
    return path


@pytest.fixture
def new_talk(invented_db: Path) -> Callable[..., Talk]:
    """Makes sessions in the one database: `new_talk("ses_a", scope="/x")`."""

    def make(session_id: str = "ses_invented", **kwargs: Any) -> Talk:
        return Talk(invented_db, session_id, **kwargs)

    return make


@pytest.fixture
def talk(new_talk: Callable[..., Talk]) -> Iterator[Talk]:
    """One empty invented session."""
    yield new_talk()


def as_stranger(work: Callable[[], str]) -> str:
    """What `work` answers in a process of a user who owns none of these files."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter, unlike `tmp_path`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture(name="as_stranger")
def as_stranger_fixture() -> Callable[[Callable[[], str]], str]:
    """`as_stranger`, for tests, which cannot import this file."""
    return as_stranger
