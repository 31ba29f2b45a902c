"""`/sessions`: every session of every OpenCode database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Any

from flask import Blueprint, request, url_for

from webapp import opencode
from webapp.errors import InvalidInput
from webapp.memory.query import parse_day
from webapp.opencode import news, overview
from webapp.opencode.overview import Filter, Item
from webapp.scope import MAX_SCOPE
from webapp.transcripts.library import shown_title
from webapp.web import current, render

blueprint = Blueprint("sessions", __name__)
PAGE = 50
DAY_MS = 86_400_000
ARGS = ("q", "project", "workspace", "agent", "model", "since", "until", "archived", "errors",
        "compacted", "parent", "order")  # fmt: skip
ARCHIVED = {"": None, "no": False, "only": True}
ORDERS = {"touched": "last touched first", "project": "by project and workspace"}
MAX_TITLE = 300


@blueprint.get("/sessions")
def index() -> Any:
    """The sessions that the address asks for, a page at a time."""
    databases = current.settings().opencode_databases()
    wanted, order = _filter(), request.args.get("order") or "touched"
    if order not in ORDERS:
        raise InvalidInput(f"“{order[:20]}” is no order. Known: {', '.join(ORDERS)}.", "order")
    after, before = request.args.get("after", ""), request.args.get("before", "")
    tag, seen = render.etag(opencode.version(databases)), news.ends(databases)
    page = overview.page(databases, wanted, order, after, PAGE, before)
    facets = current.cached_session_facets(page.readable)
    return render.page(
        "sessions", "results", address=_link(), page=page, items=[_shown(i) for i in page.items],
        facets=facets, wanted=wanted, order=order, orders=ORDERS, databases=databases,
        is_first=not after and not before, link=_link, place=_place, look=overview.LOOK, tag=tag,
        poll=url_for("news.sessions", seen=seen.dump(), of="all" if wanted != Filter() else None,
                     list=None if not after and not before else _link()),
    )  # fmt: skip


def _filter() -> Filter:
    args = request.args
    for name in ARGS:
        if len(args.get(name, "")) > MAX_SCOPE:
            raise InvalidInput(f"The {name} is longer than any that can be kept.", name)
    archived = args.get("archived", "")
    if archived not in ARCHIVED:
        raise InvalidInput(f"“{archived[:20]}” is no choice. Known: no, only.", "archived")
    until = parse_day(args.get("until", ""), "until")
    return Filter(
        text=args.get("q", ""), project=args.get("project") or None,
        workspace=args.get("workspace") or None, agent=args.get("agent") or None,
        model=args.get("model") or None, parent=args.get("parent") or None,
        since=parse_day(args.get("since", ""), "since"),
        until=None if until is None else until + DAY_MS, archived=ARCHIVED[archived],
        errors=bool(args.get("errors")), compacted=bool(args.get("compacted")),
    )  # fmt: skip


def _link(**changes: str | None) -> str:
    """This list with other filters; a page begins anew."""
    args: dict[str, Any] = {k: request.args.get(k) for k in ARGS} | changes
    kept = {k: v for k, v in args.items() if v and (k, v) != ("order", "touched")}
    return url_for("sessions.index", **kept)


def _shown(item: Item) -> Item:
    """A session as it may be shown: credentials in its texts are masked."""
    settings = current.settings()

    def mask(text: str) -> str:
        # Masked first: half a credential would not be known as one.
        masked = shown_title(text, settings)
        return masked if len(masked) <= MAX_TITLE else masked[:MAX_TITLE] + "…"

    def named(origin: overview.Origin | None) -> overview.Origin | None:
        return replace(origin, title=mask(origin.title)) if origin is not None else None

    return replace(
        item, title=mask(item.title), request=mask(" ".join(item.request.split())),
        models=tuple(map(mask, item.models)), agents=tuple(map(mask, item.agents)),
        origin=named(item.origin), parent=named(item.parent),
        children=tuple(map(_shown, item.children)),
    )  # fmt: skip


def _place(item: Item) -> str:
    """The folder of a session inside its project, empty for the project's own."""
    if item.directory in ("", item.project):
        return ""
    inside = PurePath(item.directory)
    return str(inside.relative_to(item.project)) if inside.is_relative_to(item.project) else (
        item.directory
    )  # fmt: skip
