"""What history.py says a model gets, held against what real OpenCodes sent to theirs, message for
message; and rows that no OpenCode writes."""

from __future__ import annotations

import functools
import json
import lzma
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.errors import NotFound
from webapp.opencode import (
    Compaction,
    Excerpts,
    History,
    Kind,
    Message,
    Model,
    Overflow,
    Part,
    Session,
    State,
    Why,
    estimate,
    list_compactions,
    messages,
    outline,
    overflow,
    seen_by_model,
    session_in,
    weigh,
)
from webapp.opencode.values import context_size

RECORDED = Path(__file__).parents[1] / "fixtures" / "context"
VERSIONS = ("1.3.2", "1.14.48", "1.15.13", "1.17.19", "1.18.33")
TWO_RUNTIMES = ("1.17.19", "1.18.33")
OLDER = (
    "Plain", "Compacted, small", "Compacted once", "Compacted twice", "Fork",
    "One long turn, compacted", "Pruned", "Overflowed", "Failed", "Compaction failed",
    "Compaction failed, then went on", "Aborted", "Attached", "Seen", "Reverted",
    "Reverted before the compaction", "Reverted to a part", "With a subagent", "Subagent",
    "Another model", "Shell and command", "Planned, then built", "Empty", "Killed",
)  # fmt: skip
NEWER = (
    "Newer, plain", "Newer, compacted", "Newer, other instructions", "Newer, failed",
    "Newer, aborted", "Newer, another model", "Newer, attached", "Newer, reverted",
    "Newer, reverted for good",
)  # fmt: skip
CASES = [
    *((version, title) for version in VERSIONS for title in OLDER),
    *((version, title) for version in TWO_RUNTIMES for title in NEWER),
]
LATER = 4_000_000_000_000


@functools.cache
def recorded(version: str) -> dict[str, Any]:
    """What was recorded of one release."""
    return dict(json.loads(lzma.decompress((RECORDED / f"{version}.json.xz").read_bytes())))


@functools.cache
def stored(version: str, moment: str) -> dict[str, tuple[tuple[Message, ...], Session]]:
    """The messages and the revert of each session at one moment, by the session's title."""
    data = recorded(version)
    found = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        for table, (columns, *rows) in data[moment].items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        for title, session_id in data["sessions"].items():
            session = session_in(connection, Path("x.db"), session_id)
            assert session is not None
            found[title] = (tuple(messages(connection, session_id, LATER)), session)
    return found


def requests_of(version: str, title: str, first: int, last: int) -> list[Any]:
    """What a session's model was sent, by the order of the requests."""
    data = recorded(version)
    return [
        request["messages"]
        for request in data["requests"][first:last]
        if request["session"] == data["sessions"][title]
    ]


def read_of(rows: Sequence[Message]) -> Any:
    """Reads messages by their outlines, as from a database: in the order of the session."""
    by_id = {message.id: message for message in rows}
    return lambda wanted: (by_id[message.id] for message in wanted)


def is_summary_request(request: Sequence[dict[str, Any]]) -> bool:
    """Whether OpenCode asks for a summary here."""
    text = json.dumps(request[-1])
    return any(
        words in text
        for words in ("Create a new anchored summary", "Provide a detailed prompt for continuing",
                      "<prior-summary>", "Update the anchored summary")
    )  # fmt: skip


def is_reminded(shown: History) -> bool:
    """Whether it says that OpenCode adds a reminder."""
    return any("reminder" in doubt for doubt in shown.doubts)


def test_the_recordings_hold_what_is_compared() -> None:
    for version in VERSIONS:
        newer = NEWER if version in TWO_RUNTIMES else ()
        assert sorted(recorded(version)["sessions"]) == sorted((*OLDER, *newer))


@pytest.mark.parametrize(("version", "title"), CASES)
def test_the_next_request_is_what_is_shown_with_the_new_prompt(
    version: str, title: str, wire: Any
) -> None:
    data = recorded(version)
    first, *_ = requests_of(version, title, *data["last"][title])
    rows, session = stored(version, "before")[title]
    shown = seen_by_model(rows, revert=session.revert, version=session.version)
    if is_summary_request(first):
        assert title in ("Compaction failed", "Newer, compacted")
        assert shown.certain == (title == "Newer, compacted")
        return
    received = wire.as_received(first, reminders=not is_reminded(shown))
    if title in NEWER:
        role, (text,) = received.pop()
        received.append((role, (text.partition("\n<system-update>")[0],)))
    prompt = ("user", (f"Is anything left of {title}?",))
    assert [*wire.as_sent(shown.items), prompt] == received


@pytest.mark.parametrize(("version", "title"), CASES)
def test_every_request_is_what_is_shown_of_its_moment(version: str, title: str, wire: Any) -> None:
    data = recorded(version)
    for moment, span in (("before", [0, data["sent_before"]]), ("after", data["last"][title])):
        rows, session = stored(version, moment)[title]
        sent = [r for r in requests_of(version, title, *span) if not is_summary_request(r)]
        if title == "Newer, reverted for good" and moment == "before":
            sent = sent[:2]
        answers = [message for message in rows if message.role == "assistant"]
        if title == "Fork" or moment == "after":
            answers = answers[-len(sent) :]
        for number, request in enumerate(sent):
            for answer in answers:
                shown = seen_by_model(rows, before=answer.id, version=session.version)
                received = wire.as_received(request, reminders=not is_reminded(shown))
                if wire.as_sent(shown.items) == received:
                    break
                began = any(p.type in ("step-start", "text", "reasoning") for p in answer.parts)
                summary = bool((answer.data or {}).get("summary"))
                assert summary or not began, (number, received, wire.as_sent(shown.items))
            else:
                pytest.fail(f"request {number} belongs to no answer")
            answers = answers[answers.index(answer) + 1 :]


@pytest.mark.parametrize(("version", "title"), CASES)
def test_every_stored_message_is_seen_left_out_replaced_or_taken_back(
    version: str, title: str
) -> None:
    for moment in ("before", "after"):
        rows, session = stored(version, moment)[title]
        shown = seen_by_model(rows, revert=session.revert)
        seen = {item.message_id for item in shown.items}
        left_out = {left.message_id for left in shown.left_out if left.part_id is None}
        replaced = [i for group in shown.replaced for i in group.message_ids]
        about = {message.id for message in rows if message.role.endswith("-switched")}
        sorted_out = [*seen, *left_out, *(i for i in replaced if i not in about), *shown.reverted]
        assert sorted(sorted_out) == sorted({message.id for message in rows} - about)
        assert shown.certain is not shown.doubts
        assert shown.tokens == estimate("".join(item.text for item in shown.items))


@pytest.mark.parametrize("version", VERSIONS)
def test_one_steps_back_to_an_earlier_compaction(version: str, wire: Any) -> None:
    title = "Compacted twice"
    rows, _ = stored(version, "before")[title]
    now = seen_by_model(rows)
    first, second = now.compactions
    assert (first.state, second.state) == (State.FINISHED, State.FINISHED)
    assert (first.automatic, second.automatic) == (False, False)
    assert first.finished_at is not None and first.at < first.finished_at < second.at
    then = seen_by_model(rows, after=first.id)
    assert then.compactions == (first,)
    requests = requests_of(version, title, 0, recorded(version)["sent_before"])
    number = [is_summary_request(request) for request in requests].index(True) + 1
    prompt = ("user", ("Move list 3.",))
    assert [*wire.as_sent(then.items), prompt] == wire.as_received(requests[number])
    assert {group.compaction_id for group in then.replaced} == {first.id}
    assert {group.compaction_id for group in now.replaced} <= {first.id, second.id}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_retained_stands_after_the_summary(version: str) -> None:
    rows, _ = stored(version, "before")["One long turn, compacted"]
    shown = seen_by_model(rows)
    reasons = list(dict.fromkeys(item.why for item in shown.items))
    retained = version != "1.3.2"
    assert reasons[: 1 + retained] == [Why.SUMMARY, Why.TAIL][: 1 + retained]
    assert (Why.TAIL in reasons) == retained
    (compaction,) = shown.compactions
    assert bool(compaction.tail_start_id) == retained
    assert shown.certain


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pruned_output_is_a_placeholder_from_when_it_was_pruned(version: str) -> None:
    rows, _ = stored(version, "before")["Pruned"]
    shown = seen_by_model(rows)
    pruned = [item for item in shown.items if item.text == "[Old tool result content cleared]"]
    assert pruned and all(item.note.startswith("pruned") for item in pruned)
    earlier = seen_by_model(rows, before=rows[5].id)
    assert not any(item.note for item in earlier.items)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_overflow_compacts_by_itself(version: str) -> None:
    rows, _ = stored(version, "before")["Overflowed"]
    # 1.14.48 compacts again at once: it counts the retained answer, not what would be sent.
    compaction, *_ = found = list_compactions(rows)
    assert len(found) == (2 if version == "1.14.48" else 1)
    assert {(item.automatic, item.state) for item in found} == {(True, State.FINISHED)}
    at = next(n for n, message in enumerate(rows) if message.id == compaction.id)
    limits = {"context": 36_000, "output": 4_000}
    full = overflow(seen_by_model(rows[:at]), **limits)
    assert full is not None and full.over and full.usable == 32_000
    assert full.count is not None and full.count >= 32_000
    room = overflow(seen_by_model(rows), **limits)
    assert room is not None and not room.over


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_compaction_is_listed_and_is_tried_again(version: str) -> None:
    rows, _ = stored(version, "before")["Compaction failed"]
    shown = seen_by_model(rows)
    assert [item.state for item in shown.compactions] == [State.FAILED]
    assert not shown.replaced
    assert any("tries it again" in doubt for doubt in shown.doubts)


@pytest.mark.parametrize("version", TWO_RUNTIMES)
def test_a_revert_of_the_newer_runtime_is_said_and_not_applied(version: str) -> None:
    rows, session = stored(version, "before")["Newer, reverted"]
    assert session.revert
    shown = seen_by_model(rows, revert=session.revert)
    assert shown.reverted == () and any("taken back" in doubt for doubt in shown.doubts)


def made(*, role: str, id: str, parts: Sequence[Any] = (), at: Any = 1, **data: Any) -> Message:
    """A message of the older runtime; a part is its data, or text that could not be read."""
    return Message(
        id, role, at, {"role": role, **data},
        tuple(
            Part(f"{id}-{n}", data.get("type", "unknown"), data)
            if isinstance(data, dict) else Part(f"{id}-{n}", "unreadable", None, data)
            for n, data in enumerate(parts)
        ),
    )  # fmt: skip


def user(id: str, text: str = "Hello.", **data: Any) -> Message:
    return made(role="user", id=id, parts=[{"type": "text", "text": text}], **data)


def answer(id: str, text: str = "Hi.", **data: Any) -> Message:
    data = {"finish": "stop", **data}
    return made(role="assistant", id=id, parts=[{"type": "text", "text": text}], **data)


def asked(id: str, **part: Any) -> Message:
    return made(role="user", id=id, parts=[{"type": "compaction", "auto": False, **part}])


def texts(shown: History) -> list[str]:
    return [item.text for item in shown.items]


@pytest.mark.parametrize(("version", "title"), CASES)
def test_outlines_are_enough_to_know_what_is_seen(version: str, title: str) -> None:
    rows, session = stored(version, "after")[title]
    revert = session.revert or {"messageID": rows[-1].id if rows else "", "partID": None}
    for taken_back in (None, session.revert, revert):
        outlines = [outline(message, taken_back) for message in rows]
        moments: list[dict[str, Any]] = [
            {}, *({key: one.id} for one in list_compactions(rows) for key in ("before", "after"))
        ]  # fmt: skip
        for moment in moments:
            whole = seen_by_model(rows, revert=taken_back, version=version, **moment)
            light = seen_by_model(
                outlines, revert=taken_back, version=version, read=read_of(rows), **moment
            )
            assert light == whole
    assert all(len(repr(one)) < 2_000 for one in map(outline, rows))


def test_a_revert_to_each_part_is_the_same_by_outlines() -> None:
    rows, _ = stored("1.18.33", "before")["Compacted twice"]
    for message in rows:
        for part in message.parts:
            revert = {"messageID": message.id, "partID": part.id}
            whole = seen_by_model(rows, revert=revert)
            outlines = [outline(one, revert) for one in rows]
            assert seen_by_model(outlines, revert=revert, read=read_of(rows)) == whole


def test_excerpts_hold_the_ends_and_the_lengths_of_all() -> None:
    rows, _ = stored("1.18.33", "before")["Plain"]
    whole = seen_by_model(rows)
    excerpts = Excerpts(2, lambda text: (text[:5], len(text[5:])))
    light = seen_by_model(rows, excerpts=excerpts)
    assert light.tokens == whole.tokens and len(light.items) == len(whole.items)
    first = [item for item in light.items if item.message_id == rows[0].id]
    middle = [item for item in light.items if item.message_id == rows[len(rows) // 2].id]
    assert [item.text + "…" * item.cut for item in first] == [
        one.text[:5] + "…" * len(one.text[5:]) for one in whole.items[: len(first)]
    ]
    assert middle and all(item.text == "" and item.units for item in middle)
    assert [item.units for item in light.items] == [item.units for item in whole.items]


def test_nothing_is_seen_of_nothing() -> None:
    shown = seen_by_model([])
    assert shown == History((), (), (), (), (), 0, None, None, False, ())
    assert shown.certain
    assert list_compactions([]) == ()


def test_a_summary_whose_prompt_is_missing_replaces_nothing() -> None:
    rows = [user("m1"), answer("m2", "All of it.", summary=True, parentID="gone"), user("m3")]
    shown = seen_by_model(rows)
    assert [item.why for item in shown.items] == [Why.WHOLE] * 3
    assert shown.compactions == (Compaction("m2", "m2", 1, None, None, State.NO_EFFECT),)


@pytest.mark.parametrize(
    "summary", [{"finish": None}, {"error": {"name": "APIError"}}, {"finish": ""}]
)
def test_a_summary_that_did_not_finish_replaces_nothing(summary: dict[str, Any]) -> None:
    rows = [user("m1"), asked("m2"), answer("m3", summary=True, parentID="m2", **summary)]
    shown = seen_by_model([*rows, user("m4"), answer("m5")])
    assert shown.items[0].message_id == "m1" and not shown.replaced
    assert shown.compactions[0].state is not State.FINISHED
    assert shown.certain, "an answer has finished since, so it is not tried again"
    assert seen_by_model(rows).certain == (summary.get("finish", "stop") == "stop")


def test_a_tail_that_is_not_there_leaves_everything_in_view() -> None:
    rows = [user("m1"), answer("m2"), asked("m3", tail_start_id="gone"),
            answer("m4", "Short.", summary=True, parentID="m3"), user("m5")]  # fmt: skip
    assert texts(seen_by_model(rows)) == [
        "Hello.", "Hi.", "What did we do so far?", "Short.", "Hello.",
    ]  # fmt: skip


def test_messages_without_an_id_of_their_own_are_not_mistaken_for_a_tail() -> None:
    rows = [user(""), asked("m3", tail_start_id=""),
            answer("m4", "Short.", summary=True, parentID="m3")]  # fmt: skip
    assert texts(seen_by_model(rows)) == ["What did we do so far?", "Short."]


def test_what_two_compactions_took_away_is_grouped() -> None:
    rows = [
        user("m1"), answer("m2"), asked("m3"), answer("m4", summary=True, parentID="m3"),
        user("m5"), answer("m6"), asked("m7"), answer("m8", summary=True, parentID="m7"),
        user("m9"),
    ]  # fmt: skip
    groups = {g.compaction_id: g.message_ids for g in seen_by_model(rows).replaced}
    assert groups == {"m3": ("m1", "m2"), "m7": ("m3", "m4", "m5", "m6")}


def test_rows_that_are_no_json_are_left_out_and_make_it_uncertain() -> None:
    odd = Message("m1", "unknown", 1, None, (), raw="{")
    rows = [odd, made(role="user", id="m2", parts=["{nope", {"type": "text", "text": "Read."}])]
    shown = seen_by_model(rows)
    assert texts(shown) == ["Read."]
    assert [(left.message_id, left.part_id) for left in shown.left_out] == [
        ("m1", None), ("m2", "m2-0"),
    ]  # fmt: skip
    assert not shown.certain
    newer = Message("m9", "user", 2, None, (Part("m9/data", "unreadable", None, "{"),), raw="{")
    assert not seen_by_model([newer]).certain


def test_unknown_types_and_states_are_named_and_not_shown() -> None:
    rows = [
        made(role="user", id="m1", parts=[{"type": "hologram"}, {}]),
        made(role="assistant", id="m2", parts=[
            {"type": "hologram"}, {"type": "tool", "tool": "x", "state": {"status": "dreaming"}},
            {"type": "tool", "tool": "y", "state": "none"},
        ]),
        made(role="referee", id="m3"),
    ]  # fmt: skip
    shown = seen_by_model(rows)
    assert [item.kind for item in shown.items] == [Kind.CALL, Kind.CALL]
    assert sorted({left.message_id for left in shown.left_out}) == ["m1", "m2", "m3"]
    assert any("hologram" in left.reason for left in shown.left_out)
    assert any("dreaming" in left.reason for left in shown.left_out)


@pytest.mark.parametrize(
    "data",
    [
        {"type": "text"}, {"type": "text", "text": 7}, {"type": "reasoning", "text": None},
        {"type": "tool"}, {"type": "tool", "state": {"status": "completed"}},
        {"type": "tool", "state": {"status": "completed", "output": 1, "attachments": "no",
                                   "time": {"compacted": "yes"}}},
        {"type": "tool", "state": {"status": "error", "metadata": {"interrupted": True}}},
        {"type": "file"}, {"type": "compaction", "auto": "maybe", "tail_start_id": 5},
        {"type": "reasoning", "text": "", "metadata": {"anthropic": {"signature": "s"}}},
    ],
)  # fmt: skip
def test_parts_with_odd_values_do_no_harm(data: dict[str, Any]) -> None:
    for role in ("user", "assistant"):
        rows = [made(role=role, id="m1", parts=[data], summary=True, tokens=[], time={})]
        seen_by_model(rows, revert={"messageID": 3, "partID": []})
        overflow(seen_by_model(rows), context=1000, output=100)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["m0", "m1", "m2", "compaction", "tool", "text", "completed", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["status", "output", "input", "time", "compacted", "metadata", "error",
                         "name", "attachments", "providerID", "modelID", "structured"]),
        inner, max_size=4),
    max_leaves=6,
)  # fmt: skip
DATA = st.dictionaries(
    st.sampled_from(["role", "summary", "finish", "error", "parentID", "time", "tokens", "model",
                     "type", "text", "state", "tail_start_id", "auto", "files", "metadata", "mime",
                     "reason", "recent", "status"]),
    JSON, max_size=7,
)  # fmt: skip
PARTS = st.lists(
    st.tuples(st.sampled_from(["text", "tool", "compaction", "reasoning", "file", "step-start",
                               "subtask", "system", "unreadable"]), st.none() | DATA),
    max_size=3,
)  # fmt: skip
ROWS = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "compaction", "system", "shell", "unknown",
                               "model-switched"]), st.none() | DATA, PARTS),
    max_size=5,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(ROWS, st.none() | DATA)
def test_nothing_that_may_stand_in_the_database_breaks_it(
    given_rows: list[Any], revert: dict[str, Any] | None
) -> None:
    rows = [
        Message(f"m{n}", role, n, data,
                tuple(Part(f"m{n}-{k}", kind, held) for k, (kind, held) in enumerate(parts)))
        for n, (role, data, parts) in enumerate(given_rows)
    ]  # fmt: skip
    shown = seen_by_model(rows, revert=revert, version="1.14.40")
    outlines = [outline(row, revert) for row in rows]
    light = seen_by_model(outlines, revert=revert, version="1.14.40", read=read_of(rows))
    assert light == shown
    overflow(shown, context=10_000, output=1_000)
    for row in rows:
        weigh(row)
        seen_by_model(rows, before=row.id)
    for item in shown.compactions:
        assert item.id in {c.id for c in seen_by_model(rows, after=item.id).compactions}


def test_a_prompt_that_came_in_between_is_said_to_be_wrapped() -> None:
    rows = [user("m1"), answer("m2", finish="tool-calls"), user("m3"), answer("m4")]
    assert not seen_by_model(rows, before="m4", version="1.15.13").certain
    assert seen_by_model(rows, before="m4", version="1.18.33").certain
    assert seen_by_model(rows, version="1.15.13").certain


def test_an_aborted_answer_counts_once_it_has_more_than_thoughts() -> None:
    aborted: dict[str, Any] = {"error": {"name": "MessageAbortedError"}, "finish": None}
    thought = {"type": "reasoning", "text": "Hm."}
    alone = made(role="assistant", id="m1", parts=[{"type": "step-start"}, thought], **aborted)
    assert seen_by_model([alone]).left_out[0].reason == "the answer failed"
    partly = made(role="assistant", id="m1", parts=[thought, {"type": "text", "text": "So"}],
                  **aborted)  # fmt: skip
    assert texts(seen_by_model([partly])) == ["Hm.", "So"]


def test_an_interrupted_tool_gives_what_it_had_written() -> None:
    state = {"status": "error", "error": "Aborted", "metadata": {"interrupted": True,
                                                                 "output": "half"}}  # fmt: skip
    rows = [made(role="assistant", id="m1", parts=[{"type": "tool", "tool": "x", "state": state}])]
    assert texts(seen_by_model(rows)) == ["{}", "half"]


def test_a_revert_without_its_message_takes_nothing_back() -> None:
    rows = [user("m1"), user("m2")]
    assert seen_by_model(rows, revert={"messageID": "gone"}).reverted == ()
    assert seen_by_model(rows, revert={}).reverted == ()
    assert seen_by_model(rows, revert={"messageID": "m2"}).reverted == ("m2",)


def test_a_revert_to_a_part_leaves_what_stands_before_it() -> None:
    parts = [{"type": "text", "text": text} for text in ("One.", "Two.", "Three.")]
    rows = [user("m1"), made(role="assistant", id="m2", parts=parts), user("m3")]
    shown = seen_by_model(rows, revert={"messageID": "m2", "partID": "m2-1"})
    assert texts(shown) == ["Hello.", "One."] and shown.reverted == ("m3",)
    whole = seen_by_model(rows, revert={"messageID": "m2", "partID": "gone"})
    assert texts(whole) == ["Hello.", "One.", "Two.", "Three."]


def test_thoughts_are_text_to_another_model() -> None:
    first, second = ({"providerID": "p", "modelID": name} for name in ("m1", "m2"))
    thought = {"type": "reasoning", "text": "Hm."}
    rows = [
        user("m1", model=first),
        made(role="assistant", id="m2", parts=[thought], finish="stop", **first),
        user("m3", model=first),
        made(role="assistant", id="m4", parts=[thought], finish="stop", **second),
    ]
    by_second = seen_by_model(rows, before="m4")
    assert [item.kind for item in by_second.items] == [Kind.TEXT] * 3
    now = seen_by_model(rows)
    assert [item.kind for item in now.items] == [Kind.TEXT, Kind.REASONING, Kind.TEXT, Kind.TEXT]
    old = seen_by_model(rows, version="1.3.2")
    assert [item.kind for item in old.items].count(Kind.REASONING) == 2
    assert now.certain and not old.certain
    asked_for = seen_by_model(rows, model=Model("p", "m2"))
    assert [item.kind for item in asked_for.items][3] is Kind.REASONING


def test_an_empty_text_between_signed_thoughts_is_a_space() -> None:
    signed = {"type": "reasoning", "text": "Hm.", "metadata": {"anthropic": {"signature": "s"}}}
    empty = {"type": "text", "text": ""}
    rows = [made(role="assistant", id="m1", parts=[signed, empty])]
    assert texts(seen_by_model(rows)) == ["Hm.", " "]
    assert texts(seen_by_model([made(role="assistant", id="m1", parts=[empty])])) == [""]


def test_changed_instructions_stand_in_the_prompt_before_them() -> None:
    rows = [
        Message("n1", "user", 1, {}, (Part("n1/text", "text", {"text": "First."}),)),
        Message("n2", "system", 2, {}, (Part("n2/data", "system", {"text": "a < b & c"}),)),
    ]
    shown = seen_by_model(rows)
    assert [item.group for item in shown.items] == [1, 1]
    assert texts(shown)[1] == "<system-update>\na &lt; b &amp; c\n</system-update>"
    assert not shown.certain


def test_a_moment_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound, match="no message m7"):
        seen_by_model([user("m1")], before="m7")
    with pytest.raises(NotFound):
        seen_by_model([user("m1")], after="m7")


def test_a_session_of_both_runtimes_is_said_to_be_one() -> None:
    newer = Message("n1", "user", 5, {}, (Part("n1/text", "text", {"text": "Later."}),))
    shown = seen_by_model([user("m1"), newer])
    assert texts(shown) == ["Later."] and "Both of OpenCode's runtimes" in shown.doubts[0]


@pytest.mark.parametrize(
    ("data", "state"),
    [
        ({"reason": "manual", "summary": "Short.", "recent": "r"}, State.FINISHED),
        ({"reason": "auto", "summary": ""}, State.OPEN),
        ({"summary": "Short.", "status": "running"}, State.OPEN),
        ({"status": "failed"}, State.FAILED),
    ],
)
def test_a_compaction_of_the_newer_runtime_counts_once_it_has_ended(
    data: dict[str, Any], state: State
) -> None:
    rows = [
        Message("n1", "user", 1, {}, (Part("n1/text", "text", {"text": "First."}),)),
        Message("n2", "compaction", 2, {}, (Part("n2/data", "compaction", data),)),
        Message("n3", "shell", 3, {}, (
            Part("n3/data", "shell", {"command": "ls", "output": "a"}),)),
        Message("n4", "synthetic", 4, {}, (Part("n4/data", "synthetic", {"text": "Added."}),)),
    ]  # fmt: skip
    shown = seen_by_model(rows)
    assert shown.compactions[0].state is state
    assert ("First." in texts(shown)) == (state is not State.FINISHED)
    assert texts(shown)[-2:] == ["Shell command: ls\n\na", "Added."]


def test_tokens_are_estimated_as_opencode_does() -> None:
    assert [estimate("x" * n) for n in (0, 1, 2, 5, 6, 10)] == [0, 0, 1, 1, 2, 3]
    assert estimate("👩‍💻") == 1


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"context": 0, "output": 1}, None),
        ({"context": 128_000, "output": 4_000}, Overflow(50, 124_000, 4_000, False)),
        ({"context": 128_000, "output": 0}, Overflow(50, 96_000, 32_000, False)),
        ({"context": 128_000, "output": 64_000, "input_limit": 100_000},
         Overflow(50, 80_000, 20_000, False)),
        ({"context": 128_000, "output": 64_000, "input_limit": 100_000, "reserved": 99_990},
         Overflow(50, 10, 99_990, True)),
    ],
)  # fmt: skip
def test_an_overflow_is_counted_as_opencode_does(
    limits: dict[str, int], expected: Overflow | None
) -> None:
    counted = {"input": 20, "output": 5, "reasoning": 9, "cache": {"read": 15, "write": 10}}
    rows = [answer("m1", tokens={"total": 7}), answer("m2", tokens=counted), user("m3")]
    assert overflow(seen_by_model(rows), **limits) == expected


@pytest.mark.parametrize(
    "tokens",
    [
        {"total": -12},
        {"total": 1e15},
        {"input": -20, "output": 8},
        {"input": 5, "cache": {"read": 1e17}},
        {"input": 5, "output": "many"},
        {"total": True},
        {"input": float("nan"), "output": 5},
    ],
)
def test_a_number_that_cannot_be_one_of_tokens_is_no_count(tokens: dict[str, Any]) -> None:
    found = overflow(seen_by_model([answer("m1", tokens=tokens)]), context=10_000, output=5_000)
    assert found == Overflow(None, 5_000, 5_000, False)
    # The plot and the bar are of one count.
    assert context_size(tokens) is None and context_size({"input": 0.4, "output": 5}) == 5


def test_after_a_summary_nothing_has_been_counted_yet() -> None:
    rows = [asked("m1"), answer("m2", summary=True, parentID="m1", tokens={"total": 9_000})]
    found = overflow(seen_by_model(rows), context=10_000, output=5_000)
    assert found == Overflow(None, 5_000, 5_000, False)
