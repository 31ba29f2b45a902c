"""What a person types: words, phrases, filters, days and times to expire."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.errors import InvalidInput
from webapp.memory.query import MAX_TERMS, SearchQuery, clean, parse, parse_day, parse_expiry

NOW = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", []), ("  \n\t ", []), ("one", ["one"]), ("one two", ["one", "two"]),
        ("one one ONE", ["one", "ONE"]), ('"one two" three', ["one two", "three"]),
        ('say "one two', ["say", "one", "two"]), ('"', []), ('""', []), ('" "', []),
        ('a"b c"d', ["a", "b c", "d"]), ("don't", ["don't"]), ("-x", ["-x"]), ("a:b", ["a:b"]),
        ("title:x", ["title:x"]), ("http://host:80/x", ["http://host:80/x"]), ("a\0b", ["a", "b"]),
        ("NEAR(a b)", ["NEAR(a", "b)"]), ("数据 库", ["数据", "库"]), ("a\u3000b", ["a", "b"]),
        ("kind:fact x", ["x"]), ("kind:", ["kind:"]), ("kind: x", ["kind:", "x"]),
        ('kind:"a b" x', ["x"]), ('kind:"" x', ["x"]), ("x\ud800", ["x?"]),
    ],
)  # fmt: skip
def test_a_text_is_words_and_phrases(text: str, terms: list[str]) -> None:
    assert list(parse(SearchQuery(text)).terms) == terms


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("kind:fact", "kind", "fact"), ("Kind:Fact", "kind", "Fact"), ("tag:a-b", "tag", "a-b"),
        ('tag:"two words"', "tag", "two words"), ("scope:/home/a b", "scope", "/home/a"),
        ('scope:"/home/a b"', "scope", "/home/a b"), ("source:me", "source", "me"),
        ("x source:me y", "source", "me"), ("kind:a kind:b", "kind", "b"),
        ("kind:a:b", "kind", "a:b"),
        ('kind:"open', "kind", None), ("kind:", "kind", None), ("unkind:x", "kind", None),
    ],
)  # fmt: skip
def test_filters_are_taken_out_of_the_text(text: str, name: str, value: str | None) -> None:
    assert getattr(parse(SearchQuery(text)).query, name) == value


def test_a_filter_in_the_text_replaces_that_of_the_query_and_leaves_the_rest() -> None:
    query = SearchQuery("kind:lesson x", "/home/a", "fact", "t", "me", 1, 2, "newest", 5, 10)
    found = parse(query).query
    assert (found.kind, found.scope, found.tag, found.source) == ("lesson", "/home/a", "t", "me")
    assert (found.since, found.until, found.sort, found.limit, found.offset) == (
        1, 2, "newest", 5, 10,
    )  # fmt: skip


@given(text=st.text(st.characters(), max_size=200))
@hypothesis_settings(max_examples=200, deadline=None)
def test_every_text_parses_into_few_clean_terms(text: str) -> None:
    parsed = parse(SearchQuery(text))
    assert len(parsed.terms) <= MAX_TERMS
    assert len(set(parsed.terms)) == len(parsed.terms)
    for term in parsed.terms:
        assert term == term.strip() != ""
        assert '"' not in term
        term.encode("utf-8")
    clean(text).encode("utf-8")
    assert "\0" not in clean(text)


@pytest.mark.parametrize(
    ("query", "filtered"),
    [
        (SearchQuery(), False), (SearchQuery(sort="title", limit=3, offset=6), False),
        (SearchQuery("x"), True), (SearchQuery(scope="global"), True), (SearchQuery(since=0), True),
    ],
)  # fmt: skip
def test_order_and_page_are_no_filter(query: SearchQuery, filtered: bool) -> None:
    assert query.is_filtered is filtered


def test_another_page_is_the_same_search() -> None:
    query = SearchQuery("x", limit=5)
    assert query.with_page(10) == SearchQuery("x", limit=5, offset=10)


def test_a_day_is_its_first_millisecond_in_utc() -> None:
    assert parse_day("2026-11-30", "since") == NOW - 12 * HOUR
    assert parse_day(" 1970-01-01 ", "since") == 0
    assert parse_day("", "since") is None
    assert parse_day("  ", "until") is None


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-13-01", "2026-02-30", "30.11.2026", "2026", "1764460800", "\0",
    "-1",
             "2026-11-30T23:00+05:00", "2026-11-30 x", "99999-01-01"],
)  # fmt: skip
def test_what_is_no_day_is_refused_naming_the_field(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_day(text, "until")
    assert caught.value.field == "until"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("", None), ("  ", None), ("12h", NOW + 12 * HOUR), ("30d", NOW + 30 * DAY),
        ("2w", NOW + 14 * DAY), ("1 d", NOW + DAY), (" 3h ", NOW + 3 * HOUR),
        ("2026-12-01", NOW + 12 * HOUR), ("2026-11-30T12:00:01Z", NOW + 1000),
        ("2026-11-30T14:00+01:00", NOW + HOUR), ("2026-11-30 12:00:00.001", NOW + 1),
        ("99999w", NOW + 99999 * 7 * DAY), ("9999-12-31", 253_402_214_400_000),
    ],
)  # fmt: skip
def test_a_time_to_expire_may_be_an_age_a_day_or_a_moment(text: str, moment: int | None) -> None:
    assert parse_expiry(text, NOW) == moment


@pytest.mark.parametrize(
    "text", ["tomorrow", "30", "30 days", "-3d", "1.5h", "d", "999999d", "3m", "３d", "2026-02-30",
             "0001-01-01T00:00+23:59", "x" * 500, "\0", "30d 2h"],
)  # fmt: skip
def test_what_is_no_time_to_expire_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_expiry(text, NOW)
    assert caught.value.field == "expires"
    assert len(caught.value.message) < 200


@pytest.mark.parametrize("text", ["0h", "0d", "2026-11-30", "2026-11-30T12:00", "1999-01-01"])
def test_a_time_that_has_passed_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="already passed"):
        parse_expiry(text, NOW)
