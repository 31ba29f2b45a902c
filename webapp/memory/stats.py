"""Counts over the entries, with the predicate that search uses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from webapp.memory.search import in_scope, live
from webapp.scope import GLOBAL
from webapp.store import Store, now_ms
from webapp.store.values import as_text

DAY_MS = 86_400_000
SLOW_S = 0.05
HELD = 10
_CREATED = (
    "CAST(CASE typeof(e.created_at) WHEN 'text' THEN coalesce(strftime('%s', e.created_at) * 1000, 0)"
    " WHEN 'blob' THEN 0 ELSE e.created_at END AS INTEGER)"
)
"""`created_at` as a number, whatever another program has put there."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Stats:
    """Live entries counted. `bytes` is the database with its write-ahead log on disk; `oldest` is
    the smallest `created_at`, None when there is no entry."""

    total: int
    by_kind: tuple[tuple[str, int], ...]
    by_scope: tuple[tuple[str, int], ...]
    by_source: tuple[tuple[str, int], ...]
    in_global: int
    trashed: int
    bytes: int
    oldest: int | None


@dataclass(frozen=True, slots=True)
class Facets:
    """What the filters of the search page offer, most used first, and the counts of the rail."""

    scopes: tuple[tuple[str, int], ...]
    kinds: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]
    sources: tuple[tuple[str, int], ...]
    total: int
    trashed: int


@dataclass(frozen=True, slots=True)
class Series:
    """Counts a day for each name: `days` are epoch seconds (UTC midnight), `values` one row a name,
    cumulated."""

    days: tuple[int, ...]
    names: tuple[str, ...]
    values: tuple[tuple[int, ...], ...]


def stats(store: Store, scope: str | None = None, now: int | None = None) -> Stats:
    """Counts what is live in a scope (with `global`), or everywhere."""
    at = now_ms() if now is None else now
    where = live(at) & in_scope(scope)
    source = "e.source" if "source" in store.columns else "NULL"
    # All that is asked for stands in one index, so that one pass over it answers everything.
    rows = store.rows(
        f"SELECT e.scope, e.kind, {source}, count(*), min({_CREATED}) FROM entries e"
        f" WHERE {where.sql} GROUP BY 1, 2, 3",
        where.params,
    )

    def group(column: int) -> tuple[tuple[str, int], ...]:
        found: Counter[str] = Counter()
        for row in rows:
            found[as_text(row[column])] += row[3]
        return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    by_scope = group(0)
    return Stats(
        total=sum(row[3] for row in rows),
        by_kind=group(1),
        by_scope=by_scope,
        by_source=group(2) if "source" in store.columns else (),
        in_global=dict(by_scope).get(GLOBAL, 0),
        trashed=_trashed(store),
        bytes=store.disk_bytes(),
        oldest=min((row[4] for row in rows), default=None),
    )


def _trashed(store: Store) -> int:
    if not store.has_table("trash"):
        return 0
    return int(store.value("SELECT count(*) FROM trash"))


class Cache:
    """Keeps one value for as long as the files of a store stay as they are, a minute at most
    (entries expire by themselves).

    A value that took longer than SLOW_S to make is kept HELD times as long as that even when the
    files change: an agent may write many times a second, and counting a large store anew for each
    page would take most of the time."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, Any, float]] = {}

    def get(
        self, store: Store, name: str, make: Callable[[], _T], also: tuple[int, ...] = (),
        hold: bool = True,
    ) -> _T:  # fmt: skip
        """The kept value, or the one that `make` returns. It is made anew too when `also` changes,
        and without `hold` also one that takes long."""
        key = (*store.version(), *also, now_ms() // 60_000)
        began = time.monotonic()
        held = self._kept.get(name)
        if held is None or (held[0] != key and (began >= held[2] or not hold)):
            value = make()
            ended = time.monotonic()
            took = ended - began
            held = (key, value, ended + HELD * took if took > SLOW_S else ended)
            self._kept[name] = held
        kept: _T = held[1]
        return kept


def facets(store: Store, now: int | None = None) -> Facets:
    """Counts for filters and rail, over every scope."""
    at = now_ms() if now is None else now
    found = stats(store, None, at)
    where = live(at)
    tags = store.rows(
        "SELECT t.value, count(*) FROM entries e,"
        " json_each(CASE WHEN typeof(e.tags) = 'text' AND json_valid(e.tags) THEN e.tags ELSE '[]' END) t"
        f" WHERE {where.sql} AND e.tags <> '[]' AND typeof(t.value) = 'text'"
        " GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 60",
        where.params,
    )
    return Facets(
        found.by_scope, found.by_kind, tuple((as_text(row[0]), row[1]) for row in tags),
        tuple(row for row in found.by_source if row[0]), found.total, found.trashed,
    )  # fmt: skip


def over_time(store: Store, column: str, now: int | None = None, most: int = 6) -> Series:
    """Live entries by day of creation, cumulated, for the `most` largest kinds or scopes and
    “others”."""
    if column not in ("kind", "scope"):
        raise ValueError(column)
    at = now_ms() if now is None else now
    where = live(at)
    rows = store.rows(
        f"SELECT {_CREATED} / {DAY_MS}, e.{column}, count(*) FROM entries e WHERE {where.sql}"
        " GROUP BY 1, 2 ORDER BY 1",
        where.params,
    )
    counts = [(int(day), as_text(name), int(number)) for day, name, number in rows]
    return cumulate(counts, at // DAY_MS, most)


def cumulate(rows: Sequence[tuple[int, str, int]], today: int, most: int = 6) -> Series:
    """Turns (day number, name, count) into running totals a day, each day present once, from the
    eve of the first to today."""
    if not rows:
        return Series((), (), ())
    rows = [(rows[0][0] - 1, rows[0][1], 0), *rows]
    if rows[-1][0] < today:
        rows.append((today, rows[-1][1], 0))
    totals: dict[str, int] = {}
    for _, name, number in rows:
        totals[name] = totals.get(name, 0) + number
    names = sorted(totals, key=lambda name: (-totals[name], name))
    kept = names[:most]
    rest = "others" if "others" not in kept else "all others"
    shown = (*kept, rest) if len(names) > most else tuple(kept)
    running = dict.fromkeys(shown, 0)
    days: list[int] = []
    values: list[list[int]] = [[] for _ in shown]
    for day, name, number in rows:
        if not days or days[-1] != day * 86_400:
            days.append(day * 86_400)
            for column in values:
                column.append(0)
        running[name if name in kept else rest] += number
        for column, key in zip(values, shown, strict=True):
            column[-1] = running[key]
    return Series(tuple(days), shown, tuple(tuple(column) for column in values))
