"""`/entries/<id>`: view, edit, forget; `/entries/new`."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request, url_for
from werkzeug.utils import redirect

from webapp.errors import Conflict, InvalidInput, NotFound
from webapp.memory import entries, query, trash
from webapp.memory.entries import Draft, Entry
from webapp.store import now_ms
from webapp.web import current, filters, render

blueprint = Blueprint("entries", __name__)
FIELDS = ("scope", "kind", "title", "body", "tags", "expires", "seen", "rewrite")


@blueprint.get("/entries/new")
def new() -> Any:
    """The form for a new entry; its fields may be given in the address."""
    args = request.args
    form = {name: args.get(name, "") for name in FIELDS}
    return _form(None, {**form, "kind": form["kind"] or "fact", "scope": form["scope"] or "global"})


@blueprint.post("/entries")
def create() -> Any:
    """Saves a new entry."""
    store = current.writable()
    form = _posted()
    try:
        draft = _draft(form, None)
        saved = entries.save(
            store, draft, current.settings().user, may_rewrite=bool(form["rewrite"])
        )
    except (InvalidInput, Conflict) as error:
        return _form(None, form, error)
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
        return render.page("entry", status=410, entry=gone.entry, gone=gone, live=False)
    return render.page("entry", entry=entry, gone=None, live=entries.is_live(entry))


@blueprint.get("/entries/<entry_id>/edit")
def edit(entry_id: str) -> Any:
    """The form for an entry."""
    return _form(entry := entries.get(current.store(), entry_id), _fields(entry))


@blueprint.post("/entries/<entry_id>")
def update(entry_id: str) -> Any:
    """Saves an edited entry. If it changed meanwhile, nothing is written and both are shown."""
    store = current.writable()
    form = _posted()
    try:
        entry = entries.get(store, entry_id)
    except NotFound:
        trash.get(store, entry_id)
        gone = Conflict(
            "Somebody forgot this entry while you were editing it. Your text is still in the form; "
            "saving it makes a new entry."
        )
        return _form(None, {**form, "seen": ""}, gone)
    try:
        seen = form["seen"]
        entries.edit(
            store, entry_id, _draft(form, entry), current.settings().user,
            int(seen[:19]) if seen.isascii() and seen.isdigit() else None,
        )  # fmt: skip
    except (InvalidInput, Conflict) as error:
        return _form(entry, form, error)
    return render.back(url_for("entries.show", entry_id=entry_id), "Saved your changes.")


@blueprint.post("/entries/<entry_id>/forget")
def forget(entry_id: str) -> Any:
    """Moves an entry to the trash; the toast undoes it."""
    (gone,) = entries.forget(current.writable(), [entry_id], current.settings().user)
    undo = url_for("trash.restore", entry_id=entry_id)
    return render.back(url_for("search.index"), f"“{gone.title}” is in the trash.", undo)


def _posted() -> dict[str, str]:
    return {name: request.form.get(name, "").replace("\r\n", "\n") for name in FIELDS}


def _fields(entry: Entry) -> dict[str, str]:
    return {
        "scope": entry.scope, "kind": entry.kind, "title": entry.title, "body": entry.body,
        "tags": ", ".join(entry.tags), "seen": str(entry.updated_at), "rewrite": "",
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
    entry: Entry | None, form: dict[str, str], error: InvalidInput | Conflict | None = None
) -> Any:
    conflict = error.details.get("entry") if isinstance(error, Conflict) else None
    if isinstance(error, Conflict) and entry is not None and conflict and conflict.id == entry.id:
        form = {**form, "seen": str(conflict.updated_at)}
    scopes = [name for name, _ in current.cached_facets().scopes]
    return render.page(
        "entry_form", status=error.status if error else 200, entry=entry, form=form, error=error,
        field=getattr(error, "field", None), conflict=conflict, kinds=entries.KINDS,
        scopes=[s for s in dict.fromkeys(["global", *scopes]) if s],
        may_rewrite=bool(error and error.details.get("rewrite")),
        limits={"title": entries.MAX_TITLE, "body": entries.MAX_BODY, "tags": entries.MAX_TAGS},
    )  # fmt: skip


@blueprint.get("/entries")
def listing() -> Any:
    """The entries are the search page without words."""
    return redirect(url_for("search.index", sort="newest"))
