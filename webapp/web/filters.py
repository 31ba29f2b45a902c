"""How values are shown: times, sizes, marked text, control characters, Markdown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from flask import Flask
from markupsafe import Markup, escape

from webapp.memory.search import MARK_OFF, MARK_ON

_LONGEST = 10**30
"""Beyond this no time is told apart; a larger number may not even be a float."""
_UNITS = ((31_536_000, "y"), (2_592_000, "mo"), (604_800, "w"), (86_400, "d"), (3_600, "h"),
          (60, "min"))  # fmt: skip
# Bidirectional overrides can make a line read as something else (CVE-2021-42574).
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def _bounded(milliseconds: int) -> int:
    return max(-_LONGEST, min(_LONGEST, milliseconds))


def iso(milliseconds: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC."""
    milliseconds = _bounded(milliseconds)
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def age(milliseconds: int, now: float | None = None) -> str:
    """How long ago in one word: `3 d ago`, `just now`, or `in 2 w`."""
    seconds = (time.time() if now is None else now) - _bounded(milliseconds) / 1000
    size = abs(seconds)
    for unit, word in _UNITS:
        if size >= unit:
            count = int(size // unit)
            return f"{count} {word} ago" if seconds > 0 else f"in {count} {word}"
    return "just now" if seconds >= 0 else "in a moment"


def when(milliseconds: int | None) -> Markup:
    """A relative time that carries the exact one."""
    if milliseconds is None:
        return Markup("—")
    exact = iso(milliseconds)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact, exact.replace("T", " ").replace("Z", " UTC"), age(milliseconds)
    )


def past(milliseconds: int) -> bool:
    """Whether a time lies behind us."""
    return milliseconds <= time.time() * 1000


def size(count: int) -> str:
    """Bytes as a person reads them: `187 KB`, `1.4 GB` (decimal units)."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 999.5 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError(count)


def number(count: int) -> str:
    """A number with thousands separators."""
    return f"{count:,}"


def marked(text: str) -> Markup:
    """Escapes a text and turns MARK_ON/MARK_OFF into <mark>; stray marks do no harm."""
    pieces = []
    open_ = False
    for piece in re.split(f"([{MARK_ON}{MARK_OFF}])", text):
        if piece == MARK_ON:
            if not open_:
                pieces.append(Markup("<mark>"))
            open_ = True
        elif piece == MARK_OFF:
            if open_:
                pieces.append(Markup("</mark>"))
            open_ = False
        else:
            pieces.append(visible(piece))
    if open_:
        pieces.append(Markup("</mark>"))
    return Markup("").join(pieces)


def _picture(match: re.Match[str]) -> Markup:
    char = match[0]
    names = {"\r": "\\r", "\x1b": "\\e", "\0": "\\0"}
    name = names.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"U+{ord(char):04X}")
    return Markup('<span class="ctl">{}</span>').format(name)


def visible(text: str) -> Markup:
    """Escapes a text and shows control, zero-width and bidirectional characters by name."""
    pieces = []
    position = 0
    for match in _HIDDEN.finditer(text):
        pieces += [escape(text[position : match.start()]), _picture(match)]
        position = match.end()
    return Markup("").join([*pieces, escape(text[position:])])


def spanned(text: str, spans: tuple[tuple[int, int], ...]) -> Markup:
    """Escapes a text and marks the given places in it."""
    pieces = []
    position = 0
    for start, end in spans:
        if start < position or end <= start:
            continue
        pieces.append(visible(text[position:start]))
        pieces.append(Markup("<mark>{}</mark>").format(visible(text[start:end])))
        position = end
    pieces.append(visible(text[position:]))
    return Markup("").join(pieces)


def highlight(text: str, needle: str) -> Markup:
    """Escapes a line and marks every occurrence of a text, whatever its case."""
    if not needle:
        return visible(text)
    found = re.finditer(re.escape(needle), text, re.IGNORECASE)
    return spanned(text, tuple(m.span() for m in found))


@lru_cache(maxsize=1)
def _markdown() -> object:
    from markdown_it import MarkdownIt

    # Images are off: a remote one would tell a third party that this page is being read.
    return (
        MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
    )


def markdown(text: str) -> Markup:
    """Markdown as safe HTML: no raw HTML, no images, links only to http, https and mailto."""
    import nh3

    html = _markdown().render(text)  # type: ignore[attr-defined]
    clean = nh3.clean(
        html,
        tags={"p", "br", "hr", "em", "strong", "code", "pre", "blockquote", "ul", "ol", "li", "a",
              "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"},
        attributes={"a": {"href"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer",
    )  # fmt: skip
    return Markup(clean)  # noqa: S704 - nh3 has cleaned it


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 entry`, `2 entries`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def pair(value: str) -> tuple[str, str]:
    """A value that is its own label in a list of choices."""
    return value, value


def counted(rows: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """Names with their counts as choices."""
    return [(name, f"{name} ({count:,})") for name, count in rows]


def init_app(app: Flask) -> None:
    """Registers the filters."""
    filters: dict[str, Callable[..., Any]] = {
        "when": when, "iso": iso, "age": age, "size": size, "number": number, "marked": marked,
        "visible": visible, "spanned": spanned, "highlight": highlight, "markdown": markdown,
        "plural": plural, "past": past, "pair": pair, "counted": counted,
    }  # fmt: skip
    for name, function in filters.items():
        app.add_template_filter(function, name)
