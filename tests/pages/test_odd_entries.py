"""Pages with odd rows in memory.db."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    "odd",
    [
        {"updated_at": "2026-01-01T00:00:00Z", "created_at": "x", "expires_at": "never"},
        {"title": b"t\xff", "body": b"\xff", "kind": b"\xff", "scope": b"\xff", "tags": b"\xff"},
        {"created_at": 2**63 - 1, "updated_at": 2**63 - 1, "expires_at": 2**63 - 1},
        {"created_at": -(2**62), "updated_at": -(2**62)},
    ],
    ids=str,
)
def test_every_page_answers_with_an_odd_entry(site: Any, odd: dict[str, Any]) -> None:
    site.save("Plain")
    site.foreign_entry("odd", **odd)
    site.foreign_entry("odd2", **{**odd, "title": "other"})
    site.rows("UPDATE entries SET id = NULL WHERE id = 'odd2'")
    site.rows(
        "INSERT INTO trash SELECT 'gone', scope, kind, title, body, tags, created_at, updated_at,"
        " expires_at, source, updated_at, kind FROM entries WHERE id = 'odd'"
    )
    site.rows(
        "INSERT INTO receipts (at, action, actor, summary, detail)"
        " SELECT updated_at, kind, kind, title, title FROM entries WHERE id = 'odd'"
    )
    for path in ("/", "/?sort=newest", "/?q=plain", "/?q=b", "/?tag=x", "/stats", "/entries/new",
                 "/entries/odd", "/entries/gone", "/trash", "/receipts", "/receipts/1",
                 "/entries/odd/edit"):  # fmt: skip
        assert site.get(path).status == (410 if path == "/entries/gone" else 200), path
    for link in site.get("/?sort=newest").main.all("a"):
        assert link.attrs["href"] != "/entries/"
