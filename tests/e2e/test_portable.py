"""Import in a real browser: a file is uploaded, looked at, and then imported exactly so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect


def test_a_file_is_previewed_imported_and_downloaded_again(
    server: Callable[..., Any], page: Page, tmp_path: Path
) -> None:
    site = server()
    file = tmp_path / "entries.jsonl"
    body = "\n  two lines\n\n## and a heading"
    made = [
        {"title": "From elsewhere", "body": body.strip("\n"), "kind": "lesson"},
        {"title": "", "body": "x"},
    ]
    file.write_text("\n".join(map(json.dumps, made)))
    page.goto(f"{site.url}/import")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("Into project").fill("/home/me/shop")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="2 entries in the file")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("The title is empty")
    page.get_by_role("button", name="Import 1 entry").click()
    expect(page).to_have_url(re.compile(r"/receipts/\d+$"))
    page.goto(f"{site.url}/?sort=newest")
    expect(page.locator("article")).to_contain_text("From elsewhere")
    page.get_by_role("link", name="Import or export entries").click()
    with page.expect_download() as got:
        page.get_by_role("link", name="as JSON lines").click()
    (entry,) = [json.loads(line) for line in got.value.path().read_text("utf-8").splitlines()]
    assert (entry["title"], entry["scope"], entry["body"]) == (
        "From elsewhere",
        "/home/me/shop",
        made[0]["body"],
    )
