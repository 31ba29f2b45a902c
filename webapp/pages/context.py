"""`/context/<id>`: what the model sees of a session, and what of it is only stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Blueprint, request, url_for

from webapp import secrets
from webapp.errors import NotFound, Unreadable
from webapp.opencode import Session, find_session, messages, reading
from webapp.opencode.history import Compaction, History, State, seen_by_model
from webapp.opencode.instructions import Instruction, instructions
from webapp.opencode.modelview import Item, Why, estimate
from webapp.opencode.records import Message
from webapp.settings import Settings
from webapp.store import now_ms
from webapp.transcripts import export, files, library
from webapp.web import current, render

blueprint = Blueprint("context", __name__)
SHOWN = 2_000
"""Characters of one item that the page carries; the rest is told as a number."""

MOST = 400
"""Messages that the page lists; of a longer view the first and the last of them."""

CLEARED = "[Old tool result content cleared]"


@dataclass(frozen=True, slots=True)
class Piece:
    """One item as it is shown: masked and cut, with the line of the transcript where it stands."""

    kind: str
    tool: str
    text: str
    cut: int
    note: str
    line: int | None


@dataclass(frozen=True, slots=True)
class Sent:
    """One message to the model: its role, why it is there, its pieces and about its tokens."""

    role: str
    why: str
    pieces: tuple[Piece, ...]
    tokens: int
    line: int | None
    title: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Messages that are stored and no longer seen: why, how many, their characters, and the lines of
    the transcript that they take."""

    why: str
    count: int
    size: int
    first: int | None
    last: int | None


@blueprint.get("/context/<session_id>")
def show(session_id: str) -> Any:
    """What the model sees now, or with `before` what it saw before that message, and with `after`
    once that compaction had ended."""
    export.check_id(session_id)
    settings = current.settings()
    session, problems = find_session(settings.opencode_databases(), session_id)
    if session is None and problems:
        raise Unreadable(" ".join(problems))
    if session is None:
        raise NotFound(f"OpenCode has no session {session_id}.")
    before, after = request.args.get("before") or None, request.args.get("after") or None
    elsewhere = session.scope != session.directory and session.scope.startswith("/")
    with reading(session.db) as connection:
        stored = list(messages(connection, session.id, now_ms()))
        told = instructions(
            session, Path(session.scope) if elsewhere else None, settings.places, connection
        )
    history = seen_by_model(
        stored, revert=session.revert, before=before, after=after, version=session.version
    )
    whole = history if before is None and after is None else seen_by_model(
        stored, revert=session.revert, version=session.version
    )  # fmt: skip
    lines = _lines(settings, session)
    groups = _groups(history)
    return render.page(
        "context", session=session, title=library.shown_title(session.title, settings) or session.id,
        told=told, baseline=_masked(told.baseline.text[:SHOWN], settings.mask) if told.baseline else "",
        sources=[_source(item, settings.mask) for item in told.items],
        difference=_masked("\n".join(told.difference), settings.mask).split("\n"),
        history=history, hidden=max(0, len(groups) - MOST), tokens=history.tokens,
        sent=[one and _sent(one, lines, settings.mask) for one in _middle_out(groups)],
        by_why=_by_why(history), stored=_stored(history, stored, lines), cleared=CLEARED,
        pruned=[lines.get(item.part_id) for item in history.items if item.text == CLEARED],
        moments=_moments(session, whole.compactions, before, after), problems=problems,
        has_transcript=bool(lines), total=len(stored),
    )  # fmt: skip


def _lines(settings: Settings, session: Session) -> dict[str, int]:
    """The lines of the transcript where messages and parts begin; none where it is not exported."""
    store = current.record_store()
    try:
        item = library.get(store, settings, session.id)
    except NotFound:
        return {}
    found: dict[str, int] = {}
    for mark in files.load_marks(item.path) if item.ours else ():
        if mark.id and mark.kind != "notice":
            found.setdefault(mark.id, mark.line)
    return found


def _groups(history: History) -> list[list[Item]]:
    """The items of each message to the model."""
    groups: dict[int, list[Item]] = {}
    for item in history.items:
        groups.setdefault(item.group, []).append(item)
    return list(groups.values())


def _sent(items: list[Item], lines: dict[str, int], mask: bool) -> Sent:
    pieces = tuple(_piece(item, lines, mask) for item in items)
    named = next((piece for piece in pieces if piece.text.strip()), pieces[0])
    title = " ".join(named.text[:200].split()) or named.kind
    return Sent(
        items[0].role, items[0].why, pieces, estimate("".join(item.text for item in items)),
        lines.get(items[0].message_id), f"{named.tool}: {title}" if named.tool else title,
    )  # fmt: skip


def _masked(text: str, mask: bool) -> str:
    return secrets.mask(text) if mask else text


def _source(item: Instruction, mask: bool) -> tuple[Instruction, str, int]:
    """An instruction source, the beginning of its text, and the characters that are left out."""
    text = _masked(item.text, mask)
    return item, text[:SHOWN], max(0, len(text) - SHOWN) + item.cut


def _piece(item: Item, lines: dict[str, int], mask: bool) -> Piece:
    text = secrets.mask(item.text) if mask else item.text
    return Piece(
        item.kind, item.tool, text[:SHOWN], max(0, len(text) - SHOWN), item.note,
        lines.get(item.part_id) or lines.get(item.message_id),
    )  # fmt: skip


def _middle_out(groups: list[list[Item]]) -> list[list[Item] | None]:
    """The first and the last messages of a long view, with None where the others stand."""
    if len(groups) <= MOST:
        return list(groups)
    return [*groups[: MOST // 2], None, *groups[-MOST // 2 :]]


def _by_why(history: History) -> list[tuple[str, int]]:
    """About the tokens of each reason to be in view."""
    sizes = dict.fromkeys((why.value for why in Why), 0)
    for item in history.items:
        sizes[item.why] += len(item.text)
    return [(why, size // 4) for why, size in sizes.items() if size]


def _stored(history: History, stored: Sequence[Message], lines: dict[str, int]) -> list[Stored]:
    by_id = {message.id: (number, message) for number, message in enumerate(stored)}
    ordinals = {one.id: number for number, one in enumerate(history.compactions, 1)}
    found = []
    for group in history.replaced:
        number = ordinals.get(group.compaction_id)
        why = f"left at compaction {number}" if number else "left at a compaction"
        found.append(_range(why, group.message_ids, by_id, stored, lines))
    if history.reverted:
        found.append(_range("taken back", history.reverted, by_id, stored, lines))
    return found


def _range(
    why: str, ids: Sequence[str], by_id: dict[str, tuple[int, Message]], stored: Sequence[Message],
    lines: dict[str, int],
) -> Stored:  # fmt: skip
    known = sorted(by_id[name][0] for name in ids if name in by_id)
    size = sum(_size(stored[number]) for number in known)
    first = next((lines[stored[n].id] for n in known if stored[n].id in lines), None)
    last = None
    if known and first is not None:
        following = stored[known[-1] + 1 :]
        after = next((lines[one.id] for one in following if one.id in lines), None)
        last = after - 2 if after is not None and after - 2 >= first else None
    return Stored(why, len(known), size, first, last)


def _size(message: Message) -> int:
    return sum(_length(part.data) for part in message.parts)


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_length(held) for held in value.values())
    if isinstance(value, list):
        return sum(_length(held) for held in value)
    return 0


def _moments(
    session: Session, compactions: Sequence[Compaction], before: str | None, after: str | None
) -> list[dict[str, Any]]:
    """The moments that the page can step to, the present first."""
    place = url_for("context.show", session_id=session.id)
    found: list[dict[str, Any]] = [
        {"text": "now", "href": place, "current": before is None and after is None, "at": None}
    ]
    for number, one in reversed(list(enumerate(compactions, 1))):
        state = "" if one.state is State.FINISHED else f" ({one.state.value})"
        for word, chosen, key in (("after", after, "after"), ("before", before, "before")):
            if key == "after" and one.state is not State.FINISHED:
                continue
            found.append({
                "text": f"{word} compaction {number}{state}", "current": chosen == one.id,
                "href": _at(session, key, one.id), "at": one.at,
            })  # fmt: skip
    return found


def _at(session: Session, key: str, message_id: str) -> str:
    place: dict[str, Any] = {key: message_id}
    return url_for("context.show", session_id=session.id, **place)
