"""What the tools do: each takes the values of its arguments and answers with a text for the model and
the same as data."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from webapp.errors import InvalidInput, MemoryAppError, PlanChanged
from webapp.lines import LineRange
from webapp.mcp.tools import MAX_BYTES
from webapp.memory import entries, query, stats, trash
from webapp.memory.entries import MAX_KIND, MAX_TAG, MAX_TAGS, MAX_TITLE, Entry
from webapp.memory.query import SearchQuery
from webapp.memory.search import SOME_WORDS, ids_of_all_matches, search
from webapp.scope import GLOBAL, MAX_SCOPE, parse_scope
from webapp.settings import Settings
from webapp.store import Store, now_ms
from webapp.transcripts import cleanup, grep, library, window
from webapp.transcripts.cleanup import Options, Plan
from webapp.transcripts.export import export
from webapp.transcripts.pending import pending

log = logging.getLogger(__name__)
PREVIEW = 500
"""Characters of a body that an agent is shown."""

MAX_ID = 200
MAX_LISTED = 50
REFRESH_S = 2.0
"""How long a search of a project first brings its transcripts up to date, the last touched first."""

PATIENCE_S = 10.0
"""How long a search of the transcripts may take; then it says that it found at least so much."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Whom a tool works for: the settings, the open store, the scope of the process's folder, and the
    program that asks."""

    settings: Settings
    store: Store
    scope: str
    writer: str

    def chosen(self, given: str | None) -> str:
        """The scope that was asked for, else the project's."""
        return parse_scope(given) if given else self.scope


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool answers: a text for the model, and the same as data."""

    text: str
    data: Mapping[str, Any]


# Entries ----------------------------------------------------------------------------------------


def _save(desk: Desk, given: Mapping[str, Any]) -> Answer:
    now = now_ms()
    expires = given["expires_at"]
    draft = entries.draft(
        scope=desk.chosen(given["scope"]), kind=given["kind"], title=given["title"],
        body=given["body"], tags=given["tags"] or (),
        expires_at=query.parse_expiry(expires, now) if isinstance(expires, str) else expires, now=now,
    )  # fmt: skip
    saved = entries.save(desk.store, draft, desk.writer, now)
    word = "Created" if saved.created else "Rewrote"
    former = f" Its former text is in the trash as {saved.former}." if saved.former else ""
    return Answer(
        f"{word} “{saved.entry.title}” in {saved.entry.scope} (id {saved.entry.id}).{former}",
        {"created": saved.created, "id": saved.entry.id, "scope": saved.entry.scope,
         "former": saved.former},
    )  # fmt: skip


def _search(desk: Desk, given: Mapping[str, Any]) -> Answer:
    scope = desk.chosen(given["scope"])
    result = search(desk.store, SearchQuery(given["query"], scope, limit=given["limit"]))
    partial = [hit.entry.id for hit in result.hits if hit.tier == SOME_WORDS]
    if not result.hits:
        text = f"No entry in {scope} matches. The words may stand in a transcript: session_search."
    else:
        text = f"{_count(result.total, 'entry', 'entries')} in {scope} and global match every word"
        text += f", {len(partial)} of those below only some:" if partial else ":"
    return _listed(text, [hit.entry for hit in result.hits], result.total, partial)


def _list(desk: Desk, given: Mapping[str, Any]) -> Answer:
    scope = desk.chosen(given["scope"])
    found = search(desk.store, SearchQuery("", scope, sort="newest", limit=given["limit"]))
    text = f"{_count(found.total, 'entry', 'entries')} in {scope} and global, the newest first:"
    if not found.hits:
        text = f"There is no entry in {scope} or global yet."
    return _listed(text, [hit.entry for hit in found.hits], found.total)


def _forget(desk: Desk, given: Mapping[str, Any]) -> Answer:
    if bool(given["id"]) == bool(given["query"]):
        raise InvalidInput("Give either an id or a query.", "id")
    if given["id"]:
        ids, total = [given["id"]], 1
    else:
        ids, total = ids_of_all_matches(desk.store, SearchQuery(given["query"], desk.scope))
    gone = entries.forget(desk.store, ids, desk.writer)
    left = total - len(gone)
    lines = [f"- {entry.title} (id {entry.id}, {entry.scope})" for entry in gone]
    text = f"Moved {_count(len(gone), 'entry', 'entries')} to the trash; restore takes one back:"
    if not gone:
        text = f"No entry in {desk.scope} or global matches every word; nothing was forgotten."
    if left:
        lines.append(f"{left} more match; forget again to take them too.")
    found = [{"id": entry.id, "title": entry.title, "scope": entry.scope} for entry in gone]
    return Answer("\n".join([text, *lines]), {"forgotten": found, "remaining": left})


def _stats(desk: Desk, given: Mapping[str, Any]) -> Answer:
    scope = desk.chosen(given["scope"])
    found = stats.stats(desk.store, scope)
    by_kind = [(kind[:MAX_KIND], count) for kind, count in found.by_kind[:20]]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in by_kind) or "none"
    oldest = f", the oldest of {_day(found.oldest)}" if found.oldest is not None else ""
    text = (
        f"{_count(found.total, 'entry', 'entries')} in {scope} and global, {found.in_global:,} of"
        f" them global{oldest}. By kind: {kinds}. {found.trashed:,} in the trash."
        f" memory.db takes {found.bytes:,} bytes."
    )
    return Answer(text, {
        "scope": scope, "total": found.total, "global": found.in_global, "trashed": found.trashed,
        "by_kind": dict(by_kind), "bytes": found.bytes, "oldest": found.oldest,
    })  # fmt: skip


def _restore(desk: Desk, given: Mapping[str, Any]) -> Answer:
    entry = trash.restore(desk.store, given["id"], desk.writer)
    return Answer(
        f"“{entry.title}” is back in {entry.scope} (id {entry.id}).",
        {"id": entry.id, "title": entry.title, "scope": entry.scope},
    )


def _listed(text: str, found: Sequence[Entry], total: int, partial: Iterable[str] = ()) -> Answer:
    room = _Room(MAX_BYTES, text)
    shown: list[dict[str, Any]] = []
    for entry in found:
        one = _preview(entry)
        more = "…" if one["truncated"] else ""
        tags = f" · #{' #'.join(one['tags'])}" if one["tags"] else ""
        by = f" · by {one['source']}" if one["source"] else ""
        block = (
            f"\n[{one['kind']}] {one['title']}\n{one['scope']}{by} · {_day(entry.updated_at)}{tags}"
            f" · id {one['id']}\n{one['body']}{more}"
        )
        if not room.add(block):
            room.end(f"\n… {len(found) - len(shown)} more are not shown: ask for fewer.")
            break
        shown.append(one)
    return Answer(room.text, {"total": total, "partial": list(partial), "entries": shown})


def _preview(entry: Entry) -> dict[str, Any]:
    """An entry within the bounds of ours; another program may have written a longer one."""
    return {
        "id": entry.id[:MAX_ID], "scope": entry.scope[:MAX_SCOPE], "kind": entry.kind[:MAX_KIND],
        "title": entry.title[:MAX_TITLE], "body": entry.body[:PREVIEW],
        "truncated": len(entry.body) > PREVIEW,
        "tags": [tag[:MAX_TAG] for tag in entry.tags[:MAX_TAGS]], "updated_at": entry.updated_at,
        "expires_at": entry.expires_at, "source": entry.source and entry.source[:MAX_KIND],
    }  # fmt: skip


# Transcripts ------------------------------------------------------------------------------------


def _session_search(desk: Desk, given: Mapping[str, Any]) -> Answer:
    session = None
    if given["sessionID"]:
        session = _open(desk, given["sessionID"])
    scope = None if given["all"] or session else desk.scope
    left = 0 if session else _refreshed(desk, scope)
    found = grep.grep(
        desk.store, desk.settings, given["query"], session=session, scope=scope,
        context=given["contextLines"], mask=desk.settings.mask, patience=PATIENCE_S,
    )  # fmt: skip
    where = (
        session.id if session else "every project" if given["all"] else f"{desk.scope} and global"
    )
    unread = ""
    if left:
        unread = (
            f" {_count(left, 'session')} more of it {'is' if left == 1 else 'are'} not exported yet"
            " and not searched; search again to go on, or name a sessionID."
        )
    if not found.count:
        return Answer(f"No line in the transcripts of {where} holds this text.{unread}",
                      {"count": 0, "complete": found.complete and not left, "exact": found.exact,
                       "cut": False, "unread": left, "files": []})  # fmt: skip
    bound = "" if found.complete else "at least "
    text = (
        f"{bound}{_count(found.count, 'line')} in {_count(found.in_files, 'transcript')} of {where}"
    )
    text += "." if found.exact else ". None holds this very text; these hold every word."
    text += unread
    room = _Room(given["maxBytes"], text)
    files = []
    for file in found.files:
        item = file.transcript
        heading = f"\n{item.id} · {item.title[:MAX_TITLE]} · {_count(file.count, 'hit')}"
        if not room.add(heading):
            break
        lines = []
        for line in file.lines:
            sign = ":" if line.is_hit else "-"
            if not room.add(f"{line.number}{sign} {line.text}"):
                break
            lines.append({"line": line.number, "text": line.text, "hit": line.is_hit})
        files.append({"id": item.id, "title": item.title, "scope": item.scope, "count": file.count,
                      "lines": lines})  # fmt: skip
    cut = room.is_full or found.shown < found.count
    if cut:
        room.end("… more matches are not shown: name a sessionID, or more words.")
    return Answer(room.text, {
        "count": found.count, "complete": found.complete and not left, "exact": found.exact,
        "cut": cut, "unread": left, "files": files,
    })  # fmt: skip


def _refreshed(desk: Desk, scope: str | None) -> int:
    """Exports what a search would else miss, the last touched first, for REFRESH_S; how many
    sessions are left."""
    waiting = pending(desk.store, desk.settings)
    due = [
        session
        for session in sorted(
            (*waiting.absent, *waiting.behind, *waiting.writing), key=lambda one: -one.updated_at
        )
        if scope is None or session.scope in (scope, GLOBAL)
    ]
    ends = time.monotonic() + REFRESH_S
    done = 0
    for session in due:
        if time.monotonic() > ends:
            break
        try:
            export(desk.store, desk.settings, session)
            done += 1
        except MemoryAppError as error:
            log.warning("%s is not searched: %s", session.id, error.message)
    return len(due) - done


def _session_read(desk: Desk, given: Mapping[str, Any]) -> Answer:
    item = _open(desk, given["sessionID"])
    first = given["offset"]
    wanted = LineRange(first, first + given["limit"] - 1)
    seen = window.read(item, wanted, desk.settings.mask)
    if not seen.rows:
        return Answer(
            f"{item.id} has {_count(item.lines, 'line')}; line {first:,} is past the end.",
            {"id": item.id, "title": item.title, "total": item.lines, "next": None, "lines": []},
        )
    room = _Room(
        given["maxBytes"], f"{item.title} · {item.id} · {_count(item.lines, 'line')} in all"
    )
    lines: list[dict[str, Any]] = []
    for row in seen.rows:
        more = f" […{row.cut:,} bytes more]" if row.cut else ""
        if not room.add(f"{row.number}: {row.text}{more}"):
            break
        lines.append({"line": row.number, "text": row.text, "cut": row.cut})
    after = first + len(lines)
    onward = after if after <= item.lines else None
    if onward is not None:
        room.end(f"… go on with offset {onward}.")
    return Answer(room.text, {"id": item.id, "title": item.title, "total": item.lines,
                              "next": onward, "lines": lines})  # fmt: skip


def _transcript_list(desk: Desk, given: Mapping[str, Any]) -> Answer:
    scope = None if given["all"] else desk.chosen(given["scope"])
    found = library.listing(
        desk.store, desk.settings, scope=scope, sort="touched", descending=True, limit=MAX_LISTED
    )
    where = "every project" if scope is None else scope
    text = (
        f"{_count(found.total, 'transcript')} of {where}: {found.lines:,} lines, {found.size:,}"
        " bytes."
    )
    if found.total > len(found.items):
        text += f" The {len(found.items)} that were touched last:"
    lines = [
        f"{item.id} · {item.lines:,} lines · {item.size:,} bytes · begun {_day(item.created_at)} ·"
        f" last touch {_day(item.touched_at)} · {item.title[:200]}"
        for item in found.items
    ]
    return Answer("\n".join([text, *lines]), {
        "total": found.total, "lines": found.lines, "size": found.size,
        "transcripts": [
            {"id": item.id, "title": item.title[:200], "scope": item.scope, "lines": item.lines,
             "size": item.size, "created_at": item.created_at, "touched_at": item.touched_at}
            for item in found.items
        ],
    })  # fmt: skip


def _transcript_cleanup(desk: Desk, given: Mapping[str, Any]) -> Answer:
    settings = desk.settings

    def rule(name: str, default: int) -> int:
        return default if given[name] is None else int(given[name])

    options = Options(
        tuple(dict.fromkeys(given["sessionIDs"] or ())),
        rule("retentionDays", settings.retention_days), rule("maxSessions", settings.max_sessions),
        rule("keepRecent", settings.keep_recent), None if given["allScopes"] else desk.scope,
    )  # fmt: skip
    if not given["apply"]:
        if not given["dryRun"]:
            raise InvalidInput(
                "To remove something, give in apply the fingerprint that the dry run with the same"
                " arguments showed.",
                "apply",
            )
        return _planned(cleanup.plan(desk.store, settings, options))
    last = None
    try:
        for step in cleanup.apply(desk.store, settings, options, given["apply"], desk.writer):
            last = step
    except PlanChanged as error:
        plan = _planned(error.details["plan"])
        raise PlanChanged(f"{error.message} The plan now: {plan.text}") from error
    assert last is not None  # apply always yields its result
    removed = last.done - len(last.problems)
    text = f"Removed {removed} of {last.total} transcripts, {last.bytes:,} bytes."
    if last.receipt is not None:
        text += f" For 7 days a person can take it back (receipt {last.receipt})."
    problems = list(last.problems[:MAX_LISTED])
    return Answer("\n".join([text, *problems]), {
        "applied": True, "removed": removed, "bytes": last.bytes, "receipt": last.receipt,
        "problems": problems,
    })  # fmt: skip


def _planned(plan: Plan) -> Answer:
    shown = plan.steps[:MAX_LISTED]
    lines = [f"{step.transcript.id} · {step.bytes:,} bytes · {step.why} · {step.transcript.title[:200]}"
             for step in shown]  # fmt: skip
    if len(plan.steps) > len(shown):
        lines.append(f"and {len(plan.steps) - len(shown):,} more")
    lines += [f"{name[:60]} is not in the library" for name in plan.unknown[:MAX_LISTED]]
    lines += [f"{kept.transcript.id} stays: {kept.why}" for kept in plan.kept[:MAX_LISTED]]
    text = (
        f"Dry run, nothing was removed: {len(plan.steps):,} of {plan.considered:,} transcripts would"
        f" go, {plan.bytes:,} bytes."
    )
    if plan.steps:
        text += f" To do it, ask the person, then call again with apply = {plan.fingerprint}."
    return Answer("\n".join([text, *lines]), {
        "applied": False, "fingerprint": plan.fingerprint, "bytes": plan.bytes,
        "remove": [{"id": step.transcript.id, "why": step.why, "bytes": step.bytes} for step in shown],
        "count": len(plan.steps),
    })  # fmt: skip


def _open(desk: Desk, session_id: str) -> library.Transcript:
    """A transcript, exported on demand. What kept it from being brought up to date is not told: the
    lines that are there are as they are."""
    return library.open_transcript(desk.store, desk.settings, session_id).transcript


class _Room:
    """A text that grows up to so many bytes, in whole lines but for a first one that is too long."""

    def __init__(self, most: int, first: str) -> None:
        self._most = most
        self._lines = [first]
        self._size = len(first.encode("utf-8", "replace"))
        self._body = 0
        self.is_full = False

    def add(self, line: str) -> bool:
        """Adds a line if it fits; says whether it did."""
        size = len(line.encode("utf-8", "replace")) + 1
        if self._size + size > self._most and self._body:
            self.is_full = True
            return False
        if self._size + size > self._most:
            kept = line.encode("utf-8", "replace")[: max(0, self._most - self._size)]
            line = kept.decode("utf-8", "ignore") + " …"
        self._lines.append(line)
        self._size += size
        self._body += 1
        return True

    def end(self, line: str) -> None:
        """A last line, which says that there is more."""
        self._lines.append(line)

    @property
    def text(self) -> str:
        """The whole."""
        return "\n".join(self._lines)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _day(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "no date"


def failed(error: Exception) -> str:
    """An error as a sentence for the model."""
    if isinstance(error, MemoryAppError):
        return " ".join(error.message.split())
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'} cannot be used: {error.strerror or error}."
    return (
        "Something unexpected went wrong; nothing was lost. The log on stderr says what happened."
    )


WORK: Mapping[str, Callable[[Desk, Mapping[str, Any]], Answer]] = {
    "save": _save, "search": _search, "list": _list, "forget": _forget, "stats": _stats,
    "restore": _restore, "session_search": _session_search, "session_read": _session_read,
    "transcript_list": _transcript_list, "transcript_cleanup": _transcript_cleanup,
}  # fmt: skip
