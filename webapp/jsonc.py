"""JSON with comments and trailing commas, read as OpenCode reads its configuration, and changed in one
place with every other byte left as it is.

OpenCode parses with npm's `jsonc-parser` and `allowTrailingComma`; of a key that stands twice the last
one counts. No library on PyPI changes such a text in place without printing the rest of it anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 200

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SAME_LINE = re.compile(r"(?:[ \t]|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")


class JsoncError(ValueError):
    """What is wrong with a text, and where: `line` and `column` count from 1."""

    def __init__(self, text: str, position: int, what: str) -> None:
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {what}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value and the place where it stands. `items` are those of an array or an object; an item of an
    object has a `key`, which begins at `key_start`."""

    value: Any
    start: int
    end: int
    items: tuple[Node, ...] = ()
    key: str | None = None
    key_start: int = -1

    @property
    def begin(self) -> int:
        """Where it begins, with its key if it has one."""
        return self.start if self.key is None else self.key_start

    def find(self, path: Sequence[str]) -> Node | None:
        """What stands at a path of keys, or None."""
        node: Node | None = self
        for key in path:
            assert node is not None
            held = node.items if isinstance(node.value, dict) else ()
            node = next((item for item in reversed(held) if item.key == key), None)
            if node is None:
                return None
        return node


def parse(text: str) -> Node:
    """The tree of a text; one that holds nothing is an empty object of no extent. Raises JsoncError."""
    reader = _Reader(text)
    begin = reader.skip(1 if text.startswith("\ufeff") else 0)
    if begin == len(text):
        return Node({}, begin, begin)
    root = reader.node(begin, 0)
    end = reader.skip(root.end)
    if end < len(text):
        raise JsoncError(text, end, f"{text[end]!r} stands after the end")
    return root


def loads(text: str) -> Any:
    """The value of a text. Raises JsoncError."""
    return parse(text).value


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with a value at a path, whose objects are made where they are missing. Raises JsoncError,
    also where something that is no object stands on the way."""
    root = parse(text)
    node, depth = root, 0
    while depth < len(path) and isinstance(node.value, dict):
        inner = node.find(path[depth : depth + 1])
        if inner is None:
            break
        node, depth = inner, depth + 1
    if depth == len(path):
        return text[: node.start] + _dump(value, _indent_at(text, node), text) + text[node.end :]
    if not isinstance(node.value, dict):
        raise JsoncError(text, node.start, f"“{'.'.join(path[:depth])}” is no object")
    for key in reversed(path[depth + 1 :]):
        value = {key: value}
    return _add(text, root, node, f"{json.dumps(path[depth], ensure_ascii=False)}: ", value)


def append(text: str, path: Sequence[str], value: Any) -> str:
    """The text with a value at the end of the array at a path, which is made where it is missing. Raises
    JsoncError, also for what is no array."""
    root = parse(text)
    node = root.find(path)
    if node is None:
        return put(text, path, [value])
    if not isinstance(node.value, list):
        raise JsoncError(text, node.start, f"“{'.'.join(path)}” is no array")
    return _add(text, root, node, "", value)


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the key at the end of a path; as it is where there is none. Raises JsoncError."""
    root = parse(text)
    holder = root.find(path[:-1])
    node = root.find(path)
    return text if holder is None or node is None else _cut(text, holder, node)


def drop_item(text: str, path: Sequence[str], value: Any) -> str:
    """The text without a value in the array at a path. Raises JsoncError."""
    holder = parse(text).find(path)
    for node in holder.items if holder is not None else ():
        if node.key is None and node.value == value:
            assert holder is not None
            return _cut(text, holder, node)
    return text


def _cut(text: str, holder: Node, node: Node) -> str:
    at = next(n for n, item in enumerate(holder.items) if item is node)
    begin, end = node.begin, node.end
    own_line = _indent_of_line(text, begin) is not None
    if own_line:
        begin = len(text[:begin].rstrip(" \t").removesuffix("\n").removesuffix("\r"))
    comma = _Reader(text).skip(node.end)
    if text[comma] == ",":
        end = comma + 1
        if not own_line and at + 1 < len(holder.items):
            end = holder.items[at + 1].begin
        elif not own_line:
            begin = len(text[:begin].rstrip(" \t"))
    elif at:
        before = _Reader(text).skip(holder.items[at - 1].end)
        if not own_line:
            begin = before + 1
        return text[:before] + text[before + 1 : begin] + text[end:]
    return text[:begin] + text[end:]


def _add(text: str, root: Node, holder: Node, lead: str, value: Any) -> str:
    """The text with one more item at the end of an object or array."""
    if holder.start == holder.end:
        return (
            text[: holder.start]
            + _dump({json.loads(lead[:-2]): value}, "", text)
            + text[holder.end :]
        )
    unit, newline = _unit(text, root), _newline(text)
    last = holder.items[-1] if holder.items else None
    if last is None:
        inside = text[holder.start + 1 : holder.end - 1]
        outer = _indent_at(text, holder)
        item = newline + outer + unit + lead + _dump(value, outer + unit, text)
        if "\n" in inside:
            kept = holder.start + 1 + len(inside.rstrip())
            return text[:kept] + item + text[kept:]
        return (
            text[: holder.end - 1].rstrip(" \t") + item + newline + outer + text[holder.end - 1 :]
        )
    after = _Reader(text).skip(last.end)
    trailing = text[after] == ","
    place = after + 1 if trailing else last.end
    indent = _indent_of_line(text, last.begin)
    if indent is None:
        comma = " " if trailing else ", "
        return text[:place] + comma + lead + _dump(value, None, text) + text[place:]
    line_end = _SAME_LINE.match(text, place)
    assert line_end is not None
    comma = "" if trailing else ","
    end = line_end.end()
    if text[end : end + 1] not in ("\r", "\n"):
        end = place
    item = newline + indent + lead + _dump(value, indent, text)
    return text[:place] + comma + text[place:end] + item + ("," if trailing else "") + text[end:]


def _dump(value: Any, indent: str | None, text: str) -> str:
    """A value as it stands in the text at an indent; on one line without one."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    made = json.dumps(value, ensure_ascii=False, indent=_unit(text, None))
    return made.replace("\n", _newline(text) + indent)


def _newline(text: str) -> str:
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _unit(text: str, root: Node | None) -> str:
    """What one level is indented by: as the first item of the text is, two blanks otherwise."""
    if root is None:
        try:
            root = parse(text)
        except JsoncError:
            return "  "
    for item in root.items:
        indent = _indent_of_line(text, item.begin)
        if indent:
            return indent
    return "  "


def _indent_of_line(text: str, position: int) -> str | None:
    """What stands before a position in its line, or None if that is more than blanks or no line of
    its own."""
    start = text.rfind("\n", 0, position) + 1
    before = text[start:position]
    return before if start and not before.strip(" \t") else None


def _indent_at(text: str, node: Node) -> str:
    """The indent of the line that a node begins in."""
    start = text.rfind("\n", 0, node.start) + 1
    found = re.match(r"[ \t]*", text[start:])
    return found[0] if found else ""


@dataclass(frozen=True, slots=True)
class _Reader:
    text: str

    def skip(self, position: int) -> int:
        """Past blanks and comments."""
        while True:
            space = _SPACE.match(self.text, position)
            assert space is not None
            position = space.end()
            comment = _COMMENT.match(self.text, position)
            if comment is None:
                if self.text.startswith("/*", position):
                    raise JsoncError(self.text, position, "this comment does not end")
                return position
            position = comment.end()

    def node(self, position: int, depth: int) -> Node:
        text = self.text
        if depth > MAX_DEPTH:
            raise JsoncError(text, position, "this is nested too deeply")
        char = text[position : position + 1]
        if char == "{":
            return self._many(position, depth, "}")
        if char == "[":
            return self._many(position, depth, "]")
        if char == '"':
            value, end = self._string(position)
            return Node(value, position, end)
        found = _LITERAL.match(text, position)
        if found is None:
            what = f"{char!r} is no value" if char else "the text ends here, and a value is missing"
            raise JsoncError(text, position, what)
        return Node(json.loads(found[0]), position, found.end())

    def _string(self, position: int) -> tuple[str, int]:
        found = _STRING.match(self.text, position)
        if found is None:
            raise JsoncError(self.text, position, "this string does not end on its line")
        try:
            return json.loads(found[0]), found.end()
        except ValueError as error:
            raise JsoncError(
                self.text, position, "this string has an escape that is none"
            ) from error

    def _many(self, start: int, depth: int, closing: str) -> Node:
        text, items = self.text, []
        position = self.skip(start + 1)
        while text[position : position + 1] != closing:
            if position < len(text):
                found = self._member if closing == "}" else self.node
                items.append(found(position, depth + 1))
                position = self.skip(items[-1].end)
            if position >= len(text):
                raise JsoncError(text, start, f"this {text[start]!r} is not closed")
            if text[position] == ",":
                position = self.skip(position + 1)
            elif text[position] != closing:
                raise JsoncError(text, position, f"a comma or {closing!r} is missing before this")
        value: Any = [item.value for item in items]
        if closing == "}":
            value = {item.key: item.value for item in items}
        return Node(value, start, position + 1, tuple(items))

    def _member(self, position: int, depth: int) -> Node:
        if self.text[position] != '"':
            raise JsoncError(self.text, position, "a key in quotes is missing here")
        key, end = self._string(position)
        colon = self.skip(end)
        if self.text[colon : colon + 1] != ":":
            raise JsoncError(self.text, colon, "a colon is missing after the key")
        found = self.node(self.skip(colon + 1), depth)
        return Node(found.value, found.start, found.end, found.items, key, position)
