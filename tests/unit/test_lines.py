"""Line ranges and the checksum that a copied link carries."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.errors import InvalidInput
from webapp.lines import MAX_LINE, MAX_WINDOW, LineRange, fingerprint, line_hash, parse_range


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("1", 1, 1), ("120", 120, 120), ("120-140", 120, 140), ("L120-L140", 120, 140),
        ("l7", 7, 7), ("L7-9", 7, 9), ("7-L9", 7, 9), (" 7-9 ", 7, 9), ("007-009", 7, 9),
        ("5-5", 5, 5),
        (f"1-{MAX_WINDOW}", 1, MAX_WINDOW), (f"{MAX_LINE}", MAX_LINE, MAX_LINE),
        ("1000000-1000200", 1_000_000, 1_000_200),
    ],
)  # fmt: skip
def test_a_range_is_read(text: str, first: int, last: int) -> None:
    assert parse_range(text) == LineRange(first, last)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0-5", "no line 0"), ("0", "no line 0"), ("0-0", "no line 0"), ("9-3", "Did you mean 3-9"),
        ("9-0", "no line 0"), ("abc", "not a line range"), ("", "not a line range"),
        ("1-99999999999", "up to 2,000 lines"), (f"1-{MAX_WINDOW + 1}", "Try 1-2000"),
        (f"{MAX_LINE + 1}", "further than any"), ("9" * 30, "further than any"),
        ("9" * 31, "not a line range"), ("9" * 6000, "not a line range"),
        ("1-", "not a line range"),
        ("-1", "not a line range"), ("1-2-3", "not a line range"), ("1 - 2", "not a line range"),
        ("1,2", "not a line range"), ("1.5", "not a line range"), ("+1", "not a line range"),
        ("１-２", "not a line range"), ("٣", "not a line range"), ("1\n2", "not a line range"),
        ("LL1", "not a line range"), ("<script>", "not a line range"), ("1_0", "not a line range"),
        ("1–2", "not a line range"), ("\0", "not a line range"),
    ],
)  # fmt: skip
def test_what_is_no_range_is_answered_in_one_short_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        parse_range(text)
    assert caught.value.field == "range"
    assert len(caught.value.message) < 200


def test_the_suggestion_for_a_range_that_is_too_long_is_itself_a_range() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_range("500-9000", limit=200)
    assert "Try 500-699." in caught.value.message
    assert len(parse_range("500-699", limit=200)) == 200


@given(first=st.integers(1, MAX_LINE), length=st.integers(1, MAX_WINDOW))
@hypothesis_settings(deadline=None)
def test_a_range_is_written_as_it_is_read(first: int, length: int) -> None:
    lines = LineRange(first, min(first + length - 1, MAX_LINE))
    assert parse_range(str(lines)) == lines
    assert len(lines) == lines.last - lines.first + 1
    assert first in lines
    assert lines.last in lines
    assert first - 1 not in lines
    assert lines.last + 1 not in lines


@given(text=st.text(st.characters(), max_size=40) | st.text("L0123456789-", max_size=45))
@hypothesis_settings(deadline=None)
def test_any_text_is_a_range_or_bad_input(text: str) -> None:
    try:
        lines = parse_range(text)
    except InvalidInput:
        return
    assert 1 <= lines.first <= lines.last
    assert len(lines) <= MAX_WINDOW


def test_the_checksum_of_a_line_is_the_crc_of_its_utf8() -> None:
    assert line_hash("") == 0
    assert line_hash("größe 数据") == zlib.crc32("größe 数据".encode())
    assert line_hash("half \ud800") == line_hash("half ?")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "00000000"), ([""], "00000000"), (["a"], "e8b7be43"), (["a", "b"], "9ffefa16"),
    ],
)  # fmt: skip
def test_the_fingerprint_of_a_selection_never_changes(lines: list[str], expected: str) -> None:
    assert fingerprint(map(line_hash, lines)) == expected


@given(lines=st.lists(st.text(max_size=8), min_size=2, max_size=6))
@hypothesis_settings(deadline=None)
def test_the_fingerprint_tells_other_lines_and_another_order(lines: list[str]) -> None:
    whole = fingerprint(map(line_hash, lines))
    assert len(whole) == 8
    assert fingerprint(map(line_hash, [*lines[:-1], lines[-1] + "!"])) != whole
    if line_hash(lines[0]) != line_hash(lines[1]):
        assert fingerprint(map(line_hash, [lines[1], lines[0], *lines[2:]])) != whole
