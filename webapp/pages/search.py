"""`/`: search over entries and transcripts."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from typing import Any

from flask import Blueprint, request, url_for

from webapp.errors import InvalidInput, Unreadable
from webapp.memory import query as queries
from webapp.memory.query import SORTS, SearchQuery, parse_day
from webapp.memory.search import search as find
from webapp.scope import MAX_SCOPE
from webapp.store import now_ms
from webapp.transcripts import grep, library
from webapp.web import current, render

blueprint = Blueprint("search", __name__)
PAGE = 30
ARGS = ("q", "tab", "scope", "kind", "tag", "source", "age", "since", "until", "sort", "page")
DAY_MS = 86_400_000
PAGE_ID = re.compile("[0-9a-f]{12}")
"""What a page tells with every search, so that the one before is stopped."""

AGES = {"": "any time", "1": "last day", "7": "last week", "30": "last month", "365": "last year"}


def parse_args(now: int) -> SearchQuery:
    """The search that the address names. Raises InvalidInput."""
    args = request.args
    until = parse_day(args.get("until", ""), "until")
    since = parse_day(args.get("since", ""), "since")
    days = args.get("age", "")
    if days and since is None:
        if days not in AGES:
            raise InvalidInput(f"“{days[:20]}” is no age. Choose one of the list.", "age")
        since = now - int(days) * DAY_MS
    sort = args.get("sort", "best")
    if sort not in SORTS:
        raise InvalidInput(f"“{sort[:20]}” is no order. Known: {', '.join(SORTS)}.", "sort")
    return SearchQuery(
        text=args.get("q", "")[: queries.MAX_TEXT],
        scope=_filter("scope"),
        kind=_filter("kind"),
        tag=_filter("tag"),
        source=_filter("source"),
        since=since,
        until=until + DAY_MS if until is not None else None,
        sort=sort,
        limit=PAGE,
        offset=(parse_page() - 1) * PAGE,
    )


def _filter(name: str) -> str | None:
    value = request.args.get(name) or None
    if value and len(value) > MAX_SCOPE:
        raise InvalidInput(f"The {name} is longer than any that can be kept.", name)
    return value


def parse_page() -> int:
    """The `page` of the address, from 1. Raises InvalidInput."""
    text = request.args.get("page", "1")
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) <= 1_000_000):
        raise InvalidInput("A page is a number from 1 on.", "page")
    return int(text)


@blueprint.get("/")
def index() -> Any:
    """The search page."""
    if request.args.get("tab") == "transcripts":
        return _transcripts()
    store = current.store()
    query = parse_args(now_ms())
    result = find(store, query)
    return render.page(
        "search", "results", address=_with(), tab="entries", query=query, result=result,
        # The fragment holds no filters, so that a search as it is typed need not count them.
        facets=None if render.wants("results") else current.cached_facets(),
        sorts=SORTS, ages=AGES, links=_links(), page_number=parse_page(),
        next_page=_with(page=parse_page() + 1), previous_page=_with(page=parse_page() - 1),
        text=query.text,
    )  # fmt: skip


def _with(more: dict[str, Any] | None = None, **changes: object) -> str:
    args = {**request.args.to_dict(), **{k: str(v) for k, v in changes.items()}}
    kept: dict[str, Any] = {
        k: v
        for k, v in args.items()
        if k in ARGS and v and (k, v) not in (("page", "1"), ("sort", "best"))
    }
    return url_for("search.index", **kept, **(more or {}))


def _links() -> dict[str, str]:
    return {
        "entries": _with(tab="", page=""),
        "transcripts": _with(tab="transcripts", page=""),
        "everywhere": _with(scope="", page=""),
        "clear": url_for("search.index", q=request.args.get("q") or None),
    }


def _transcripts() -> Any:
    store, settings = current.record_store(), current.settings()
    query = replace(parse_args(now_ms()), kind=None, tag=None, source=None)
    found, ahead = None, 0
    page = request.args.get("from", "")
    page = page if PAGE_ID.fullmatch(page) else secrets.token_hex(6)
    wanted = grep.literal(query.text)
    if wanted.strip():
        running = current.searches().look(
            (query.text, query.scope, settings.mask),
            lambda: grep.Search(
                store, settings, query.text, scope=query.scope, context=1, mask=settings.mask,
                polite=True,
            ),
            again="more" in request.args, page=page,
        )  # fmt: skip
        found, ahead = running.result(), current.searches().ahead(running)
        if not found.running and not found.count and found.trouble:
            raise Unreadable(found.trouble)
    listing = library.totals(store, settings)
    return render.page(
        "search", "results", address=_with(), tab="transcripts", query=query, found=found, listing=listing,
        sorts=SORTS, ages=AGES, links=_links(), text=query.text, ahead=ahead,
        more=_with({"more": "1", "from": page}), page=page,
        needle=wanted if found and found.exact else None,
        scopes=library.scopes(store, settings),
    )  # fmt: skip
