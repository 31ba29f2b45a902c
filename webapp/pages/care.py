"""`/cleanup`, `/receipts`, `/stats`, `/settings` and `/healthz`."""

from __future__ import annotations

import json
import os
from typing import Any

from flask import Blueprint, current_app, jsonify, request, url_for
from werkzeug.utils import redirect

from webapp import settings as setting_table
from webapp.errors import Conflict, InvalidInput, NotFound, Unreadable
from webapp.integration.program import NAME
from webapp.memory import agents_md, reflect, stats
from webapp.pages.entries import session_titles
from webapp.pages.promote import came_from
from webapp.store import index, now_ms, receipts
from webapp.transcripts import aside, cleanup, library
from webapp.transcripts.cleanup import Options
from webapp.web import current, filters, render
from webapp.web.jobs import Job
from webapp.web.parts import Desk

blueprint = Blueprint("care", __name__)
RECEIPTS = 100
REFLECTIONS = 10


@blueprint.get("/healthz")
def healthz() -> Any:
    """Whether the server answers, and who it is; no secrets, no paths."""
    version = current_app.jinja_env.globals["version"]
    return jsonify({"ok": True, "name": NAME, "version": version, "pid": os.getpid()})


def _options(values: Any) -> Options:
    settings = current.settings()

    def whole(name: str) -> int:
        text = values.get(name, "").strip()
        if not text:
            return int(getattr(settings, name))
        if not (text.isascii() and text.isdigit() and len(text) < 8):
            raise InvalidInput(f"{name.replace('_', ' ')} must be a whole number, 0 or more.", name)
        return int(text)

    names = " ".join(values.getlist("session")).replace(",", " ").split()
    return Options(
        tuple(dict.fromkeys(names)), whole("retention_days"), whole("max_sessions"),
        whole("keep_recent"), values.get("scope") or None,
    )  # fmt: skip


@blueprint.get("/cleanup")
def cleanup_page() -> Any:
    """The options, and once they are given the dry run."""
    options = _options(request.args)
    asked = any(name in request.args for name in ("retention_days", "max_sessions", "session"))
    return _cleanup(options, asked)


def _cleanup(options: Options, asked: bool, status: int = 200, changed: str = "") -> Any:
    store, settings = current.store(), current.settings()
    plan = None
    try:
        plan = cleanup.plan(store, settings, options) if asked else None
    except Unreadable as error:
        status, changed = error.status, error.message
    listing = library.totals(store, settings)
    return render.page(
        "cleanup", status=status, days=aside.DAYS, options=options, plan=plan, changed=changed,
        scopes=library.scopes(store, settings), listing=listing,
        aside=aside.contents(settings), doubt=aside.doubt(store, settings, now_ms()),
        reclaimed=receipts.total(store, aside.SWEPT, "bytes"),
    )  # fmt: skip


@blueprint.post("/cleanup")
def cleanup_apply() -> Any:
    """Applies the plan of the fingerprint that was posted, as a job; a changed library is refused
    with the new plan."""
    service = current.services()
    store = current.writable()
    options = _options(request.form)
    fingerprint = request.form.get("fingerprint", "")
    fresh = cleanup.plan(store, service.settings, options)
    if fresh.fingerprint != fingerprint:
        return _cleanup(
            options, True, 409,
            "The library has changed since that plan was made, so nothing was removed. This is the "
            "new plan.",
        )  # fmt: skip
    actor = service.settings.user

    def work(job: Job) -> None:
        job.total = len(fresh.steps)
        with service.store.session():
            for step in cleanup.apply(
                service.store, service.settings, options, fingerprint, actor, job.stop.is_set
            ):
                job.done = step.done
                job.problems = list(step.problems)
                job.result.update(bytes=step.bytes, days=aside.DAYS)
                if step.receipt is not None:
                    job.result["receipt"] = step.receipt

    job = service.jobs.start("cleanup", "Removing transcripts", work)
    return redirect(url_for("jobs.show", job_id=job.id), 303)


@blueprint.post("/cleanup/trash")
def give_back() -> Any:
    """Takes the removed transcripts off the disk at once: those that the page showed."""
    until = request.form.get("until", "")
    if not (until.isascii() and until.isdigit() and len(until) < 15):
        raise InvalidInput("Say up to which removal, as the cleanup page does.", "until")
    settings = current.settings()
    freed = aside.give_back(current.writable(), settings, settings.user, int(until), now_ms())
    text = f"Gave {filters.size(freed)} back." if freed else "There was nothing to give back."
    return render.back(url_for("care.cleanup_page"), text)


@blueprint.get("/receipts")
def receipt_list() -> Any:
    """What was forgotten, restored, purged and cleaned up, newest first."""
    store = current.store()
    before = request.args.get("before", "")
    if before and not (before.isascii() and before.isdigit() and len(before) < 15):
        raise InvalidInput("“before” is the number of a receipt.", "before")
    found = receipts.listing(store, RECEIPTS + 1, int(before) if before else None)
    return render.page(
        "receipts", receipts=found[:RECEIPTS],
        older=found[RECEIPTS - 1].id if len(found) > RECEIPTS else None,
    )  # fmt: skip


@blueprint.get("/receipts/<int:receipt_id>")
def receipt(receipt_id: int) -> Any:
    """One receipt, whole."""
    store, settings = current.store(), current.settings()
    change = _change(receipts.get(store, receipt_id))
    found = cleanup.whole(store, settings, receipts.get(store, receipt_id))
    ids = cleanup.named(found) if found.action == cleanup.ACTION else []
    detail = found.detail if change is None else {}
    return render.page(
        "receipt", receipt=found, detail=_shown_detail(detail), days=aside.DAYS, change=change,
        origin=came_from(change) if change else None,
        # Its credentials are masked already.
        diff=Desk(settings.mask).diff("", "\n".join(change.diff), True) if change else None,
        undoable=sum(cleanup.can_undo(store, settings, name) for name in ids),
    )  # fmt: skip


@blueprint.post("/receipts/<int:receipt_id>/undo")
def undo(receipt_id: int) -> Any:
    """Puts back every transcript that a cleanup's receipt names, or the former text of a file."""
    settings, store = current.settings(), current.writable()
    written = receipts.get(store, receipt_id)
    if written.action == agents_md.ACTION:
        try:
            number = agents_md.take_back(
                store, settings.backups_dir, settings.places, written, settings.user
            )
        except Conflict as error:
            error.details["back"] = url_for("care.receipt", receipt_id=receipt_id)
            error.details["back_text"] = "The receipt, with the difference"
            raise
        return render.back(url_for("care.receipt", receipt_id=number), "It is as it was before.")
    done, problems = cleanup.undo_receipt(current.writable(), settings, receipt_id, settings.user)
    text = f"Put {filters.plural(done, 'transcript')} back."
    if problems:
        text += f" {filters.plural(len(problems), 'other')} could not be: {problems[0]}"
    return render.back(url_for("care.receipt", receipt_id=receipt_id), text)


def _change(found: receipts.Receipt) -> agents_md.Change | None:
    """What a receipt tells of a write to an instruction file, None for any other."""
    try:
        settings = current.settings()
        return agents_md.change_of(found, settings.backups_dir, settings.places)
    except NotFound:
        return None


_LISTS = {"transcripts": {"id", "title", "scope", "why", "lines", "bytes"},
          "entries": {"id", "title", "scope"}}  # fmt: skip


_BYTES = ("bytes", "before", "after")


def _shown_detail(detail: Any) -> dict[str, Any]:
    """A receipt's detail in the shapes that its page shows; what another version of this program
    keeps there in any other shape is shown as the JSON it is."""
    if not isinstance(detail, dict):
        return {"detail": json.dumps(detail, ensure_ascii=False)}
    shown: dict[str, Any] = {}
    for key, value in detail.items():
        if value is None or value == [] or value == {}:
            continue
        if (
            (key in _LISTS and _is_list(value, _LISTS[key]))
            or (key == "options" and isinstance(value, dict))
            or (key in _BYTES and isinstance(value, int))
            or (key not in {*_LISTS, *_BYTES, "options", "problems"} and not _is_nested(value))
        ):
            shown[key] = value
        elif key == "ids" and isinstance(value, list):
            shown[key] = ", ".join(map(str, value))
        elif key == "problems" and isinstance(value, list):
            shown[key] = [str(problem) for problem in value]
        else:
            shown[f"{key} (as kept)"] = json.dumps(value, ensure_ascii=False)
    return shown


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, dict))


def _is_list(value: Any, keys: set[str]) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, dict)
        and keys <= item.keys()
        and all(isinstance(item[key], int if key in ("lines", "bytes") else str) for key in keys)
        for item in value
    )


@blueprint.get("/stats")
def stats_page() -> Any:
    """Counts, sizes and how they grew."""
    store, settings = current.store(), current.settings()
    record = library.overview(store, settings)
    return render.page(
        "stats", stats=stats.stats(store), listing=library.totals(store, settings),
        record=record,
        charts=[
            ("Entries by kind", "entry", stats.over_time(store, "kind")),
            ("Entries by project", "entry", stats.over_time(store, "scope")),
            ("Transcripts by project", "record", stats.cumulate(record.by_day, now_ms() // cleanup.DAY_MS)),
        ],
        slack=index.slack(store),
    )  # fmt: skip


@blueprint.post("/vacuum")
def vacuum() -> Any:
    """Gives the unused bytes of memory.db back, as a job."""
    service = current.services()
    current.writable()
    actor = service.settings.user

    def work(job: Job) -> None:
        job.total = 1
        job.note = "The search indexes are built anew after it."
        with service.store.session():
            done = index.vacuum(service.store, actor)
        job.done = 1
        job.result.update(before=done.before, after=done.after, receipt=done.receipt)

    job = service.jobs.start("vacuum", "Making memory.db smaller", work)
    return redirect(url_for("jobs.show", job_id=job.id), 303)


@blueprint.get("/settings")
def settings_page() -> Any:
    """Each setting, its value and where it came from."""
    settings, service = current.settings(), current.services()
    store = current.record_store()
    asked = reflect.listing(store, now_ms(), REFLECTIONS)
    rows = [
        (row.name, getattr(settings, row.name), settings.origins[row.name], row.help)
        for row in setting_table.TABLE
    ]
    return render.page(
        "settings", rows=rows, databases=settings.opencode_databases(),
        watched=service.watcher.status, spent=reflect.totals(store), asked=asked,
        titles=session_titles(store, [one.session_id for one in asked]),
        reflect_lacks=reflect.missing(settings), reflect_problem=service.reflector.problems,
        reflect_host=reflect.host(settings),
    )  # fmt: skip
