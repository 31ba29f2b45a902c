"""Transcripts in a real browser: from a hit to its line, a range, a copied link, cleanup."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

FIXTURE = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
CHECKOUT = "ses_dd3fa6caeffev6OGTMDvzIlttd"
PASTED_KEY = "ses_dd3fa5e7effemH7wTRNHHN8qG8"


@pytest.fixture
def site(server: Callable[..., Any], tmp_path: Path) -> Any:
    """The running program beside an OpenCode that has sessions and no transcript yet."""
    folder = tmp_path / "home" / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    shutil.copyfile(FIXTURE, folder / "opencode.db")
    return server()


def export_all(page: Page, site: Any) -> None:
    page.goto(f"{site.url}/transcripts")
    page.get_by_role("button", name=re.compile("Export all")).click()
    expect(page.locator(".banner.good")).to_contain_text("Done.")


def band(page: Page) -> list[int]:
    """The numbers of the selected lines."""
    ids: list[str] = page.eval_on_selector_all(".row.selected", "rows => rows.map(r => r.id)")
    return [int(one[1:]) for one in ids]


def in_view(page: Page, line: int) -> bool:
    return bool(
        page.evaluate(
            "id => { const box = document.getElementById(id).getBoundingClientRect();"
            " return box.top >= 0 && box.bottom <= innerHeight; }",
            f"L{line}",
        )
    )


def test_export_all_search_and_follow_a_hit_to_its_line(site: Any, page: Page) -> None:
    export_all(page, site)
    page.get_by_role("link", name="Transcripts", exact=True).last.click()
    expect(page.locator("tbody tr")).to_have_count(15)
    page.locator("#q").fill("planted-exact-value-7731")
    page.locator("#q").press("Enter")
    expect(page.locator(".tabs [aria-current]")).to_contain_text("Transcripts")
    expect(page.locator(".file-hit").first).to_be_visible()
    hit = page.locator(".file-hit", has=page.get_by_role("link", name="(long, compacted twice)"))
    line = hit.locator(".is-hit").first
    number = int(line.locator(".n").inner_text())
    line.locator("a").click()
    expect(page).to_have_url(re.compile(rf"/transcripts/ses_\w+/{number}\?q=.*#L{number}$"))
    assert band(page) == [number]
    assert in_view(page, number)
    expect(page.locator(f"#L{number} mark").first).to_have_text(
        re.compile("planted", re.IGNORECASE)
    )


def test_a_range_is_selected_and_its_copied_link_opens_elsewhere(
    site: Any, context_factory: Callable[..., BrowserContext]
) -> None:
    context = context_factory(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{site.url}/transcripts/{LONG}/920")
    page.evaluate("window.stayed = true")
    page.locator("#L917 .n").click()
    page.locator("#L921 .n").click(modifiers=["Shift"])
    assert band(page) == [917, 918, 919, 920, 921]
    expect(page).to_have_url(f"{site.url}/transcripts/{LONG}/917-921")
    page.keyboard.press("y")
    expect(page.locator(".toast")).to_have_text(re.compile("Copied the link to lines 917 to 921"))
    assert page.evaluate("window.stayed") is True
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(rf"{site.url}/transcripts/{LONG}/917-921\?h=[0-9a-f]{{8}}#L917", link)
    texts = page.locator(".row.selected code").all_inner_texts()

    other = context_factory().new_page()
    other.goto(link)
    assert band(other) == [917, 918, 919, 920, 921]
    assert other.locator(".row.selected code").all_inner_texts() == texts
    assert in_view(other, 917)
    expect(other.locator(".banner")).to_have_count(0)

    other.goto(re.sub(r"h=[0-9a-f]{8}", "h=00000000", link))
    expect(other.locator(".banner.warn")).to_contain_text("It stands nowhere else")
    other.goto(link.replace("/917-921", "/17-21").replace("#L917", "#L17"))
    expect(other.locator(".banner.warn")).to_contain_text("copied from other text")
    other.get_by_role("link", name="lines 917-921").click()
    assert band(other) == [917, 918, 919, 920, 921]


def test_a_range_typed_by_hand_opens_its_window(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{LONG}#L1000-L1004")
    expect(page).to_have_url(f"{site.url}/transcripts/{LONG}/1000-1004#L1000")
    assert band(page) == [1000, 1001, 1002, 1003, 1004]
    assert in_view(page, 1000)


def test_without_script_a_linked_range_is_shown_and_lines_are_links(
    site: Any, context_factory: Callable[..., BrowserContext]
) -> None:
    page = context_factory(java_script_enabled=False).new_page()
    page.goto(f"{site.url}/transcripts/{LONG}/1000-1004")
    expect(page.locator(".row.selected")).to_have_count(5)
    page.locator("#L1010 .n").click()
    expect(page).to_have_url(f"{site.url}/transcripts/{LONG}/1010")
    expect(page.locator(".row.selected")).to_have_count(1)
    page.get_by_label("Find in this transcript").fill("SKU-6300")
    page.get_by_label("Find in this transcript").press("Enter")
    expect(page.locator(".row.selected code")).to_contain_text("SKU-6300")


def test_previous_next_jump_and_find(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{LONG}")
    expect(page.locator(".row").first).to_have_id("L1")
    expect(page.locator(".row")).to_have_count(200)
    page.get_by_role("link", name="Next lines").click()
    expect(page.locator(".row").first).to_have_id("L201")
    page.go_back()
    expect(page.locator(".row").first).to_have_id("L1")
    page.go_forward()
    page.get_by_role("link", name="Previous lines").click()
    expect(page.locator(".row").first).to_have_id("L1")
    page.get_by_label("Go to line or range").fill("1151-1152")
    page.get_by_label("Go to line or range").press("Enter")
    expect(page.locator(".row.selected")).to_have_count(2)
    assert in_view(page, 1151)

    page.get_by_label("Find in this transcript").fill("price list 3")
    page.get_by_role("button", name="Previous hit").click()
    expect(page.locator(".row.selected code")).to_contain_text("rice list 3")
    last = band(page)
    expect(page.locator(".find .count")).to_have_text(re.compile(r"^(\d+) of \1$"))
    page.get_by_role("button", name="Next hit").click()
    expect(page.locator(".find .count")).to_have_text(re.compile(r"^1 of \d+$"))
    assert band(page) < last


@pytest.mark.allow_page_problems("400", "404")
def test_bad_ranges_and_unknown_sessions_say_what_to_do(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{LONG}/9-3")
    expect(page.locator(".error")).to_contain_text("runs backwards. Did you mean 3-9?")
    page.goto(f"{site.url}/transcripts/{LONG}/999999")
    expect(page.locator(".record .empty")).to_contain_text("This transcript has 1,172 lines.")
    page.goto(f"{site.url}/transcripts/ses_nobody")
    expect(page.locator(".error")).to_contain_text("Neither a transcript nor OpenCode knows")


def test_wrap_is_remembered(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{CHECKOUT}")
    page.keyboard.press("w")
    expect(page.locator(".rows")).to_have_class(re.compile("wrap"))
    page.reload()
    expect(page.locator(".rows")).to_have_class(re.compile("wrap"))
    expect(page.get_by_role("button", name="wrap")).to_have_attribute("aria-pressed", "true")


def test_a_pasted_key_is_masked(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{PASTED_KEY}")
    expect(page.locator(".rows")).to_contain_text("ghp_…[masked 40]")
    key = "ghp_" + "FakeFixture0" * 3
    assert key not in page.content()
    page.get_by_role("button", name="reveal").first.click()
    expect(page.locator(".row.selected code")).to_contain_text(key)
    page.goto(f"{site.url}/receipts")
    expect(page.locator("tbody tr").first).to_contain_text("Revealed line 10 of")
    page.locator("tbody a").first.click()
    assert key not in page.content()


def test_dry_run_apply_receipt_and_export_again(site: Any, page: Page, page_problems: Any) -> None:
    page_problems.allow("410")
    export_all(page, site)
    page.goto(f"{site.url}/cleanup")
    page.get_by_label("Keep at most").fill("2")
    page.get_by_label("Never remove the newest").fill("2")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#plan-title")).to_contain_text("13 of 15 transcripts would go")
    expect(page.locator("tbody tr")).to_have_count(13)
    page.get_by_role("button", name="Remove 13 transcripts").click()
    expect(page.locator(".banner.good")).to_contain_text("Done.")
    expect(page.locator("#job progress")).to_have_attribute("value", "13")
    page.get_by_role("link", name="Receipt", exact=True).click()
    expect(page.locator("h1")).to_have_text("Removed 13 transcripts")
    expect(page.locator("tbody tr")).to_have_count(13)
    page.goto(f"{site.url}/transcripts")
    expect(page.locator("tbody tr")).to_have_count(2)

    page.goto(f"{site.url}/transcripts/{LONG}/920")
    expect(page.locator(".empty")).to_contain_text("This transcript was removed by a cleanup")
    page.get_by_role("button", name="Put it back").click()
    expect(page.locator(".row.selected")).to_have_id("L920")

    page.goto(f"{site.url}/receipts")
    page.get_by_role("link", name="Removed 13 transcripts").click()
    page.get_by_role("button", name="Put 12 transcripts back").click()
    expect(page.locator(".toast")).to_contain_text("Put 12 transcripts back.")
    page.goto(f"{site.url}/transcripts")
    expect(page.locator("tbody tr")).to_have_count(15)


@pytest.mark.allow_page_problems("409")
def test_a_plan_for_a_library_that_changed_is_refused(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{LONG}")
    page.goto(f"{site.url}/transcripts/{CHECKOUT}")
    page.goto(f"{site.url}/cleanup?max_sessions=1&keep_recent=1")
    expect(page.locator("tbody tr")).to_have_count(1)
    other = page.context.new_page()
    other.goto(f"{site.url}/transcripts/{PASTED_KEY}")
    expect(other.locator(".row").first).to_be_visible()
    page.get_by_role("button", name="Remove 1 transcript").click()
    expect(page.locator(".banner.bad")).to_contain_text("nothing was removed")
    expect(page.locator("#plan-title")).to_contain_text("2 of 3 transcripts would go")


def test_the_jump_box_understands_what_ripgrep_prints(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{CHECKOUT}")
    page.get_by_label("Go to line or range").fill(f"shop/{LONG}.md:919:PLANTED-EXACT-VALUE-7731 x")
    page.get_by_label("Go to line or range").press("Enter")
    expect(page).to_have_url(f"{site.url}/transcripts/{LONG}/919#L919")
    assert in_view(page, 919)


def test_a_download_is_the_whole_transcript(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{LONG}/919")
    page.locator("summary", has_text="download").click()
    with page.expect_download() as started:
        page.get_by_role("link", name="text", exact=True).click()
    assert started.value.suggested_filename == f"{LONG}.txt"
    text = Path(started.value.path()).read_text("utf-8")
    assert text.count("\n") == 1172
    assert text.split("\n")[918].startswith("PLANTED-EXACT-VALUE-7731")


def panel_beside(page: Page) -> bool:
    """Whether the rendered message stands to the right of the lines and not above them."""
    return bool(
        page.evaluate(
            "() => document.querySelector('#message').getBoundingClientRect().left >="
            " document.querySelector('#record').getBoundingClientRect().right"
        )
    )


def test_a_message_is_rendered_beside_its_lines(site: Any, page: Page) -> None:
    page.goto(f"{site.url}/transcripts/{LONG}/920")
    page.evaluate("window.stayed = true")
    page.locator("#L925 .n").click()
    panel = page.locator("#message")
    expect(panel).to_be_hidden()
    heading = page.locator(".row.h2", has=page.locator("a.md")).last
    heading.scroll_into_view_if_needed()
    before = heading.bounding_box()
    number = str(heading.get_attribute("id"))[1:]
    heading.get_by_role("link", name="rendered").click()
    expect(panel).to_be_visible()
    expect(panel).to_have_attribute("data-first", number)
    expect(panel).to_be_focused()
    expect(page).to_have_url(f"{site.url}/transcripts/{LONG}/925?md={number}")
    assert panel_beside(page)
    after = heading.bounding_box()
    assert before and after and 0 <= after["y"] < 800
    expect(heading.locator("a.md")).to_have_attribute("aria-current", "true")
    assert page.evaluate("window.stayed") is True

    page.keyboard.press("m")
    expect(panel).to_be_hidden()
    expect(page).not_to_have_url(re.compile("md="))
    assert page.evaluate("window.stayed") is True
    page.keyboard.press("m")
    expect(panel).to_contain_text("lines")
    first = int(str(panel.get_attribute("data-first")))
    assert first < 925 < int(number) and band(page) == [925]
    page.go_back()
    expect(panel).to_be_hidden()
    assert band(page) == [925]
    page.go_forward()
    expect(panel).to_be_visible()
    expect(panel).to_have_attribute("data-first", str(first))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("message of the line rendered")


def test_without_script_and_on_a_phone_the_message_stands_above_its_lines(
    site: Any, context_factory: Callable[..., BrowserContext]
) -> None:
    page = context_factory(java_script_enabled=False, viewport=(375, 700)).new_page()
    page.goto(f"{site.url}/transcripts/{LONG}/920")
    page.locator("a.md").first.click()
    panel, record = page.locator("#message"), page.locator("#record")
    expect(panel).to_be_in_viewport()
    boxes = panel.bounding_box(), record.bounding_box()
    assert boxes[0] and boxes[1]
    assert boxes[0]["y"] + boxes[0]["height"] <= boxes[1]["y"]
    assert boxes[0]["height"] <= 0.7 * 700 + 1
    panel.get_by_role("link", name="close").click()
    expect(panel).to_be_hidden()
    expect(page.locator(".row").first).to_be_visible()


def test_the_colours_of_a_terminal_come_and_go(site: Any, page: Page) -> None:
    folder = site.home / ".local/share/opencode-memory/transcripts/notes"
    folder.mkdir(parents=True)
    (folder / "ses_colours.md").write_text("# N\n\x1b[31mred\x1b[0m plain\n")
    page.goto(f"{site.url}/transcripts/ses_colours")
    code = page.locator("#L2 code")
    assert code.inner_text() == "\\e[31mred\\e[0m plain"
    page.get_by_role("button", name="colours").click()
    assert code.inner_text() == "red plain"
    colour = "e => getComputedStyle(e).color"
    assert code.locator(".ansi-31").evaluate(colour) != code.evaluate(colour)
    page.reload()
    assert code.inner_text() == "red plain"
    page.get_by_role("button", name="colours").click()
    assert code.inner_text() == "\\e[31mred\\e[0m plain"
    page.keyboard.press("m")
    expect(page.locator(".toast")).to_contain_text("Another program wrote this transcript")
