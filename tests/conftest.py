"""What all tests share: settings in a folder of their own, an open store, the fixtures, an invented
session that can grow, and a trace of what is asked of OpenCode's databases."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from webapp import settings as setting_table
from webapp.opencode import Item, Kind, Session, find_session
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import ripgrep
from webapp.transcripts.export import Exported, export

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


NEWEST = FIXTURES / "opencode-1.18.33.db"
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


LARGE = ("message", "part", "session_message", "event")


class Trace:
    """The statements that were run on OpenCode's databases."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.opened = 0

    def clear(self) -> None:
        self.statements.clear()
        self.opened = 0

    def selects(self) -> list[str]:
        """What was asked, each once."""
        return [text for text in dict.fromkeys(self.statements) if text.startswith("SELECT")]

    def assert_frugal(self, db: Path) -> None:
        """No statement names the event log, and each looks up in the large tables by an index."""
        assert self.statements
        for statement in self.statements:
            assert not re.search(r"\bevent\b", statement), statement
            assert statement.startswith(("SELECT", "PRAGMA", "BEGIN", "ROLLBACK")), statement
        with closing(sqlite3.connect(db)) as connection:
            connection.create_function("fold", 1, str)
            for statement in self.selects():
                for step in plan_of(connection, statement):
                    assert_indexed(step, statement)


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]


def assert_indexed(step: str, statement: str) -> None:
    """A step of a query plan that touches a large table searches it by an index."""
    found = re.match(r"(SCAN|SEARCH) (?:TABLE )?(\w+)", step)
    if found is None or found[2] not in LARGE:
        return
    assert found[1] == "SEARCH", f"{step}: {statement}"
    # SQLite takes the last row of a table for max(rowid), and says no more than SEARCH.
    assert re.search(
        r"USING (COVERING )?INDEX|USING INTEGER PRIMARY KEY \(rowid[=>]\?\)|SEARCH \w+$", step
    ), f"{step}: {statement}"


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Traces every connection to OpenCode's databases from now on."""
    noted = Trace()
    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(noted.statements.append)
        noted.opened += 1
        return connection

    class Module:
        """`sqlite3` as the module of OpenCode's database sees it."""

        def __getattr__(self, name: str) -> Any:
            return traced if name == "connect" else getattr(sqlite3, name)

    monkeypatch.setattr("webapp.opencode.database.sqlite3", Module())
    return noted


class Endpoint:
    """A small OpenAI-compatible server that answers as it is told, at first with one lesson, and notes
    what it gets."""

    LESSON: ClassVar[dict[str, Any]] = {
        "title": "Invoices are rounded per line",
        "body": "The tax office wants each line rounded by itself.", "tags": ["money"],
    }  # fmt: skip
    USAGE: ClassVar[dict[str, int]] = {"prompt_tokens": 1200, "completion_tokens": 80}

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200
        self.body = self.said(json.dumps([self.LESSON]))
        self.extra: dict[str, str] = {}
        self.before: Callable[[Any], None] = lambda handler: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["Content-Length"]))
                outer.received.append(json.loads(sent))
                outer.headers.append(dict(self.headers))
                outer.paths.append(self.path)
                outer.before(self)
                self.send_response(outer.status)
                for name, value in outer.extra.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(outer.body)
                except OSError:
                    return

            def log_message(self, *_: Any) -> None:
                return

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                return  # who asked has gone, as some tests want it

        self.server = Server(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    @staticmethod
    def said(text: str, usage: Any = USAGE, finish: str = "stop") -> bytes:
        """A chat completion with a text."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": finish,
        }
        return json.dumps(
            {"object": "chat.completion", "choices": [choice], "usage": usage}
        ).encode()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def asked(self) -> str:
        """What the person's message of the only question says."""
        (question,) = self.received
        return str(question["messages"][1]["content"])

    def stop(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def llm() -> Iterator[Endpoint]:
    """A running endpoint."""
    made = Endpoint()
    yield made
    made.stop()
