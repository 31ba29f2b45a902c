"""Search: any text is legal, every word comes first, and no page repeats or skips an entry."""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.errors import InvalidInput, Unreadable
from webapp.memory import entries
from webapp.memory.query import MAX_TERMS, SearchQuery
from webapp.memory.search import (
    ALL_PARTS,
    ALL_WORDS,
    EXCERPT,
    MARK_OFF,
    MARK_ON,
    SOME_WORDS,
    Hit,
    SearchResult,
    excerpt,
    ids_of_all_matches,
    mark,
    search,
)
from webapp.store import Store

LAYOUT = Path(__file__).parents[1] / "writers" / "layout.sql"
NOW = 1_800_000_000_000
SHOP = "/home/a/shop"
INSERT = (
    "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at, expires_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def put(store: Store, title: str, body: str = "-", **changes: Any) -> str:
    """Writes a row as it is, without any check, as another program may; returns its id."""
    row = {
        "id": f"id-{title}", "scope": SHOP, "kind": "fact", "tags": "[]", "created_at": NOW,
        "updated_at": NOW, "expires_at": None, "source": None, **changes,
    }  # fmt: skip
    store.rows(
        f"INSERT INTO entries (title, body, {', '.join(row)})"
        f" VALUES (?, ?, {', '.join('?' * len(row))})",
        (title, body, *row.values()),
    )
    return str(row["id"])


@pytest.fixture
def filled(store: Store) -> Store:
    """The store with its file made, and no entry."""
    with store.writing():
        pass
    return store


def titles(store: Store, text: str, now: int = NOW, **changes: Any) -> list[str]:
    """The titles that a search finds, in order."""
    query = SearchQuery(text, **{"limit": 500, **changes})
    return [hit.entry.title for hit in search(store, query, now).hits]


def whole(store: Store, text: str) -> list[str]:
    """The titles of entries that match every word."""
    return [
        hit.entry.title
        for hit in search(store, SearchQuery(text, limit=500), NOW).hits
        if hit.tier == ALL_WORDS
    ]


# --- any text is a legal query --------------------------------------------------------------------

CASES = [
    "/", "'", ".", "-", ":", "*", "C++", "multi-agent", "BENCH-100821", "GB/s", '"open quote',
    'open quote"', '"', '""', '"""', "AND", "OR", "NOT", "NEAR", "NEAR(", "NEAR(a b, 2)", "a AND b",
    "a OR", "NOT a", "AND AND", "title:x", "title : x", "{title body}: x", "- title:x", "^start",
    "a*", "*a", "a * b", "a + b", "(", ")", "((a)", "a-b", "-a", "--", "a;b",
    "'; DROP TABLE entries",
    "%", "_", "100%", "a_b", "\\", "\\%", "🚢", "a🚢b", "🚢🚢🚢", "\0", "a\0b", "数据库", "数据", "库",
    "データ", "한국", "ไทย", "שלום", "مرحبا", "é", "e\u0301", "ß", "İ", "ﬁ", "\u200b", "\u200d",
    "\ufeff",
    "\ud800",
    "a\udfffb", "kind:", "tag:", "scope:", "source:", 'kind:""', 'kind:"', "kind:fact", "KIND:fact",
    "kind:kind:fact", "kind:fact tag:x scope:y source:z", "scope:/", "scope:%", "scope:_", "\n\t\r",
    " ", "", "a" * 5000, "a " * 900, "'" * 300, '"a" ' * 60, "x" * 3 + "\0" * 5, "foo.bar(baz)",
    "it's", "don't AND won't", "<b>", "&amp;", "$HOME", "#tag", "@user", "a|b", "[x]", "{}", "~",
    "`",
    "?", "!", ",", "1", "12", "-1", "1e9", "C#", ".net", "node.js", "a.b.c.d", "x=y", "x==y",
    "::", "->",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store in which every case stands in the body of an entry; not to be written to."""
    with Store(tmp_path_factory.mktemp("corpus") / "memory.db").session() as store:
        with store.writing():
            pass
        for number, case in enumerate(CASES):
            text = case.encode("utf-8", "replace").decode().replace("\0", " ")
            put(
                store, f"case {number}", f"before {text} after",
                tags=json.dumps([text[:50]]), updated_at=NOW + number, source="me",
                scope=("global", SHOP, "/home/b/other")[number % 3],
                kind=("fact", "lesson")[number % 2],
            )  # fmt: skip
        yield store


def check(store: Store, query: SearchQuery) -> SearchResult:
    """Searches, and checks what must be true of any answer."""
    result = search(store, query, NOW)
    assert len(result.hits) <= query.limit
    assert len({hit.entry.id for hit in result.hits}) == len(result.hits)
    tiers = [hit.tier for hit in result.hits]
    assert tiers == sorted(tiers) or query.sort != "best"
    assert result.total >= sum(tier != SOME_WORDS for tier in tiers)
    assert (result.partial or 0) >= sum(tier == SOME_WORDS for tier in tiers)
    if result.terms:
        ids, total = ids_of_all_matches(store, query, NOW)
        assert len(ids) == min(total, 50)
        if query.scope is None and query.sort == "best":
            assert sum(tier == ALL_WORDS for tier in tiers) == min(total, query.limit)
    return result


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_case_is_a_legal_query_in_every_order_and_for_a_forget(
    corpus: Store, case: str
) -> None:
    for sort in ("best", "newest", "oldest", "title"):
        check(corpus, SearchQuery(case, sort=sort, limit=500))
    check(corpus, SearchQuery(case, SHOP, limit=3))


FINDABLE = [
    (number, case)
    for number, case in enumerate(CASES)
    if len(case) < 1000
    and not re.search(r"(?i)kind:|tag:|scope:|source:", case)
    and re.sub(r'[\s"\0\ud800-\udfff]', "", case)
]


@pytest.mark.parametrize(("number", "case"), FINDABLE, ids=[number for number, _ in FINDABLE])
def test_every_case_finds_the_entry_that_it_stands_in(
    corpus: Store, number: int, case: str
) -> None:
    assert f"case {number}" in whole(corpus, case)


@given(text=st.text(st.characters(), max_size=60) | st.text('ab"*:-( \0数据é', max_size=25))
@hypothesis_settings(max_examples=250, deadline=None)
def test_any_text_is_a_legal_query(corpus: Store, text: str) -> None:
    check(corpus, SearchQuery(text, limit=200))


TOKENS = st.sampled_from([*CASES, "before", "after", "case", "bef", "efore", '"before after"'])


@given(
    pieces=st.lists(TOKENS, max_size=6),
    glue=st.sampled_from([" ", "", '"', "  ", " AND ", ":"]),
    scope=st.sampled_from([None, "global", SHOP, "shop", "%", "/"]),
    sort=st.sampled_from(["best", "newest", "oldest", "title"]),
    limit=st.integers(1, 30),
    offset=st.integers(0, 150),
)
@hypothesis_settings(max_examples=150, deadline=None)
def test_any_mixture_of_cases_filters_and_pages_is_legal(
    corpus: Store,
    pieces: list[str],
    glue: str,
    scope: str | None,
    sort: str,
    limit: int,
    offset: int,
) -> None:
    query = SearchQuery(glue.join(pieces)[:900], scope, sort=sort, limit=limit, offset=offset)
    search(corpus, query, NOW)


def filtered(name: str, value: str) -> SearchQuery:
    """A search for a word with one filter."""
    fields: dict[str, Any] = {name: value}
    return SearchQuery("before", **fields)


@given(value=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
@hypothesis_settings(max_examples=60, deadline=None)
def test_any_text_is_a_legal_filter(corpus: Store, value: str) -> None:
    for name in ("scope", "kind", "tag", "source"):
        search(corpus, filtered(name, value), NOW)


@pytest.mark.parametrize("name", ["scope", "kind", "tag", "source"])
def test_a_filter_that_is_no_unicode_is_bad_input(corpus: Store, name: str) -> None:
    with pytest.raises(InvalidInput):
        search(corpus, filtered(name, "/\ud800"), NOW)


def test_an_unknown_order_is_bad_input(corpus: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        search(corpus, SearchQuery("before", sort="random"), NOW)
    assert caught.value.field == "sort"


def test_a_very_long_query_is_answered_by_its_first_words(corpus: Store) -> None:
    words = " ".join(f"word{number}" for number in range(3000))
    assert len(check(corpus, SearchQuery(words, limit=5)).terms) == MAX_TERMS


# --- what matches ---------------------------------------------------------------------------------


def test_words_need_not_stand_together_nor_in_order(filled: Store) -> None:
    put(filled, "Both", "the timeout of a busy wal file")
    put(filled, "One", "only a wal")
    assert whole(filled, "wal timeout") == whole(filled, "timeout wal") == ["Both"]


def test_a_word_may_be_in_the_title_the_body_or_the_tags(filled: Store) -> None:
    put(filled, "Harbour", "boats", tags='["sea"]')
    assert whole(filled, "harbour boats sea") == ["Harbour"]


def test_a_phrase_matches_its_words_together_and_in_order_only(filled: Store) -> None:
    put(filled, "Together", "set the busy timeout first")
    put(filled, "Apart", "busy people need a timeout")
    put(filled, "Turned", "timeout busy")
    assert whole(filled, '"busy timeout"') == ["Together"]
    assert whole(filled, '"BUSY  timeout" first') == ["Together"]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("migrate", "we migrated it"), ("migrations", "one migration"), ("running", "it runs"),
        ("TIMEOUT", "a timeout"), ("timeout", "A TIMEOUT"), ("cafe", "the café"),
        ("café", "the cafe"),
        ("naive", "a naïve cafe\u0301"), ("cafe", "a naïve cafe\u0301"), ("Überlauf", "uberlauf"),
        ("ångström", "ANGSTROM"), ("ελλάδα", "ΕΛΛΆΔΑ"), ("größe", "GRÖßE"),
    ],
)  # fmt: skip
def test_words_are_stemmed_and_case_and_diacritics_do_not_matter(
    filled: Store, text: str, body: str
) -> None:
    put(filled, "Here", body)
    put(filled, "Not here", "something else")
    assert whole(filled, text) == ["Here"]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("数据", "我们的数据库很大"), ("据库", "我们的数据库很大"), ("数据库", "我们的数据库很大"),
        ("库", "我们的数据库很大"), ("的数据库很", "我们的数据库很大"), ("東京", "私は東京都に住む"),
        ("データ", "このデータベース"), ("タベ", "このデータベース"), ("ベース", "このデータベース"),
        ("데이", "큰데이터베이스입니다"), ("터베이", "큰데이터베이스입니다"),
        ("ﾃﾞｰ", "このﾃﾞｰﾀﾍﾞｰｽ"), ("ﾀﾍ", "このﾃﾞｰﾀﾍﾞｰｽ"),
        ("𠮷野", "牛丼の𠮷野家です"), ("ข้อมูล", "ฐานข้อมูลใหญ่"), ("sql数据", "mysql数据库"), ("、", "大、小"),
        ("数据 很大", "我们的数据库很大"), ('"据库 很"', "数据库 很大"),
    ],
)  # fmt: skip
def test_scripts_without_spaces_are_found_inside_a_run_from_one_character_on(
    filled: Store, text: str, body: str
) -> None:
    put(filled, "Here", body)
    put(filled, "Not here", "別の内容、다른 내용, other things"[::-1].replace("、", ""))
    assert whole(filled, text) == ["Here"]


def test_a_part_of_a_word_is_found_from_three_characters_on_anywhere(filled: Store) -> None:
    put(filled, "Here", "the PRAGMA busy_timeout_ms is set")
    for part in ("prag", "agm", "timeout_m", "usy_time", "TIMEOUT_MS", "bu", "se"):
        assert titles(filled, part) == ["Here"], part
    assert titles(filled, "ag") == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("50%", ["percent"]), ("a_b", ["underscore"]), ("%", ["percent"]), ("_b", ["underscore"]),
        ("\\n", ["backslash"]), ("5%", []), ("a%b", []),
    ],
)  # fmt: skip
def test_signs_of_like_are_taken_as_they_stand(filled: Store, text: str, found: list[str]) -> None:
    put(filled, "percent", "50% of it")
    put(filled, "underscore", "call a_b now")
    put(filled, "backslash", "a \\n in it")
    put(filled, "plain", "50 acb anb")
    assert titles(filled, text) == found


@pytest.mark.parametrize(
    ("text", "found"), [("C++", ["cpp"]), ("C#", ["csharp"]), ("C", ["c", "cpp", "csharp"]),
    ("+", ["cpp"])]
)  # fmt: skip
def test_signs_are_part_of_a_short_name(filled: Store, text: str, found: list[str]) -> None:
    put(filled, "cpp", "written in C++ today")
    put(filled, "csharp", "written in C# today")
    put(filled, "c", "written in C today")
    assert sorted(whole(filled, text)) == found


# --- filters --------------------------------------------------------------------------------------


@pytest.fixture
def varied(filled: Store) -> Store:
    """Entries that differ in what filters look at."""
    put(filled, "a", "apple", kind="fact", tags='["red", "Big"]', scope=SHOP, source="tester")
    put(filled, "b", "apple", kind="lesson", tags='["green"]', scope="global", source="agent")
    put(filled, "c", "apple", kind="fact", tags="spoilt", scope="/home/b/farm", source=None)
    put(
        filled,
        "d",
        "apple",
        kind="my kind",
        tags='["two words"]',
        scope="/srv/shop",
        source="agent",
    )
    put(filled, "e", "pear", kind="fact", tags='["red"]', scope=SHOP, source="tester")
    return filled


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("apple", "abcd"), ("apple kind:fact", "ac"), ("apple KIND:Fact", "ac"),
        ("kind:fact", "ace"),
        ('kind:"my kind"', "d"), ("apple tag:red", "a"), ("tag:RED", "ae"), ("tag:big apple", "a"),
        ('tag:"two words"', "d"), ("tag:re", ""), ("tag:spoilt", ""), ("source:agent", "bd"),
        ("source:agent apple kind:lesson", "b"), ("scope:global", "b"), (f"scope:{SHOP}", "abe"),
        (f"apple scope:{SHOP}", "ab"), ("scope:shop", "ade"), ("scope:farm apple", "c"),
        ("scope:nowhere", ""), ("scope:hop", ""), ("scope:s_op", ""), ("scope:%", ""),
        ("kind:fact kind:lesson", "b"), ("kind:", ""), ('kind:"" apple', "abcd"),
    ],
)  # fmt: skip
def test_filters_in_the_text_narrow(varied: Store, text: str, found: str) -> None:
    assert sorted(titles(varied, text)) == list(found)
    assert search(varied, SearchQuery(text), NOW).total == len(found)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"kind": "fact"}, "ace"), ({"tag": "red"}, "ae"), ({"source": "TESTER"}, "ae"),
        ({"scope": SHOP}, "abe"), ({"scope": "global"}, "b"), ({"scope": None}, "abcde"),
        ({"scope": SHOP, "kind": "fact", "tag": "big"}, "a"),
    ],
)  # fmt: skip
def test_filters_in_the_query_narrow(varied: Store, fields: dict[str, Any], found: str) -> None:
    assert sorted(titles(varied, "", **fields)) == list(found)


def test_a_filter_in_the_text_wins_over_the_same_one_in_the_query(varied: Store) -> None:
    assert titles(varied, "kind:lesson", kind="fact") == ["b"]


def test_dates_narrow_with_the_end_excluded(filled: Store) -> None:
    for number in range(4):
        put(filled, f"t{number}", "apple", updated_at=NOW + number)
    assert titles(filled, "apple", since=NOW + 1, until=NOW + 3, sort="oldest") == ["t1", "t2"]
    assert titles(filled, "", since=NOW + 3) == ["t3"]
    assert titles(filled, "", until=NOW) == []


def test_expired_rows_never_match_in_any_tier_order_or_list(filled: Store) -> None:
    put(filled, "live", "apple pie", expires_at=NOW + 1)
    put(filled, "expired", "apple pie", expires_at=NOW)
    put(filled, "long gone", "apple pie", expires_at=1)
    for text in ("", "apple", '"apple pie"', "app", "pple", "kind:fact", '"e p"'):
        for sort in ("best", "newest", "oldest", "title"):
            assert titles(filled, text, sort=sort) == ["live"], (text, sort)
    assert titles(filled, "apple missing") == ["live"]


def test_forgotten_rows_never_match_in_any_tier(filled: Store) -> None:
    put(filled, "kept", "apple pie 数据")
    entries.forget(filled, [put(filled, "gone", "apple pie 数据")], "tester", NOW)
    for text in ("", "apple", "app", "pple", "apple missing", "数据", "据", "gone apple"):
        assert titles(filled, text) == ["kept"], text


def test_a_rewritten_text_no_longer_matches(filled: Store) -> None:
    for body in ("first walnut", "second hazel"):
        draft = entries.draft(scope=SHOP, kind="fact", title="Nut", body=body, now=NOW)
        entries.save(filled, draft, "tester", NOW)
    assert titles(filled, "walnut") == titles(filled, "alnu") == []
    assert titles(filled, "hazel") == titles(filled, "aze") == ["Nut"]


def test_rows_of_another_process_with_the_public_layout_are_found(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as plugin:
        plugin.execute("PRAGMA journal_mode = WAL")
        plugin.executescript(LAYOUT.read_text("utf-8"))
        row = ("x1", "global", "fact", "Early", "walnuts 数据库", '["old"]', 1, 1, None)
        plugin.execute(INSERT, row)
        with Store(path).session() as store:
            assert titles(store, "walnut") == titles(store, "据库") == ["Early"]
        plugin.execute(INSERT, ("x2", *row[1:3], "Late", *row[4:]))
        with Store(path).session() as store:
            for text in ("walnut", "alnut", "数据", "tag:old", "old"):
                assert sorted(titles(store, text)) == ["Early", "Late"], text


# --- order ----------------------------------------------------------------------------------------


def test_every_word_comes_before_parts_before_some_words(filled: Store) -> None:
    put(filled, "some", "timeout alone, a newer entry", updated_at=NOW + 9)
    put(filled, "parts", "walnuts and timeouts", updated_at=NOW + 5)
    put(filled, "words", "wal with a timeout", updated_at=NOW)
    put(filled, "none", "nothing of it")
    result = search(filled, SearchQuery("wal timeout"), NOW)
    assert [(hit.entry.title, hit.tier) for hit in result.hits] == [
        ("words", ALL_WORDS), ("parts", ALL_PARTS), ("some", SOME_WORDS),
    ]  # fmt: skip
    assert (result.total, result.partial, result.has_more) == (2, 1, False)


def test_parts_in_the_title_come_before_newer_parts_in_the_body(filled: Store) -> None:
    put(filled, "new", "walnuts", updated_at=NOW + 5)
    put(filled, "Walnuts", "-", updated_at=NOW)
    assert titles(filled, "waln") == ["Walnuts", "new"]


def test_more_of_the_words_come_before_fewer(filled: Store) -> None:
    put(filled, "one", "alpha", updated_at=NOW + 2)
    put(filled, "two", "alpha beta", updated_at=NOW)
    put(filled, "another", "gamma", updated_at=NOW + 1)
    assert titles(filled, "alpha beta gamma") == ["two", "one", "another"]


def test_a_word_in_the_title_ranks_above_one_in_the_body(filled: Store) -> None:
    put(filled, "first", "the harbour and much other text about boats", updated_at=NOW + 5)
    put(filled, "Harbour", "much other text about boats and all sorts of things", updated_at=NOW)
    put(filled, "third", "no match here")
    assert titles(filled, "harbour") == ["Harbour", "first"]


@pytest.mark.parametrize(
    ("sort", "expected"), [("newest", "bca"), ("oldest", "acb"), ("title", "abc")]
)
def test_orders_by_time_and_title(filled: Store, sort: str, expected: str) -> None:
    put(filled, "b", "apple", updated_at=NOW + 3)
    put(filled, "a", "apple", updated_at=NOW + 1)
    put(filled, "c", "apples", updated_at=NOW + 2)
    put(filled, "d", "pear", updated_at=NOW + 4)
    assert titles(filled, "apple", sort=sort) == list(expected)


def test_without_words_the_newest_come_first(filled: Store) -> None:
    for number in (2, 0, 1):
        put(filled, f"t{number}", updated_at=NOW + number)
    assert titles(filled, "") == ["t2", "t1", "t0"]


# --- pages and totals -----------------------------------------------------------------------------

WORDS = [
    "wal", "timeout", "walnut", "timeouts", "busy", "busybody", "lock", "locked",
    "数据", "数据库", "据", "C++",
]  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Entries of few words, many of them alike and equally old; not to be written to."""
    dice = random.Random(7)
    with Store(tmp_path_factory.mktemp("many") / "memory.db").session() as store:
        with store.writing():
            pass
        for number in range(230):
            put(
                store, dice.choice(["Note", "Walnut", "Lock"]), " ".join(dice.choices(WORDS, k=3)),
                id=f"id{number}", scope=dice.choice([SHOP, "global", "/home/b/x"]),
                updated_at=NOW + dice.randrange(4), kind=dice.choice(["fact", "lesson"]),
                expires_at=dice.choice([None, None, None, NOW - 1, NOW + 1]),
            )  # fmt: skip
        yield store


QUERIES = [
    "wal", "timeout wal", "walnut busy lock", "数据", "据", "数据库 wal", "C++", "C++ lock", "ock",
    "bus time", '"wal timeout"', "kind:fact wal", "a", "wal wal timeout", "", "kind:lesson",
    "missing",
    "wal missing", "*", "+ wal",
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 7, 30])
@pytest.mark.parametrize("text", QUERIES)
def test_pages_hold_every_hit_once_in_the_order_of_one_long_page(
    many: Store, text: str, size: int
) -> None:
    sorts = ("best", "newest") if size == 7 else ("best",)
    for sort in sorts:
        everything = search(many, SearchQuery(text, sort=sort, limit=1000), NOW)
        assert not everything.has_more
        collected: list[Hit] = []
        while True:
            query = SearchQuery(text, sort=sort, limit=size, offset=len(collected))
            page = search(many, query, NOW)
            collected += page.hits
            assert page.total <= everything.total
            assert page.has_more is (len(collected) < len(everything.hits))
            if not page.has_more:
                break
            assert len(page.hits) == size
        assert collected == list(everything.hits)
        assert (page.total, page.partial) == (everything.total, everything.partial)
        beyond = search(many, SearchQuery(text, sort=sort, limit=size, offset=len(collected)), NOW)
        assert (beyond.hits, beyond.has_more) == ((), False)
        assert beyond.total == everything.total


@pytest.mark.parametrize("scope", [None, SHOP, "global", "x"])
@pytest.mark.parametrize("text", QUERIES)
def test_totals_count_exactly_the_hits_of_each_tier(
    many: Store, text: str, scope: str | None
) -> None:
    result = search(many, SearchQuery(text, scope, limit=1000), NOW)
    tiers = [hit.tier for hit in result.hits]
    assert result.total == sum(tier != SOME_WORDS for tier in tiers)
    assert (result.partial or 0) == tiers.count(SOME_WORDS)
    if result.terms:
        ids, total = ids_of_all_matches(many, SearchQuery(text, scope), NOW)
        assert total == tiers.count(ALL_WORDS)
        assert set(ids) <= {hit.entry.id for hit in result.hits if hit.tier == ALL_WORDS}


def searchable(row: tuple[str, str, str]) -> str:
    return "\n".join(row).lower()


@pytest.mark.parametrize(
    "text",
    ["wal", "timeout wal", "walnut busy lock", "数据", "据", "数据库 wal", "C++ lock", "ock", "missing"],
)  # fmt: skip
def test_all_tiers_together_are_what_a_plain_look_at_every_row_finds(
    many: Store, text: str
) -> None:
    """Of these words none is stemmed to another, so a substring is all there is to find."""
    terms = text.lower().split()
    rows = {
        row[0]: searchable(row[1:])
        for row in many.rows(
            "SELECT id, title, body, tags FROM entries WHERE expires_at IS NULL OR expires_at > ?",
            (NOW,),
        )
    }
    result = search(many, SearchQuery(text, limit=1000), NOW)
    found = {hit.entry.id: hit.tier for hit in result.hits}
    every = {key for key, body in rows.items() if all(term in body for term in terms)}
    some = {key for key, body in rows.items() if any(term in body for term in terms)}
    assert {key for key, tier in found.items() if tier != SOME_WORDS} == every
    assert set(found) == some


# --- what a hit shows -----------------------------------------------------------------------------


def test_matches_are_marked_in_title_and_snippet(filled: Store) -> None:
    put(filled, "Harbour boats", "Two boats <b>lie</b> in the harbour & wait")
    (hit,) = search(filled, SearchQuery("boat harbour"), NOW).hits
    on, off = MARK_ON, MARK_OFF
    assert hit.title == f"{on}Harbour{off} {on}boats{off}"
    assert hit.snippet == f"Two {on}boats{off} <b>lie</b> in the {on}harbour{off} & wait"
    assert hit.entry.title == "Harbour boats"


@pytest.mark.parametrize("text", ["ARBO", "数据", "C++", "harb 据"])
def test_parts_are_marked_whatever_their_case(filled: Store, text: str) -> None:
    put(filled, "Harbour", "a harbour 数据库 C++ Harbour")
    (hit,) = search(filled, SearchQuery(text), NOW).hits
    marked = re.findall(f"{MARK_ON}(.*?){MARK_OFF}", hit.title + hit.snippet)
    assert marked
    assert {piece.lower() for piece in marked} <= set(text.lower().split())


@pytest.mark.parametrize("text", ["needle", "eedl", "needle missing", "針"])
def test_a_snippet_of_a_long_body_is_short_and_holds_the_match(filled: Store, text: str) -> None:
    put(filled, "Long", "hay " * 900 + "needle 針 " + "straw " * 700)
    (hit,) = search(filled, SearchQuery(text), NOW).hits
    plain = hit.snippet.replace(MARK_ON, "").replace(MARK_OFF, "")
    assert "needle" in plain
    assert MARK_ON in hit.snippet
    assert len(plain) <= EXCERPT + 50
    assert plain.startswith("…")
    assert plain.endswith("…")


def test_a_body_without_any_space_makes_a_short_snippet_too(filled: Store) -> None:
    put(filled, "Long", "x" * 3000 + "needle" + "y" * 3000)
    (hit,) = search(filled, SearchQuery("needle"), NOW).hits
    assert "needle" in hit.snippet
    assert len(hit.snippet) <= EXCERPT + 50


@pytest.mark.parametrize("run", ["数", "x"])
def test_a_snippet_of_words_as_long_as_pages_is_short_too(filled: Store, run: str) -> None:
    put(filled, "Long", f"{run * 5000} needle {run * 2000}")
    put(filled, "Longer", f"{run * 900}needle 針 {run * 5000}")
    for text in ("needle", "needle long"):
        for hit in search(filled, SearchQuery(text), NOW).hits:
            assert MARK_ON in hit.snippet
            assert hit.snippet.count(MARK_ON) == hit.snippet.count(MARK_OFF)
            assert len(hit.snippet) <= 3 * EXCERPT


@given(text=st.text(max_size=80), terms=st.lists(st.text(max_size=5), max_size=4))
@hypothesis_settings(max_examples=150, deadline=None)
def test_marks_and_excerpts_change_no_character_of_the_text(text: str, terms: list[str]) -> None:
    text = text.replace(MARK_ON, "").replace(MARK_OFF, "")
    terms = [term.replace(MARK_ON, "").replace(MARK_OFF, "") for term in terms]
    marked = mark(text, terms)
    assert marked.replace(MARK_ON, "").replace(MARK_OFF, "") == text
    assert marked.count(MARK_ON) == marked.count(MARK_OFF)
    cut = excerpt(text, terms, length=20)
    assert cut.strip("…") in text or "…" in text
    assert len(cut) <= 22


# --- files without our index ----------------------------------------------------------------------


def test_a_read_only_file_of_the_plugins_is_searched_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as plugin:
        plugin.executescript(LAYOUT.read_text("utf-8"))
        for number in range(9):
            plugin.execute(
                INSERT,
                (f"x{number}", SHOP, "fact", f"Title {number}", f"walnut 数据 {number} 100%", '["t"]',
                 number, number, NOW if number == 8 else None),
            )  # fmt: skip
    path.chmod(0o444)
    with Store(path).session() as store:
        assert not store.indexed
        assert len(titles(store, "WALNUT title")) == 8
        assert titles(store, "数据 3") == ["Title 3"]
        assert titles(store, "tag:t 5") == ["Title 5"]
        assert titles(store, "0%") == [f"Title {n}" for n in range(7, -1, -1)]
        assert titles(store, "_") == titles(store, "walnut missing") == []
        first = search(store, SearchQuery("walnut", limit=5), NOW)
        second = search(store, SearchQuery("walnut", limit=5, offset=5), NOW)
        assert (first.total, first.has_more, second.has_more) == (8, True, False)
        assert len({hit.entry.id for hit in (*first.hits, *second.hits)}) == 8
        assert MARK_ON in first.hits[0].snippet
        assert ids_of_all_matches(store, SearchQuery("walnut", SHOP), NOW)[1] == 8
        for case in CASES:
            search(store, SearchQuery(case.replace("source:", "")), NOW)
        with pytest.raises(Unreadable, match="who wrote"):
            search(store, SearchQuery("source:agent"), NOW)


@pytest.mark.parametrize(
    ("term", "text", "marked"),
    [
        (
            "rounding",
            "round rounds Rounding rounded ground",
            ["round", "rounds", "Rounding", "rounded"],
        ),
        ("rates", "the rate, rates and ratesheet; crate", ["rate", "rates", "rates"]),
        ("timeouts", "a timeout", ["timeout"]),
        ("uses", "use used", []),
        ("naïves", "naïve naïves", ["naïves"]),
        ("a.b", "a.b axb", ["a.b"]),
    ],
)
def test_words_of_the_same_stem_are_marked(term: str, text: str, marked: list[str]) -> None:
    found = mark(text, [term])
    assert re.findall(f"{MARK_ON}(.*?){MARK_OFF}", found) == marked
    assert found.replace(MARK_ON, "").replace(MARK_OFF, "") == text


@pytest.mark.parametrize("text", ["deploy", "deploy cache", "cache nothing", "Deploys the CACHE"])
@pytest.mark.parametrize("scope", ["/a", "/b", "global"])
def test_matches_picked_out_by_a_list_are_those_that_were_looked_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, text: str, scope: str
) -> None:
    chance = random.Random(5)
    words = ["deploy", "deploys", "cache", "the", "other", "words", "here"]
    for number in range(150):
        entries.save(store, entries.draft(
            scope=chance.choice(["/a", "/b", "/c", "global"]), kind="fact", title=f"{number}",
            body=" ".join(chance.choices(words, k=chance.randint(1, 30))),
            expires_at=NOW + 1 if number % 9 == 0 else None, now=NOW - number // 2,
        ), "x", NOW - number // 2)  # fmt: skip

    def pages() -> list[Any]:
        found = []
        for offset in (0, 7, 300):
            query = SearchQuery(text, scope=scope, limit=7, offset=offset)
            result = search(store, query, NOW + 2)
            found.append((
                {(hit.entry.id, hit.tier, hit.title, hit.snippet) for hit in result.hits},
                result.total, result.partial, result.has_more,
            ))  # fmt: skip
        return found

    looked_up = pages()
    monkeypatch.setattr("webapp.memory.search.MATCHES", 0)
    assert pages() == looked_up
    newest = search(store, SearchQuery(scope=scope, limit=9, offset=3), NOW + 2)
    every = search(store, SearchQuery(scope=scope, limit=150), NOW + 2)
    assert newest.hits == every.hits[3:12]
    assert [h.entry.updated_at for h in every.hits] == sorted(
        (h.entry.updated_at for h in every.hits), reverse=True
    )
