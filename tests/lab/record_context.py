#!/usr/bin/env python3
"""Records what a real OpenCode sends to its model, for tests/unit/test_history.py.

    python tests/lab/record_context.py --opencode BINARY --root /tmp/demo-context \\
        --out tests/fixtures/context/1.18.33.json.xz

It plays invented sessions against the lab's scripted model and keeps the rows of `session`, `message`,
`part` and `session_message` twice (before and after one last prompt to every session) with the messages of
every request, without the system prompt. Everything runs below --root and on loopback.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import importlib.util
import json
import lzma
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LAB = Path(__file__).parents[3] / "shared" / "opencode-lab"
TABLES = ("session", "message", "part", "session_message", "session_context_epoch")
SUMMARY = "## Objective\n- Move the price lists of the shop.\n\n## Next Move\n1. The next list."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def say(text: str, think: str = "") -> dict[str, Any]:
    return {"text": text, **({"think": think} if think else {})}


def call(tool: str, think: str = "", **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args, **({"think": think} if think else {})}


def bash(command: str, think: str = "") -> dict[str, Any]:
    return call("bash", think, command=command, description="Run it")


def scenario(project: Path) -> dict[str, Any]:
    turns: dict[str, list[dict[str, Any]]] = {
        "Count the rows, please.": [
            bash("echo rows=900", "Look first."),
            say("There are 900 rows.", "It is in the output."),
        ],
        "Run what fails.": [
            bash("echo broken; exit 3"),
            call("read", filePath=str(project / "missing.py")),
            call("bash", wrong="argument"),
            say("All three went wrong."),
        ],
        "Write a note.": [
            call("write", filePath=str(project / "note.txt"), content="x\n"),
            say("Written."),
        ],
        "Import the catalogue.": [
            bash("seq -f 'row %04.0f of the catalogue, sku and price' 1 600"),
            say("Imported 600 rows."),
        ],
        "Fail now: MODELFAIL.": [{"fail": 400}],
        "Sleep for long.": [bash("echo before; sleep 45; echo after", "It takes long.")],
        "Doze for long.": [bash("echo early; sleep 44; echo late")],
        "Look at the dot.": [
            call("read", filePath=str(project / "dot.png")),
            say("One pixel."),
        ],
        "Ask a subagent.": [
            call("task", description="Find prices", prompt="List every file that computes a price.",
                 subagent_type="general"),
            say("It found one file."),
        ],
        "List every file that computes a price.": [bash("echo tax.py"), say("- tax.py")],
        "Survey the shop.": [say("Surveyed.")],
        "Tell a story.": [say("Once upon a time there was a list of prices. " * 330)],
        "Think aloud.": [say("Thought.", "A long thought.")],
        "Plan it.": [say("Planned.")],
        "Fill the window.": [
            *(bash(f"seq -f 'fill {n} %04.0f of the window, as if it were text' 1 400")
              for n in range(4)),
            say("Filled."),
        ],
        "Read a lot.": [
            *(bash(f"seq -f 'number {n} %06.0f of many' 1 1900") for n in range(8)),
            say("Read."),
        ],
    }  # fmt: skip
    for n in range(1, 7):
        turns[f"Move list {n}."] = [bash(f"echo list {n} moved"), say(f"List {n} is moved.")]
    return {
        "summary": SUMMARY,
        "sessions": [{"turns": [{"user": text, "steps": steps} for text, steps in turns.items()]}],
    }


class Refusing(BaseHTTPRequestHandler):
    """A model that answers every call with an error."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"error":{"message":"refused","type":"invalid_request_error"}}')


class Recorder:
    """A running OpenCode with its scripted model."""

    def __init__(self, binary: Path, root: Path) -> None:
        spec = importlib.util.spec_from_file_location("make_sessions", LAB / "make_sessions.py")
        assert spec is not None and spec.loader is not None
        self.lab = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.lab)
        self.binary, self.root, self.project = binary.resolve(), root, root / "shop"
        self.project.mkdir(parents=True)
        (self.project / "dot.png").write_bytes(base64.b64decode(PNG))
        (self.project / "AGENTS.md").write_text("# Shop\n\n- Money is `Decimal`.\n")
        (self.project / "notes.txt").write_text("hello from the notes\n")
        commands = self.project / ".opencode" / "command"
        commands.mkdir(parents=True)
        (commands / "survey.md").write_text(
            "---\ndescription: Survey\nagent: general\nsubtask: true\n---\nSurvey the shop.\n"
        )
        self.log = root / "requests.jsonl"
        self.log.touch()
        script = root / "scenario.json"
        script.write_text(json.dumps(scenario(self.project)))
        model_port, self.port = self.lab.free_port(), self.lab.free_port()
        refusing = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
        threading.Thread(target=refusing.serve_forever, daemon=True).start()
        config = self.lab.project_config(model_port, {"compaction": {"prune": True}})
        models = config["provider"]["scripted"]["models"]
        models["m2"] = {"name": "m2", "limit": {"context": 128000, "output": 4000}}
        models["narrow"] = {"name": "narrow", "limit": {"context": 36000, "output": 4000}}
        models["seeing"] = {
            "name": "seeing", "attachment": True, "limit": {"context": 128000, "output": 4000},
            "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]},
        }  # fmt: skip
        config["provider"]["broken"] = {
            "npm": "@ai-sdk/openai-compatible", "name": "broken",
            "options": {"baseURL": f"http://127.0.0.1:{refusing.server_port}/v1", "apiKey": "none"},
            "models": {"m1": {"name": "m1", "limit": {"context": 128000, "output": 4000}}},
        }  # fmt: skip
        (self.project / "opencode.json").write_text(json.dumps(config))
        git = ["git", "-c", "user.name=demo", "-c", "user.email=demo@example.invalid", "-C",
               str(self.project)]  # fmt: skip
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "start"], check=True)
        self.model = subprocess.Popen(
            [sys.executable, str(LAB / "scripted_model.py"), "--port", str(model_port),
             "--scenario", str(script), "--log", str(self.log)]
        )  # fmt: skip
        self.serve()
        self.made: dict[str, str] = {}
        self.newer: set[str] = set()
        self.spans: list[tuple[int, str]] = []

    def serve(self) -> None:
        with (self.root / "serve.log").open("a") as log:
            self.opencode = subprocess.Popen(
                [str(self.binary), "serve", "--port", str(self.port)], cwd=self.project,
                env=self.lab.environment(self.root), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.server = self.lab.Server(self.port)
        self.server.wait()

    def stop(self) -> None:
        for process in (self.opencode, self.model):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def new(self, title: str) -> str:
        self.made[title] = self.server("POST", "/session", {"title": title})["id"]
        return self.made[title]

    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def say(self, session: str, text: str, *more: Any, model: str = "", **body: Any) -> Any:
        self.spans.append((len(self.requests()), session))
        if model:
            body["model"] = {"providerID": "scripted", "modelID": model}
        return self.server(
            "POST", f"/session/{session}/message",
            {"parts": [{"type": "text", "text": text}, *more], **body},
        )  # fmt: skip

    def compact(self, session: str, provider: str = "scripted", model: str = "m1") -> Any:
        self.spans.append((len(self.requests()), session))
        return self.server(
            "POST", f"/session/{session}/summarize", {"providerID": provider, "modelID": model}
        )

    def messages(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server("GET", f"/session/{session}/message")
        return found

    def while_it_runs(self, session: str, text: str, then: Callable[[], Any], **body: Any) -> None:
        """Says something whose tool takes long, and does `then` while it runs."""

        def speak() -> None:
            with contextlib.suppress(OSError, ValueError):
                self.say(session, text, **body)

        before = len(self.requests())
        thread = threading.Thread(target=speak)
        thread.start()
        deadline = time.monotonic() + 30
        while len(self.requests()) == before:
            assert time.monotonic() < deadline, "no request came"
            time.sleep(0.1)
        time.sleep(2.5)
        then()
        thread.join(60)

    def older(self) -> None:
        s = self.new("Plain")
        self.say(s, "Count the rows, please.",
                 {"type": "text", "text": "Added by the program.", "synthetic": True},
                 {"type": "text", "text": "Not for the model.", "ignored": True})  # fmt: skip
        self.say(s, "Run what fails.")
        self.say(s, "Write a note.")

        s = self.new("Compacted, small")
        self.say(s, "Move list 1.")
        self.say(s, "Move list 2.")
        self.compact(s)
        self.say(s, "Move list 3.")

        s = self.new("Compacted once")
        for text in (*["Import the catalogue."] * 3, "Move list 1.", "Move list 2."):
            self.say(s, text)
        self.compact(s)
        self.say(s, "Move list 4.")

        s = self.new("Compacted twice")
        for text in (*["Import the catalogue."] * 3, "Move list 1.", "Move list 2."):
            self.say(s, text)
        self.compact(s)
        for text in ("Move list 3.", "Import the catalogue.", "Move list 4."):
            self.say(s, text)
        self.compact(s)
        fork = self.server("POST", f"/session/{s}/fork", {})
        self.made["Fork"] = fork["id"]
        self.say(s, "Move list 5.")
        self.say(fork["id"], "Move list 6.")

        s = self.new("One long turn, compacted")
        self.say(s, "Fill the window.")
        self.say(s, "Fill the window.")
        self.compact(s)

        s = self.new("Pruned")
        for text in ("Read a lot.", "Move list 1.", "Move list 2.", "Move list 3."):
            self.say(s, text)
            time.sleep(0.5)

        s = self.new("Overflowed")
        self.say(s, "Move list 1.", model="narrow")
        for _ in range(2):
            self.say(s, "Fill the window.", model="narrow")
        self.say(s, "Move list 2.", model="narrow")

        s = self.new("Failed")
        self.say(s, "Move list 1.")
        self.say(s, "Fail now: MODELFAIL.")

        s = self.new("Compaction failed")
        self.say(s, "Move list 1.")
        self.compact(s, "broken")

        s = self.new("Compaction failed, then went on")
        self.say(s, "Move list 1.")
        self.compact(s, "broken")
        for n in (2, 3):
            self.say(s, f"Move list {n}.", model="m1")

        s = self.new("Aborted")
        self.while_it_runs(s, "Sleep for long.",
                           lambda: self.server("POST", f"/session/{s}/abort", {}))  # fmt: skip

        s = self.new("Attached")
        notes = base64.b64encode(b"hello from the notes\n").decode()
        self.say(s, "See both.",
                 {"type": "file", "mime": "text/plain", "filename": "notes.txt",
                  "url": f"data:text/plain;base64,{notes}"},
                 {"type": "file", "mime": "text/plain", "filename": "notes.txt",
                  "url": f"file://{self.project}/notes.txt"},
                 {"type": "file", "mime": "image/png", "filename": "dot.png",
                  "url": f"data:image/png;base64,{PNG}"})  # fmt: skip

        s = self.new("Seen")
        self.say(s, "See it.", {"type": "file", "mime": "image/png", "filename": "dot.png",
                                "url": f"data:image/png;base64,{PNG}"}, model="seeing")  # fmt: skip
        self.say(s, "Look at the dot.", model="seeing")

        s = self.new("Reverted")
        for n in (1, 2, 3):
            self.say(s, f"Move list {n}.")
        users = [m for m in self.messages(s) if m["info"]["role"] == "user"]
        self.server("POST", f"/session/{s}/revert", {"messageID": users[-1]["info"]["id"]})

        s = self.new("Reverted before the compaction")
        for n in (1, 2, 3):
            self.say(s, f"Move list {n}.")
        users = [m for m in self.messages(s) if m["info"]["role"] == "user"]
        self.compact(s)
        self.say(s, "Move list 4.")
        self.server("POST", f"/session/{s}/revert", {"messageID": users[-1]["info"]["id"]})

        s = self.new("Reverted to a part")
        for n in (1, 2):
            self.say(s, f"Move list {n}.")
        answers = [m for m in self.messages(s) if m["info"]["role"] == "assistant"]
        tool = next(p for p in answers[-2]["parts"] if p["type"] == "tool")
        self.server("POST", f"/session/{s}/revert",
                    {"messageID": answers[-2]["info"]["id"], "partID": tool["id"]})  # fmt: skip

        s = self.new("With a subagent")
        self.say(s, "Ask a subagent.")
        for child in self.server("GET", f"/session/{s}/children"):
            self.made["Subagent"] = child["id"]

        s = self.new("Another model")
        self.say(s, "Think aloud.")
        self.say(s, "Count the rows, please.", model="m2")

        s = self.new("Shell and command")
        self.spans.append((len(self.requests()), s))
        self.server("POST", f"/session/{s}/shell", {"agent": "build", "command": "echo by-hand"})
        self.server("POST", f"/session/{s}/command", {"command": "survey", "arguments": ""})

        s = self.new("Planned, then built")
        self.say(s, "Plan it.", agent="plan")

        s = self.new("Empty")

        s = self.new("Killed")
        self.while_it_runs(s, "Doze for long.", lambda: self.kill())
        self.serve()

    def kill(self) -> None:
        """Ends OpenCode as a crash would."""
        self.opencode.send_signal(signal.SIGKILL)
        self.opencode.wait()

    def newer_new(self, title: str, model: str = "m1") -> str | None:
        made = self.server("POST", "/api/session", {})
        if not (isinstance(made, dict) and "data" in made):
            return None
        session: str = made["data"]["id"]
        self.made[title] = session
        self.newer.add(title)
        self.server("POST", f"/api/session/{session}/model",
                    {"model": {"id": model, "providerID": "scripted"}})  # fmt: skip
        return session

    def newer_say(self, session: str, text: str, wait: bool = True, **prompt: Any) -> None:
        self.spans.append((len(self.requests()), session))
        answer = self.server("POST", f"/api/session/{session}/prompt",
                             {"prompt": {"text": text, **prompt}})  # fmt: skip
        if isinstance(answer, dict) and "error" in answer:
            print("prompt:", answer, file=sys.stderr)
        if wait:
            self.newer_wait(session)

    def newer_wait(self, session: str) -> None:
        """Waits until its log has been still for a while."""
        still, seen, deadline = 0, -1, time.monotonic() + 40
        while still < 6 and time.monotonic() < deadline:
            time.sleep(0.4)
            rows = len(self.requests())
            still, seen = (still + 1, seen) if rows == seen else (0, rows)

    def play_newer(self) -> None:
        s = self.newer_new("Newer, plain")
        if s is None:
            return
        for text in ("Count the rows, please.", "Run what fails.", "Think aloud."):
            self.newer_say(s, text)
        s = self.newer_new("Newer, compacted", "narrow")
        assert s is not None
        for text in ("Move list 1.", "Fill the window.", *["Tell a story."] * 5, "Move list 2.",
                     *["Tell a story."] * 3, "Move list 3."):  # fmt: skip
            self.newer_say(s, text)
        s = self.newer_new("Newer, other instructions")
        assert s is not None
        self.newer_say(s, "Move list 1.")
        (self.project / "AGENTS.md").write_text("# Shop\n\n- Prices are integers of cents.\n")
        self.newer_say(s, "Move list 2.")
        s = self.newer_new("Newer, failed")
        assert s is not None
        self.newer_say(s, "Move list 1.")
        self.newer_say(s, "Fail now: MODELFAIL.")
        s = self.newer_new("Newer, aborted")
        assert s is not None
        self.newer_say(s, "Sleep for long.", wait=False)
        time.sleep(4)
        self.server("POST", f"/api/session/{s}/interrupt", {})
        self.newer_wait(s)
        s = self.newer_new("Newer, another model")
        assert s is not None
        self.newer_say(s, "Think aloud.")
        self.server("POST", f"/api/session/{s}/model",
                    {"model": {"id": "m2", "providerID": "scripted"}})  # fmt: skip
        self.newer_say(s, "Count the rows, please.")
        s = self.newer_new("Newer, attached")
        assert s is not None
        self.newer_say(
            s,
            "See it.",
            files=[{"uri": f"data:image/png;base64,{PNG}", "mime": "image/png", "name": "dot.png"}],
        )
        for title in ("Newer, reverted", "Newer, reverted for good"):
            s = self.newer_new(title)
            assert s is not None
            for n in (1, 2):
                self.newer_say(s, f"Move list {n}.")
            rows = self.server("GET", f"/api/session/{s}/message")["data"]
            users = sorted(row["id"] for row in rows if row.get("type") == "user")
            self.server("POST", f"/api/session/{s}/revert/stage", {"messageID": users[-1]})
            if title.endswith("good"):
                self.server("POST", f"/api/session/{s}/revert/commit", {})

    def rows(self) -> dict[str, list[list[Any]]]:
        """The tables as they are now, read beside the running OpenCode."""
        db = self.root / "data" / "opencode" / "opencode.db"
        found: dict[str, list[list[Any]]] = {}
        with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
            for table in TABLES:
                columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                if not columns:
                    continue
                drop = {
                    "baseline",
                    "snapshot",
                    "summary_diffs",
                    "share_url",
                    "permission",
                    "metadata",
                }
                kept = [name for name in columns if name not in drop]
                found[table] = [kept]
                found[table] += map(
                    list,
                    connection.execute(f"SELECT {', '.join(kept)} FROM {table} ORDER BY rowid"),
                )
        return found


def session_of(number: int, request: dict[str, Any], recorder: Recorder) -> str:
    """Which session a request is of. Older versions do not say it in a header."""
    headers = {name.lower(): value for name, value in request["headers"].items()}
    for name in ("x-session-id", "x-session-affinity", "x-opencode-session"):
        if name in headers:
            return str(headers[name])
    first = next(m for m in request["body"]["messages"] if m["role"] == "user")["content"]
    if first == "List every file that computes a price.":
        return recorder.made["Subagent"]
    if first == "Survey the shop.":
        return ""
    return next((s for start, s in reversed(recorder.spans) if start <= number), "")


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without the system prompt before them."""
    start = next((n for n, m in enumerate(messages) if m["role"] != "system"), len(messages))
    return messages[start:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--opencode", required=True, type=Path)
    parser.add_argument("--root", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    recorder = Recorder(args.opencode, args.root)
    try:
        recorder.older()
        recorder.play_newer()
        time.sleep(1)
        before, sent_before = recorder.rows(), len(recorder.requests())
        last: dict[str, list[int]] = {}
        for title, session in list(recorder.made.items()):
            first = len(recorder.requests())
            text = f"Is anything left of {title}?"
            if title in recorder.newer:
                recorder.newer_say(session, text)
            else:
                model = "m1" if title.startswith("Compaction failed") else ""
                recorder.say(session, text, model=model, agent="build")
            last[title] = [first, len(recorder.requests())]
        time.sleep(1)
        after = recorder.rows()
    finally:
        recorder.stop()
    requests = [
        {"session": session_of(number, request, recorder), "model": request["body"]["model"],
         "messages": conversation(request["body"]["messages"])}
        for number, request in enumerate(recorder.requests())
    ]  # fmt: skip
    text = json.dumps(
        {"sessions": recorder.made, "newer": sorted(recorder.newer), "before": before,
         "after": after, "sent_before": sent_before, "last": last, "requests": requests},
        ensure_ascii=False,
    )  # fmt: skip
    text = re.sub(r"BaseHTTP/[\d.]+ Python/[\d.]+", "lab", text)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(args.out, len(text), args.out.stat().st_size, len(requests), file=sys.stderr)


if __name__ == "__main__":
    main()
