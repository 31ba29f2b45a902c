"""The token that programs show: one line in a file that only its owner reads."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from webapp.errors import Unreadable
from webapp.settings import Settings

NAME = "token"
MAX_BYTES = 200


def path(settings: Settings) -> Path:
    """Where the token lies."""
    return settings.data_dir / NAME


def read(settings: Settings) -> str | None:
    """The token, or None where none was made yet. Raises Unreadable with a sentence when the file is
    there and is of no use."""
    where = path(settings)
    try:
        with where.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unreadable(f"The token {where} cannot be read: {error.strerror}.") from error
    if not 20 <= len(text) <= MAX_BYTES or not text.isascii() or any(c.isspace() for c in text):
        raise Unreadable(f"{where} holds no token. Remove it; the next start makes a new one.")
    return text


def ensure(settings: Settings) -> str:
    """The token, made first if there is none. Of several processes that make it at once, one wins, and
    all get its token. Raises Unreadable when the folder cannot be written."""
    found = read(settings)
    if found is not None:
        return found
    where = path(settings)
    fresh = secrets.token_urlsafe(32)
    part = where.with_name(f"{NAME}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Whole before it has its name, so that nobody reads half a token.
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(fresh + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(part, where)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError:
        return ensure(settings)
    except OSError as error:
        raise Unreadable(f"The token {where} cannot be written: {error.strerror}.") from error
    return fresh


def matches(settings: Settings, given: str) -> bool:
    """Whether this is the token, compared in constant time. False where there is none."""
    found = read(settings)
    return found is not None and hmac.compare_digest(found.encode(), given.encode())
