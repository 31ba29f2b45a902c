"""What stands in place of a compaction's summary: where the full record is, and how to look in it.

It takes no call of a model and loses nothing, since every line that it points to stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from webapp import secrets
from webapp.opencode import find_session, reading
from webapp.opencode.requests import last_request
from webapp.opencode.sessions import message_tables
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import library
from webapp.transcripts.export import export
from webapp.transcripts.files import first_lines, marks_of

MOST = 1_200
"""Characters of the last request that are repeated; the rest is a line to look up."""

NEWEST = 200
"""Lines at the end that a model is told to read first."""

SUMMARY = "compaction summary"
_NUDGE = (
    "What should outlive this session (a decision, a gotcha, a preference, a lesson) belongs into"
    " memory_save."
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """Where the record of a session lies. `since` is the first line after the last compaction's
    summary, which begins in line `summary`; None where there was none. `request` is the last message
    of the person, in line `request_line` if it is exported. `problems` kept the record from being
    newer."""

    session_id: str
    path: Path
    lines: int
    summary: int | None
    request: str
    request_line: int | None
    problems: tuple[str, ...] = ()


def pointer(store: Store, settings: Settings, session_id: str) -> Pointer:
    """The pointer to a session, which is exported first, also when a cleanup had removed it.

    Raises NotFound for a session that neither OpenCode nor the library knows, and the errors of an
    export that keep a transcript from being there at all.
    """
    problems: tuple[str, ...] = ()
    session, _ = find_session(settings.opencode_databases(), session_id)
    if session is not None and library.removed(store, session_id) is not None:
        export(store, settings, session, again=True)
        item = library.get(store, settings, session_id)
    else:
        opened = library.open_transcript(store, settings, session_id)
        item, problems = opened.transcript, opened.problems
    found = None
    if session is not None:
        with reading(session.db) as connection:
            found = last_request(connection, message_tables(connection), session_id)
    message_id, request = found or ("", "")
    marks = marks_of(item.path, ("message:compaction",))
    summaries = [mark.line for mark in marks if mark.label == SUMMARY]
    return Pointer(
        item.id, item.path, item.lines, summaries[-1] if summaries else None, request,
        first_lines(item.path, {message_id}).get(message_id) if message_id else None, problems,
    )  # fmt: skip


COMPACTED = "The context was compacted; nothing is lost."


def text(found: Pointer, retrieval: bool = True, opening: str = COMPACTED) -> str:
    """The pointer in words for a model, some 120 tokens beside the last request. Credentials are
    masked. Without `retrieval` no tool is named that is not offered."""
    lines = [
        f"{opening} The full record of this session is {found.path} ({_count(found.lines)}).",
    ]
    if found.summary is not None:
        lines[0] += (
            f" The summary before this one stands in line {found.summary:,}, what came since below it."
        )
    if found.problems:
        lines.append(
            "It may lack the newest messages: " + " ".join(" ".join(found.problems).split())
        )
    if found.request.strip():
        where = f" (line {found.request_line:,})" if found.request_line else ""
        lines.append(f"The last request of the user{where}, verbatim:\n\n{quoted(found.request)}")
    if retrieval:
        begin = max(1, found.lines - NEWEST + 1)
        lines.append(
            "Look up what you need instead of guessing: memory_session_read (sessionID"
            f" {found.session_id}; its newest lines begin at offset {begin}) and memory_session_search"
            f" (exact words). {_NUDGE}"
        )
    else:
        lines.append(f"Look up what you need in that file instead of guessing. {_NUDGE}")
    return "\n\n".join(lines)


def quoted(request: str) -> str:
    """A request of a person as a quotation of at most MOST characters, its beginning and its end."""
    shown = secrets.mask(request.strip())
    if len(shown) > MOST:
        head, tail = shown[: MOST * 2 // 3], shown[-MOST // 3 :]
        shown = f"{head}\n[… {len(shown) - len(head) - len(tail):,} characters are in the record]\n{tail}"
    return "\n".join(f"> {line}" for line in shown.split("\n"))


def _count(lines: int) -> str:
    return f"{lines:,} {'line' if lines == 1 else 'lines'}"
