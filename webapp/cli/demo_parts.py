"""The words in which the invented sessions are told: turns, replies, and the parts of OpenCode.

A part is what OpenCode 1.18 keeps in `part.data`, without times and call ids; those are put in
where the database is written.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

SHOP = "/home/demo/shop"
BILLING = "/home/demo/billing"
DOCS = "/home/demo/docs"

Part = dict[str, Any]
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


PROVIDER, MODEL = "example", "coder-large"


@dataclass(frozen=True, slots=True)
class Reply:
    """One message of the model. `extra` overrides keys of the message, such as `error`;
    `unfinished` leaves it as OpenCode has it while the model is still at work."""

    parts: tuple[Part, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What a person (or OpenCode in their name) sent, and the replies to it."""

    user: tuple[Part, ...]
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A session. `age` is days from its begin to now, `key` a word that its id is made of.

    `parent` is the key of the session that started a subagent, `reverted` the number of the turn
    that was taken back, `newer` says that it ran in the newer runtime. One that is not `exported`
    has no transcript yet.
    """

    key: str
    scope: str
    age: float
    title: str
    turns: tuple[Turn, ...]
    agent: str = "build"
    parent: str = ""
    reverted: int | None = None
    diff: str = ""
    archived: bool = False
    newer: bool = False
    exported: bool = True
    model: str = MODEL

    @property
    def id(self) -> str:
        """The id in OpenCode's form."""
        return session_id(self.key)


def base62(word: str, length: int = 14) -> str:
    """Characters that look random and are the same for the same word."""
    number = int.from_bytes(hashlib.sha256(word.encode()).digest(), "big")
    found = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        found += _BASE62[digit]
    return found


def session_id(key: str) -> str:
    """An id such as `ses_dd3fa7799ffeDA83chqbcCrP0c`, the same in every run."""
    return f"ses_{hashlib.sha256(key.encode()).hexdigest()[:9]}ffe{base62(key)}"


def clean(text: str) -> str:
    """A text in triple quotes that begins on its second line, without its indentation."""
    return dedent(text).strip("\n") if text.startswith("\n") else text


def turn(user: str | Sequence[Part], *replies: Sequence[Part] | Reply) -> Turn:
    """A turn; a reply that needs nothing but its parts may be a list of them."""
    parts = (say(user),) if isinstance(user, str) else tuple(user)
    made = (r if isinstance(r, Reply) else Reply(tuple(r)) for r in replies)
    return Turn(parts, tuple(made))


def compaction(auto: bool, summary: str) -> Turn:
    """A compaction: a user message that asks for it, and the summary."""
    extra = {"summary": True, "mode": "compaction", "agent": "compaction"}
    return Turn(({"type": "compaction", "auto": auto},), (Reply((say(summary),), extra),))


def say(text: str, **flags: bool) -> Part:
    """A text part; `flags` may be `synthetic` or `ignored`."""
    return {"type": "text", **flags, "text": clean(text)}


def think(text: str) -> Part:
    """A reasoning part."""
    return {"type": "reasoning", "text": clean(text)}


def tool(
    name: str, given: Mapping[str, Any], output: str, title: str, metadata: Mapping[str, Any]
) -> Part:
    """A completed tool call."""
    state = {
        "status": "completed", "input": dict(given), "output": output,
        "metadata": {**metadata, "truncated": False}, "title": title,
    }  # fmt: skip
    return {"type": "tool", "tool": name, "state": state}


def failed(name: str, given: Mapping[str, Any], error: str) -> Part:
    """A tool call that ended in an error."""
    state = {"status": "error", "input": dict(given), "error": clean(error)}
    return {"type": "tool", "tool": name, "state": state}


def running(name: str, given: Mapping[str, Any], title: str) -> Part:
    """A tool call that has not ended."""
    state = {"status": "running", "input": dict(given), "title": title, "metadata": {}}
    return {"type": "tool", "tool": name, "state": state}


def pruned(part: Part) -> Part:
    """A tool call whose output OpenCode has cleared from the model's view."""
    return {**part, "pruned": True}


def bash(command: str, output: str, description: str, code: int = 0) -> Part:
    """A shell command and what it printed."""
    command, output = clean(command), clean(output)
    output += "" if output.endswith("\n") or not output else "\n"
    given = {"command": command, "description": description}
    return tool("bash", given, output, command, {"output": output, "exit": code})


def read(path: str, content: str) -> Part:
    """A file that was read."""
    content = clean(content)
    lines = content.split("\n")
    numbered = "\n".join(f"{number}: {line}" for number, line in enumerate(lines, 1))
    output = (
        f"<path>{path}</path>\n<type>file</type>\n<content>\n{numbered}\n\n"
        f"(End of file - total {len(lines)} lines)\n</content>"
    )
    preview = "\n".join(lines[:20])
    return tool(
        "read", {"filePath": path}, output, _short(path), {"preview": preview, "loaded": []}
    )


def write(path: str, content: str) -> Part:
    """A file that was written."""
    content = clean(content) + "\n"
    given = {"filePath": path, "content": content}
    about = {"filepath": path, "exists": False}
    return tool("write", given, "Wrote file successfully.", _short(path), about)


def edit(path: str, old: str, new: str, line: int = 1) -> Part:
    """A replacement in a file, with the diff that OpenCode notes."""
    old, new = clean(old), clean(new)
    before, after = old.split("\n"), new.split("\n")
    hunk = [f"-{text}" for text in before] + [f"+{text}" for text in after]
    head = f"@@ -{line},{len(before)} +{line},{len(after)} @@"
    diff = "\n".join([f"--- {path}", f"+++ {path}", head, *hunk]) + "\n"
    given = {"filePath": path, "oldString": old, "newString": new}
    return tool("edit", given, "Edit applied successfully.", _short(path), {"diff": diff})


def grep(pattern: str, path: str, *hits: tuple[str, int, str]) -> Part:
    """A search in files; a hit is a path below `path`, a line number and the line."""
    lines = [f"Found {len(hits)} matches"]
    for name in dict.fromkeys(hit[0] for hit in hits):
        lines.append(f"{path}/{name}:")
        lines += [f"  Line {number}: {text}" for file, number, text in hits if file == name]
    given = {"pattern": pattern, "path": path}
    return tool("grep", given, "\n".join(lines), pattern, {"matches": len(hits)})


def glob(pattern: str, path: str, *names: str) -> Part:
    """A search for file names."""
    output = "\n".join(f"{path}/{name}" for name in names)
    return tool("glob", {"pattern": pattern, "path": path}, output, pattern, {"count": len(names)})


def todo(*items: tuple[str, str, str]) -> Part:
    """The list of things to do: content, status and priority of each."""
    todos = [dict(zip(("content", "status", "priority"), item, strict=True)) for item in items]
    left = sum(item["status"] != "completed" for item in todos)
    output = json.dumps(todos, indent=2, ensure_ascii=False)
    return tool("todowrite", {"todos": todos}, output, f"{left} todos", {"todos": todos})


def task(description: str, prompt: str, agent: str, key: str, result: str) -> Part:
    """A subagent's work; `key` is that of its session."""
    child = session_id(key)
    output = (
        f'<task id="{child}" state="completed">\n<task_result>\n{clean(result)}\n</task_result>\n'
        "</task>"
    )
    given = {"description": description, "prompt": prompt, "subagent_type": agent}
    return tool("task", given, output, description, {"sessionId": child})


def file(name: str, mime: str, url: str) -> Part:
    """An attachment."""
    return {"type": "file", "mime": mime, "filename": name, "url": url}


def _short(path: str) -> str:
    return "/".join(path.split("/")[4:])
