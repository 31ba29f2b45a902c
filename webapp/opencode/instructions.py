"""Which instruction files and addresses reach a session's model, in the order they are sent.

Sources, learned from the public repository and from what releases sent to a scripted model
(tests/lab/test_real_instructions.py):

* older runtime: `systemPaths` and `system` in packages/opencode/src/session/instruction.ts,
  `findUp`, `globUp` in packages/core/src/fs-util.ts; the configuration is config.py's;
* newer runtime: packages/core/src/instruction-context.ts.

Files are read and never written, and no address is fetched. What the read tool attaches to its
results, what plugins add and what an organisation's account sends as configuration is not here.
"""

from __future__ import annotations

import codecs
import difflib
import json
import os
import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from webapp.opencode.config import Config
from webapp.opencode.database import columns
from webapp.opencode.disk import exists, head, real, upwards
from webapp.opencode.modelview import estimate
from webapp.opencode.patterns import Effort, Matches, is_literal, match
from webapp.opencode.records import Session
from webapp.opencode.values import bindable, release
from webapp.settings import Places

MAX_TEXT = 65_536
"""Bytes of a file that are read, and of a baseline that are kept."""

MAX_ITEMS = 200
MAX_DIFFERENCE = 400
MAX_SNAPSHOT = 4_194_304

AGENTS, CLAUDE, CONTEXT = "AGENTS.md", "CLAUDE.md", "CONTEXT.md"
GLOBAL_FIRST = (1, 14, 34)
"""From this release on the global file comes first; until 1.3.2 the project's did."""


class Rule(StrEnum):
    """What made OpenCode look at a place."""

    GLOBAL = "global"
    CLAUDE_HOME = "Claude Code's global file"
    UPWARD = "from the session's folder up to the root"
    CONFIG = "instructions of the configuration"
    URL = "address in the configuration"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One source that OpenCode reads or would read, and why.

    `sent` says whether it reaches the model: False for one that is missing, empty or unreadable,
    None for an address, which is not fetched here. `link` is where a symbolic link leads. `size` is
    in bytes; `characters` and `tokens` are estimates from it unless `exact`. `text` holds the
    beginning; `cut` is the number of bytes beyond it. `problems` are sentences.
    """

    place: str
    rule: Rule
    found_by: str
    exists: bool | None
    sent: bool | None
    link: str = ""
    size: int = 0
    characters: int = 0
    exact: bool = True
    tokens: int = 0
    text: str = ""
    cut: int = 0
    problems: tuple[str, ...] = ()

    @property
    def unreadable(self) -> bool:
        """Whether something is there whose text could not be read."""
        return bool(self.exists) and not self.exact and not self.text


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A source that is there, or is named, and does not reach the model; `reason` is a sentence."""

    place: str
    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the newer runtime keeps of a session's system context.

    `text` is as it was sent first, with `cut` characters left off. `files` are the instruction
    files, path and text, that the session was told last (from the snapshot beside it); None when
    that cannot be read.
    """

    text: str
    cut: int
    files: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True, slots=True)
class Instructions:
    """The sources in the order of sending. `difference` holds the lines of a unified diff from what
    a session of the newer runtime was told last to today's files, with `difference_cut` more;
    `problems` are sentences about the whole."""

    items: tuple[Instruction, ...]
    shadowed: tuple[Shadowed, ...]
    baseline: Baseline | None
    difference: tuple[str, ...]
    difference_cut: int
    newer: bool
    root: Path
    problems: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """The estimate of all that is sent, addresses left out."""
        return sum(item.tokens for item in self.items if item.sent)


def instructions(
    session: Session, config: Config, places: Places, connection: sqlite3.Connection | None = None
) -> Instructions:
    """Every instruction source of a session as the files are now.

    `config` is the configuration for the session (`read_config`). `connection` is to its database
    and tells which runtime wrote it last; without one the older is taken.
    """
    look = _Look(places, config)
    newer = connection is not None and _is_newer(connection, session.id)
    baseline: Baseline | None = None
    difference: tuple[str, ...] = ()
    more = 0
    if newer and connection is not None:
        _newer(look)
        baseline = _baseline(connection, session.id, look)
        if baseline is not None and baseline.files is not None and not look.unavailable:
            difference, more = _difference(baseline.files, look)
    else:
        _older(look, release(session.version))
    return Instructions(
        items=tuple(look.items), shadowed=tuple(look.shadowed), baseline=baseline,
        difference=difference, difference_cut=more, newer=newer, root=config.root,
        problems=tuple(dict.fromkeys(bindable(one) for one in (*config.problems, *look.problems))),
    )  # fmt: skip


@dataclass(slots=True)
class _Look:
    """What has been found so far."""

    places: Places
    config: Config
    items: list[Instruction] = field(default_factory=list)
    shadowed: list[Shadowed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    seen: dict[str, Rule] = field(default_factory=dict)
    unavailable: bool = False
    effort: Effort = field(default_factory=Effort)

    def add(self, place: str, rule: Rule, found_by: str) -> None:
        """A file that OpenCode reads. The same path is sent once, where it was met first."""
        if place in self.seen:
            if rule is not self.seen[place] or rule is Rule.CONFIG:
                self.shade(place, rule, f"Already sent: {self.seen[place]}.")
            return
        if len(self.items) >= MAX_ITEMS:
            self.problems.append(
                f"More than {MAX_ITEMS} instruction sources; the rest is not shown."
            )
            return
        self.seen[place] = rule
        self.items.append(_read(place, rule, found_by))

    def missing(self, place: str, found_by: str, problem: str) -> None:
        """An entry of the configuration that leads nowhere."""
        if len(self.items) < MAX_ITEMS:
            self.items.append(
                Instruction(place, Rule.CONFIG, found_by, False, False, problems=(problem,))
            )

    def shade(self, place: str, rule: Rule, reason: str) -> None:
        if len(self.shadowed) < MAX_ITEMS:
            self.shadowed.append(Shadowed(bindable(place), rule, bindable(reason)))


def _upward(name: str, folder: Path, root: Path) -> tuple[list[Path], str]:
    """`findUp`: every file of that name, the nearest first. An error on the way, such as a folder
    that may not be entered or a link to itself, loses all of that name; it is the second value."""
    found = []
    for candidate in upwards(folder, root):
        there = exists(candidate / name)
        if isinstance(there, OSError):
            return [], f"{candidate / name} cannot be looked at ({there.strerror})"
        if there:
            found.append(candidate / name)
    return found, ""


def _older(look: _Look, began: tuple[int, ...]) -> None:
    folder, root = look.config.folder, look.config.root
    if () < began < GLOBAL_FIRST:
        look.problems.append(
            f"OpenCode {'.'.join(map(str, began))} is older than the releases whose order was"
            " measured (1.14.34 to 1.18.33): the project's files came first until 1.3.2."
        )
        _project_files(look, folder, root)
        _global_file(look, (look.places.own_config_dir, look.places.config_dir))
    else:
        _global_file(look, (look.places.own_config_dir or look.places.config_dir,))
        _project_files(look, folder, root)
    _configured(look)


def _global_file(look: _Look, folders: Iterable[Path | None]) -> None:
    """The first that is there (`systemPaths`): AGENTS.md of the config folder, where
    OPENCODE_CONFIG_DIR names another one of that, else ~/.claude/CLAUDE.md."""
    places = look.places
    candidates = [(folder / AGENTS, Rule.GLOBAL) for folder in folders if folder is not None]
    candidates.append((places.home / ".claude" / CLAUDE, Rule.CLAUDE_HOME))
    unused = places.config_dir / AGENTS
    if all(unused != path for path, _ in candidates) and exists(unused) is True:
        look.shade(str(unused), Rule.GLOBAL, "OPENCODE_CONFIG_DIR names another config folder.")
    winner = ""
    for path, rule in candidates:
        if exists(path) is not True:
            continue
        if rule is Rule.CLAUDE_HOME and not places.claude:
            look.shade(
                str(path), rule,
                "OPENCODE_DISABLE_CLAUDE_CODE or OPENCODE_DISABLE_CLAUDE_CODE_PROMPT is set.",
            )  # fmt: skip
        elif winner:
            look.shade(str(path), rule, f"{winner} was found first; only one global file is read.")
        else:
            winner = str(path)
            why = "AGENTS.md of the config folder"
            if rule is Rule.CLAUDE_HOME:
                why = "Claude Code's global file, since the config folder has no AGENTS.md"
            look.add(winner, rule, why)


def _project_files(look: _Look, folder: Path, root: Path) -> None:
    """The first of the three names that is found anywhere between the session's folder and the
    root: all files of that name, the nearest first (`systemPaths`)."""
    winner = ""
    for name in (AGENTS, CLAUDE, CONTEXT):
        paths, error = _upward(name, folder, root)
        if error:
            look.problems.append(f"{error}; OpenCode then reads no {name} of this project.")
        for path in paths:
            if not look.places.project:
                look.shade(str(path), Rule.UPWARD, "OPENCODE_DISABLE_PROJECT_CONFIG is set.")
            elif name == CLAUDE and not look.places.claude:
                look.shade(
                    str(path), Rule.UPWARD,
                    "OPENCODE_DISABLE_CLAUDE_CODE or OPENCODE_DISABLE_CLAUDE_CODE_PROMPT is set.",
                )  # fmt: skip
            elif winner and not winner.endswith("/" + name):
                look.shade(
                    str(path), Rule.UPWARD,
                    f"{winner} was found first; of {AGENTS}, {CLAUDE} and {CONTEXT} only the first"
                    " name with a file is read.",
                )  # fmt: skip
            else:
                winner = winner or str(path)
                old = " (a name that OpenCode calls deprecated)" if name == CONTEXT else ""
                look.add(str(path), Rule.UPWARD, f"{name}{old} between {folder} and {root}")


@dataclass(frozen=True, slots=True)
class _Entry:
    text: str
    source: str


def _entries(look: _Look) -> list[_Entry]:
    """The merged list: the files of the global folder replace one another's list, every later file
    adds to it, and what is there already is not added again."""
    merged: list[_Entry] = []
    for document in look.config.documents:
        listed = document.data.get("instructions")
        if listed is None:
            continue
        if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
            look.problems.append(
                f"“instructions” in {document.source} is not a list of strings; OpenCode 1.18.33"
                " does not start with it."
            )
            continue
        found = [_Entry(bindable(entry), bindable(document.source)) for entry in listed]
        if document.is_global:
            for entry in merged:
                look.shade(
                    entry.text, _rule(entry),
                    f"{document.source} has a list of its own, which replaces the one in"
                    f" {entry.source}.",
                )  # fmt: skip
            merged = found
        else:
            merged = _joined(merged, found, look)
    return merged


def _joined(held: list[_Entry], more: list[_Entry], look: _Look) -> list[_Entry]:
    if not held or not more:
        return held or more
    joined = {entry.text: entry for entry in held}
    for entry in more:
        if entry.text in joined:
            first = joined[entry.text].source
            if first != entry.source:
                look.shade(entry.text, _rule(entry), f"{first} names it already.")
        else:
            joined[entry.text] = entry
    return list(joined.values())


def _rule(entry: _Entry) -> Rule:
    return Rule.URL if entry.text.startswith(("http://", "https://")) else Rule.CONFIG


def _configured(look: _Look) -> None:
    """`instructions` of the merged configuration: paths and patterns first, then addresses."""
    addresses = []
    unfinished: list[str] = []
    for entry in _entries(look):
        found_by = f"“{entry.text}” in {entry.source}"
        if entry.text.startswith(("http://", "https://")):
            addresses.append(
                Instruction(
                    entry.text, Rule.URL, found_by, None, None, exact=False,
                    problems=("OpenCode fetches this for every model call; it is not fetched here.",),
                )
            )  # fmt: skip
            continue
        if "{file:" in entry.text:
            look.missing(
                entry.text, found_by, "OpenCode puts a file's text here; which one is not read."
            )
            continue
        wanted = re.sub(
            r"\{env:([^}]+)\}", lambda m: look.places.environment.get(m[1], ""), entry.text
        )
        if not wanted or "\0" in wanted:
            look.missing(entry.text, found_by, "This names no path.")
            continue
        if look.effort.spent:
            unfinished.append(entry.text)
            continue
        matches = _matches(look, wanted)
        look.problems += matches.problems
        if look.effort.spent:
            unfinished.append(entry.text)
        for path in matches.paths:
            look.add(path, Rule.CONFIG, found_by)
        if not matches.paths and not look.effort.spent:
            look.missing(entry.text, found_by, _nowhere(look, wanted))
    if unfinished:
        look.problems.append(
            "Looking for the files of “instructions” in the configuration would take too long:"
            f" {len(unfinished):,} of its paths and patterns, from “{unfinished[0][:200]}” on, were"
            " not looked for to the end. OpenCode looks for all."
        )
    for item in addresses[: max(0, MAX_ITEMS - len(look.items))]:
        look.items.append(item)


def _matches(look: _Look, wanted: str) -> Matches:
    """`systemPaths`: in an absolute path or one below ~ only the last part may hold wildcards; a
    relative one is looked for in every folder from the session's up to the root (`globUp`)."""
    if wanted.startswith("~/"):
        wanted = str(look.places.home / wanted[2:])
    if os.path.isabs(wanted):
        wanted = os.path.normpath(wanted)
        return match(os.path.basename(wanted), os.path.dirname(wanted), look.effort, hidden=False)
    if not look.places.project:
        config = look.places.own_config_dir or look.places.config_dir
        return match(wanted, str(config), look.effort, hidden=True)
    paths: list[str] = []
    problems: list[str] = []
    for candidate in upwards(look.config.folder, look.config.root):
        if look.effort.spent:
            break
        found = match(wanted, str(candidate), look.effort, hidden=True)
        paths += found.paths
        problems += found.problems
    return Matches(tuple(dict.fromkeys(paths)), tuple(problems))


def _nowhere(look: _Look, wanted: str) -> str:
    absolute = wanted.startswith(("~/", "/"))
    if absolute and not is_literal(os.path.dirname(wanted)):
        return (
            "In an absolute path OpenCode takes wildcards in the last part only: nothing matches."
        )
    if absolute:
        return "Nothing is there." if is_literal(wanted) else "No file matches."
    where = "the session's folder and those above it, up to the root"
    if not look.places.project:
        where = "the config folder, since OPENCODE_DISABLE_PROJECT_CONFIG is set"
    return f"No file matches in {where}."


def _read(place: str, rule: Rule, found_by: str) -> Instruction:
    link = bindable(os.path.realpath(place)) if os.path.islink(place) else ""
    problems = []
    got = head(place, MAX_TEXT)
    there = os.path.lexists(place)
    place, found_by = bindable(place), bindable(found_by)
    if isinstance(got, str):
        return Instruction(
            place, rule, found_by, there, False, link, exact=False, problems=(f"{place} {got}",)
        )
    data, size = got
    text = codecs.getincrementaldecoder("utf-8-sig")("replace").decode(data, size <= len(data))
    cut = size - len(data)
    characters, tokens = len(text), estimate(text)
    if cut:
        characters = round(len(text) * size / len(data))
        tokens = round(tokens * size / len(data))
        problems.append(
            f"{place} has {size:,} bytes; the first {len(data):,} were read. OpenCode sends all."
        )
    if not text:
        problems.append(f"{place} is empty; OpenCode leaves it out.")
    elif "�" in text and b"\xef\xbf\xbd" not in data:
        problems.append(f"{place} is no valid UTF-8; what is not shows as �.")
    return Instruction(
        place, rule, found_by, True, bool(text), link, size, characters, not cut, tokens, text, cut,
        tuple(problems),
    )  # fmt: skip


def _newer(look: _Look) -> None:
    """`observe` in instruction-context.ts: AGENTS.md of the config folder, then those between the
    session's folder and the root, all with links resolved and each once."""
    places = look.places
    config = places.own_config_dir or places.config_dir
    path = config / AGENTS
    if exists(path) is True:
        look.add(os.path.realpath(path), Rule.GLOBAL, "AGENTS.md of the config folder")
    here, top = real(look.config.folder), real(look.config.root)
    paths, error = _upward(AGENTS, here, top)
    for found in paths:
        if not places.project:
            look.shade(str(found), Rule.UPWARD, "OPENCODE_DISABLE_PROJECT_CONFIG is set.")
            continue
        look.add(os.path.realpath(found), Rule.UPWARD, f"{AGENTS} between {here} and {top}")
        if look.items and look.items[-1].unreadable:
            error = error or f"{found} cannot be read"
    if error and places.project:
        look.unavailable = True
        look.problems.append(f"{error}; OpenCode then leaves the session what it was told last.")
    only = "OpenCode's newer runtime reads AGENTS.md only."
    claude = places.home / ".claude" / CLAUDE
    if exists(claude) is True:
        look.shade(str(claude), Rule.CLAUDE_HOME, only)
    for name in (CLAUDE, CONTEXT):
        for found in _upward(name, here, top)[0]:
            look.shade(str(found), Rule.UPWARD, only)
    for entry in _entries(look):
        look.shade(
            entry.text, _rule(entry),
            f"OpenCode's newer runtime does not read the instructions in {entry.source}.",
        )  # fmt: skip


def _is_newer(connection: sqlite3.Connection, session_id: str) -> bool:
    """Whether the newer runtime wrote the session last; a session without messages is the newer
    one's when it has a baseline."""
    last: dict[str, float] = {}
    for table in ("message", "session_message"):
        if {"session_id", "time_created"} <= columns(connection, table):
            (at,) = connection.execute(
                f"SELECT max(CAST(time_created AS REAL)) FROM {table} WHERE session_id = ?",
                (session_id,),
            ).fetchone()
            if at is not None:
                last[table] = at
    if last:
        return last.get("session_message", -1.0) > last.get("message", -1.0)
    return bool(
        "session_id" in columns(connection, "session_context_epoch")
        and connection.execute(
            "SELECT 1 FROM session_context_epoch WHERE session_id = ?", (session_id,)
        ).fetchone()
    )


def _baseline(connection: sqlite3.Connection, session_id: str, look: _Look) -> Baseline | None:
    have = columns(connection, "session_context_epoch")
    if not {"session_id", "baseline"} <= have:
        look.problems.append("This OpenCode keeps no baseline of a session's system context.")
        return None
    snapshot = "snapshot" if "snapshot" in have else "NULL"
    row = connection.execute(
        "SELECT CAST(substr(baseline, 1, ?) AS TEXT), length(baseline),"
        f" CASE WHEN length({snapshot}) <= ? THEN CAST({snapshot} AS TEXT) END"
        " FROM session_context_epoch WHERE session_id = ?",
        (MAX_TEXT, MAX_SNAPSHOT, session_id),
    ).fetchone()
    if row is None:
        look.problems.append("No system context is kept of this session yet.")
        return None
    text, length, stored = row
    files = _snapshot_files(stored)
    if files is None:
        look.problems.append(
            "The snapshot of the session's system context cannot be read, so what changed since is"
            " not known."
        )
    return Baseline(text or "", max(0, (length or 0) - len(text or "")), files)


def _snapshot_files(stored: str | None) -> tuple[tuple[str, str], ...] | None:
    """The files of `core/instructions` in a snapshot: `{"value": [{"path", "content"}, …]}`, and no
    such key when the session was told none."""
    try:
        data = json.loads(stored or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    kept = data.get("core/instructions", {"value": []})
    value = kept.get("value") if isinstance(kept, dict) else None
    if not isinstance(value, list):
        return None
    files = []
    for file in value:
        if not isinstance(file, Mapping):
            return None
        path, content = file.get("path"), file.get("content")
        if not isinstance(path, str) or not isinstance(content, str):
            return None
        files.append((bindable(path), bindable(content)))
    return tuple(files)


def _difference(told: tuple[tuple[str, str], ...], look: _Look) -> tuple[tuple[str, ...], int]:
    """A unified diff, file by file, of what was told and what is there now."""
    before = dict(told)
    now = {item.place: item for item in look.items}
    lines: list[str] = []
    for path in dict.fromkeys([*before, *now]):
        item = now.get(path)
        if item is not None and item.unreadable:
            continue
        old, new = before.get(path, ""), item.text if item else ""
        if item is not None and item.cut:
            old = old.encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore")
        lines += difflib.unified_diff(
            old.split("\n") if path in before else [], new.split("\n") if item else [],
            f"{path} (told)" if path in before else "(not told)",
            f"{path} (now)" if item else "(gone)", lineterm="", n=3,
        )  # fmt: skip
    return tuple(lines[:MAX_DIFFERENCE]), max(0, len(lines) - MAX_DIFFERENCE)
