"""`/promote`: lines, a message or an entry as an entry of its own, or as a proposal for AGENTS.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, request, url_for

from webapp import secrets
from webapp.errors import InvalidInput, MemoryAppError, NotFound, PlanChanged
from webapp.memory import agents_md, origins
from webapp.memory.agents_md import Proposal, Target
from webapp.memory.entries import MAX_TITLE
from webapp.pages.entries import FIELDS, close_to, form_values, origin_link
from webapp.scope import GLOBAL
from webapp.transcripts import library
from webapp.web import current, render
from webapp.web.parts import Desk
from webapp.web.passage import Passage, fitted, take

blueprint = Blueprint("promote", __name__)
WAYS = ("entry", "file")
NAMES = ("session", "lines", "message", "entry")


@blueprint.get("/promote")
def show() -> Any:
    """What was taken, with the form of an entry, or with `to=file` the files that it may go to."""
    way = request.args.get("to", WAYS[0])
    if way not in WAYS:
        raise InvalidInput(f"“{way[:20]}” is no way to promote. Known: {', '.join(WAYS)}.", "to")
    passage = _passage(request.args)
    return _page(passage, way)


@blueprint.post("/promote/diff")
def diff() -> Any:
    """The exact change to a file, with its fingerprint. Nothing is written."""
    passage = _posted_passage()
    try:
        target = _target(passage, request.form.get("target", ""))
        proposal = agents_md.propose(target, request.form.get("text", ""), _place())
    except MemoryAppError as error:
        return _page(passage, "file", error=error)
    return _page(passage, "file", proposal=proposal)


@blueprint.post("/promote/write")
def write() -> Any:
    """Writes the change of the fingerprint that was posted; a file that has changed since is refused
    with the new change."""
    settings = current.settings()
    passage = _posted_passage()
    try:
        store = current.writable()
        target = _target(passage, request.form.get("target", ""))
        receipt = agents_md.write(
            store, settings.backups_dir, target, request.form.get("text", ""), _place(),
            request.form.get("fingerprint", ""), settings.user, _scope(passage), _told(passage),
        )  # fmt: skip
    except PlanChanged as error:
        return _page(passage, "file", proposal=error.details["plan"], changed=error)
    except MemoryAppError as error:
        return _page(passage, "file", error=error)
    return render.back(
        url_for("care.receipt", receipt_id=receipt), f"Written to {current.tilde(target.path)}."
    )


def _passage(args: Mapping[str, str]) -> Passage:
    try:
        return take(
            current.record_store(), current.settings(), {name: args.get(name, "") for name in NAMES}
        )
    except NotFound as error:
        session_id = args.get("session")
        if session_id and not args.get("entry"):
            error.details.setdefault("back", url_for("transcripts.first", session_id=session_id))
            error.details.setdefault("back_text", "The transcript")
        raise


def _posted_passage() -> Passage:
    """The passage that a form names. The page of an error keeps the text that was posted."""
    try:
        return _passage(request.form)
    except MemoryAppError as error:
        error.details["text"] = request.form.get("text", "")
        raise


def _page(
    passage: Passage, way: str, proposal: Proposal | None = None,
    error: MemoryAppError | None = None, changed: MemoryAppError | None = None,
) -> Any:  # fmt: skip
    failed = error or changed
    back, back_text = _back(passage)
    values: dict[str, Any] = {
        "passage": passage, "way": way, "back": back, "back_text": back_text, "cancel": back,
        "links": {name: _link(passage, name) for name in WAYS},
    }  # fmt: skip
    status = failed.status if failed else 200
    if current.read_only():
        text = request.form.get("text", "")
        return render.page("promote", status=status, error=error, text=text, **values)
    if way == "entry":
        form = _entry_form(passage)
        values |= form_values(None, form, close=close_to(form))
        return render.page("promote", status=status, **values)
    targets = _targets(passage)
    given = request.form
    chosen = given.get("target") or _suggested(targets, _scope(passage) == GLOBAL)
    values |= {
        "targets": targets, "chosen": chosen, "error": error, "changed": changed,
        "text": given.get("text", _text(passage)), "place": _place(),
        "headings": {t.key: agents_md.headings(t) for t in targets},
        "proposal": proposal, "most": agents_md.MAX_TEXT,
        # What is shown here has its credentials masked by the proposal itself.
        "diff": Desk(False).diff("", "\n".join(proposal.diff), True) if proposal else None,
    }  # fmt: skip
    return render.page("promote", status=status, **values)


def _link(passage: Passage, way: str) -> str:
    named: dict[str, Any] = {**passage.address, "to": way}
    return url_for("promote.show", **named)


def _suggested(targets: tuple[Target, ...], everywhere: bool) -> str:
    """The file that is meant, if there is one: never one of every project for a text of one."""
    found = [t for t in targets if t.everywhere == everywhere and not t.problem]
    return next((t.key for t in found if not t.warning), found[0].key if found else "")


def _back(passage: Passage) -> tuple[str, str]:
    if passage.entry is not None:
        return url_for("entries.show", entry_id=passage.entry.id), f"“{passage.source}”"
    if passage.origin is None:
        return url_for("search.index"), "Search"
    if "message" in passage.address and passage.session is not None:
        place = url_for(
            "session.show", session_id=passage.session.id, at=passage.address["message"]
        )
        return place, f"“{passage.source}”"
    return origin_link(passage.origin), f"“{passage.source}”"


def _entry_form(passage: Passage) -> dict[str, str]:
    form = dict.fromkeys(FIELDS, "")
    form |= {
        "scope": passage.scope, "kind": passage.kind, "title": passage.title, "body": passage.text,
        "tags": ", ".join(passage.tags),
    }  # fmt: skip
    if passage.entry is not None:
        form["copy"] = passage.entry.id
    elif passage.origin is not None:
        origin = passage.origin
        form |= {"session": origin.session_id, "lines": origin.lines, "h": origin.hash}
    return form


def _text(passage: Passage) -> str:
    if passage.entry is None:
        return passage.text
    return fitted(f"## {passage.title}\n\n{passage.text}", agents_md.MAX_TEXT, "the entry")


def _scope(passage: Passage) -> str:
    return passage.entry.scope if passage.entry is not None else passage.scope


def _targets(passage: Passage) -> tuple[Target, ...]:
    return agents_md.targets(_scope(passage), passage.session, current.settings().places)


def _target(passage: Passage, key: str) -> Target:
    for target in _targets(passage):
        if target.key == key:
            return target
    raise InvalidInput("Choose one of the files.", "target")


def _place() -> str:
    """Where in the chosen file: `end`, or the number of a heading."""
    return request.form.get(f"place_{request.form.get('target', '')}", agents_md.END)


def _told(passage: Passage) -> dict[str, Any]:
    """What the receipt tells of where the text came from."""
    if passage.entry is not None:
        return {"entry": passage.entry.id, "title": passage.source}
    origin = passage.origin
    if origin is None:
        return {}
    return {
        "session": origin.session_id, "first": origin.first, "last": origin.last, "hash": origin.hash,
    }  # fmt: skip


def came_from(change: agents_md.Change) -> tuple[str, str] | None:
    """The link and the words for where the text of a receipt came from."""
    told = change.origin
    entry, title = told.get("entry"), told.get("title")
    if isinstance(entry, str) and entry and entry.isprintable():
        word = title if isinstance(title, str) and title else "an entry"
        return url_for("entries.show", entry_id=entry), secrets.mask(word[:MAX_TITLE])
    session, first, last, mark = (told.get(name) for name in ("session", "first", "last", "hash"))
    if not (isinstance(session, str) and isinstance(mark, str)):
        return None
    try:
        origin = origins.parse(session, f"{first}-{last}", mark)
    except InvalidInput:
        return None
    titles = library.titles(current.store(), current.settings(), [session])
    word = "line" if first == last else "lines"
    return origin_link(origin), f"{word} {origin.lines} of {titles.get(session) or session}"
