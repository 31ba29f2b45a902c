"""Where an entry was taken from: lines of a transcript, or a session as a whole.

A row lives as long as its entry does, in the trash too. `hash` is the `?h=` of a copied link
(webapp/lines.py), so that the way back notices when other text stands there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webapp.errors import InvalidInput
from webapp.lines import parse_range
from webapp.store import Store
from webapp.store.layout import ORIGIN_COLUMNS
from webapp.store.values import as_text, as_time

MAX_SESSION = 300
_HASH = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Origin:
    """Lines `first` to `last` of the transcript of a session, or 0 and 0 for the session as a whole.
    `at` is the `updated_at` of the entry when it was saved from them (epoch milliseconds), 0 before
    that. An entry of another time was edited since."""

    session_id: str
    first: int
    last: int
    hash: str
    at: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether no lines are named, but the session."""
        return self.first == 0

    @property
    def lines(self) -> str:
        """The lines as an address writes them: `120-140`, or `120`."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def whole(session_id: str) -> Origin:
    """A session as a whole as an origin."""
    return Origin(session_id, 0, 0, "")


def parse(session_id: str, lines: str, hash_: str) -> Origin:
    """An origin as a form gives it. Raises InvalidInput."""
    span = parse_range(lines)
    if not session_id.isprintable() or not 0 < len(session_id) <= MAX_SESSION:
        raise InvalidInput(
            "That is no id of a session, so it cannot be kept as an origin.", "session"
        )
    if not _HASH.fullmatch(hash_):
        raise InvalidInput("The hash of a line link has eight hex digits.", "h")
    return Origin(session_id, span.first, span.last, hash_)


def of(store: Store, entry_id: str) -> Origin | None:
    """The origin of an entry, live or in the trash; None for one that was written by itself."""
    return of_many(store, [entry_id]).get(entry_id)


def of_many(store: Store, ids: Sequence[str]) -> Mapping[str, Origin]:
    """The origins of some entries, by their ids."""
    if not ids or not store.has_columns("origins", ORIGIN_COLUMNS):
        return {}
    holes = ", ".join("?" * len(ids))
    rows = store.rows(
        "SELECT entry_id, session_id, first_line, last_line, hash, at FROM origins"
        f" WHERE entry_id IN ({holes})",
        ids,
    )
    return {
        as_text(row[0]): Origin(as_text(row[1]), row[2], row[3], as_text(row[4]), as_time(row[5]) or 0)
        for row in rows
        # Another program may have put anything there; what names no lines leads nowhere.
        if isinstance(row[2], int) and isinstance(row[3], int)
        and (0 < row[2] <= row[3] or (row[2], row[3]) == (0, 0))
    }  # fmt: skip


def keep(store: Store, entry_id: str, origin: Origin, at: int) -> None:
    """Notes an origin, in place of an earlier one, inside the caller's write transaction."""
    store.rows(
        "INSERT OR REPLACE INTO origins VALUES (?, ?, ?, ?, ?, ?)",
        (entry_id, origin.session_id, origin.first, origin.last, origin.hash, at),
    )


def copy(store: Store, entry_id: str, other_id: str) -> None:
    """Gives a text that is kept under another id the same origin."""
    store.rows(
        "INSERT OR REPLACE INTO origins"
        " SELECT ?, session_id, first_line, last_line, hash, at FROM origins WHERE entry_id = ?",
        (other_id, entry_id),
    )


def follow(store: Store, entry_id: str, before: int, now: int) -> None:
    """An entry was saved again as it was: it is no more edited than before."""
    store.rows("UPDATE origins SET at = ? WHERE entry_id = ? AND at = ?", (now, entry_id, before))


def drop_gone(store: Store) -> None:
    """Drops the origins of entries that are neither live nor in the trash any more."""
    store.rows(
        "DELETE FROM origins WHERE NOT EXISTS (SELECT 1 FROM entries WHERE id = entry_id)"
        " AND NOT EXISTS (SELECT 1 FROM trash WHERE id = entry_id)"
    )
