"""`/receipts`: what was forgotten, restored, destroyed and cleaned up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webapp.memory import entries, trash
from webapp.store import receipts

SHOP = "/home/demo/shop"


def summaries(answer: Any) -> list[str]:
    """The receipts of a page in their order."""
    return [row.one("a").text for row in answer.doc.all("tr", data_item="")]


def test_an_unused_store_has_no_receipts(site: Any) -> None:
    answer = site.get("/receipts")
    assert answer.status == 200
    assert answer.doc.one(class_="empty").one("h2").text == "No receipts yet"
    assert not site.settings.db.exists()


def test_each_write_that_takes_something_away_leaves_one_newest_first(site: Any) -> None:
    one, two = site.save("One", scope=SHOP), site.save("Two")
    site.post(f"/entries/{one.id}/forget")
    site.post(f"/trash/{one.id}/restore")
    site.post(f"/entries/{two.id}/forget")
    site.post(f"/trash/{two.id}/purge")
    answer = site.get("/receipts")
    assert summaries(answer) == [
        "Destroyed 1 entry from the trash", "Forgot “Two”", "Restored “One”", "Forgot “One”",
    ]  # fmt: skip
    assert {row.all("td")[1].text for row in answer.doc.all("tr", data_item="")} == {"tester"}


def test_a_receipt_names_what_went_with_links(site: Any) -> None:
    one, two = site.save("One", scope=SHOP), site.save("Two")
    with site.store() as store:
        entries.forget(store, [one.id, two.id], "build")
    page = site.get("/receipts")
    answer = site.get(page.doc.one("tr", data_item="").one("a").attrs["href"])
    assert answer.main.one("h1").text == "Forgot 2 entries"
    assert "by build" in answer.main.one("p", class_="meta").text
    rows = [[cell.text for cell in row.all("td")] for row in answer.doc.all("tr", data_item="")]
    assert rows == [["One", SHOP], ["Two", "global"]]
    links = [row.one("a").attrs["href"] for row in answer.doc.all("tr", data_item="")]
    assert links == [f"/entries/{one.id}", f"/entries/{two.id}"]
    assert site.get(links[0]).status == 410


def test_a_sweep_leaves_a_receipt_that_says_why(site: Any) -> None:
    entry = site.save("One")
    with site.store() as store:
        site.save("Another")
        entries.forget(store, [entry.id], "tester", now=1_000)
        trash.sweep(store, 30)
    answer = site.get("/receipts")
    assert summaries(answer)[0] == "Destroyed 1 entry from the trash"
    assert "after 30 days" in answer.doc.all("tr", data_item="")[0].text


def test_older_receipts_are_on_the_next_pages(site: Any) -> None:
    site.save("Something")
    with site.store() as store, store.writing():
        for number in range(1, 251):
            receipts.write(store, "forget", "tester", f"Receipt {number}", {}, number)
    seen: list[str] = []
    path = "/receipts"
    while path:
        answer = site.get(path)
        seen += summaries(answer)
        older = [a for a in answer.doc.all("a") if a.text == "older ›"]
        path = older[0].attrs["href"] if older else ""
    assert seen == [f"Receipt {number}" for number in range(250, 0, -1)]


@pytest.mark.parametrize("before", ["x", "-1", "1.5", "²", "9" * 15, "9" * 5000, "1;DROP"])
def test_a_bad_place_to_go_on_from_is_refused(site: Any, before: str) -> None:
    answer = site.get(f"/receipts?before={before}")
    assert answer.status == 400
    assert "number of a receipt" in answer.doc.one(role="alert").text


@pytest.mark.parametrize("before", ["0", "1", "99999999999999"])
def test_a_place_without_receipts_is_an_empty_page(site: Any, before: str) -> None:
    assert site.get(f"/receipts?before={before}").status == 200


@pytest.mark.parametrize("number", ["1", "0", "99999999", "9" * 18])
def test_an_unknown_receipt_is_a_404_with_a_way_on(site: Any, number: str) -> None:
    answer = site.get(f"/receipts/{number}")
    assert answer.status == 404
    assert "There is no receipt" in answer.doc.one(role="alert").text
    assert "/" in [a.attrs["href"] for a in answer.main.all("a")]


@pytest.mark.parametrize("number", ["x", "-1", "1.5", "9" * 19, "9" * 40, "9" * 5000, "²", "%00"])
def test_what_is_no_receipt_number_is_a_clear_4xx(site: Any, number: str) -> None:
    site.save("Something")
    answer = site.get(f"/receipts/{number}")
    assert answer.status in (400, 404)
    assert answer.doc.one(role="alert").text


@pytest.mark.parametrize(
    "detail",
    ["", "no json", "[]", "null", "7", '"text"', "{}", '{"entries": 5}', '{"entries": [1, null]}',
     '{"entries": [{"id": "x"}]}', '{"transcripts": [{}]}', '{"transcripts": "x"}',
     '{"options": []}', '{"options": {"a": null}}', '{"bytes": "many"}', '{"bytes": null}',
     '{"problems": "one"}', '{"problems": [{"a": 1}]}', '{"a": {"b": 1}, "c": [1], "d": true}'],
)  # fmt: skip
def test_a_detail_that_another_version_wrote_is_no_server_error(site: Any, detail: str) -> None:
    site.save("Something")
    site.rows("INSERT INTO receipts VALUES (1, 1, 'odd', 'someone', 'An odd one', ?)", detail)
    answer = site.get("/receipts/1")
    assert answer.status == 200, answer.text
    assert answer.main.one("h1").text == "An odd one"
    assert summaries(site.get("/receipts")) == ["An odd one"]


def test_markup_in_a_receipt_stays_text(site: Any) -> None:
    site.save("Something")
    evil = "<script>alert(1)</script>\"' onload=x"
    site.rows(
        "INSERT INTO receipts VALUES (1, 1, ?, ?, ?, ?)", evil, evil, evil,
        json.dumps({evil: evil, "problems": [evil], "options": {evil: evil},
                    "entries": [{"id": evil, "title": evil, "scope": evil}]}),
    )  # fmt: skip
    for path in ("/receipts", "/receipts/1"):
        answer = site.get(path)
        assert answer.status == 200
        answer.assert_inert()
        assert evil in answer.text
