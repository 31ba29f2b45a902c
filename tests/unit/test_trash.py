"""The trash: restoring with a choice, purging, sweeping; nothing else destroys anything."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.errors import Conflict, InvalidInput, NotFound
from webapp.memory import entries, trash
from webapp.memory.entries import Entry
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import EntryRow, Store, index, receipts

NOW = 1_800_000_000_000
DAY = 86_400_000
SCOPE = "/home/a/shop"


def save(store: Store, now: int = NOW, **changes: Any) -> Entry:
    """Saves an entry at `now`."""
    fields: dict[str, Any] = {
        "scope": SCOPE, "kind": "fact", "title": "Tide", "body": "High at noon", "tags": ["sea"],
        "now": now, **changes,
    }  # fmt: skip
    return entries.save(store, entries.draft(**fields), "tester", now).entry


def forgotten(store: Store, now: int = NOW, **changes: Any) -> Entry:
    """Saves an entry and forgets it."""
    entry = save(store, now, **changes)
    entries.forget(store, [entry.id], "tester", now)
    return entry


def state(store: Store) -> tuple[object, ...]:
    """All that a change could have changed."""
    return (
        store.rows("SELECT * FROM entries ORDER BY id"),
        store.rows("SELECT * FROM trash ORDER BY id"),
        store.rows("SELECT * FROM receipts ORDER BY id"),
    )


def live(store: Store) -> list[Entry]:
    return [entries.from_row(row) for row in store.all(EntryRow.select().order_by(EntryRow.title))]


# --- restore --------------------------------------------------------------------------------------


def test_restore_puts_an_entry_back_where_it_lived_just_as_it_was(store: Store) -> None:
    entry = forgotten(store, expires_at=NOW + 10 * DAY)
    save(store, scope="/home/b/other")
    save(store, title="Ebb")
    assert trash.restore(store, entry.id, "other", now=NOW + DAY) == entry
    assert entries.get(store, entry.id) == entry
    assert trash.count(store) == 0
    assert search(store, SearchQuery("noon", SCOPE), NOW + DAY).total == 2


def test_restore_leaves_a_receipt(store: Store) -> None:
    entry = forgotten(store)
    trash.restore(store, entry.id, "other", now=NOW + DAY)
    receipt = receipts.listing(store)[0]
    assert (receipt.at, receipt.action, receipt.actor) == (NOW + DAY, "restore", "other")
    assert receipt.detail["id"] == entry.id


@pytest.mark.parametrize("choice", [None, "", trash.KEEP_BOTH, trash.REPLACE])
def test_restore_without_a_conflict_needs_no_choice_and_ignores_one(
    store: Store, choice: str | None
) -> None:
    entry = forgotten(store)
    assert trash.restore(store, entry.id, "tester", choice, "Unused", NOW) == entry
    assert trash.count(store) == 0


def test_a_conflict_changes_nothing_and_shows_the_live_entry(store: Store) -> None:
    entry = forgotten(store)
    other = save(store, body="Low at noon")
    before = state(store)
    with pytest.raises(Conflict, match=r"Tide.*Keep both, or replace") as caught:
        trash.restore(store, entry.id, "tester", now=NOW)
    assert caught.value.details["entry"] == other
    assert caught.value.status == 409
    assert state(store) == before


def test_an_unknown_choice_changes_nothing(store: Store) -> None:
    entry = forgotten(store)
    before = state(store)
    with pytest.raises(InvalidInput) as caught:
        trash.restore(store, entry.id, "tester", "overwrite", now=NOW)
    assert caught.value.field == "choice"
    assert state(store) == before


def test_keep_both_takes_the_title_that_is_given(store: Store) -> None:
    entry = forgotten(store)
    other = save(store, body="Low at noon")
    back = trash.restore(store, entry.id, "tester", trash.KEEP_BOTH, "  Old   tide ", NOW)
    assert (back.id, back.title, back.body) == (entry.id, "Old tide", "High at noon")
    assert live(store) == [back, other]
    assert trash.count(store) == 0


@pytest.mark.parametrize("title", [None, "", "  ", "Tide"])
def test_keep_both_finds_a_free_title_by_itself(store: Store, title: str | None) -> None:
    entry = forgotten(store)
    save(store)
    save(store, title="Tide (2)")
    back = trash.restore(store, entry.id, "tester", trash.KEEP_BOTH, title, NOW)
    assert back.title == "Tide (3)"


def test_keep_both_of_a_title_of_full_length_stays_within_the_limit(store: Store) -> None:
    title = "t" * entries.MAX_TITLE
    entry = forgotten(store, title=title)
    save(store, title=title)
    back = trash.restore(store, entry.id, "tester", trash.KEEP_BOTH, now=NOW)
    assert len(back.title) == entries.MAX_TITLE
    assert back.title.endswith(" (2)")


def test_keep_both_under_a_title_that_is_taken_too_changes_nothing(store: Store) -> None:
    entry = forgotten(store)
    save(store)
    save(store, title="Ebb")
    before = state(store)
    with pytest.raises(Conflict, match="Ebb"):
        trash.restore(store, entry.id, "tester", trash.KEEP_BOTH, "Ebb", NOW)
    assert state(store) == before


@pytest.mark.parametrize("title", ["t" * 121, "nul\0", "half \ud83d"])
def test_keep_both_holds_the_new_title_to_the_limits(store: Store, title: str) -> None:
    entry = forgotten(store)
    save(store)
    before = state(store)
    with pytest.raises(InvalidInput) as caught:
        trash.restore(store, entry.id, "tester", trash.KEEP_BOTH, title, NOW)
    assert caught.value.field == "title"
    assert state(store) == before


def test_replace_puts_the_live_entry_into_the_trash(store: Store) -> None:
    entry = forgotten(store)
    other = save(store, body="Low at noon")
    assert trash.restore(store, entry.id, "other", trash.REPLACE, now=NOW + DAY) == entry
    assert live(store) == [entry]
    (item,) = trash.listing(store)
    assert item == trash.Trashed(other, NOW + DAY, "other (replaced)")


def test_replace_can_be_undone_by_replacing_again(store: Store) -> None:
    entry = forgotten(store)
    other = save(store, body="Low at noon")
    trash.restore(store, entry.id, "tester", trash.REPLACE, now=NOW)
    trash.restore(store, other.id, "tester", trash.REPLACE, now=NOW)
    assert live(store) == [other]
    assert [item.entry for item in trash.listing(store)] == [entry]


def test_an_id_that_another_program_made_live_again_is_a_conflict_that_can_be_replaced(
    store: Store,
) -> None:
    entry = forgotten(store)
    store.rows(
        "INSERT INTO entries SELECT id, scope, kind, 'Another', 'Theirs', tags, created_at,"
        " updated_at, NULL, NULL FROM trash"
    )
    before = state(store)
    with pytest.raises(Conflict):
        trash.restore(store, entry.id, "tester", now=NOW)
    with pytest.raises(Conflict, match="can only be replaced"):
        trash.restore(store, entry.id, "tester", trash.KEEP_BOTH, now=NOW)
    assert state(store) == before
    assert trash.restore(store, entry.id, "tester", trash.REPLACE, now=NOW) == entry
    assert [item.entry.body for item in trash.listing(store)] == ["Theirs"]


def test_an_expired_live_entry_is_no_conflict(store: Store) -> None:
    entry = forgotten(store)
    save(store, expires_at=NOW + 5)
    assert trash.restore(store, entry.id, "tester", now=NOW + 5) == entry


def test_restoring_what_has_expired_takes_the_expiry_off(store: Store) -> None:
    entry = save(store, expires_at=NOW + 5)
    save(store, NOW + 5, title="Ebb")
    assert trash.get(store, entry.id).trashed_by == entries.EXPIRED
    back = trash.restore(store, entry.id, "tester", now=NOW + 5)
    assert back.expires_at is None
    assert entries.is_live(entries.get(store, entry.id), NOW + 10**12)
    save(store, NOW + 6, title="Flood")
    assert entries.get(store, entry.id) == back


def test_an_expiry_that_lies_ahead_is_kept(store: Store) -> None:
    entry = forgotten(store, expires_at=NOW + 5)
    assert trash.restore(store, entry.id, "tester", now=NOW + 4).expires_at == NOW + 5


@pytest.mark.parametrize("entry_id", ["unknown", "", "a" * 500])
def test_an_id_that_is_not_in_the_trash_is_not_found(store: Store, entry_id: str) -> None:
    kept = save(store)
    for missing in (entry_id, kept.id):
        with pytest.raises(NotFound):
            trash.restore(store, missing, "tester")
        with pytest.raises(NotFound):
            trash.get(store, missing)
    assert live(store) == [kept]


# --- listing --------------------------------------------------------------------------------------


def test_the_trash_is_listed_newest_first_in_pages_without_gaps(store: Store) -> None:
    for number in range(7):
        forgotten(store, NOW + number // 3, title=f"Tide {number}")
    whole = trash.listing(store)
    assert [item.trashed_at - NOW for item in whole] == [2, 1, 1, 1, 0, 0, 0]
    pages = [trash.listing(store, offset, 2) for offset in range(0, 8, 2)]
    assert [item for page in pages for item in page] == whole
    assert trash.count(store) == 7


def test_what_is_in_the_trash_never_matches_a_search(store: Store) -> None:
    forgotten(store)
    for text in ("", "noon", "noo", "Tide", "tag:sea", "igh"):
        assert search(store, SearchQuery(text), NOW).hits == ()
    assert set(index.check(store).values()) == {"ok"}


# --- purge and sweep ------------------------------------------------------------------------------


def test_purge_destroys_what_is_named_and_leaves_a_receipt(store: Store) -> None:
    gone = forgotten(store)
    kept = forgotten(store, title="Ebb")
    assert trash.purge(store, [gone.id, "unknown"], "other", NOW + 1) == 1
    assert [item.entry for item in trash.listing(store)] == [kept]
    receipt = receipts.listing(store)[0]
    assert (receipt.action, receipt.actor, receipt.at) == ("purge", "other", NOW + 1)
    assert receipt.detail["entries"] == [{"id": gone.id, "title": "Tide", "scope": SCOPE}]


def test_purge_of_everything_touches_no_live_entry(store: Store) -> None:
    for number in range(3):
        forgotten(store, title=f"Tide {number}")
    kept = save(store)
    assert trash.purge(store, None, "tester", NOW) == 3
    assert trash.count(store) == 0
    assert live(store) == [kept]


@pytest.mark.parametrize("ids", [[], ["unknown"]])
def test_purge_of_nothing_leaves_no_receipt(store: Store, ids: list[str]) -> None:
    forgotten(store)
    before = state(store)
    assert trash.purge(store, ids, "tester", NOW) == 0
    assert state(store) == before


def test_a_sweep_destroys_only_what_is_older_than_its_days(store: Store) -> None:
    for age in (29, 30, 31, 400):
        forgotten(store, NOW - age * DAY, title=f"{age} days")
    kept = save(store, NOW - 400 * DAY, title="Live and old")
    assert trash.sweep(store, 30, NOW) == 2
    assert [item.entry.title for item in trash.listing(store)] == ["29 days", "30 days"]
    assert live(store) == [kept]
    receipt = receipts.listing(store)[0]
    assert (receipt.action, receipt.at) == ("sweep", NOW)
    assert {entry["title"] for entry in receipt.detail["entries"]} == {"31 days", "400 days"}


def test_a_sweep_that_finds_nothing_leaves_no_receipt(store: Store) -> None:
    forgotten(store)
    before = state(store)
    assert trash.sweep(store, 30, NOW + DAY) == 0
    assert state(store) == before


def test_only_a_purge_or_a_sweep_ever_loses_a_text(store: Store) -> None:
    texts = set()

    def wrote(text: str) -> str:
        texts.add(text)
        return text

    entry = save(store, NOW, body=wrote("one"))
    save(store, NOW + 1, body=wrote("two"))
    edited = entries.draft(scope=SCOPE, kind="fact", title="Tide", body=wrote("three"), now=NOW)
    entries.edit(store, entry.id, edited, "tester", now=NOW + 2)
    entries.forget(store, [entry.id], "tester", NOW + 3)
    save(store, NOW + 4, body=wrote("four"), expires_at=NOW + 5)
    save(store, NOW + 6, body=wrote("five"))
    trash.restore(store, entry.id, "tester", trash.REPLACE, now=NOW + 7)
    save(store, NOW + 8, body=wrote("six"))
    for item in list(trash.listing(store)):
        trash.restore(store, item.entry.id, "tester", trash.REPLACE, now=NOW + 9)
    for item in list(trash.listing(store))[:2]:
        trash.restore(store, item.entry.id, "tester", trash.KEEP_BOTH, now=NOW + 10)
    found = {item.entry.body for item in trash.listing(store)} | {e.body for e in live(store)}
    assert found == texts
    assert set(index.check(store).values()) == {"ok"}


def test_a_clock_that_jumped_destroys_nothing_until_it_has_gone_on_for_a_day(store: Store) -> None:
    forgotten(store, NOW, title="One")
    jumped = NOW + 400 * DAY
    for later in (0, 3_000, DAY - 1):
        assert trash.sweep(store, 30, jumped + later) == 0
    (told,) = [one for one in receipts.listing(store) if one.action == trash.DOUBT]
    assert told.at == jumped and "not swept" in told.summary
    assert trash.sweep(store, 30, jumped + DAY) == 1


def test_a_store_that_is_written_to_never_doubts_its_clock(store: Store) -> None:
    forgotten(store, NOW, title="One")
    later = NOW + 400 * DAY
    save(store, later - 20 * DAY, title="Two")
    assert trash.sweep(store, 30, later) == 1
