"""The outline: what was asked, what failed and what changed, around a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.files import Mark, load_marks
from webapp.transcripts.outline import AROUND, INNER, outline

if TYPE_CHECKING:
    from tests.conftest import Talk

TOKEN = "gh" + "p_" + "FakeFixture0" * 3


def asked(line: int, label: str = "") -> Mark:
    return Mark(line, "message:user", f"msg_{line}", "d", label or f"prompt at {line}")


def test_an_outline_of_nothing_is_empty() -> None:
    found = outline([], [], 1, True)
    assert (found.items, found.above, found.below) == ((), 0, 0)
    end = Mark(9, "end", "", "100", "")
    assert outline([Mark(1, "header", "ses", "d", "T"), end], [], 1, True).items == ()


def test_prompts_errors_compactions_and_notices_are_in_it_and_the_rest_below_the_current() -> None:
    marks = [
        Mark(1, "header", "ses", "d", "T"),
        asked(5, "What now?"),
        Mark(6, "user", "prt_1", "d", "What now?"),
        Mark(9, "message:assistant", "msg_9", "d", "This."),
        Mark(10, "tool", "prt_2", "d", "bash ls"),
        Mark(12, "error", "prt_3", "d", "read no.txt"),
        Mark(14, "message:compaction", "msg_14", "d", "compaction"),
        Mark(20, "notice", "prt_2", "d", "pruned"),
        Mark(22, "end", "", "999", ""),
    ]
    found = outline(marks, marks, 1, True)
    assert [(item.line, item.kind, item.label) for item in found.items[0].inner] == [
        (9, "assistant", "This."),
        (10, "tool", "bash ls"),
    ]
    assert not any(item.inner for item in found.items[1:])
    assert [(item.line, item.kind, item.label) for item in found.items] == [
        (5, "user", "What now?"),
        (12, "error", "error: read no.txt"),
        (14, "compaction", "compaction"),
        (20, "notice", "pruned"),
    ]


@pytest.mark.parametrize(
    ("top", "current"),
    [(1, 10), (9, 10), (10, 10), (11, 10), (19, 10), (20, 20), (45, 40), (999, 50)],
)
def test_the_last_one_at_or_above_the_top_is_the_current_one(top: int, current: int) -> None:
    found = outline([asked(line) for line in (10, 20, 30, 40, 50)], [], top, True)
    assert [item.line for item in found.items if item.current] == [current]


@pytest.mark.parametrize("top", [1, 500, 5_000, 9_999, 10**9])
def test_of_many_only_those_around_are_given_and_the_others_counted(top: int) -> None:
    marks = [asked(line) for line in range(10, 10_010, 10)]
    found = outline(marks, [], top, True)
    assert 0 < len(found.items) <= AROUND
    assert found.above + len(found.items) + found.below == 1000
    assert marks[found.above].line == found.items[0].line
    (current,) = [item.line for item in found.items if item.current]
    assert current == max((mark.line for mark in marks if mark.line <= top), default=10)


@pytest.mark.parametrize("top", [1, 5, 900, 4_000, 10**6])
def test_of_what_was_done_since_only_what_is_around_is_given(top: int) -> None:
    tools = [Mark(line, "tool", f"prt_{line}", "d", f"bash {line}") for line in range(10, 5_000, 5)]
    (item, after) = outline(
        [asked(5), asked(6_000)], [asked(5), *tools, asked(6_000)], top, True
    ).items
    inner = item.inner or after.inner
    if top >= 6_000:
        assert not inner
        return
    assert len(inner) == INNER
    lines = [one.line for one in inner]
    assert lines == sorted(lines)
    assert min(abs(line - max(top, 10)) for line in lines) < 6


def test_credentials_in_labels_are_masked_unless_the_owner_looks() -> None:
    marks = [asked(1, f"use {TOKEN} now")]
    (masked,) = outline(marks, [], 1, True).items
    assert TOKEN[4:12] not in masked.label and masked.label.startswith("use gh")
    (plain,) = outline(marks, [], 1, False).items
    assert plain.label == f"use {TOKEN} now"


@pytest.mark.parametrize("before", range(30, 80, 3))
def test_a_credential_that_the_end_of_a_label_cuts_is_not_shown(
    before: int, talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("w" * (before - 1) + " " + TOKEN + " is the key")
    path = talk.export(store, settings).path
    (item,) = outline(load_marks(path), [], 1, True).items
    assert TOKEN[4:8] not in item.label
    assert item.label.startswith("w" * min(before - 1, 20))


def test_an_item_without_a_text_is_named_by_its_kind() -> None:
    (item,) = outline([Mark(3, "message:user", "m", "d", "")], [], 1, True).items
    assert item.label == "user"
    (failed,) = outline([Mark(3, "error", "m", "d", "error: APIError")], [], 1, True).items
    assert failed.label == "error: APIError"


def test_the_lines_of_a_real_outline_are_those_of_the_headings(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("First question")
    talk.assistant("Answer", error={"name": "APIError", "data": {"message": "no"}})
    talk.user("Second question")
    path = talk.export(store, settings).path
    lines = path.read_text().split("\n")
    found = outline(load_marks(path), [], 1, True).items
    assert [item.label for item in found] == [
        "First question",
        "error: APIError",
        "Second question",
    ]
    assert lines[found[0].line] == "First question"
    assert lines[found[1].line - 1] == "### error · APIError"
    assert lines[found[2].line] == "Second question"
