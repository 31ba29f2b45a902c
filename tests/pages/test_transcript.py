"""`/transcripts/<id>/…`: a window of numbered lines, links to lines, find, export."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from webapp.lines import fingerprint, line_hash

SHOP = "/home/demo/shop"
LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
HOSTILE = "ses_dd3fa60a9ffeTXS1icqe58uEPT"
EMPTY = "ses_dd3fa4afcffekVr5jSKEyzYeLu"
RAW_KEYS = (
    "sk-" + "FAKE0fixture1" * 3,
    "ghp_" + "FakeFixture0" * 3,
    "xoxb-" + "1234567890-1234567890-abcdefFAKE",
    "AKIA" + "FAKEFIXTURE00000",
)
PEM = ["-----BEGIN " + "RSA PRIVATE" + " KEY-----",
       *("MII" + "FAKE0fixture1" * 4 + f"+/Line{number:02}ab" for number in range(20)),
       "-----END " + "RSA PRIVATE" + " KEY-----"]  # fmt: skip


def rows(answer: Any) -> dict[int, str]:
    """Line numbers and texts of the window."""
    return {int(row.attrs["id"][1:]): row.one("code").raw for row in answer.doc.all(class_="row")}


def selected(answer: Any) -> list[int]:
    """The numbers of the marked lines."""
    return [int(row.attrs["id"][1:]) for row in answer.doc.all(class_="selected")]


def copied(answer: Any, first: int, last: int) -> str:
    """The hash that static/app.js puts into a copied link: a fold of the rows' data-h."""
    value = 0
    for row in answer.doc.all(class_="row"):
        if first <= int(row.attrs["id"][1:]) <= last:
            value = (value * 31 + int(row.attrs["data-h"])) & 0xFFFFFFFF
    return f"{value:08x}"


def file_of(site: Any, session_id: str) -> list[str]:
    """The lines of a transcript on disk, split at "\n" and nowhere else."""
    (path,) = site.settings.transcripts_dir.glob(f"*/{session_id}.md")
    return path.read_bytes().decode().split("\n")[:-1]


def note(site: Any, text: str, name: str = "ses_note") -> None:
    site.foreign_transcript(name, text)


# The window -------------------------------------------------------------------------------------


def test_a_session_is_exported_when_it_is_opened(site: Any) -> None:
    answer = site.get(f"/transcripts/{LONG}")
    assert answer.status == 200
    assert answer.main.one("h1").text.startswith("Migrate the price lists")
    lines = file_of(site, LONG)
    assert rows(answer) == dict(enumerate(lines[:200], 1))
    assert answer.doc.one(class_="at").text == f"Lines 1-200 of {len(lines):,}"


def test_next_and_previous_show_every_line_exactly_once(site: Any) -> None:
    path = f"/transcripts/{LONG}"
    seen: dict[int, str] = {}
    while path:
        answer = site.get(path)
        assert not set(seen) & set(rows(answer))
        seen |= rows(answer)
        links = answer.doc.all("a", rel="next")
        path = links[0].attrs["href"] if links else ""
    assert seen == dict(enumerate(file_of(site, LONG), 1))
    back = site.get(answer.doc.one("a", rel="prev").attrs["href"])
    assert max(rows(back)) == min(rows(answer)) - 1


def test_the_end_shows_the_last_lines(site: Any) -> None:
    answer = site.get(f"/transcripts/{LONG}?at=end")
    total = len(file_of(site, LONG))
    assert list(rows(answer)) == list(range(total - 199, total + 1))
    assert not answer.doc.all("a", rel="next")


@pytest.mark.parametrize(
    ("asked", "marked"),
    [("120", range(120, 121)), ("120-140", range(120, 141)), ("L120-L140", range(120, 141)),
     ("l7", range(7, 8)), ("1-2000", range(1, 1173)), ("1172", range(1172, 1173)),
     ("0120", range(120, 121)), ("1170-1180", range(1170, 1173))],
)  # fmt: skip
def test_a_line_link_shows_and_marks_its_lines(site: Any, asked: str, marked: range) -> None:
    answer = site.get(f"/transcripts/{LONG}/{asked}")
    assert answer.status == 200
    assert selected(answer) == list(marked)
    shown = rows(answer)
    assert list(shown) == list(range(min(shown), max(shown) + 1))
    assert min(shown) == max(1, marked[0] - 8)
    lines = file_of(site, LONG)
    assert all(text == lines[n - 1] for n, text in shown.items())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("0", "no line 0"),
        ("0-5", "no line 0"),
        ("9-3", "Did you mean 3-9?"),
        ("abc", "is not a line range"),
        ("1-99999999999", "Try 1-2000"),
        ("1-2001", "up to 2,000 lines"),
        ("9999999999999", "further than any transcript"),
        ("9" * 30, "further than any transcript"),
        ("9" * 31, "is not a line range"),
        ("9" * 6000, "is not a line range"),
        ("-5", "is not a line range"),
        ("5-", "is not a line range"),
        ("1-2-3", "is not a line range"),
        ("1,5", "is not a line range"),
        ("1.5", "is not a line range"),
        ("٣", "is not a line range"),
        ("²", "is not a line range"),
        ("%00", "is not a line range"),
        ("5%00", "is not a line range"),
        ("%2e%2e", "is not a line range"),
        ("<script>", "is not a line range"),
    ],
)
def test_a_bad_range_is_refused_with_a_sentence(site: Any, asked: str, words: str) -> None:
    for path in (f"/transcripts/{LONG}/{asked}",
                 f"/transcripts/{LONG}/go?line={asked}"):  # fmt: skip
        answer = site.get(path)
        assert answer.status == 400
        assert words in answer.doc.one(role="alert").text
        assert "/transcripts" in [a.attrs["href"] for a in answer.main.all("a")]
        answer.assert_inert()


@pytest.mark.parametrize(
    "asked", ["1173", "5000-5010", "999999999999", "999999999000-999999999999"]
)
def test_past_the_end_the_page_says_how_long_the_transcript_is(site: Any, asked: str) -> None:
    answer = site.get(f"/transcripts/{LONG}/{asked}")
    assert answer.status == 200
    assert rows(answer) == {}
    empty = answer.doc.one(class_="empty")
    assert "is past the end" in empty.text and "1,172 lines" in empty.text
    for link in empty.all("a"):
        assert rows(site.get(link.attrs["href"]))
    assert not answer.doc.all("a", rel="next") and not answer.doc.all("a", rel="prev")


@pytest.mark.parametrize(("asked", "first"), [("0", 1), ("1", 1), ("900", 900), ("5000", 1172)])
def test_a_window_from_a_line_stays_inside_the_transcript(
    site: Any, asked: str, first: int
) -> None:
    answer = site.get(f"/transcripts/{LONG}/from/{asked}")
    assert answer.status == 200
    assert min(rows(answer)) == first
    assert selected(answer) == []


@pytest.mark.parametrize("asked", ["-1", "x", "9" * 5000, "1.5", "²", "%00"])
def test_a_window_from_no_line_is_a_404(site: Any, asked: str) -> None:
    assert site.get(f"/transcripts/{LONG}/from/{asked}").status == 404


def test_the_jump_box_understands_what_ripgrep_prints(site: Any) -> None:
    page = site.get(f"/transcripts/{LONG}")
    form = page.form(f"/transcripts/{LONG}/go")
    for text, place in (
        (f"/a b/shop-1/{KEYS}.md:10:Use this key: x", f"/transcripts/{KEYS}/10#L10"),
        (f"{KEYS}.md-9-## user", f"/transcripts/{KEYS}/9#L9"),
        (f"{KEYS}.md:16", f"/transcripts/{KEYS}/16#L16"),
    ):
        assert site.submit(page, form, line=text).location == place
    for text in (f"{KEYS}.md", f"{KEYS}.txt:1", f"{KEYS}.md:x", "/etc/passwd:1", "../x.md:y"):
        assert site.submit(page, form, line=text).status == 400
    gone = site.submit(page, form, line="/x/../../evil.md:1")
    assert site.follow(gone).status == 404


@pytest.mark.parametrize("asked", ["120", "120-140", " 120 ", "L5"])
def test_the_jump_box_leads_to_the_line(site: Any, asked: str) -> None:
    page = site.get(f"/transcripts/{LONG}")
    gone = site.submit(page, page.form(f"/transcripts/{LONG}/go"), line=asked)
    assert re.fullmatch(rf"/transcripts/{LONG}/(\d+)(-\d+)?#L\1", gone.location)
    assert selected(site.follow(gone))


def test_lines_end_at_a_line_feed_and_nowhere_else(site: Any) -> None:
    odd = "a\rb\x0bc\x0cd\x1ce\x1df\x1eg\x85h\u2028i\u2029j"
    note(site, f"# Odd\n{odd}\nlast")
    answer = site.get("/transcripts/ses_note")
    assert len(answer.doc.all(class_="row")) == 3
    assert answer.doc.one(id="L3").one("code").raw == "last"
    assert copied(answer, 2, 2) == fingerprint([line_hash(odd)])


def test_what_cannot_be_seen_is_made_visible(site: Any) -> None:
    note(site, "# Odd\na\x1b[31mred\x00\u202ereversed\u200bzero\n")
    code = site.get("/transcripts/ses_note").doc.one(id="L2").one("code")
    assert not re.search("[\x00-\x1f\u202e\u200b]", code.raw)
    assert "[31mred" in code.text


def test_bytes_that_are_no_text_are_shown_as_such(site: Any) -> None:
    path = site.foreign_transcript("ses_note", "# Odd\n")
    path.write_bytes(b"# Odd \xff\n\xf0\x9f\xff x\n\x00\n")
    answer = site.get("/transcripts/ses_note")
    assert answer.status == 200
    assert "\ufffd" in rows(answer)[2]
    assert site.get("/transcripts").status == 200


def test_a_very_long_line_is_cut_and_can_be_shown_whole(site: Any) -> None:
    line = "start " + "x" * 1_500_000 + " end"
    note(site, f"# Long\n{line}\nafter\n")
    answer = site.get("/transcripts/ses_note")
    assert len(answer.html) < 60_000
    cut = answer.doc.one(id="L2").one("a", class_="cut")
    assert "1.5 MB more" in cut.text
    whole = site.get(cut.attrs["href"].split("#")[0])
    assert whole.doc.one(id="L2").one("code").raw == line
    assert not whole.doc.all("a", class_="cut")


@pytest.mark.parametrize("full", ["", "x", "²", "-1", "0", "9" * 5000, "99"])
def test_an_odd_line_to_show_whole_changes_nothing(site: Any, full: str) -> None:
    note(site, "# Long\n" + "x" * 9000 + "\n")
    answer = site.get(f"/transcripts/ses_note/2?full={full}")
    assert answer.status == 200
    assert answer.doc.one(id="L2").all("a", class_="cut")


def test_an_empty_transcript_of_another_program_is_no_server_error(site: Any) -> None:
    note(site, "")
    note(site, "\n", "ses_line")
    assert site.get("/transcripts/ses_note").status < 500
    assert site.get("/transcripts/ses_line/1").status == 200
    assert site.get("/transcripts").status == 200


def test_the_outline_leads_to_what_was_asked_and_where_context_was_compacted(site: Any) -> None:
    answer = site.get(f"/transcripts/{LONG}/600")
    items = answer.doc.one(class_="outline").all("li")
    assert {item.attrs["class"] for item in items} >= {"k-user", "k-tool", "k-compaction"}
    assert (
        len([a for a in answer.doc.one(class_="outline").all("a") if "aria-current" in a.attrs])
        == 1
    )
    lines = file_of(site, LONG)
    for item in items[:9]:
        link = item.all("a")[0].attrs["href"]
        number = int(re.fullmatch(rf"/transcripts/{LONG}/(\d+)#L\1", link)[1])  # type: ignore[index]
        start = "### tool" if item.attrs["class"] == "k-tool" else "## "
        assert lines[number - 1].startswith(start)


@pytest.mark.parametrize(
    ("text", "lines"),
    [("1,2", None), ("1,000", "1000"), ("44 - 50", "44-50"), ("44–50", "44-50"), ("", ""),
     (f"transcripts/x/{LONG}.md:1500-1510:text", "1500-1510"), (f"{LONG}.md:7:text", "7")],
)  # fmt: skip
def test_the_jump_box_understands_lines_as_they_are_printed(
    site: Any, text: str, lines: str | None
) -> None:
    answer = site.get("/transcripts/" + LONG + "/go?" + urlencode({"line": text}))
    if lines is None:
        assert answer.status == 400
        return
    place = f"/{lines}#L{lines.split('-')[0]}" if lines else ""
    assert answer.location == f"/transcripts/{LONG}{place}"


# The copied link --------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", [LONG, HOSTILE, KEYS])
def test_a_copied_link_carries_the_hash_of_the_verbatim_text(site: Any, session_id: str) -> None:
    site.get(f"/transcripts/{session_id}")
    lines = file_of(site, session_id)
    chance = random.Random(7)
    for _ in range(12):
        first = chance.randint(1, len(lines))
        last = min(len(lines), first + chance.choice([0, 0, 1, 5, 40]))
        page = site.get(f"/transcripts/{session_id}/{first}-{last}")
        value = copied(page, first, last)
        assert value == fingerprint(line_hash(text) for text in lines[first - 1 : last])
        opened = site.get(f"/transcripts/{session_id}/{first}-{last}?h={value}")
        assert not opened.doc.all(class_="banner"), (first, last)


@pytest.mark.parametrize("value", ["00000000", "x", "DEADBEEF", "<script>", "%00", "0" * 5000])
def test_a_link_copied_from_other_text_says_so_and_still_shows_the_lines(
    site: Any, value: str
) -> None:
    answer = site.get(f"/transcripts/{LONG}/120-140?h={quote(value)}")
    assert answer.status == 200
    assert "copied from other text" in answer.doc.one(role="alert").text
    assert selected(answer) == list(range(120, 141))
    answer.assert_inert()


def test_without_lines_or_without_hash_there_is_nothing_to_compare(site: Any) -> None:
    for path in ("", "?h=00000000", "/5", "/5?h="):
        assert not site.get(f"/transcripts/{LONG}{path}").doc.all(role="alert")


def test_a_link_notices_that_another_program_rewrote_its_file(site: Any) -> None:
    note(site, "# Note\nmine\nthe line\n")
    link = f"/transcripts/ses_note/3?h={copied(site.get('/transcripts/ses_note/3'), 3, 3)}"
    assert not site.get(link).doc.all(role="alert")
    note(site, "# Note\nmine\nmore\nthe line\n")
    alert = site.get(link).doc.one(role="alert")
    (there,) = [a.attrs["href"] for a in alert.all("a")]
    assert there == "/transcripts/ses_note/4#L4"
    assert selected(site.get("/transcripts/ses_note/4")) == [4]


def test_a_link_to_a_past_line_that_was_cut_off_notices_it(site: Any) -> None:
    note(site, "# Note\none\ntwo\n")
    value = copied(site.get("/transcripts/ses_note/2-3"), 2, 3)
    note(site, "# Note\none\n")
    assert site.get(f"/transcripts/ses_note/2-3?h={value}").doc.all(role="alert")
    assert site.get(f"/transcripts/ses_note/3?h={value}").status == 200


def test_the_hash_of_a_long_line_is_one_whether_it_is_shown_whole_or_not(site: Any) -> None:
    note(site, "# Long\n" + "xyz " * 5000 + "\n")
    cut, whole = site.get("/transcripts/ses_note/2"), site.get("/transcripts/ses_note/2?full=2")
    assert copied(cut, 2, 2) == copied(whole, 2, 2)
    for full in ("", "&full=2"):
        answer = site.get(f"/transcripts/ses_note/2?h={copied(cut, 2, 2)}{full}")
        assert not answer.doc.all(role="alert")


# Credentials ------------------------------------------------------------------------------------


def test_keys_are_masked_on_every_page_and_stay_verbatim_in_the_file(site: Any) -> None:
    paths = [f"/transcripts/{KEYS}", f"/transcripts/{KEYS}/10", f"/transcripts/{KEYS}/10?full=10",
             f"/transcripts/{KEYS}?q=token", f"/transcripts/{KEYS}/from/9", "/transcripts",
             "/?tab=transcripts&q=Use+this+key", "/?tab=transcripts&q=rotate",
             "/?tab=transcripts&q=ghp_", "/?tab=transcripts&q=token+key+AKIA",
             "/?tab=transcripts&q=FAKE0fixture", "/cleanup?max_sessions=1&keep_recent=0"]  # fmt: skip
    for path in paths:
        answer = site.get(path)
        assert answer.status == 200
        for key in RAW_KEYS:
            assert key not in answer.html, path
            assert key[-12:] not in answer.html, path
    assert "ghp_" in rows(site.get(paths[0]))[10]
    assert all(key in file_of(site, KEYS)[9] for key in RAW_KEYS)


def test_a_private_key_is_masked_wherever_the_window_begins(site: Any) -> None:
    note(site, "\n".join(["# Key", *PEM, "after", ""]))
    total = len(PEM) + 2
    for first in range(1, total + 1):
        for path in (f"/transcripts/ses_note/from/{first}", f"/transcripts/ses_note/{first}"):
            answer = site.get(path)
            assert answer.status == 200
            for line in PEM[1:-1]:
                assert line not in answer.html, path
    assert rows(site.get("/transcripts/ses_note"))[total] == "after"


def test_a_private_key_is_masked_in_the_hits_of_a_search(site: Any) -> None:
    note(site, "\n".join(["# Key", "before", *PEM, "after", ""]))
    for text in ("Line07", "MII", "BEGIN", "before", "after", "PRIVATE"):
        answer = site.get(f"/?tab=transcripts&q={text}")
        assert answer.status == 200
        for line in PEM[1:-1]:
            assert line not in answer.html, text


def test_a_key_at_the_place_where_a_long_line_is_cut_is_not_shown(site: Any) -> None:
    key = RAW_KEYS[1]
    for lead in range(3950, 4001, 5):
        note(site, "# Long\n" + "x " * (lead // 2) + key + " tail " * 100 + "\n", f"ses_{lead}")
        page = site.get(f"/transcripts/ses_{lead}")
        assert key[:20] not in page.html, lead


def test_masking_can_be_switched_off_by_its_owner(
    site: Any, make_site: Any, tmp_path: Path
) -> None:
    from dataclasses import replace

    plain = make_site(replace(site.settings, mask=False))
    assert all(key in plain.get(f"/transcripts/{KEYS}").html for key in RAW_KEYS)


# Reveal -----------------------------------------------------------------------------------------


def test_one_masked_line_can_be_revealed_and_leaves_a_receipt(site: Any) -> None:
    note(site, "# Keys\nfirst " + RAW_KEYS[1] + "\nplain\nsecond " + RAW_KEYS[3] + "\n")
    page = site.get("/transcripts/ses_note")
    shown = site.submit(page, page.form("/transcripts/ses_note/2/reveal"), "reveal")
    assert shown.status == 200
    assert RAW_KEYS[1] in rows(shown)[2] and RAW_KEYS[3] not in shown.html
    assert selected(shown) == [2]
    assert not shown.has_form("/transcripts/ses_note/2/reveal")
    assert shown.has_form("/transcripts/ses_note/4/reveal")
    assert RAW_KEYS[1] not in site.get("/transcripts/ses_note/2").html
    assert site.rows("SELECT action, actor, summary FROM receipts") == [
        ("reveal", "tester", "Revealed line 2 of “Keys”")
    ]
    receipt = site.get("/receipts/1")
    assert receipt.status == 200 and receipt.facts["line"] == "2"
    assert not any(key in receipt.html for key in RAW_KEYS)


def test_only_masked_lines_offer_to_be_revealed(site: Any) -> None:
    page = site.get(f"/transcripts/{KEYS}")
    forms = [f.attrs["action"] for f in page.doc.all("form", method="post")]
    assert forms == [f"/transcripts/{KEYS}/10/reveal"]


@pytest.mark.parametrize(
    ("line", "status"),
    [("0", 400), ("17", 404), ("999999", 404), ("9" * 30, 400), ("9" * 5000, 404), ("-1", 404),
     ("x", 404), ("10-11", 404)],
)  # fmt: skip
def test_a_line_that_is_not_there_is_not_revealed(site: Any, line: str, status: int) -> None:
    site.get(f"/transcripts/{KEYS}")
    assert site.post(f"/transcripts/{KEYS}/{line}/reveal").status == status
    assert site.rows("SELECT count(*) FROM receipts") == [(0,)]


def test_a_line_of_an_unknown_or_removed_transcript_is_not_revealed(site: Any) -> None:
    assert site.post("/transcripts/ses_nosuch/1/reveal").status == 404
    assert not site.settings.db.exists()
    site.get(f"/transcripts/{KEYS}")
    remove(site, KEYS)
    assert site.post(f"/transcripts/{KEYS}/10/reveal").status == 410


# Download ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "markdown", "html", "json"])
def test_a_transcript_can_be_taken_along_masked_and_inert(site: Any, form: str) -> None:
    page = site.get(f"/transcripts/{KEYS}")
    (link,) = [a.attrs["href"] for a in page.doc.all("a") if a.text == form]
    answer = site.get(link)
    assert answer.status == 200
    assert answer.headers["Content-Disposition"].startswith(f"attachment; filename={KEYS}.")
    assert not any(key in answer.html for key in RAW_KEYS)
    assert "I will not repeat or store credentials." in answer.html
    hostile = site.get(f"/transcripts/{HOSTILE}/download?as={form}")
    assert hostile.status == 200
    assert "Content-Security-Policy" in hostile.headers
    if form == "html":
        tags = {node.tag for node in hostile.doc.walk()} - {"#document"}
        assert tags <= {"html", "meta", "title", "style", "h1", "p", "div", "a", "code"}
        assert "<script>alert(document.cookie)</script>" in hostile.text
    elif form == "json":
        told = json.loads(hostile.body)
        assert [row["line"] for row in told["lines"]] == list(range(1, told["line_count"] + 1))
    else:
        assert hostile.body.decode().split("\n")[:-1] == file_of(site, HOSTILE)


@pytest.mark.parametrize("form", ["", "pdf", "TEXT", "<script>", "x" * 5000])
def test_an_unknown_format_is_refused_with_a_sentence(site: Any, form: str) -> None:
    answer = site.get(f"/transcripts/{KEYS}/download?as={form}")
    assert answer.status == 400
    assert "is no format" in answer.doc.one(role="alert").text
    answer.assert_inert()


@pytest.mark.parametrize(
    "name", ["notes on x", "日本語", "a'b\"c", "a;b=c", "\u202egpj", "line\nend"]
)
def test_a_download_of_any_file_name_is_a_legal_answer(site: Any, name: str) -> None:
    note(site, "# Odd name\n", name)
    answer = site.get(f"/transcripts/{quote(name)}/download")
    assert answer.status == 200
    assert "\n" not in answer.headers["Content-Disposition"]
    assert answer.body == b"# Odd name\n"


def test_a_download_of_what_is_not_there_is_a_page(site: Any) -> None:
    assert site.get("/transcripts/ses_nosuch/download").status == 404
    site.get(f"/transcripts/{KEYS}")
    remove(site, KEYS)
    assert site.get(f"/transcripts/{KEYS}/download").status == 410


# Find -------------------------------------------------------------------------------------------


@pytest.fixture
def hits(site: Any) -> Any:
    """A note whose lines 3, 5 and 9 hold the needle."""
    lines = ["# Note", *("filler" for _ in range(8))]
    for number in (3, 5, 9):
        lines[number - 1] = f"a Needle on line {number}, needle"
    note(site, "\n".join(lines) + "\n")
    return site


@pytest.mark.parametrize(
    ("start", "way", "line"),
    [("0", "next", 3), ("3", "next", 5), ("4", "next", 5), ("9", "next", 3), ("99", "next", 3),
     ("0", "previous", 9), ("3", "previous", 9), ("9", "previous", 5), ("4", "previous", 3),
     ("", "next", 3), ("x", "next", 3), ("²", "next", 3), ("9" * 5000, "next", 3),
     ("0", "sideways", 3)],
)  # fmt: skip
def test_find_goes_to_the_next_hit_and_round_at_the_ends(
    hits: Any, start: str, way: str, line: int
) -> None:
    answer = hits.get(f"/transcripts/ses_note/find?q=needle&from={start}&dir={way}")
    assert answer.location == f"/transcripts/ses_note/{line}?q=needle#L{line}"


def test_the_form_alone_walks_through_the_hits(hits: Any) -> None:
    page = hits.get("/transcripts/ses_note")
    seen, counts = [], []
    for _ in range(4):
        form = page.form("/transcripts/ses_note/find")
        page = hits.follow(hits.submit(page, form, "↓", q="NEEDLE"))
        seen += selected(page)
        counts.append(page.form("/transcripts/ses_note/find").one(class_="count").text)
    assert seen == [3, 5, 9, 3]
    assert counts == ["1 of 3", "2 of 3", "3 of 3", "1 of 3"]
    assert [mark.text for mark in page.doc.one(id="L3").all("mark")] == ["Needle", "needle"]
    form = page.form("/transcripts/ses_note/find")
    assert selected(hits.follow(hits.submit(page, form, "↑"))) == [9]


@pytest.mark.parametrize(
    "text",
    ["xylophone", "", "  ", "\n", "a\nb", "\0", '"', '""', "(", "[a-", "\\", "*", "<script>", "--",
     "-e", "-f/etc/passwd", "日本", "%s"],
)  # fmt: skip
def test_any_text_can_be_looked_for(hits: Any, text: str) -> None:
    answer = hits.get(f"/transcripts/ses_note/find?q={quote(text)}&from=4")
    page = hits.follow(answer)
    assert page.status == 200
    page.assert_inert()
    assert selected(page) == []
    if text.strip():
        assert page.form("/transcripts/ses_note/find").one(class_="count").text == "none"
    direct = hits.get(f"/transcripts/ses_note/2?q={quote(text)}")
    assert direct.status == 200


def test_a_text_that_is_far_too_long_is_refused_with_a_sentence(hits: Any) -> None:
    for path in ("find?q=", "2?q="):
        answer = hits.get(f"/transcripts/ses_note/{path}{'x' * 200_000}")
        assert answer.status == 400
        assert answer.doc.one(role="alert").one("h1").text == "That cannot be used"


def test_the_words_stay_in_the_links_to_other_windows(site: Any) -> None:
    answer = site.get(f"/transcripts/{LONG}/from/300?q=price+list")
    for rel in ("next", "prev"):
        assert answer.doc.one("a", rel=rel).attrs["href"].endswith("?q=price+list")


# Not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "/1", "/1-5", "/from/1", "/find?q=x"])
def test_an_unknown_session_is_a_404_with_a_way_on(site: Any, path: str) -> None:
    answer = site.get(f"/transcripts/ses_nosuch{path}")
    assert answer.status == 404
    assert "Neither a transcript nor OpenCode knows" in answer.doc.one(role="alert").text
    assert "/transcripts" in [a.attrs["href"] for a in answer.main.all("a")]


@pytest.mark.parametrize(
    "session_id",
    ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e", "%00", "ses_x%00.md", "a" * 201,
     "a" * 8000, "%0a", "ses%0aid", "%20", "~", ".hidden", "-rf", "ses/../..", "%ff", "%F0%9F%98%80",
     "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "%5C%5Chost", "C:%5C", "ses_x%E2%80%AE", "{{7*7}}"],
)  # fmt: skip
def test_an_odd_session_id_is_refused_clearly(site: Any, session_id: str) -> None:
    for path in ("", "/1", "/from/1", "/find?q=x", "/go?line=1"):
        answer = site.get(f"/transcripts/{session_id}{path}")
        if answer.status in (302, 303):
            answer = site.follow(answer)
        assert 400 <= answer.status < 500, answer.text
        answer.assert_inert()
        assert answer.doc.one(role="alert").text
        assert "49" not in answer.doc.one(role="alert").text
    written = site.post(f"/transcripts/{session_id}/export")
    assert 400 <= written.status < 500
    assert not site.settings.transcripts_dir.exists()


def test_a_session_of_the_database_with_an_odd_id_writes_no_file_outside(
    site: Any, newest_db: Path
) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("UPDATE session SET id = '../../evil' WHERE id = ?", (EMPTY,))
    assert site.get("/transcripts").status == 200
    job = site.export_all()
    assert "is not the id of a session" in job.text
    assert not list(site.settings.data_dir.parent.rglob("evil*"))
    site.get("/transcripts").assert_inert()


# Export again -----------------------------------------------------------------------------------


def remove(site: Any, session_id: str) -> None:
    """Removes a transcript through the cleanup page."""
    page = site.get(f"/cleanup?session={session_id}&keep_recent=0")
    site.finished(site.submit(page, page.form("/cleanup", method="post"), "Remove 1 transcript"))


@pytest.mark.parametrize("path", ["", "/5", "/1-20?h=00000000", "/from/3", "/find?q=key"])
def test_links_into_a_removed_transcript_say_when_why_and_offer_it_again(
    site: Any, path: str
) -> None:
    site.get(f"/transcripts/{KEYS}")
    remove(site, KEYS)
    shutil.rmtree(site.settings.data_dir / "trash")
    answer = site.get(f"/transcripts/{KEYS}{path}")
    assert answer.status == 410
    assert answer.main.one("h1").text == "A key was pasted by mistake"
    assert "tester removed it" in answer.text and "because: named" in answer.text
    assert not list(site.settings.transcripts_dir.glob("*/*.md"))
    (link,) = [a for a in answer.main.all("a") if a.text == "The receipt of that cleanup"]
    assert KEYS in str([a.attrs for a in site.get(link.attrs["href"]).main.all("a")])

    form = answer.form(f"/transcripts/{KEYS}/export")
    again = site.submit(answer, form, "Export it again")
    assert again.location == f"/transcripts/{KEYS}{path}"
    shown = site.follow(again)
    assert shown.status in (200, 302)
    assert site.get(f"/transcripts/{KEYS}").status == 200


def test_a_removed_transcript_is_put_back_as_it_was_while_it_is_kept(site: Any) -> None:
    site.get(f"/transcripts/{KEYS}")
    (path,) = site.settings.transcripts_dir.glob("*/*.md")
    text = path.read_bytes()
    remove(site, KEYS)
    answer = site.get(f"/transcripts/{KEYS}/5")
    assert "kept for 7 days" in answer.text
    form = answer.form(f"/transcripts/{KEYS}/undo")
    assert site.submit(answer, form, "Put it back").location == f"/transcripts/{KEYS}/5"
    assert path.read_bytes() == text
    assert site.post(f"/transcripts/{KEYS}/undo").status == 404


def test_a_removed_transcript_of_a_session_that_is_gone_cannot_come_back(
    site: Any, newest_db: Path
) -> None:
    site.get(f"/transcripts/{KEYS}")
    remove(site, KEYS)
    shutil.rmtree(site.settings.data_dir / "trash")
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("DELETE FROM session WHERE id = ?", (KEYS,))
    answer = site.get(f"/transcripts/{KEYS}")
    assert answer.status == 410
    assert "cannot be exported again" in answer.text
    assert not answer.has_form(f"/transcripts/{KEYS}/export")
    assert site.post(f"/transcripts/{KEYS}/export").status == 404


def test_a_transcript_stays_readable_when_opencode_has_lost_the_session(
    site: Any, newest_db: Path
) -> None:
    before = rows(site.get(f"/transcripts/{KEYS}"))
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("DELETE FROM session WHERE id = ?", (KEYS,))
    after = site.get(f"/transcripts/{KEYS}")
    assert after.status == 200
    assert rows(after) == before


def test_an_export_by_hand_says_what_came(site: Any) -> None:
    done = site.post(f"/transcripts/{KEYS}/export")
    assert done.location == f"/transcripts/{KEYS}"
    assert site.follow(done).toasts == ["Exported 16 lines."]
    again = site.post(f"/transcripts/{KEYS}/export")
    assert site.follow(again).toasts == ["Nothing was new."]


def test_an_unknown_session_is_not_exported(site: Any) -> None:
    answer = site.post("/transcripts/ses_nosuch/export")
    assert answer.status == 404
    assert not site.settings.db.exists()


def test_a_file_that_was_cut_short_from_outside_is_told(site: Any, newest_db: Path) -> None:
    site.get(f"/transcripts/{KEYS}")
    (path,) = site.settings.transcripts_dir.glob(f"*/{KEYS}.md")
    os.truncate(path, 100)
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE session SET time_updated = time_updated + 9000 WHERE id = ?", (KEYS,)
        )
    answer = site.get(f"/transcripts/{KEYS}")
    assert answer.status == 200
    assert "is shorter" in answer.doc.one(class_="banner").text
    assert site.get(f"/transcripts/{KEYS}/10").status == 200
