"""Rows that other programs have written into memory.db with values that are not what they should
be: each is shown as well as it can be, and hides no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webapp.cli import checks
from webapp.cli.entries import _day
from webapp.memory import entries, stats, trash
from webapp.memory.query import SearchQuery
from webapp.memory.search import ids_of_all_matches, search
from webapp.settings import Settings
from webapp.store import Store, receipts
from webapp.web import filters

DAY = 1_767_225_600_000
ODD: list[dict[str, Any]] = [
    {"updated_at": "2026-01-01T00:00:00Z"},
    {"created_at": "2026-01-01T00:00:00Z"},
    {"created_at": b"\xff", "updated_at": "soon"},
    {"expires_at": "never"},
    {"expires_at": "2999-01-01T00:00:00Z"},
    {"id": None},
    {"id": b"\xff\x00"},
    {"title": b"needle \xff"},
    {"body": b"needle \xff"},
    {"kind": b"\xff"},
    {"scope": b"\xff"},
    {"tags": b'["\xff"]'},
    {"tags": b"\xff"},
    {"source": b"\xff"},
    {"created_at": 2**63 - 1, "updated_at": 2**63 - 1},
    {"created_at": -(2**62), "updated_at": -1},
    {"created_at": 1e300, "updated_at": 2.5},
]


def put(store: Store, table: str = "entries", **values: Any) -> None:
    row = {
        "id": "odd", "scope": "global", "kind": "fact", "title": "needle odd", "body": "needle",
        "tags": "[]", "created_at": DAY, "updated_at": DAY, "expires_at": None, "source": "x",
        **values,
    }  # fmt: skip
    if table == "trash":
        row = {"trashed_at": DAY, "trashed_by": "x", **row}
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            list(row.values()),
        )


def save(store: Store, title: str = "needle plain") -> entries.Entry:
    new = entries.draft(scope="global", kind="fact", title=title, body="needle")
    return entries.save(store, new, "tester").entry


def assert_proper(entry: entries.Entry) -> None:
    texts = (entry.id, entry.scope, entry.kind, entry.title, entry.body, *entry.tags)
    assert all(isinstance(text, str) for text in texts)
    assert all(isinstance(time, int) for time in (entry.created_at, entry.updated_at))
    assert entry.expires_at is None or isinstance(entry.expires_at, int)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_odd_entry_is_listed_found_and_counted_with_the_others(
    store: Store, odd: dict[str, Any]
) -> None:
    save(store)
    put(store, **odd)
    for text, sort in (("", "newest"), ("needle", "best"), ("needle", "title"), ("needl", "best")):
        result = search(store, SearchQuery(text, None, sort=sort))
        assert result.total == 2
        for hit in result.hits:
            assert_proper(hit.entry)
            filters.when(hit.entry.updated_at)
            _day(hit.entry.updated_at)
    search(store, SearchQuery("", None, tag="a"))
    found = stats.stats(store)
    assert found.total == 2 and isinstance(found.oldest, int)
    facets = stats.facets(store)
    groups = (*facets.scopes, *facets.kinds, *facets.tags, *facets.sources)
    assert all(isinstance(name, str) for name, _ in groups)
    for column in ("kind", "scope"):
        series = stats.over_time(store, column)
        assert sum(row[-1] for row in series.values) == 2
        assert list(series.days) == sorted(series.days)


@pytest.mark.parametrize("odd", [odd for odd in ODD if "id" not in odd], ids=str)
def test_an_odd_entry_can_be_edited_forgotten_and_restored(
    store: Store, odd: dict[str, Any]
) -> None:
    save(store)
    put(store, **odd)
    seen = entries.get(store, "odd")
    new = entries.draft(scope="global", kind="fact", title="mended", body="b")
    entries.edit(store, "odd", new, "tester", seen.updated_at)
    entries.forget(store, ["odd"], "tester")
    assert trash.restore(store, "odd", "tester").title == "mended"


@pytest.mark.parametrize(
    "odd", [*ODD, {"trashed_at": "2026-01-01"}, {"trashed_by": b"\xff"}], ids=str
)
def test_an_odd_row_in_the_trash_is_listed(store: Store, odd: dict[str, Any]) -> None:
    save(store)
    put(store, "trash", **odd)
    (item,) = trash.listing(store)
    assert_proper(item.entry)
    assert isinstance(item.trashed_at, int)
    assert isinstance(item.trashed_by, str)


def test_an_odd_receipt_is_listed(store: Store) -> None:
    save(store)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(
            "INSERT INTO receipts (at, action, actor, summary, detail) VALUES (?, ?, ?, ?, ?)",
            ("2026-01-01T00:00:00Z", b"\xff", b"\xff", b"\xff", b"\xff"),
        )
    (receipt,) = receipts.listing(store)
    assert (receipt.at, receipt.action, receipt.summary) == (DAY, "\ufffd", "\ufffd")
    assert receipt.detail == {"unreadable": "\ufffd"}


def test_times_as_text_are_taken_as_times(store: Store) -> None:
    save(store)
    put(store, created_at="2026-01-01T00:00:00Z", updated_at="2026-01-01", expires_at="never")
    entry = entries.get(store, "odd")
    assert (entry.created_at, entry.updated_at, entry.expires_at) == (DAY, DAY, None)


def test_entries_without_an_id_are_never_changed_together(store: Store) -> None:
    save(store)
    put(store, id=None, title="needle one")
    put(store, id=None, title="needle two")
    put(store, id=None, title="needle gone", expires_at=1)
    put(store, id=b"x", title="needle gone", expires_at=1)
    ids, _ = ids_of_all_matches(store, SearchQuery("needle", "global"))
    assert len(entries.forget(store, ids, "tester")) == 1
    save(store, "needle one")
    count = "SELECT count(*) FROM entries WHERE id IS NULL"
    assert store.value(count) == 3
    assert trash.count(store) == 1


@pytest.mark.parametrize("power", [0, 13, 15, 18, 30, 400, 5000])
@pytest.mark.parametrize("sign", [1, -1])
def test_no_number_is_too_large_to_be_shown_as_a_time(power: int, sign: int) -> None:
    value = sign * 10**power
    for show in (filters.when, filters.iso, filters.age, _day):
        assert str(show(value))


def test_doctor_goes_on_after_a_damaged_index(store: Store, settings: Settings) -> None:
    save(store)
    store.close()
    with closing(sqlite3.connect(settings.db)) as connection, connection:
        connection.execute("UPDATE entries_fts_data SET block = x'00' WHERE id IN (1, 10)")
        connection.execute("DELETE FROM entries_fts_config")
    found = {check.name: check for check in checks.checks(settings)}
    assert not found["index entries_fts"].ok
    assert found["index webapp_words"].ok and found["transcripts"].ok


def test_doctor_reads_the_messages_of_the_newest_session(
    settings: Settings, newest_db: Path
) -> None:
    settings = replace(settings, opencode_db=newest_db)
    found = {check.name: check for check in checks.checks(settings)}
    assert found["OpenCode messages"].ok
    with closing(sqlite3.connect(newest_db)) as db, db:
        db.execute("ALTER TABLE part RENAME COLUMN data TO payload")
    found = {check.name: check for check in checks.checks(settings)}
    assert found["OpenCode"].ok
    assert not found["OpenCode messages"].ok
    assert "“part”" in found["OpenCode messages"].text
