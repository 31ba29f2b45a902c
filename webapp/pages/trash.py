"""`/trash`: restore one or many, conflict choices, purge."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request, url_for

from webapp.errors import Conflict, MemoryAppError
from webapp.memory import trash
from webapp.pages.entries import came_from
from webapp.pages.search import parse_page
from webapp.web import current, filters, render

blueprint = Blueprint("trash", __name__)
NOTHING_TICKED = "Nothing was ticked, so nothing was changed."


@blueprint.get("/trash")
def index() -> Any:
    """The trash, newest first."""
    return _index()


def _index(status: int = 200, conflicts: list[dict[str, Any]] | None = None) -> Any:
    store = current.store()
    number = parse_page() if request.method == "GET" else 1
    items = trash.listing(store, (number - 1) * trash.PAGE, trash.PAGE)
    total, until = trash.seen(store)
    return render.page(
        "trash", status=status, items=items, total=total, page_number=number,
        until=until,
        has_more=number * trash.PAGE < total,
        origins=came_from(store, [item.entry for item in items]), conflicts=conflicts or [],
        days=current.settings().trash_days,
    )  # fmt: skip


@blueprint.post("/trash/<entry_id>/restore")
def restore(entry_id: str) -> Any:
    """Restores one entry; a conflict is shown with its choices and changes nothing."""
    store, form = current.writable(), request.form
    try:
        entry = trash.restore(
            store,
            entry_id,
            current.settings().user,
            form.get("choice"),
            form.get("title"),
        )
    except Conflict as error:
        item = trash.get(store, entry_id)
        return _index(409, [{"item": item, "live": error.details.get("entry"), "error": error}])
    return render.back(
        url_for("trash.index"), f"“{entry.title}” is back in {entry.scope}.",
        link=url_for("entries.show", entry_id=entry.id), link_text="open",
    )  # fmt: skip


@blueprint.post("/trash/restore")
def restore_many() -> Any:
    """Restores the ticked entries; those in conflict stay and are shown with their choices."""
    store = current.writable()
    done = 0
    conflicts: list[dict[str, Any]] = []
    problems: list[str] = []
    ticked = _ticked()
    if not ticked:
        return render.back(url_for("trash.index"), NOTHING_TICKED)
    for entry_id in ticked:
        try:
            trash.restore(store, entry_id, current.settings().user)
            done += 1
        except Conflict as error:
            item = trash.get(store, entry_id)
            conflicts.append({"item": item, "live": error.details.get("entry"), "error": error})
        except MemoryAppError as error:
            problems.append(error.message)
    text = f"Restored {filters.plural(done, 'entry', 'entries')}."
    if conflicts:
        render.toast(f"{text} {len(conflicts)} need a choice.")
        return _index(409, conflicts)
    return render.back(url_for("trash.index"), " ".join([text, *problems]))


@blueprint.post("/trash/<entry_id>/purge")
def purge(entry_id: str) -> Any:
    """Destroys one entry for good."""
    store = current.writable()
    trash.get(store, entry_id)
    trash.purge(store, [entry_id], current.settings().user)
    return render.back(url_for("trash.index"), "Destroyed 1 entry for good.")


@blueprint.post("/trash/purge")
def purge_many() -> Any:
    """Destroys the ticked entries, or with `all` everything that the page was showing a count of."""
    store = current.writable()
    user = current.settings().user
    if request.form.get("all"):
        seen = [request.form.get(name, "") for name in ("count", "until")]
        numbers = [int(text[:18]) if text.isascii() and text.isdigit() else -1 for text in seen]
        count = trash.purge(store, None, user, count=numbers[0], until=numbers[1])
    else:
        ids = _ticked()
        if not ids:
            return render.back(url_for("trash.index"), NOTHING_TICKED)
        count = trash.purge(store, ids, user)
    word = filters.plural(count, "entry", "entries")
    return render.back(url_for("trash.index"), f"Destroyed {word} for good.")


def _ticked() -> list[str]:
    return list(dict.fromkeys(request.form.getlist("id")))[: trash.PAGE]
