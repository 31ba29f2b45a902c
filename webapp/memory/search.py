"""Search over the entries: every word first, ranked; then parts of words; then some of the words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.errors import InvalidInput, Unreadable
from webapp.memory.entries import MAX_PER_CALL, Entry, tags_of
from webapp.memory.query import Parsed, SearchQuery, parse
from webapp.scope import GLOBAL
from webapp.store import Store, now_ms

MARK_ON = "\x02"
MARK_OFF = "\x03"
ALL_WORDS, ALL_PARTS, SOME_WORDS = 0, 1, 2
SNIPPET_TOKENS = 40
EXCERPT = 260

# Scripts written without spaces: `unicode61` makes one token of a whole run of them.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that matched. `title` and `snippet` carry MARK_ON and MARK_OFF around matches;
    `tier` is ALL_WORDS, ALL_PARTS or SOME_WORDS."""

    entry: Entry
    tier: int
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of hits. `total` counts the entries that match everything; `partial` those beyond
    that match only some words (None when they were not looked for, as the page was full)."""

    hits: tuple[Hit, ...]
    total: int
    partial: int | None
    has_more: bool
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Where:
    sql: str
    params: tuple[Any, ...]

    def __and__(self, other: _Where) -> _Where:
        return _Where(f"{self.sql} AND {other.sql}", self.params + other.params)


def search(store: Store, query: SearchQuery, now: int | None = None) -> SearchResult:
    """Runs a search. Without terms it lists what the filters leave, newest first."""
    parsed = parse(query)
    at = now_ms() if now is None else now
    narrow = _filters(store, parsed.query, at)
    if not parsed.terms:
        return _list(store, parsed, narrow)
    if not store.indexed:
        return _scan(store, parsed, narrow)
    if parsed.query.sort != "best":
        return _ordered(store, parsed, narrow)
    return _ranked(store, parsed, narrow)


def ids_of_all_matches(
    store: Store, query: SearchQuery, now: int | None = None
) -> tuple[list[str], int]:
    """The ids of at most MAX_PER_CALL entries that match every word, and how many match in all.

    This is what a forget by query takes: never an entry that matches only in part.
    """
    parsed = parse(query)
    if not parsed.terms:
        raise InvalidInput("Say which words the entries to forget contain.", "query")
    at = now_ms() if now is None else now
    where = _filters(store, parsed.query, at) & _all_words(store, parsed.terms)
    total = int(store.value(f"SELECT count(*) FROM entries e WHERE {where.sql}", where.params))
    rows = store.rows(
        f"SELECT e.id FROM entries e WHERE {where.sql} ORDER BY e.updated_at DESC LIMIT ?",
        (*where.params, MAX_PER_CALL),
    )
    return [row[0] for row in rows], total


def live(at: int) -> _Where:
    """The predicate that search, list and stats share: not expired."""
    return _Where("(e.expires_at IS NULL OR e.expires_at > ?)", (at,))


def in_scope(scope: str | None) -> _Where:
    """A scope includes `global`; None is everywhere; a bare name matches a project's folder."""
    if scope is None:
        return _Where("1", ())
    if scope == GLOBAL:
        return _Where("e.scope = ?", (GLOBAL,))
    if scope.startswith("/"):
        return _Where("e.scope IN (?, ?)", (scope, GLOBAL))
    return _Where("e.scope LIKE ? ESCAPE '\\'", ("%/" + _like(scope),))


def _filters(store: Store, query: SearchQuery, at: int) -> _Where:
    where = live(at) & in_scope(query.scope)
    if query.kind:
        where &= _Where("e.kind = ? COLLATE NOCASE", (query.kind,))
    if query.source:
        if "source" not in store.columns:
            raise Unreadable(
                "This file does not keep who wrote an entry, so source: cannot narrow."
            )
        where &= _Where("e.source = ? COLLATE NOCASE", (query.source,))
    if query.tag:
        where &= _Where(
            "EXISTS (SELECT 1 FROM json_each(CASE WHEN json_valid(e.tags) THEN e.tags ELSE '[]' END)"
            " t WHERE t.value = ? COLLATE NOCASE)",
            (query.tag,),
        )
    if query.since is not None:
        where &= _Where("e.updated_at >= ?", (query.since,))
    if query.until is not None:
        where &= _Where("e.updated_at < ?", (query.until,))
    return where


_ORDER = {
    "best": "e.updated_at DESC, e.id",
    "newest": "e.updated_at DESC, e.id",
    "oldest": "e.updated_at ASC, e.id",
    "title": "e.title COLLATE NOCASE ASC, e.id",
}


def _order(sort: str) -> str:
    if sort not in _ORDER:
        raise InvalidInput(f"“{sort[:20]}” is no order. Known: {', '.join(_ORDER)}.", "sort")
    return _ORDER[sort]


def _selected(store: Store) -> str:
    return ", ".join(
        f"e.{name}" if name in store.columns else f"NULL AS {name}"
        for name in ("id", "scope", "kind", "title", "body", "tags", "created_at", "updated_at",
                     "expires_at", "source")
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> Entry:
    id_, scope, kind, title, body, tags, created_at, updated_at, expires_at, source = row[:10]
    return Entry(
        id_, scope, kind, title, body, tags_of(tags), created_at, updated_at, expires_at, source
    )


def _list(store: Store, parsed: Parsed, where: _Where) -> SearchResult:
    return _plain(store, parsed, where, ())


def _plain(store: Store, parsed: Parsed, where: _Where, terms: tuple[str, ...]) -> SearchResult:
    query = parsed.query
    total = int(store.value(f"SELECT count(*) FROM entries e WHERE {where.sql}", where.params))
    rows = store.rows(
        f"SELECT {_selected(store)} FROM entries e WHERE {where.sql}"
        f" ORDER BY {_order(query.sort)} LIMIT ? OFFSET ?",
        (*where.params, query.limit, query.offset),
    )
    hits = tuple(_marked(_entry(row), ALL_PARTS if terms else ALL_WORDS, terms) for row in rows)
    return SearchResult(hits, total, None, query.offset + len(hits) < total, parsed.terms)


def _scan(store: Store, parsed: Parsed, narrow: _Where) -> SearchResult:
    where = narrow
    for term in parsed.terms:
        where &= _contains(term)
    return _plain(store, parsed, where, parsed.terms)


def _ordered(store: Store, parsed: Parsed, narrow: _Where) -> SearchResult:
    return _plain(store, parsed, narrow & _all_parts(parsed.terms), parsed.terms)


def _ranked(store: Store, parsed: Parsed, narrow: _Where) -> SearchResult:
    query, terms = parsed.query, parsed.terms
    want, skip = query.limit + 1, query.offset
    words = [term for term in terms if _is_word(term)]
    exact = narrow & _all_words(store, terms)
    total = _count(store, exact, narrow, words if len(words) == len(terms) else None)
    hits: list[Hit] = []
    if skip < total:
        hits += _words_page(store, terms, words, narrow, want, skip)
    skip = max(0, skip - total)
    partial: int | None = None
    if len(hits) < want:
        everything = narrow & _all_parts(terms)
        parts = everything & _Where(f"NOT ({exact.sql})", exact.params)
        more = int(store.value(f"SELECT count(*) FROM entries e WHERE {parts.sql}", parts.params))
        rows = store.rows(
            f"SELECT {_selected(store)} FROM entries e WHERE {parts.sql}"
            " ORDER BY (e.title LIKE ? ESCAPE '\\') DESC, e.updated_at DESC, e.id LIMIT ? OFFSET ?",
            (*parts.params, f"%{_like(terms[0])}%", want - len(hits), skip),
        )
        hits += [_marked(_entry(row), ALL_PARTS, terms) for row in rows]
        total += more
        skip = max(0, skip - more)
        partial = 0
        if len(terms) > 1 and len(hits) < want:
            some = narrow & _some_words(terms)
            rest = some & _Where(f"NOT ({everything.sql})", everything.params)
            rest &= _Where(f"NOT ({exact.sql})", exact.params)
            partial = int(
                store.value(f"SELECT count(*) FROM entries e WHERE {rest.sql}", rest.params)
            )
            score, score_params = _score(terms)
            rows = store.rows(
                f"SELECT {_selected(store)} FROM entries e WHERE {rest.sql}"
                f" ORDER BY {score} DESC, e.updated_at DESC, e.id LIMIT ? OFFSET ?",
                (*rest.params, *score_params, want - len(hits), skip),
            )
            hits += [_marked(_entry(row), SOME_WORDS, terms) for row in rows]
    return SearchResult(tuple(hits[: query.limit]), total, partial, len(hits) > query.limit, terms)


def _count(store: Store, exact: _Where, narrow: _Where, words: list[str] | None) -> int:
    """Counts the exact matches; from the index's side when every term is a word, since SQLite
    would else look each entry up twice."""
    if words is None:
        sql = f"SELECT count(*) FROM entries e WHERE {exact.sql}"
        return int(store.value(sql, exact.params))
    sql = (
        "SELECT count(*) FROM webapp_words w CROSS JOIN entries e ON e.rowid = w.rowid"
        f" WHERE webapp_words MATCH ? AND {narrow.sql}"
    )
    return int(store.value(sql, (_all_of(words), *narrow.params)))


def _words_page(
    store: Store, terms: tuple[str, ...], words: list[str], narrow: _Where, want: int, skip: int
) -> list[Hit]:
    where = narrow
    for term in terms:
        if term not in words:
            where &= _substring(term)
    if not words:
        rows = store.rows(
            f"SELECT {_selected(store)} FROM entries e WHERE {where.sql}"
            " ORDER BY (e.title LIKE ? ESCAPE '\\') DESC, e.updated_at DESC, e.id LIMIT ? OFFSET ?",
            (*where.params, f"%{_like(terms[0])}%", want, skip),
        )
        return [_marked(_entry(row), ALL_WORDS, terms) for row in rows]
    rows = store.rows(
        f"SELECT {_selected(store)},"
        f" highlight(webapp_words, 0, '{MARK_ON}', '{MARK_OFF}'),"
        f" snippet(webapp_words, 1, '{MARK_ON}', '{MARK_OFF}', '…', {SNIPPET_TOKENS})"
        " FROM webapp_words w CROSS JOIN entries e ON e.rowid = w.rowid"
        f" WHERE webapp_words MATCH ? AND {where.sql} ORDER BY w.rank LIMIT ? OFFSET ?",
        (_all_of(words), *where.params, want, skip),
    )
    return [Hit(_entry(row), ALL_WORDS, row[10], row[11]) for row in rows]


def _is_word(term: str) -> bool:
    """Whether the word index can find a term as it stands. `C++`, `GB/s`-like short runs, pure
    punctuation, emoji and unspaced scripts are looked for as text instead."""
    if _UNSPACED.search(term):
        return False
    letters = sum(1 for char in term if char.isalnum())
    return letters > 0 and (letters == len(term) or letters > 2)


def _quote(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _all_of(words: Sequence[str]) -> str:
    return " AND ".join(_quote(word) for word in words)


def _like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _contains(term: str) -> _Where:
    pattern = f"%{_like(term)}%"
    return _Where(
        "(e.title LIKE ? ESCAPE '\\' OR e.body LIKE ? ESCAPE '\\' OR e.tags LIKE ? ESCAPE '\\')",
        (pattern,) * 3,
    )


def _substring(term: str) -> _Where:
    """Text anywhere. Trigrams answer from three characters on; a shorter term goes to the base
    table, as LIKE on a trigram table wrongly finds nothing on SQLite 3.40."""
    if len(term) < 3:
        return _contains(term)
    return _Where(
        "e.rowid IN (SELECT rowid FROM webapp_grams WHERE webapp_grams MATCH ?)", (_quote(term),)
    )


def _all_words(store: Store, terms: Sequence[str]) -> _Where:
    where = _Where("1", ())
    if not store.indexed:
        for term in terms:
            where &= _contains(term)
        return where
    words = [term for term in terms if _is_word(term)]
    if words:
        where &= _Where(
            "e.rowid IN (SELECT rowid FROM webapp_words WHERE webapp_words MATCH ?)",
            (_all_of(words),),
        )
    for term in terms:
        if term not in words:
            where &= _substring(term)
    return where


def _part(term: str) -> _Where:
    """A term as the start of a word, or from three characters on anywhere in the text."""
    if not _is_word(term):
        return _substring(term)
    prefix = _Where(
        "e.rowid IN (SELECT rowid FROM webapp_words WHERE webapp_words MATCH ?)",
        (_quote(term) + " *",),
    )
    if len(term) < 3:
        return prefix
    inside = _substring(term)
    return _Where(f"({prefix.sql} OR {inside.sql})", prefix.params + inside.params)


def _all_parts(terms: Sequence[str]) -> _Where:
    where = _Where("1", ())
    for term in terms:
        where &= _part(term)
    return where


def _some_words(terms: Sequence[str]) -> _Where:
    parts = [_part(term) for term in terms if len(term) > 1] or [_part(terms[0])]
    return _Where(
        "(" + " OR ".join(part.sql for part in parts) + ")",
        tuple(param for part in parts for param in part.params),
    )


def _score(terms: Sequence[str]) -> tuple[str, tuple[Any, ...]]:
    parts = [_part(term) for term in terms]
    return (
        "(" + " + ".join(f"({part.sql})" for part in parts) + ")",
        tuple(param for part in parts for param in part.params),
    )


def mark(text: str, terms: Sequence[str]) -> str:
    """Puts MARK_ON and MARK_OFF around every occurrence of a term, whatever its case."""
    words = [re.escape(term) for term in sorted(terms, key=len, reverse=True) if term]
    if not words:
        return text
    return re.sub("|".join(words), lambda m: MARK_ON + m[0] + MARK_OFF, text, flags=re.IGNORECASE)


def excerpt(text: str, terms: Sequence[str], length: int = EXCERPT) -> str:
    """About `length` characters of a text, around the first occurrence of a term."""
    words = "|".join(re.escape(term) for term in terms if term)
    found = re.search(words, text, re.IGNORECASE) if words else None
    start = max(0, found.start() - length // 3) if found else 0
    if start:
        start = text.find(" ", start, start + 30) + 1 or start
    end = start + length
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _marked(entry: Entry, tier: int, terms: tuple[str, ...]) -> Hit:
    return Hit(entry, tier, mark(entry.title, terms), mark(excerpt(entry.body, terms), terms))
