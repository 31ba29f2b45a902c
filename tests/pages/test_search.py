"""`/`: search over entries and transcripts, as a page and as a fragment."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

SHOP = "/home/demo/shop"
BLOG = "/home/demo/blog"
DAY = 86_400_000
# 2026-03-01T00:00:00Z; the tests about dates count from here.
MARCH = 1_772_323_200_000


def titles(answer: Any) -> list[str]:
    """The titles of the hits in their order."""
    return [hit.one("h2").text for hit in answer.doc.all(class_="entry-hit")]


@pytest.fixture
def filled(site: Any) -> Any:
    """Five entries that differ in everything a filter looks at."""
    with site.store():
        site.save("Use WAL mode", "Readers do not block.", kind="decision", scope=SHOP, now=MARCH,
                  tags=["sqlite", "db"], source="build")  # fmt: skip
        site.save("Busy timeout", "Five seconds in WAL mode.", kind="gotcha", scope=SHOP,
                  now=MARCH + DAY, tags=["SQLite"], source="plan")  # fmt: skip
        site.save("Short posts", "A post has no WAL.", kind="preference", scope=BLOG,
                  now=MARCH + 2 * DAY, tags=["style"], source="build")  # fmt: skip
        site.save("Commit messages", "Say why.", kind="preference", now=MARCH + 3 * DAY)
        site.save("Zebra", "Stripes.", kind="fact", now=MARCH + 4 * DAY, source="tester")
    return site


# Page and fragment ------------------------------------------------------------------------------


def test_htmx_gets_the_very_partial_that_the_page_includes(filled: Any) -> None:
    page = filled.get("/?q=wal")
    part = filled.fragment("/?q=wal", "results")
    assert page.is_page
    assert page.status == part.status == 200
    assert not part.is_page
    assert "<html" not in part.html and "<main" not in part.html
    assert part.html.strip() in page.html
    assert len(titles(part)) == 3


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HX-Request": "true"},
        {"HX-Request": "true", "HX-Target": "content"},
        {"HX-Request": "true", "HX-Target": "results", "HX-History-Restore-Request": "true"},
        {"HX-Target": "results"},
    ],
)
def test_whoever_does_not_ask_for_the_results_gets_the_whole_page(
    filled: Any, headers: dict[str, str]
) -> None:
    answer = filled.get("/?q=wal", headers=headers)
    assert answer.is_page
    assert "HX-Replace-Url" not in answer.headers


@pytest.mark.parametrize("target", ["", "results"])
@pytest.mark.parametrize("tab", ["", "transcripts"])
def test_a_cache_is_told_that_page_and_fragment_differ(filled: Any, tab: str, target: str) -> None:
    answer = filled.fragment(f"/?q=wal&tab={tab}", target)
    vary = {name.strip().lower() for name in answer.headers["Vary"].split(",")}
    assert {"hx-request", "hx-target"} <= vary


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("/?q=wal&scope=&kind=&tag=&source=&age=&since=&until=&sort=best", "/?q=wal"),
        ("/?q=wal&sort=newest", "/?q=wal&sort=newest"),
        ("/?q=&scope=&kind=", "/"),
        ("/?q=wal&page=1", "/?q=wal"),
        ("/?q=wal&page=2", "/?q=wal&page=2"),
        ("/?tab=transcripts&q=wal&scope=", "/?tab=transcripts&q=wal"),
        ("/?q=wal&stranger=1&endpoint=x&_external=1", "/?q=wal"),
        ("/?q=%E6%97%A5%26%20x", "/?q=%E6%97%A5%26+x"),
    ],
)
def test_the_address_after_a_fragment_has_no_empty_arguments(
    filled: Any, asked: str, shown: str
) -> None:
    replaced = filled.fragment(asked, "results").headers["HX-Replace-Url"]
    assert urlsplit(replaced).path == "/"
    assert parse_qs(urlsplit(replaced).query) == parse_qs(urlsplit(shown).query)
    assert "=&" not in replaced and not replaced.endswith("=")


@pytest.mark.parametrize("path", ["/?q=wal&", "/?tab=transcripts&q=wal&", "/transcripts?"])
def test_an_argument_cannot_steer_the_links_of_the_page(filled: Any, path: str) -> None:
    for name in ("endpoint", "_scheme", "_external", "_method", "_anchor", "self"):
        answer = filled.get(f"{path}{name}=javascript")
        assert answer.status == 200
        answer.assert_inert()
        links = [a.attrs["href"] for a in answer.doc.all("a")]
        assert not [link for link in links if "javascript" in link or "://" in link]


# Searching --------------------------------------------------------------------------------------


def test_words_find_entries_best_first_and_are_marked(filled: Any) -> None:
    answer = filled.get("/?q=wal+mode")
    assert titles(answer)[0] == "Use WAL mode"
    hit = answer.doc.all(class_="entry-hit")[0]
    assert [mark.text for mark in hit.one("h2").all("mark")] == ["WAL", "mode"]
    assert hit.one("h2").one("a").attrs["href"].startswith("/entries/")
    assert answer.doc.one("input", id="q").attrs["value"] == "wal mode"


def test_entries_with_only_some_of_the_words_are_set_apart(filled: Any) -> None:
    answer = filled.get("/?q=wal+timeout")
    assert titles(answer)[0] == "Busy timeout"
    assert set(titles(answer)[1:]) == {"Use WAL mode", "Short posts"}
    assert answer.doc.one(class_="divider").text == "2 entries with some of the words"


def test_a_snippet_is_escaped_and_then_marked(site: Any) -> None:
    site.save("A <b>bold</b> claim", "Never <script>alert('needle')</script> & \"quotes\".")
    answer = site.get("/?q=needle")
    answer.assert_inert()
    snippet = answer.doc.one(class_="snippet")
    assert snippet.text == "Never <script>alert('needle')</script> & \"quotes\"."
    assert [mark.text for mark in snippet.all("mark")] == ["needle"]
    assert {child.tag for child in snippet.walk()} == {"p", "mark"}
    assert answer.doc.one(class_="entry-hit").one("h2").text == "A <b>bold</b> claim"


def test_a_mark_in_the_text_itself_marks_nothing(site: Any) -> None:
    site.save("Plain")
    site.foreign_entry("marks", title="x\x02y\x03z", body="a\x03\x02\x02needle b\x02c")
    answer = site.get("/?q=needle")
    answer.assert_inert()
    assert titles(answer)
    assert answer.html.count("<mark>") == answer.html.count("</mark>")


LEGAL = (
    "/", "'", ".", "-", ":", "*", '"', '""', "C++", "multi-agent", "BENCH-100821", "GB/s",
    '"open quote', "AND", "OR NOT", "NEAR(", "a NEAR b", "(", "kind:", 'kind:"', "tag:x scope:",
    "title:wal", "^wal", "wal*", "{wal}", "😀", "\0", "a\0b", "用户", "身", "%", "_", "\\", "\x02",
    "<mark>", "x" * 5000, "w " * 900,
)  # fmt: skip


@pytest.mark.parametrize("tab", ["", "&tab=transcripts"])
@pytest.mark.parametrize("sort", ["best", "title"])
def test_every_text_is_a_legal_search(site: Any, tab: str, sort: str) -> None:
    site.save("Use WAL", "用户身份验证")
    site.foreign_transcript("note", "# A note\nUse WAL in GB/s\n")
    for text in LEGAL:
        answer = site.get(f"/?q={quote(text)}{tab}&sort={sort}")
        assert answer.status == 200, (text[:40], answer.text)
        answer.assert_inert()


@pytest.mark.parametrize("text", ["用户", "身份验证", "户身"])
def test_cjk_words_of_any_length_are_found(site: Any, text: str) -> None:
    site.save("Sign-in", "用户身份验证")
    assert titles(site.get(f"/?q={quote(text)}")) == ["Sign-in"]


def test_trashed_and_expired_entries_are_not_found(site: Any) -> None:
    site.save("Kept needle")
    gone = site.save("Gone needle")
    site.post(f"/entries/{gone.id}/forget")
    site.foreign_entry("old", title="Expired needle", expires_at=MARCH)
    assert titles(site.get("/?q=needle")) == ["Kept needle"]
    assert titles(site.get("/")) == ["Kept needle"]


def test_no_match_says_where_it_looked_and_leads_on(filled: Any) -> None:
    answer = filled.get("/?q=xylophone&kind=fact")
    assert titles(answer) == []
    empty = answer.doc.one(class_="empty")
    assert empty.one("h2").text == "No entry matches"
    assert "“xylophone”" in empty.text
    leads = [a.attrs["href"] for a in empty.all("a")]
    assert "/?q=xylophone" in leads and "/trash" in leads
    assert any("tab=transcripts" in lead for lead in leads)


def test_an_empty_store_invites_to_the_first_entry(site: Any) -> None:
    answer = site.get("/")
    assert answer.doc.one(class_="empty").one("h2").text == "Nothing is remembered yet"
    assert "/entries/new" in [a.attrs["href"] for a in answer.main.all("a")]
    assert not site.settings.db.exists()


# Filters, order, paging -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"scope={SHOP}", {"Use WAL mode", "Busy timeout", "Commit messages", "Zebra"}),
        ("scope=shop", {"Use WAL mode", "Busy timeout"}),
        ("scope=global", {"Commit messages", "Zebra"}),
        ("scope=/nowhere", {"Commit messages", "Zebra"}),
        ("kind=decision", {"Use WAL mode"}),
        ("kind=DECISION", {"Use WAL mode"}),
        ("tag=sqlite", {"Use WAL mode", "Busy timeout"}),
        ("tag=sql", set()),
        ("source=build", {"Use WAL mode", "Short posts"}),
        ("source=build&kind=preference", {"Short posts"}),
        ("since=2026-03-04", {"Commit messages", "Zebra"}),
        ("until=2026-03-02", {"Use WAL mode", "Busy timeout"}),
        ("since=2026-03-02&until=2026-03-02", {"Busy timeout"}),
        ("q=wal&kind=preference", {"Short posts"}),
        ("q=wal+kind%3Agotcha", {"Busy timeout"}),
        ("q=wal+tag%3Adb", {"Use WAL mode"}),
        ("q=wal+source%3Abuild", {"Use WAL mode", "Short posts"}),
        ('q="wal mode"', {"Use WAL mode", "Busy timeout"}),
        ("age=1", set()),
    ],
)
def test_filters_narrow_the_list(filled: Any, query: str, expected: set[str]) -> None:
    answer = filled.get(f"/?{query}")
    assert answer.status == 200
    assert set(titles(answer)) == expected
    counts = [
        c.text for c in answer.doc.one("nav", aria_label="What to search").all(class_="count")
    ]
    assert counts == [str(len(expected))]


def test_age_counts_back_from_now(site: Any) -> None:
    site.save("Old", now=1_000_000_000_000)
    site.save("New")
    assert titles(site.get("/?age=7")) == ["New"]
    assert titles(site.get("/?age=")) == ["New", "Old"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("newest", ["Zebra", "Commit messages", "Short posts", "Busy timeout", "Use WAL mode"]),
        ("oldest", ["Use WAL mode", "Busy timeout", "Short posts", "Commit messages", "Zebra"]),
        ("title", ["Busy timeout", "Commit messages", "Short posts", "Use WAL mode", "Zebra"]),
        ("best", ["Zebra", "Commit messages", "Short posts", "Busy timeout", "Use WAL mode"]),
    ],
)
def test_the_list_comes_in_the_order_asked_for(filled: Any, sort: str, expected: list[str]) -> None:
    answer = filled.get(f"/?sort={sort}")
    assert titles(answer) == expected
    order = answer.doc.one("select", name="sort")
    assert [o.attrs["value"] for o in order.all("option") if "selected" in o.attrs] == [sort]


def test_the_filters_offer_what_there_is_with_counts(filled: Any) -> None:
    answer = filled.get("/")
    kinds = [o.text for o in answer.doc.one("select", name="kind").all("option")]
    assert kinds == ["any kind", "preference (2)", "decision (1)", "fact (1)", "gotcha (1)"]
    scopes = [o.attrs["value"] for o in answer.doc.one("select", name="scope").all("option")]
    assert set(scopes) == {"", SHOP, BLOG, "global"}


def test_a_filter_in_the_address_that_no_entry_has_stays_chosen(filled: Any) -> None:
    answer = filled.get("/?kind=poem&scope=/nowhere&tag=x%22y")
    for name, value in (("kind", "poem"), ("scope", "/nowhere"), ("tag", 'x"y')):
        chosen = [
            o.attrs["value"]
            for o in answer.doc.one("select", name=name).all("option")
            if "selected" in o.attrs
        ]
        assert chosen == [value]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("sort=worst", "is no order"),
        ("age=3", "is no age"),
        ("age=-1", "is no age"),
        ("since=yesterday", "is not a date"),
        ("until=2026-02-30", "is not a date"),
        ("since=99999-01-01", "is not a date"),
        ("page=0", "A page is a number"),
        ("page=-1", "A page is a number"),
        ("page=abc", "A page is a number"),
        ("page=1.5", "A page is a number"),
        ("page=%C2%B2", "A page is a number"),
        ("page=1000001", "A page is a number"),
        ("page=00000001" + "9" * 30, "A page is a number"),
        ("page=00000001" + "9" * 5000, "A page is a number"),
        ("scope=" + "a" * 60_000, "longer than any"),
        ("kind=" + "a" * 60_000, "longer than any"),
    ],
)
def test_a_bad_argument_is_refused_with_a_sentence(site: Any, query: str, words: str) -> None:
    for tab in ("entries", "transcripts"):
        answer = site.get(f"/?{query}&tab={tab}")
        assert answer.status == 400
        assert words in answer.doc.one(role="alert").text
        assert "/transcripts" in [a.attrs["href"] for a in answer.main.all("a")]


def test_pages_follow_each_other_without_gap_or_repeat(site: Any) -> None:
    with site.store():
        for number in range(65):
            site.save(f"Needle {number:02}", now=MARCH + number * 1000)
    seen: list[str] = []
    path = "/?q=needle&sort=oldest&kind=fact"
    lengths = []
    while path:
        answer = site.get(path)
        lengths.append(len(titles(answer)))
        seen += titles(answer)
        links = answer.doc.all("a", rel="next")
        path = links[0].attrs["href"] if links else ""
    assert lengths == [30, 30, 5]
    assert seen == [f"Needle {number:02}" for number in range(65)]


def test_ranked_pages_follow_each_other_across_the_tiers(site: Any) -> None:
    with site.store():
        for number in range(12):
            site.save(f"Both alpha beta {number:02}")
            site.save(f"Part alphabet betatron {number:02}")
            site.save(f"One alpha {number:02}")
    seen = []
    for page, size in ((1, 30), (2, 6)):
        answer = site.get(f"/?q=alpha+beta&page={page}")
        assert len(titles(answer)) == size
        seen += titles(answer)
    assert len(set(seen)) == 36
    assert all(title.startswith("Both") for title in seen[:12])
    assert all(title.startswith("Part") for title in seen[12:24])
    assert all(title.startswith("One") for title in seen[24:])
    assert not answer.doc.all("a", rel="next")


def test_a_page_past_the_end_leads_back_to_the_first(filled: Any) -> None:
    answer = filled.get("/?q=wal&page=7")
    assert answer.status == 200
    empty = answer.doc.one(class_="empty")
    assert empty.one("h2").text == "Nothing on page 7"
    assert empty.one("a").attrs["href"] == "/?q=wal"


def test_the_filters_stay_in_the_links_to_other_pages(site: Any) -> None:
    with site.store():
        for number in range(31):
            site.save(f"Needle {number:02}", tags=["a&b"])
    answer = site.get("/?q=needle&tag=a%26b&sort=oldest")
    link = answer.doc.one("a", rel="next").attrs["href"]
    assert parse_qs(urlsplit(link).query) == {
        "q": ["needle"], "tag": ["a&b"], "sort": ["oldest"], "page": ["2"],
    }  # fmt: skip
    back = site.get(link).doc.one("a", rel="prev").attrs["href"]
    assert "page" not in parse_qs(urlsplit(back).query)


# The transcripts tab ----------------------------------------------------------------------------


def hit_links(answer: Any) -> list[str]:
    """Where the hits lead."""
    return [li.one("a").attrs["href"] for li in answer.doc.all("li", class_="is-hit")]


def test_a_hit_in_a_transcript_leads_to_its_line(site: Any) -> None:
    site.export_all()
    answer = site.get("/?tab=transcripts&q=I+will+not+repeat")
    (link,) = hit_links(answer)
    assert re.fullmatch(r"/transcripts/ses_\w+/(\d+)\?q=I\+will\+not\+repeat#L\1", link)
    page = site.get(link)
    (row,) = page.doc.all(class_="selected")
    assert row.one("code").text.startswith("I will not repeat or store credentials.")
    assert [mark.text for mark in row.all("mark")] == ["I will not repeat"]
    assert page.doc.one("form", class_="find").one(class_="count").text == "1 of 1"


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true", "HX-Target": "results"}])
def test_hits_come_with_context_and_counts(site: Any, headers: dict[str, str]) -> None:
    site.foreign_transcript("note", "# A note\none\ntwo Needle\nthree\nfour\nfive needle\n")
    answer = site.get("/?tab=transcripts&q=needle", headers=headers)
    lines = [(li.one(class_="n").text, li.attrs["class"]) for li in answer.doc.all("li")
             if "gap" not in li.attrs["class"]]  # fmt: skip
    assert lines == [("2", "context"), ("3", "is-hit"), ("4", "context"), ("5", "context"),
                     ("6", "is-hit")]  # fmt: skip
    assert (
        answer.doc.one("nav", class_="tabs").one(class_="count").text == "2 lines in 1 transcript"
    )
    assert [mark.text for mark in answer.doc.all("mark")] == ["Needle", "needle"]


def test_quotes_take_the_text_as_it_is_and_the_line_page_finds_it_again(site: Any) -> None:
    site.foreign_transcript("note", "# A note\nred green\ngreen red\n")
    answer = site.get("/?tab=transcripts&q=%22red+green%22")
    (link,) = hit_links(answer)
    page = site.get(link)
    assert page.doc.one("form", class_="find").one(class_="count").text == "1 of 1"
    assert [mark.text for mark in page.doc.all("mark")] == ["red green"]


def test_lines_with_every_word_are_shown_when_none_holds_the_text(site: Any) -> None:
    site.foreign_transcript("note", "# A note\nred and green\nred only\n")
    answer = site.get("/?tab=transcripts&q=green+red")
    assert "No line holds exactly “green red”" in answer.text
    (link,) = hit_links(answer)
    page = site.get(link)
    assert [row.attrs["id"] for row in page.doc.all(class_="selected")] == ["L2"]
    assert "none" not in page.doc.one("form", class_="find").text


def test_the_project_narrows_the_hits_in_transcripts(site: Any) -> None:
    site.foreign_transcript("one", "# One\nscope: /home/demo/blog\nneedle\n", "a")
    site.foreign_transcript("two", "# Two\nscope: /home/demo/shop\nneedle\n", "b")
    answer = site.get(f"/?tab=transcripts&q=needle&scope={BLOG}")
    assert [s.one("h2").text for s in answer.doc.all(class_="file-hit")] == ["One"]
    options = [o.attrs["value"] for o in answer.doc.one("select", name="scope").all("option")]
    assert options == ["", BLOG, SHOP]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/?tab=transcripts", "Search 15 transcripts"),
        ("/?tab=transcripts&q=+", "Search 15 transcripts"),
        ("/?tab=transcripts&q=xylophone", "No line matches"),
    ],
)
def test_without_hits_the_transcripts_tab_says_what_it_looked_in(
    site: Any, path: str, words: str
) -> None:
    site.export_all()
    assert site.get(path).doc.one(class_="empty").one("h2").text == words


def test_without_transcripts_the_tab_leads_to_the_export(site: Any) -> None:
    for path in ("/?tab=transcripts", "/?tab=transcripts&q=needle"):
        answer = site.get(path)
        assert answer.status == 200
        assert any(
            urlsplit(a.attrs["href"]).path == "/transcripts"
            for a in answer.doc.one(class_="empty").all("a")
        )


def test_a_line_end_in_the_text_is_refused_with_a_sentence(site: Any) -> None:
    site.foreign_transcript("note", "# A note\n")
    answer = site.get("/?tab=transcripts&q=a%0Ab")
    assert answer.status == 400
    assert "one line at a time" in answer.text


def test_the_tabs_keep_the_words(filled: Any) -> None:
    answer = filled.get("/?q=wal&page=1")
    entries_link, transcripts_link = answer.doc.one("nav", class_="tabs").all("a")
    assert parse_qs(urlsplit(transcripts_link.attrs["href"]).query) == {
        "q": ["wal"], "tab": ["transcripts"],
    }  # fmt: skip
    assert entries_link.attrs["href"] == "/?q=wal"
    assert entries_link.attrs["aria-current"] == "page"
