"""`/entries/<id>`: view, edit, forget; `/entries/new`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from flask import Blueprint, request, url_for
from werkzeug.utils import redirect

from webapp import opencode
from webapp.errors import Conflict, InvalidInput, MemoryAppError, NotFound
from webapp.memory import entries, origins, query, trash
from webapp.memory.entries import Draft, Entry
from webapp.memory.origins import Origin
from webapp.memory.similar import Similar, similar
from webapp.scope import parse_scope
from webapp.store import Store, now_ms
from webapp.transcripts import library
from webapp.web import current, filters, render

blueprint = Blueprint("entries", __name__)
FIELDS = (
    "scope", "kind", "title", "body", "tags", "expires", "seen", "rewrite", "session", "lines", "h",
    "copy", "self",
)  # fmt: skip
"""`session`, `lines` and `h` are where a text was taken from, `copy` is the entry that it is one of,
`self` the one that is edited."""

SHOWN = 100
"""Close entries that a form may tell to have shown."""


@dataclass(frozen=True, slots=True)
class From:
    """Where an entry came from, as it is told: the link back, and whether it was edited since."""

    origin: Origin
    title: str
    link: str
    edited: bool


@blueprint.get("/entries/new")
def new() -> Any:
    """The form for a new entry; its fields may be given in the address."""
    args = request.args
    form = {name: args.get(name, "") for name in FIELDS}
    return _form(None, {**form, "kind": form["kind"] or "fact", "scope": form["scope"] or "global"},
                 close=close_to(form))  # fmt: skip


@blueprint.post("/entries")
def create() -> Any:
    """Saves a new entry."""
    form = _posted()
    try:
        store = current.writable()
        draft, origin = _draft(form, None), _origin(store, form)
        close = similar(store, draft.scope, draft.title, draft.body, form["copy"] or None)
        if _unseen(close):
            return _form(None, form, close=close, asks=True)
        saved = entries.save(
            store, draft, current.settings().user, may_rewrite=bool(form["rewrite"]), origin=origin
        )
    except MemoryAppError as error:
        return _form(None, form, error, _close_if_readable(form))
    word = "Saved" if saved.created else "Rewrote"
    return render.back(url_for("entries.show", entry_id=saved.entry.id), f"{word} the entry.")


@blueprint.get("/entries/<entry_id>")
def show(entry_id: str) -> Any:
    """One entry; one in the trash says so and offers to restore it."""
    store = current.store()
    try:
        entry = entries.get(store, entry_id)
    except NotFound:
        try:
            gone = trash.get(store, entry_id)
        except NotFound as error:
            raise NotFound(
                "There is no such entry. It may have been purged from the trash; the receipts tell."
            ) from error
        return render.page(
            "entry", status=410, entry=gone.entry, gone=gone, live=False,
            origin=came_from(store, [gone.entry]).get(entry_id),
        )  # fmt: skip
    return render.page(
        "entry", entry=entry, gone=None, live=entries.is_live(entry),
        origin=came_from(store, [entry]).get(entry_id),
    )  # fmt: skip


def came_from(store: Store, shown: Iterable[Entry]) -> Mapping[str, From]:
    """Where some entries came from, by their ids."""
    by_id = {entry.id: entry for entry in shown}
    found = origins.of_many(store, list(by_id))
    sessions = [origin.session_id for origin in found.values()]
    titles = session_titles(store, sessions)
    return {
        entry_id: From(
            origin, titles.get(origin.session_id) or origin.session_id, origin_link(origin),
            origin.at != by_id[entry_id].updated_at,
        )
        for entry_id, origin in found.items()
    }  # fmt: skip


def session_titles(store: Store, ids: Iterable[str]) -> Mapping[str, str]:
    """The titles of some sessions by their ids, from their transcripts or else from OpenCode; of those
    that neither has there is none."""
    settings, wanted = current.settings(), list(dict.fromkeys(ids))
    titles = dict(library.titles(store, settings, wanted))
    databases = settings.opencode_databases()
    for session_id in wanted:
        if not titles.get(session_id):
            found, _ = opencode.find_session(databases, session_id)
            if found is not None:
                titles[session_id] = library.shown_title(found.title, settings)
    return titles


def origin_link(origin: Origin) -> str:
    """The way back to the lines, which notices when other text stands there, or to the session."""
    if origin.is_whole:
        return url_for("session.show", session_id=origin.session_id)
    place = url_for(
        "transcripts.show", session_id=origin.session_id, lines=origin.lines, h=origin.hash
    )
    return f"{place}#L{origin.first}"


@blueprint.post("/similar")
def close() -> Any:
    """The entries that are close to what stands in the form, as it is typed."""
    return render.page("similar", target="similar", close=close_to(_posted()), asks=False)


def close_to(form: Mapping[str, str]) -> tuple[Similar, ...]:
    """What is close to the text of a form, however unfinished."""
    try:
        scope = parse_scope(form["scope"] or "global")
    except InvalidInput:
        return ()
    return similar(
        current.store(), scope, " ".join(form["title"].split()), form["body"],
        form["self"] or form["copy"] or None,
    )  # fmt: skip


def _unseen(close: Iterable[Similar], known: Iterable[str] = ()) -> bool:
    """Whether a close entry was not shown yet; one that a save would rewrite is asked about by
    itself."""
    shown = {*request.form.getlist("shown")[:SHOWN], *known}
    return any(not hit.same and _key(hit) not in shown for hit in close)


def _key(hit: Similar) -> str:
    return f"{hit.entry.id}:{hit.entry.updated_at}"


def _accepted(store: Store, entry: Entry) -> list[str]:
    """What was close to an entry already when it was saved as it is."""
    close = similar(store, entry.scope, entry.title, entry.body, entry.id)
    return [_key(hit) for hit in close if hit.entry.updated_at <= entry.updated_at]


def _origin(store: Store, form: Mapping[str, str]) -> Origin | None:
    """The lines that the form names; of a copy those of the entry that it is one of."""
    if form["session"]:
        return origins.parse(form["session"], form["lines"], form["h"])
    found = origins.of(store, form["copy"]) if form["copy"] else None
    if found is None:
        return None
    # A copy of an edited text is no more that of the lines than the text is.
    try:
        edited = entries.get(store, form["copy"]).updated_at != found.at
    except NotFound:
        edited = trash.get(store, form["copy"]).entry.updated_at != found.at
    return found if edited else replace(found, at=0)


@blueprint.get("/entries/<entry_id>/edit")
def edit(entry_id: str) -> Any:
    """The form for an entry."""
    return _form(entry := entries.get(current.store(), entry_id), _fields(entry))


@blueprint.post("/entries/<entry_id>")
def update(entry_id: str) -> Any:
    """Saves an edited entry. If it changed meanwhile, nothing is written and both are shown."""
    form = _posted()
    entry = None
    try:
        store = current.writable()
        try:
            entry = entries.get(store, entry_id)
        except NotFound:
            return _form(None, {**form, "seen": "", "self": ""}, _gone(store, entry_id))
        seen = form["seen"]
        draft = _draft(form, entry)
        if (draft.scope, draft.title, draft.body) != (entry.scope, entry.title, entry.body):
            close = similar(store, draft.scope, draft.title, draft.body, entry_id)
            if _unseen(close, _accepted(store, entry)):
                return _form(entry, form, close=close, asks=True)
        entries.edit(
            store, entry_id, draft, current.settings().user,
            int(seen[:19]) if seen.isascii() and seen.isdigit() else None,
        )  # fmt: skip
    except MemoryAppError as error:
        return _form(entry, form, error, edits=entry_id)
    return render.back(url_for("entries.show", entry_id=entry_id), "Saved your changes.")


def _gone(store: Store, entry_id: str) -> MemoryAppError:
    """Why an entry that is being edited is not there any more."""
    still = "Your text is still in the form; saving it makes a new entry."
    try:
        trash.get(store, entry_id)
    except NotFound:
        return NotFound(f"There is no such entry any more: it was purged from the trash. {still}")
    return Conflict(f"Somebody forgot this entry while you were editing it. {still}")


def _close_if_readable(form: Mapping[str, str]) -> tuple[Similar, ...]:
    try:
        return close_to(form)
    except MemoryAppError:
        return ()


@blueprint.post("/entries/<entry_id>/forget")
def forget(entry_id: str) -> Any:
    """Moves an entry to the trash; the toast undoes it."""
    (gone,) = entries.forget(current.writable(), [entry_id], current.settings().user)
    undo = url_for("trash.restore", entry_id=entry_id)
    return render.back(url_for("search.index"), f"“{gone.title}” is in the trash.", undo)


def _posted() -> dict[str, str]:
    return {name: request.form.get(name, "").replace("\r\n", "\n") for name in FIELDS}


def _fields(entry: Entry) -> dict[str, str]:
    return dict.fromkeys(FIELDS, "") | {
        "scope": entry.scope, "kind": entry.kind, "title": entry.title, "body": entry.body,
        "tags": ", ".join(entry.tags), "seen": str(entry.updated_at), "self": entry.id,
        "expires": filters.iso(entry.expires_at) if entry.expires_at else "",
    }  # fmt: skip


def _draft(form: dict[str, str], entry: Entry | None) -> Draft:
    now = now_ms()
    unchanged = entry is not None and form["expires"] == _fields(entry)["expires"]
    expires = entry.expires_at if entry and unchanged else query.parse_expiry(form["expires"], now)
    # Another program's tag may hold a comma; it stays whole as long as nobody touches the field.
    same_tags = entry is not None and form["tags"] == _fields(entry)["tags"]
    return entries.draft(
        scope=form["scope"], kind=form["kind"], title=form["title"], body=form["body"],
        tags=entry.tags if entry and same_tags else form["tags"].split(","), expires_at=expires,
    )  # fmt: skip


def _form(
    entry: Entry | None, form: dict[str, str], error: MemoryAppError | None = None,
    close: tuple[Similar, ...] = (), asks: bool = False, edits: str = "",
) -> Any:  # fmt: skip
    status = error.status if error else 409 if asks else 200
    values = form_values(entry, form, error, close, asks)
    if edits:
        values["edits"] = edits
    return render.page("entry_form", status=status, **values)


def form_values(
    entry: Entry | None, form: dict[str, str], error: MemoryAppError | None = None,
    close: tuple[Similar, ...] = (), asks: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """What the form of an entry is rendered with. `close` are entries like it; with `asks` they are
    why nothing was saved yet."""
    conflict = error.details.get("entry") if isinstance(error, Conflict) else None
    if isinstance(error, Conflict) and entry is not None and conflict and conflict.id == entry.id:
        form = {**form, "seen": str(conflict.updated_at)}
    scopes: list[str] = []
    # Without a store there is nothing to suggest; what was typed is to stay.
    with suppress(MemoryAppError):
        scopes = [name for name, _ in current.cached_facets().scopes]
    return {
        "edits": entry.id if entry else "",
        "entry": entry, "form": form, "error": error, "field": getattr(error, "field", None),
        "conflict": conflict, "kinds": entries.KINDS, "close": close, "asks": asks,
        "scopes": [s for s in dict.fromkeys(["global", *scopes]) if s],
        "may_rewrite": bool(error and error.details.get("rewrite")) or bool(form["rewrite"]),
        "limits": {
            "title": entries.MAX_TITLE, "body": entries.MAX_BODY, "tags": entries.MAX_TAGS,
        },
    }  # fmt: skip


@blueprint.get("/entries")
def listing() -> Any:
    """The entries are the search page without words."""
    return redirect(url_for("search.index", sort="newest"))
