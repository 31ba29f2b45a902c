"""`/inject`: what an agent is told of the memory, for the `instructions` of OpenCode's configuration,
which fetches them again for every call of a model and leaves out what is empty or failed."""

from __future__ import annotations

from flask import Blueprint, Response, request
from werkzeug.exceptions import HTTPException

from webapp.errors import MemoryAppError, Refused
from webapp.integration import inject
from webapp.memory.inject import instructions
from webapp.scope import GLOBAL, parse_scope
from webapp.web import current

PREFIX = "memory_"
"""OpenCode names a tool by its server, which is named `memory` where we are installed."""

blueprint = Blueprint("inject", __name__)


@blueprint.get("/inject")
def show() -> Response:
    """The inventory of a scope, to whom has its key; empty while the memory is unused."""
    settings = current.settings()
    scope = parse_scope(request.args.get("scope") or GLOBAL)
    if not inject.is_key(settings, scope, request.args.get("k", "")):
        raise Refused("This address has no key, or that of another scope. Install anew for one.")
    store = current.store()
    text = current.services().cache.get(
        store, f"inject {scope}", hold=False,
        make=lambda: instructions(store, scope, prefix=PREFIX, retrieval=settings.retrieval),
    )  # fmt: skip
    return _plain(text, 200)


@blueprint.errorhandler(MemoryAppError)
def _refused(error: MemoryAppError) -> Response:
    return _plain(error.message + "\n", error.status)


@blueprint.errorhandler(HTTPException)
def _failed(error: HTTPException) -> Response:
    return _plain((error.description or "That failed.") + "\n", error.code or 500)


def _plain(text: str, status: int) -> Response:
    return Response(text.encode("utf-8", "replace"), status, mimetype="text/plain")
