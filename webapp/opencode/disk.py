"""Files of the user's that OpenCode reads, looked at so that none can hold us up."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

NEVER = frozenset({"auth.json", "mcp-auth.json"})
"""OpenCode's credentials. Not opened, whatever names them."""


def exists(path: Path) -> bool | OSError:
    """Whether something is there, links followed, or the error that hides it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except ValueError:
        return False
    except OSError as error:
        return error
    return True


def head(path: str, most: int) -> tuple[bytes, int] | str:
    """The first bytes of a regular file and its size, or the rest of a sentence that says why not.

    A link is followed, as OpenCode does. What is no regular file is not opened: that could wait
    for ever (a pipe) or act (a device).
    """
    try:
        if os.path.basename(os.path.realpath(path)) in NEVER:
            return "holds credentials and is never read."
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "is no regular file and was not opened."
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb", buffering=0) as file:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                return "is no regular file and was not opened."
            data = b""
            while len(data) < most and (piece := file.read(most - len(data))):
                data += piece
            return data, max(state.st_size, len(data))
    except (FileNotFoundError, NotADirectoryError):
        return "is not there."
    except ValueError:
        return "is no path."
    except OSError as error:
        return f"cannot be read: {error.strerror}."


def real(path: Path) -> Path:
    """A path with its links followed; one that no file system could have stays as it is."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:
        return path


def upwards(folder: Path, root: Path) -> Iterator[Path]:
    """A folder and those above it, up to the root."""
    for candidate in (folder, *folder.parents):
        yield candidate
        if candidate == root:
            return
