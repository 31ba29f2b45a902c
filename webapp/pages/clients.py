"""`/settings/clients`: how other programs use the memory's tools."""

from __future__ import annotations

from typing import Any

from flask import Blueprint

from webapp.integration import clients, token
from webapp.web import current, render

blueprint = Blueprint("clients", __name__)


@blueprint.get("/settings/clients")
def index() -> Any:
    """What to write into the configuration of each program, with the paths of this installation."""
    settings = current.settings()
    file = token.path(settings)
    return render.page(
        "clients", by_command=clients.by_command(settings), by_http=clients.by_http(settings),
        file=file, is_there=file.exists(),
    )  # fmt: skip
