"""Exact, case-insensitive search of the transcripts, that can be looked at while it goes on."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from webapp import secrets
from webapp.errors import InvalidInput, Unreadable
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import ripgrep, window
from webapp.transcripts.files import BLOCK, LINE_SHOWN
from webapp.transcripts.library import Text, Transcript, bytes_in, newest_first, text_of

MAX_HITS = 200
MAX_COUNT = 5_000
"""After so many hits the search is stopped and the count is told as a lower bound."""

MAX_TEXT = 1_000
"""Characters of a text to look for; ripgrep takes seconds for a pattern ten times as long."""

MAX_WORDS = 4
TIMEOUT_S = 30.0
MAPPED = 1 << 20
"""Bytes of a transcript, on average, from which on the files are mapped into memory."""

FIRST_BATCH = 32 << 20
LAST_BATCH = 4 << 30
BATCH_FILES = 4_000
"""Files that one ripgrep is named: with paths of 100 bytes, a fifth of what Linux takes, and less
than macOS does."""

NICE = 5
SHOWN = 500
"""Characters of a line that a hit carries, around the match."""

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
    """What a search has found so far. `exact` is false when no line held the very text and lines that
    hold every word are looked for instead; `complete` is false while the count is a lower bound;
    `in_files` counts the transcripts with hits, of which `files` holds those that are shown.

    `running` says that it goes on, and has read `searched` of `size` bytes. `trouble` is why
    something was not searched.
    """

    files: tuple[FileHits, ...]
    count: int
    shown: int
    exact: bool
    complete: bool
    in_files: int = 0
    running: bool = False
    searched: int = 0
    size: int = 0
    trouble: str = ""


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
    patience: float | None = None,
) -> GrepResult:
    """Lines that hold `text`, in one transcript, one scope (with global) or all, for at most
    `patience` seconds (TIMEOUT_S). Raises InvalidInput and Unreadable.

    If no line holds it and it has several words (and is not in quotes), lines that hold every word.
    """
    search = Search(
        store, settings, text, session=session, scope=scope, context=context, max_hits=max_hits,
        mask=mask,
    )  # fmt: skip
    search.run(TIMEOUT_S if patience is None else patience)
    found = search.result()
    if not found.count and found.trouble:
        raise Unreadable(found.trouble)
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
        ripgrep.program(), "--no-config", "--text", "--encoding", "none", "--ignore-case",
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
    if done.returncode not in (0, 1):
        raise Unreadable(f"ripgrep could not search: {ripgrep.first_line(done.stderr)}")
    numbers = {int(line.split(b":", 1)[0]) for line in done.stdout.splitlines() if line}
    return sorted(number for number in numbers if number <= transcript.lines)


def _every_word(words: Sequence[str]) -> str:
    """A pattern for lines that hold all words in any order, of the longest few."""
    longest = sorted(words, key=len, reverse=True)[:MAX_WORDS]
    escaped = [re.escape(word) for word in longest]
    return "|".join("(?-u:.)*".join(order) for order in itertools.permutations(escaped))


@dataclass(frozen=True, slots=True)
class _Found:
    """A line as ripgrep told it."""

    number: int
    is_hit: bool
    offset: int
    text: str
    spans: list[tuple[int, int]]


@dataclass
class _File:
    batch: int
    transcript: Transcript
    lines: list[HitLine | _Found] = field(default_factory=list)
    count: int = 0


class Search:
    """One search. `run` it in any thread; `result` tells at any time what there is so far, and `stop`
    ends it.

    The transcripts are searched the last touched first, in batches that grow, so that there are hits
    early and those of the newest come first. All hits up to MAX_COUNT are kept, so that which of them
    are shown does not depend on what ripgrep came across first.
    """

    def __init__(
        self, store: Store, settings: Settings, text: str, *, session: Transcript | None = None,
        scope: str | None = None, context: int = 0, max_hits: int = MAX_HITS, mask: bool = True,
        polite: bool = False,
    ) -> None:  # fmt: skip
        wanted = literal(text)
        if not wanted.strip():
            raise InvalidInput("Say which text to look for.", "query")
        wanted = _as_written(wanted)
        if "\n" in wanted:
            raise InvalidInput(
                "A line cannot hold a line end; look for one line at a time.", "query"
            )
        self._pattern = ["--fixed-strings", "-e", wanted]
        self._words = [] if _is_quoted(text.strip()) else list(dict.fromkeys(wanted.split()))
        self._root = settings.transcripts_dir
        self._one = [text_of(settings, session)] if session is not None else None
        self._store, self._settings, self._scope = store, settings, scope
        self._size = session.size if session is not None else 0
        self._context, self._max_hits = context, max_hits
        self._mask, self._polite = mask, polite
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._count = self._searched = 0
        self._exact, self._complete, self._running = True, True, True
        self._trouble = ""
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def has_hits(self) -> bool:
        """Whether there is something to show yet."""
        return self._count > 0

    def stop(self) -> None:
        """Ends the search soon; what was found stays, and is called incomplete."""
        self._stopped.set()
        with self._lock:
            self._complete = False
            if self._process is not None:
                self._process.kill()

    def fail(self, why: str) -> None:
        """Notes why the search could not be done to its end."""
        with self._lock:
            self._trouble, self._complete, self._running = why, False, False

    def result(self) -> GrepResult:
        """What has been found so far, the newest transcripts first."""
        with self._lock:
            hit = [file for file in self._files.values() if file.count]
            hit.sort(key=lambda f: (f.batch, -f.transcript.touched_at, f.transcript.id))
            files: list[FileHits] = []
            shown = 0
            for file in hit:
                end, more = _first_hits(file.lines, self._max_hits - shown, self._context)
                if not more:
                    break
                shown += more
                lines = tuple(self._made(file, index) for index in range(end))
                files.append(FileHits(file.transcript, lines, file.count))
            return GrepResult(
                tuple(files), self._count, shown, self._exact, self._complete and not self._running,
                len(hit), self._running, self._searched, self._size, self._trouble,
            )  # fmt: skip

    def run(self, patience: float) -> None:
        """Searches to the end, or until MAX_COUNT hits, `stop`, or `patience` seconds."""
        timer = threading.Timer(patience, self._time_out, (patience,))
        timer.daemon = True
        timer.start()
        try:
            if self._one is None:
                self._size = bytes_in(self._store, self._settings, self._scope)
            self._pass(self._pattern, ())
            if not self._count and len(self._words) > 1 and not self._stopped.is_set():
                with self._lock:
                    self._exact, self._searched = False, 0
                self._pass(["-e", _every_word(self._words)], self._words)
                with self._lock:
                    self._exact = not self._count
        finally:
            timer.cancel()
            with self._lock:
                self._running = False

    def _time_out(self, patience: float) -> None:
        self._trouble = (
            f"The search took more than {patience:.0f} seconds and was stopped before it found "
            "anything. Narrow it, or try again when the machine is less busy."
        )
        self.stop()

    def _pass(self, pattern: Sequence[str], words: Sequence[str]) -> None:
        texts = self._one or newest_first(self._store, self._settings, self._scope)
        batches = _batches(texts)
        batch = next(batches, None)
        # While ripgrep reads one batch, the next is put together.
        with ThreadPoolExecutor(1) as ahead:
            for number in itertools.count():
                if batch is None or self._stopped.is_set():
                    return
                coming = ahead.submit(next, batches, None)
                self._batch(number, batch, pattern, words)
                with self._lock:
                    self._searched += sum(item.size for item in batch)
                batch = coming.result()

    def _batch(
        self, number: int, batch: Sequence[Text], pattern: Sequence[str], words: Sequence[str]
    ) -> None:
        by_path = {item.path: item for item in batch}
        # ripgrep pays for mapped files of about a megabyte and more, half the time for one of 1 GB,
        # and not on macOS.
        large = sum(item.size for item in batch) >= MAPPED * len(batch)
        command = [
            ripgrep.program(), "--no-config", "--json", "--text", "--encoding", "none",
            "--ignore-case", "--max-columns", "0", "--context", str(self._context),
            *(["--mmap"] if large and sys.platform == "linux" else ["--no-mmap"]), *pattern,
            # ripgrep searches files side by side and holds back all that it has to say of one until
            # its end: of a file of 1 GB with a hit in every line, gigabytes.
            "--max-count", str(MAX_COUNT), "--", *by_path,
        ]  # fmt: skip
        with tempfile.TemporaryFile() as errors:
            with _started(command, errors, self._root) as process:
                self._begin(process)
                try:
                    self._read(process, number, by_path, words)
                finally:
                    with self._lock:
                        self._process = None
                    if process.poll() is None and not self._complete:
                        process.kill()
            errors.seek(0)
            complaints = [line for line in errors if b"No such file or directory" not in line]
        died = process.returncode < 0 or (process.returncode > 1 and complaints)
        if died and self._complete:
            why = f"ripgrep was ended by signal {-process.returncode}"
            if complaints:
                why = ripgrep.first_line(complaints[0])
            with self._lock:
                self._trouble = f"Not everything could be searched: {why}"
                self._complete = False

    def _begin(self, process: subprocess.Popen[bytes]) -> None:
        if self._polite:
            with suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        with self._lock:
            self._process = process
            if self._stopped.is_set():
                process.kill()

    def _read(
        self, process: subprocess.Popen[bytes], batch: int, by_path: dict[str, Text],
        words: Sequence[str],
    ) -> None:  # fmt: skip
        folded = [word.casefold() for word in words]
        assert process.stdout is not None
        for event in ripgrep.events(process.stdout):
            if event["type"] == "end" and event["data"]["stats"]["matched_lines"] >= MAX_COUNT:
                self._complete = False
            if event["type"] not in ("match", "context"):
                continue
            data = event["data"]
            path = os.fsdecode(ripgrep.raw(data["path"]))
            number = data["line_number"]
            text = by_path.get(path)
            if text is None or number is None or number > text.lines:
                continue
            line = ripgrep.raw(data["lines"]).removesuffix(b"\n")
            shown = line.decode("utf-8", "replace")
            is_hit = event["type"] == "match"
            if data.get("long"):
                spans = []
            elif folded and is_hit:
                if not all(word in shown.casefold() for word in folded):
                    continue
                spans = [m.span() for m in re.finditer(
                    "|".join(map(re.escape, words)), shown, re.IGNORECASE)]  # fmt: skip
            else:
                spans = ripgrep.spans(line, data["submatches"])
            self._take(batch, text, number, data["absolute_offset"], shown, spans, is_hit)
            if self._count >= MAX_COUNT:
                self.stop()
                return

    def _take(
        self, batch: int, text: Text, number: int, offset: int, line: str,
        spans: list[tuple[int, int]], is_hit: bool,
    ) -> None:  # fmt: skip
        file = self._files.get(text.path)
        if file is None:
            file = _File(batch, text.make())
            with self._lock:
                self._files[text.path] = file
        found: _Found | HitLine = _Found(number, is_hit, offset, line, spans)
        if len(line) > LINE_SHOWN:
            found = self._line(file.transcript, number, offset, line, spans, is_hit)
        with self._lock:
            self._count += is_hit
            file.count += is_hit
            file.lines.append(found)

    def _made(self, file: _File, index: int) -> HitLine:
        """A line as it is shown. Most that are found never are, and to mask them all takes longer
        than to find them."""
        line = file.lines[index]
        if isinstance(line, _Found):
            line = self._line(
                file.transcript, line.number, line.offset, line.text, line.spans, line.is_hit
            )
            file.lines[index] = line
        return line

    def _line(
        self, item: Transcript, number: int, offset: int, text: str, spans: list[tuple[int, int]],
        is_hit: bool,
    ) -> HitLine:  # fmt: skip
        masked = secrets.mask(text) if self._mask else text
        if (
            self._mask
            and masked == text
            and _KEY_LIKE.search(text)
            and _may_be_key(item.path, offset)
        ):
            masked = window.masked_line(item, number)
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


def _first_hits(lines: Sequence[HitLine | _Found], most: int, context: int) -> tuple[int, int]:
    """Where the lines of the first `most` hits end, with those around them, and how many hits these
    are."""
    count, last = 0, 0
    for index, line in enumerate(lines):
        if count == most and (line.is_hit or line.number > last + context):
            return index, count
        if line.is_hit:
            count, last = count + 1, line.number
    return len(lines), count


def _started(command: Sequence[str], errors: IO[bytes], folder: Path) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=folder)
    except OSError as error:
        raise Unreadable(
            f"{command[0]} cannot be run, so transcripts cannot be searched: {error.strerror}."
        ) from error


def _batches(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """The texts in their order, first a few, then more and more at once."""
    limit, size = FIRST_BATCH, 0
    batch: list[Text] = []
    for item in texts:
        if batch and (size + item.size > limit or len(batch) == BATCH_FILES):
            yield batch
            batch, size, limit = [], 0, min(limit * 4, LAST_BATCH)
        batch.append(item)
        size += item.size
    if batch:
        yield batch


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
