"""`/import` and `/entries/dump`: entries as a file, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request, url_for
from werkzeug.utils import redirect

from webapp.errors import InvalidInput, MemoryAppError, PlanChanged
from webapp.memory import portable
from webapp.memory.portable import NEW, REFUSED, REWRITTEN, SAME, Plan
from webapp.scope import parse_scope
from webapp.web import current, render

blueprint = Blueprint("portable", __name__)
MAX_UPLOAD = 16 * 1024 * 1024
SHOWN = 200
SUFFIX = {"jsonl": "jsonl", "markdown": "md"}


@blueprint.get("/entries/dump")
def dump() -> Any:
    """The entries of a scope, or of every one, as a file."""
    form = portable.check_form(request.args.get("as", "jsonl"))
    scope = request.args.get("scope") or None
    if scope is not None:
        scope = parse_scope(scope)
    store = current.store()

    def pieces() -> Iterator[bytes]:
        # The request's own connection is closed before the first piece is asked for.
        with store.session():
            for piece in portable.dump(store, scope, form):
                yield piece.encode("utf-8", "replace")

    name = f"entries.{SUFFIX[form]}"
    return Response(
        pieces(),
        mimetype="text/markdown" if form == "markdown" else "application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@blueprint.get("/import")
def show() -> Any:
    """The form for a file or a text."""
    return _page(None, b"")


@blueprint.post("/import")
def preview() -> Any:
    """What the import would do; with the fingerprint of a plan, the import."""
    request.max_content_length = MAX_UPLOAD
    request.max_form_memory_size = MAX_UPLOAD
    data = b""
    try:
        data = _data()
        into = request.form.get("into", "").strip() or None
        into = parse_scope(into) if into else None
        if not data.strip():
            raise InvalidInput("Choose a file, or paste what is to be imported.", "file")
        fingerprint = request.form.get("fingerprint")
        if not fingerprint:
            return _page(portable.plan(current.store(), data, into), data)
        _, receipt = portable.apply(
            current.writable(), data, into, fingerprint, current.settings().user
        )
    except PlanChanged as error:
        return _page(error.details["plan"], data, error)
    except MemoryAppError as error:
        return _page(None, data, error)
    return redirect(url_for("care.receipt", receipt_id=receipt), 303)


def _data() -> bytes:
    upload = request.files.get("file")
    data = upload.read() if upload is not None and upload.filename else b""
    data = data or request.form.get("text", "").encode("utf-8", "replace")
    # A browser sends the lines of a form's text with CRLF, and the preview's text comes back as one.
    return data.replace(b"\r\n", b"\n")


def _page(plan: Plan | None, data: bytes, error: MemoryAppError | None = None) -> Any:
    items = [item for item in plan.items if item.state != SAME] if plan else []
    items.sort(key=lambda item: item.state != REFUSED)
    writes = plan is not None and bool(plan.counts[NEW] or plan.counts[REWRITTEN])
    return render.page(
        "import", plan=plan, items=items[:SHOWN], more=max(0, len(items) - SHOWN), writes=writes,
        text=data.decode("utf-8", "replace") if plan else "", error=error,
        into=request.form.get("into", ""), status=error.status if error else 200,
    )  # fmt: skip
