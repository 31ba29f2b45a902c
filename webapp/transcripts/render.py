"""A session's messages and parts as lines of text. Pure: the same input gives the same lines.

Nothing is paraphrased: text, inputs, outputs and errors stand as they are. Left out are only the
message's own totals of tokens and cost and its reason to finish (the step-finish parts carry them),
its parent and path (the messages before it and the head of the file tell them) and the `summary` of
a user message, which OpenCode fills in later from the patches.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from webapp.opencode import Message, Part, Session

FORMAT = "opencode-memory transcript 1"
LABEL = 80
_CUT = "[… "


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive lines that belong together: a heading and what stands under it.

    `id` names the message or part, `kind` gives the colour in the gutter, `label` a short name for
    an outline. `pruned` says that OpenCode has cleared the output from the model's view. `whole` is
    the text as it would be without a cut, where something was cut.
    """

    id: str
    kind: str
    text: str
    label: str = ""
    pruned: bool = False
    whole: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the text."""
        return tuple(self.text.split("\n"))


@dataclass(frozen=True, slots=True)
class Rendered:
    """A message: the block of its heading and one block a part."""

    heading: Block
    parts: tuple[Block, ...] = field(default_factory=tuple)


def stamp(milliseconds: int) -> str:
    """Epoch milliseconds as `2026-11-30 10:35:02Z`; a time no calendar holds stays a number."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%SZ")


def body(text: str) -> str:
    r"""A text as it stands among lines. Only "\n" ends a line; one at the very end adds none."""
    return text.removesuffix("\n")


def header(session: Session) -> Block:
    """The head of a transcript: facts that never change, and the title at the first export."""
    lines = [
        f"# {one_line(session.title) or session.id}",
        f"{FORMAT}",
        f"session: {session.id}",
        f"scope: {one_line(session.scope)}",
        f"folder: {one_line(session.directory)}",
        f"created: {stamp(session.created_at)}",
        f"opencode: {one_line(session.version) or 'unknown version'}",
    ]
    if session.parent_id:
        lines.append(f"parent: {one_line(session.parent_id)}")
    return Block(session.id, "header", "\n".join(lines), one_line(session.title)[:LABEL])


def message(item: Message, inline_max: int) -> Rendered:
    """A message as blocks; tool output over `inline_max` bytes is cut head and tail."""
    data = item.data or {}
    compaction = bool(data.get("summary") is True) or any(
        p.type == "compaction" for p in item.parts
    )
    words = [f"## {one_line(item.role)}"]
    words += [one_line(str(data.get("agent") or data.get("mode") or "")), _model(data)]
    if compaction and data.get("summary") is not True:
        words.append("compaction")
    words += [stamp(item.created_at), one_line(item.id)]
    if data.get("summary") is True:
        words.append("compaction summary")
    if item.interrupted:
        words.append("interrupted, never finished")
    kind = "compaction" if compaction else item.role
    if item.data is None:
        kind = "error"
        words.append("unreadable")
    lines = [" · ".join(word for word in words if word)]
    if item.data is None and item.raw and not any(part.raw == item.raw for part in item.parts):
        lines.append(body(item.raw))
    blocks = []
    for number, part in enumerate(item.parts):
        block = _part(part, item, number == 0, inline_max)
        if "\n" + _CUT in block.text:
            block = replace(block, whole=_part(part, item, number == 0, sys.maxsize).text)
        blocks.append(block)
    blocks += _message_extras(item, data)
    label = _first_text(item) or item.role
    if compaction:
        label = "compaction summary" if data.get("summary") is True else "compaction"
    return Rendered(Block(item.id, kind, "\n".join(lines), label[:LABEL]), tuple(blocks))


def notice(at: int, what: str, lines: list[str], id: str = "") -> Block:
    """A dated line at the end of a transcript, about something that changed above it."""
    text = "\n".join((f"## notice · {stamp(at)} · {what}", *lines))
    return Block(id, "notice", text, what[:LABEL])


def one_line(text: str) -> str:
    """Text on one line: white space and line ends of any kind become one space."""
    return " ".join(text.split())


def _model(data: Mapping[str, Any]) -> str:
    model = data.get("model")
    if isinstance(model, dict):
        provider, name = model.get("providerID"), model.get("modelID") or model.get("id")
        variant = model.get("variant")
    else:
        provider, name, variant = data.get("providerID"), data.get("modelID"), None
    words = "/".join(str(word) for word in (provider, name) if word)
    return one_line(f"{words} {variant}" if variant and variant != "default" else words)


def _first_text(item: Message) -> str:
    for part in item.parts:
        if part.data and part.type == "text" and not part.data.get("synthetic"):
            return one_line(str(part.data.get("text") or ""))
    return ""


_EXTRAS = ("system", "tools", "format", "structured", "variant")
_MESSAGE_KEYS = {
    "role", "time", "agent", "mode", "model", "modelID", "providerID", "parentID", "path", "cost",
    "tokens", "finish", "summary", "error", "id", "sessionID", *_EXTRAS,
}  # fmt: skip
"""What of a message's own data the heading and the extras show, and what is left out."""


def _message_extras(item: Message, data: Mapping[str, Any]) -> list[Block]:
    blocks = []
    error = data.get("error")
    if error:
        name = error.get("name") or error.get("type") if isinstance(error, dict) else None
        text = error.get("message") if isinstance(error, dict) else None
        detail = error.get("data") if isinstance(error, dict) else None
        if isinstance(detail, dict):
            text = detail.get("message") or text
        lines = [f"### error · {one_line(str(name or 'unknown'))}"]
        if isinstance(text, str):
            lines.append(body(text))
        lines.append(_json(error))
        blocks.append(Block(f"{item.id}/error", "error", "\n".join(lines), f"error: {name}"))
    for key in _EXTRAS:
        if data.get(key) and not (key == "variant" and data[key] == "default"):
            lines = [f"### {key}", *_value(data[key])]
            blocks.append(Block(f"{item.id}/{key}", "step", "\n".join(lines), key))
    rest = _rest(data, _MESSAGE_KEYS)
    if rest:
        blocks.append(Block(f"{item.id}/more", "step", "\n".join(("### more", *rest)), "more"))
    return blocks


def _part(part: Part, item: Message, first: bool, inline_max: int) -> Block:
    if part.data is None:
        return Block(part.id, "error", f"### unreadable part\n{body(part.raw)}", "unreadable part")
    render = _RENDERERS.get(part.type, _unknown)
    return render(part, part.data, item, first, inline_max)


def _text(part: Part, data: Mapping[str, Any], item: Message, first: bool, _max: int) -> Block:
    flags = [flag for flag in ("synthetic", "ignored") if data.get(flag)]
    kind = item.role if item.role in ("user", "assistant") else "step"
    text = data.get("text")
    if not isinstance(text, str):
        return _unknown(part, data, item, first, _max)
    extra = _rest(data, {"type", "text", "synthetic", "ignored", "time", "id", "metadata"})
    extra += _labelled("metadata", data.get("metadata"))
    heading = [] if first and not flags else [" · ".join(["### text", *flags])]
    whole = "\n".join((*heading, body(text), *extra))
    label = one_line(text[:200])
    if len(text) > 200:
        # The cut may have gone through a word, and the half of a credential is not known for one.
        label = label.rpartition(" ")[0] or label
    return Block(part.id, kind, whole, label[:LABEL])


def _reasoning(part: Part, data: Mapping[str, Any], item: Message, first: bool, _max: int) -> Block:
    text = data.get("text")
    if not isinstance(text, str):
        return _unknown(part, data, item, first, _max)
    time = _dict(data.get("time"))
    words = ["### reasoning", _seconds(time.get("start"), time.get("end"))]
    extra = _rest(data, {"type", "text", "time", "id"})
    lines = [" · ".join(w for w in words if w), body(text), *extra]
    return Block(part.id, "reasoning", "\n".join(lines), "reasoning")


def _tool(part: Part, data: Mapping[str, Any], item: Message, first: bool, limit: int) -> Block:
    state = _dict(data.get("state"))
    status = one_line(str(state.get("status") or "unknown state"))
    time = _dict(state.get("time"))
    call = one_line(str(data.get("callID") or ""))
    tool = one_line(str(data.get("tool") or "unknown tool"))
    words = [f"### tool {tool}", status, call, _seconds(time.get("start"), time.get("end"))]
    lines = [" · ".join(word for word in words if word)]
    title = state.get("title")
    if isinstance(title, str) and title.strip():
        lines.append(f"title: {one_line(title)}")
    given = state.get("input")
    if isinstance(given, dict):
        for key, value in given.items():
            lines += _labelled(str(key), value) or [f"{one_line(str(key))}: null"]
    elif given is not None:
        lines += _labelled("input", given)
    if isinstance(state.get("raw"), str) and state["raw"]:
        lines += _labelled("raw input", state["raw"])
    output = state.get("output")
    if output is not None:
        lines.append("#### output")
        text = output if isinstance(output, str) else _json(output)
        if text:
            lines.append(body(_cut(text, limit, call or part.id)))
    if state.get("error") is not None:
        lines += ["#### error", *_value(state["error"])]
    lines += _metadata(_dict(state.get("metadata")), state, limit, call or part.id)
    attachments = state.get("attachments")
    for attachment in attachments if isinstance(attachments, list) else [attachments]:
        if isinstance(attachment, dict):
            lines += _file_lines(attachment, limit, part.id)
        else:
            lines += _labelled("attachment", attachment)
    if not isinstance(data.get("state"), dict):
        lines += _labelled("state", data.get("state"))
    known = {"status", "input", "output", "error", "attachments"}
    shapes = {"title": str, "raw": str, "metadata": dict, "time": dict}
    known |= {key for key, shape in shapes.items() if isinstance(state.get(key), shape)}
    lines += _rest(state, known)
    lines += _rest(data, {"type", "tool", "callID", "state", "id"})
    kind = "error" if status == "error" else "tool"
    shown = one_line(title) if isinstance(title, str) else ""
    return Block(
        part.id,
        kind,
        "\n".join(lines),
        f"{tool} {shown}".strip()[:LABEL],
        bool(time.get("compacted")),
    )


def _metadata(
    metadata: Mapping[str, Any], state: Mapping[str, Any], limit: int, call: str
) -> list[str]:
    """What the tool reported about itself; a value that only repeats the output says so."""
    lines: list[str] = []
    output = state.get("output")
    for key, value in metadata.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, str) and isinstance(output, str) and value.strip() == output.strip():
            lines.append(f"{key}: (same as the output)")
        elif value == state.get("title"):
            continue
        else:
            text = value if isinstance(value, str) else _json(value)
            lines += _labelled(key, _cut(text, limit, call))
    return ["#### metadata", *lines] if lines else []


def _file(part: Part, data: Mapping[str, Any], item: Message, first: bool, limit: int) -> Block:
    lines = _file_lines(data, limit, part.id)
    return Block(
        part.id, "file", "\n".join(lines), one_line(str(data.get("filename") or "file"))[:LABEL]
    )


def _file_lines(data: Mapping[str, Any], limit: int, mark: str) -> list[str]:
    words = [
        "### file", one_line(str(data.get("mime") or "")), one_line(str(data.get("filename") or "")),
    ]  # fmt: skip
    lines = [" · ".join(word for word in words if word)]
    url = data.get("url")
    if isinstance(url, str):
        lines += _labelled("url", _cut(url, limit, mark))
    known = {"type", "mime", "filename", "id", "sessionID", "messageID"}
    return lines + _rest(data, known | ({"url"} if isinstance(url, str) else set()))


def _patch(part: Part, data: Mapping[str, Any], item: Message, first: bool, _max: int) -> Block:
    files = data.get("files")
    lines = [f"### patch · {one_line(str(data.get('hash') or ''))}"]
    if isinstance(files, list):
        lines += [one_line(name) if isinstance(name, str) else _json(name) for name in files]
    lines += _rest(data, {"type", "hash", "id"} | ({"files"} if isinstance(files, list) else set()))
    return Block(part.id, "file", "\n".join(lines), "patch")


def _step(part: Part, data: Mapping[str, Any], item: Message, first: bool, _max: int) -> Block:
    words = [f"### {part.type}"]
    if data.get("reason"):
        words.append(one_line(str(data["reason"])))
    tokens = _dict(data.get("tokens"))
    if tokens:
        cache = _dict(tokens.get("cache"))
        counts = {
            "in": tokens.get("input"), "out": tokens.get("output"),
            "reasoning": tokens.get("reasoning"), "cache read": cache.get("read"),
            "cache write": cache.get("write"),
        }  # fmt: skip
        words += [f"{value} {name}" for name, value in counts.items() if value]
    if isinstance(data.get("cost"), (int, float)):
        words.append(f"cost {data['cost']}")
    if isinstance(data.get("snapshot"), str) and data["snapshot"]:
        words.append(f"snapshot {one_line(data['snapshot'])}")
    known = {"type", "reason", "id"} | ({"tokens"} if tokens else set())
    known |= {"cost"} if isinstance(data.get("cost"), (int, float)) else set()
    known |= {"snapshot"} if isinstance(data.get("snapshot"), str) else set()
    counted = {"input", "output", "reasoning", "cache", "total"}
    more = _rest(tokens, counted) + _rest(data, known)
    return Block(part.id, "step", "\n".join((" · ".join(words), *more)), part.type)


def _compaction(part: Part, data: Mapping[str, Any], item: Message, first: bool, _m: int) -> Block:
    words = ["### compaction"]
    if "auto" in data:
        words.append("automatic" if data["auto"] else "manual")
    lines = [" · ".join(words), *_rest(data, {"type", "auto", "id"})]
    return Block(part.id, "compaction", "\n".join(lines), "compaction")


def _unknown(part: Part, data: Mapping[str, Any], item: Message, first: bool, _max: int) -> Block:
    text = f"### {one_line(part.type)}\n{_json(data)}"
    return Block(part.id, "step", text, part.type[:LABEL])


def _fields(part: Part, data: Mapping[str, Any], item: Message, first: bool, _max: int) -> Block:
    lines = [f"### {part.type}", *_rest(data, {"type", "id"})]
    return Block(part.id, "step", "\n".join(lines), part.type)


_RENDERERS = {
    "text": _text,
    "reasoning": _reasoning,
    "tool": _tool,
    "file": _file,
    "patch": _patch,
    "step-start": _step,
    "step-finish": _step,
    "compaction": _compaction,
    "subtask": _fields,
    "agent": _fields,
    "retry": _fields,
    "snapshot": _fields,
    "synthetic": _fields,
    "system": _fields,
    "shell": _fields,
    "skill": _fields,
    "model-switched": _fields,
    "agent-switched": _fields,
}


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _json(value: Any) -> str:
    if type(value) is int:
        return str(value)
    return _ENCODER.encode(value)


def _value(value: Any) -> list[str]:
    return [body(value) if isinstance(value, str) else _json(value)]


def _labelled(key: str, value: Any) -> list[str]:
    """`key: value` on one line; a text of several lines stands under its key as it is."""
    if value is None:
        return []
    text = value if isinstance(value, str) else _json(value)
    if "\n" in text:
        return [f"{one_line(key)}:", body(text)]
    return [f"{one_line(key)}: {text}"]


def _rest(data: Mapping[str, Any], known: set[str]) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        if key not in known and value not in (None, "", [], {}):
            lines += _labelled(key, value)
    return lines


def _seconds(start: Any, end: Any) -> str:
    if isinstance(start, (int, float)) and isinstance(end, (int, float)) and end >= start:
        return f"{(end - start) / 1000:.2f} s"
    return ""


_WIDEST = 6
"""Bytes of a character as it is written: of a lone surrogate, as `\\udcff`."""


def _cut(text: str, limit: int, mark: str) -> str:
    if len(text) * _WIDEST <= limit:
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return text
    head = data[: limit // 2].decode("utf-8", "ignore")
    tail = data[-(limit // 2) :].decode("utf-8", "ignore")
    gone = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n{_CUT}{gone:,} bytes are cut here · {one_line(mark)} · OpenCode keeps them …]\n{tail}"
