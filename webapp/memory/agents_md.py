"""A proposal for AGENTS.md: where it may go, the exact change, the write, and taking it back.

A person confirms a change that was shown byte for byte: `propose` makes it with a fingerprint, `write`
applies that one or refuses with a new one. The order of a write is backup, receipt, file, receipt:

* killed after the backup, nothing is written and nothing is told;
* killed after the receipt or after the file, the receipt is there, and `change_of` tells from the
  file itself whether it was written.

The new text comes by a rename in the same folder, so that no reader ever meets half of it. Writers of
this program take turns by a lock on the folder.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets as random
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webapp import secrets
from webapp.errors import (
    Busy,
    Conflict,
    InvalidInput,
    MemoryAppError,
    NotFound,
    PlanChanged,
    SecretRefused,
    Unreadable,
)
from webapp.opencode import Session, read_config, reading
from webapp.opencode.instructions import (
    AGENTS,
    CLAUDE,
    CONTEXT,
    Instructions,
    Rule,
    instructions,
)
from webapp.settings import Places
from webapp.store import ReceiptRow, Store, now_ms, private_folder, receipts
from webapp.store.receipts import Receipt

ACTION = "instructions"
FAMILY = (AGENTS, CLAUDE, CONTEXT)
MAX_FILE = 1_000_000
MAX_TEXT = 8_000
MAX_HEADINGS = 200
MAX_SHOWN_LINE = 2_000
"""Characters of a line around a change that a diff shows; the others are counted."""

AROUND = 3
MASK_ABOVE = 120
PATIENCE_S = 5.0
END = "end"
NEWER = (
    f"OpenCode's newer runtime, which this session is of, reads {AGENTS} only, and not this file."
)
SCRATCH = "opencode-memory-"
"""What is in the name of a file that is still being written."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Zero width, bidirectional, line separators, and the tags and variation selectors that spell a text which
# a model reads and nobody sees; not the joiners of an emoji.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
_FENCE = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|\Z)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s")


@dataclass(frozen=True, slots=True)
class Target:
    """A file that may be proposed to. `path` is how OpenCode names it, `file` where it really is.

    `where` says in words what it is for, `state` whether OpenCode reads it, `warning` what writing it
    would do besides or why it would be of no use, and `problem` why it cannot be written. `everywhere`
    is a file that holds for every project.
    """

    key: str
    path: Path
    file: Path
    where: str
    exists: bool
    state: str
    warning: str = ""
    problem: str = ""
    everywhere: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a file; `place` is what names the end of its own text."""

    place: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change as it would be made: `before` is None for a file that is not there. `diff` are the
    lines of a unified diff, credentials in the lines around it masked; `notes` are sentences."""

    target: Target
    text: str
    place: str
    before: bytes | None
    after: bytes
    diff: tuple[str, ...]
    added: int
    notes: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Change:
    """What a receipt tells of a write, and how things stand now.

    `state` is `written` (the file is what was written), `former` (it is what it was before),
    `changed` (somebody wrote to it since) or `unknown` (it cannot be read); `told` says it in words.
    """

    file: Path
    backup: Path | None
    was_there: bool
    is_there: bool
    diff: tuple[str, ...]
    scope: str
    origin: Mapping[str, Any] = field(default_factory=dict)
    takes_back: int | None = None
    interrupted: bool = False
    state: str = "unknown"
    told: str = ""


# Where a text may go ------------------------------------------------------------------------------


def targets(scope: str, session: Session | None, places: Places) -> tuple[Target, ...]:
    """The instruction files that a text of this scope may be proposed to, the nearest first.

    They are made here and never taken from an address: AGENTS.md of the project's root, of the
    session's folder inside it, of OpenCode's config folder; and where OpenCode reads CLAUDE.md or
    CONTEXT.md today, which a new AGENTS.md would hide, that file.
    """
    found: list[Target] = []
    home = places.own_config_dir or places.config_dir
    newer = False
    if scope.startswith("/") and "\0" not in scope:
        root = Path("/" + os.path.abspath(scope).lstrip("/"))
        folder = Path(os.path.abspath(session.directory or scope)) if session else root
        told = _told(session, root, folder, places)
        if root != Path("/"):
            newer = _is_newer(session, root, places)
            found += _project(told, root, folder, places, newer)
    else:
        told = _told(None, home, home, places)
    found += _home(told, home, places, newer)
    return tuple(found)


def _told(session: Session | None, root: Path, folder: Path, places: Places) -> Instructions:
    """What OpenCode reads today, by the rules of the older runtime: those of the newer one are part
    of them (AGENTS.md only), so that a warning is never too few."""
    if session is None or not folder.is_relative_to(root):
        session = Session("", Path(), str(root), str(root), "", "", None, 0, 0, None, None)
    return instructions(session, read_config(session, root, places), places)


def _is_newer(session: Session | None, root: Path, places: Places) -> bool:
    """Whether OpenCode's newer runtime wrote a session last; what cannot be asked is the older one's."""
    if session is None:
        return False
    try:
        with reading(session.db) as connection:
            config = read_config(session, root, places)
            return instructions(session, config, places, connection).newer
    except MemoryAppError:
        return False


def _project(
    told: Instructions, root: Path, folder: Path, places: Places, newer: bool
) -> Iterator[Target]:
    names = [(root / AGENTS, "The root of the project")]
    if folder != root and folder.is_relative_to(root):
        names.append((folder / AGENTS, "The folder of the session"))
    others = [
        item.place for item in told.items
        if item.rule is Rule.UPWARD and os.path.basename(item.place) != AGENTS
        and Path(item.place).is_relative_to(root)
    ]  # fmt: skip
    real = Path(os.path.realpath(root))
    folders = [Path(os.path.realpath(at)) for at in (root, folder, *folder.parents)]
    allowed = {str(at / name) for at in folders if at.is_relative_to(real) for name in FAMILY}
    shadow = ""
    if others:
        name = os.path.basename(others[0])
        shadow = (
            f"OpenCode reads {_listed(others)} today. It takes only the first of {AGENTS}, {CLAUDE} and"
            f" {CONTEXT} that it finds in a project, so a new {AGENTS} would hide"
            f" {'it' if len(others) == 1 else 'them'}: the model would no longer see what {name} says."
            " Better add to the file that is read."
        )
    if others and newer:
        shadow = (
            f"OpenCode's older runtime reads {_listed(others)} today and would read a new {AGENTS} in its"
            f" place. The newer one, which this session is of, reads {AGENTS} only."
        )
    warning = NEWER if newer else ""
    read = [
        _target(
            told, Path(place), root, allowed, f"The project's {os.path.basename(place)}", warning
        )
        for place in others
    ]
    own = []
    for path, where in names:
        warning = "" if os.path.lexists(path) else shadow
        if not os.path.lexists(path) and not places.project:
            warning = (
                "OPENCODE_DISABLE_PROJECT_CONFIG is set, so OpenCode reads no file of a project."
            )
        own.append(_target(told, path, root, allowed, where, warning))
    # The file that is read today is the one that is meant.
    yield from (*own, *read) if newer else (*read, *own)


def _home(told: Instructions, home: Path, places: Places, newer: bool) -> Iterator[Target]:
    others = [item.place for item in told.items if item.rule is Rule.CLAUDE_HOME]
    allowed = {os.path.join(os.path.realpath(home), name) for name in FAMILY}
    path = home / AGENTS
    shadow = ""
    if others and not os.path.lexists(path):
        shadow = (
            f"OpenCode reads {others[0]} today, since its config folder has no {AGENTS}. It takes one"
            f" global file only, so a new {AGENTS} would hide that one. Better add to the file that is"
            " read."
        )
    for place in others:
        base = places.home / ".claude"
        inside = {os.path.join(os.path.realpath(base), CLAUDE)}
        where = "Claude Code's file for every project of this machine"
        yield replace(
            _target(told, Path(place), base, inside, where, NEWER if newer else ""), everywhere=True
        )
    target = _target(told, path, home, allowed, "For every project of this machine", shadow)
    yield replace(target, everywhere=True)


def _listed(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else ", ".join(places[:-1]) + " and " + places[-1]


def _target(
    told: Instructions, path: Path, base: Path, allowed: set[str], where: str, warning: str
) -> Target:
    exists = os.path.lexists(path)
    file, problem = _file_of(path, base, allowed)
    if not problem:
        problem = _unusable(file)
    return Target(
        hashlib.sha256(os.fsencode(path)).hexdigest()[:12], path, file, where, exists,
        _state(told, path, exists), warning, problem,
    )  # fmt: skip


def _state(told: Instructions, path: Path, exists: bool) -> str:
    if not exists:
        return "It is not there yet; once it is, OpenCode reads it."
    for item in told.items:
        if item.place == str(path):
            if item.sent:
                return "OpenCode reads it."
            return " ".join(item.problems) or "OpenCode does not read it."
    for shaded in told.shadowed:
        if shaded.place == str(path):
            return f"OpenCode does not read it now: {shaded.reason}"
    return "OpenCode does not read it in a session of this folder."


def _file_of(path: Path, base: Path, allowed: set[str]) -> tuple[Path, str]:
    """Where a path really leads, or why it must not be written."""
    root, parent = os.path.realpath(base), os.path.realpath(path.parent)
    if not os.path.isdir(parent):
        return path, f"The folder {path.parent} is not there."
    if parent != root and not parent.startswith(root.rstrip("/") + "/"):
        return path, f"{path.parent} is a link that leads out of {base}, to {parent}."
    file = Path(parent) / path.name
    if not os.path.islink(file):
        return file, ""
    real = os.path.realpath(file)
    if not os.path.lexists(real) or os.path.islink(real):
        return file, f"{path} is a link that leads nowhere ({real})."
    if real not in allowed:
        return file, (
            f"{path} is a link to {real}, which is none of the files that can be proposed to. Edit that"
            " file yourself."
        )
    return Path(real), ""


def _unusable(file: Path) -> str:
    """Why a file cannot be read or written, or nothing."""
    try:
        before = _load(file)
    except MemoryAppError as error:
        return error.message
    if before is not None:
        state = file.stat()
        if not state.st_mode & 0o222 or not os.access(file, os.W_OK):
            return f"{file} is write-protected."
        if state.st_nlink > 1:
            return f"{file} has another name (a hard link), which a write would part from it."
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return f"The folder {file.parent} is write-protected."
    return ""


def _load(file: Path) -> bytes | None:
    """The bytes of a file that can be proposed to, None where there is none. Raises Conflict with the
    reason for anything else; what is no regular file is not opened, as that could wait for ever."""
    try:
        if not stat.S_ISREG(os.lstat(file).st_mode):
            raise Conflict(f"{file} is no regular file.")
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Conflict(f"{file} is no regular file.")
            data = opened.read(MAX_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Conflict(f"{file} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE:
        raise Conflict(f"{file} has more than {MAX_FILE:,} bytes; no such file is written here.")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Conflict(
            f"{file} is not UTF-8 (at byte {error.start:,}), so it is not touched."
        ) from error
    if "\0" in text:
        raise Conflict(f"{file} holds NUL characters, so it is no text and is not touched.")
    return data


# The change ---------------------------------------------------------------------------------------


def headings(target: Target) -> tuple[Heading, ...]:
    """The headings under which a text may go: none inside a code block or a comment."""
    if target.problem:
        return ()
    before = _load(target.file)
    if before is None:
        return ()
    places, _ = _sections(before.decode("utf-8").split("\n"))
    return tuple(
        Heading(str(number), level, text[:200])
        for number, (_, level, text) in enumerate(places[:MAX_HEADINGS])
    )


def _sections(lines: Sequence[str]) -> tuple[list[tuple[int, int, str]], str]:
    """The headings, each with its line (from 0), level and text, and what is still open at the end:
    `code`, `comment` or nothing. A fence counts at any indentation, as in an item of a list."""
    found: list[tuple[int, int, str]] = []
    fence, comment, above = "", False, ""
    for number, raw in enumerate(lines[_front_matter(lines) :], _front_matter(lines)):
        line = raw.removeprefix("\ufeff").rstrip("\r") if number == 0 else raw.rstrip("\r")
        # What an underline would make a heading of.
        paragraph, above = above, ""
        match = _FENCE.fullmatch(line)
        if comment:
            comment = "-->" not in line
        elif fence:
            if match and match["fence"].startswith(fence) and not match["info"].strip():
                fence = ""
        elif match and not (match["fence"][0] == "`" and "`" in match["info"]):
            fence = match["fence"]
        elif line.lstrip().startswith("<!--"):
            comment = "-->" not in line
        elif heading := _HEADING.match(line):
            text = line[heading.end() :].strip()
            bare = text.rstrip("#")
            closed = not bare or bare[-1] in " \t"
            found.append((number, len(heading[1]), bare.strip() if closed else text))
        elif paragraph and _UNDERLINE.fullmatch(line):
            found.append((number - 1, 1 if "=" in line else 2, paragraph.strip()))
        elif not line.startswith(("    ", "\t", "|", ">")) and not _ITEM.match(line):
            above = line
    return found, "code" if fence else "comment" if comment else ""


def _front_matter(lines: Sequence[str]) -> int:
    """The lines of settings that some programs keep at the top, between two lines of `---`."""
    if lines[0].removeprefix("\ufeff").rstrip() != "---":
        return 0
    for number, line in enumerate(lines[1:200], 1):
        if line.rstrip() == "---":
            return number + 1
    return 0


def check(text: str) -> str:
    """The text as it would be written. Raises InvalidInput and SecretRefused."""
    text = text.replace("\r\n", "\n").strip("\n")
    if not text.strip():
        raise InvalidInput("The text is empty; write what the file is to say.", "text")
    if len(text) > MAX_TEXT:
        raise InvalidInput(
            f"The text has {len(text):,} characters; at most {MAX_TEXT:,} fit. Every session pays for"
            " each of them.",
            "text",
        )
    odd = sorted({match[0] for match in _CONTROL.finditer(text)})
    if odd:
        raise InvalidInput(
            f"The text holds control characters ({named(odd)}), which can hide what it says. Take them"
            " out.",
            "text",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput("The text is not valid Unicode.", "text") from error
    secret = secrets.find(text)
    if secret:
        raise SecretRefused(
            f"The text looks like it holds a secret ({secret[0].kind}). Nothing was written; take it out"
            " and say where the secret is kept instead.",
            "text", kind=secret[0].kind,
        )  # fmt: skip
    return text


def named(characters: Sequence[str]) -> str:
    """Characters that are not seen, by name."""
    return ", ".join(f"U+{ord(char):04X}" for char in characters)


def propose(target: Target, text: str, place: str) -> Proposal:
    """The change that puts a text at the end of a file or of a heading's own text.

    Raises InvalidInput and SecretRefused for the text and the place, Conflict for a file that
    cannot be written.
    """
    text = check(text)
    if target.problem:
        raise Conflict(f"{target.problem} Nothing was written.")
    before = _load(target.file)
    after = _with(before, text, place, target.file)
    notes = []
    unseen = sorted({match[0] for match in _UNSEEN.finditer(text)})
    if unseen:
        notes.append(
            f"The text holds characters that are not seen ({named(unseen)}). They are shown by name;"
            " take them out unless you know what they are for."
        )
    if before and text in before.decode("utf-8").replace("\r\n", "\n"):
        notes.append("The file holds this text already.")
    if before is not None and b"\r\n" in before:
        notes.append("Lines of this file end with CR and LF; so do the new ones.")
    diff = _diff(target.path, before, after)
    digest = hashlib.sha256(os.fsencode(target.file) + b"\0")
    for data in (before, after):
        digest.update(b"-" if data is None else hashlib.sha256(data).digest())
    return Proposal(
        target, text, place, before, after, diff, text.count("\n") + 1, tuple(notes),
        digest.hexdigest()[:16],
    )  # fmt: skip


def _with(before: bytes | None, text: str, place: str, file: Path) -> bytes:
    whole = (before or b"").decode("utf-8")
    if before is None or not whole.removeprefix("\ufeff").strip():
        if place != END:
            raise InvalidInput("That heading is not in the file any more. Choose again.", "place")
        bom = "\ufeff" if whole.startswith("\ufeff") else ""
        return f"{bom}{text}\n".encode()
    lines = whole.split("\n")
    found, left_open = _sections(lines)
    stop = len(lines)
    if place != END:
        number = int(place) if place.isascii() and place.isdigit() and len(place) < 6 else -1
        if not 0 <= number < len(found):
            raise InvalidInput("That heading is not in the file any more. Choose again.", "place")
        if number + 1 < len(found):
            stop = found[number + 1][0]
    if stop == len(lines) and left_open:
        what = "code block" if left_open == "code" else "comment"
        raise Conflict(
            f"The last {what} of {file} is not closed, so what is added at its end would be part of it."
            " Close it first, or choose a heading further up."
        )
    last = stop
    while last > 1 and not lines[last - 1].strip():
        last -= 1
    end = "\r" if whole.count("\r\n") * 2 > whole.count("\n") else ""
    new = [line + end for line in text.split("\n")]
    # An item after an item belongs to its list; else one empty line is between.
    apart = [] if _ITEM.match(lines[last - 1]) and _ITEM.match(new[0]) else [end]
    above, below = lines[:last], lines[last:]
    if below and stop < len(lines):
        if not any(not line.strip() for line in below[: stop - last]):
            below = [end, *below]
    elif not below:
        # The file ends without a line end, and goes on doing so.
        above[-1] += end
        new[-1] = new[-1].removesuffix("\r")
    return "\n".join([*above, *apart, *new, *below]).encode()


def _diff(path: Path, before: bytes | None, after: bytes | None) -> tuple[str, ...]:
    """A unified diff of one stretch, which is all that an addition changes. Written here, since
    difflib takes minutes for a file of many equal lines."""
    old, new = _lines(before), _lines(after)
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    behind = 0
    while behind < min(len(old), len(new)) - first and old[-1 - behind] == new[-1 - behind]:
        behind += 1
    start = max(0, first - AROUND)
    tail = min(behind, AROUND)
    head = max(0, start - MASK_ABOVE)
    rows = [(" ", line) for line in old[head:first]]
    rows += [("-", line) for line in old[first : len(old) - behind]]
    rows += [("+", line) for line in new[first : len(new) - behind]]
    rows += [(" ", line) for line in old[len(old) - behind : len(old) - behind + tail + MASK_ABOVE]]
    masked = secrets.mask("\n".join(line.removesuffix("\n") for _, line in rows)).split("\n")
    shown = []
    keep = range(start - head, len(rows) - max(0, min(behind, tail + MASK_ABOVE) - tail))
    crlf = all(line.endswith("\r\n") or not line.endswith("\n") for line in (*old, *new))
    for number in keep:
        sign, line = rows[number]
        text = masked[number].removesuffix("\r") if crlf else masked[number]
        # A longer line than a text may be was there before: the last one, without its line end.
        most = MAX_SHOWN_LINE if sign == " " else MAX_TEXT
        if len(text) > most:
            text = f"{text[:most]}… ({len(text) - most:,} more characters)"
        shown.append(sign + text)
        if not line.endswith("\n"):
            shown.append("\\ No newline at end of file")
    name = _CONTROL.sub("\ufffd", str(path).encode("utf-8", "replace").decode())
    counts = len(old) - behind - start + tail, len(new) - behind - start + tail
    hunk = f"@@ -{_span(start, counts[0])} +{_span(start, counts[1])} @@"
    return (
        f"--- {'/dev/null' if before is None else name}",
        f"+++ {'/dev/null' if after is None else name}", hunk, *shown,
    )  # fmt: skip


def _span(start: int, count: int) -> str:
    return f"{start + 1 if count else start},{count}"


def _lines(data: bytes | None) -> list[str]:
    """Lines up to and with "\\n", and nothing else ends one."""
    found = (data or b"").decode("utf-8", "replace").split("\n")
    return [line + "\n" for line in found[:-1]] + ([found[-1]] if found[-1] else [])


# The write ----------------------------------------------------------------------------------------


def write(
    store: Store, backups: Path, target: Target, text: str, place: str, fingerprint: str, actor: str,
    scope: str, origin: Mapping[str, Any], now: int | None = None,
) -> int:  # fmt: skip
    """Writes the change of that fingerprint and returns the number of its receipt.

    `backups` is the folder for the former text, `origin` what the receipt tells of where the text came
    from. Raises PlanChanged with the change as it would be now (`details["plan"]`) when the file is no
    longer what the change was shown for, and what `propose` raises; then nothing was written.
    """
    fresh = propose(target, text, place)
    if fresh.fingerprint != fingerprint:
        raise _changed(fresh)
    with _locked(target.file.parent):
        if _load(target.file) != fresh.before:
            raise _changed(propose(target, text, place))
        lines = "1 line" if fresh.added == 1 else f"{fresh.added:,} lines"
        what = f"{lines} to {target.path}"
        detail = {
            "file": str(target.file), "path": str(target.path), "scope": scope,
            "diff": list(fresh.diff), "origin": dict(origin),
        }  # fmt: skip
        return _replace(
            store, backups, target.file, fresh.before, fresh.after, actor,
            (f"Adding {what}", f"Added {what}"), detail, now_ms() if now is None else now,
        )  # fmt: skip


def _changed(fresh: Proposal) -> PlanChanged:
    return PlanChanged(
        f"{fresh.target.path} has changed since that difference was shown, so nothing was written. This"
        " is the new one.",
        plan=fresh,
    )


def take_back(
    store: Store, backups: Path, receipt: Receipt, actor: str, now: int | None = None
) -> int:
    """Puts the former content of a written file back, or removes one that was not there before, and
    returns the number of the receipt of that. Raises Conflict unless the file is still what was
    written; then it was left alone."""
    change, was, is_ = _read(receipt, backups)
    if change is None:
        raise NotFound("That receipt is of no instruction file, so there is nothing to take back.")
    if os.path.realpath(change.file) != str(change.file) or change.file.name not in FAMILY:
        raise Conflict(
            f"{change.file} is a link by now, or no instruction file, so it is left alone."
        )
    if not change.file.parent.is_dir():
        raise Conflict(f"The folder {change.file.parent} is not there any more.")
    with _locked(change.file.parent):
        current = _load(change.file)
        if _digest(current) != is_:
            raise Conflict(change_of(receipt, backups, change.file).told)
        former = _former(change, was)
        problem = _unusable(change.file)
        if problem:
            raise Conflict(f"{problem} Nothing was changed.")
        what = f"what was written to {change.file}"
        detail = {
            "file": str(change.file), "path": str(change.file), "scope": change.scope,
            "diff": list(_diff(change.file, current, former)), "takes_back": receipt.id,
        }  # fmt: skip
        return _replace(
            store, backups, change.file, current, former, actor,
            (f"Taking back {what}", f"Took back {what}"), detail, now_ms() if now is None else now,
        )  # fmt: skip


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder, which every server of this program takes, whatever its data."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Conflict(f"The folder {folder} cannot be used: {error.strerror}.") from error
    try:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise Busy(
                        f"Another process has held {folder} for some time; nothing was written. Try again"
                        " later."
                    ) from error
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _replace(
    store: Store, backups: Path, file: Path, before: bytes | None, after: bytes | None, actor: str,
    summaries: tuple[str, str], detail: Mapping[str, Any], at: int,
) -> int:  # fmt: skip
    """Backup, receipt, file, receipt. Where the file cannot be written, the first two go again."""
    backup = None if before is None else _back_up(backups, file, before, at)
    kept = {
        **detail, "backup": backup.name if backup else None, "was": _digest(before),
        "is": _digest(after),
    }  # fmt: skip
    try:
        with store.writing():
            number = receipts.write(
                store, ACTION, actor, summaries[0], {**kept, "interrupted": True}, at
            )
    except MemoryAppError:
        _remove(backup)
        raise
    try:
        _put(file, before, after)
    except MemoryAppError:
        with store.writing():
            store.run(ReceiptRow.delete().where(ReceiptRow.id == number))
        _remove(backup)
        raise
    # It is written. A receipt that cannot be told so still names it, and the file tells the rest.
    with suppress(MemoryAppError), store.writing():
        receipts.update(store, number, summaries[1], kept)
    return number


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _remove(path: Path | None) -> None:
    if path is not None:
        with suppress(OSError):
            path.unlink()


def _back_up(backups: Path, file: Path, data: bytes, at: int) -> Path:
    """Keeps the former text, for its owner alone and on disk for good before anything is written."""
    path = backups / f"{at}-{random.token_hex(4)}-{file.name}"
    try:
        private_folder(backups)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as opened:
            os.fchmod(descriptor, 0o600)
            opened.write(data)
            opened.flush()
            os.fsync(descriptor)
        _sync(backups)
    except OSError as error:
        _remove(path)
        raise Unreadable(
            f"No backup can be kept in {backups}: {error.strerror}. Nothing was written."
        ) from error
    return path


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put(file: Path, before: bytes | None, after: bytes | None) -> None:
    """Replaces a file whole or not at all. Raises Conflict; then it is as it was."""
    scratch = file.with_name(f".{file.name}.{SCRATCH}{random.token_hex(6)}")
    _clear(file)
    try:
        if after is None:
            file.unlink()
        else:
            # A new file gets the mode that the umask gives any other.
            descriptor = os.open(
                scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
            )
            with open(descriptor, "wb") as opened:
                if before is not None:
                    _like(descriptor, file)
                opened.write(after)
                opened.flush()
                os.fsync(descriptor)
            if before is None:
                _appear(scratch, file)
            else:
                os.replace(scratch, file)
        with suppress(OSError):
            _sync(file.parent)
    except FileExistsError as error:
        raise Conflict(f"{file} has come to be there meanwhile. Nothing was written.") from error
    except OSError as error:
        raise Conflict(
            f"{file} cannot be written: {error.strerror}. Nothing was changed."
        ) from error
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def _clear(file: Path) -> None:
    """Removes what a killed write left beside a file; the lock is held, so that none goes on."""
    with suppress(OSError):
        for left in file.parent.glob(f".{file.name}.{SCRATCH}*"):
            left.unlink()


def _appear(scratch: Path, file: Path) -> None:
    """Gives a new file its name, unless there is one of that name by now."""
    try:
        os.link(scratch, file)
    except OSError as error:
        # A file system without links: the lock and the last look have to do.
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        if os.path.lexists(file):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file)) from error
        os.replace(scratch, file)


def _like(descriptor: int, file: Path) -> None:
    """Gives a new file the owner, mode and extended attributes of the one that it replaces."""
    state = file.stat()
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (state.st_uid, state.st_gid):
        os.fchown(descriptor, state.st_uid, state.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(state.st_mode))
    if hasattr(os, "listxattr"):
        for name in _attributes(file):
            with suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(file, name))


def _attributes(file: Path) -> list[str]:
    try:
        return os.listxattr(file)
    except OSError:
        return []


# What a receipt tells ----------------------------------------------------------------------------


def change_of(receipt: Receipt, backups: Path, file: Path | None = None) -> Change:
    """What a receipt of this kind tells, and how the file stands now. Raises NotFound for a receipt
    of another kind. Nothing in it is trusted: other programs write to the same table."""
    change, was, is_ = _read(receipt, backups)
    if change is None:
        raise NotFound("That receipt is of no instruction file.")
    path = file or change.file
    try:
        now = _digest(_load(path))
    except MemoryAppError as error:
        return _stands(change, "unknown", f"{error.message} So nothing can be taken back here.")
    backup = f" Its former text is kept in {change.backup}." if change.backup else ""
    if now == is_:
        begun = " The program ended before it could say so." if change.interrupted else ""
        told = f"{path} is still as it was written.{begun}"
        if not change.is_there:
            told = f"{path} is not there, as this left it.{begun}"
        return _stands(change, "written", told)
    if now == was:
        told = f"{path} is what it was before."
        if change.interrupted:
            told = (
                f"{path} was not written: the program ended before that. It is what it was before."
            )
        return _stands(change, "former", told)
    if now is None:
        return _stands(
            change, "changed", f"{path} is not there any more, so nothing was taken back.{backup}"
        )
    return _stands(
        change, "changed",
        f"{path} was changed since, so it was left alone. Take the lines of the difference out by hand."
        f"{backup}",
    )  # fmt: skip


def _stands(change: Change, state: str, told: str) -> Change:
    return replace(change, state=state, told=told)


def _read(
    receipt: Receipt, backups: Path
) -> tuple[Change | None, str | None, str | None]:  # fmt: skip
    """The change, and the digests of what the file was and is."""
    detail = receipt.detail
    file, diff, name = detail.get("file"), detail.get("diff"), detail.get("backup")
    was, is_, scope = detail.get("was"), detail.get("is"), detail.get("scope")
    origin, number = detail.get("origin"), detail.get("takes_back")
    if (
        receipt.action != ACTION
        or not isinstance(file, str)
        or not os.path.isabs(file)
        or "\0" in file
        or not isinstance(diff, list)
        or not all(value is None or isinstance(value, str) for value in (name, was, is_))
        or (isinstance(name, str) and name != os.path.basename(name))
    ):
        return None, None, None
    return (
        Change(
            Path(file), backups / name if isinstance(name, str) else None, was is not None,
            is_ is not None, tuple(map(str, diff)), scope if isinstance(scope, str) else "",
            origin if isinstance(origin, dict) else {}, number if isinstance(number, int) else None,
            detail.get("interrupted") is True,
        ),
        was, is_,
    )  # fmt: skip


def _former(change: Change, was: str | None) -> bytes | None:
    """The text before the write, from its backup. Raises Conflict where that is not it."""
    if was is None:
        return None
    try:
        data = _load(change.backup) if change.backup is not None else None
    except MemoryAppError as error:
        raise Conflict(f"The backup cannot be used: {error.message}") from error
    if _digest(data) != was:
        raise Conflict(
            f"The backup {change.backup} is not there or is not what was kept, so nothing was taken back."
            " Take the lines of the difference out by hand."
        )
    return data
