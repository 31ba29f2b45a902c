"""Promote in a real browser: from selected lines to an entry and back, into AGENTS.md and out again,
and close entries as one types."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

FIXTURE = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("# Shop\n\n## Keys\n\nNone.\n\n## Rest\n")
    return folder


@pytest.fixture
def site(server: Callable[..., Any], tmp_path: Path, project: Path) -> Any:
    """The running program beside an OpenCode whose sessions are of a real folder."""
    folder = tmp_path / "home" / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    shutil.copyfile(FIXTURE, folder / "opencode.db")
    with closing(sqlite3.connect(folder / "opencode.db")) as connection, connection:
        connection.execute("UPDATE project SET worktree = ?", (str(project),))
        connection.execute("UPDATE session SET directory = ?", (str(project),))
    return server()


def test_from_selected_lines_to_an_entry_and_back(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{KEYS}")
    button = page.get_by_role("button", name="promote")
    expect(button).to_be_disabled()
    page.keyboard.press("p")
    expect(page.locator(".toast")).to_contain_text("Click a line number first")
    page.locator("#L14 .n").click()
    page.locator("#L15 .n").click(modifiers=["Shift"])
    expect(button).to_be_enabled()
    page.keyboard.press("p")
    expect(page).to_have_url(f"{site.url}/promote?session={KEYS}&lines=14-15")
    expect(page.get_by_label("Title")).to_have_value(re.compile("^I will not repeat"))
    expect(page.get_by_label("Project")).to_have_value(re.compile("/shop$"))
    page.get_by_label("Title").fill("Keys are rotated, not kept")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("Keys are rotated, not kept")
    page.get_by_role("link", name="14–15 of A key was pasted by mistake").click()
    expect(page.locator(".row.selected")).to_have_count(2)
    expect(page.locator(".moved")).to_have_count(0)


@pytest.mark.allow_page_problems("409")
def test_into_agents_md_and_out_again(site: Any, page: Page, project: Path) -> None:
    path = project / "AGENTS.md"
    before = path.read_text()
    page.goto(f"{site.url}/transcripts/{KEYS}/15")
    page.get_by_role("button", name="promote").click()
    page.get_by_role("link", name="Into AGENTS.md").click()
    expect(page.locator(".choice input:checked")).to_have_count(1)
    page.locator(".choice select").first.select_option(label="under ## Keys")
    page.get_by_label("Text", exact=True).fill("Keys are rotated, never kept.")
    page.get_by_role("button", name="Show the difference").click()
    expect(page.locator(".d-add")).to_have_text("+Keys are rotated, never kept.\n+")
    assert path.read_text() == before
    # Somebody writes meanwhile: the new difference is shown, and that one is written.
    path.write_text(before.replace("None.", "Few."))
    page.get_by_role("button", name="Write it").click()
    expect(page.locator(".banner.bad")).to_contain_text("so nothing was written")
    expect(page.locator(".diff")).to_contain_text("Few.")
    page.get_by_role("button", name="Write it").click()
    expect(page.locator("h1")).to_have_text(re.compile(r"^Added 2 lines to .*/AGENTS\.md$"))
    assert "Few.\n\nKeys are rotated, never kept.\n\n## Rest" in path.read_text()
    page.get_by_role("button", name="Take it back").click()
    expect(page.locator("h1")).to_have_text(re.compile("^Took back"))
    assert path.read_text() == before.replace("None.", "Few.")


def test_a_message_of_a_session_is_promoted_by_a_key(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/sessions/{KEYS}")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".msg.active .count")).to_have_text("2")
    page.keyboard.press("p")
    expect(page).to_have_url(re.compile(r"/promote\?session=.*&message=msg_"))
    expect(page.get_by_label("Body")).to_have_value(re.compile("^I will not repeat"))


def test_close_entries_come_as_one_types_and_the_save_does_not_ask_again(
    site: Any, page: Page
) -> None:
    page.goto(f"{site.url}/entries/new")
    page.get_by_label("Title").fill("We use tabs")
    page.get_by_label("Body").fill("In every file.")
    page.get_by_role("button", name="Save").click()
    page.goto(f"{site.url}/entries/new")
    page.get_by_label("Body").fill("In Python files, four of them.")
    page.get_by_label("Title").press_sequentially("We use spaces", delay=10)
    close = page.locator(".close-ones")
    expect(close).to_contain_text("We use tabs")
    close.get_by_text("We use tabs").first.click()
    expect(close.locator("pre")).to_have_text("In every file.")
    page.get_by_label("Title").fill("Money is Decimal")
    expect(close).to_have_count(0)
    page.get_by_label("Title").fill("We use spaces")
    expect(close).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("We use spaces")


@pytest.mark.allow_page_problems("409")
def test_all_of_it_without_script(
    site: Any, project: Path, context_factory: Callable[..., BrowserContext]
) -> None:
    page = context_factory(java_script_enabled=False).new_page()
    page.goto(f"{site.url}/transcripts/{KEYS}/15")
    page.get_by_role("button", name="promote").click()
    page.get_by_label("Title").fill("We use tabs")
    page.get_by_role("button", name="Save").click()
    page.goto(f"{site.url}/transcripts/{KEYS}/10")
    page.get_by_role("button", name="promote").click()
    page.get_by_label("Title").fill("We use spaces")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".close-ones")).to_contain_text("We use tabs")
    page.get_by_role("button", name="Save anyway").click()
    expect(page.locator("h1")).to_have_text("We use spaces")
    page.get_by_role("link", name="Promote").click()
    page.get_by_role("link", name="Into AGENTS.md").click()
    page.get_by_role("button", name="Show the difference").click()
    page.get_by_role("button", name="Write it").click()
    expect(page.locator("h1")).to_have_text(re.compile(r"^Added \d+ lines to"))
    assert "## We use spaces" in (project / "AGENTS.md").read_text()
