"""`/inject`: the inventory for OpenCode's `instructions`, to whom has the key of its scope."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

from werkzeug.test import TestResponse

from webapp import create_app
from webapp.integration import token
from webapp.integration.inject import inject_key, inject_url
from webapp.memory import entries
from webapp.settings import Settings
from webapp.store import Store

SHOP = "/home/demo/my shop & co"


def ask(settings: Settings, url: str, **headers: str) -> TestResponse:
    """Asks an app of these settings as OpenCode does: a GET without a header of ours."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}"
    return create_app(settings).test_client().get(path, headers={"Host": parts.netloc, **headers})


def save(store: Store, title: str, scope: str = SHOP, **more: Any) -> None:
    draft = entries.draft(scope=scope, kind="lesson", title=title, body="Not to be told.", **more)
    entries.save(store, draft, "ann")


def test_the_inventory_of_a_scope_is_told_with_the_tools_as_agents_see_them(
    settings: Settings, store: Store
) -> None:
    save(store, "Measure first")
    save(store, "For all", scope="global")
    save(store, "Elsewhere", scope="/home/demo/docs")
    answer = ask(settings, inject_url(settings, SHOP))
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "- lesson: Measure first (by ann)" in answer.text and "For all" in answer.text
    assert "Elsewhere" not in answer.text and "Not to be told." not in answer.text
    for name in ("search", "session_search", "session_read", "save"):
        assert f"`memory_{name}`" in answer.text and f"`{name}`" not in answer.text
    assert len(answer.text) <= 1_200
    every = ask(settings, inject_url(settings, None)).text
    assert "For all" in every and "Measure first" not in every
    without = ask(replace(settings, retrieval=False), inject_url(settings, SHOP)).text
    assert "`memory_search`" in without and "session_" not in without


def test_an_unused_memory_is_an_empty_text_and_no_file(settings: Settings) -> None:
    answer = ask(settings, inject_url(settings, SHOP))
    assert (answer.status_code, answer.data) == (200, b"")
    assert not settings.db.exists()


def test_an_address_opens_one_scope_and_is_made_of_the_token(settings: Settings) -> None:
    url = inject_url(settings, SHOP)
    secret = token.read(settings)
    assert secret is not None and secret not in url
    made = hmac.new(secret.encode(), f"inject{SHOP}".encode(), hashlib.sha256).hexdigest()
    key = inject_key(secret, SHOP)
    assert url == f"http://127.0.0.1:4748/inject?scope={quote(SHOP)}&k={key}"
    assert made.startswith(key) and len(key) == 32
    assert inject_url(settings, SHOP) == url
    assert inject_url(replace(settings, host="::1", port=5000), None).startswith(
        "http://[::1]:5000/inject?scope=global&k="
    )


def test_without_the_key_nothing_is_told(settings: Settings, store: Store) -> None:
    save(store, "Known")
    url = inject_url(settings, SHOP)
    key = url.rpartition("k=")[2]
    base = "http://127.0.0.1:4748/inject"
    for wrong in (
        base, f"{base}?k={key}", f"{base}?scope=global&k={key}", f"{base}?scope=/home/demo/docs&k={key}",
        url[:-1], url + "0", f"{base}?scope={quote(SHOP)}&k=", f"{base}?scope={quote(SHOP)}&k=%ff%00é",
        f"{base}?scope={quote(SHOP)}&k={token.read(settings)}",
    ):  # fmt: skip
        answer = ask(settings, wrong)
        assert answer.status_code == 403, wrong
        assert answer.mimetype == "text/plain" and "key" in answer.text
        assert "Known" not in answer.text
    token.path(settings).unlink()
    assert ask(settings, url).status_code == 403


def test_what_goes_wrong_is_told_in_plain_words(settings: Settings, store: Store) -> None:
    save(store, "Known")
    url = inject_url(settings, SHOP)
    for answer, status, words in (
        (ask(settings, "http://127.0.0.1:4748/inject?scope=shop&k=x"), 400, "absolute path"),
        (ask(settings, url, Host="evil.example"), 403, "own address"),
    ):
        assert (answer.status_code, answer.mimetype) == (status, "text/plain")
        assert words in answer.text
    broken = replace(settings, db=settings.data_dir / "broken.db")
    broken.db.write_bytes(b"no database at all" * 400)
    answer = ask(broken, url)
    assert (answer.status_code, answer.mimetype) == (503, "text/plain")
    assert "broken.db" in answer.text
    token.path(settings).write_text("short")
    assert ask(settings, url).status_code == 503


def test_what_is_saved_or_forgotten_is_told_at_once(settings: Settings, store: Store) -> None:
    client = create_app(settings).test_client()
    url = inject_url(settings, SHOP).removeprefix("http://127.0.0.1:4748")
    save(store, "First")
    assert "First" in client.get(url).text
    save(store, "Second")
    assert "Second" in client.get(url).text
    entries.forget(store, [row[0] for row in store.rows("SELECT id FROM entries")], "ann")
    assert client.get(url).text == ""


def test_a_call_of_a_model_does_not_wait_for_a_large_memory(
    settings: Settings, store: Store
) -> None:
    count = 20_000
    save(store, "One", scope="global")
    with closing(sqlite3.connect(settings.db)) as connection, connection:
        connection.executemany(
            "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at)"
            " VALUES (?, ?, 'fact', ?, 'b', '[]', ?, ?)",
            ((f"e{n}", SHOP, f"Fact {n}", n, n) for n in range(count)),
        )
    client = create_app(settings).test_client()
    url = inject_url(settings, SHOP).removeprefix("http://127.0.0.1:4748")
    assert f"- fact: Fact {count - 1}" in client.get(url).text
    begun = time.perf_counter()
    for _ in range(20):
        assert client.get(url).status_code == 200
    assert (time.perf_counter() - begun) / 20 < 0.02
