"""How values are shown: times, sizes, marks, hidden characters, Markdown. All pure functions."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

from webapp.memory.search import MARK_OFF, MARK_ON
from webapp.web import filters

NOW = 1_790_000_000
HIDDEN = "\x00\x07\x1b\r\x7f\x85\u061c\u200b\u200e\u2028\u202e\u2066\ufeff"
TAG = re.compile(r"<[^>]*>")


def plain(markup: str) -> str:
    """The text of some markup, its tags gone."""
    return unescape(TAG.sub("", markup))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "just now"), (59, "just now"), (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"),
        (86_399, "23 h ago"), (86_400, "1 d ago"), (604_800, "1 w ago"), (2_592_000, "1 mo ago"),
        (31_536_000, "1 y ago"), (-1, "in a moment"), (-60, "in 1 min"), (-3 * 86_400, "in 3 d"),
        (10**15, "31709791 y ago"),
    ],
)  # fmt: skip
def test_an_age_is_one_number_and_one_word(seconds: int, expected: str) -> None:
    assert filters.age((NOW - seconds) * 1000, now=NOW) == expected


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(0, "1970-01-01T00:00:00Z"), (NOW * 1000, "2026-09-21T14:13:20Z"),
     (NOW * 1000 + 999, "2026-09-21T14:13:20Z"), (-1000, "1969-12-31T23:59:59Z"),
     (10**18, f"{10**18} ms"), (-(10**18), f"{-(10**18)} ms")],
)  # fmt: skip
def test_a_time_is_iso_in_utc_or_the_number_itself(milliseconds: int, expected: str) -> None:
    assert filters.iso(milliseconds) == expected


def test_a_relative_time_carries_the_exact_one() -> None:
    shown = filters.when(NOW * 1000)
    assert 'datetime="2026-09-21T14:13:20Z"' in shown
    assert 'title="2026-09-21 14:13:20 UTC"' in shown
    assert filters.when(None) == "—"


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (1, "1 B"), (999, "999 B"), (1000, "1.0 KB"), (1049, "1.0 KB"), (1050, "1.1 KB"),
     (99_449, "99.4 KB"), (187_000, "187 KB"), (999_499, "999 KB"), (999_500, "1.0 MB"),
     (1_400_000_000, "1.4 GB"), (12_000_000_000_000, "12000 GB")],
)  # fmt: skip
def test_a_size_has_two_or_three_digits_and_a_unit(count: int, expected: str) -> None:
    assert filters.size(count) == expected


@settings(deadline=None)
@given(st.integers(0, 10**15))
def test_every_size_can_be_shown(count: int) -> None:
    assert re.fullmatch(r"[\d.]+ [KMG]?B", filters.size(count))


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [(0, ("line",), "0 lines"), (1, ("line",), "1 line"), (1200, ("line",), "1,200 lines"),
     (1, ("entry", "entries"), "1 entry"), (2, ("entry", "entries"), "2 entries")],
)  # fmt: skip
def test_a_count_goes_with_its_word(count: int, words: tuple[str, ...], expected: str) -> None:
    assert filters.plural(count, *words) == expected


def test_numbers_have_thousands_separators() -> None:
    assert filters.number(1234567) == "1,234,567"


# Marks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"a {MARK_ON}b{MARK_OFF} c", "a <mark>b</mark> c"),
        (f"{MARK_ON}<b>{MARK_OFF}", "<mark>&lt;b&gt;</mark>"),
        (f"{MARK_ON}a", "<mark>a</mark>"),
        (f"a{MARK_OFF}b", "ab"),
        (f"{MARK_ON}a{MARK_ON}b{MARK_OFF}{MARK_OFF}c", "<mark>ab</mark>c"),
        ("<mark>x</mark>", "&lt;mark&gt;x&lt;/mark&gt;"),
        ("", ""),
    ],
)
def test_a_snippet_is_escaped_then_marked(text: str, expected: str) -> None:
    assert filters.marked(text) == expected


@settings(deadline=None)
@given(st.text(st.sampled_from(f"ab<&\"'{MARK_ON}{MARK_OFF}"), max_size=40))
def test_marks_are_balanced_and_no_text_is_lost(text: str) -> None:
    shown = filters.marked(text)
    assert re.sub("</?mark>", "", shown).count("<") == 0
    marks = re.findall("</?mark>", shown)
    assert marks == ["<mark>", "</mark>"] * (len(marks) // 2)
    assert plain(shown) == text.replace(MARK_ON, "").replace(MARK_OFF, "")


@pytest.mark.parametrize(
    ("text", "needle", "expected"),
    [
        ("a needle", "needle", "a <mark>needle</mark>"),
        ("NEEDLE needle", "Needle", "<mark>NEEDLE</mark> <mark>needle</mark>"),
        ("<b>&", "b", "&lt;<mark>b</mark>&gt;&amp;"),
        ("a.c abc", "a.c", "<mark>a.c</mark> abc"),
        ("aaa", "aa", "<mark>aa</mark>a"),
        ("&amp;", "amp", "&amp;<mark>amp</mark>;"),
        ("text", "", "text"),
        ("text", "<script>", "text"),
        ("<script>", "<script>", "<mark>&lt;script&gt;</mark>"),
    ],
)
def test_a_line_is_escaped_and_its_hits_are_marked(text: str, needle: str, expected: str) -> None:
    assert filters.highlight(text, needle) == expected


@settings(deadline=None)
@given(st.text(st.sampled_from("abAB<&\"'.*\\"), max_size=40), st.text("aAb<.*\\", max_size=3))
def test_a_highlight_loses_no_text_and_lets_no_tag_through(text: str, needle: str) -> None:
    shown = filters.highlight(text, needle)
    assert plain(shown) == text
    assert "<" not in re.sub("</?mark>", "", shown)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ((), "abcdef"),
        (((1, 3),), "a<mark>bc</mark>def"),
        (((1, 3), (2, 5)), "a<mark>bc</mark>def"),
        (((3, 3), (4, 2)), "abcdef"),
        (((5, 99),), "abcde<mark>f</mark>"),
    ],
)
def test_places_that_overlap_or_reach_too_far_do_no_harm(
    spans: tuple[tuple[int, int], ...], expected: str
) -> None:
    assert filters.spanned("abcdef", spans) == expected


# Characters that hide ---------------------------------------------------------------------------


@pytest.mark.parametrize("char", HIDDEN)
@pytest.mark.parametrize("show", ["visible", "marked", "highlight"])
def test_a_character_that_hides_is_shown_by_its_name(show: str, char: str) -> None:
    function = getattr(filters, show)
    shown = function(f"a{char}b", "a") if show == "highlight" else function(f"a{char}b")
    assert char not in shown
    text = plain(shown)
    assert text.startswith("a") and text.endswith("b") and len(text) > 2


@pytest.mark.parametrize("text", ["tab\tand\nline", "naïve", "日本語", "👩‍💻", "עברית", ""])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert plain(filters.visible(text)) == text


@settings(deadline=None)
@given(st.text(max_size=60))
def test_what_is_made_visible_is_escaped(text: str) -> None:
    shown = filters.visible(text)
    assert "<" not in re.sub(r'<span class="ctl">[^<]*</span>', "", shown)
    assert escape(shown) == shown


# Markdown ---------------------------------------------------------------------------------------

ALLOWED = {"p", "br", "hr", "em", "strong", "code", "pre", "blockquote", "ul", "ol", "li", "a", "h1",
           "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"}  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["<", ">", "[x](", "javascript:", ")", "![", "](", "<script>", "</script>", "`", "```\n",
             "<img src=x onerror=y>", "&#106;", "\n\n", "| a |\n|---|\n", "<svg/onload=x>", '"', "'",
             "<!--", "]]>", "<a href='", "data:text/html,", "https://e.org", "*", "# ", "- ", "> ",
             "<style>", "<math><mi//xlink:href=", "\x00", "\u202e", "\\", "text "]
        ),
        max_size=14,
    )
)  # fmt: skip
def test_no_markdown_yields_anything_that_runs_or_loads(pieces: list[str]) -> None:
    shown = filters.markdown("".join(pieces))
    for closing, tag, attributes in re.findall(r"<(/?)([a-zA-Z0-9]+)([^>]*)>", shown):
        assert tag in ALLOWED
        names = re.findall(r"([\w-]+)=\"", attributes)
        assert set(names) <= ({"href", "rel"} if tag == "a" and not closing else set())
    for link in re.findall(r'href="([^"]*)"', shown):
        assert re.match(r"(https?:|mailto:|[^:]*$|[#/?.%])", link, re.IGNORECASE), link


def test_a_choice_with_its_count() -> None:
    assert filters.counted((("fact", 1200),)) == [("fact", "fact (1,200)")]
    assert filters.pair("x") == ("x", "x")


# The colours of a terminal ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mb\x1b[0mc", "a~<span class=\"ansi-31\">b</span>~c"),
        ("\x1b[1;4;92mb", "~<span class=\"ansi-bold ansi-underline ansi-92\">b</span>"),
        ("\x1b[31m\x1b[32mb\x1b[mc", "~~<span class=\"ansi-32\">b</span>~c"),
        ("\x1b[1;31ma\x1b[22mb\x1b[39mc",
         "~<span class=\"ansi-bold ansi-31\">a</span>~<span class=\"ansi-31\">b</span>~c"),
        ("\x1b[38;5;9ma", "<span class=\"ctl\">\\e</span>[38;5;9ma"),
        ("\x1b[41ma", "<span class=\"ctl\">\\e</span>[41ma"),
        ("\x1b[2Ka", "<span class=\"ctl\">\\e</span>[2Ka"),
        ("\x1b[31m<i>", "~<span class=\"ansi-31\">&lt;i&gt;</span>"),
    ],
)  # fmt: skip
def test_sixteen_colours_become_classes_and_other_sequences_stay_text(
    text: str, expected: str
) -> None:
    shown = re.sub(r'<span class="sgr">.*?m</span>', "~", filters.highlight(text, ""))
    assert shown == expected


def test_a_hit_across_a_sequence_is_marked_on_both_sides() -> None:
    shown = filters.highlight("xab\x1b[31mcd", "b\x1b[31mc")
    assert re.findall("<mark>(.*?)</mark>", shown) == [
        "b", '<span class="ctl">\\e</span>[31m', "c",
    ]  # fmt: skip
    assert plain(shown) == "xab\\e[31mcd"


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(["\x1b[31m", "\x1b[0m", "\x1b[1;32m", "\x1b[", "31m", "a", "<", "&", "\r",
                              "\x1b[99m", "\u202e", "aa"]), max_size=14).map("".join),
    st.sampled_from(["", "a", "aa", "1", "[", "\x1b", "m", "<", "31ma"]),
)  # fmt: skip
def test_colours_and_hits_keep_the_text_and_close_what_they_open(text: str, needle: str) -> None:
    shown = str(filters.highlight(text, needle))
    assert plain(shown) == plain(filters.visible(text))
    opened: list[str] = []
    for tag in TAG.findall(shown):
        assert re.fullmatch(r'</?(span|mark)>|<span class="(ctl|sgr|ansi-[a-z0-9 -]+)">', tag)
        if tag.startswith("</"):
            assert opened.pop() == tag[2:-1]
        else:
            opened.append(tag[1:].split(" ")[0].rstrip(">"))
    assert not opened
    marked = "".join(plain(piece) for piece in re.findall("<mark>(.*?)</mark>", shown))
    found = re.findall(re.escape(needle), text, re.IGNORECASE) if needle else []
    assert marked == "".join(plain(filters.visible(one)) for one in found)


def test_a_line_full_of_sequences_is_not_full_of_elements() -> None:
    shown = filters.highlight("\x1b[31mx" * 10_000, "x")
    assert shown.count("sgr") == filters.MAX_SGR
    assert plain(shown).replace("␛", "\\e") == "\\e[31mx" * 10_000


@pytest.mark.parametrize(
    ("unit", "needle"),
    [("a", "a"), ("\x07", "zz"), ("\x1b[31m", "zz"), ("\u202e", "zz"), ("\x1b[31ma", "a")],
)  # fmt: skip
def test_a_line_of_nothing_but_what_is_marked_stays_small(unit: str, needle: str) -> None:
    text = unit * (2_000_000 // len(unit))
    shown = str(filters.highlight(text, needle))
    assert shown.count("<span") + shown.count("<mark") < 10_000
    assert len(shown.encode()) < 4 * len(text.encode()) + 1_000_000
    assert "\x1b" not in shown and "\x07" not in shown and "\u202e" not in shown
