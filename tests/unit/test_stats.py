"""Counts: of what a search would find, and no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from webapp.memory import entries, stats
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.memory.stats import Cache, Facets, Series, cumulate
from webapp.store import Store, now_ms

NOW = 1_800_000_000_000
DAY = 86_400_000
SHOP = "/home/a/shop"


def save(store: Store, title: str, now: int = NOW, source: str | None = "me", **more: Any) -> str:
    """Saves an entry; returns its id."""
    fields: dict[str, Any] = {"scope": SHOP, "kind": "fact", "body": "apples", **more}
    draft = entries.draft(title=title, now=now, **fields)
    return entries.save(store, draft, source, now).entry.id


@pytest.fixture
def filled(store: Store) -> Store:
    """Two projects and global; one entry expired, one in the trash."""
    save(store, "a", NOW - 3 * DAY, tags=["red", "big"])
    save(store, "b", NOW - DAY, kind="lesson", tags=["red"], source=None)
    save(store, "c", scope="global", source="agent")
    save(store, "d", scope="/srv/shop", kind="lesson")
    entries.forget(store, [save(store, "e", NOW - 9 * DAY)], "me", NOW)
    save(store, "f", expires_at=NOW + 10)
    return store


AT = NOW + 10
"""When “f” has expired."""


def test_what_is_live_is_counted_by_kind_scope_and_source(filled: Store) -> None:
    found = stats.stats(filled, now=AT)
    assert found.total == 4
    assert found.by_kind == (("fact", 2), ("lesson", 2))
    assert found.by_scope == ((SHOP, 2), ("/srv/shop", 1), ("global", 1))
    assert found.by_source == (("me", 2), ("", 1), ("agent", 1))
    assert (found.in_global, found.trashed, found.oldest) == (1, 1, NOW - 3 * DAY)


@pytest.mark.parametrize("scope", [None, "global", SHOP, "shop", "/srv/shop", "nowhere", "%", ""])
@pytest.mark.parametrize("at", [NOW, AT])
def test_the_total_is_that_of_a_search_without_words(
    filled: Store, scope: str | None, at: int
) -> None:
    found = stats.stats(filled, scope, at)
    result = search(filled, SearchQuery("", scope, limit=100), at)
    assert found.total == result.total == len(result.hits)
    assert found.total == sum(count for _, count in found.by_kind)
    assert found.total == sum(count for _, count in found.by_scope)
    assert found.oldest == min((hit.entry.created_at for hit in result.hits), default=None)
    assert found.in_global == sum(hit.entry.scope == "global" for hit in result.hits)


def test_the_size_is_that_of_the_database_and_its_log(filled: Store) -> None:
    path = filled.path
    expected = path.stat().st_size + path.with_name(path.name + "-wal").stat().st_size
    assert stats.stats(filled).bytes == expected > 0


def test_facets_offer_what_there_is_most_used_first(filled: Store) -> None:
    assert stats.facets(filled, AT) == Facets(
        scopes=((SHOP, 2), ("/srv/shop", 1), ("global", 1)),
        kinds=(("fact", 2), ("lesson", 2)),
        tags=(("red", 2), ("big", 1)),
        sources=(("me", 2), ("agent", 1)),
        total=4,
        trashed=1,
    )


@pytest.mark.parametrize(
    "raw", ["", "not json", '{"a": "b"}', "[1, null, [], {}]", '"red"', "[" * 3000, "null", "0"]
)
def test_tags_that_another_program_spoilt_break_no_count_and_no_filter(
    filled: Store, raw: str
) -> None:
    filled.rows("UPDATE entries SET tags = ? WHERE title = 'a'", (raw,))
    assert ("red", 1) in stats.facets(filled, AT).tags or raw == '"red"'
    assert search(filled, SearchQuery("tag:big"), AT).total == 0


def test_every_facet_leads_to_as_many_hits_as_it_says(filled: Store) -> None:
    facets = stats.facets(filled, AT)
    for name, offered in (
        ("kind", facets.kinds), ("tag", facets.tags), ("source", facets.sources),
    ):  # fmt: skip
        for value, count in offered:
            query = SearchQuery("", **{name: value})  # type: ignore[arg-type]
            assert search(filled, query, AT).total == count, (name, value)


def test_over_time_adds_up_by_day_to_the_totals(filled: Store) -> None:
    series = stats.over_time(filled, "kind", AT)
    assert series.names == ("fact", "lesson")
    assert series.days == tuple((NOW - age * DAY) // DAY * 86_400 for age in (4, 3, 1, 0))
    assert series.values == ((0, 1, 1, 2), (0, 0, 1, 2))
    assert stats.over_time(filled, "scope", AT).names == (SHOP, "/srv/shop", "global")


def test_over_time_takes_kinds_and_scopes_only(store: Store) -> None:
    with pytest.raises(ValueError, match="title"):
        stats.over_time(store, "title")


def test_running_totals_hold_each_day_once_and_gather_the_smallest() -> None:
    rows = [(1, "a", 2), (1, "b", 1), (3, "a", 1), (3, "c", 1), (4, "d", 5), (4, "b", 1)]
    day = 86_400
    assert cumulate(rows, 9, most=2) == Series(
        days=(0, day, 3 * day, 4 * day, 9 * day),
        names=("d", "a", "others"),
        values=((0, 0, 0, 5, 5), (0, 2, 3, 3, 3), (0, 1, 2, 3, 3)),
    )
    assert cumulate(rows, 4, most=9).days == (0, day, 3 * day, 4 * day)
    assert cumulate([], 9) == Series((), (), ())


def test_a_kind_that_is_called_others_is_not_lost_among_the_others() -> None:
    rows = [(1, "others", 5), (1, "a", 4), (1, "b", 1)]
    series = cumulate(rows, 1, most=2)
    assert sum(column[-1] for column in series.values) == 10
    assert len(set(series.names)) == len(series.names) == len(series.values)


def test_the_cache_keeps_a_value_until_any_process_writes(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "SLOW_S", 600.0)
    cache = Cache()
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return int(filled.value("SELECT count(*) FROM entries"))

    with closing(sqlite3.connect(filled.path, isolation_level=None)) as other:
        minute = now_ms() // 60_000
        before = cache.get(filled, "count", make)
        assert cache.get(filled, "count", make) == before
        # An entry expires without a write, so that nothing is kept into the next minute.
        assert len(made) == 1 or now_ms() // 60_000 != minute
        other.execute("DELETE FROM entries WHERE title = 'a'")
        assert cache.get(filled, "count", make) == before - 1
        save(filled, "new")
        assert cache.get(filled, "count", make) == before
        assert cache.get(filled, "another", lambda: "other") == "other"


def test_the_cache_holds_a_value_that_was_slow_to_make_for_a_while(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "SLOW_S", 0.0)
    monkeypatch.setattr(stats, "HELD", 10**9)
    cache = Cache()
    assert cache.get(filled, "name", lambda: "slow") == "slow"
    save(filled, "new")
    assert cache.get(filled, "name", lambda: "new") == "slow"
    monkeypatch.setattr(stats, "HELD", 0)
    cache = Cache()
    assert cache.get(filled, "name", lambda: "slow") == "slow"
    save(filled, "newer")
    assert cache.get(filled, "name", lambda: "new") == "new"
