"""Commands over the entries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import click

from webapp.cli.base import Run, command, fail, none_in, nothing_found, read_body
from webapp.errors import Conflict, InvalidInput
from webapp.memory import entries, origins, query, stats, trash
from webapp.memory.entries import Entry
from webapp.memory.query import SearchQuery
from webapp.memory.search import MARK_OFF, MARK_ON, SOME_WORDS, ids_of_all_matches, search
from webapp.store import Store, now_ms
from webapp.transcripts.library import titles

PREVIEW = 500
_MARKS = str.maketrans("", "", MARK_ON + MARK_OFF)


def _day(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "(no date)"


def _line(entry: Entry) -> str:
    tags = f"  #{' #'.join(entry.tags)}" if entry.tags else ""
    by = f"  by {entry.source}" if entry.source else ""
    return f"{entry.id}  {entry.title}\n    {entry.kind}  {entry.scope}  {_day(entry.updated_at)}{by}{tags}"


def _preview(entry: Entry) -> dict[str, object]:
    return {
        "id": entry.id, "scope": entry.scope, "kind": entry.kind, "title": entry.title,
        "body": entry.body[:PREVIEW], "truncated": len(entry.body) > PREVIEW,
        "tags": list(entry.tags), "created_at": entry.created_at, "updated_at": entry.updated_at,
        "expires_at": entry.expires_at, "source": entry.source,
    }  # fmt: skip


@command('opencode-memory search "wal busy timeout" kind:decision', name="search")
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--limit", type=click.IntRange(1, 50), default=10, show_default=True, help="Most hits."
)
@click.option("--everywhere", is_flag=True, help="Every project, not only this one and global.")
def search_command(run: Run, words: tuple[str, ...], limit: int, everywhere: bool) -> None:
    """Searches the entries: every word first, then parts of words.

    "a phrase", kind:, tag:, scope: and source: narrow it.
    """
    with run.store() as store:
        result = search(
            store,
            SearchQuery(" ".join(words), None if everywhere else run.scope, limit=limit),
        )
    lines = []
    for hit in result.hits:
        note = "  (some of the words)" if hit.tier == SOME_WORDS else ""
        snippet = " ".join(hit.snippet.translate(_MARKS).split())
        lines.append(f"{_line(hit.entry)}{note}\n    {snippet}")
    lines.append(f"{result.total} matching" + (", more with --limit" if result.has_more else ""))
    data = {"total": result.total, "partial": result.partial,
            "entries": [_preview(hit.entry) for hit in result.hits]}  # fmt: skip
    run.out(data, "\n".join(lines) if result.hits else nothing_found(run, everywhere))
    if not result.hits:
        fail(1)


@command("opencode-memory list --limit 5", name="list")
@click.option(
    "--limit", type=click.IntRange(1, 50), default=20, show_default=True, help="Most rows."
)
@click.option("--everywhere", is_flag=True, help="Every project, not only this one and global.")
@click.option("--trash", "trashed", is_flag=True, help="What is in the trash, of every project.")
def list_command(run: Run, limit: int, everywhere: bool, trashed: bool) -> None:
    """Lists entries, newest first."""
    if trashed:
        _list_trash(run, limit)
        return
    with run.store() as store:
        result = search(
            store, SearchQuery("", None if everywhere else run.scope, sort="newest", limit=limit)
        )
    text = "\n".join(_line(hit.entry) for hit in result.hits)
    data = {"total": result.total, "entries": [_preview(hit.entry) for hit in result.hits]}
    run.out(data, text or f"{none_in(run, 'entries')} All: opencode-memory list --everywhere")
    if not result.hits:
        fail(1)


def _list_trash(run: Run, limit: int) -> None:
    with run.store() as store:
        items, total = trash.listing(store, limit=limit), trash.count(store)
    lines = [
        f"{_line(item.entry)}\n    in the trash since {_day(item.trashed_at)}, {item.trashed_by}"
        for item in items
    ]
    data = {
        "total": total,
        "entries": [
            {**_preview(item.entry), "trashed_at": item.trashed_at, "trashed_by": item.trashed_by}
            for item in items
        ],
    }
    run.out(data, "\n".join([*lines, f"{total} in the trash"]) if items else "The trash is empty.")
    if not items:
        fail(1)


@command("opencode-memory show 3f0c2c9e-4b7e-4d0a-9a51-0c2f6c1d8e11")
@click.argument("id")
def show(run: Run, id: str) -> None:
    """Shows one entry, whole."""
    with run.store() as store:
        entry = entries.get(store, id)
        origin = _origin(run, store, entry)
    expires = f"\nexpires {_day(entry.expires_at)}" if entry.expires_at else ""
    came = ""
    if origin:
        edited = "; the entry was edited since" if origin["edited"] else ""
        word = "line" if origin["lines"].isdigit() else "lines"
        came = f"\n    from {word} {origin['lines']} of {origin['title']}{edited}\n    {origin['link']}"
    run.out({"entry": entry, "origin": origin}, f"{_line(entry)}{expires}{came}\n\n{entry.body}")


def _origin(run: Run, store: Store, entry: Entry) -> dict[str, Any] | None:
    """The lines that an entry was taken from, with the link to them on the pages."""
    found = origins.of(store, entry.id)
    if found is None:
        return None
    title = titles(store, run.settings, [found.session_id]).get(found.session_id)
    session = quote(found.session_id, safe="")
    return {
        "session": found.session_id, "title": title or found.session_id, "lines": found.lines,
        "hash": found.hash, "edited": found.at != entry.updated_at,
        "link": f"/transcripts/{session}/{found.lines}?h={found.hash}#L{found.first}",
    }  # fmt: skip


@command('opencode-memory save --kind decision --title "Use WAL" --body "Readers do not block."')
@click.option("--kind", required=True, help=f"Free; by convention {', '.join(entries.KINDS)}.")
@click.option("--title", required=True, help="1 to 120 characters.")
@click.option("--body", required=True, help="Up to 8,000 characters; - reads standard input.")
@click.option("--tag", "tags", multiple=True, help="May be given up to 12 times.")
@click.option("--expires", default="", metavar="WHEN", help="12h, 30d, 2w, or a date.")
@click.option("--source", default="", help="Who writes it; by default you.")
def save(
    run: Run, kind: str, title: str, body: str, tags: tuple[str, ...], expires: str, source: str
) -> None:
    """Saves an entry; the live one of the same project and title is rewritten."""
    now = now_ms()
    draft = entries.draft(
        scope=run.scope, kind=kind, title=title, body=read_body(body), tags=tags,
        expires_at=query.parse_expiry(expires, now), now=now,
    )  # fmt: skip
    with run.store() as store:
        saved = entries.save(store, draft, source or run.settings.user, now)
    verb = "Created" if saved.created else "Rewrote"
    data = {"id": saved.entry.id, "created": saved.created, "scope": saved.entry.scope,
            "former": saved.former}  # fmt: skip
    former = f"; its former text is in the trash as {saved.former}" if saved.former else ""
    run.out(data, f"{verb} {saved.entry.id} in {saved.entry.scope}{former}")


@command("opencode-memory forget 3f0c2c9e-4b7e-4d0a-9a51-0c2f6c1d8e11")
@click.argument("id", required=False)
@click.option("--query", "words", metavar="WORDS", help="All entries that match every word.")
def forget(run: Run, id: str | None, words: str | None) -> None:
    """Moves entries to the trash: one by id (of any project), or those that match every word (of
    this project and global, at most 50 at a time)."""
    if bool(id) == bool(words):
        raise InvalidInput("Give either an id or --query WORDS.")
    with run.store() as store:
        if id:
            ids, total = [id], 1
        else:
            ids, total = ids_of_all_matches(store, SearchQuery(words or "", run.scope))
        gone = entries.forget(store, ids, run.settings.user)
    left = total - len(gone)
    lines = [f"{entry.id}  {entry.title}" for entry in gone]
    if gone:
        lines.append("In the trash now; take one back with: opencode-memory restore ID")
    if left:
        lines.append(f"{left} more match; run it again to forget them.")
    data = {"forgotten": [{"id": e.id, "title": e.title} for e in gone], "remaining": left}
    run.out(data, "\n".join(lines) or "Nothing found.")
    if not gone:
        fail(1)


@command("opencode-memory restore 3f0c2c9e-4b7e-4d0a-9a51-0c2f6c1d8e11 --keep-both")
@click.argument("id")
@click.option("--keep-both", is_flag=True, help="Restore under a new title.")
@click.option("--replace", is_flag=True, help="The live one goes to the trash.")
@click.option("--title", default=None, help="The new title with --keep-both.")
def restore(run: Run, id: str, keep_both: bool, replace: bool, title: str | None) -> None:
    """Puts an entry back from the trash to where it lived, with the same id.

    If a live entry holds its title nothing changes; then say --keep-both or --replace.
    """
    if keep_both and replace:
        raise InvalidInput("Say either --keep-both or --replace.")
    if title is not None and not keep_both:
        raise InvalidInput("--title goes with --keep-both.")
    choice = trash.KEEP_BOTH if keep_both else trash.REPLACE if replace else None
    with run.store() as store:
        try:
            entry = trash.restore(store, id, run.settings.user, choice, title)
        except Conflict as error:
            if choice is None:
                error.message += " Say --keep-both or --replace."
            raise
    data = {"id": entry.id, "title": entry.title, "scope": entry.scope}
    run.out(data, f"Restored “{entry.title}” to {entry.scope}")


@command("opencode-memory stats --everywhere", name="stats")
@click.option("--everywhere", is_flag=True, help="Every project, not only this one and global.")
def stats_command(run: Run, everywhere: bool) -> None:
    """Counts the entries by kind, with sizes and the oldest."""
    with run.store() as store:
        found = stats.stats(store, None if everywhere else run.scope)
    lines = [
        f"{found.total} entries ({found.in_global} global), {found.trashed} in the trash, "
        f"{found.bytes:,} bytes on disk"
    ]
    lines += [f"{count:6}  {kind}" for kind, count in found.by_kind]
    if found.oldest is not None:
        lines.append(f"oldest: {_day(found.oldest)}")
    data = {
        "total": found.total, "global": found.in_global, "trashed": found.trashed,
        "bytes": found.bytes, "oldest": found.oldest, "kinds": dict(found.by_kind),
        "scopes": dict(found.by_scope),
    }  # fmt: skip
    run.out(data, "\n".join(lines))


COMMANDS = (save, search_command, list_command, show, forget, restore, stats_command)
