"""Messages and parts of a session as they are shown: bounded, masked, and told apart by form.

Nothing is markup here: a template escapes every text. Of each text at most LIMIT characters are
kept, of a page PAGE_LIMIT; `Block.cut` says what was left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from webapp import secrets
from webapp.opencode import Message, Part
from webapp.opencode.session_page import Todo
from webapp.opencode.values import context_size
from webapp.transcripts.window import masked_end

LIMIT = 20_000
PAGE_LIMIT = 1_000_000
AFTER_LIMIT = 400
"""Characters of one text, of all texts of a page, and of a text once those are used up."""

MARKDOWN_LIMIT = 250_000
"""Characters of a page that are rendered as Markdown, which takes up to 10 s a million; the rest is
shown as it is."""

SPARE = 1_024
WORD = 200
PARTS = 300
EVERY_PART = 3000
"""Parts of one message that are shown, and when all are asked for: 100,000 made a page of 38 MB."""

FIELDS = 40
IMAGE_LIMIT = 1_000_000
IMAGES_LIMIT = 4_000_000
"""Characters of one image in a data: URL, and of all on a page."""

SHORT = 700
SHORT_LINES = 14
"""A text up to this is open when the page comes; a longer one is folded."""

DIFF_LINES = 600

_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,([A-Za-z0-9+/]{16,}={0,2})")
_SIGNATURES = {"png": ("iVBORw0KGgo",), "jpeg": ("/9j/",), "gif": ("R0lGOD",), "webp": ("UklGR",)}
"""How the bytes of each kind begin, in base64."""

_ESCAPED = re.compile(r"\\(?:u00([2-7][0-9a-fA-F])|([_.-]))")


@dataclass(frozen=True, slots=True)
class Field:
    """A named value. `cut` counts the characters that were left out."""

    name: str
    text: str
    cut: int = 0

    @property
    def is_long(self) -> bool:
        """Whether it needs a place of its own."""
        return "\n" in self.text or len(self.text) > 160


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a part. `form` is text, said (by a person), markdown, diff, json, fields, todos or
    image; `open` says that it is not folded away at first."""

    label: str
    form: str
    text: str = ""
    cut: int = 0
    open: bool = True
    fields: tuple[Field, ...] = ()
    todos: tuple[Todo, ...] = ()
    runs: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """Characters of the whole text."""
        return len(self.text) + self.cut


@dataclass(frozen=True, slots=True)
class Piece:
    """A part. `type` is OpenCode's word, `kind` gives the colour; `title` and `facts` stand on its
    first line, `status` is a tool's; `session` is the session of a subagent that it started."""

    id: str
    type: str
    kind: str
    title: str = ""
    status: str = ""
    facts: tuple[str, ...] = ()
    badges: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A message. `hidden` parts of it are not in `pieces`; `every` says that all were asked for. One
    that is not `finished` is in no transcript yet."""

    id: str
    role: str
    kind: str
    created_at: int
    facts: tuple[str, ...]
    badges: tuple[tuple[str, str], ...]
    pieces: tuple[Piece, ...]
    hidden: int
    every: bool = False
    finished: bool = True


class Desk:
    """Makes the messages of one page ready to be shown, within the limits of a page."""

    def __init__(self, mask: bool) -> None:
        self._mask = mask
        self._left = PAGE_LIMIT
        self._markdown_left = MARKDOWN_LIMIT
        self._images_left = IMAGES_LIMIT

    def word(self, value: Any, limit: int = WORD) -> str:
        """A value on one line, masked and short; empty for nothing."""
        if value is None or isinstance(value, (dict, list)):
            return ""
        text, cut = self._clean(str(value)[: limit + SPARE], limit)
        return " ".join(text.split()) + ("…" if cut else "")

    def message(self, item: Message, every_part: bool = False) -> Shown:
        """A message with its parts."""
        data = item.data or {}
        compaction = data.get("summary") is True or any(p.type == "compaction" for p in item.parts)
        parts = item.parts[: EVERY_PART if every_part else PARTS]
        pieces = [self._piece(part, item) for part in parts]
        pieces += self._extras(item, data)
        kind = "compaction" if compaction or item.role == "compaction" else item.role
        if item.data is None or data.get("error"):
            kind = "error"
        badges = []
        if data.get("summary") is True:
            badges.append(("compaction summary", "context"))
        elif compaction:
            badges.append(("compaction", "context"))
        if item.interrupted:
            badges.append(("interrupted, never finished", "bad"))
        elif not item.finished:
            badges.append(("still being written", "warn"))
        if data.get("error"):
            badges.append(("failed", "bad"))
        if item.data is None:
            badges.append(("its JSON cannot be read", "bad"))
        return Shown(
            item.id, self.word(item.role, 40) or "unknown",
            kind if kind in ("user", "assistant", "compaction", "error") else "step",
            item.created_at, self._message_facts(data), tuple(badges), tuple(pieces),
            len(item.parts) - len(parts), every_part, item.finished,
        )  # fmt: skip

    def todos(self, rows: Iterable[Any]) -> tuple[Todo, ...]:
        """Lines of a list of things to do."""
        found = []
        for row in rows:
            get: Callable[[str], Any]
            if isinstance(row, Todo):
                found.append(
                    Todo(self.word(row.content, 1_000), self.word(row.status, 40),
                         self.word(row.priority, 40))
                )  # fmt: skip
            elif isinstance(row, dict):
                get = row.get
                found.append(
                    Todo(self.word(get("content"), 1_000), self.word(get("status"), 40),
                         self.word(get("priority"), 40))
                )  # fmt: skip
        return tuple(found)

    def diff(self, label: str, text: str, opened: bool | None = None) -> Block:
        """A diff, whose lines are told apart."""
        block = self._text(label, text, "diff")
        runs: list[tuple[str, str]] = []
        lines = block.text.split("\n")
        for number, line in enumerate(lines):
            if number == DIFF_LINES:
                runs.append(("", "\n".join(lines[number:])))
                break
            kind = _diff_kind(line)
            if runs and runs[-1][0] == kind:
                runs[-1] = (kind, f"{runs[-1][1]}\n{line}")
            else:
                runs.append((kind, line))
        is_open = len(lines) <= 40 if opened is None else opened
        return replace(block, runs=tuple(runs), open=is_open)

    # Texts --------------------------------------------------------------------------------------

    def _clean(self, text: str, limit: int) -> tuple[str, int]:
        """At most `limit` characters of a text, masked, and how many were left out."""
        long = text[: limit + SPARE].encode("utf-8", "backslashreplace").decode()
        cut = max(0, len(text) - limit)
        if not self._mask:
            return long[:limit] if cut else long, cut
        if _ESCAPED.search(long):
            # A credential may hide in the escapes of JSON or Markdown that is shown as it is.
            plain = _ESCAPED.sub(lambda match: match[2] or chr(int(match[1], 16)), long)
            if secrets.find(plain):
                long = plain
        return (masked_end(long, long[:limit]) if cut else secrets.mask(long)), cut

    def _room(self) -> int:
        return LIMIT if self._left > 0 else AFTER_LIMIT

    def _bounded(self, text: str) -> tuple[str, int]:
        found = self._clean(text, self._room())
        self._left -= len(found[0])
        return found

    def _text(self, label: str, text: str, form: str = "text", opened: bool | None = None) -> Block:
        shown, cut = self._bounded(text)
        if form == "markdown":
            self._markdown_left -= len(shown)
            form = form if self._markdown_left >= 0 else "text"
        short = len(shown) <= SHORT and shown.count("\n") < SHORT_LINES
        return Block(label, form, shown, cut, short and not cut if opened is None else opened)

    def _json(self, label: str, value: Any, opened: bool | None = None) -> Block:
        return self._text(label, self._dumped(value), "json", opened)

    def _dumped(self, value: Any) -> str:
        try:
            text = json.dumps(value, ensure_ascii=False)
            # Indenting is done in Python: 5 MB of it would take seconds to be cut away again.
            return json.dumps(value, ensure_ascii=False, indent=2) if len(text) < LIMIT else text
        except (RecursionError, ValueError):
            return "(nested too deeply to be shown)"

    def _value(self, label: str, value: Any, opened: bool | None = None) -> Block:
        if isinstance(value, str):
            return self._text(label, value, opened=opened)
        return self._json(label, value, opened)

    def _fields(self, label: str, values: Mapping[str, Any], opened: bool | None = None) -> Block:
        fields = []
        for number, (name, value) in enumerate(values.items()):
            if number == FIELDS:
                rest = dict(list(values.items())[FIELDS:])
                fields.append(Field("more", *self._bounded(self._dumped(rest))))
                break
            text = value if isinstance(value, str) else self._dumped(value)
            fields.append(Field(self.word(name, 60), *self._bounded(text)))
        size = sum(len(field.text) for field in fields)
        lines = sum(field.text.count("\n") + 1 for field in fields)
        short = size <= SHORT and lines <= SHORT_LINES
        return Block(
            label, "fields", open=short if opened is None else opened, fields=tuple(fields),
            text="".join(field.text for field in fields), cut=sum(field.cut for field in fields),
        )  # fmt: skip

    def _rest(
        self, data: Mapping[str, Any], known: Iterable[str], label: str = "more"
    ) -> list[Block]:
        """Whatever is not shown by name."""
        skipped = set(known)
        rest = {k: v for k, v in data.items() if k not in skipped and v not in (None, "", [], {})}
        return [self._fields(label, rest)] if rest else []

    # Messages -----------------------------------------------------------------------------------

    def _message_facts(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        time = _dict(data.get("time"))
        model = _dict(data.get("model"))
        provider = model.get("providerID") or data.get("providerID")
        name = model.get("modelID") or model.get("id") or data.get("modelID")
        tokens = _dict(data.get("tokens"))
        size = context_size(tokens)
        facts = [
            self.word(data.get("agent") or data.get("mode"), 60),
            "/".join(word for word in (self.word(provider, 60), self.word(name, 80)) if word),
            _seconds(time.get("created"), time.get("completed")),
            f"{size:,} tokens in context" if size else "",
            _cost(data.get("cost")),
            f"finish: {self.word(data['finish'], 40)}" if data.get("finish") else "",
        ]
        return tuple(fact for fact in facts if fact)

    def _extras(self, item: Message, data: Mapping[str, Any]) -> list[Piece]:
        pieces = []
        if item.data is None and item.raw and not any(part.raw == item.raw for part in item.parts):
            pieces.append(
                Piece(f"{item.id}/raw", "unreadable", "error", "message",
                      blocks=(self._text("as it is stored", item.raw, opened=True),))
            )  # fmt: skip
        error = data.get("error")
        if error:
            pieces.append(self._error(f"{item.id}/error", error))
        summary = data.get("summary")
        diffs = summary.get("diffs") if isinstance(summary, dict) else None
        if isinstance(diffs, list) and diffs:
            pieces.append(self._changes(f"{item.id}/changes", diffs))
        if isinstance(summary, dict):
            summary = {k: v for k, v in summary.items() if k != "diffs" or not isinstance(v, list)}
        rest = {
            key: value
            for key, value in data.items()
            if key not in _MESSAGE_KEYS and value not in (None, "", [], {}, "default")
        }
        if summary and summary is not True:
            rest["summary"] = summary
        if rest:
            blocks = (self._fields("more of this message", rest, False),)
            pieces.append(Piece(f"{item.id}/more", "more", "step", blocks=blocks))
        return pieces

    def _error(self, piece_id: str, error: Any) -> Piece:
        held = _dict(error)
        name = self.word(held.get("name") or held.get("type") or "error", 80)
        text = _dict(held.get("data")).get("message") or held.get("message")
        blocks = []
        if isinstance(text, str):
            blocks.append(self._text("", text, opened=True))
        elif isinstance(error, str):
            blocks.append(self._text("", error, opened=True))
        if held.keys() - {"name", "type", "message"}:
            blocks.append(self._json("whole error", error, not blocks))
        return Piece(piece_id, "error", "error", name, blocks=tuple(blocks))

    def _changes(self, piece_id: str, diffs: Sequence[Any]) -> Piece:
        blocks = []
        for change in diffs[:FIELDS]:
            held = _dict(change)
            counts = [
                f"{sign}{held[key]:,}"
                for key, sign in (("additions", "+"), ("deletions", "−"))
                if type(held.get(key)) is int
            ]
            label = " ".join((self.word(held.get("file") or "file"), *counts))
            if isinstance(held.get("patch"), str):
                blocks.append(self.diff(label, held["patch"], False))
            else:
                blocks.append(self._json(label, change, False))
        if len(diffs) > FIELDS:
            blocks.append(self._json(f"{len(diffs) - FIELDS:,} more files", diffs[FIELDS:], False))
        return Piece(
            piece_id, "changes", "file", "files changed in this turn", blocks=tuple(blocks)
        )

    # Parts --------------------------------------------------------------------------------------

    def _piece(self, part: Part, item: Message) -> Piece:
        if part.data is None:
            block = self._text("its JSON does not parse; as it is stored", part.raw, opened=True)
            return Piece(part.id, "unreadable", "error", "part", blocks=(block,))
        make = _MAKERS.get(part.type)
        found = make(self, part, part.data, item) if make is not None else None
        return found if found is not None else self._unknown(part, part.data)

    def _unknown(self, part: Part, data: Mapping[str, Any]) -> Piece:
        kind = self.word(part.type, 60)
        return Piece(part.id, kind, "step", blocks=(self._json("as JSON", data),))

    def _message_text(self, part: Part, data: Mapping[str, Any], item: Message) -> Piece | None:
        if not isinstance(data.get("text"), str):
            return None
        flags = tuple(flag for flag in ("synthetic", "ignored") if data.get(flag))
        # What a person typed is no Markdown: 2*3*4 would lose its signs.
        form = "said" if item.role == "user" else "markdown"
        blocks = [self._text("", data["text"], form, True)]
        blocks += self._rest(data, ("type", "text", "synthetic", "ignored", "time", "id"))
        kind = item.role if item.role in ("user", "assistant") else "step"
        return Piece(part.id, "text", kind, badges=flags, blocks=tuple(blocks))

    def _reasoning(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece | None:
        if not isinstance(data.get("text"), str):
            return None
        time = _dict(data.get("time"))
        blocks = [self._text("", data["text"], opened=True)] if data["text"].strip() else []
        blocks += self._rest(data, ("type", "text", "time", "id"))
        facts = _some(_seconds(time.get("start"), time.get("end")))
        return Piece(part.id, "reasoning", "reasoning", facts=facts, blocks=tuple(blocks))

    def _tool(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece:
        state = _dict(data.get("state"))
        status = self.word(state.get("status"), 40) or "unknown state"
        time, metadata = _dict(state.get("time")), _dict(state.get("metadata"))
        title, given, output = state.get("title"), state.get("input"), state.get("output")
        blocks: list[Block] = []
        todos = _dict(given).get("todos")
        has_todos = (
            isinstance(todos, list) and bool(todos) and all(isinstance(t, dict) for t in todos)
        )
        patch = _dict(given).get("patchText")
        if has_todos and isinstance(todos, list):
            blocks.append(Block("todos", "todos", todos=self.todos(todos[:100])))
        elif isinstance(patch, str):
            blocks.append(self.diff("input", patch))
        if isinstance(given, dict):
            shown = {"todos"} if has_todos else {"patchText"} if isinstance(patch, str) else set()
            left = {key: value for key, value in given.items() if key not in shown}
            blocks += [self._fields("input", left)] if left else []
        elif given not in (None, ""):
            blocks.append(self._value("input", given))
        if state.get("raw"):
            blocks.append(self._value("raw input", state["raw"]))
        if state.get("error") is not None:
            blocks.append(self._value("error", state["error"], True))
        diff = metadata.get("diff")
        if isinstance(diff, str) and diff.strip():
            blocks.append(self.diff("diff", diff))
        if output not in (None, ""):
            blocks.append(self._value("output", output, False if has_todos else None))
        elif output == "":
            blocks.append(Block("output", "text", "(empty)"))
        blocks += self._attachments(state.get("attachments"))
        blocks += self._metadata(metadata, state, todos if has_todos else None)
        known = ["status", "input", "raw", "error", "output", "attachments"]
        shapes = {"title": str, "metadata": dict, "time": dict}
        known += [key for key, shape in shapes.items() if isinstance(state.get(key), shape)]
        blocks += self._rest(state, known, "more of the state")
        keys = ["type", "tool", "callID", "id"]
        if isinstance(data.get("state"), dict):
            keys.append("state")
        blocks += self._rest(data, keys)
        session = metadata.get("sessionId") or metadata.get("sessionID")
        return Piece(
            part.id, "tool", "error" if status == "error" else "tool",
            " ".join(_some(self.word(data.get("tool") or "unknown tool", 80),
                           self.word(title, 160) if isinstance(title, str) else "")),
            status, _some(_seconds(time.get("start"), time.get("end"))),
            ("output cleared from the model's view",) if time.get("compacted") else (),
            tuple(blocks), session if isinstance(session, str) and session else None,
        )  # fmt: skip

    def _metadata(
        self, metadata: Mapping[str, Any], state: Mapping[str, Any], todos: Any
    ) -> list[Block]:
        """What the tool tells of itself, without what stands above already."""
        seen = [state.get("output"), state.get("title"), metadata.get("diff"), todos]
        rest: dict[str, Any] = {}
        for key, value in metadata.items():
            if key == "diff" and isinstance(value, str):
                continue
            if isinstance(value, dict) and metadata.get("diff") == value.get("patch"):
                value = {k: v for k, v in value.items() if k != "patch"}
            if value in (None, "", [], {}) or value is False or any(value == one for one in seen):
                continue
            rest[key] = value
        return [self._fields("metadata", rest, False)] if rest else []

    def _attachments(self, given: Any) -> list[Block]:
        blocks: list[Block] = []
        items = given if isinstance(given, list) else [] if given is None else [given]
        for item in items[:FIELDS]:
            if isinstance(item, dict):
                blocks.append(self._attachment(item))
                blocks += self._rest(item, _FILE_KEYS)
            else:
                blocks.append(self._value("attachment", item))
        if len(items) > FIELDS:
            blocks.append(self._json(f"{len(items) - FIELDS:,} more attachments", items[FIELDS:]))
        return blocks

    def _attachment(self, data: Mapping[str, Any]) -> Block:
        """An image as inert data; anything else by name, size and where it came from."""
        name = self.word(data.get("filename")) or "attachment"
        url = data.get("url")
        found = _IMAGE.fullmatch(url) if isinstance(url, str) and len(url) <= IMAGE_LIMIT else None
        if (
            found
            and found[2].startswith(_SIGNATURES[found[1]])
            and len(found[0]) <= self._images_left
        ):
            self._images_left -= len(found[0])
            return Block(name, "image", found[0])
        fields = [Field("type", self.word(data.get("mime")) or "unknown")]
        if isinstance(url, str):
            head, comma, _ = url[:200].partition(",")
            if url.startswith("data:") and comma:
                what = f"{self.word(head, 100)}, {len(url):,} characters, not shown"
                fields.append(Field("content", what))
            else:
                fields.append(Field("url", self.word(url, 1_000)))
        elif url is not None:
            fields.append(Field("url", *self._bounded(self._dumped(url))))
        return Block(name, "fields", fields=tuple(fields))

    def _file(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece:
        block = self._attachment(data)
        block = block if block.form == "image" else replace(block, label="")
        blocks = [block, *self._rest(data, _FILE_KEYS)]
        return Piece(
            part.id, "file", "file", self.word(data.get("filename")) or "file",
            facts=_some(self.word(data.get("mime"), 80)), blocks=tuple(blocks),
        )  # fmt: skip

    def _patch(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece:
        files = data.get("files")
        blocks: list[Block] = []
        if isinstance(files, list) and files:
            names = "\n".join(
                self.word(f) if isinstance(f, str) else self._dumped(f) for f in files[:500]
            )
            blocks.append(self._text("", names, opened=len(files) <= SHORT_LINES))
        elif files:
            blocks.append(self._json("files", files))
        blocks += self._rest(data, ("type", "hash", "id", "files"))
        facts = _some(self.word(data.get("hash"), 12))
        return Piece(part.id, "patch", "file", "files written", facts=facts, blocks=tuple(blocks))

    def _step(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece:
        tokens = _dict(data.get("tokens"))
        cache = _dict(tokens.get("cache"))
        counts = (
            ("in", tokens.get("input")), ("out", tokens.get("output")),
            ("reasoning", tokens.get("reasoning")), ("cache read", cache.get("read")),
            ("cache write", cache.get("write")),
        )  # fmt: skip
        facts = [self.word(data.get("reason"), 60)]
        facts += [f"{value:,} {name}" for name, value in counts if _is_count(value) and value]
        facts.append(_cost(data.get("cost")))
        snapshot = data.get("snapshot")
        if isinstance(snapshot, str) and snapshot:
            facts.append(f"snapshot {self.word(snapshot, 12)}")
        known = ["type", "reason", "id"]
        known += ["snapshot"] if isinstance(snapshot, str) else []
        known += ["tokens"] if all(_is_count(v) or v is None for _, v in counts) and tokens else []
        known += ["cost"] if _is_count(data.get("cost")) else []
        blocks = [replace(block, open=False) for block in self._rest(data, known)]
        return Piece(part.id, part.type, "step", facts=_some(*facts), blocks=tuple(blocks))

    def _compaction(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece:
        facts = []
        if "auto" in data:
            facts.append("automatic" if data["auto"] else "manual")
        blocks = []
        if isinstance(data.get("summary"), str):
            blocks.append(self._text("summary", data["summary"], "markdown", True))
        known = ["type", "auto", "id", *(["summary"] if blocks else [])]
        return Piece(
            part.id, "compaction", "compaction", facts=tuple(facts),
            blocks=(*blocks, *self._rest(data, known)),
        )  # fmt: skip

    def _named(self, part: Part, data: Mapping[str, Any], _item: Message) -> Piece:
        """A part whose fields speak for themselves."""
        error = data.get("error")
        title = self.word(data.get("name") or data.get("agent") or data.get("description"))
        blocks = [*self._error(part.id, error).blocks] if error else []
        blocks += self._rest(data, ("type", "id", *(("error",) if error else ())), "")
        kind = (
            "error"
            if error or part.type == "retry"
            else "tool"
            if part.type == "subtask"
            else "step"
        )
        return Piece(part.id, part.type, kind, title, blocks=tuple(blocks))


_FILE_KEYS = ("type", "mime", "filename", "url", "id", "sessionID", "messageID")
_MESSAGE_KEYS = frozenset(
    {
        "role", "time", "agent", "mode", "model", "modelID", "providerID", "parentID", "path", "cost",
        "tokens", "finish", "summary", "error", "id", "sessionID",
    }
)  # fmt: skip
_MAKERS: Mapping[str, Callable[[Desk, Part, Mapping[str, Any], Message], Piece | None]] = {
    "text": Desk._message_text,
    "reasoning": Desk._reasoning,
    "tool": Desk._tool,
    "file": Desk._file,
    "patch": Desk._patch,
    "step-start": Desk._step,
    "step-finish": Desk._step,
    "compaction": Desk._compaction,
    **dict.fromkeys(
        ("subtask", "agent", "retry", "snapshot", "synthetic", "system", "shell", "skill",
         "model-switched", "agent-switched"),
        Desk._named,
    ),
}  # fmt: skip


_DIFF_HEADS = (
    "+++", "---", "diff ", "index ", "Index: ", "===", "*** ", "new file", "deleted file",
)  # fmt: skip


def _diff_kind(line: str) -> str:
    if line.startswith(_DIFF_HEADS):
        return "head"
    if line.startswith("@@"):
        return "hunk"
    return {"+": "add", "-": "del"}.get(line[:1], "")


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _some(*words: str) -> tuple[str, ...]:
    return tuple(word for word in words if word)


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _seconds(start: Any, end: Any) -> str:
    """How long something took, as a person reads it."""
    if not (_is_count(start) and _is_count(end) and 0 <= end - start < 10**12):
        return ""
    took = (end - start) / 1000
    if took < 60:
        return f"{took:.1f} s" if took >= 1 else f"{end - start:.0f} ms"
    return f"{took // 60:,.0f} min {took % 60:.0f} s"


def _cost(value: Any) -> str:
    if not _is_count(value) or not 0 < value < 10**9:
        return ""
    return f"${value:.2f}" if value >= 1 else f"${value:.4f}".rstrip("0")
