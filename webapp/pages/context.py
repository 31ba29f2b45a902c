"""`/context/<id>`: what the model sees of a session, and what of it is only stored."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request

from webapp import opencode
from webapp.opencode.modelview import PRUNED
from webapp.pages.news import session_poll
from webapp.pages.session import session_of
from webapp.transcripts import export, library
from webapp.web import current, render
from webapp.web.contextview import context_view
from webapp.web.links import message_link

blueprint = Blueprint("context", __name__)


@blueprint.get("/context/<session_id>")
def show(session_id: str) -> Any:
    """What the model sees now, or with `before` what it saw before that message, and with `after`
    once that compaction had ended."""
    export.check_id(session_id)
    settings = current.settings()
    session, problems = session_of(session_id)
    before, after = request.args.get("before") or None, request.args.get("after") or None
    tag = render.etag(opencode.version([session.db]))
    view = context_view(settings, current.record_store(), session, before, after)
    return render.page(
        "context", session=session, problems=problems, cleared=PRUNED,
        title=library.shown_title(session.title, settings) or session.id,
        view=view, tag=tag, poll=session_poll(session, view.seen, "context"),
        link=message_link(session.id), is_now=before is None and after is None,
    )  # fmt: skip
