"""`/news/…`: what open pages ask every few seconds, to tell that there is something new.

An answer is 304, without a look into any database, as long as no file has changed. What a page has
seen stands in the address that it asks; so two pages may have seen different things.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from flask import Blueprint, request, url_for

from webapp import opencode
from webapp.errors import InvalidInput, MemoryAppError, NotFound
from webapp.opencode import Session, news, reading
from webapp.opencode.news import Ends, Seen
from webapp.store import now_ms
from webapp.transcripts import news as transcript_news
from webapp.web import current, filters, render

blueprint = Blueprint("news", __name__)
BOX = "news/_fragment.html"


@blueprint.get("/news/sessions")
def sessions() -> Any:
    """How many sessions went on since a list of them was made; `of=all` for a list of some of them."""
    databases = current.settings().opencode_databases()
    held = Ends.load(request.args.get("seen", ""))

    def make() -> tuple[dict[str, Any], bool]:
        found = news.went_on(databases, held)
        what = filters.plural(found.count, "session")
        what = what if found.complete else f"over {found.count:,} sessions"
        text = f"{what} went on" if found.count else ""
        if found.changed:
            text = "Sessions have changed"
        if text and request.args.get("of") == "all":
            text += ", of all there are"
        return _box(render.here(), text, request.args.get("list", "")), not found.unread

    return render.polled(opencode.version(databases), BOX, make)


@blueprint.get("/news/sessions/<session_id>")
def session(session_id: str) -> Any:
    """How many messages a session has gained since a page of it was made."""
    name = request.args.get("db", "")
    held = Seen.load(request.args.get("seen", ""))
    database = next((p for p in current.settings().opencode_databases() if p.name == name), None)

    def make() -> dict[str, Any]:
        if database is None:
            raise NotFound("OpenCode's database that this page was made from is not there now.")
        with reading(database, news.PATIENCE_S) as connection:
            found = news.since(connection, session_id, held)
        if found.gone:
            place = url_for("session.show", session_id=session_id)
            return _box(render.here(), "OpenCode has this session no more", place)
        first = found.messages[0].id if found.messages and found.complete else ""
        return _box(render.here(), _words(found), _place_of(session_id, first))

    version = opencode.version([database]) if database else ()
    return render.polled(version, BOX, lambda: _told(make))


def _words(found: news.News) -> str:
    if found.messages:
        what = filters.plural(len(found.messages), "new message")
        return what if found.complete else f"over {what}s"
    if found.went_on:
        return "The last message went on"
    return "This session has changed" if found.changed else ""


@blueprint.get("/news/transcripts/<session_id>")
def transcript(session_id: str) -> Any:
    """How many lines a transcript has gained, or would by an export, since a page of it was made."""
    store, settings = current.record_store(), current.settings()
    held = transcript_news.Seen(
        _number("lines"), _number("disk"), _number("more"), request.args.get("upto", "")
    )

    def make() -> dict[str, Any]:
        found = transcript_news.since(store, settings, session_id, database, held, now_ms())
        poll = transcript_poll(session_id, found.seen)
        if found.lines or not found.complete:
            most = max(found.lines, news.MOST)
            what = filters.plural(found.lines, "new line")
            text = what if found.complete else f"over {most:,} new lines"
        else:
            text = "This session has changed" if found.changed else ""
        place = url_for("transcripts.from_line", session_id=session_id, line=held.lines + 1)
        return _box(poll, text, place)

    database: Path | None = None
    version: tuple[int, ...] = ()
    with suppress(NotFound):
        path, database = transcript_news.place(store, settings, session_id)
        version = transcript_news.version(path, database)
    return render.polled(version, BOX, lambda: _told(make))


def session_poll(found: Session, seen: Seen, page: str) -> str:
    """What a page of a session asks: `page` is the order of its messages, or `context`."""
    return url_for(
        "news.session", session_id=found.id, db=found.db.name, seen=seen.dump(), page=page
    )


def transcript_poll(session_id: str, seen: transcript_news.Seen) -> str:
    """What a page of a transcript asks."""
    return url_for("news.transcript", session_id=session_id, lines=seen.lines, disk=seen.disk,
                   more=seen.more or None, upto=seen.upto or None)  # fmt: skip


def _told(make: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], bool]:
    """What is new, or why that cannot be told just now: the page goes on asking."""
    try:
        return make(), True
    except MemoryAppError as error:
        return {**_box(render.here(), error.message, ""), "is_bad": True}, False


def _box(poll: str, text: str, place: str) -> dict[str, Any]:
    return {"poll": poll, "text": text, "place": render.local_path(place) or "", "is_bad": False}


def _place_of(session_id: str, first: str) -> str:
    """Where what is new is shown."""
    page = request.args.get("page", "")
    if page == "oldest" and first and "/" not in first:
        return url_for("session.show", session_id=session_id, message_id=first)
    if page == "newest":
        return url_for("session.show", session_id=session_id, order=page)
    if page == "context":
        return url_for("context.show", session_id=session_id) + "#latest"
    return ""


def _number(name: str) -> int:
    text = request.args.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidInput(f"“{name}” is a number of lines.", name)
    return int(text)
