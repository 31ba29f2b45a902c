"""Paths by the patterns that OpenCode's configuration may hold (npm's `glob` with `nodir`, as
packages/core/src/util/glob.ts calls it).

Understood are `*`, `?`, `[…]`, `**`, `{a,b}` and a backslash before a character. Not `+(a|b)` and its
like, which are told. Python's own `glob` knows no braces and sets no bound on a walk.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_WALKED = 20_000
MAX_MATCHES = 200
MAX_BRACES = 64
MAX_LOOKED = 200_000
MAX_SECONDS = 2.0
"""Names and folders, and seconds, that all patterns of a configuration may take together."""

_MAGIC = re.compile(r"[*?\[{\\]")
_EXTENDED = re.compile(r"[?*+@!]\([^)]*\)")
_FLAGS = re.IGNORECASE if sys.platform == "darwin" else re.NOFLAG


@dataclass(frozen=True, slots=True)
class Matches:
    """Absolute paths in the order in which OpenCode meets them, and sentences about what was not
    looked at or is not certain."""

    paths: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Effort:
    """What looking for several patterns has taken; `spent` says that it was too much."""

    left: int = field(default_factory=lambda: MAX_LOOKED)
    until: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)
    spent: bool = False

    def take(self) -> None:
        """Counts one name or folder. Raises _EnoughError."""
        self.left -= 1
        if self.spent or self.left < 0 or time.monotonic() > self.until:
            self.spent = True
            raise _EnoughError


def is_literal(pattern: str) -> bool:
    """Whether a pattern is a plain path."""
    return not _MAGIC.search(pattern)


def match(pattern: str, folder: str, effort: Effort, *, hidden: bool) -> Matches:
    """The paths that a relative pattern finds in a folder, no folders among them.

    `hidden` lets wildcards match names that begin with a dot. `**` does not follow links. A walk
    ends after MAX_WALKED names or MAX_MATCHES paths, and says so; when all `effort` is spent, it is
    for the caller to say.
    """
    if _EXTENDED.search(pattern):
        return Matches((), (f"The pattern “{pattern}” uses a form that is not understood here.",))
    if pattern.endswith("/"):
        return Matches(())
    walk = _Walk(hidden, effort)
    found: dict[str, None] = {}
    try:
        for plain in _braces(pattern):
            parts = [part for part in plain.split("/") if part not in ("", ".")]
            for path in walk.below(folder, parts):
                found[os.path.normpath(path)] = None
                if len(found) >= MAX_MATCHES:
                    raise _EnoughError
    except (_EnoughError, RecursionError):
        if effort.spent:
            return Matches(tuple(found))
        return Matches(
            tuple(found),
            (
                f"The pattern “{pattern}” reaches too many files in {folder}; not all were looked at.",
            ),
        )
    doubts: tuple[str, ...] = ()
    if "**" in pattern and len({os.path.dirname(path) for path in found}) > 1:
        doubts = (
            f"OpenCode reads the folders of “{pattern}” at the same time, so the order of its files"
            " differs from call to call.",
        )
    return Matches(tuple(found), doubts)


class _EnoughError(Exception):
    pass


@dataclass(slots=True)
class _Walk:
    hidden: bool
    effort: Effort
    walked: int = 0

    def below(self, folder: str, parts: list[str]) -> Iterator[str]:
        self.effort.take()
        if not parts:
            return
        first, rest = parts[0], parts[1:]
        if first == "**":
            yield from self._anywhere(folder, rest or ["*"])
            return
        if is_literal(first):
            path = os.path.join(folder, first)
            if rest:
                yield from self.below(path, rest)
            elif os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
                yield path
            return
        wanted = _segment(first, self.hidden)
        for entry in self._names(folder):
            if not wanted.fullmatch(entry.name):
                continue
            if rest:
                if os.path.isdir(entry.path):
                    yield from self.below(entry.path, rest)
            elif not entry.is_dir(follow_symlinks=False):
                yield entry.path

    def _anywhere(self, folder: str, rest: list[str]) -> Iterator[str]:
        waiting = [folder]
        for here in waiting:
            yield from self.below(here, rest)
            waiting += [
                entry.path
                for entry in self._names(here)
                if (self.hidden or not entry.name.startswith("."))
                and entry.is_dir(follow_symlinks=False)
            ]

    def _names(self, folder: str) -> list[os.DirEntry[str]]:
        """The last that the file system names comes first: measured with 1.18.33, whose glob puts
        each name before those it has."""
        found: list[os.DirEntry[str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self.walked += 1
                    self.effort.take()
                    if self.walked > MAX_WALKED:
                        raise _EnoughError
                    found.append(entry)
        except (OSError, ValueError):
            return []  # OpenCode's glob passes over a folder that it may not read, too
        return found[::-1]


def _segment(text: str, hidden: bool) -> re.Pattern[str]:
    """One part of a path as a regular expression. What follows a star is an atomic group, as in
    Python's `fnmatch`: the leftmost place is as good as any, and many stars stay linear."""
    runs = [""]
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "*":
            runs.append("")
        elif char == "?":
            runs[-1] += "."
        elif char == "\\" and at < len(text):
            runs[-1] += re.escape(text[at])
            at += 1
        elif char == "[" and (end := text.find("]", at + 1 + (text[at : at + 1] in "!^"))) > 0:
            inner = text[at:end]
            no = inner.startswith(("!", "^"))
            inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[1:] if no else inner)
            runs[-1] += f"[{'^' if no else ''}{inner}]"
            at = end + 1
        else:
            runs[-1] += re.escape(char)
    first, *middle = runs
    last = f".*{middle.pop()}" if middle else ""
    dots = "" if hidden or text.startswith((".", "\\.")) else r"(?!\.)"
    body = first + "".join(f"(?>.*?{run})" for run in middle if run) + last
    try:
        return re.compile(dots + body, _FLAGS | re.DOTALL)
    except re.error:
        return re.compile(re.escape(text), _FLAGS)


def _braces(pattern: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`, the innermost first. Braces without a comma stay as they are."""
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop(0)
        found = re.search(r"(?<!\\)\{([^{}]*,[^{}]*)\}", text)
        if found is None or len(waiting) + len(done) >= MAX_BRACES:
            done.append(text)
            continue
        waiting += [
            text[: found.start()] + choice + text[found.end() :] for choice in found[1].split(",")
        ]
    return done
