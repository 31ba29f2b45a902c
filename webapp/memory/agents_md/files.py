"""An instruction file as it is on disk: what may be read, what may be written, and why not."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from webapp.errors import Conflict, MemoryAppError
from webapp.opencode.instructions import AGENTS, CLAUDE, CONTEXT

FAMILY = (AGENTS, CLAUDE, CONTEXT)
MAX_FILE = 250_000
"""Bytes. A file of that size takes half of the window of most models, and half a second to be parsed."""

SCRATCH = "opencode-memory-"
"""What is in the name of a file that is still being written."""


def unusable(file: Path) -> str:
    """Why a file cannot be read or written, or nothing."""
    try:
        before = load(file)
    except MemoryAppError as error:
        return error.message
    if before is not None:
        state = file.stat()
        if not state.st_mode & 0o222 or not os.access(file, os.W_OK):
            return f"{file} is write-protected."
        if state.st_nlink > 1 and state.st_nlink - _own_links(file, state) > 1:
            return f"{file} has another name (a hard link), which a write would part from it."
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return f"The folder {file.parent} is write-protected."
    return ""


def leftovers(file: Path) -> list[Path]:
    """What killed writes of this program left beside a file."""
    return list(file.parent.glob(f".{file.name}.{SCRATCH}*"))


def _own_links(file: Path, state: os.stat_result) -> int:
    """How many of a file's names are of a write that was killed between two of them."""
    count = 0
    with suppress(OSError):
        for left in leftovers(file):
            with suppress(FileNotFoundError):
                count += os.path.samestat(left.lstat(), state)
    return count


def load(file: Path) -> bytes | None:
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
