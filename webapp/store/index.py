"""Health of the full-text indexes: the check, the rebuild, and VACUUM done safely."""

from __future__ import annotations

from collections.abc import Sequence

from webapp.errors import MemoryAppError, ReadOnly, Unreadable
from webapp.store.connection import Store
from webapp.store.layout import OUR_INDEXES


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


def vacuum(store: Store) -> int:
    """VACUUM, then a rebuild of all indexes; returns the bytes given back.

    `entries` has no integer key, so VACUUM may renumber its rowids, which unhooks every
    external-content index without an error.
    """
    if store.read_only:
        raise ReadOnly(f"{store.read_only} Nothing was changed.")
    before = store.disk_bytes()
    store.rows("VACUUM")
    rebuild(store)
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return before - store.disk_bytes()
