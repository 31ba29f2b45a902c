"""Writes an OpenCode database of the invented sessions, in the layout of OpenCode 1.18.

Ids, tokens and durations are the same in every run; only the times follow from `now`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from webapp.cli.demo_parts import PROVIDER, Part, Reply, Script, base62, session_id
from webapp.store import private_file, private_folder

VERSION = "1.18.33"
DAY_MS = 86_400_000
SYSTEM_TOKENS = 9_600
_CHANGES = {"edit", "write"}

# Of the 1.18 schema the tables that sessions live in, without foreign keys.
_DDL = """
CREATE TABLE project (
  id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, icon_url text,
  icon_url_override text, icon_color text, time_created integer NOT NULL,
  time_updated integer NOT NULL, time_initialized integer, sandboxes text NOT NULL, commands text);
CREATE TABLE session (
  id text PRIMARY KEY, project_id text NOT NULL, workspace_id text, parent_id text,
  slug text NOT NULL, directory text NOT NULL, path text, title text NOT NULL,
  version text NOT NULL, share_url text, summary_additions integer, summary_deletions integer,
  summary_files integer, summary_diffs text, metadata text, cost real DEFAULT 0 NOT NULL,
  tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
  tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
  tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, permission text, agent text,
  model text, time_created integer NOT NULL, time_updated integer NOT NULL,
  time_compacting integer, time_archived integer);
CREATE TABLE message (
  id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
  time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (
  id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE session_message (
  id text PRIMARY KEY, session_id text NOT NULL, type text NOT NULL, seq integer NOT NULL,
  time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE session_input (
  id text PRIMARY KEY, session_id text NOT NULL, prompt text NOT NULL, delivery text NOT NULL,
  admitted_seq integer NOT NULL, promoted_seq integer, time_created integer NOT NULL);
CREATE TABLE session_context_epoch (
  session_id text PRIMARY KEY, baseline text NOT NULL, snapshot text NOT NULL,
  baseline_seq integer NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE UNIQUE INDEX session_message_session_seq_idx ON session_message (session_id, seq);
CREATE INDEX session_project_idx ON session (project_id);
CREATE INDEX session_parent_idx ON session (parent_id);
"""

_INSERTS = {
    "project": "INSERT INTO project (id, worktree, vcs, time_created, time_updated, sandboxes)"
    " VALUES (?, ?, 'git', ?, ?, '[]')",
    "session": "INSERT INTO session (id, project_id, parent_id, slug, directory, path, title,"
    " version, summary_additions, summary_deletions, summary_files, cost, tokens_input,"
    " tokens_output, tokens_reasoning, tokens_cache_read, revert, agent, model, time_created,"
    " time_updated, time_archived)"
    " VALUES (?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "message": "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
    "part": "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
    "session_message": "INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)",
    "session_input": "INSERT INTO session_input VALUES (?, ?, ?, 'steer', ?, ?, ?)",
    "session_context_epoch": "INSERT INTO session_context_epoch VALUES (?, ?, ?, ?)",
}
TABLES = tuple(_INSERTS)


def write_database(path: Path, scripts: Sequence[Script], now: int) -> None:
    """Writes a new database file of the scripts, as it would be at `now` (epoch milliseconds)."""
    private_folder(path.parent)
    private_file(path)
    rows = _Rows()
    for script in scripts:
        _Session(rows, script, now).write()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")  # invented, and gone at the end anyway
        connection.executescript(_DDL)
        connection.execute("BEGIN")
        for table, values in rows.tables.items():
            connection.executemany(_INSERTS[table], values)
        connection.execute("COMMIT")


class _Rows:
    """The rows of every table, and the ids of messages, parts and calls."""

    def __init__(self) -> None:
        self.tables: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _INSERTS}
        self._ids = 0
        self._projects: dict[str, str] = {}

    def add(self, table: str, *values: Any) -> None:
        """One more row."""
        self.tables[table].append(values)

    def id(self, prefix: str) -> str:
        """The next id in OpenCode's form; later ones sort behind earlier ones."""
        self._ids += 1
        return f"{prefix}_{0x22C058000 + self._ids * 37:09x}001{base62(f'{prefix}{self._ids}')}"

    def call(self) -> str:
        """The next id of a tool call."""
        return f"call_{base62(self.id('call'), 10)}"

    def project(self, scope: str, at: int) -> str:
        """The id of the project of a scope, which is written when it is first asked for."""
        if scope not in self._projects:
            self._projects[scope] = _sha1(scope)
            self.add("project", self._projects[scope], scope, at, at)
        return self._projects[scope]


class _Session:
    """One session being written: its clock, and what its row sums up."""

    def __init__(self, rows: _Rows, script: Script, now: int) -> None:
        self.rows = rows
        self.script = script
        self.now = now
        self.begin = self.at = now - int(script.age * DAY_MS)
        self.context = SYSTEM_TOKENS
        self.cached = 0
        self.sums = {"input": 0, "output": 0, "reasoning": 0, "read": 0}
        self.cost = 0.0
        self.lines = [0, 0]
        self.files: set[str] = set()
        self.revert: str | None = None

    def write(self) -> None:
        """Messages first, since the row of the session sums them up."""
        if self.script.newer:
            self._newer()
        else:
            for number, turn in enumerate(self.script.turns):
                self._turn(number, turn.user, turn.replies)
        self._row()

    def _row(self) -> None:
        script = self.script
        model = {"id": script.model, "providerID": PROVIDER, "variant": "default"}
        archived = min(self.at + 3 * DAY_MS, self.now) if script.archived else None
        self.rows.add(
            "session", script.id, self.rows.project(script.scope, self.begin),
            session_id(script.parent) if script.parent else None, script.key, script.scope,
            script.title, VERSION, self.lines[0], self.lines[1], len(self.files),
            round(self.cost, 4), self.sums["input"], self.sums["output"], self.sums["reasoning"],
            self.sums["read"], self.revert, script.agent, _json(model), self.begin, self.at,
            archived,
        )  # fmt: skip

    def _tick(self, milliseconds: int) -> int:
        self.at += milliseconds
        return self.at

    def _turn(self, number: int, user: Sequence[Part], replies: Sequence[Reply]) -> None:
        # The first turn begins with the session; a person then takes a minute or four.
        created = self._tick(28 if number == 0 else 61_000 + number * 40_250 % 180_000)
        message = self.rows.id("msg")
        if number == self.script.reverted:
            self._reverted(message)
        self._message(message, created, created, {
            "role": "user", "time": {"created": created}, "agent": self.script.agent,
            "model": {"providerID": PROVIDER, "modelID": self.script.model}, "summary": {"diffs": []},
        })  # fmt: skip
        self._parts(message, user)
        for reply in replies:
            self._reply(message, reply)

    def _reply(self, parent: str, reply: Reply) -> None:
        created = self._tick(1_240)
        message = self.rows.id("msg")
        tokens = self._tokens(reply)
        data: Part = {
            "role": "assistant", "parentID": parent, "mode": self.script.agent,
            "agent": self.script.agent,
            "path": {"cwd": self.script.scope, "root": self.script.scope},
            "cost": _cost(tokens), "tokens": tokens, "modelID": self.script.model, "providerID": PROVIDER,
            "time": {"created": created},
        }  # fmt: skip
        whole = not reply.unfinished and "error" not in reply.extra
        if whole:
            data["finish"] = "tool-calls" if _tools(reply.parts) else "stop"
        self._parts(message, self._steps(reply, data if whole else None))
        if not reply.unfinished:
            data["time"]["completed"] = self._tick(90)
        self._message(message, created, self.at, {**data, **reply.extra})
        if reply.extra.get("summary"):
            self.context, self.cached = SYSTEM_TOKENS + tokens["output"], 0

    def _steps(self, reply: Reply, whole: Part | None) -> list[Part]:
        """The parts with those around them in which OpenCode notes a step and its changes."""
        parts = list(reply.parts)
        if "error" not in reply.extra:
            parts.insert(0, {"type": "step-start", "snapshot": self._snapshot()})
        changed = self._change(reply.parts)
        if whole is not None:
            parts.append({"type": "step-finish", "reason": whole["finish"],
                          "snapshot": self._snapshot(), "tokens": whole["tokens"],
                          "cost": whole["cost"]})  # fmt: skip
        if changed:
            parts.append({"type": "patch", "hash": self._snapshot(), "files": changed})
        return parts

    def _message(self, message: str, created: int, updated: int, data: Part) -> None:
        self.rows.add("message", message, self.script.id, created, updated, _json(data))

    def _parts(self, message: str, parts: Iterable[Part]) -> None:
        for part in parts:
            created = self.at
            data = self._timed(part)
            self.rows.add(
                "part", self.rows.id("prt"), message, self.script.id, created, self.at, _json(data)
            )

    def _timed(self, part: Part) -> Part:
        """The part with its times, and the clock put forward by what it took."""
        start = self.at
        if part["type"] == "tool":
            return self._timed_tool(part, start)
        if part["type"] in ("text", "reasoning"):
            end = self._tick(300 + len(part["text"]) * 21)
            return {**part, "time": {"start": start, "end": end}}
        if part["type"] == "retry":
            return {**part, "time": {"created": self._tick(4_000)}}
        return part

    def _timed_tool(self, part: Part, start: int) -> Part:
        state = {**part["state"], "time": {"start": start}}
        if state["status"] != "running":
            text = state.get("output", state.get("error", ""))
            state["time"]["end"] = self._tick(35 + len(text) % 2_900)
        if part.get("pruned"):
            state["time"]["compacted"] = self.at + 900_000
        return {
            "type": "tool", "tool": part["tool"], "callID": self.rows.call(), "state": state,
        }  # fmt: skip

    def _tokens(self, reply: Reply) -> dict[str, Any]:
        """Tokens as a provider with a cache counts them: about one for four characters."""
        said = sum(len(part.get("text", "")) for part in reply.parts if part["type"] == "text")
        thought = sum(len(part["text"]) for part in reply.parts if part["type"] == "reasoning")
        calls = sum(len(_json(part["state"]["input"])) for part in _tools(reply.parts))
        results = sum(len(part["state"].get("output", "")) for part in _tools(reply.parts))
        fresh = 0 if "error" in reply.extra else self.context - self.cached
        output, reasoning = (said + calls) // 4, thought // 4
        read = 0 if "error" in reply.extra else self.cached
        self.cached = self.context
        self.context += output + reasoning + results // 4 + 40
        for name, count in (
            ("input", fresh), ("output", output), ("reasoning", reasoning), ("read", read),
        ):  # fmt: skip
            self.sums[name] += count
        tokens = {"input": fresh, "output": output, "reasoning": reasoning,
                  "cache": {"read": read, "write": 0},
                  "total": fresh + output + reasoning + read}  # fmt: skip
        self.cost += _cost(tokens)
        return tokens

    def _change(self, parts: Iterable[Part]) -> list[str]:
        """Notes what the parts changed in files; returns the paths."""
        found = []
        for part in _tools(parts):
            given = part["state"]["input"]
            if part["tool"] in _CHANGES and part["state"]["status"] == "completed":
                found.append(given["filePath"])
                new = given.get("newString") or given.get("content") or ""
                self.lines[0] += new.rstrip("\n").count("\n") + 1
                self.lines[1] += given["oldString"].count("\n") + 1 if "oldString" in given else 0
        self.files.update(found)
        return found

    def _snapshot(self) -> str:
        return _sha1(f"{self.script.key} {self.lines}")

    def _reverted(self, message: str) -> None:
        self.revert = _json(
            {"messageID": message, "snapshot": self._snapshot(), "diff": self.script.diff}
        )

    def _newer(self) -> None:
        """The newer runtime: one row a message, numbered by `seq`; inputs and context beside."""
        model = {"id": self.script.model, "providerID": PROVIDER}
        seq = 1
        self._newer_row("model-switched", seq, self.at, {"model": model})
        for number, turn in enumerate(self.script.turns):
            created = self._tick(30 if number == 0 else 55_000 + number * 31_000)
            text = "\n".join(part["text"] for part in turn.user)
            seq += 2
            message = self._newer_row("user", seq, created, {"text": text})
            self.rows.add("session_input", message, self.script.id, _json({"text": text}), seq - 1,
                          seq, created)  # fmt: skip
            for reply in turn.replies:
                seq += 1
                self._newer_reply(reply, seq, model)
        baseline = f"You work in {self.script.scope}. Amounts are whole cents; rates are strings."
        snapshot = {"core/environment": {"value": f"Working directory: {self.script.scope}"}}
        self.rows.add("session_context_epoch", self.script.id, baseline, _json(snapshot), 2)

    def _newer_reply(self, reply: Reply, seq: int, model: dict[str, str]) -> None:
        created = self._tick(1_100)
        tokens = self._tokens(reply)
        start = self._snapshot()
        changed = self._change(reply.parts)
        content = [self._newer_part(part, number) for number, part in enumerate(reply.parts)]
        self._newer_row("assistant", seq, created, {
            "agent": self.script.agent, "model": {**model, "variant": "default"},
            "content": content,
            "snapshot": {"start": start, "end": self._snapshot(), "files": changed},
            "finish": "tool-calls" if _tools(reply.parts) else "stop", "cost": _cost(tokens),
            "tokens": {name: tokens[name] for name in ("input", "output", "reasoning", "cache")},
        }, self._tick(80))  # fmt: skip

    def _newer_part(self, part: Part, number: int) -> Part:
        if part["type"] != "tool":
            self._tick(300 + len(part["text"]) * 21)
            return {"type": part["type"], "id": f"{part['type']}-{number}", "text": part["text"]}
        state = part["state"]
        begin = self.at
        text = state.get("output", "")
        made = {"status": state["status"], "input": state["input"],
                "content": [{"type": "text", "text": text}] if text else [],
                "structured": state.get("metadata", {})}  # fmt: skip
        if "error" in state:
            made["error"] = {"type": "unknown", "message": state["error"]}
        return {
            "type": "tool", "id": self.rows.call(), "name": part["tool"],
            "provider": {"executed": False}, "state": made,
            "time": {"created": begin, "ran": self._tick(6),
                     "completed": self._tick(40 + len(text) % 900)},
        }  # fmt: skip

    def _newer_row(
        self, kind: str, seq: int, created: int, data: Part, completed: int | None = None
    ) -> str:
        message = self.rows.id("msg")
        time = {"created": created} | ({"completed": completed} if completed else {})
        text = _json({"time": time, **data})
        self.rows.add("session_message", message, self.script.id, kind, seq, created,
                      completed or created, text)  # fmt: skip
        return message


def _tools(parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if part["type"] == "tool"]


def _cost(tokens: dict[str, Any]) -> float:
    paid = tokens["output"] + tokens["reasoning"]
    return round(tokens["input"] * 2e-6 + paid * 8e-6 + tokens["cache"]["read"] * 2e-7, 6)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sha1(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()[:40]
