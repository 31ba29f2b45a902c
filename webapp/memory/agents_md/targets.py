"""Where a text may go: the instruction files of a scope that OpenCode reads, or would."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webapp.errors import MemoryAppError
from webapp.memory.agents_md.files import FAMILY, unusable
from webapp.opencode import Session, read_config, reading
from webapp.opencode.instructions import AGENTS, CLAUDE, CONTEXT, Instructions, Rule, instructions
from webapp.settings import Places

NEWER = (
    f"OpenCode's newer runtime, which this session is of, reads {AGENTS} only, and not this file."
)


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


def targets(scope: str, session: Session | None, places: Places) -> tuple[Target, ...]:
    """The instruction files that a text of this scope may be proposed to, the nearest first.

    They are made here and never taken from an address: AGENTS.md of the project's root, of the
    session's folder inside it, of OpenCode's config folder; and where OpenCode reads CLAUDE.md or
    CONTEXT.md today, which a new AGENTS.md would hide, that file.
    """
    found: list[Target] = []
    home = places.own_config_dir or places.config_dir
    newer = False
    if scope.startswith("/") and not is_path(scope):
        found.append(_nowhere(scope, "The root of the project"))
    if scope.startswith("/") and is_path(scope):
        odd = None
        if session is not None and not is_path(session.directory):
            odd = _nowhere(session.directory, "The folder of the session")
            session = replace(session, directory=scope)
        root = Path("/" + os.path.abspath(scope).lstrip("/"))
        folder = Path(os.path.abspath(session.directory or scope)) if session else root
        told = _told(session, root, folder, places)
        if root != Path("/"):
            newer = _is_newer(session, root, places)
            found += _project(told, root, folder, places, newer)
        if odd is not None:
            found.append(odd)
    else:
        told = _told(None, home, home, places)
    found += _home(told, home, places, newer)
    return tuple(found)


def is_meant(file: Path, scope: str, places: Places) -> bool:
    """Whether a file, named as it really is, is an instruction file of a scope: one inside its folder,
    or one that holds for every project. It need not be one that is offered now."""
    if file.name not in FAMILY:
        return False
    home = os.path.realpath(places.own_config_dir or places.config_dir)
    if str(file.parent) in (home, os.path.realpath(places.home / ".claude")):
        return True
    if not scope.startswith("/") or not is_path(scope):
        return False
    root = Path(os.path.realpath(scope))
    return root != Path("/") and file.is_relative_to(root)


def is_path(text: str) -> bool:
    """Whether the disk could have a file of that name, whatever another program has written there."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


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


def _nowhere(folder: str, where: str) -> Target:
    """The target of a folder whose name is none, as another program wrote it."""
    shown = folder.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    path = Path(shown) / AGENTS
    return Target(
        hashlib.sha256(os.fsencode(path)).hexdigest()[:12], path, path, where, False, "",
        problem="No folder can have that name (it holds a NUL or half a character), so there is no such"
        " file.",
    )  # fmt: skip


def _listed(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else ", ".join(places[:-1]) + " and " + places[-1]


def _target(
    told: Instructions, path: Path, base: Path, allowed: set[str], where: str, warning: str
) -> Target:
    exists = os.path.lexists(path)
    file, problem = _file_of(path, base, allowed)
    if not problem:
        problem = unusable(file)
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
