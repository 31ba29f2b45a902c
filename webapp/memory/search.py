"""Search over the entries: every word first, ranked; then parts of words; then some of the words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from webapp.errors import InvalidInput, Unreadable
from webapp.memory.entries import MAX_PER_CALL, Entry, from_values
from webapp.memory.query import Parsed, SearchQuery, parse
from webapp.scope import GLOBAL
from webapp.store import Store, now_ms

MARK_ON = "\x02"
MARK_OFF = "\x03"
ALL_WORDS, ALL_PARTS, SOME_WORDS = 0, 1, 2
SNIPPET_TOKENS = 40
MEMBERS = 20_000
"""Entries of a project up to which its matches are picked out by a list of all of them. With 9,000 that
takes 12 ms for 13,000 matches in 100,000 entries, where to look each match up takes 30."""

MATCHES = 1_000
"""Matches from which on that pays: the list of 9,000 takes 5 ms."""

EXCERPT = 260

# Scripts written without spaces: `unicode61` makes one token of a whole run of them.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uffdc"
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
        return _list(store, parsed, narrow, at)
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
    # A `scope:` among the words narrows, but never reaches out of the caller's scope.
    where = _filters(store, parsed.query, at) & in_scope(query.scope)
    where &= _all_words(store, parsed.terms)
    total = int(store.value(f"SELECT count(*) FROM entries e WHERE {where.sql}", where.params))
    rows = store.rows(
        f"SELECT e.id FROM entries e WHERE {where.sql} ORDER BY e.updated_at DESC LIMIT ?",
        (*where.params, MAX_PER_CALL),
    )
    return [row[0] for row in rows], total


def live(at: int) -> _Where:
    """The predicate that search, list and stats share: not expired."""
    return _Where("(e.expires_at IS NULL OR e.expires_at > ?)", (at,))


def count_live(store: Store, at: int) -> int:
    """How many entries are not expired. Both counts are of an index; a scan of the table takes a
    hundred times as long."""
    sql = "SELECT (SELECT count(*) FROM entries) - (SELECT count(*) FROM entries WHERE expires_at <= ?)"
    return int(store.value(sql, (at,)))


def in_scope(scope: str | None) -> _Where:
    """A scope includes `global`; None is everywhere; a bare name matches a project's folder."""
    if scope is None:
        return _Where("1", ())
    if scope == GLOBAL:
        return _Where("e.scope = ?", (GLOBAL,))
    if scope.startswith("/"):
        return _Where("e.scope IN (?, ?)", (scope, GLOBAL))
    return _Where("e.scope LIKE ? ESCAPE '\\'", ("%/" + _like(scope),))


def _is_by_scope(query: SearchQuery) -> bool:
    """Whether one scope, and `global` with it, is all that narrows."""
    exact = query.scope is not None and (query.scope == GLOBAL or query.scope.startswith("/"))
    return exact and not replace(query, scope=None).is_narrowed


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
    return from_values(*row[:10])


def _list(store: Store, parsed: Parsed, where: _Where, at: int) -> SearchResult:
    query = parsed.query
    if query.is_narrowed:
        sql = f"SELECT count(*) FROM entries e WHERE {where.sql}"
        total = int(store.value(sql, where.params))
    else:
        total = count_live(store, at)
    if store.indexed and _is_by_scope(query) and query.sort in ("best", "newest"):
        where = _newest(query, at)
    rows = store.rows(
        f"SELECT {_selected(store)} FROM entries e WHERE {where.sql}"
        f" ORDER BY {_order(query.sort)} LIMIT ? OFFSET ?",
        (*where.params, query.limit, query.offset),
    )
    hits = tuple(_marked(_entry(row), ALL_WORDS, ()) for row in rows)
    return SearchResult(hits, total, None, query.offset + len(hits) < total, ())


def _newest(query: SearchQuery, at: int) -> _Where:
    """Those among the newest of each scope that may be on the page, found in the order of an index."""
    where, last = live(at), query.offset + query.limit
    scopes = dict.fromkeys((query.scope, GLOBAL))
    each = (
        f"SELECT * FROM (SELECT e.rowid FROM entries e WHERE e.scope = ? AND {where.sql}"
        " ORDER BY e.updated_at DESC, e.id LIMIT ?)"
    )
    params = [value for scope in scopes for value in (scope, *where.params, last)]
    return _Where(f"e.rowid IN ({' UNION ALL '.join([each] * len(scopes))})", tuple(params))


def _plain(store: Store, parsed: Parsed, where: _Where) -> SearchResult:
    """What matches, in the order asked for."""
    query, terms = parsed.query, parsed.terms
    keys = _keys(store, where, _order(query.sort))
    page = _entries(store, keys[query.offset : query.offset + query.limit])
    hits = tuple(_marked(entry, ALL_PARTS, terms) for entry in page.values())
    return SearchResult(hits, len(keys), None, query.offset + len(hits) < len(keys), terms)


def _key(store: Store) -> str:
    """What stands for an entry in a list of all matches: the rowid, half as dear to carry as the
    id, where there is one."""
    return "e.rowid" if store.indexed else "e.id"


def _keys(store: Store, where: _Where, order: str, *params: Any) -> list[Any]:
    """The keys of all that matches, in order. Finding them costs far more than carrying them, so
    that one pass gives the page and the total."""
    sql = f"SELECT {_key(store)} FROM entries e WHERE {where.sql} ORDER BY {order}"
    return [row[0] for row in store.rows(sql, (*where.params, *params))]


def _entries(store: Store, keys: Sequence[Any]) -> dict[Any, Entry]:
    """The entries of some keys in that order, without those that are gone by now."""
    key = _key(store)
    holes = ", ".join("?" * len(keys))
    sql = f"SELECT {_selected(store)}, {key} FROM entries e WHERE {key} IN ({holes})"
    found = {row[-1]: _entry(row) for row in store.rows(sql, keys)}
    return {key: found[key] for key in keys if key in found}


def _scan(store: Store, parsed: Parsed, narrow: _Where) -> SearchResult:
    where = narrow
    for term in parsed.terms:
        where &= _contains(term)
    return _plain(store, parsed, where)


def _ordered(store: Store, parsed: Parsed, narrow: _Where) -> SearchResult:
    return _plain(store, parsed, narrow & _all_parts(parsed.terms))


def _ranked(store: Store, parsed: Parsed, narrow: _Where) -> SearchResult:
    query, terms = parsed.query, parsed.terms
    want, skip = query.limit + 1, query.offset
    words = [term for term in terms if _is_word(term)]
    exact = narrow & _all_words(store, terms)
    hits: list[Hit] = []
    if not words:
        hits, total = _text_page(store, terms, exact, want, skip)
    elif len(words) == len(terms) and _is_few(store, words, query, narrow):
        keys = _keys_by_rank(store, words, narrow)
        total = len(keys)
        hits += _hits(store, words, keys[skip : skip + want])
    else:
        if len(words) < len(terms):
            sql = f"SELECT count(*) FROM entries e WHERE {exact.sql}"
            total = int(store.value(sql, exact.params))
        else:
            total = _count(store, words, narrow)
        if skip < total:
            hits += _words_page(store, terms, words, narrow, want, skip)
    skip = max(0, skip - total)
    partial: int | None = None
    if len(hits) < want and not words and len(terms) == 1:
        partial = 0
    elif len(hits) < want:
        found = exact if total else _Where("0", ())
        parts, more, partial = _parts_page(store, terms, narrow, found, want - len(hits), skip)
        hits += parts
        total += more
    return SearchResult(tuple(hits[: query.limit]), total, partial, len(hits) > query.limit, terms)


def _is_few(store: Store, words: list[str], query: SearchQuery, narrow: _Where) -> bool:
    """Whether a scope is all that narrows, and holds few entries for so many matches."""
    if not _is_by_scope(query):
        return False
    sql = "SELECT count(*) FROM webapp_words WHERE webapp_words MATCH ?"
    if int(store.value(sql, (_all_of(words),))) < MATCHES:
        return False
    sql = f"SELECT count(*) FROM (SELECT 1 FROM entries e WHERE {narrow.sql} LIMIT ?)"
    return int(store.value(sql, (*narrow.params, MEMBERS + 1))) <= MEMBERS


def _keys_by_rank(store: Store, words: list[str], narrow: _Where) -> list[int]:
    """The rowids of all entries with all words, the best first. FTS5 ranks every match when it is
    asked for an order, and only those that are picked out when it is not; the `+` keeps it from being
    asked for one rowid at a time, which took 200 times as long."""
    rows = store.rows(
        "SELECT w.rank, w.rowid FROM webapp_words w WHERE webapp_words MATCH ?"
        f" AND +w.rowid IN (SELECT e.rowid FROM entries e WHERE {narrow.sql})",
        (_all_of(words), *narrow.params),
    )
    return [rowid for _, rowid in sorted(rows)]


def _hits(store: Store, words: list[str], keys: Sequence[int]) -> list[Hit]:
    holes = ", ".join("?" * len(keys))
    rows = store.rows(
        f"{_shown(store)} WHERE webapp_words MATCH ? AND w.rowid IN ({holes})",
        (_all_of(words), *keys),
    )
    found = {row[12]: _word_hit(row) for row in rows}
    return [found[key] for key in keys if key in found]


def _count(store: Store, words: list[str], narrow: _Where) -> int:
    """Counts the entries with all words from the index's side, since SQLite would else look each
    entry up twice. The index alone does not tell: it may still hold rows that another program replaced."""
    sql = (
        "SELECT count(*) FROM webapp_words w CROSS JOIN entries e ON e.rowid = w.rowid"
        f" WHERE webapp_words MATCH ? AND {narrow.sql}"
    )
    return int(store.value(sql, (_all_of(words), *narrow.params)))


def _text_page(
    store: Store, terms: tuple[str, ...], exact: _Where, want: int, skip: int
) -> tuple[list[Hit], int]:
    """A page of the entries with all terms, none of which is a word, and how many there are."""
    order = "e.title LIKE ? ESCAPE '\\' DESC, e.updated_at DESC, e.id"
    keys = _keys(store, exact, order, f"%{_like(terms[0])}%")
    page = _entries(store, keys[skip : skip + want])
    return [_marked(entry, ALL_WORDS, terms) for entry in page.values()], len(keys)


def _words_page(
    store: Store, terms: tuple[str, ...], words: list[str], narrow: _Where, want: int, skip: int
) -> list[Hit]:
    where = narrow
    for term in terms:
        if term not in words:
            where &= _substring(term)
    rows = store.rows(
        f"{_shown(store)} WHERE webapp_words MATCH ? AND {where.sql} ORDER BY w.rank LIMIT ? OFFSET ?",
        (_all_of(words), *where.params, want, skip),
    )
    return [_word_hit(row) for row in rows]


def _shown(store: Store) -> str:
    return (
        f"SELECT {_selected(store)},"
        f" highlight(webapp_words, 0, '{MARK_ON}', '{MARK_OFF}'),"
        f" snippet(webapp_words, 1, '{MARK_ON}', '{MARK_OFF}', '…', {SNIPPET_TOKENS}), w.rowid"
        " FROM webapp_words w CROSS JOIN entries e ON e.rowid = w.rowid"
    )


def _word_hit(row: Sequence[Any]) -> Hit:
    return Hit(_entry(row), ALL_WORDS, row[10], _shortened(row[11]))


def _parts(terms: Sequence[str], narrow: _Where, exact: _Where) -> _Where:
    """The entries that hold a part of some term and not every word, each with `n`, of how many
    terms. An entry that holds nothing but single characters of a longer text is not among them."""
    found: list[str] = []
    params: list[Any] = []
    for term in terms:
        rows = _rowids(term)
        long = int(len(term) > 1 or all(len(other) == 1 for other in terms))
        found.append(f"SELECT rowid AS r, {long} AS long FROM ({rows.sql})")
        params += rows.params
    every = (
        f"SELECT r, count(*) AS n FROM ({' UNION ALL '.join(found)}) GROUP BY r HAVING max(long)"
    )
    if len(terms) == 1:
        every = f"SELECT r, 1 AS n FROM ({found[0]})"
    return _Where(
        f"FROM ({every}) m CROSS JOIN entries e ON e.rowid = m.r"
        f" WHERE {narrow.sql} AND NOT ({exact.sql})",
        (*params, *narrow.params, *exact.params),
    )


def _parts_page(
    store: Store, terms: tuple[str, ...], narrow: _Where, exact: _Where, want: int, skip: int
) -> tuple[list[Hit], int, int]:
    """A page of the entries that hold a part of every term and then of those that hold some; how
    many hold every one, and how many some."""
    parts = _parts(terms, narrow, exact)
    rows = store.rows(
        f"SELECT {_key(store)}, n {parts.sql} ORDER BY"
        " n DESC, n = ? AND e.title LIKE ? ESCAPE '\\' DESC, e.updated_at DESC, e.id",
        (*parts.params, len(terms), f"%{_like(terms[0])}%"),
    )
    every = sum(row[1] == len(terms) for row in rows)
    page = dict(rows[skip : skip + want])
    hits = [
        _marked(entry, ALL_PARTS if page[key] == len(terms) else SOME_WORDS, terms)
        for key, entry in _entries(store, list(page)).items()
    ]
    return hits, every, len(rows) - every


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


def _rowids(term: str) -> _Where:
    """The rowids of the entries with a term as the start of a word, or from three characters on
    anywhere in the text."""
    inside = _Where("SELECT rowid FROM webapp_grams WHERE webapp_grams MATCH ?", (_quote(term),))
    if not _is_word(term):
        if len(term) > 2:
            return inside
        short = _contains(term)
        return _Where(f"SELECT e.rowid FROM entries e WHERE {short.sql}", short.params)
    prefix = _Where(
        "SELECT rowid FROM webapp_words WHERE webapp_words MATCH ?", (_quote(term) + " *",)
    )
    if len(term) < 3:
        return prefix
    return _Where(f"{prefix.sql} UNION {inside.sql}", prefix.params + inside.params)


def _all_parts(terms: Sequence[str]) -> _Where:
    where = _Where("1", ())
    for term in terms:
        rows = _rowids(term)
        where &= _Where(f"e.rowid IN ({rows.sql})", rows.params)
    return where


def mark(text: str, terms: Sequence[str]) -> str:
    """Puts MARK_ON and MARK_OFF around every occurrence of a term, whatever its case or ending."""
    pattern = _pattern(terms)
    if not pattern:
        return text
    return re.sub(pattern, lambda m: MARK_ON + m[0] + MARK_OFF, text, flags=re.IGNORECASE)


_ENDING = re.compile(r"(?<=[a-z]{4})(?:ings?|ed|e?s)$")


def _pattern(terms: Sequence[str]) -> str:
    """What to mark for terms: the term, and for an English word the others of its stem, since the
    index finds those too. To ask the index itself would cost as much as the search."""
    found = []
    for term in sorted((term for term in terms if term), key=len, reverse=True):
        found.append(re.escape(term))
        word = term.lower() if term.isascii() and term.isalpha() else ""
        stem = _ENDING.sub("", word)
        if stem != word:
            found.insert(0, rf"\b{stem}(?:e|s|es|ed|ing|ings)?\b")
    return "|".join(found)


def excerpt(text: str, terms: Sequence[str], length: int = EXCERPT) -> str:
    """About `length` characters of a text, around the first occurrence of a term."""
    pattern = _pattern(terms)
    found = re.search(pattern, text, re.IGNORECASE) if pattern else None
    start = max(0, found.start() - length // 3) if found else 0
    if start:
        start = text.find(" ", start, start + 30) + 1 or start
    end = start + length
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _shortened(snippet: str) -> str:
    """A snippet counts tokens, and a token may be a page long: a run of Chinese, a base64 text."""
    if len(snippet) <= 3 * EXCERPT:
        return snippet
    start = max(0, snippet.find(MARK_ON) - EXCERPT // 3)
    cut = snippet[start : start + EXCERPT]
    end = MARK_OFF if cut.count(MARK_ON) > cut.count(MARK_OFF) else ""
    return ("…" if start else "") + cut + end + "…"


def _marked(entry: Entry, tier: int, terms: tuple[str, ...]) -> Hit:
    return Hit(entry, tier, mark(entry.title, terms), mark(excerpt(entry.body, terms), terms))
