"""A whole transcript to take along: as text, as JSON, or as one page of HTML that needs nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator

from webapp import secrets
from webapp.transcripts.files import read_window
from webapp.transcripts.library import Transcript
from webapp.transcripts.window import FULL_LINE, MASK_ABOVE

STEP = 500
FORMATS = {
    "text": ("txt", "text/plain; charset=utf-8"),
    "markdown": ("md", "text/markdown; charset=utf-8"),
    "html": ("html", "text/html; charset=utf-8"),
    "json": ("json", "application/json"),
}
"""What each format's file name ends with, and its media type."""

_CSS = """
:root { color-scheme: light dark } body { font: 12.5px/20px ui-monospace, Menlo, Consolas, monospace;
margin: 24px auto; max-width: 120ch; padding: 0 16px } h1, p { font-family: system-ui, sans-serif }
div { display: flex } a { flex: none; width: 8ch; text-align: right; padding-right: 2ch; opacity: .7;
color: inherit; text-decoration: none; user-select: none } code { font: inherit; white-space: pre-wrap;
overflow-wrap: anywhere } div:target { background: #fff1b844 } .h { font-weight: 700 }
"""


def lines(transcript: Transcript, mask: bool) -> Iterator[tuple[int, str]]:
    """Every line with its number, masked with the lines above in view, a few hundred at a time. Of
    a line over 8 MiB the beginning, with a word about the rest."""
    start = 1
    while start <= transcript.lines:
        first = max(1, start - MASK_ABOVE) if mask else start
        found = read_window(
            transcript.path, first, start + STEP - 1, transcript.size, transcript.ours, FULL_LINE
        )
        texts = [
            line.text + (f" [… {line.cut:,} bytes more]" if line.cut else "") for line in found
        ]
        if mask and texts:
            texts = secrets.mask("\n".join(texts)).split("\n")
        for line, text in zip(found, texts, strict=True):
            if line.number >= start:
                yield line.number, text
        start += STEP


def stream(transcript: Transcript, form: str, mask: bool) -> Iterator[bytes]:
    """The file of a format of FORMATS, piece by piece."""
    writer: Callable[[Transcript, bool], Iterator[str]] = {
        "text": _text, "markdown": _text, "json": _json, "html": _html,
    }[form]  # fmt: skip
    for piece in writer(transcript, mask):
        yield piece.encode("utf-8", "replace")


def _text(transcript: Transcript, mask: bool) -> Iterator[str]:
    for _, text in lines(transcript, mask):
        yield text + "\n"


def _json(transcript: Transcript, mask: bool) -> Iterator[str]:
    facts = {
        "id": transcript.id, "title": transcript.title, "scope": transcript.scope,
        "line_count": transcript.lines, "masked": mask,
    }  # fmt: skip
    yield json.dumps(facts, ensure_ascii=False)[:-1] + ', "lines": ['
    comma = "\n"
    for number, text in lines(transcript, mask):
        yield comma + json.dumps({"line": number, "text": text}, ensure_ascii=False)
        comma = ",\n"
    yield "\n]}\n"


def _html(transcript: Transcript, mask: bool) -> Iterator[str]:
    title = html.escape(transcript.title)
    yield (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"style-src 'unsafe-inline'\"><style>{_CSS}</style>\n<h1>{title}</h1>\n"
        f"<p>{html.escape(transcript.scope)} · {html.escape(transcript.id)} · "
        f"{transcript.lines:,} lines</p>\n"
    )
    for number, text in lines(transcript, mask):
        head = ' class="h"' if text.startswith(("## ", "### ")) else ""
        yield (
            f'<div id="L{number}"{head}><a href="#L{number}">{number}</a>'
            f"<code>{html.escape(text)}</code></div>\n"
        )
    yield "</html>\n"
