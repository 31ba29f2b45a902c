"""Health of the full-text indexes: the check, the rebuild, and VACUUM done safely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webapp.errors import MemoryAppError, NotFound, ReadOnly, Unreadable
from webapp.store import receipts
from webapp.store.connection import Store, now_ms
from webapp.store.layout import OUR_INDEXES

SLACK_BYTES = 1_000_000
SLACK_SHARE = 0.1


def indexes(store: Store) -> list[str]:
    """The external-content indexes over `entries` in the open file, the plugin's among them."""
    return [name for name in ("entries_fts", *OUR_INDEXES) if store.has_table(name)]


def check(store: Store) -> dict[str, str]:
    """For each index `ok` or what is wrong.

    Rank 1 makes FTS5 compare the index with the content table; without it an external-content
    index is only checked against itself (sqlite.org/fts5.html, 6.5).
    """
    result = {}
    for name in indexes(store):
        try:
            with store.writing(create=False):
                store.rows(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', 1)")
            result[name] = "ok"
        except Unreadable as error:
            if "constructor failed" in error.message:
                result[name] = "It is damaged and cannot be opened, so a search may fail."
                continue
            result[name] = "It does not match the entries, so a search may miss some."
        except MemoryAppError as error:
            result[name] = error.message
    return result


def rebuild(store: Store, names: Sequence[str] | None = None) -> list[str]:
    """Builds every index, or those named, anew from `entries`; returns their names."""
    names = indexes(store) if names is None else list(names)
    with store.writing(create=False):
        for name in names:
            store.rows(f"INSERT INTO {name}({name}) VALUES ('rebuild')")
    return names


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """Bytes of memory.db and its write-ahead log before and after, and the receipt."""

    before: int
    after: int
    receipt: int


def slack(store: Store) -> int:
    """Bytes that VACUUM would give back, 0 where that is not worth it: no more than SLACK_BYTES and
    SLACK_SHARE of the file."""
    if store.read_only or not store.exists:
        return 0
    free, pages, size = (
        int(store.value(f"PRAGMA {name}")) for name in ("freelist_count", "page_count", "page_size")
    )
    return free * size if free * size > SLACK_BYTES and free > SLACK_SHARE * pages else 0


def vacuum(store: Store, actor: str) -> Vacuumed:
    """A rebuild of all indexes, VACUUM, a rebuild again, and a receipt. Raises NotFound, ReadOnly,
    Busy and Unreadable.

    `entries` has no integer key, so VACUUM may renumber its rowids, which unhooks every
    external-content index without an error. The rebuild before it is there because an index that
    was much written to shrinks by one: 7.9 of 17.9 MB would be unused again right after a VACUUM.
    """
    if store.read_only:
        raise ReadOnly(f"{store.read_only} Nothing was changed.")
    if not store.exists:
        raise NotFound("There is no memory.db yet, so there is nothing to make smaller.")
    before = store.disk_bytes()
    rebuild(store)
    store.rows("VACUUM")
    rebuild(store)
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    after = store.disk_bytes()
    detail = {"before": before, "after": after, "bytes": before - after}
    smaller = after < before
    summary = "Made memory.db smaller" if smaller else "Found memory.db as small as it gets"
    with store.writing(create=False):
        receipt = receipts.write(store, "vacuum", actor, summary, detail, now_ms())
    return Vacuumed(before, after, receipt)
