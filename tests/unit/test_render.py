"""A session as lines of text: every part type, nothing paraphrased, nothing dropped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.opencode import Message, Part, Session
from webapp.transcripts import render

AT = 1_796_034_902_000
"""2026-11-30 10:35:02 in UTC."""

MAX = 50_000

generated = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def session(**changes: Any) -> Session:
    facts: dict[str, Any] = {
        "id": "ses_a", "db": Path("/x/opencode.db"), "scope": "/home/demo/shop",
        "directory": "/home/demo/shop/api", "title": "Mend the till", "version": "1.18.33",
        "parent_id": None, "created_at": AT, "updated_at": AT, "archived_at": None, "revert": None,
    }  # fmt: skip
    return Session(**(facts | changes))


def part(data: dict[str, Any], part_id: str = "prt_1") -> Part:
    return Part(part_id, str(data.get("type") or "unknown"), data)


def message(*parts: Part, role: str = "assistant", **changes: Any) -> Message:
    data = changes.pop("data", {"role": role})
    return Message("msg_1", role, AT, data, parts, **changes)


def lines(*parts: Part, inline_max: int = MAX, **changes: Any) -> list[str]:
    """All lines of one message."""
    done = render.message(message(*parts, **changes), inline_max)
    return [line for block in (done.heading, *done.parts) for line in block.lines]


def block(data: dict[str, Any], inline_max: int = MAX, **changes: Any) -> render.Block:
    """The block of one part that is not the first of its message."""
    first = part({"type": "step-start"}, "prt_0")
    return render.message(message(first, part(data), **changes), inline_max).parts[1]


def test_the_header_tells_facts_that_never_change() -> None:
    assert render.header(session()).lines == (
        "# Mend the till",
        "opencode-memory transcript 1",
        "session: ses_a",
        "scope: /home/demo/shop",
        "folder: /home/demo/shop/api",
        "created: 2026-11-30 10:35:02Z",
        "opencode: 1.18.33",
    )
    assert render.header(session(parent_id="ses_p")).lines[-1] == "parent: ses_p"
    assert render.header(session(title="", version="")).lines[0] == "# ses_a"


def test_the_header_does_not_grow_with_line_ends_in_a_title() -> None:
    header = render.header(session(title="one\ntwo\r\n\u2028three", scope="/a\nb"))
    assert header.lines[0] == "# one two three"
    assert len(header.lines) == len(render.header(session()).lines)


def test_a_later_change_of_the_session_does_not_change_its_header_but_for_the_title() -> None:
    later = session(updated_at=AT + 9, archived_at=AT, revert={"messageID": "msg_9"})
    assert render.header(later) == render.header(session())


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (AT, "2026-11-30 10:35:02Z"),
        (0, "1970-01-01 00:00:00Z"),
        (10**17, f"{10**17} ms"),
        (-(10**17), f"{-(10**17)} ms"),
        (10**30, f"{10**30} ms"),
    ],
)
def test_a_time_is_told_in_utc_or_stays_a_number(milliseconds: int, text: str) -> None:
    assert render.stamp(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [""]),
        ("\n", [""]),
        ("\n\n", ["", ""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb", ["a\r", "b"]),
        ("a\rb\x0bc\x0cd\x85e\u2028f\u2029g\x1ch", ["a\rb\x0bc\x0cd\x85e\u2028f\u2029g\x1ch"]),
    ],
)
def test_only_a_newline_ends_a_line(text: str, found: list[str]) -> None:
    assert render.body(text).split("\n") == found


@generated
@given(st.text())
def test_a_text_among_lines_is_the_text(text: str) -> None:
    assert render.body(text) == text.removesuffix("\n")


def test_the_heading_of_an_answer_tells_role_agent_model_time_and_id() -> None:
    data = {"role": "assistant", "agent": "build", "modelID": "m1", "providerID": "p1"}
    assert lines(data=data) == ["## assistant · build · p1/m1 · 2026-11-30 10:35:02Z · msg_1"]


def test_the_heading_of_a_prompt_tells_its_agent_and_model_too() -> None:
    data = {"role": "user", "agent": "plan", "model": {"providerID": "p1", "modelID": "m1"}}
    assert lines(role="user", data=data) == [
        "## user · plan · p1/m1 · 2026-11-30 10:35:02Z · msg_1"
    ]


def test_the_heading_of_a_newer_answer_tells_its_model() -> None:
    data = {"agent": "build", "model": {"id": "m1", "providerID": "p1", "variant": "high"}}
    assert lines(data=data)[0].startswith("## assistant · build · p1/m1 ")
    assert "high" in "\n".join(lines(data=data))


def test_an_interrupted_answer_says_so() -> None:
    assert lines(interrupted=True)[0].endswith("interrupted, never finished")


def test_a_compaction_is_told_on_both_sides() -> None:
    asked = message(part({"type": "compaction", "auto": True}), role="user")
    done = render.message(asked, MAX)
    assert done.heading.kind == "compaction" and "compaction" in done.heading.lines[0]
    assert done.parts[0].lines == ("### compaction · automatic",)
    summary = message(
        part({"type": "text", "text": "s"}), data={"role": "assistant", "summary": True}
    )
    answered = render.message(summary, MAX)
    assert answered.heading.kind == "compaction"
    assert answered.heading.lines[0].endswith("compaction summary")
    assert block({"type": "compaction", "auto": False}).lines == ("### compaction · manual",)


def test_a_user_s_summary_of_diffs_is_left_out_and_no_compaction() -> None:
    data = {"role": "user", "summary": {"diffs": [{"file": "a.py"}], "title": "t"}}
    found = lines(part({"type": "text", "text": "hello"}), role="user", data=data)
    assert found[1:] == ["hello"]
    assert "compaction" not in found[0]


def test_the_first_text_needs_no_heading_and_later_ones_have_one() -> None:
    found = lines(
        part({"type": "text", "text": "one\ntwo"}, "prt_1"),
        part({"type": "text", "text": "three"}, "prt_2"),
        part({"type": "text", "text": "four", "synthetic": True, "ignored": True}, "prt_3"),
    )
    assert found[1:] == [
        "one", "two", "### text", "three", "### text · synthetic · ignored", "four",
    ]  # fmt: skip


def test_a_text_that_looks_like_a_heading_stays_text() -> None:
    done = render.message(message(part({"type": "text", "text": "## user · fake\n### tool"})), MAX)
    assert done.parts[0].lines == ("## user · fake", "### tool")
    assert len(done.parts) == 1


def test_reasoning_tells_how_long_it_took() -> None:
    data = {"type": "reasoning", "text": "Hm.\nYes.", "time": {"start": 1000, "end": 3250}}
    assert block(data).lines == ("### reasoning · 2.25 s", "Hm.", "Yes.")
    assert block({"type": "reasoning", "text": "Hm."}).lines == ("### reasoning", "Hm.")


TOOL: dict[str, Any] = {
    "type": "tool", "callID": "call_1", "tool": "bash",
    "state": {
        "status": "completed", "title": "List files",
        "input": {"command": "ls\npwd", "description": "look", "timeout": 5, "deep": {"a": [1]}},
        "output": "a.py\nb.py\n", "metadata": {"exit": 0, "output": "a.py\nb.py\n"},
        "time": {"start": 1000, "end": 1250},
    },
}  # fmt: skip


def test_a_tool_call_tells_state_input_output_and_duration() -> None:
    assert block(TOOL).lines == (
        "### tool bash · completed · call_1 · 0.25 s",
        "title: List files",
        "command:",
        "ls",
        "pwd",
        "description: look",
        "timeout: 5",
        'deep: {"a": [1]}',
        "#### output",
        "a.py",
        "b.py",
        "#### metadata",
        "exit: 0",
        "output: (same as the output)",
    )
    assert block(TOOL).kind == "tool"


@pytest.mark.parametrize("value", [None, "", 0, False, [], {}])
def test_an_argument_of_a_tool_is_told_also_when_it_is_empty(value: Any) -> None:
    found = block({"type": "tool", "state": {"status": "running", "input": {"limit": value}}})
    shown = value if isinstance(value, str) else json.dumps(value)
    assert f"limit: {shown}" in found.lines


def test_a_failed_tool_tells_its_error_whole() -> None:
    state = {"status": "error", "input": {"path": "/x"}, "error": "first line\nsecond line"}
    found = block({"type": "tool", "callID": "c", "tool": "read", "state": state})
    assert found.kind == "error"
    assert found.lines == (
        "### tool read · error · c", "path: /x", "#### error", "first line", "second line",
    )  # fmt: skip


@pytest.mark.parametrize(
    "state",
    [
        {"status": "pending", "input": {}, "raw": '{"comma'},
        {"status": "running", "input": {"a": "b"}},
        {"status": "completed", "output": {"odd": [1, "two"]}},
        {"status": "from-the-future", "hologram": {"beam": "teal"}},
        {"status": "completed", "input": "no object", "output": 7},
        {"status": "completed", "attachments": [{"mime": "image/png", "url": "data:x"}, "bare"]},
        {"status": "error", "error": {"name": "E", "data": {"message": "because"}}},
        {},
        "no object at all",
        None,
    ],
)
def test_a_tool_in_any_state_shows_all_that_it_holds(state: Any) -> None:
    text = "\n".join(block({"type": "tool", "callID": "c", "tool": "t", "state": state}).lines)
    for leaf in leaves(state):
        assert leaf in text


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in leaves(each)]
    return [] if value is None else [str(value)]


def test_a_pruned_output_is_marked_and_its_text_is_the_same() -> None:
    state = TOOL["state"] | {"time": {"start": 1000, "end": 1250, "compacted": 9000}}
    pruned, plain = block(TOOL | {"state": state}), block(TOOL)
    assert pruned.pruned and not plain.pruned
    assert pruned.lines == plain.lines


def test_long_output_is_cut_head_and_tail_with_the_call_in_the_marker() -> None:
    output = "H" * 300 + "M" * 1000 + "T" * 300
    state = {"status": "completed", "output": output}
    found = block({"type": "tool", "callID": "call_7", "tool": "t", "state": state}, 600)
    text = "\n".join(found.lines[found.lines.index("#### output") + 1 :])
    assert text.startswith("H" * 300 + "\n[") and text.endswith("]\n" + "T" * 300)
    assert "1,000 bytes" in text and "call_7" in text
    assert "M" not in text


@pytest.mark.parametrize("limit", [100, 101, 102, 103, 998, 999, 1000])
def test_a_cut_never_splits_a_character_and_counts_what_is_gone(limit: int) -> None:
    output = "ä€😀" * 111 + "x"
    state = {"status": "completed", "output": output}
    found = block({"type": "tool", "callID": "c", "tool": "t", "state": state}, limit)
    text = "\n".join(found.lines[found.lines.index("#### output") + 1 :])
    if len(output.encode()) <= limit:
        assert text == output
        return
    head, marker, tail = text.split("\n")
    assert "\ufffd" not in text
    assert output.startswith(head) and output.endswith(tail)
    gone = int(marker.removeprefix("[… ").split(" ")[0].replace(",", ""))
    assert gone == len(output.encode()) - len(head.encode()) - len(tail.encode())


def test_output_of_just_the_limit_is_not_cut() -> None:
    state = {"status": "completed", "output": "x" * 600}
    found = block({"type": "tool", "callID": "c", "tool": "t", "state": state}, 600)
    assert found.lines[-1] == "x" * 600


def test_input_errors_and_text_are_never_cut() -> None:
    long = "y" * 5000
    state = {"status": "error", "input": {"content": long}, "error": long}
    assert block({"type": "tool", "state": state}, 100).lines.count(long) == 1
    assert f"content: {long}" in block({"type": "tool", "state": state}, 100).lines
    assert long in block({"type": "text", "text": long}, 100).lines
    assert long in block({"type": "reasoning", "text": long}, 100).lines


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (
            {"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "data:,hi"},
            ["### file · text/plain · a.txt", "url: data:,hi"],
        ),
        (
            {"type": "file", "mime": "text/plain", "url": "file:///a", "source": {"path": "/a"}},
            ["### file · text/plain", "url: file:///a", 'source: {"path": "/a"}'],
        ),
        (
            {"type": "patch", "hash": "abc", "files": ["/a.py", "/b.py"]},
            ["### patch · abc", "/a.py", "/b.py"],
        ),
        ({"type": "patch", "hash": "abc", "files": "odd"}, ["### patch · abc", "files: odd"]),
        ({"type": "step-start", "snapshot": "abc"}, ["### step-start · snapshot abc"]),
        (
            {
                "type": "step-finish", "reason": "tool-calls", "cost": 0.5, "snapshot": "abc",
                "tokens": {"input": 7, "output": 5, "reasoning": 3,
                           "cache": {"read": 2, "write": 1}},
            },
            ["### step-finish · tool-calls · 7 in · 5 out · 3 reasoning · 2 cache read"
             " · 1 cache write · cost 0.5 · snapshot abc"],
        ),
        (
            {"type": "subtask", "agent": "general", "description": "d", "prompt": "p\nq"},
            ["### subtask", "agent: general", "description: d", "prompt:", "p", "q"],
        ),
        (
            {"type": "agent", "name": "general", "source": {"value": "@general"}},
            ["### agent", "name: general", 'source: {"value": "@general"}'],
        ),
        (
            {"type": "retry", "attempt": 2, "error": {"name": "APIError"}},
            ["### retry", "attempt: 2", 'error: {"name": "APIError"}'],
        ),
        ({"type": "snapshot", "snapshot": "abc"}, ["### snapshot", "snapshot: abc"]),
        ({"type": "agent-switched", "agent": "plan"}, ["### agent-switched", "agent: plan"]),
        (
            {"type": "synthetic", "text": "one\ntwo"}, ["### synthetic", "text:", "one", "two"],
        ),
        ({"type": "system", "text": "one\ntwo"}, ["### system", "text:", "one", "two"]),
        (
            {"type": "shell", "callID": "c", "command": "ls", "output": "a\nb"},
            ["### shell", "callID: c", "command: ls", "output:", "a", "b"],
        ),
        (
            {"type": "compaction", "reason": "manual", "summary": "one\ntwo"},
            ["### compaction", "reason: manual", "summary:", "one", "two"],
        ),
    ],
)  # fmt: skip
def test_every_part_type_has_its_lines(data: dict[str, Any], wanted: list[str]) -> None:
    assert list(block(data).lines) == wanted


@pytest.mark.parametrize(
    "data",
    [
        {"type": "hologram", "beam": {"colour": "türkis", "size": 3}},
        {"beam": "no type"},
        {"type": 7, "beam": "odd type"},
        {"type": "text", "text": 7},
        {"type": "reasoning", "text": ["a"]},
        {"type": "odd\ntype", "beam": 1},
    ],
)
def test_an_unknown_part_is_shown_as_its_json(data: dict[str, Any]) -> None:
    found = block(data)
    assert json.loads(found.lines[1]) == data
    assert found.lines[0].startswith("### ") and "\n" not in found.lines[0]


@pytest.mark.parametrize("known", ["text", "reasoning", "file", "patch", "step-start", "tool",
                                   "step-finish", "compaction", "subtask", "retry"])  # fmt: skip
def test_a_key_that_no_version_had_yet_is_shown(known: str) -> None:
    data = {"type": known, "text": "t", "state": {"status": "completed"}, "hologram": {"a": "teal"}}
    assert 'hologram: {"a": "teal"}' in block(data).lines


@pytest.mark.parametrize("raw", ["", "{", "line one\nline two", "\x00", "[1]"])
def test_an_unparsable_part_is_shown_as_it_is(raw: str) -> None:
    found = render.message(message(Part("prt_1", "unreadable", None, raw)), MAX).parts[0]
    assert found.lines[0] == "### unreadable part"
    assert "\n".join(found.lines[1:]) == raw
    assert found.kind == "error"


@pytest.mark.parametrize("parts", [(), (part({"type": "text", "text": "still here"}),)])
def test_an_unparsable_message_is_shown_as_it_is(parts: tuple[Part, ...]) -> None:
    item = Message("msg_1", "unknown", AT, None, parts, raw='{"role": "ass\nistant')
    done = render.message(item, MAX)
    text = [line for each in (done.heading, *done.parts) for line in each.lines]
    assert "unreadable" in text[0] and done.heading.kind == "error"
    assert text[1:3] == ['{"role": "ass', "istant"]
    assert [each.id for each in done.parts] == [each.id for each in parts]


def test_an_unparsable_newer_message_is_not_shown_twice() -> None:
    raw = "{broken"
    item = Message("m", "user", AT, None, (Part("m/data", "unreadable", None, raw),), raw=raw)
    done = render.message(item, MAX)
    text = [line for each in (done.heading, *done.parts) for line in each.lines]
    assert text.count(raw) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"name": "APIError", "data": {"message": "scripted\nfailure", "statusCode": 400}},
        {"type": "unknown", "message": "scripted\nfailure"},
        {"name": "Odd", "data": "scripted"},
        "scripted",
        ["scripted"],
    ],
)
def test_a_message_that_failed_shows_its_error(error: Any) -> None:
    done = render.message(message(data={"role": "assistant", "error": error}), MAX)
    (found,) = done.parts
    assert found.kind == "error" and found.id == "msg_1/error"
    assert found.lines[0].startswith("### error · ")
    assert json.loads(found.lines[-1]) == error
    if "failure" in str(error):
        assert found.lines[1:3] == ("scripted", "failure")


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("system", "be\nkind", ["### system", "be", "kind"]),
        ("tools", {"bash": False}, ["### tools", '{"bash": false}']),
        ("variant", "high", ["### variant", "high"]),
        ("hologram", {"a": "teal"}, ['hologram: {"a": "teal"}']),
        ("note", "one\ntwo", ["note:", "one", "two"]),
    ],
)
def test_what_else_a_message_holds_is_shown(key: str, value: Any, wanted: list[str]) -> None:
    found = lines(role="user", data={"role": "user", "time": {"created": AT}, key: value})
    assert found[-len(wanted) :] == wanted


def test_the_totals_of_a_message_and_its_place_are_left_out() -> None:
    data = {
        "role": "assistant", "parentID": "msg_0", "mode": "build", "agent": "build", "cost": 1,
        "path": {"cwd": "/x", "root": "/x"}, "tokens": {"input": 9}, "finish": "stop",
        "modelID": "m", "providerID": "p", "time": {"created": AT, "completed": AT},
    }  # fmt: skip
    assert len(lines(data=data)) == 1


def test_a_message_whose_json_is_no_object_shows_it() -> None:
    item = Message("msg_1", "unknown", AT, {"value": [1, "two"]}, ())
    done = render.message(item, MAX)
    assert any('[1, "two"]' in line for each in done.parts for line in each.lines)


def test_a_label_is_the_first_thing_a_person_said_and_short() -> None:
    asked = message(
        part({"type": "text", "text": "hidden", "synthetic": True}, "prt_1"),
        part({"type": "text", "text": "What\nis " + "it" * 100}, "prt_2"),
        role="user",
    )
    label = render.message(asked, MAX).heading.label
    assert label.startswith("What is itit") and len(label) == render.LABEL


def test_blocks_carry_the_ids_of_message_and_parts() -> None:
    done = render.message(message(part({"type": "text", "text": "a"}, "prt_7")), MAX)
    assert (done.heading.id, done.parts[0].id) == ("msg_1", "prt_7")


def test_a_notice_is_dated() -> None:
    found = render.notice(AT, "pruned", ["why", "how"], "prt_1")
    assert found.lines == ("## notice · 2026-11-30 10:35:02Z · pruned", "why", "how")
    assert found.kind == "notice"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@generated
@given(
    st.sampled_from(["text", "reasoning", "tool", "file", "patch", "step-finish", "compaction",
                     "subtask", "agent", "retry", "snapshot", "shell", "odd"]),
    st.dictionaries(
        st.sampled_from(["text", "state", "time", "files", "url", "tokens", "metadata", "auto",
                         "cost", "mime", "filename", "hash", "tool", "callID", "reason"]),
        JSON,
    ),
    st.dictionaries(
        st.sampled_from(["status", "input", "output", "error", "title", "time", "metadata",
                         "attachments", "raw"]),
        JSON,
    ),
)  # fmt: skip
def test_no_json_object_breaks_the_rendering(
    kind: str, data: dict[str, Any], state: dict[str, Any]
) -> None:
    for given_data in (data, data | {"state": state}):
        once = block({"type": kind} | given_data, 100)
        again = block({"type": kind} | given_data, 100)
        assert once == again
        assert once.lines and all("\n" not in line for line in once.lines)
        assert "\n" not in once.label


MESSAGE_KEYS = (
    "agent", "mode", "model", "modelID", "providerID", "error", "system", "tools", "summary",
    "variant", "odd",
)  # fmt: skip


@generated
@given(st.dictionaries(st.sampled_from(MESSAGE_KEYS), JSON))
def test_no_message_data_breaks_the_rendering(data: dict[str, Any]) -> None:
    done = render.message(message(data=data), 100)
    for each in (done.heading, *done.parts):
        assert each.lines and all("\n" not in line for line in each.lines)


@pytest.mark.parametrize(
    "data",
    [
        {"type": "tool", "tool": "t", "state": {"status": "completed", key: value}}
        for key in ("title", "raw", "metadata", "time")
        for value in ({"x": "LEAF"}, ["LEAF"], "LEAF")
        if not (key in ("title", "raw") and value == "LEAF")
        if not (key == "metadata" and isinstance(value, dict))
        if not (key == "time" and isinstance(value, dict))
    ]
    + [
        {"type": "file", "url": {"x": "LEAF"}},
        {"type": "step-finish", "cost": "LEAF"},
        {"type": "step-finish", "tokens": {"input": 1, "note": "LEAF"}},
    ],
)
def test_a_field_of_an_odd_type_does_not_vanish(data: dict[str, Any]) -> None:
    assert "LEAF" in block(data).text


def test_a_label_does_not_end_within_a_word_that_a_cut_went_through() -> None:
    text = " " * 60 + "use " + " " * 100 + "ghp_" + "A1b2C3d4E5" * 9 + " now"
    assert "A1b2" not in block({"type": "text", "text": text}).label
