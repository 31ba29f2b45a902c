"""Where removed transcripts lie for some days, so that a cleanup can be taken back whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from webapp.errors import Conflict
from webapp.settings import Settings
from webapp.store import private_folder
from webapp.transcripts.export import last_end
from webapp.transcripts.files import locked, marks_path, offsets_path, sources_path

DAYS = 7
DAY_MS = 86_400_000


def aside_path(settings: Settings, path: Path) -> Path:
    """Where a transcript of the library lies once it is removed: outside of what is listed and
    searched."""
    return settings.data_dir / "trash" / path.relative_to(settings.transcripts_dir)


def is_aside(settings: Settings, path: Path) -> bool:
    """Whether a removed transcript can still be put back."""
    return aside_path(settings, path).is_file()


def set_aside(settings: Settings, path: Path, now: int) -> list[Path]:
    """Moves a transcript and its marks out of the library; the time of the file becomes `now`.

    Returns what could not be moved of that which is nothing without the transcript. Raises OSError;
    then the transcript is where it was.
    """
    target = aside_path(settings, path)
    private_folder(target.parent)
    shutil.move(path, target)
    os.utime(target, ns=(now * 1_000_000,) * 2)
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


def put_back(settings: Settings, path: Path) -> None:
    """Moves a transcript back to where it was. Raises Conflict if there is another by now, and
    OSError."""
    source = aside_path(settings, path)
    private_folder(path.parent)
    with locked(path) as descriptor:
        # A first export that failed or was killed leaves an empty file, or one with nothing whole.
        size = os.fstat(descriptor).st_size
        if size and last_end(path, size) != (0, 0, 0):
            raise Conflict(f"{path} is there again, so the removed one stays where it is.")
        for beside in (marks_path(path), offsets_path(path), sources_path(path)):
            beside.unlink(missing_ok=True)
        if marks_path(source).exists():
            shutil.move(marks_path(source), marks_path(path))
        shutil.move(source, path)


def sweep(settings: Settings, now: int) -> int:
    """Takes off the disk what has lain aside for longer than DAYS; returns the bytes given back."""
    horizon = now - DAYS * DAY_MS
    freed = 0
    for path in (settings.data_dir / "trash").glob("*/*.md"):
        if path.stat().st_mtime_ns // 1_000_000 < horizon:
            for target in (path, marks_path(path)):
                if target.exists():
                    freed += target.stat().st_size
                    target.unlink()
    return freed
