"""The list of sessions in a browser."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

ROWS = ".session[data-item]"


@pytest.fixture
def site(server: Callable[..., Any], tmp_path: Path) -> Any:
    """The program on the newest fixture, whose one subagent has five sisters more."""
    home = tmp_path / "sessions-home"
    folder = home / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    fixture = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
    path = folder / "opencode.db"
    path.write_bytes(fixture.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(session)")]
        for number in range(5):
            values = ", ".join(f"'ses_more{number}'" if name == "id" else name for name in names)
            connection.execute(
                f"INSERT INTO session SELECT {values} FROM session"
                " WHERE title LIKE 'Find price%' LIMIT 1"
            )
    return server(home=home)


def test_filters_work_without_a_reload(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/sessions")
    page.evaluate("window.stays = true")
    page.fill("#words", "model fail")
    expect(page.locator(ROWS)).to_have_count(1)
    assert page.url == f"{site.url}/sessions?q=model+fail"
    page.fill("#words", "")
    expect(page.locator("#results")).to_contain_text("20 sessions, subagents")
    page.check("input[name=compacted]")
    expect(page.locator(ROWS)).to_have_count(2)
    expect(page.locator(".tick-pill.on")).to_have_count(1)
    page.uncheck("input[name=compacted]")
    expect(page.locator(".tick-pill.on")).to_have_count(0)
    expect(page.locator("#results")).to_contain_text("20 sessions, subagents")
    page.select_option("select[name=order]", "project")
    expect(page.locator(".group")).to_have_count(1)
    assert page.evaluate("window.stays") is True


def test_many_subagents_are_folded_and_the_keys_pass_them_by(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/sessions?project=/home/demo/shop")
    branch = page.locator("details.branch")
    expect(branch.locator("summary")).to_have_text("6 subagents")
    hidden = branch.locator(ROWS)
    expect(hidden.first).not_to_be_visible()
    shown = page.locator(ROWS).count() - hidden.count()
    for _ in range(shown + 3):
        page.keyboard.press("j")
    expect(page.locator(f"{ROWS}.active h2")).to_have_text("Choose the SQLite journal mode")
    branch.locator("summary").click()
    expect(hidden.first).to_be_visible()


def test_the_keys_lead_there(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/stats")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(f"{site.url}/sessions")
