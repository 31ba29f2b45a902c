"""`?md=<line>`: a message rendered beside its lines; the colours of a terminal in the lines."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
HOSTILE = "ses_dd3fa60a9ffeTXS1icqe58uEPT"


def heads(answer: Any) -> dict[int, Any]:
    """The links to a rendered message, by the line of its heading."""
    return {int(a.attrs["data-md"]): a for a in answer.doc.all("a", class_="md")}


def panel(answer: Any) -> Any:
    return answer.doc.one(id="message")


def path_of(link: str) -> str:
    return urlsplit(link)._replace(fragment="").geturl()


def test_every_heading_of_a_message_links_to_it_rendered(site: Any) -> None:
    answer = site.get(f"/transcripts/{LONG}/920-925?q=the")
    links = heads(answer)
    texts = {int(row.attrs["id"][1:]): row.one("code").raw for row in answer.doc.all(class_="h2")}
    assert set(links) == {n for n, text in texts.items() if re.match("## (user|assistant) ", text)}
    assert len(links) > 3
    for number, link in list(links.items())[:4]:
        place = urlsplit(link.attrs["href"])
        assert (place.path, place.fragment) == (f"/transcripts/{LONG}/920-925", "message")
        assert place.query == f"q=the&md={number}"
        page = site.get(path_of(link.attrs["href"]))
        assert page.status == 200
        assert panel(page).attrs["data-first"] == str(number)
        assert [n for n, a in heads(page).items() if "aria-current" in a.attrs] == [number]
        title = panel(page).one("h2").text
        assert texts[number].startswith(f"## {title.split(' · ')[0]}")
        facts = panel(page).all(class_="meta")[0].text
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", texts[number])[0] in facts  # type: ignore[index]
        assert f"lines {number:,}-" in facts
        page.assert_inert()


def test_without_md_there_is_no_message_and_close_leads_back(site: Any) -> None:
    plain = site.get(f"/transcripts/{LONG}/920?q=the")
    assert "hidden" in panel(plain).attrs and panel(plain).text == ""
    number = min(heads(plain))
    page = site.get(f"/transcripts/{LONG}/920?q=the&md={number}")
    close = page.doc.one(id="message-close").attrs["href"]
    assert path_of(close) == f"/transcripts/{LONG}/920?q=the"
    assert [row.raw for row in page.doc.all(class_="row")] == [
        row.raw for row in plain.doc.all(class_="row")
    ]


def test_the_texts_of_a_message_are_rendered_and_link_to_their_lines(site: Any) -> None:
    lines = sorted(heads(site.get(f"/transcripts/{LONG}/1150")))
    seen = 0
    for number in lines:
        page = site.get(f"/transcripts/{LONG}/1150?md={number}")
        for link in panel(page).all("a", class_="from"):
            assert link.attrs["href"].startswith("#L")
            assert page.doc.one(id=link.attrs["href"][1:])
            seen += 1
        for mention in panel(page).all(class_="mention"):
            line = mention.one("a").attrs["href"].partition("#L")[2]
            assert site.get(f"/transcripts/{LONG}/{line}").doc.one(id=f"L{line}")
            seen += 1
    assert seen == 4
    far = site.get(f"/transcripts/{LONG}?md={lines[0]}")
    links = [a.attrs["href"] for a in panel(far).all("a") if "id" not in a.attrs]
    assert links and all(
        re.fullmatch(rf"/transcripts/{LONG}/(\d+)\?md={lines[0]}#L\1", link) for link in links
    )


def test_htmx_gets_the_panel_alone(site: Any) -> None:
    number = min(heads(site.get(f"/transcripts/{LONG}")))
    link = heads(site.get(f"/transcripts/{LONG}"))[number]
    assert link.attrs["hx-target"] == "#message"
    part = site.fragment(link.attrs["hx-get"], "message")
    assert not part.is_page and not part.doc.all(class_="row")
    assert panel(part).attrs["data-first"] == str(number)
    closed = site.fragment(part.doc.one(id="message-close").attrs["hx-get"], "message")
    assert "hidden" in panel(closed).attrs
    assert site.get(link.attrs["hx-get"]).is_page


@pytest.mark.parametrize("asked", ["x", "0", "-1", "9-3", "9" * 40, "<script>", "1.5", "²"])
def test_what_is_no_line_is_refused_with_a_sentence(site: Any, asked: str) -> None:
    answer = site.get(f"/transcripts/{LONG}", query_string={"md": asked})
    assert answer.status == 400
    assert answer.doc.one(role="alert").text
    answer.assert_inert()


def test_a_line_without_a_message_and_one_past_the_end_are_answered(site: Any) -> None:
    head = site.get(f"/transcripts/{LONG}?md=2")
    assert head.status == 200
    assert "Line 2 belongs to no message" in panel(head).text
    past = site.get(f"/transcripts/{LONG}?md=99999")
    assert "Line 99,999 is past the end; this is the last message." in panel(past).text
    inside = site.get(f"/transcripts/{LONG}?md=10")
    assert int(panel(inside).attrs["data-first"]) < 10


def test_a_file_of_another_program_has_no_such_links(site: Any) -> None:
    site.foreign_transcript("ses_note", "# N\n\n## user · build\nhello **you**\n")
    assert not heads(site.get("/transcripts/ses_note"))
    answer = site.get("/transcripts/ses_note?md=3")
    assert answer.status == 200
    assert "Another program wrote this transcript" in panel(answer).text
    assert answer.doc.one(class_="rows")


def test_a_revealed_line_keeps_its_links(site: Any) -> None:
    site.get(f"/transcripts/{KEYS}")
    answer = site.post(f"/transcripts/{KEYS}/10/reveal")
    for link in heads(answer).values():
        assert site.get(path_of(link.attrs["href"])).status == 200


def test_no_key_is_rendered(site: Any) -> None:
    page = site.get(f"/transcripts/{KEYS}")
    masked = 0
    for number in heads(page):
        answer = site.get(f"/transcripts/{KEYS}?md={number}")
        assert "FakeFixture0" not in answer.html and "FAKE0fixture1" not in answer.html
        masked += panel(answer).text.count("[masked")
    assert masked > 0


def test_hostile_text_is_rendered_inert(hostile: Any) -> None:
    page = hostile.get(f"/transcripts/{HOSTILE}")
    found = ""
    for number in heads(page):
        answer = hostile.get(f"/transcripts/{HOSTILE}?md={number}")
        answer.assert_inert()
        found += panel(answer).text
    assert "<script>" in found


def test_markup_links_and_images_of_a_text_are_text(site: Any, newest_db: Path) -> None:
    text = (
        "# Big\n<img src=x onerror=alert(1)> <b>raw</b>\n\n![pic](https://evil.example/p.png)\n\n"
        "[js](javascript:alert(1)) [data](data:text/html,x) [file](src/app.py) [own](/trash)\n\n"
        "[web](https://example.com/)\n\n```html\n<script>alert(2)</script>\n```\n\n"
        "ghp\\_" + "FakeFixture0" * 3 + "\r\n\r\ncontrol \x1b[31m \u202e"
    )
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE part SET data = json_set(data, '$.text', ?) WHERE id = (SELECT id FROM part"
            " WHERE session_id = ? AND json_extract(data, '$.type') = 'text' ORDER BY id LIMIT 1)",
            (text, LONG),
        )
    number = min(heads(site.get(f"/transcripts/{LONG}")))
    answer = site.get(f"/transcripts/{LONG}?md={number}")
    answer.assert_inert()
    prose = panel(answer).one(class_="prose")
    assert prose.one("h3").text == "Big"
    assert "<img src=x onerror=alert(1)> <b>raw</b>" in prose.raw
    assert "<script>alert(2)</script>" in prose.one("pre").raw
    links = {a.text: a.attrs.get("href") for a in prose.all("a")}
    assert links == {"pic": "https://evil.example/p.png", "file": None, "own": None,
                     "web": "https://example.com/"}  # fmt: skip
    assert "FakeFixture0" not in prose.raw and "[masked 40]" in prose.raw
    assert "control \\e[31m U+202E" in prose.raw and "\\r" not in prose.raw
    assert not prose.all("img") and not prose.all("script") and not prose.all("b")


# The colours of a terminal ----------------------------------------------------------------------


def test_colours_are_classes_and_the_text_stays(site: Any) -> None:
    text = "a\x1b[31mred <b>\x1b[0m and \x1b[38;5;9mrest"
    site.foreign_transcript("ses_note", f"# N\n{text}\n")
    answer = site.get("/transcripts/ses_note?q=red")
    row = answer.doc.one(id="L2")
    assert row.one("code").raw == text.replace("\x1b", "\\e")
    assert row.one(class_="ansi-31").raw == "red <b>"
    assert row.one(class_="ansi-31").one("mark").raw == "red"
    assert [node.raw for node in row.all(class_="sgr")] == ["\\e[31m", "\\e[0m"]
    assert answer.doc.all("button", data_ansi="")
    answer.assert_inert()
    plain = site.get(f"/transcripts/{LONG}")
    assert not plain.doc.all("button", data_ansi="")
    assert "ansi" in site.get("/transcripts/ses_note?ansi=1").doc.one(class_="rows").attrs["class"]
