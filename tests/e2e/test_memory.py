"""Entries in a real browser: search as you type, open, forget, undo, restore, edit, Back."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Error, Page, expect

from webapp import settings as setting_table
from webapp.memory import entries
from webapp.store import Store

SHOP = "/home/demo/shop"
ROWS = (
    ("decision", SHOP, "Use WAL mode and a busy timeout", "Readers do not block the writer.", "db"),
    ("gotcha", SHOP, "BEGIN IMMEDIATE or the timeout is ignored", "Take the lock early.", "db"),
    ("lesson", SHOP, "VAT rounds half up", "Money is `Decimal`.", "money"),
    ("preference", "global", "Short commit messages", "They say why. 用户身份验证", ""),
)


def fill(home: Path) -> None:
    """Saves ROWS into the store of a home folder."""
    home.mkdir(parents=True, exist_ok=True)
    settings = setting_table.load({}, {"HOME": str(home)})
    with Store(settings.db).session() as store:
        for kind, scope, title, body, tag in ROWS:
            draft = entries.draft(
                scope=scope, kind=kind, title=title, body=body, tags=[tag] if tag else []
            )
            entries.save(store, draft, "build")


@pytest.fixture
def site(server: Callable[..., Any], tmp_path: Path) -> Any:
    """The running program on a filled store."""
    fill(tmp_path / "home")
    return server()


def stay(page: Page) -> None:
    """Leaves a mark that a full page load would wipe."""
    page.evaluate("window.stayed = true")


def stayed(page: Page) -> bool:
    return bool(page.evaluate("window.stayed === true"))


def test_search_as_you_type_without_a_reload_and_back_again(site: Any, page: Page) -> None:
    page.goto(site.url)
    expect(page.locator(".hit")).to_have_count(4)
    stay(page)
    page.locator("#q").blur()
    page.keyboard.press("/")
    page.keyboard.type("timeout", delay=20)
    expect(page.locator(".hit")).to_have_count(2)
    expect(page.locator(".tabs [aria-current] .count")).to_have_text("2")
    expect(page.locator(".hit mark").first).to_have_text("timeout")
    expect(page).to_have_url(f"{site.url}/?q=timeout")
    assert stayed(page)
    expect(page.locator("#q")).to_be_focused()

    page.locator("select[name=kind]").select_option("gotcha")
    expect(page.locator(".hit")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"\?q=timeout&kind=gotcha"))
    assert stayed(page)

    page.get_by_role("link", name="BEGIN IMMEDIATE or the timeout is ignored").click()
    expect(page.locator("h1")).to_have_text("BEGIN IMMEDIATE or the timeout is ignored")
    page.go_back()
    expect(page.locator("#q")).to_have_value("timeout")
    expect(page.locator(".hit")).to_have_count(1)
    expect(page.locator(".rail")).to_be_visible()
    page.go_forward()
    expect(page.locator("h1")).to_have_text("BEGIN IMMEDIATE or the timeout is ignored")


@pytest.mark.allow_page_problems("htmx:afterRequest", "htmx:sendAbort")
def test_an_older_answer_never_overwrites_a_newer_one(site: Any, page: Page) -> None:
    held: list[Any] = []
    page.route(re.compile(r"q=ti(&|$)"), lambda route: held.append(route))
    page.goto(site.url)
    page.locator("#q").fill("ti")
    page.wait_for_timeout(250)
    page.locator("#q").fill("commit")
    expect(page.locator(".hit h2")).to_have_text(["Short commit messages"])
    assert held, "the slow request was never sent"
    for route in held:
        # The browser may have given the request up by now, which is as good.
        with contextlib.suppress(Error):
            route.fulfill(body="<p>too late</p>", content_type="text/html")
    page.wait_for_timeout(200)
    expect(page.locator(".hit h2")).to_have_text(["Short commit messages"])


def test_two_characters_of_chinese_are_found(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/?q=身份")
    expect(page.locator(".hit h2")).to_have_text(["Short commit messages"])


def test_forget_undo_and_restore(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/?sort=title")
    stay(page)
    row = page.locator(".hit", has_text="VAT rounds half up")
    row.get_by_role("button", name="forget").click()
    expect(page.locator(".toast")).to_contain_text("is in the trash")
    expect(page.locator(".hit")).to_have_count(3)
    expect(page.locator(".rail-link", has_text="Trash").locator(".count")).to_have_text("1")
    assert stayed(page), "forgetting reloaded the page"
    expect(page).to_have_url(f"{site.url}/?sort=title")

    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".hit")).to_have_count(4)
    expect(page.locator(".rail-link", has_text="Trash").locator(".count")).to_have_text("0")

    row.get_by_role("button", name="forget").click()
    expect(page.locator(".hit")).to_have_count(3)
    page.goto(f"{site.url}/trash")
    page.get_by_role("button", name="restore “VAT rounds half up”").click()
    expect(page.locator(".toast")).to_contain_text("is back in /home/demo/shop")
    page.get_by_role("link", name="open", exact=True).click()
    expect(page.locator("h1")).to_have_text("VAT rounds half up")
    expect(page.locator(".prose code")).to_have_text("Decimal")


@pytest.mark.allow_page_problems("409")
def test_a_restore_in_conflict_offers_a_choice(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/?q=VAT")
    page.locator(".hit h2 a").click()
    gone = page.url
    page.get_by_role("button", name="Forget").click()
    page.goto(f"{site.url}/entries/new")
    page.get_by_label("Title").fill("VAT rounds half up")
    page.get_by_label("Project").fill(SHOP)
    page.get_by_label("Body", exact=True).fill("Another text.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("VAT rounds half up")

    page.goto(f"{site.url}/trash")
    page.get_by_role("button", name="restore “VAT rounds half up”").click()
    expect(page.locator(".conflict")).to_contain_text("needs a choice")
    expect(page.locator(".conflict")).to_contain_text("Another text.")
    page.get_by_role("button", name="Keep both").click()
    expect(page.locator(".toast")).to_contain_text("VAT rounds half up (2)")
    page.goto(gone)
    expect(page.locator("h1")).to_have_text("VAT rounds half up (2)")


@pytest.mark.allow_page_problems("409")
def test_an_edit_never_overwrites_what_somebody_else_saved(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/?q=VAT")
    page.locator(".hit h2 a").click()
    page.get_by_role("link", name="Edit").click()
    other = page.context.new_page()
    other.goto(page.url)
    other.get_by_label("Body", exact=True).fill("What the other saved.")
    other.get_by_role("button", name="Save").click()
    expect(other.locator(".toast")).to_contain_text("Saved")

    page.get_by_label("Body", exact=True).fill("What I wrote.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".banner.bad")).to_contain_text("Somebody changed this entry")
    expect(page.locator(".conflict")).to_contain_text("What the other saved.")
    expect(page.get_by_label("Body", exact=True)).to_have_value("What I wrote.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".prose")).to_have_text("What I wrote.")


@pytest.mark.allow_page_problems("400")
def test_a_secret_is_refused_and_the_text_is_kept(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/entries/new")
    page.get_by_label("Title").fill("The token")
    secret = "ghp_" + "FakeFixture0" * 3
    page.get_by_label("Body", exact=True).fill(f"It is {secret}.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".field-error")).to_contain_text("GitHub token")
    assert secret not in page.locator(".field-error").inner_text()
    expect(page.get_by_label("Body", exact=True)).to_have_value(f"It is {secret}.")


def test_keys_move_open_and_go(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/?sort=title")
    page.locator("#q").blur()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(".hit.active h2")).to_have_text("Short commit messages")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("BEGIN IMMEDIATE")
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(f"{site.url}/trash")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_everything_works_without_script(
    site: Any, context_factory: Callable[..., BrowserContext]
) -> None:
    page = context_factory(java_script_enabled=False).new_page()
    page.goto(site.url)
    page.locator("#q").fill("timeout")
    page.locator("#q").press("Enter")
    expect(page.locator(".hit")).to_have_count(2)
    page.locator(".hit", has_text="BEGIN").get_by_role("button", name="forget").click()
    expect(page.locator(".toast")).to_contain_text("is in the trash")
    expect(page.locator(".hit")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".hit")).to_have_count(2)
    page.get_by_role("link", name="New entry").click()
    page.get_by_label("Title").fill("Written without script")
    page.get_by_label("Body", exact=True).fill("It works.")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("Written without script")


def test_another_process_writes_and_the_next_search_shows_it(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/?q=elsewhere")
    expect(page.locator(".empty h2")).to_have_text("No entry matches")
    settings = setting_table.load({}, {"HOME": str(site.home)})
    with Store(settings.db).session() as store:
        draft = entries.draft(
            scope="global", kind="fact", title="Made elsewhere", body="By another."
        )
        entries.save(store, draft, "agent")
    page.reload()
    expect(page.locator(".hit h2")).to_have_text(["Made elsewhere"])


def test_a_server_that_is_gone_is_told(site: Any, page: Page, page_problems: Any) -> None:
    page_problems.allow("ERR_CONNECTION_REFUSED", "htmx:afterRequest", "htmx:sendError")
    page.goto(site.url)
    site.stop()
    page.locator("#q").fill("timeout")
    expect(page.locator(".toast.bad")).to_contain_text("The server does not answer")
