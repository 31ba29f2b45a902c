"""The trash: list, restore with a choice on conflict, purge, sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.errors import Conflict, InvalidInput, NotFound
from webapp.memory import origins
from webapp.memory.entries import (
    MAX_TITLE,
    Entry,
    check_text,
    from_row,
    live_twin,
    to_trash,
)
from webapp.store import EntryRow, Store, TrashRow, now_ms, receipts
from webapp.store.values import as_text, as_time, tolerant

KEEP_BOTH = "keep_both"
REPLACE = "replace"
PAGE = 100


@dataclass(frozen=True, slots=True)
class Trashed:
    """An entry in the trash, when and by whom it got there."""

    entry: Entry
    trashed_at: int
    trashed_by: str


def listing(store: Store, offset: int = 0, limit: int = PAGE) -> list[Trashed]:
    """The trash, newest first."""
    if not store.has_table("trash"):
        return []
    query = TrashRow.select(*tolerant(TrashRow)).order_by(TrashRow.trashed_at.desc(), TrashRow.id)
    return [_trashed(row) for row in store.all(query.offset(offset).limit(limit))]


def count(store: Store) -> int:
    """How many entries are in the trash."""
    if not store.has_table("trash"):
        return 0
    return int(store.value("SELECT count(*) FROM trash"))


def get(store: Store, entry_id: str) -> Trashed:
    """One trashed entry. Raises NotFound."""
    return _trashed(_row(store, entry_id))


def restore(
    store: Store,
    entry_id: str,
    actor: str,
    choice: str | None = None,
    title: str | None = None,
    now: int | None = None,
) -> Entry:
    """Puts an entry back where it lived, with its id.

    If a live entry holds that scope and title, or that id, Conflict is raised (its
    `details["entry"]` is the live one) and nothing changes, unless `choice` is `keep_both` (the
    restored one gets `title`, or its own with a number) or `replace` (the live one goes to the
    trash). An expiry that has passed is taken off, since the entry would vanish again at once.
    """
    if choice not in (None, "", KEEP_BOTH, REPLACE):
        raise InvalidInput("Choose keep_both or replace.", "choice")
    at = now_ms() if now is None else now
    with store.writing(create=False):
        row = _row(store, entry_id)
        live = store.first(
            EntryRow.select(*tolerant(EntryRow)).where(EntryRow.id == entry_id)
        ) or live_twin(store, row.scope, row.title, at)
        values = {name: getattr(row, name) for name in EntryRow._meta.fields}
        if live is not None and choice == REPLACE:
            store.run(TrashRow.delete().where(TrashRow.id == entry_id))
            to_trash(store, live, f"{actor} (replaced)", at)
        elif live is not None and choice == KEEP_BOTH:
            if live.id == entry_id:
                raise Conflict("That very entry is live again; it can only be replaced.",
                               entry=from_row(live))  # fmt: skip
            values["title"] = _free_title(store, row.scope, title or "", row.title, at)
        elif live is not None:
            raise Conflict(
                f"A live entry in {row.scope} already has the title “{row.title}”. Keep both, or "
                "replace the live one.",
                entry=from_row(live),
            )
        expires_at = as_time(values["expires_at"])
        if expires_at is None or expires_at <= at:
            values["expires_at"] = None
        store.run(EntryRow.insert(**values))
        if choice != REPLACE or live is None:
            store.run(TrashRow.delete().where(TrashRow.id == entry_id))
        restored = from_row(EntryRow(**values))
        receipts.write(
            store, "restore", actor, f"Restored “{restored.title}”",
            {"id": restored.id, "title": restored.title, "scope": restored.scope,
             "choice": choice or "none"}, at,
        )  # fmt: skip
    return restored


def purge(
    store: Store,
    ids: Sequence[str] | None,
    actor: str,
    now: int | None = None,
    count: int | None = None,
    until: int | None = None,
) -> int:
    """Destroys trashed entries for good, all of them when `ids` is None; leaves a receipt with
    their titles. Returns how many went.

    `count` and `until` are what somebody saw who asks for all: how many there were, and when the
    newest came. If it is no longer so, Conflict is raised and nothing is destroyed.
    """
    at = now_ms() if now is None else now
    with store.writing(create=False):
        query = TrashRow.select(*tolerant(TrashRow))
        if ids is not None:
            query = query.where(TrashRow.id.in_(list(ids)))
        elif count is not None and (count, until) != seen(store):
            raise Conflict(
                "The trash has changed since this page was shown, so nothing was destroyed. Look "
                "again."
            )
        return _destroy(store, query, "purge", actor, at)


def seen(store: Store) -> tuple[int, int]:
    """How many entries are in the trash, and when the newest came; 0 and 0 when it is empty."""
    if not store.has_table("trash"):
        return 0, 0
    row = store.rows("SELECT count(*), coalesce(max(trashed_at), 0) FROM trash")[0]
    return row[0], row[1]


JUMP_MS = 30 * 86_400_000
DAY_MS = 86_400_000
DOUBT = "clock"
_LAST = (
    "SELECT max(at) FROM (SELECT max(at) AS at FROM receipts WHERE at <= ? AND action != 'clock'"
    " UNION ALL SELECT max(trashed_at) FROM trash WHERE trashed_at <= ?"
    " UNION ALL SELECT max(updated_at) FROM entries WHERE updated_at <= ?)"
)


def _is_doubtful(store: Store, now: int) -> bool:
    """Whether the clock is more than JUMP_MS beyond all that was ever written, and has not gone on
    for a day since that was noted first. The receipt that notes it is the note."""
    last = store.value(_LAST, (now, now, now))
    if last is not None and now - last <= JUMP_MS:
        return False
    noted = store.value(
        "SELECT min(at) FROM receipts WHERE action = ? AND at BETWEEN ? AND ?",
        (DOUBT, now - JUMP_MS, now),
    )
    if noted is None:
        receipts.write(
            store, DOUBT, "sweep",
            "The clock is more than 30 days beyond anything written, so the trash was not swept", {},
            now,
        )  # fmt: skip
        return True
    return bool(now - noted < DAY_MS)


def sweep(store: Store, trash_days: int, now: int | None = None) -> int:
    """Destroys what has been in the trash for longer than `trash_days`; returns how many.

    A wrong clock must not destroy: one that is far beyond all that was written is believed only when
    it has gone on for a day.
    """
    at = now_ms() if now is None else now
    horizon = at - trash_days * 86_400_000
    if not store.exists or store.read_only:
        return 0
    if not store.value("SELECT 1 FROM trash WHERE trashed_at < ? LIMIT 1", (horizon,)):
        return 0
    with store.writing():
        if _is_doubtful(store, at):
            return 0
        query = TrashRow.select(*tolerant(TrashRow)).where(TrashRow.trashed_at < horizon)
        return _destroy(store, query, "sweep", f"after {trash_days} days", at)


def _destroy(store: Store, query: object, action: str, actor: str, at: int) -> int:
    # Without an id a row cannot be told from others without one.
    rows = [row for row in store.all(query) if isinstance(row.id, str)]
    for row in rows:
        store.run(TrashRow.delete().where(TrashRow.id == row.id))
    if rows:
        origins.drop_gone(store)
        word = "1 entry" if len(rows) == 1 else f"{len(rows)} entries"
        receipts.write(
            store, action, actor, f"Destroyed {word} from the trash",
            {"entries": [{"id": r.id, "title": r.title, "scope": r.scope} for r in rows]}, at,
        )  # fmt: skip
    return len(rows)


def _row(store: Store, entry_id: str) -> Any:
    row = None
    if store.has_table("trash"):
        row = store.first(TrashRow.select(*tolerant(TrashRow)).where(TrashRow.id == entry_id))
    if row is None:
        raise NotFound(f"There is no entry {entry_id[:60]} in the trash.")
    return row


def _trashed(row: TrashRow) -> Trashed:
    return Trashed(from_row(row), as_time(row.trashed_at) or 0, as_text(row.trashed_by))


def _free_title(store: Store, scope: str, wanted: str, old: str, at: int) -> str:
    wanted = " ".join(wanted.split())
    if wanted and wanted != old:
        check_text("title", wanted, MAX_TITLE)
        if live_twin(store, scope, wanted, at) is not None:
            raise Conflict(f"The title “{wanted}” is taken as well. Choose another.")
        return wanted
    number = 2
    while True:
        suffix = f" ({number})"
        candidate = old[: MAX_TITLE - len(suffix)] + suffix
        if live_twin(store, scope, candidate, at) is None:
            return candidate
        number += 1
