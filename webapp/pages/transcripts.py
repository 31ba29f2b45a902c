"""`/transcripts`: the library, a window of lines, search inside, export."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from flask import Blueprint, Response, request, url_for
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.utils import redirect

from webapp import opencode
from webapp.errors import InvalidInput, MemoryAppError, NotFound, Unreadable
from webapp.lines import MAX_WINDOW, LineRange, fingerprint, parse_range
from webapp.opencode import Session, find_session
from webapp.opencode import news as sessions_news
from webapp.pages.news import transcript_poll
from webapp.pages.search import parse_page
from webapp.store import now_ms, receipts
from webapp.transcripts import (
    aside,
    cleanup,
    download,
    export,
    files,
    grep,
    library,
    message,
    news,
    outline,
    relocate,
    window,
)
from webapp.transcripts.pending import pending
from webapp.web import current, filters, render
from webapp.web.jobs import Job

blueprint = Blueprint("transcripts", __name__)
PAGE = 100
PRINTED = re.compile(
    r"(?:.*/)?(?P<id>[A-Za-z0-9][A-Za-z0-9_.~-]*)\.md[:-](?P<line>[0-9]+(?:-[0-9]+)?)(?:[:-].*)?"
)
"""A line as `rg -n` prints it: the path, the number or a range, and for a hit the text."""


@blueprint.get("/transcripts")
def index() -> Any:
    """The library, or with `show=missing` the sessions that have no transcript yet."""
    store, settings = current.record_store(), current.settings()
    databases = settings.opencode_databases()
    tag, seen = render.etag(opencode.version(databases)), sessions_news.ends(databases)
    found, room = current.cached_pending(store)
    number = parse_page()
    first = (number - 1) * PAGE
    args = request.args
    scope, text = args.get("scope") or None, args.get("q", "")
    sort = args.get("sort", "touched")
    if sort not in library.SORTS:
        raise InvalidInput(f"“{sort[:20]}” is no column to sort by.", "sort")
    descending = (
        args.get("order", "desc" if sort in ("touched", "size", "lines") else "asc") == "desc"
    )
    listing = library.listing(
        store, settings, scope=scope, text=text, sort=sort, descending=descending,
        after=args.get("after", ""), before=args.get("before", ""), limit=PAGE,
    )  # fmt: skip
    return render.page(
        "transcripts", listing=listing, pending=found, room=room, page_number=number, page_size=PAGE,
        absent=[
            replace(session, title=library.shown_title(session.title, settings))
            for session in found.absent[first : first + PAGE]
        ],
        problems=found.problems, show=args.get("show", ""), scope=scope, text=text, sort=sort,
        descending=descending, sort_link=_sort_link, scopes=library.scopes(store, settings),
        databases=databases, page_link=_page_link, tag=tag,
        poll=url_for("news.sessions", seen=seen.dump()),
    )  # fmt: skip


def _sort_link(column: str, current_sort: str, descending: bool) -> str:
    first = "desc" if column in ("touched", "size", "lines") else "asc"
    order = ("asc" if descending else "desc") if column == current_sort else first
    args: dict[str, Any] = {
        k: v for k, v in request.args.items() if k in ("scope", "q", "show") and v
    }
    return url_for("transcripts.index", **args, sort=column, order=order)


def _page_link(**place: Any) -> str:
    args: dict[str, Any] = {
        k: v for k, v in request.args.items() if k in ("scope", "q", "show", "sort", "order") and v
    }
    return url_for("transcripts.index", **args, **place)


@blueprint.post("/transcripts/export")
def export_all() -> Any:
    """Exports sessions as a job: `which` says the new and grown ones, the missing or every one."""
    service = current.services()
    store = current.writable()
    found = pending(store, service.settings)
    wanted = list(found.chosen(request.form.get("which", "new")))
    if not wanted:
        problems = " ".join(found.problems)
        return render.back(
            url_for("transcripts.index"), problems or "Every session has its transcript already."
        )

    def work(job: Job) -> None:
        job.total = len(wanted)
        with service.store.session():
            for step in export.export_many(service.store, service.settings, wanted):
                job.done = step.done
                job.note = library.shown_title(step.session.title, service.settings)
                if step.problem:
                    job.problems.append(f"{step.session.id}: {step.problem}")
                elif step.exported is not None:
                    job.result["lines"] = job.result.get("lines", 0) + step.exported.added
                if job.stop.is_set():
                    return

    job = service.jobs.start("export", "Exporting sessions", work)
    return redirect(url_for("jobs.show", job_id=job.id), 303)


@blueprint.get("/transcripts/<session_id>")
def first(session_id: str) -> Any:
    """The first lines of a transcript, or its last with `at=end`."""
    opened, page = _open(session_id)
    if opened is None:
        return page
    total = opened.transcript.lines
    start = max(1, total - window.SIZE + 1) if request.args.get("at") == "end" else 1
    return _window(opened, LineRange(start, start + window.SIZE - 1), None)


@blueprint.get("/transcripts/<session_id>/<lines>")
def show(session_id: str, lines: str) -> Any:
    """A window around a line or a range."""
    selected = _range(session_id, lines)
    opened, page = _open(session_id)
    if opened is None:
        return page
    return _window(opened, window.span(selected, opened.transcript.lines), selected)


@blueprint.get("/transcripts/<session_id>/from/<int:line>")
def from_line(session_id: str, line: int) -> Any:
    """The window that begins at a line, for previous and next; nothing is selected."""
    opened, page = _open(session_id)
    if opened is None:
        return page
    start = max(1, min(line, max(1, opened.transcript.lines)))
    return _window(opened, LineRange(start, start + window.SIZE - 1), None)


def _range(session_id: str, text: str) -> LineRange:
    try:
        return parse_range(text, MAX_WINDOW)
    except InvalidInput as error:
        error.details["back"] = url_for("transcripts.first", session_id=session_id)
        error.details["back_text"] = "The transcript"
        raise


@blueprint.get("/transcripts/<session_id>/go")
def go(session_id: str) -> Any:
    """The jump box: to a line or a range, or to where `path:line` of ripgrep points."""
    text = request.args.get("line", "").strip()
    if not text:
        return redirect(url_for("transcripts.first", session_id=session_id))
    printed = PRINTED.fullmatch(text)
    if printed:
        session_id, text = printed["id"], printed["line"]
    # As the pages print numbers, and as people write ranges.
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", re.sub(r"\s*[-–]\s*", "-", text))
    selected = _range(session_id, text)
    return redirect(_line_link(session_id, str(selected)))


@blueprint.get("/transcripts/<session_id>/find")
def find(session_id: str) -> Any:
    """To the next hit after `from`, or with `dir=previous` the one before; round at the ends."""
    text = request.args.get("q", "")
    opened, page = _open(session_id)
    if opened is None:
        return page
    start = request.args.get("from", "0")
    start_line = int(start[:13]) if start.isascii() and start.isdigit() else 0
    numbers = grep.line_numbers(opened.transcript, text)
    if not numbers:
        place = url_for("transcripts.from_line", session_id=session_id, line=max(1, start_line),
                        q=text or None)  # fmt: skip
        return redirect(place)
    if request.args.get("dir") == "previous":
        target = next((n for n in reversed(numbers) if n < start_line), numbers[-1])
    else:
        target = next((n for n in numbers if n > start_line), numbers[0])
    return redirect(_line_link(session_id, str(target), q=text))


@blueprint.get("/transcripts/<session_id>/download")
def take_along(session_id: str) -> Any:
    """The whole transcript as a file: `as` text, markdown, html or json."""
    form = request.args.get("as", "text")
    if form not in download.FORMATS:
        raise InvalidInput(
            f"“{form[:20]}” is no format. Known: {', '.join(download.FORMATS)}.", "as"
        )
    opened, page = _open(session_id)
    if opened is None:
        return page
    ending, media = download.FORMATS[form]
    answer = Response(
        download.stream(opened.transcript, form, current.settings().mask), content_type=media
    )
    # Another program's file may have a line end in its name, or characters that turn it round.
    name = "".join(char if char.isprintable() else "_" for char in opened.transcript.id)
    answer.headers.set("Content-Disposition", "attachment", filename=f"{name}.{ending}")
    return answer


@blueprint.post("/transcripts/<session_id>/export")
def export_one(session_id: str) -> Any:
    """Exports one session now, also one whose transcript a cleanup removed."""
    store, settings = current.writable(), current.settings()
    export.check_id(session_id)
    session, problems = find_session(settings.opencode_databases(), session_id)
    if session is None and problems:
        raise Unreadable(" ".join(problems))
    if session is None:
        raise NotFound(f"OpenCode has no session {session_id} any more.")
    if cleanup.can_undo(store, settings, session_id):
        cleanup.undo(store, settings, session_id, settings.user)
    done = export.export(store, settings, session, again=True)
    text = f"Exported {filters.plural(done.added, 'line')}." if done.added else "Nothing was new."
    return render.back(url_for("transcripts.first", session_id=session_id), text)


@blueprint.get("/transcripts/export")
@blueprint.get("/transcripts/<session_id>/export")
@blueprint.get("/transcripts/<session_id>/undo")
def only_by_post(session_id: str = "") -> Any:
    """Says that an export is asked for by POST; else `export` would be taken for a session, or for
    lines."""
    raise MethodNotAllowed(["POST"])


@blueprint.post("/transcripts/<session_id>/undo")
def undo(session_id: str) -> Any:
    """Puts a transcript that a cleanup removed back as it was."""
    export.check_id(session_id)
    cleanup.undo(current.writable(), current.settings(), session_id, current.settings().user)
    place = url_for("transcripts.first", session_id=session_id)
    return render.back(place, "The transcript is back, line for line.")


def _line_link(session_id: str, lines: str, **args: Any) -> str:
    link = url_for("transcripts.show", session_id=session_id, lines=lines, **args)
    return f"{link}#L{lines.split('-')[0]}"


def _open(session_id: str) -> tuple[library.Opened | None, Any]:
    """The transcript, or the page that says why it is not there."""
    store, settings = current.record_store(), current.settings()
    try:
        return library.open_transcript(store, settings, session_id), None
    except NotFound as error:
        gone = error.details.get("removed")
        if gone is None:
            raise
        session: Session | None = None
        try:
            session, _ = find_session(settings.opencode_databases(), session_id)
        except MemoryAppError:
            session = None
        gone = replace(gone, title=library.shown_title(gone.title, settings))
        return None, render.page("transcript_gone", status=410, gone=gone, session=session,
            kept=cleanup.can_undo(store, settings, session_id), days=aside.DAYS,
            receipt=receipts.of(store, cleanup.ACTION, gone.removed_at),
        )  # fmt: skip


@blueprint.post("/transcripts/<session_id>/<int:line>/reveal")
def reveal(session_id: str, line: int) -> Any:
    """Shows one line without its mask, and leaves a receipt that says so."""
    selected = parse_range(str(line), MAX_WINDOW)
    opened, page = _open(session_id)
    if opened is None:
        return page
    if line > opened.transcript.lines:
        raise NotFound(
            f"This transcript has {filters.plural(opened.transcript.lines, 'line')}; there is no "
            f"line {line:,} to reveal."
        )
    shown = window.span(selected, opened.transcript.lines)
    store, user = current.store(), current.settings().user
    with store.writing():
        receipts.write(
            store, "reveal", user, f"Revealed line {line:,} of “{opened.transcript.title}”",
            {"session": session_id, "line": line}, now_ms(),
        )  # fmt: skip
    return _window(opened, shown, selected, line)


def _window(
    opened: library.Opened,
    shown: LineRange,
    selected: LineRange | None,
    revealed: int | None = None,
) -> Any:
    settings = current.settings()
    item = opened.transcript
    source = news.place(current.record_store(), settings, item.id)[1] if item.ours else None
    tag = render.etag(news.version(item.path, source))
    full = request.args.get("full", "")
    whole = int(full[:13]) if full.isascii() and full.isdigit() else None
    seen = window.read(item, shown, settings.mask, whole, revealed)
    needle = request.args.get("q", "")
    numbers = grep.line_numbers(item, needle) if needle.strip() else []
    marks = files.marks_of(item.path, outline.KINDS) if item.ours else []
    first, last = max(1, seen.first - outline.NEAR), seen.first + outline.NEAR
    near = files.marks_around(item.path, first, last) if item.ours else []
    wanted = _message_line(item.id)
    return render.page(
        "transcript", target="message", transcript=item, window=seen, selected=selected,
        problems=opened.problems,
        exported=opened.exported, needle=needle, hits=numbers,
        hit_index=_hit_index(numbers, selected), moved=_moved(item, seen, selected),
        outline=outline.outline(marks, near, seen.first, settings.mask), size=window.SIZE,
        max_window=MAX_WINDOW, wanted=wanted, message_link=_message_link,
        message=message.read(item, wanted, settings.mask) if wanted else None, tag=tag,
        poll=transcript_poll(item.id, news.Seen(item.lines, item.lines)),
    )  # fmt: skip


def _message_line(session_id: str) -> int | None:
    """The line whose message is to be shown rendered: `md` in the address."""
    text = request.args.get("md", "")
    return _range(session_id, text).first if text else None


def _message_link(line: int | None) -> str:
    """This page with the message of a line rendered beside it, or with none."""
    keep = ("q", "at", "full", "wrap", "fold", "ansi", "h")
    args: dict[str, Any] = {k: v for k, v in request.args.items() if k in keep and v}
    place: dict[str, Any] = dict(request.view_args or {})
    endpoint = request.endpoint or ""
    if endpoint == "transcripts.reveal":
        endpoint, place = "transcripts.show", {
            "session_id": place["session_id"], "lines": str(place["line"])
        }  # fmt: skip
    return url_for(endpoint, **place, **args, md=line)


def _hit_index(numbers: list[int], selected: LineRange | None) -> int | None:
    if selected is None or selected.first not in numbers:
        return None
    return numbers.index(selected.first) + 1


def _moved(
    item: library.Transcript, seen: window.Window, selected: LineRange | None
) -> relocate.Places | None:
    """Where the text of a copied link stands, if not at the lines that the link names."""
    wanted = request.args.get("h")
    if not wanted or selected is None or fingerprint_of(seen, selected) == wanted:
        return None
    return relocate.places(item, wanted, len(selected))


def fingerprint_of(seen: window.Window, selected: LineRange) -> str:
    """The hash of the selected lines of a window, of the verbatim text."""
    return fingerprint(row.hash for row in seen.rows if row.number in selected)
