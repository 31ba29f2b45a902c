"""`install` and `uninstall`: OpenCode's configuration with our pieces in it, and exactly as it was without.

The order of a change is backup, manifest, files. The manifest (`installed.json` in the data folder) says
for each configuration what it was before and what we made of it: where it is still that, it is put back
byte for byte; where somebody went on with it, only our own pieces are taken out.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp import jsonc
from webapp.errors import Busy, Conflict, InvalidInput, Unreadable
from webapp.integration import locks, token
from webapp.integration.commands import is_untouched
from webapp.integration.pieces import EVERY, Piece, Wanted, known, pieces
from webapp.settings import Settings

MANIFEST = "installed.json"
SCHEMA = "https://opencode.ai/config.json"
"""OpenCode writes this line into a configuration that lacks it."""

NO_MODEL = (
    "No configuration names a “model”. Where none was chosen in OpenCode either, it takes the first of the"
    " configured providers, which may then be our endpoint: set “model” to the one that you use."
)
"""`Provider.defaultModel`, the same in 1.3.2, 1.14.48, 1.17.19 and 1.18.33; seen to happen in 1.18.33."""

NAMES = ("opencode.jsonc", "opencode.json")
MAX_CONFIG = 1_048_576
PATIENCE_S = 5.0
_SCRATCH = ".opencode-memory-"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one file; None where there is none."""

    path: Path
    before: bytes | None
    after: bytes | None

    @property
    def diff(self) -> str:
        """The difference in the unified form, with a name for what is not there."""
        old, new = (
            "/dev/null" if data is None else str(self.path) for data in (self.before, self.after)
        )
        lines = difflib.unified_diff(_lines(self.before), _lines(self.after), old, new)
        return "\n".join(line.rstrip("\r\n") for line in lines)


@dataclass(frozen=True, slots=True)
class Plan:
    """What an install or uninstall would do: the changes, and what there is to say of the rest."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    manifest: Mapping[str, Any]
    kept: tuple[bytes, ...] = ()
    shows_token: bool = False
    folder: Path | None = None


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines(keepends=True)


# Where --------------------------------------------------------------------------------------------


def config_files(settings: Settings, project: Path | None) -> tuple[Path, list[Path]]:
    """The configuration that is written, and all that OpenCode merges there: its global one, or that of a
    project. Of two, `opencode.jsonc` is read last, so that what it says holds."""
    if project is None:
        every = [settings.places.config_dir / name for name in NAMES]
    else:
        every = [folder / name for folder in (project, project / ".opencode") for name in NAMES]
    there = [path for path in every if os.path.lexists(path)]
    default = every[1]
    return (there[0] if there else default), (there or [default])


def commands_dir(settings: Settings, project: Path | None) -> Path:
    """Where OpenCode looks for commands."""
    return (settings.places.config_dir if project is None else project / ".opencode") / "command"


# Plans --------------------------------------------------------------------------------------------


def plan_install(
    settings: Settings, wanted: Wanted, project: Path | None, commands: Mapping[str, str]
) -> Plan:
    """What would connect OpenCode. `commands` are the texts of the command files by name.

    Raises Conflict when a value of the person's own stands in the place of one of ours, and InvalidInput
    for a configuration that cannot be read; then nothing would be written.
    """
    config, every = config_files(settings, project)
    manifest = read_manifest(settings)
    ours = pieces(settings, wanted, str(project) if project else None)
    _refuse_foreign(every, ours)
    before = load(config)
    base = _without(config, before, manifest)
    text = _text(config, base)
    made = jsonc.put("", ("$schema",), SCHEMA) + "\n" if not text.strip("\ufeff \t\r\n") else text
    for piece in ours:
        put = jsonc.append if piece.is_item else jsonc.put
        made = _edited(config, put, made, piece.path, piece.value)
    after = made.encode()
    changes = [Change(config, before, after)] if before != after else []
    record = _record(manifest, config)
    record["before"] = None if base is None else _digest(base)
    record["after"] = _digest(after)
    record["pieces"] = [list(piece.path) for piece in ours]
    record["made"] = _containers(text, ours)
    notes: list[str] = []
    folder = commands_dir(settings, project)
    kept = dict(record.get("commands") or {})
    for name, content in (commands if wanted.commands else {}).items():
        change, note = _command(folder / f"{name}.md", content.encode(), kept)
        changes += [change] if change else []
        notes += [note] if note else []
    if not wanted.commands:
        changes += list(_commands_away(kept, commands_dir(settings, project), notes))
    record["commands"] = kept
    record["folder"] = bool(record.get("folder")) or not folder.exists()
    if wanted.compaction and not _names_a_model(settings, project):
        notes.append(NO_MODEL)
    other = [path for path in every if path != config]
    if other:
        notes.append(f"OpenCode also reads {', '.join(map(str, other))}, which stays as it is.")
    if project is not None:
        notes.append(
            f"{config} names paths of this machine: keep it out of what you share, or leave out --project."
        )
    kept_bytes = tuple({data for data in (before, base) if data is not None})
    return Plan(
        tuple(changes), tuple(notes), _with(manifest, config, record), kept_bytes, wanted.compaction
    )


def plan_uninstall(settings: Settings, project: Path | None) -> Plan:
    """What would take our pieces out again. Raises InvalidInput for a configuration that cannot be
    read."""
    manifest = read_manifest(settings)
    changes: list[Change] = []
    notes: list[str] = []
    held: list[bytes] = []
    seen: set[str] = set()
    folder = None
    for config in config_files(settings, project)[1]:
        before = load(config)
        after = _without(config, before, manifest)
        if before is not None and before != after:
            changes.append(Change(config, before, after))
            held.append(before)
        record = _record(manifest, config)
        kept = dict(record.get("commands") or {}) or _commands_there(
            commands_dir(settings, project)
        )
        kept = {name: held for name, held in kept.items() if name not in seen}
        seen.update(kept)
        changes += list(_commands_away(kept, commands_dir(settings, project), notes))
        if record.get("folder"):
            folder = commands_dir(settings, project)
        manifest = _with(manifest, config, None)
    return Plan(tuple(changes), tuple(notes), manifest, tuple(held), folder=folder)


def _names_a_model(settings: Settings, project: Path | None) -> bool:
    paths = {*config_files(settings, None)[1], *config_files(settings, project)[1]}
    return any(
        isinstance(jsonc_of(path, _text(path, load(path))).value.get("model"), str)
        for path in paths
    )


def _refuse_foreign(configs: Sequence[Path], ours: Sequence[Piece]) -> None:
    told = []
    for config in configs:
        root = jsonc_of(config, _text(config, load(config)))
        for piece in ours:
            held = root.find(piece.path)
            if held is None or piece.is_item or piece.is_ours(held.value):
                continue
            told.append(f"{'.'.join(piece.path)} in {config} is your own. {piece.instead}")
    if told:
        raise Conflict("Nothing was written. " + " ".join(told))


def _without(config: Path, before: bytes | None, manifest: Mapping[str, Any]) -> bytes | None:
    """What a configuration is without us."""
    if before is None:
        return None
    record = _record(manifest, config)
    if record and record.get("after") in (
        _digest(before),
        _digest(_without_schema(config, before)),
    ):
        if record.get("before") is None:
            return None
        held = _backup_of(manifest, str(record["before"]))
        if held is not None:
            return held
    text = _text(config, before)
    root = jsonc_of(config, text)
    for path in EVERY:
        piece, held_node = known(path), root.find(path)
        if held_node is None:
            continue
        if piece.is_item:
            for item in held_node.items:
                if piece.is_ours(item.value):
                    text = _edited(config, jsonc.drop_item, text, path, item.value)
        elif piece.is_ours(held_node.value):
            text = _edited(config, jsonc.drop, text, path)
    # Without a record, what is empty now is taken for ours where one of our pieces stood in it.
    emptied = [] if record or text == _text(config, before) else _holders(config, before)
    for made in record.get("made") or emptied:
        path = tuple(made)
        held_node = jsonc_of(config, text).find(path)
        if held_node is not None and held_node.value in ({}, []):
            text = _edited(config, jsonc.drop, text, path)
    if (
        record
        and record.get("before") is None
        and jsonc_of(config, text).value in ({}, {"$schema": SCHEMA})
    ):
        return None
    return text.encode()


def _without_schema(config: Path, data: bytes) -> bytes:
    """A configuration without the line that OpenCode writes into one that lacks it."""
    text = _text(config, data)
    node = jsonc_of(config, text).find(("$schema",))
    return jsonc.drop(text, ("$schema",)).encode() if node and node.value == SCHEMA else data


def _holders(config: Path, before: bytes) -> list[tuple[str, ...]]:
    root = jsonc_of(config, _text(config, before))
    found = {
        path[:depth]
        for path in EVERY
        for depth in range(1, len(path) + int(known(path).is_item))
        if (node := root.find(path[:depth])) is not None and node.value
    }
    return sorted(found, key=lambda path: (-len(path), path))


def _containers(text: str, ours: Sequence[Piece]) -> list[list[str]]:
    """The objects and arrays that our pieces make, the innermost first."""
    root = jsonc.parse(text)
    found = {
        piece.path[:depth]
        for piece in ours
        for depth in range(1, len(piece.path) + int(piece.is_item))
        if root.find(piece.path[:depth]) is None
    }
    return [list(path) for path in sorted(found, key=lambda path: (-len(path), path))]


def _command(path: Path, content: bytes, kept: dict[str, str]) -> tuple[Change | None, str]:
    before = load(path)
    if before is not None and not (kept.get(str(path)) == _digest(before) or is_untouched(before)):
        return None, f"{path} is your own or was changed, so it stays as it is."
    kept[str(path)] = _digest(content)
    return (Change(path, before, content) if before != content else None), ""


def _commands_there(folder: Path) -> dict[str, str]:
    """The command files of ours in a folder, by what they are, for where no manifest tells."""
    found = {}
    for path in sorted(folder.glob("*.md")) if folder.is_dir() else ():
        with suppress(Unreadable):
            data = load(path)
            if data is not None and is_untouched(data):
                found[str(path)] = _digest(data)
    return found


def _commands_away(
    kept: dict[str, str], folder: Path, notes: list[str]
) -> Iterator[Change]:  # fmt: skip
    """The removal of our own commands. Whatever the manifest names, only what we wrote goes, and only in
    that folder: somebody else may have written to the manifest."""
    for name in list(kept):
        path = Path(name)
        if path.parent != folder:
            del kept[name]
            continue
        before = load(path)
        del kept[name]
        if before is None:
            continue
        if is_untouched(before):
            yield Change(path, before, None)
        else:
            notes.append(
                f"{path} was changed since it was installed, so it stays. Remove it yourself."
            )


# Files --------------------------------------------------------------------------------------------


def load(path: Path) -> bytes | None:
    """The bytes of a configuration or command, None where there is none. Raises Unreadable."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unreadable(f"{path} is no regular file.")
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG + 1)
    except FileNotFoundError:
        if path.is_symlink():
            raise Unreadable(f"{path} is a link to a file that is not there.") from None
        return None
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_CONFIG:
        raise Unreadable(f"{path} has more than {MAX_CONFIG:,} bytes, so it is not touched.")
    return data


def _text(path: Path, data: bytes | None) -> str:
    try:
        return (data or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8 (at byte {error.start:,}), so it is not touched."
        ) from error


def jsonc_of(path: Path, text: str) -> jsonc.Node:
    """The tree of a configuration. Raises InvalidInput that names the place."""
    try:
        root = jsonc.parse(text)
    except jsonc.JsoncError as error:
        raise InvalidInput(
            f"{path} cannot be read: {error}. Mend it, and run this again."
        ) from error
    if not isinstance(root.value, dict):
        raise InvalidInput(f"{path} holds no object, so it is no configuration of OpenCode's.")
    return root


def _edited(path: Path, edit: Any, *given: Any) -> str:
    try:
        made: str = edit(*given)
    except jsonc.JsoncError as error:
        raise InvalidInput(
            f"{path} cannot be changed: {error}. Mend it, and run this again."
        ) from error
    return made


def apply(settings: Settings, plan: Plan) -> list[Path]:
    """Does what a plan says, and returns the backups. Raises Conflict when a file is no longer what the
    plan was made for, and Unreadable when one cannot be written; then every file is as it was before."""
    if not plan.changes:
        return []
    with _locked(settings):
        for change in plan.changes:
            _refuse_shared(change.path)
            if load(change.path) != change.before:
                raise Conflict(
                    f"{change.path} has changed meanwhile, so nothing was written. Run this again."
                )
        backups = [_kept(settings, data) for data in plan.kept]
        if plan.shows_token:
            token.ensure(settings)
        former = load(manifest_path(settings))
        done: list[Change] = []
        try:
            _write_manifest(settings, plan.manifest)
            for change in plan.changes:
                done.append(change)
                _put(change.path, change.after)
        except OSError as error:
            for change in reversed(done):
                with suppress(OSError):
                    _put(change.path, change.before)
            with suppress(OSError):
                _put(manifest_path(settings), former, 0o600)
            where = error.filename or plan.changes[0].path
            raise Unreadable(
                f"{where} cannot be written: {error.strerror}. Everything is as it was before."
            ) from error
        if plan.folder is not None:
            with suppress(OSError):  # somebody put something else there
                plan.folder.rmdir()
                if plan.folder.parent.name == ".opencode":
                    plan.folder.parent.rmdir()
    return backups


def _refuse_shared(path: Path) -> None:
    """Raises Conflict for a file that a write would part from another name, or that is protected."""
    try:
        state = path.stat()
    except OSError:
        return
    if state.st_nlink > 1:
        raise Conflict(
            f"{path} has another name (a hard link), which a write would part from it, so nothing was"
            " written. Make it one file, or a symbolic link."
        )
    if not state.st_mode & 0o222:
        raise Conflict(
            f"{path} is write-protected, so nothing was written. Allow it with: chmod u+w {path}"
        )


def _put(path: Path, data: bytes | None, mode: int | None = None) -> None:
    """Gives a file its bytes whole, or removes it; a link stays a link, and the mode as it was."""
    real = Path(os.path.realpath(path))
    if data is None:
        real.unlink(missing_ok=True)
        return
    real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if mode is None:
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o644
    part = real.with_name(f"{_SCRATCH}{secrets.token_hex(6)}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(part, real)
    finally:
        part.unlink(missing_ok=True)


def _kept(settings: Settings, data: bytes) -> Path:
    """The backup of what a file was, named by its content, so that the same is kept once."""
    path = settings.backups_dir / f"opencode-{_digest(data)}.bak"
    try:
        settings.backups_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _put(path, data, 0o600)
    except OSError as error:
        raise Unreadable(f"The backup {path} cannot be written: {error.strerror}.") from error
    return path


@contextmanager
def _locked(settings: Settings) -> Iterator[None]:
    """One install at a time."""
    path = settings.data_dir / f"{MANIFEST}.lock"
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror}.") from error
    try:
        if not locks.take(descriptor, PATIENCE_S):
            raise Busy("Another install is at work. Run this again when it is done.")
        yield
    finally:
        os.close(descriptor)


# The manifest -------------------------------------------------------------------------------------


def manifest_path(settings: Settings) -> Path:
    """What says what was installed where."""
    return settings.data_dir / MANIFEST


def read_manifest(settings: Settings) -> dict[str, Any]:
    """What was installed, by configuration. One that cannot be read counts as none: then our own pieces
    are known by what they are."""
    found: Any = None
    with suppress(Unreadable, ValueError, RecursionError):
        found = json.loads(load(manifest_path(settings)) or b"{}")
    configs = found.get("configs") if isinstance(found, dict) else None
    return {
        "backups": str(settings.backups_dir),
        "configs": {
            name: record for name, record in (configs if isinstance(configs, dict) else {}).items()
            if isinstance(record, dict) and isinstance(record.get("commands", {}), dict)
            and isinstance(record.get("made", []), list)
        },
    }  # fmt: skip


def _write_manifest(settings: Settings, manifest: Mapping[str, Any]) -> None:
    held = manifest["configs"]
    data = json.dumps({"version": 1, "configs": held}, indent=1).encode() if held else None
    _put(manifest_path(settings), data, 0o600)


def _record(manifest: Mapping[str, Any], config: Path) -> dict[str, Any]:
    return dict(manifest["configs"].get(str(config)) or {})


def _with(
    manifest: Mapping[str, Any], config: Path, record: Mapping[str, Any] | None
) -> dict[str, Any]:
    configs = {name: held for name, held in manifest["configs"].items() if name != str(config)}
    if record is not None:
        configs[str(config)] = dict(record)
    return {**manifest, "configs": configs}


def _backup_of(manifest: Mapping[str, Any], digest: str) -> bytes | None:
    """What a configuration was before, if its backup is there and is that."""
    if not digest.isalnum():
        return None
    with suppress(Unreadable):
        data = load(Path(manifest["backups"]) / f"opencode-{digest}.bak")
        return data if data is not None and _digest(data) == digest else None
    return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
