"""What the page of a context shows: what the model sees, masked and cut, and what is only stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import url_for

from webapp import secrets
from webapp.opencode import (
    Compaction,
    Excerpts,
    History,
    Instruction,
    Instructions,
    Item,
    Limits,
    Overflow,
    Session,
    State,
    Why,
    as_tokens,
    find_limits,
    instructions,
    news,
    overflow,
    read_config,
    reading,
    session_page,
)
from webapp.opencode.context import Context, read_context
from webapp.opencode.sessions import message_keys
from webapp.settings import Settings
from webapp.store import Store, now_ms
from webapp.transcripts import files, library

SHOWN = 2_000
"""Characters of one item that the page carries; the rest is told as a number."""

ENDS = 100
"""Stored messages at each end of a view whose texts are read."""

MOST = 200
"""Messages to the model at each end of a view that the page lists."""

PIECES = 300
"""Items of one message to the model that the page lists."""

WIDTH = 1_000
"""Units that the bar is wide."""

REST = "rest of the count: system prompt, tools"
"""What OpenCode's count has above our estimates."""

NARROWEST = 4
"""Units of the bar that a part of it has at least, so that it can be seen."""


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
    """One message to the model: its role, why it is there, its first pieces, how many more it has, and
    about its tokens."""

    role: str
    why: str
    pieces: tuple[Piece, ...]
    more: int
    tokens: int
    line: int | None
    title: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Messages that are stored and no longer seen: why, how many, about their tokens, and the lines
    of the transcript that they take."""

    why: str
    count: int
    tokens: int
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Source:
    """An instruction source, the beginning of its text, and what of it is left out."""

    item: Instruction
    text: str
    cut: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the bar: what it is, about its tokens, and its place in the bar's units."""

    name: str
    key: str
    tokens: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class Meter:
    """How full the window is. `segments` are what is in it by our estimate; without a `room`, which
    is OpenCode's own reckoning, there is no scale to draw them on. `counted` is where OpenCode's
    count stands in the bar."""

    segments: tuple[Segment, ...]
    room: Overflow | None
    limits: Limits | None
    counted: float | None
    reserve: Segment | None
    free: int | None
    head: str
    words: str

    @property
    def spoken(self) -> str:
        """The bar for who does not see it."""
        parts = [f"{one.name} about {one.tokens:,}" for one in self.segments]
        parts += [f"free {self.free:,}"] if self.free is not None else []
        parts += [f"kept free {self.reserve.tokens:,}"] if self.reserve is not None else []
        return f"Tokens: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class ContextView:
    """The page of a context. `sent` has None where messages between the ends are left out, `hidden`
    of them; `pruned` are the lines of pruned outputs, None where no transcript has one; `here` is
    the number of the message that the moment stands at; `seen` how far the session went then."""

    told: Instructions
    sources: tuple[Source, ...]
    baseline: str
    difference: str
    history: History
    meter: Meter
    sent: tuple[Sent | None, ...]
    hidden: int
    stored: tuple[Stored, ...]
    pruned: tuple[int | None, ...]
    pruned_tokens: int
    growth: session_page.Growth
    here: int | None
    moments: tuple[dict[str, Any], ...]
    total: int
    has_transcript: bool
    seen: news.Seen

    @property
    def stored_tokens(self) -> int:
        """About the tokens of what is stored and not seen."""
        return sum(one.tokens for one in self.stored) + self.pruned_tokens


def context_view(
    settings: Settings, store: Store, session: Session, before: str | None, after: str | None
) -> ContextView:
    """What the model sees of a session now, or what it saw `before` a message or `after` a
    compaction. Raises NotFound for a moment that is not there, Unreadable and Busy."""
    elsewhere = session.scope != session.directory and session.scope.startswith("/")
    config = read_config(session, Path(session.scope) if elsewhere else None, settings.places)
    mask = settings.mask
    with reading(session.db) as connection:
        seen = news.seen(connection, session.id)
        keys = message_keys(connection, session.id)
        context = read_context(
            connection, session, keys, now_ms(), before=before, after=after,
            excerpts=Excerpts(ENDS, lambda text: _excerpt(text, mask)),
        )  # fmt: skip
        told = instructions(session, config, settings.places, connection)
        growth = session_page.growth(connection, session.id, keys)
    history = context.history
    limits = None
    if history.model is not None:
        limits = find_limits(
            history.model, config, settings.places, newer=history.newer, version=session.version
        )
    shown = _middle_out(_groups(history.items))
    pruned = [item for item in history.items if item.pruned]
    transcript = library.get_ours(store, settings, session.id)
    wanted = {item.part_id for group in shown for item in group or ()}
    wanted |= {item.part_id for item in pruned} | set(context.order)
    lines = files.first_lines(transcript.path, wanted) if transcript is not None else {}
    listed = sum(group is not None for group in shown)
    return ContextView(
        told=told, sources=tuple(_source(item, mask) for item in told.items),
        baseline=_masked(told.baseline.text, mask)[:SHOWN] if told.baseline else "",
        difference=_masked("\n".join(told.difference), mask),
        history=history, meter=meter(history, told.tokens, limits, is_now=not (before or after)),
        sent=tuple(None if group is None else _sent(group, lines) for group in shown),
        hidden=len({item.group for item in history.items}) - listed,
        stored=tuple(_stored(context, lines)),
        pruned=tuple(lines.get(item.part_id) for item in pruned),
        pruned_tokens=as_tokens(sum(item.pruned for item in pruned)),
        growth=growth, here=_here(context, before, after),
        moments=tuple(_moments(session, context.compactions, before, after)),
        total=len(context.order), has_transcript=bool(lines), seen=seen,
    )  # fmt: skip


def meter(history: History, told: int, limits: Limits | None, is_now: bool) -> Meter:
    """The bar of what takes the window; `told` is about the tokens of the instructions."""
    room = None
    if limits is not None and limits.context:
        room = overflow(
            history, context=limits.context, output=limits.output, input_limit=limits.input,
            reserved=limits.reserved, output_max=limits.output_max,
        )  # fmt: skip
    tokens, counted = told + history.tokens, history.measured
    # More than the window holds shrinks the scale, so that nothing is drawn outside it.
    whole = max(room.limit, tokens, counted or 0) if room is not None else 0
    segments = tuple(_segments(history, told, whole))
    if whole and counted is not None and counted > tokens:
        start = segments[-1].start + segments[-1].width if segments else 0.0
        width = round(max(0.0, _part(counted, whole) - start), 1)
        segments += (Segment(REST, "rest", counted - tokens, start, width),)
    head = f"about {tokens:,}" if counted is None else f"{counted:,}"
    head += f" of {room.limit:,} tokens" if room is not None else " tokens"
    words = " · ".join(_words(history, limits, room, is_now))
    if room is None or limits is None:
        return Meter(segments, None, limits, None, None, None, head, words)
    reserve = None
    if limits.auto and room.reserved:
        width = _part(room.reserved, whole)
        at = _part(room.usable, whole)
        reserve = Segment("reserve", "reserve", room.reserved, at, width)
    upto = room.usable if limits.auto else room.limit
    return Meter(
        segments, room, limits, None if counted is None else _part(counted, whole), reserve,
        # What an answer will be given besides is not known before one was counted.
        None if counted is None else max(0, upto - counted), head, words,
    )  # fmt: skip


def _segments(history: History, told: int, whole: int) -> Iterator[Segment]:
    named = [("instructions", "told", told)]
    for why in Why:
        length = sum(item.units for item in history.items if item.why is why)
        named.append((why.value, why.name.lower(), as_tokens(length)))
    start = 0.0
    for name, key, count in named:
        if count:
            width = max(NARROWEST, _part(count, whole)) if whole else 0.0
            yield Segment(name, key, count, start, round(min(width, WIDTH - start), 1))
            start = round(start + width, 1)


def _part(count: int, whole: int) -> float:
    return round(count / whole * WIDTH, 1)


def _words(
    history: History, limits: Limits | None, room: Overflow | None, is_now: bool
) -> Iterator[str]:
    """What is known of the window, bit by bit."""
    times = sum(one.state is State.FINISHED for one in history.compactions)
    if history.measured is not None:
        yield "counted at the last answer, with the system prompt and the tools"
    elif limits is not None:
        since = "since the compaction" if times else "yet"
        yield (
            "estimated, without the system prompt and the tools; no answer has been counted"
            f" {since}"
        )
    else:
        yield "no message names a model, so no limit was looked for"
    if room is not None and limits is not None:
        if limits.input:
            yield "the limit is one of the input"
        if not limits.auto:
            yield "does not compact by itself"
        elif history.newer:
            yield (
                f"compacts by itself above {room.usable:,}, by OpenCode's own estimate of the next"
                " request"
            )
        elif room.over:
            then = (
                ", so OpenCode compacts before it goes on"
                if is_now
                else ", where it compacts by itself"
            )
            yield f"over {room.usable:,}{then}"
        else:
            yield f"compacts by itself at {room.usable:,}"
    often = {0: "never compacted", 1: "compacted once", 2: "compacted twice"}
    yield often.get(times, f"compacted {times:,} times")


def _excerpt(text: str, mask: bool) -> tuple[str, int]:
    """The beginning of a text. It is masked before it is cut: half a credential is not known."""
    text = _masked(text, mask)
    return text[:SHOWN], max(0, len(text) - SHOWN)


def _masked(text: str, mask: bool) -> str:
    return secrets.mask(text) if mask else text


def _source(item: Instruction, mask: bool) -> Source:
    text, cut = _excerpt(item.text, mask)
    return Source(item, text, cut + item.cut)


def _groups(items: Sequence[Item]) -> list[list[Item]]:
    """The items of each message to the model."""
    groups: dict[int, list[Item]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    return list(groups.values())


def _middle_out(groups: list[list[Item]]) -> list[list[Item] | None]:
    """The first and the last messages of a long view, with None where the others stand: those whose
    texts were not read, and what is more than MOST at each end."""
    unread = [
        number for number, group in enumerate(groups)
        if any(item.units and not item.text for item in group)
    ]  # fmt: skip
    stop, start = (unread[0], unread[-1] + 1) if unread else (len(groups), 0)
    if not unread and len(groups) <= 2 * MOST:
        return list(groups)
    return [*groups[: min(stop, MOST)], None, *groups[max(start, len(groups) - MOST) :]]


def _sent(items: list[Item], lines: Mapping[str, int]) -> Sent:
    pieces = tuple(
        Piece(
            item.kind, item.tool, item.text, item.cut, item.note,
            lines.get(item.part_id) or lines.get(item.message_id),
        )
        for item in items[:PIECES]
    )  # fmt: skip
    named = next((piece for piece in pieces if piece.text.strip()), pieces[0])
    title = " ".join(named.text[:200].split()) or named.kind
    return Sent(
        items[0].role, items[0].why, pieces, len(items) - len(pieces),
        as_tokens(sum(item.units for item in items)),
        lines.get(items[0].message_id), f"{named.tool}: {title}" if named.tool else title,
    )  # fmt: skip


def _stored(context: Context, lines: Mapping[str, int]) -> list[Stored]:
    history = context.history
    where = {name: number for number, name in enumerate(context.order)}
    ordinals = {one.id: number for number, one in enumerate(history.compactions, 1)}
    found = []
    for group in history.replaced:
        number = ordinals.get(group.compaction_id)
        why = f"left at compaction {number}" if number else "left at a compaction"
        found.append(_range(why, group.message_ids, context, where, lines))
    if history.reverted:
        found.append(_range("taken back", history.reverted, context, where, lines))
    return found


def _range(
    why: str, ids: Sequence[str], context: Context, where: Mapping[str, int],
    lines: Mapping[str, int],
) -> Stored:  # fmt: skip
    numbers = sorted(where[name] for name in ids if name in where)
    order = context.order
    first = next((lines[order[n]] for n in numbers if order[n] in lines), None)
    last = None
    if numbers and first is not None:
        after = next((lines[name] for name in order[numbers[-1] + 1 :] if name in lines), None)
        last = after - 2 if after is not None and after - 2 >= first else None
    tokens = as_tokens(sum(context.units[order[n]] for n in numbers))
    return Stored(why, len(numbers), tokens, first, last)


def _here(context: Context, before: str | None, after: str | None) -> int | None:
    """The number of the message that a moment other than the present stands at."""
    name = before
    if after is not None:
        name = next(
            (one.summary_id or one.id for one in context.compactions if one.id == after), ""
        )
    return context.order.index(name) + 1 if name in context.units else None


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
        for word, chosen in (("after", after), ("before", before)):
            if word == "after" and one.state is not State.FINISHED:
                continue
            place_of: dict[str, Any] = {word: one.id}
            found.append({
                "text": f"{word} compaction {number}{state}", "current": chosen == one.id,
                "href": url_for("context.show", session_id=session.id, **place_of), "at": one.at,
            })  # fmt: skip
    return found
