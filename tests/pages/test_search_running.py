"""The page of a search that goes on: what there is so far, how it is asked for again, and the rest of
the site meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

HTMX = {"HX-Request": "true", "HX-Target": "results"}


@pytest.fixture
def slow(site: Any, slow_disk: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A library with a transcript that takes a minute to search, between two that do not."""
    monkeypatch.setattr("webapp.web.searches.FIRST_LOOK_S", 1.0)
    for age, name in enumerate(("new", "slow", "old")):
        path = site.foreign_transcript(name, f"# Talk {name}\nthe needle of {name}\n")
        os.utime(path, (1_790_000_000 - age,) * 2)
    yield site
    site.searches.stop()


def test_the_first_hits_are_there_while_the_rest_is_read(slow: Any) -> None:
    page = slow.get("/?tab=transcripts&q=needle")
    assert "needle of new" in page.text and "needle of old" not in page.text
    banner = page.doc.one(class_="searching")
    assert "Still reading" in banner.text
    again = banner.attrs["hx-get"]
    assert "1 line in 1 transcript" in page.doc.one("nav", aria_label="What to search").text
    fragment = slow.get(again, headers=HTMX)
    assert fragment.status == 200 and not fragment.doc.all("html")
    assert fragment.doc.one(class_="searching").attrs["hx-get"] == again
    assert "more" not in fragment.headers["HX-Replace-Url"]
    (noscript,) = [node for node in page.doc.all("noscript") if node.all("meta")]
    assert again in noscript.one("meta").attrs["content"]


def test_a_finished_search_asks_no_more(site: Any) -> None:
    site.foreign_transcript("one", "# T\nthe needle\n")
    page = site.get("/?tab=transcripts&q=needle")
    assert "the needle" in page.text and not page.doc.all(class_="searching")
    nothing = site.get("/?tab=transcripts&q=nosuchline")
    assert nothing.doc.one(class_="empty").one("h2").text == "No line matches"


def test_a_search_without_hits_yet_is_not_called_empty(slow: Any) -> None:
    page = slow.get("/?tab=transcripts&q=of+old")
    assert page.doc.one(class_="searching") and not page.doc.all(class_="empty")


def test_ten_who_search_do_not_hold_up_the_rest(slow: Any) -> None:
    began = time.monotonic()
    pages = [slow.get(f"/?tab=transcripts&q=needle+{n}") for n in range(10)]
    assert "other search" in pages[-1].doc.one(class_="searching").text
    for path in ("/", "/transcripts", "/stats", "/healthz"):
        assert slow.get(path).status == 200
    assert time.monotonic() - began < 45


def test_what_was_not_searched_is_told_beside_the_hits(
    site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.foreign_transcript("one", "# T\nthe needle\n")
    monkeypatch.setattr("webapp.transcripts.ripgrep.program", lambda: "/nonexistent/rg")
    page = site.get("/?tab=transcripts&q=needle")
    assert page.status == 503 and "rg" in page.text
