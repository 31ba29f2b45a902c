"""The errors a person may meet. Each is one sentence that says what is wrong and what to do."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class MemoryAppError(Exception):
    """Base of every error that is shown to a person.

    `status` is the HTTP status, `exit_code` the command line's, `code` a stable word for programs.
    """

    status = 500
    exit_code = 2
    code = "error"

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidInput(MemoryAppError):
    """What was given cannot be used; `field` names the argument when there is one."""

    status = 400
    code = "invalid_input"

    def __init__(self, message: str, field: str | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.field = field


class SecretRefused(InvalidInput):
    """A field looks like a credential; the value itself is never repeated."""

    code = "secret_refused"


class NotFound(MemoryAppError):
    """Nothing has that name."""

    status = 404
    exit_code = 1
    code = "not_found"


class Conflict(MemoryAppError):
    """The change would collide with something that is there; nothing was changed."""

    status = 409
    exit_code = 1
    code = "conflict"


class PlanChanged(Conflict):
    """The library is no longer what the plan was made for; `details["plan"]` is the new plan."""

    code = "plan_changed"


class ReadOnly(MemoryAppError):
    """The store can be read but must not be written; the message names the reason."""

    status = 409
    code = "read_only"


class Unreadable(MemoryAppError):
    """A file is corrupt, foreign or may not be read."""

    status = 503
    code = "unreadable"


class Busy(MemoryAppError):
    """Another process holds the write lock for longer than we wait; nothing was changed."""

    status = 503
    code = "busy"


class Refused(MemoryAppError):
    """A guard turned the request away."""

    status = 403
    code = "refused"


class Problems:
    """What goes wrong in work that nobody waits for. The last one is kept as `text`, with its time in
    epoch milliseconds, for a page to tell; each kind is logged once."""

    def __init__(self, log: logging.Logger) -> None:
        self.text = ""
        self.at: int | None = None
        self._log = log
        self._told: set[str] = set()

    def guarded(self, kind: str, work: Callable[[], _T], at: int) -> _T | None:
        """What `work` answers, or None when it failed."""
        try:
            return work()
        except Exception as error:
            self.tell(kind, error, at)
        return None

    def tell(self, kind: str, error: Exception, at: int) -> None:
        """Keeps and logs an error; of one that is not for a person the log has the place."""
        plain = error.message if isinstance(error, MemoryAppError) else ""
        text = plain or "Something unexpected went wrong; the log says what."
        self.text, self.at = f"{kind}: {text}", at
        name = f"{kind}: {type(error).__name__}"
        if name in self._told:
            return
        self._told.add(name)
        if plain:
            self._log.warning("%s: %s", kind, text)
        else:
            self._log.error("%s: %s", kind, text, exc_info=error)
