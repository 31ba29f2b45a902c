"""`/sessions/<id>`: messages and parts as OpenCode structures them, 50 a page."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, request, url_for

from webapp import opencode
from webapp.errors import InvalidInput, NotFound, Unreadable
from webapp.opencode import Session, find_session, news, overview, reading, session_page
from webapp.opencode.sessions import message_keys
from webapp.pages.news import session_poll
from webapp.store import now_ms
from webapp.transcripts import files, library
from webapp.web import current, render
from webapp.web.links import message_link
from webapp.web.parts import Desk

blueprint = Blueprint("session", __name__)
ORDERS = ("oldest", "newest")


@blueprint.get("/sessions/<session_id>")
@blueprint.get("/sessions/<session_id>/<message_id>")
def show(session_id: str, message_id: str = "") -> Any:
    """A page of a session: its first or last messages, or those around the one that is named."""
    settings = current.settings()
    order = request.args.get("order", ORDERS[0])
    if order not in ORDERS:
        raise InvalidInput(f"“{order[:20]}” is no order. Known: {', '.join(ORDERS)}.", "order")
    session, problems = session_of(session_id)
    wanted = message_id or request.args.get("at", "")
    is_fragment = render.wants("more")
    desk = Desk(settings.mask)
    tag = render.etag(opencode.version([session.db]))
    with reading(session.db) as connection:
        seen = news.seen(connection, session.id)
        keys = message_keys(connection, session.id)
        numbers = {key.id: number for number, key in enumerate(keys, 1)}
        at = wanted
        if wanted and wanted not in numbers:
            at = session_page.message_of_part(connection, wanted) or wanted
        try:
            place = session_page.place(
                keys, order == "newest", at, request.args.get("before", ""),
                request.args.get("after", ""),
            )  # fmt: skip
        except NotFound as error:
            error.details["back"] = url_for("session.show", session_id=session.id)
            error.details["back_text"] = "The session"
            raise
        every = at if request.args.get("parts") == "all" else None
        shown = {
            item.id: desk.message(item, item.id == every)
            for item in session_page.read(connection, session, place.keys, now_ms())
        }
        todos = () if is_fragment else session_page.todos(connection, session.id)
        growth = None if is_fragment else session_page.growth(connection, session.id, keys)
    transcript = library.get_ours(current.record_store(), settings, session.id)
    # In the order of the session, as the marks are; a row that went meanwhile has no message.
    in_order = sorted(shown, key=lambda one: numbers.get(one, 0))
    revert = session.revert or {}
    reverted = numbers.get(str(revert.get("messageID")), 0)
    return render.page(
        "session", target="more", session=session, title=desk.word(session.title) or session.id,
        scope=desk.word(session.scope, 400), problems=problems, order=order, place=place,
        messages=[
            (number, shown[key.id])
            for number, key in zip(place.numbers, place.keys, strict=True)
            if key.id in shown
        ],
        lines=files.lines_of(transcript.path, in_order) if transcript else {},
        transcript=transcript, at=at, wanted=wanted, todos=desk.todos(todos), growth=growth,
        reverted=reverted, revert=_revert(desk, session), revert_id=str(revert.get("messageID")),
        poll=session_poll(session, seen, order), tag=tag, link=message_link(session.id),
        page_link=_page_link(session.id, order),
    )  # fmt: skip


def session_of(session_id: str) -> tuple[Session, list[str]]:
    """The session, and the databases that could not be read. Raises NotFound and Unreadable."""
    settings = current.settings()
    databases = settings.opencode_databases()
    session, problems = find_session(databases, session_id)
    if session is not None:
        return session, problems
    transcript = library.get_ours(current.record_store(), settings, session_id)
    details: dict[str, Any] = {}
    if transcript is not None:
        details["back"] = url_for("transcripts.first", session_id=session_id)
        details["back_text"] = "Its transcript"
    problems = problems or overview.without_sessions(databases)
    if problems:
        raise Unreadable(" ".join(problems), **details)
    if not databases:
        raise NotFound(
            f"No OpenCode database was found in {settings.opencode_dir}. Name it with "
            "--opencode-db to see its sessions.",
            **details,
        )
    raise NotFound(
        f"OpenCode has no session {session_id[:60]}"
        + (" any more; its transcript is kept." if details else ". Look for it in the list."),
        **details,
    )


def _revert(desk: Desk, session: Session) -> Any:
    """The diff that a revert took back, or the whole of it where it names no message."""
    revert = session.revert
    if not revert:
        return None
    diff = revert.get("diff")
    if isinstance(diff, str) and diff.strip():
        return desk.diff("what was taken back", diff, False)
    return None


def _page_link(session_id: str, order: str) -> Any:
    """Makes links to other pages of this session, in this order or another."""

    def link(**args: Any) -> str:
        wanted = {"order": order, **args}
        if wanted["order"] == ORDERS[0]:
            del wanted["order"]
        return url_for("session.show", session_id=session_id, **wanted)

    return link
