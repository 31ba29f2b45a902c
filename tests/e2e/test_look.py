"""Every page in light and dark, wide and narrow: no violation, no overflow, enough contrast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext

from webapp import settings as setting_table
from webapp.cli.demo import build

# Background of an element: the first one above it that is not transparent. Text in front of a
# gradient or an image does not occur here.
LOW_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !node.checkVisibility({ opacityProperty: true })) continue;
    if (node.closest("[aria-hidden=true], .sr, option, script, noscript")) continue;
    const style = getComputedStyle(node);
    const [a, b] = [light(parse(style.color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const name = node.className || node.tagName;
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${name}: ${text.slice(0, 40)}`);
  }
  return [...new Set(found)];
}"""

PAGES = {
    "search": "/?q=wal",
    "entries": "/?sort=newest",
    "nothing found": "/?q=zzzzzz",
    "lines": "/?tab=transcripts&q=busy",
    "new entry": "/entries/new",
    "close entries": "/entries/new?title=Use+WAL+and+no+busy+timeout&scope=/home/demo/shop",
    "trash": "/trash",
    "sessions": "/sessions?order=project",
    "sessions with errors": "/sessions?errors=1",
    "transcripts": "/transcripts",
    "not exported": "/transcripts?show=missing",
    "cleanup": "/cleanup?max_sessions=2&keep_recent=1",
    "receipts": "/receipts",
    "stats": "/stats",
    "settings": "/settings",
    "clients": "/settings/clients",
}


@pytest.fixture
def demo_home(tmp_path: Path) -> Path:
    """A home folder with the invented data of `demo`."""
    home = tmp_path / "demo-home"
    folder = home / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    settings = setting_table.load({"opencode_db": str(folder / "opencode.db")}, {"HOME": str(home)})
    build(settings)
    return home


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_every_page(
    server: Callable[..., Any],
    context_factory: Callable[..., BrowserContext],
    tmp_path: Path,
    demo_home: Path,
    width: int,
    scheme: str,
) -> None:
    site = server(home=demo_home)
    page = context_factory(viewport=(width, 800), color_scheme=scheme).new_page()
    trouble = []
    paths = dict(PAGES)
    page.goto(f"{site.url}/?sort=newest")
    paths["entry"] = str(page.locator(".hit h2 a").first.get_attribute("href"))
    page.goto(f"{site.url}/transcripts?sort=lines")
    paths["transcript"] = (
        str(page.locator("tbody a").first.get_attribute("href")) + "/200-204?q=the"
    )
    paths["session"] = paths["transcript"].replace("/transcripts/", "/sessions/").split("/200")[0]
    page.goto(f"{site.url}/transcripts?q=refund+rows")
    paths["other session"] = str(page.locator("tbody a").first.get_attribute("href")).replace(
        "/transcripts/", "/sessions/"
    )
    session = paths["session"].split("/")[2]
    paths["promote"] = f"/promote?session={session}&lines=200-204"
    paths["promote into a file"] = f"/promote?session={session}&lines=200-240&to=file"
    paths["message"] = paths["transcript"] + "&md=200"
    page.goto(f"{site.url}/transcripts?q=odd+line+ends")
    paths["colours"] = str(page.locator("tbody a").first.get_attribute("href")) + "/50?ansi=1&q=SKU"
    for name, path in paths.items():
        answer = page.goto(f"{site.url}{path}")
        assert answer is not None and answer.status == 200, name
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            trouble.append(f"{name}: {wide} px wide")
        trouble += [f"{name}: {line}" for line in page.evaluate(LOW_CONTRAST)]
        if not page.locator("h1").count():
            trouble.append(f"{name}: no h1")
    assert trouble == []
