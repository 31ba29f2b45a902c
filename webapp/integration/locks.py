"""One process at a time."""

from __future__ import annotations

import fcntl
import time

_PAUSE_S = 0.05


def take(descriptor: int, patience: float) -> bool:
    """Takes the lock on an open file or folder, waiting so many seconds; says whether it got it. The lock
    goes when the descriptor is closed."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
