"""How values are shown: times, sizes, marked text, control characters, Markdown."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from flask import Flask
from markupsafe import Markup, escape

from webapp import secrets
from webapp.memory.search import MARK_OFF, MARK_ON

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_LONGEST = 10**30
"""Beyond this no time is told apart; a larger number may not even be a float."""
_UNITS = ((31_536_000, "y"), (2_592_000, "mo"), (604_800, "w"), (86_400, "d"), (3_600, "h"),
          (60, "min"))  # fmt: skip
# Bidirectional overrides can make a line read as something else (CVE-2021-42574), and tags and
# variation selectors spell a text that a model reads and nobody sees.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064"
    "\u2066-\u2069\ufeff\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
MAX_NAMED = 2_000
MAX_MARKS = 1_000
"""Characters that are shown by name, and hits that are marked, in one line: each is an element of its
own, and a line of 5 MB that consists of them took 70 s and 70 MB. The others are shown as one sign, and
not marked."""

_LINE_END = re.compile(r"\r(?=\n|\Z)")


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


def short(count: float) -> str:
    """A number in at most five characters or so: `9,999`, `12.3K`, `1.2M`."""
    if count < 10_000:
        return f"{count:,.0f}"
    for unit in ("K", "M", "B", "T"):
        count /= 1000
        if count < 999.5 or unit == "T":
            return f"{count:.0f}{unit}" if count >= 99.95 else f"{count:.1f}{unit}"
    raise AssertionError(count)


def cost(dollars: float) -> str:
    """US dollars, as OpenCode counts them: `$0.12`, `<$0.01`, and `$0` for a free model."""
    if dollars == 0:
        return "$0"
    return "<$0.01" if 0 < dollars < 0.005 else f"${dollars:,.2f}"


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


def _name(match: re.Match[str]) -> str:
    char = match[0]
    names = {"\r": "\\r", "\x1b": "\\e", "\0": "\\0"}
    return names.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 256 else f"U+{ord(char):04X}")


def _picture(match: re.Match[str]) -> Markup:
    return Markup('<span class="ctl">{}</span>').format(_name(match))


def visible(text: str) -> Markup:
    """Escapes a text and shows control, zero-width and bidirectional characters by name."""
    pieces = []
    position = 0
    for match in itertools.islice(_HIDDEN.finditer(text), MAX_NAMED):
        pieces += [escape(text[position : match.start()]), _picture(match)]
        position = match.end()
    rest = text[position:]
    if len(pieces) == 2 * MAX_NAMED:
        rest = _HIDDEN.sub(_sign, rest)
    return Markup("").join([*pieces, escape(rest)])


def _sign(match: re.Match[str]) -> str:
    return chr(0x2400 + ord(match[0])) if match[0] < " " else "\ufffd"


def spanned(text: str, spans: tuple[tuple[int, int], ...]) -> Markup:
    """Escapes a text and marks the given places in it."""
    pieces: list[Markup] = []
    _mark(pieces, text, 0, len(text), _apart(spans))
    return Markup("").join(pieces)


def _apart(spans: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """The last span comes first."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if start < end and (not found or start >= found[-1][1]):
            found.append((start, end))
    return found[::-1]


def _mark(
    pieces: list[Markup], text: str, position: int, stop: int, spans: list[tuple[int, int]]
) -> None:
    """Adds a stretch of a text to `pieces`; spans that end in it are taken off."""
    while spans and spans[-1][0] < stop:
        start, end = max(position, spans[-1][0]), min(stop, spans[-1][1])
        pieces.append(visible(text[position:start]))
        pieces.append(Markup("<mark>{}</mark>").format(visible(text[start:end])))
        position = end
        if spans[-1][1] > stop:
            return
        spans.pop()
    pieces.append(visible(text[position:stop]))


def highlight(text: str, needle: str) -> Markup:
    """Escapes a line, marks every occurrence of a text, whatever its case, and notes the colours
    that a terminal would show."""
    found = re.finditer(re.escape(needle), text, re.IGNORECASE) if needle else ()
    spans = tuple(m.span() for m in itertools.islice(found, MAX_MARKS))
    return _coloured(text, spans) if "\x1b[" in text else spanned(text, spans)


_SGR = re.compile("\x1b\\[([0-9;]{0,30})m")
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: (), 29: (), 49: ()}
_COLOURS = (39, *range(30, 38), *range(90, 98))
MAX_SGR = 2_000
"""Sequences of one line that are understood: each becomes two elements, which a browser that gets a
million of them does not survive. The others are shown as text."""


def _coloured(text: str, spans: tuple[tuple[int, int], ...]) -> Markup:
    """Escapes and marks a text. Sequences for the 16 colours, bold, dim, italic and underline stand
    in an element of class `sgr`, and what they colour in one of class `ansi-31` or `ansi-bold`;
    other sequences are text."""
    left = _apart(spans)
    pieces: list[Markup] = []
    position, style = 0, dict[str, str]()
    for number, match in enumerate(_SGR.finditer(text)):
        after = _restyled(style, match[1]) if number < MAX_SGR else None
        if after is None:
            continue
        _styled(pieces, text, position, match.start(), left, style)
        pieces.append(Markup('<span class="sgr">'))
        _mark(pieces, text, match.start(), match.end(), left)
        pieces.append(Markup("</span>"))
        position, style = match.end(), after
    _styled(pieces, text, position, len(text), left, style)
    return Markup("").join(pieces)


def _styled(
    pieces: list[Markup], text: str, start: int, stop: int, spans: list[tuple[int, int]],
    style: dict[str, str],
) -> None:  # fmt: skip
    if start == stop:
        return
    if style:
        names = " ".join(f"ansi-{name}" for name in style.values())
        pieces.append(Markup('<span class="{}">').format(names))
    _mark(pieces, text, start, stop, spans)
    if style:
        pieces.append(Markup("</span>"))


def _restyled(style: dict[str, str], codes: str) -> dict[str, str] | None:
    """The style after a sequence, or None when it says something that is not shown."""
    after = dict(style)
    for code in (int(code or 0) for code in codes.split(";")):
        if code == 0:
            after = {}
        elif code in _ON:
            after[_ON[code]] = _ON[code]
        elif code in _OFF:
            for name in _OFF[code]:
                after.pop(name, None)
        elif code in _COLOURS:
            after.pop("colour", None)
            if code != 39:
                after["colour"] = str(code)
        else:
            return None
    return after


def coloured(rows: Iterable[Any]) -> bool:
    """Whether a line among these holds a sequence that colours text."""
    return any(
        _restyled({}, match[1]) is not None
        for row in rows
        if "\x1b[" in row.text
        for match in _SGR.finditer(row.text)
    )


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Images are off: a remote one would tell a third party that this page is being read.
    return (
        MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
    )


def markdown(text: str) -> Markup:
    """Markdown as safe HTML: no raw HTML, no images, links only to http, https and mailto."""
    return _clean(_markdown().render(text), "pass_through")


def message(text: str, mask: bool) -> Markup:
    """Markdown of a message as safe HTML, under a heading of the page: its headings begin at the
    third level, characters that are not seen are named, and a link that leads to no other site is
    text, as what it leads to is a file of the project. `mask` is for a credential that only the
    rendered text has in one piece (`ghp\\_…`); one in the text as it is, is masked already."""
    parser = _markdown()
    named = _HIDDEN.sub(_name, _LINE_END.sub("", text))
    tokens = parser.parse(named)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
    html = _clean(parser.renderer.render(tokens, parser.options, {}), "deny")
    # No credential has room for a "<", so that no tag is taken for a part of one.
    return Markup(secrets.mask(html)) if mask else html  # noqa: S704 - nh3 has cleaned it


def _clean(html: str, relative: Literal["pass_through", "deny"]) -> Markup:
    import nh3

    clean = nh3.clean(
        html,
        tags={"p", "br", "hr", "em", "strong", "code", "pre", "blockquote", "ul", "ol", "li", "a",
              "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"},
        attributes={"a": {"href"}},
        url_schemes={"http", "https", "mailto"},
        url_relative=relative,
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
        "message": message, "coloured": coloured,
        "plural": plural, "short": short, "cost": cost, "past": past, "pair": pair, "counted": counted,
    }  # fmt: skip
    for name, function in filters.items():
        app.add_template_filter(function, name)
