"""A session in a real browser: more messages without a reload, links to a message and to a part."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

FIXTURE = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
COUNT = 173


@pytest.fixture
def site(server: Callable[..., Any], tmp_path: Path) -> Any:
    """The running program beside an OpenCode with one long session, `ses_long`."""
    folder = tmp_path / "home" / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    shutil.copyfile(FIXTURE, folder / "opencode.db")
    with closing(sqlite3.connect(folder / "opencode.db")) as connection, connection:
        connection.execute(
            "INSERT INTO session (id, project_id, slug, directory, title, version, time_created,"
            " time_updated) SELECT 'ses_long', project_id, 'long', directory, 'Long', '1', 1, 1"
            " FROM session LIMIT 1"
        )
        for n in range(COUNT):
            data = {"role": "assistant", "time": {"created": n, "completed": n},
                    "tokens": {"total": 100 * n}, "summary": n == 90, "finish": "stop"}  # fmt: skip
            name = f"{n:04d}"
            connection.execute(
                "INSERT INTO message (id, session_id, time_created, time_updated, data)"
                " VALUES (?, 'ses_long', ?, ?, ?)",
                (f"msg_{name}", n, n, json.dumps(data)),
            )
            connection.execute(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, 'ses_long', ?, ?, ?)",
                (f"prt_{name}", f"msg_{name}", n, n,
                 json.dumps({"type": "text", "text": f"Text {n}.\n\n" * 9})),
            )  # fmt: skip
    return server()


def test_more_messages_come_without_a_reload(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/sessions/ses_long")
    expect(page.locator(".chart canvas")).to_be_visible()
    page.evaluate("window.stayed = true")
    page.locator("#more a").click()
    expect(page.locator(".msg")).to_have_count(100)
    assert page.evaluate("window.stayed")
    ids = page.eval_on_selector_all(".msg", "all => all.map(one => one.id)")
    assert ids == [f"msg_{n:04d}" for n in range(100)]


@pytest.mark.parametrize(
    ("path", "target"),
    [("/msg_0077", "msg_0077"), ("/msg_0077#msg_0077", "msg_0077"), ("/msg_0150#prt_0150", "prt_0150"),
     ("#prt_0123", "prt_0123"), ("?order=newest#msg_0001", "msg_0001"), ("?at=prt_0099", "prt_0099")],
)  # fmt: skip
def test_a_link_to_a_message_or_a_part_is_scrolled_to(
    site: Any, page: Page, path: str, target: str
) -> None:
    page.goto(f"{site.url}/sessions/ses_long{path}")
    expect(page.locator(f"#{target}")).to_be_in_viewport()
    expect(page.locator(".msg.selected")).to_have_id(target.replace("prt", "msg"))


def test_without_script_a_session_is_read_page_by_page(
    site: Any, context_factory: Callable[..., BrowserContext]
) -> None:
    page = context_factory(java_script_enabled=False).new_page()
    page.goto(f"{site.url}/sessions/ses_long")
    page.locator("#more a").click()
    expect(page.locator(".msg").first).to_have_id("msg_0050")
    page.get_by_role("link", name="earlier messages").click()
    expect(page.locator(".msg").first).to_have_id("msg_0000")
    page.get_by_text("raw", exact=True).first.click()
    expect(page.locator(".raw pre").first).to_be_visible()


def test_the_context_of_a_session_is_drawn_with_the_moment_that_is_looked_at(
    site: Any, page: Page
) -> None:
    page.goto(f"{site.url}/context/ses_long?before=msg_0090")
    expect(page.locator(".chart.small canvas")).to_be_visible()
    expect(page.get_by_text("this moment is message 91")).to_be_visible()
    expect(page.locator("#seen-head")).to_contain_text("8,900 tokens")
