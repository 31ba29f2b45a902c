"""`/import` and `/entries/dump`: a preview first, then exactly that."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

KEY = "ghp_" + "Zk3Wq9Lm5Rt7Vy1Bx8Nc2Hd6Jf4Gs0PaQe3T"


def lines(*made: dict[str, Any]) -> str:
    return "\n".join(json.dumps(one) for one in made)


def test_a_preview_writes_nothing_and_its_button_does_exactly_that(site: Any) -> None:
    site.save("There", "Old body.")
    text = lines({"title": "There", "body": "New\nbody."}, {"title": "<b>New</b>", "body": "b"},
                 {"title": "Bad", "body": KEY})  # fmt: skip
    shown = site.post("/import", {"file": (io.BytesIO(text.encode()), "entries.jsonl")},
                      content_type="multipart/form-data")  # fmt: skip
    assert shown.status == 200
    shown.assert_inert()
    assert KEY not in shown.doc.one("table").raw and "holds a secret" in shown.text
    assert [e.text for e in shown.doc.one("dl", class_="figures").all("dd")] == ["1", "1", "0", "1"]
    assert site.rows("SELECT count(*) FROM entries") == [(1,)]
    form = shown.doc.one("form", class_="apply")
    done = site.submit(shown, form)
    assert done.status == 303
    receipt = site.follow(done)
    assert "Imported 1 new and 1 rewritten entries" in receipt.text
    assert sorted(site.rows("SELECT title, body FROM entries")) == [
        ("<b>New</b>", "b"), ("There", "New\nbody.")]  # fmt: skip
    again = site.submit(shown, form)
    assert again.status == 409 and "not the plan of that file" in again.text


def test_pasted_text_with_the_line_ends_of_a_browser_is_the_same_plan(site: Any) -> None:
    text = lines({"title": "A", "body": "x"}, {"title": "B", "body": "y"}).replace("\n", "\r\n")
    shown = site.post("/import", {"text": text, "into": "/home/demo/other"})
    done = site.submit(shown, shown.doc.one("form", class_="apply"))
    assert done.status == 303
    assert {row[0] for row in site.rows("SELECT scope FROM entries")} == {"/home/demo/other"}


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_what_is_downloaded_can_be_imported(site: Any, form: str) -> None:
    site.save("One", "## not a heading\n<!-- opencode-memory x -->", scope="/home/demo/shop")
    site.save("Elsewhere", scope="/home/demo/else")
    answer = site.get(f"/entries/dump?as={form}&scope=/home/demo/shop")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"].startswith("attachment; filename=")
    assert (
        b"Elsewhere" not in answer.body
        and b"Elsewhere" in site.get(f"/entries/dump?as={form}").body
    )
    shown = site.post("/import", {"text": answer.body.decode()})
    assert [e.text for e in shown.doc.one("dl", class_="figures").all("dd")] == ["0", "0", "1", "0"]
    assert "There is nothing to write." in shown.text


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({}, "Choose a file"),
        ({"text": "prose"}, "No entry was found"),
        ({"text": "{", "into": "x"}, "absolute"),
    ],
)
def test_what_cannot_be_used_is_said(site: Any, sent: dict[str, str], told: str) -> None:
    answer = site.post("/import", sent)
    assert answer.status in (200, 400) and told in answer.text
    assert site.get("/entries/dump?as=xml").status == 400
    assert site.get("/import").status == 200


def test_a_file_of_more_than_the_page_takes_is_refused_in_words(site: Any) -> None:
    answer = site.post("/import", b"x" * 17_000_000, content_type="multipart/form-data; boundary=x")
    assert answer.status == 413
    assert (
        site.post("/import", {"text": lines({"title": "A", "body": "b"}) + "\n" * 3_000_000}).status
        == 200
    )
