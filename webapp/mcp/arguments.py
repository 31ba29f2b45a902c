"""The arguments of a tool: their JSON Schema, and what a model gave as values.

Checked here and not by a schema library, so that what is wrong is told in a sentence that a model can
act on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webapp.errors import InvalidInput

STRING, INTEGER, BOOLEAN, STRINGS, WHEN = "string", "integer", "boolean", "strings", "when"
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    STRING: {"type": "string"},
    INTEGER: {"type": "integer"},
    BOOLEAN: {"type": "boolean"},
    STRINGS: {"type": "array", "items": {"type": "string"}},
    WHEN: {"type": ["integer", "string"]},
}
_WORDS = {
    STRING: "a text", INTEGER: "a whole number", BOOLEAN: "true or false",
    STRINGS: "a list of texts", WHEN: "a time in milliseconds, or a text such as 30d or 2026-11-30",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. A number beyond `least` and `most` is taken for the nearest that is allowed."""

    name: str
    kind: str
    description: str
    required: bool = False
    default: Any = None
    least: int | None = None
    most: int | None = None

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        found: dict[str, Any] = {**_SCHEMAS[self.kind], "description": self.description}
        if self.default is not None:
            found["default"] = self.default
        if self.least is not None:
            found["minimum"] = self.least
        if self.most is not None:
            found["maximum"] = self.most
        return found


def schema(arguments: Sequence[Argument]) -> dict[str, Any]:
    """The JSON Schema of all arguments of a tool."""
    return {
        "type": "object",
        "properties": {one.name: one.schema() for one in arguments},
        "required": [one.name for one in arguments if one.required],
        "additionalProperties": False,
    }


def read(arguments: Sequence[Argument], given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values of all arguments, defaults among them. Raises InvalidInput."""
    given = given or {}
    known = {one.name for one in arguments}
    unknown = sorted(str(name)[:40] for name in given if name not in known)
    if unknown:
        raise InvalidInput(
            f"There is no argument {', '.join(unknown)}. Known: {', '.join(sorted(known))}.",
            unknown[0],
        )
    return {one.name: _value(one, given.get(one.name)) for one in arguments}


def _value(one: Argument, value: Any) -> Any:
    if value is None:
        if one.required:
            raise InvalidInput(f"The argument {one.name} is missing: {one.description}", one.name)
        return one.default
    found = _read(one.kind, value)
    if found is None:
        raise InvalidInput(f"The argument {one.name} is {_WORDS[one.kind]}.", one.name)
    if one.kind == INTEGER:
        found = max(found, one.least) if one.least is not None else found
        found = min(found, one.most) if one.most is not None else found
    return found


def _read(kind: str, value: Any) -> Any:
    """A value as it is meant (models write numbers as texts, too), or None."""
    if kind == STRING:
        return value if isinstance(value, str) else None
    if kind == BOOLEAN:
        named = {"true": True, "false": False}
        return value if isinstance(value, bool) else named.get(str(value).lower())
    if kind == STRINGS:
        values = [value] if isinstance(value, str) else value
        whole = isinstance(values, list) and all(isinstance(one, str) for one in values)
        return values if whole else None
    if kind == WHEN and isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        text = value.strip()
        return (
            int(text)
            if text.isascii() and text.removeprefix("-").isdigit() and len(text) < 16
            else None
        )
    return value if isinstance(value, int) else None
