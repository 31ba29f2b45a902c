"""Which of a session's messages OpenCode sends to its model, and which it keeps and no longer sends.

Sources, learned from the public repository and from what each release sent to a scripted model
(tests/lab/record_context.py; tests/fixtures/context holds what was sent):

* older runtime: `filterCompacted` and `latest` in packages/opencode/src/session/message-v2.ts,
  `select` in compaction.ts, `usable` and `isOverflow` in overflow.ts, `cleanup` in revert.ts;
* newer runtime: packages/core/src/session/history.ts and compaction.ts.

What a message becomes on the way is in modelview.py. The system prompt is not part of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from webapp.errors import NotFound
from webapp.opencode.limits import OUTPUT_TOKENS
from webapp.opencode.modelview import (
    Item,
    LeftOut,
    Model,
    Shorten,
    View,
    Why,
    as_tokens,
    is_newer,
    model_of,
)
from webapp.opencode.records import Message, Part
from webapp.opencode.values import context_size, release

RESERVED_TOKENS = 20_000
"""What OpenCode keeps free of a limit on the input (of the whole window in the newer runtime)."""

Read = Callable[[Sequence[Message]], Iterable[Message]]
"""Gives messages with all their parts, in the order of the outlines that it is given."""


class State(StrEnum):
    """How a compaction ended."""

    FINISHED = "finished"
    FAILED = "failed"
    OPEN = "not finished"
    NO_EFFECT = "without effect"


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction. Times are epoch milliseconds.

    `id` is its request in the older runtime (the prompt with a part of the type `compaction`) and
    its row in the newer one. `automatic` is None where nothing says it. NO_EFFECT is a summary that
    answers a prompt which asked for none: OpenCode keeps it and goes on sending everything.
    """

    id: str
    summary_id: str | None
    at: int
    finished_at: int | None
    automatic: bool | None
    state: State
    tail_start_id: str | None = None


@dataclass(frozen=True, slots=True)
class Replaced:
    """The messages that one compaction took out of the model's view; they are still stored."""

    compaction_id: str
    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """What the model sees of a session, and what of it is only stored.

    `tokens` is OpenCode's estimate of `items` alone, without the system prompt and the tools;
    `measured` is what the provider counted for the last finished answer, with both, and None where
    none has finished since the last summary. `model` is the one that is asked, `newer` the runtime.
    `doubts` says in sentences what the database alone cannot tell.
    """

    items: tuple[Item, ...]
    left_out: tuple[LeftOut, ...]
    replaced: tuple[Replaced, ...]
    reverted: tuple[str, ...]
    compactions: tuple[Compaction, ...]
    tokens: int
    measured: int | None
    model: Model | None
    newer: bool
    doubts: tuple[str, ...]

    @property
    def certain(self) -> bool:
        """Whether this is known to be what OpenCode sends."""
        return not self.doubts


@dataclass(frozen=True, slots=True)
class Overflow:
    """How far it is to the next automatic compaction, in tokens. `count` is None when no answer has
    been counted since the last summary; `reserved` is what is kept free of `limit`."""

    count: int | None
    usable: int
    reserved: int
    over: bool

    @property
    def limit(self) -> int:
        """What `reserved` is kept free of: the model's limit on the input, else its window."""
        return self.usable + self.reserved


@dataclass(frozen=True, slots=True)
class Excerpts:
    """How much a History holds of the texts: of the first and the last `ends` messages what
    `shorten` makes of them, of those in between nothing but their lengths."""

    ends: int
    shorten: Shorten


def seen_by_model(
    messages: Iterable[Message], *, revert: Mapping[str, Any] | None = None,
    before: str | None = None, after: str | None = None, model: Model | None = None,
    version: str = "", read: Read | None = None, excerpts: Excerpts | None = None,
) -> History:  # fmt: skip
    """What the model is sent of a session whose messages are given in order.

    Without more: what the next prompt is added to. `before` is a message: what was sent for it (an
    answer) or stood before it. `after` is the id of a compaction: what was seen once it had ended.
    `revert` is the session's; `model` the one that is asked, by default the one asked last;
    `version` the one of OpenCode, where a rule has changed. Raises NotFound for an id that is not there.

    With `read` the messages may be outlines (`outline`), and the parts are read of those only that
    are seen, one message held at a time. `excerpts` says how much of their texts is held.
    """
    stored = list(messages)
    reverted: tuple[str, ...] = ()
    cut: Message | None = None
    doubts: list[str] = []
    at: int | None = None
    if before is not None:
        end = _position(stored, before)
        at = stored[end].created_at
        model = model or _model_of_message(stored[end])
        stored = stored[:end]
    elif after is not None:
        end, at = _end_of(stored, after)
        stored = stored[: end + 1]
    elif revert:
        stored, reverted, cut = _without_reverted(stored, revert, doubts)
    known = list_compactions(stored)
    sent, selected = _select(stored, known, doubts)
    began = release(version)
    asked = model or _last_model(sent)
    view = View(asked, at, () < began <= (1, 3, 2), excerpts.shorten if excerpts else None)
    for number, message, why in _whole(stored, selected, read, cut):
        if excerpts:
            is_held = min(number, len(selected) - 1 - number) < excerpts.ends
            view.shorten = excerpts.shorten if is_held else _nothing
        view.add(message, why)
    seen = {message.id for message, _ in selected}
    doubts += [*view.doubts, *_unstored(selected, view, sent, known, began, before is None)]
    return History(
        items=tuple(view.items),
        left_out=tuple(view.left_out),
        replaced=_replaced(sent, known, seen),
        reverted=reverted,
        compactions=known,
        tokens=as_tokens(sum(item.units for item in view.items)),
        measured=_measured(sent),
        model=asked,
        newer=bool(sent) and is_newer(sent[-1]),
        doubts=tuple(dict.fromkeys(doubts)),
    )


def _nothing(_: str) -> tuple[str, int]:
    return "", 0


def _whole(
    stored: Sequence[Message], selected: Sequence[tuple[Message, Why]], read: Read | None,
    cut: Message | None,
) -> Iterator[tuple[int, Message, Why]]:  # fmt: skip
    """The selected messages with their parts, numbered in the order of sending."""
    if read is None:
        yield from ((number, message, why) for number, (message, why) in enumerate(selected))
        return
    numbers = {message.id: number for number, (message, _) in enumerate(selected)}
    for stretch in _stretches(stored, selected):
        for found in read(stretch):
            number = numbers[found.id]
            if cut is not None and found.id == cut.id:
                found = replace(found, parts=found.parts[: len(cut.parts)])
            yield number, found, selected[number][1]


def _stretches(
    stored: Sequence[Message], selected: Sequence[tuple[Message, Why]]
) -> Iterator[list[Message]]:
    """The selected messages in runs that go forward in the session: a retained tail is sent after
    the summary and stored before it."""
    where = {message.id: number for number, message in enumerate(stored)}
    stretch: list[Message] = []
    for message, _ in selected:
        if stretch and where[message.id] < where[stretch[-1].id]:
            yield stretch
            stretch = []
        stretch.append(message)
    if stretch:
        yield stretch


_OUTLINED = (
    "role", "summary", "finish", "error", "parentID", "agent", "model", "providerID", "modelID",
    "id", "time", "tokens",
)  # fmt: skip


def outline(message: Message, revert: Mapping[str, Any] | None = None) -> Message:
    """What of a message decides whether it is sent, without its texts: 1 KB of a message that may
    have megabytes. The one that a revert names keeps its parts, since it may be cut at one."""
    if message.data is None:
        return replace(message, parts=tuple(_outlined(message)), raw="")
    if revert and revert.get("messageID") == message.id:
        return message
    data = {key: message.data[key] for key in _OUTLINED if key in message.data}
    for key in ("summary", "error"):
        if data.get(key):
            data[key] = True
    return replace(message, data=data, parts=tuple(_outlined(message)))


def _outlined(message: Message) -> Iterator[Part]:
    is_first_told = message.role in ("compaction", "model-switched")
    for number, part in enumerate(message.parts):
        data = part.data or {}
        if part.type in ("compaction", "model-switched") or (is_first_told and number == 0):
            if data.get("summary"):
                data = {**data, "summary": True, "recent": ""}
            yield replace(part, data=data)
        elif part.id == f"{message.id}/data":
            yield replace(part, data=None, raw="")
        elif part.type == "step-finish":
            yield replace(part, data={"type": part.type, "tokens": data.get("tokens")})


def list_compactions(messages: Sequence[Message]) -> tuple[Compaction, ...]:
    """Every compaction of a session, in order.

    Older runtime: a prompt with a part `compaction`, answered by a message with `summary`. It counts
    with `finish` and without `error`. Newer runtime: a row `compaction`, written when it has ended.
    """
    found: list[Compaction] = []
    where: dict[str, int] = {}
    for message in messages:
        data = message.data or {}
        if is_newer(message):
            if message.role == "compaction" and message.parts:
                found.append(_newer_compaction(message, message.parts[0].data or {}))
        elif message.role == "user" and (part := _compaction_part(message)) is not None:
            where[message.id] = len(found)
            given, tail = (part.data or {}).get("auto"), (part.data or {}).get("tail_start_id")
            found.append(
                Compaction(
                    message.id, None, message.created_at, None,
                    given if isinstance(given, bool) else None, State.OPEN,
                    tail if isinstance(tail, str) and tail else None,
                )
            )  # fmt: skip
        elif message.role == "assistant" and data.get("summary"):
            state = (
                State.FAILED if data.get("error") else
                State.FINISHED if data.get("finish") else State.OPEN
            )  # fmt: skip
            parent = data.get("parentID")
            time = data.get("time")
            completed = _number(time.get("completed")) if isinstance(time, dict) else None
            if isinstance(parent, str) and parent in where:
                held = found[where[parent]]
                if held.state is not State.FINISHED:
                    found[where[parent]] = replace(
                        held, summary_id=message.id, finished_at=completed, state=state
                    )
            else:
                if state is State.FINISHED:
                    state = State.NO_EFFECT
                found.append(
                    Compaction(message.id, message.id, message.created_at, completed, None, state)
                )
    return tuple(found)


def overflow(
    history: History, *, context: int, output: int, input_limit: int = 0,
    reserved: int | None = None, output_max: int = OUTPUT_TOKENS,
) -> Overflow | None:  # fmt: skip
    """How much of a model's window the last answer took, in OpenCode's count, or None where the
    model has no known limit, which switches it off. The limits are the model's in the configuration
    or the catalogue, `reserved` is `compaction.reserved` (`buffer` in the newer runtime).

    Older runtime (overflow.ts): `tokens.total`, else input + output + cache, reaches
    `limit.input - reserved` or `limit.context - output`. Newer (compaction.ts): its own estimate of
    the whole request exceeds `limit.context - max(output, buffer)`; there `count` is None.
    """
    if context <= 0:
        return None
    if history.newer:
        kept = min(context, max(output, RESERVED_TOKENS if reserved is None else reserved))
        return Overflow(None, context - kept, kept, False)
    most = min(output, output_max) or output_max
    kept = min(RESERVED_TOKENS, most) if reserved is None else reserved
    if not input_limit:
        kept = most
    kept = min(kept, input_limit or context)
    usable = (input_limit or context) - kept
    count = history.measured
    return Overflow(count, usable, kept, count is not None and count >= usable)


def _measured(sent: Sequence[Message]) -> int | None:
    """The count of the last finished answer, unless that is a summary."""
    for message in reversed(sent):
        data = message.data or {}
        if message.role == "compaction" and is_newer(message):
            return None
        if message.role != "assistant":
            continue
        if is_newer(message):
            steps = [part for part in message.parts if part.type == "step-finish"]
            if steps:
                return context_size((steps[-1].data or {}).get("tokens")) or None
        elif data.get("finish"):
            return None if data.get("summary") else context_size(data.get("tokens"))
    return None


def _select(
    stored: list[Message], known: Sequence[Compaction], doubts: list[str]
) -> tuple[list[Message], list[tuple[Message, Why]]]:
    """The messages of the runtime that goes on with the session, and those of them it sends."""
    newer = bool(stored) and is_newer(stored[-1])
    sent = [message for message in stored if is_newer(message) == newer]
    if len(sent) != len(stored):
        doubts.append(
            "Both of OpenCode's runtimes have written this session; shown is what the one that wrote"
            " last reads."
        )
    return sent, _select_newer(sent, known, doubts) if newer else _select_older(sent)


def _select_older(stored: Sequence[Message]) -> list[tuple[Message, Why]]:
    """`filterCompacted`. From the newest message backwards: a summary with `finish` and no `error`
    completes its parent; at a completed prompt with a part `compaction` the walk ends, or goes on to
    the message that the part names as `tail_start_id`. The tail then stands after the summary.

    Before 1.14 nothing was retained, and 1.14.34 left the tail before the summary; from 1.14.48 to
    1.18.33 it is as here. A `tail_start_id` that is not there makes OpenCode send everything.
    """
    found: list[Message] = []
    completed: list[object] = []
    tail: object = None
    boundary = ""
    for message in reversed(stored):
        found.append(message)
        if tail:
            if message.id == tail:
                break
            continue
        data = message.data or {}
        if message.role == "user" and message.id in completed:
            part = _compaction_part(message)
            if part is not None:
                boundary = message.id
                tail = (part.data or {}).get("tail_start_id")
                if not tail or message.id == tail:
                    break
        elif message.role == "assistant" and _is_whole_summary(data):
            completed.append(data.get("parentID"))
    found.reverse()
    marked = _with_reasons(found, boundary)
    moved = _tail_of(found)
    if moved is None:
        return marked
    start, request, summary = moved
    return [*marked[request : summary + 1], *marked[start:request], *marked[summary + 1 :]]


def _is_whole_summary(data: Mapping[str, Any]) -> bool:
    return bool(data.get("summary") and data.get("finish") and not data.get("error"))


def _with_reasons(found: Sequence[Message], boundary: str) -> list[tuple[Message, Why]]:
    if not boundary:
        return [(message, Why.WHOLE) for message in found]
    marked = []
    reached = False
    for message in found:
        data = message.data or {}
        reached = reached or message.id == boundary
        is_summary = message.role == "assistant" and data.get("summary")
        if message.id == boundary or (is_summary and data.get("parentID") == boundary):
            marked.append((message, Why.SUMMARY))
        else:
            marked.append((message, Why.AFTER if reached else Why.TAIL))
    return marked


def _tail_of(found: Sequence[Message]) -> tuple[int, int, int] | None:
    """Where the retained tail, the request and the summary of the last compaction with a tail are,
    if they stand in this order."""
    for request in range(len(found) - 1, -1, -1):
        part = _compaction_part(found[request])
        if found[request].role != "user" or part is None:
            continue
        tail = (part.data or {}).get("tail_start_id")
        if tail is None:
            continue
        ids = [message.id for message in found]
        start = ids.index(tail) if tail in ids else -1
        for summary in range(request + 1, len(found)):
            data = found[summary].data or {}
            if data.get("summary") and data.get("parentID") == found[request].id:
                return (start, request, summary) if 0 <= start < request else None
        return None
    return None


def _select_newer(
    stored: Sequence[Message], known: Sequence[Compaction], doubts: list[str]
) -> list[tuple[Message, Why]]:
    """The last row `compaction` and what follows it (`SessionHistory`, 1.18.33). Rows `system` are
    sent if they are newer than `session_context_epoch.baseline_seq`, which moves to a compaction."""
    done = {item.id for item in known if item.state is State.FINISHED}
    start = max((n for n, message in enumerate(stored) if message.id in done), default=None)
    if any(message.role == "system" for message in stored):
        doubts.append(
            "A change of the instructions is sent among the messages until OpenCode takes it into the"
            " system prompt; which of the two holds is not in the messages."
        )
    if start is None:
        return [(message, Why.WHOLE) for message in stored]
    return [(stored[start], Why.SUMMARY), *((m, Why.AFTER) for m in stored[start + 1 :])]


def _newer_compaction(message: Message, data: Mapping[str, Any]) -> Compaction:
    reason, status = data.get("reason"), data.get("status")
    state = (
        State.FAILED if status == "failed" else
        State.FINISHED if data.get("summary") and status != "running" else State.OPEN
    )  # fmt: skip
    return Compaction(
        message.id, message.id, message.created_at,
        message.created_at if state is State.FINISHED else None,
        reason == "auto" if isinstance(reason, str) else None, state,
    )  # fmt: skip


def _replaced(
    sent: Sequence[Message], known: Sequence[Compaction], seen: set[str]
) -> tuple[Replaced, ...]:
    """The stored messages out of view, each with the first compaction that it was not in view
    after."""
    where = {message.id: n for n, message in enumerate(sent)}
    waiting = [message.id for message in sent if message.id not in seen]
    found: list[Replaced] = []
    for item in known:
        end = where.get(item.summary_id or item.id)
        if not waiting or item.state is not State.FINISHED or end is None:
            continue
        upto = sent[: end + 1]
        selected = _select_newer(upto, known, []) if is_newer(sent[-1]) else _select_older(upto)
        still = {message.id for message, _ in selected}
        gone = [m for m in waiting if where[m] <= end and m not in still]
        if gone:
            found.append(Replaced(item.id, tuple(gone)))
            waiting = [m for m in waiting if where[m] > end or m in still]
    return tuple(found)


def _unstored(
    selected: Sequence[tuple[Message, Why]], view: View, sent: Sequence[Message],
    known: Sequence[Compaction], began: tuple[int, ...], is_now: bool,
) -> list[str]:  # fmt: skip
    """What OpenCode would change although nothing of it is in the messages."""
    found: list[str] = []
    agents = [(message.role, (message.data or {}).get("agent")) for message, _ in selected]
    if any(agent == "plan" for _, agent in agents) and not (sent and is_newer(sent[-1])):
        found.append(
            "The plan agent was used: OpenCode adds a reminder of the mode to the last prompt that it"
            " does not store."
        )
    open_since = _open_compaction(sent, known)
    if is_now and open_since is not None:
        found.append(
            "A compaction was asked for and has not come about: OpenCode tries it again before it"
            " answers the next prompt, and the view is another then."
        )
    if (1, 14) <= began < (1, 14, 48) and any(why is Why.TAIL for _, why in selected):
        found.append(
            "OpenCode 1.14.34 put the retained messages before the summary; shown is the order of"
            " 1.14.48 and later."
        )
    if not is_now and began < (1, 17, 19) and _came_in_between(sent):
        found.append(
            "A prompt came in while OpenCode was at work: up to about 1.17.0 it wraps that prompt in a"
            " reminder for this one run, which it does not store."
        )
    if () < began < (1, 14, 48) and any("another model" in item.note for item in view.items):
        found.append(
            "OpenCode 1.3.2 sends the reasoning of another model as reasoning, 1.14.48 and later as"
            " text; a session names the version that began it, not the one that goes on with it."
        )
    return found


def _came_in_between(sent: Sequence[Message]) -> bool:
    """Whether a prompt follows an answer that was to go on with the result of a tool."""
    prompts = 0
    for message in reversed(sent):
        if message.role == "assistant":
            return bool(prompts) and (message.data or {}).get("finish") == "tool-calls"
        prompts += message.role == "user" and _compaction_part(message) is None
    return False


def _open_compaction(sent: Sequence[Message], known: Sequence[Compaction]) -> Compaction | None:
    """A request to compact that is newer than the last finished answer (`latest`)."""
    waiting = {item.id: item for item in known if item.state is not State.FINISHED}
    for message in reversed(sent):
        if message.role == "assistant" and (message.data or {}).get("finish"):
            return None
        if message.id in waiting and message.role == "user":
            return waiting[message.id]
    return None


def _without_reverted(
    stored: list[Message], revert: Mapping[str, Any], doubts: list[str]
) -> tuple[list[Message], tuple[str, ...], Message | None]:
    """The messages that stay when the next prompt makes a revert final: those before its message
    and, if it names a part, that message up to the part (revert.ts, `cleanup`), which is the third
    value."""
    message_id, part_id = revert.get("messageID"), revert.get("partID")
    end = next((n for n, message in enumerate(stored) if message.id == message_id), None)
    if end is None:
        return stored, (), None
    if is_newer(stored[end]):
        doubts.append(
            "This session was taken back to an earlier message. Until that is made final, the newer"
            " runtime of OpenCode 1.18.33 goes on sending what comes after it."
        )
        return stored, (), None
    kept, gone, cut = stored[:end], stored[end:], None
    if part_id:
        parts = gone[0].parts
        upto = next((n for n, part in enumerate(parts) if part.id == part_id), len(parts))
        cut = replace(gone[0], parts=parts[:upto])
        kept, gone = [*kept, cut], gone[1:]
    return kept, tuple(message.id for message in gone), cut


def _end_of(stored: Sequence[Message], compaction_id: str) -> tuple[int, int]:
    """Where a compaction ends and when."""
    end = _position(stored, compaction_id)
    at = stored[end].created_at
    for item in list_compactions(stored):
        if item.id == compaction_id and item.summary_id is not None:
            end = _position(stored, item.summary_id)
            at = item.finished_at or stored[end].created_at
    return end, at


def _position(stored: Sequence[Message], message_id: str) -> int:
    for number, message in enumerate(stored):
        if message.id == message_id:
            return number
    raise NotFound(f"This session has no message {message_id}.")


def _last_model(stored: Sequence[Message]) -> Model | None:
    """The model that was asked last: a prompt names it in the older runtime, a switch or an answer
    in the newer one."""
    for message in reversed(stored):
        if message.role in ("user", "model-switched") or is_newer(message):
            found = _model_of_message(message)
            if found is not None:
                return found
    return None


def _model_of_message(message: Message) -> Model | None:
    if message.role == "model-switched" and message.parts:
        return model_of(message.parts[0].data or {})
    return model_of(message.data or {})


def _compaction_part(message: Message) -> Part | None:
    return next((part for part in message.parts if part.type == "compaction"), None)


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and abs(value) < 1e18 else None
