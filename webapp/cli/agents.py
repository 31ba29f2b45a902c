"""What OpenCode's slash commands print, for a person and for a model."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import click

from webapp.cli.base import Run, command, fail, read_body
from webapp.errors import InvalidInput
from webapp.integration.program import address
from webapp.memory import entries
from webapp.memory.entries import MAX_TITLE
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.memory.stats import stats
from webapp.scope import GLOBAL
from webapp.transcripts import pointer

PREVIEW = 500
NEWEST = 20
_SENTENCE = re.compile(r"[^\n]*?[.!?](?=\s|$)|[^\n]+")


@command("opencode-memory known")
def known(run: Run) -> None:
    """Tells what is remembered in this project and for all, and where to read it."""
    with run.store() as store:
        found = stats(store, run.scope)
        newest = search(store, SearchQuery(scope=run.scope, sort="newest", limit=NEWEST)).hits
    link = f"{address(run.settings)}?{urlencode({'scope': run.scope})}"
    counts = ", ".join(f"{count:,} {kind}" for kind, count in found.by_kind) or "nothing yet"
    lines = [f"In {'global' if run.scope == GLOBAL else f'{run.scope} and global'}: {counts}."]
    for hit in newest:
        by = f" (by {hit.entry.source})" if hit.entry.source else ""
        lines.append(f"- {hit.entry.kind}: {hit.entry.title}{by}")
    if found.total > len(newest):
        lines.append(f"- and {found.total - len(newest):,} more")
    lines.append(f"The page: {link}")
    run.out({"total": found.total, "kinds": dict(found.by_kind), "link": link}, "\n".join(lines))


@command("opencode-memory continue ses_4f2a", name="continue")
@click.argument("session")
def continue_command(run: Run, session: str) -> None:
    """Exports a session and prints the pointer to its record, for another session to go on with.

    For - the session is read from standard input.
    """
    session = read_body(session, "session").strip()
    if not session:
        raise InvalidInput("Name the session to go on with, such as ses_4f2a.", "session")
    with run.store() as store:
        found = pointer.pointer(store, run.settings, session)
    text = pointer.text(
        found, run.settings.retrieval, opening="An earlier session is to be gone on with."
    )
    run.out({"session": found.session_id, "path": found.path, "lines": found.lines}, text)


@command("opencode-memory recall wal busy timeout")
@click.argument("words", nargs=-1, required=True)
def recall(run: Run, words: tuple[str, ...]) -> None:
    """Looks for words in the entries of this project and global, and prints the best with their text.

    For - the words are read from standard input.
    """
    text = read_body(" ".join(words), "words").strip()
    if not text:
        raise InvalidInput("Say what to look for.", "words")
    with run.store() as store:
        found = search(store, SearchQuery(text, run.scope, limit=10))
    blocks = []
    for hit in found.hits:
        entry = hit.entry
        more = "…" if len(entry.body) > PREVIEW else ""
        by = f" · by {entry.source}" if entry.source else ""
        blocks.append(
            f"[{entry.kind}] {entry.title}\n{entry.scope}{by} · id {entry.id}\n{entry.body[:PREVIEW]}{more}"
        )
    none = f"Nothing in {run.scope} and global is about that."
    run.out({"total": found.total, "entries": [hit.entry for hit in found.hits]},
            "\n\n".join(blocks) or none)  # fmt: skip
    if not found.hits:
        fail(1)


@command('opencode-memory remember "The tests need a free port. Never 4748."')
@click.argument("words", nargs=-1, required=True)
def remember(run: Run, words: tuple[str, ...]) -> None:
    """Saves a text as a fact of this project. Its first sentence becomes the title.

    For - the text is read from standard input.
    """
    text = read_body(" ".join(words), "words").strip()
    first = _SENTENCE.match(text)
    if first is None:
        raise InvalidInput("Say what to remember.", "words")
    title = " ".join(first[0].rstrip(".").split())
    if len(title) > MAX_TITLE:
        title = title[: MAX_TITLE - 1].rstrip() + "…"
    draft = entries.draft(scope=run.scope, kind="fact", title=title, body=text)
    with run.store() as store:
        saved = entries.save(store, draft, run.settings.user)
    word = "Remembered" if saved.created else "Rewrote"
    run.out(
        {"entry": saved.entry, "created": saved.created},
        f"{word} “{saved.entry.title}” ({saved.entry.id})",
    )


COMMANDS = (known, continue_command, recall, remember)
