"""Where removed transcripts lie for some days, so that a cleanup can be taken back whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp.errors import Conflict, Unreadable
from webapp.settings import Settings
from webapp.store import Store, private_file, private_folder, receipts
from webapp.transcripts.export import last_end
from webapp.transcripts.files import locked, marks_path, offsets_path, sources_path

DAYS = 7
DAY_MS = 86_400_000
JUMP_DAYS = 30
"""How far the clock may be beyond the last time that was seen and still be believed."""

SWEPT = "swept"
SEEN = ".seen"
DOUBTED = ".doubted"
"""Files beside what lies aside; their times are those of the last sweep, and of the first one since
that did not believe the clock."""


def aside_path(settings: Settings, path: Path, at: int) -> Path:
    """Where a transcript of the library lies once it was removed at that time: outside of what is
    listed and searched. The time is in the name, so that one removal never overwrites another, and
    so that it is known however the removal ended."""
    folder = settings.data_dir / "trash" / path.relative_to(settings.transcripts_dir).parent
    return folder / f"{path.stem}.{at}.md"


def is_aside(settings: Settings, path: Path, at: int) -> bool:
    """Whether a transcript that was removed at that time can still be put back."""
    return aside_path(settings, path, at).is_file()


def set_aside(settings: Settings, path: Path, at: int) -> list[Path]:
    """Moves a transcript and its marks out of the library, as removed at that time.

    Returns what could not be moved of that which is nothing without the transcript. Raises OSError;
    then the transcript is where it was.
    """
    target = aside_path(settings, path, at)
    private_folder(target.parent)
    if target.exists():
        raise FileExistsError(errno.EEXIST, "something lies there already", str(target))
    shutil.move(path, target)
    left = []
    try:
        if marks_path(path).is_file():
            shutil.move(marks_path(path), marks_path(target))
        elif marks_path(path).exists():
            left.append(marks_path(path))
    except OSError:
        left.append(marks_path(path))
    for beside in (offsets_path(path), sources_path(path)):
        try:
            beside.unlink(missing_ok=True)
        except OSError:
            left.append(beside)
    return left


def put_back(settings: Settings, path: Path, at: int) -> None:
    """Moves a transcript that was removed at that time back to where it was. Raises Conflict if there
    is another by now, and OSError."""
    source = aside_path(settings, path, at)
    private_folder(path.parent)
    with locked(path) as descriptor:
        # A first export that failed or was killed leaves an empty file, or one with nothing whole.
        size = os.fstat(descriptor).st_size
        if size and last_end(path, size) != (0, 0, 0):
            raise Conflict(f"{path} is there again, so the removed one stays where it is.")
        for beside in (offsets_path(path), sources_path(path)):
            beside.unlink(missing_ok=True)
        # Marks in the library alone are its own: the removal, or an undo, was killed in between.
        if marks_path(source).exists():
            shutil.move(marks_path(source), marks_path(path))
        shutil.move(source, path)


@dataclass(frozen=True, slots=True)
class Aside:
    """What lies aside: how many transcripts, their bytes with their marks, and when the first and
    the last of them was removed (epoch milliseconds, None when there is none)."""

    count: int
    bytes: int
    first_at: int | None
    last_at: int | None

    @property
    def next_at(self) -> int | None:
        """When the next bytes are due to be given back."""
        return None if self.first_at is None else self.first_at + DAYS * DAY_MS


def contents(settings: Settings) -> Aside:
    """What lies aside now. Raises Unreadable."""
    found = _aside(settings)
    times = [at for _, at, _ in found]
    return Aside(
        len(found), sum(size for _, _, size in found), min(times, default=None),
        max(times, default=None),
    )  # fmt: skip


def doubt(store: Store, settings: Settings, now: int) -> str:
    """Why a sweep would wait for lack of a trustworthy clock, or nothing. Raises Unreadable."""
    found = _aside(settings)
    return _doubt(store, found, _seen_at(settings, found), now) if found else ""


def sweep(store: Store, settings: Settings, now: int) -> int:
    """Takes off the disk what has lain aside for longer than DAYS; returns the bytes given back, and
    leaves a receipt of them.

    A wrong clock must not destroy: Conflict is raised when something was written or removed later
    than `now`, or when `now` is before the last sweep or more than JUMP_DAYS after it and the last
    removal. A clock that has gone on for a day from there is believed. Raises Unreadable, Busy and
    ReadOnly too.
    """
    found = _aside(settings)
    if not found:
        return 0
    why = _doubt(store, found, _seen_at(settings, found), now)
    if why:
        since = _time_of(settings, DOUBTED)
        if since is None or not 0 <= now - since <= JUMP_DAYS * DAY_MS:
            _keep_time(settings, DOUBTED, now)
            raise Conflict(why)
        if now - since < DAY_MS:
            raise Conflict(why)
    _keep_time(settings, SEEN, now)
    (_folder(settings) / DOUBTED).unlink(missing_ok=True)
    horizon = now - DAYS * DAY_MS
    due = [item for item in found if item[1] < horizon]
    return _give_back(store, due, "sweep", f"after {DAYS} days", now)


def give_back(store: Store, settings: Settings, actor: str, until: int, now: int) -> int:
    """Takes off the disk at once what was removed up to `until`, whatever the clock says; returns
    the bytes given back, and leaves a receipt of them. Raises Unreadable, Busy, ReadOnly."""
    due = [item for item in _aside(settings) if item[1] <= until]
    return _give_back(store, due, actor, "on demand", now)


_NEWEST = "SELECT max(exported_at) FROM transcripts WHERE typeof(exported_at) = 'integer'"

_DATED = re.compile(r"(?P<id>.+)\.(?P<at>[0-9]{1,15})")

_Item = tuple[Path, int, int]
"""A transcript that lies aside, when it was removed, and its bytes with its marks."""


def _folder(settings: Settings) -> Path:
    return settings.data_dir / "trash"


def _aside(settings: Settings) -> list[_Item]:
    found = []
    try:
        for path in sorted(_folder(settings).glob("*/*.md")):
            try:
                state = path.stat()
            except FileNotFoundError:
                continue  # put back meanwhile
            marks = marks_path(path)
            size = state.st_size + (marks.stat().st_size if marks.is_file() else 0)
            dated = _DATED.fullmatch(path.stem)
            # Without a time in its name it was not put there by us, or by an earlier version.
            at = int(dated["at"]) if dated else state.st_mtime_ns // 1_000_000
            found.append((path, at, size))
    except OSError as error:
        raise Unreadable(
            f"{error.filename or _folder(settings)} cannot be looked at: {error.strerror}."
        ) from error
    return found


def _seen_at(settings: Settings, found: list[_Item]) -> int:
    """The last time that is known to have been: of the last sweep, or of the last removal."""
    newest = max(at for _, at, _ in found)
    return max(newest, _time_of(settings, SEEN) or newest)


def _time_of(settings: Settings, name: str) -> int | None:
    try:
        return (_folder(settings) / name).stat().st_mtime_ns // 1_000_000
    except OSError:
        return None


def _keep_time(settings: Settings, name: str, now: int) -> None:
    path = _folder(settings) / name
    try:
        private_file(path)
        os.utime(path, ns=(now * 1_000_000,) * 2)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror}.") from error


def _doubt(store: Store, found: list[_Item], seen_at: int, now: int) -> str:
    """Why the clock is not to be believed, or nothing."""
    newest = max(at for _, at, _ in found)
    if store.has_table("transcripts"):
        newest = max(newest, store.value(_NEWEST) or 0)
    wait = "so nothing was given back; the next sweep is in a day."
    if newest > now:
        return f"A transcript was written or removed later than the clock says it is now, {wait}"
    if seen_at > now:
        return f"The clock has been set back since the last sweep, {wait}"
    if now - seen_at > JUMP_DAYS * DAY_MS:
        return f"The clock is more than {JUMP_DAYS} days beyond the last sweep or removal, {wait}"
    return ""


def _give_back(store: Store, due: list[_Item], actor: str, why: str, now: int) -> int:
    """The receipt is there before anything goes and is brought up to date at the end, so that a
    killed sweep has one too: it names what was to go, and counts nothing."""
    if not due:
        return 0
    ids = [_id_of(path) for path, _, _ in due]
    detail: dict[str, Any] = {"why": why, "interrupted": True, "bytes": 0, "count": 0, "ids": ids}
    with store.writing():
        receipt = receipts.write(store, SWEPT, actor, _summary(len(due), True), detail, now)
    gone: list[_Item] = []
    problems: list[str] = []
    for item in due:
        try:
            marks_path(item[0]).unlink(missing_ok=True)
            item[0].unlink()
            gone.append(item)
        except FileNotFoundError:
            continue  # put back meanwhile
        except OSError as error:
            problems.append(f"{item[0]} stays: {error.strerror}")
    freed = sum(size for _, _, size in gone)
    detail = {"why": why, "bytes": freed, "count": len(gone), "problems": problems,
              "ids": [_id_of(path) for path, _, _ in gone]}  # fmt: skip
    with store.writing():
        receipts.update(store, receipt, _summary(len(gone), False), detail)
    return freed


def _id_of(path: Path) -> str:
    dated = _DATED.fullmatch(path.stem)
    return dated["id"] if dated else path.stem


def _summary(count: int, is_open: bool) -> str:
    word = "1 removed transcript" if count == 1 else f"{count} removed transcripts"
    if is_open:
        return f"Giving back the bytes of {word}, interrupted"
    return f"Gave back the bytes of {word} for good"
