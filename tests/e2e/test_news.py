"""Open pages in a real browser: they tell what is new within 3 s, keep the reader's place, and a
hidden one does not ask."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

FIXTURE = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
SESSION = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"


class OpenCode:
    """An OpenCode that writes to its database while the program runs."""

    def __init__(self, db: Path) -> None:
        self.db, self._count = db, 0

    def say(self, text: str) -> None:
        """One more prompt in the session, a minute ago by its own time."""
        self._count += 1
        at = int(time.time() * 1000) - 60_000 + self._count
        with closing(sqlite3.connect(self.db)) as connection, connection:
            connection.execute(
                "INSERT INTO message (id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, ?, ?)",
                (f"msg_zz{self._count:04}", SESSION, at, at,
                 json.dumps({"role": "user", "time": {"created": at}})),
            )  # fmt: skip
            connection.execute(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (f"prt_zz{self._count:04}", f"msg_zz{self._count:04}", SESSION, at, at,
                 json.dumps({"type": "text", "text": text})),
            )  # fmt: skip


@pytest.fixture
def opencode(tmp_path: Path) -> OpenCode:
    folder = tmp_path / "home" / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    return OpenCode(Path(shutil.copyfile(FIXTURE, folder / "opencode.db")))


@pytest.fixture
def site(server: Callable[..., Any], opencode: OpenCode) -> Any:
    return server()


@pytest.mark.parametrize(
    ("path", "text"),
    [(f"/sessions/{SESSION}", "1 new message"), (f"/transcripts/{SESSION}", "5 new lines"),
     (f"/context/{SESSION}", "1 new message"),
     ("/sessions", "1 session went on"), ("/transcripts", "1 session went on")],
)  # fmt: skip
def test_what_is_new_is_told_within_three_seconds_and_the_place_is_kept(
    site: Any, opencode: OpenCode, page: Page, path: str, text: str
) -> None:
    page.set_viewport_size({"width": 1280, "height": 400})
    page.goto(f"{site.url}{path}")
    page.evaluate("window.stayed = true; window.scrollTo(0, 90)")
    place = page.evaluate("scrollY")
    expect(page.locator("#news")).to_be_hidden()
    opencode.say("One.\nTwo.\nThree.")
    began = time.monotonic()
    expect(page.locator("#news")).to_contain_text(text, timeout=10_000)
    assert time.monotonic() - began < 3.5
    assert page.evaluate("scrollY") == place and page.evaluate("window.stayed")
    page.locator("#news a").click()
    page.wait_for_function("!window.stayed")
    expect(page.locator("#news")).to_be_hidden()
    if path.startswith(("/sessions/", "/transcripts/")):
        expect(page.locator(".msg .said, .row code").filter(has_text="Three.")).to_be_in_viewport()


def test_a_hidden_page_does_not_ask_and_a_page_shown_again_does(
    site: Any, opencode: OpenCode, page: Page
) -> None:
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url) if "/news/" in request.url else None
    )
    page.goto(f"{site.url}/sessions/{SESSION}")
    hide = "(on) => { Object.defineProperty(document, 'hidden', {configurable: true, value: on});"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    asked.clear()
    opencode.say("While nobody looks.")
    page.wait_for_timeout(6_000)
    assert asked == []
    page.evaluate(hide, False)
    expect(page.locator("#news")).to_contain_text("1 new message", timeout=2_000)
    page.wait_for_timeout(6_000)
    assert 2 <= len(asked) <= 4


def test_a_page_tells_that_the_server_is_gone_and_goes_on_when_it_is_back(
    server: Callable[..., Any], opencode: OpenCode, page: Page, page_problems: Any
) -> None:
    page_problems.allow("ERR_CONNECTION_(REFUSED|RESET)")
    site = server()
    page.clock.install()
    page.goto(f"{site.url}/sessions/{SESSION}")
    site.kill()
    for _ in range(3):
        page.clock.run_for(25_000)
        page.wait_for_timeout(300)
    expect(page.locator("#news")).to_contain_text("The server does not answer")


def test_what_was_told_comes_back_when_the_server_answers_again(
    site: Any, opencode: OpenCode, page: Page, page_problems: Any
) -> None:
    page_problems.allow("ERR_FAILED")
    page.clock.install()
    page.goto(f"{site.url}/sessions/{SESSION}")
    opencode.say("One.")
    page.clock.run_for(3_000)
    expect(page.locator("#news")).to_contain_text("1 new message")
    page.route("**/news/**", lambda route: route.abort())
    for _ in range(4):
        page.clock.run_for(25_000)
        page.wait_for_timeout(300)
    expect(page.locator("#news")).to_contain_text("does not answer")
    page.unroute("**/news/**")
    page.clock.run_for(61_000)
    expect(page.locator("#news")).to_contain_text("1 new message")
