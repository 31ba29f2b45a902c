"""Counts of a large store: from an index, and of the filters not anew for every write."""

from __future__ import annotations

import pytest

from webapp.memory import entries, stats
from webapp.memory.query import SearchQuery
from webapp.memory.search import count_live, search
from webapp.memory.stats import Cache
from webapp.store import Store

AT = 1_790_000_000_000


def save(store: Store, title: str, expires_at: int | None = None) -> None:
    draft = entries.draft(
        scope="global", kind="fact", title=title, body="apples", expires_at=expires_at, now=AT
    )
    entries.save(store, draft, "tester", AT)


@pytest.mark.parametrize("sort", ["best", "newest", "oldest", "title"])
def test_expired_entries_are_not_counted_before_they_are_purged(store: Store, sort: str) -> None:
    for number in range(4):
        save(store, f"entry {number}", AT + number * 10 if number else None)
    for at, live in ((AT + 5, 4), (AT + 10, 3), (AT + 25, 2), (AT + 30, 1)):
        assert count_live(store, at) == live
        for text in ("", "apples", "app"):
            assert search(store, SearchQuery(text, sort=sort), at).total == live
        assert stats.stats(store, None, at).total == live


def test_the_counts_stand_in_indexes(store: Store) -> None:
    save(store, "one")
    for sql in (
        "SELECT scope, kind, source, count(*), min(created_at) FROM entries"
        " WHERE expires_at IS NULL OR expires_at > 1 GROUP BY 1, 2, 3",
        "SELECT count(*) FROM entries",
        "SELECT count(*) FROM entries WHERE expires_at <= 1",
    ):
        (plan,) = store.rows(f"EXPLAIN QUERY PLAN {sql}")
        assert "COVERING INDEX" in plan[3], sql


def test_only_filters_narrow_and_not_words_pages_or_order() -> None:
    assert not SearchQuery("words", sort="title", limit=3, offset=9).is_narrowed
    for query in (SearchQuery(scope="global"), SearchQuery(kind="fact"), SearchQuery(since=1)):
        assert query.is_narrowed


def test_a_value_that_takes_long_is_kept_a_while_though_others_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("webapp.memory.stats.time.monotonic", lambda: clock[0])
    cache = Cache()

    def slowly() -> int:
        clock[0] += 0.3
        return int(store.value("SELECT count(*) FROM entries"))

    save(store, "one")
    assert cache.get(store, "count", slowly) == 1
    save(store, "two")
    clock[0] += 2.9
    assert cache.get(store, "count", slowly) == 1
    clock[0] += 0.2
    assert cache.get(store, "count", slowly) == 2
