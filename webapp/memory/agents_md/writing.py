"""The write of a proposal, taking it back, and what their receipts tell.

The order of a write is backup, receipt, file, receipt:

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
import secrets as random
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from webapp import secrets as credentials
from webapp.errors import Busy, Conflict, MemoryAppError, NotFound, PlanChanged, Unreadable
from webapp.memory.agents_md.files import SCRATCH, leftovers, load, unusable
from webapp.memory.agents_md.proposal import Proposal, difference, propose
from webapp.memory.agents_md.targets import Target, is_meant, is_path
from webapp.settings import Places
from webapp.store import ReceiptRow, Store, now_ms, private_folder, receipts
from webapp.store.receipts import Receipt

ACTION = "instructions"
PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Change:
    """What a receipt tells of a write, and how things stand now.

    `state` is `written` (the file is what was written), `former` (it is what it was before),
    `changed` (somebody wrote to it since) or `unknown` (it cannot be taken back, for the reason told);
    `told` says it in words. `measured` is a `diff` of the file and its backup, not one of the receipt.
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
    measured: bool = False
    state: str = "unknown"
    told: str = ""


class _Moved(Conflict):
    """The file is not what it was a moment ago; it was left alone."""


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
        if load(target.file) != fresh.before:
            raise _changed(propose(target, text, place))
        lines = "1 line" if fresh.added == 1 else f"{fresh.added:,} lines"
        what = f"{lines} to {target.path}"
        detail = {
            "file": str(target.file), "path": str(target.path), "scope": scope,
            "diff": list(fresh.diff), "origin": dict(origin),
        }  # fmt: skip
        try:
            return _replace(
                store, backups, target.file, fresh.before, fresh.after, actor,
                (f"Adding {what}", f"Added {what}"), detail, now_ms() if now is None else now,
            )  # fmt: skip
        except _Moved as error:
            raise _changed(propose(target, text, place)) from error


def _changed(fresh: Proposal) -> PlanChanged:
    return PlanChanged(
        f"{fresh.target.path} has changed since that difference was shown, so nothing was written. This"
        " is the new one.",
        plan=fresh,
    )


def take_back(
    store: Store, backups: Path, places: Places, receipt: Receipt, actor: str, now: int | None = None
) -> int:  # fmt: skip
    """Puts the former content of a written file back, or removes one that was not there before, and
    returns the number of the receipt of that. Raises Conflict unless the file is still what was
    written; then it was left alone."""
    change, was, is_ = _read(receipt, backups)
    if change is None:
        raise NotFound("That receipt is of no instruction file, so there is nothing to take back.")
    problem = _off_limits(change, places)
    if problem:
        raise Conflict(problem)
    if not change.file.parent.is_dir():
        raise Conflict(f"The folder {change.file.parent} is not there any more.")
    with _locked(change.file.parent):
        current = load(change.file)
        if _digest(current) != is_:
            raise Conflict(change_of(receipt, backups, places).told)
        former = _former(change, was)
        problem = unusable(change.file)
        if problem:
            raise Conflict(f"{problem} Nothing was changed.")
        what = f"what was written to {change.file}"
        detail = {
            "file": str(change.file), "path": str(change.file), "scope": change.scope,
            "diff": list(difference(change.file, current, former)), "takes_back": receipt.id,
        }  # fmt: skip
        try:
            return _replace(
                store, backups, change.file, current, former, actor,
                (f"Taking back {what}", f"Took back {what}"), detail, now_ms() if now is None else now,
            )  # fmt: skip
        except _Moved as error:
            raise Conflict(change_of(receipt, backups, places).told) from error


def _off_limits(change: Change, places: Places) -> str:
    """Why the file of a receipt is none that this program would write, or nothing."""
    if os.path.realpath(change.file) != str(change.file):
        return f"{change.file} is a link by now, so it is left alone."
    if not is_meant(change.file, change.scope, places):
        return (
            f"{change.file} is no instruction file of {change.scope or 'any project'}, so this receipt"
            " changes nothing there."
        )
    return ""


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
    """Replaces a file whole or not at all. Raises Conflict, and _Moved if it is not `before` any more;
    then it is as it was. The last look comes after all that may wait: the store, the lock, the disk."""
    scratch = file.with_name(f".{file.name}.{SCRATCH}{random.token_hex(6)}")
    _clear(file)
    try:
        if after is None:
            _look(file, before)
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
            _look(file, before)
            if before is None:
                _appear(scratch, file)
            else:
                os.replace(scratch, file)
        with suppress(OSError):
            _sync(file.parent)
    except FileExistsError as error:
        raise _Moved(f"{file} has come to be there meanwhile. Nothing was written.") from error
    except OSError as error:
        raise Conflict(
            f"{file} cannot be written: {error.strerror}. Nothing was changed."
        ) from error
    finally:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


def _look(file: Path, before: bytes | None) -> None:
    if load(file) != before:
        raise _Moved(f"{file} was changed meanwhile. Nothing was written.")


def _clear(file: Path) -> None:
    """Removes what a killed write left beside a file; the lock is held, so that none goes on."""
    with suppress(OSError):
        for left in leftovers(file):
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


def change_of(receipt: Receipt, backups: Path, places: Places) -> Change:
    """What a receipt of this kind tells, and how the file stands now. Raises NotFound for a receipt
    of another kind.

    Nothing in it is trusted: other programs write to the same table. The difference of a file that can
    be taken back is made from the file and its backup; only where they are no more those of the write
    it is what the receipt tells.
    """
    change, was, is_ = _read(receipt, backups)
    if change is None:
        raise NotFound("That receipt is of no instruction file.")
    path = change.file
    problem = _off_limits(change, places)
    if problem:
        return _stands(change, "unknown", problem)
    try:
        current = load(path)
    except MemoryAppError as error:
        return _stands(change, "unknown", f"{error.message} So nothing can be taken back here.")
    now = _digest(current)
    backup = f" Its former text is kept in {change.backup}." if change.backup else ""
    if now == is_:
        try:
            former = _former(change, was)
        except MemoryAppError as error:
            return _stands(change, "unknown", error.message)
        change = replace(change, diff=difference(path, former, current), measured=True)
        begun = " The program ended before it could say so." if change.interrupted else ""
        told = f"{path} is still as it was written.{begun}"
        if former is None:
            told += " It was not there before, so taking it back removes it whole."
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
            change,
            "changed",
            f"{path} is not there any more, so there is nothing to take back.{backup}",
        )
    return _stands(
        change, "changed",
        f"{path} was changed since, so this cannot be taken back as a whole. Take the lines of the"
        f" difference out by hand.{backup}",
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
        or not is_path(file)
        or not isinstance(diff, list)
        or not all(value is None or isinstance(value, str) for value in (name, was, is_))
        or (isinstance(name, str) and name != os.path.basename(name))
    ):
        return None, None, None
    shown = credentials.mask("\n".join(map(str, diff))).split("\n")
    return (
        Change(
            Path(file), backups / name if isinstance(name, str) else None, was is not None,
            is_ is not None, tuple(shown), scope if isinstance(scope, str) else "",
            origin if isinstance(origin, dict) else {},
            number if type(number) is int and 0 < number < 2**63 else None,
            detail.get("interrupted") is True,
        ),
        was, is_,
    )  # fmt: skip


def _former(change: Change, was: str | None) -> bytes | None:
    """The text before the write, from its backup. Raises Conflict where that is not it."""
    if was is None:
        return None
    try:
        data = load(change.backup) if change.backup is not None else None
    except MemoryAppError as error:
        raise Conflict(f"The backup cannot be used: {error.message}") from error
    if _digest(data) != was:
        raise Conflict(
            f"The backup {change.backup} is not there or is not what was kept, so nothing can be taken"
            " back. Take the lines of the difference out by hand."
        )
    return data
