"""A message as it is read: its bounds, its parts, what is masked and what is left out."""

from __future__ import annotations

import random
import time
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.lines import LineRange
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import files, message, window
from webapp.transcripts.files import Mark, marks_path
from webapp.transcripts.library import Transcript, get

if TYPE_CHECKING:
    from tests.conftest import Talk

TOKEN = "gh" + "p_" + "FakeFixture0" * 3


def key(lines: int) -> list[str]:
    """The lines of an invented private key."""
    chance = random.Random(lines)
    body = ["".join(chance.choices("abcdefghijKLMNOPQRS0123456789+/", k=64)) for _ in range(lines)]
    name = "RSA PRIVATE" + " KEY-----"
    return ["-----BEGIN " + name, *body, "-----END " + name]


class Book:
    """A transcript of ours written by hand: blocks with their marks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self.marks: list[Mark] = []

    def add(self, kind: str, *lines: str, id: str = "", digest: str = "-") -> int:
        first = len(self.lines) + 1
        self.marks.append(Mark(first, kind, id or f"id{first}", digest, lines[0][:80]))
        self.lines += lines
        return first

    def message(self, role: str, *lines: str, id: str = "", kind: str = "") -> int:
        """A message with one text; the line of its heading."""
        self.lines.append("")
        head = f"## {role} · build · 2026-11-30 10:35:02Z · {id or 'msg'}"
        first = self.add(f"message:{kind or role}", head, id=id)
        if lines:
            self.add(role, *lines)
        return first

    def transcript(self) -> Transcript:
        text = "".join(f"{line}\n" for line in self.lines).encode()
        self.path.write_bytes(text)
        marks = [*self.marks, Mark(len(self.lines), "end", "", str(len(text)), "")]
        marks_path(self.path).write_text("".join(mark.dump() for mark in marks))
        return Transcript(
            "t", "/s", "T", self.path, len(self.lines), len(text), 1, 1, 1, True
        )  # fmt: skip


@pytest.fixture
def book(tmp_path: Path) -> Book:
    made = Book(tmp_path / "t.md")
    made.add("header", "# T", "more")
    return made


def read(item: Transcript, line: int, **more: Any) -> message.Message:
    found = message.read(item, line, **more)
    assert found is not None
    return found


# Bounds -----------------------------------------------------------------------------------------


def test_every_line_of_a_real_export_belongs_to_its_message(
    talk: Talk, settings: Settings, tmp_path: Path
) -> None:
    talk.user("first *question*\nof two lines")
    answer = talk.message(
        {"role": "assistant", "agent": "build", "time": {"created": 1, "completed": 2}}
    )
    talk.part(answer, {"type": "step-start"})
    talk.part(answer, {"type": "reasoning", "text": "hm"})
    talk.part(answer, {"type": "text", "text": "# Answer\n\n### text"})
    talk.part(answer, {"type": "tool", "tool": "bash", "callID": "c", "state": {
        "status": "completed", "input": {"command": "ls"}, "output": "## user",
        "title": "List"}})  # fmt: skip
    talk.part(answer, {"type": "text", "text": "hint", "synthetic": True})
    talk.user("### text")
    store = Store(settings.db)
    with store.session():
        talk.export(store, settings)
        item = get(store, settings, talk.id)
    lines = item.path.read_text("utf-8").split("\n")[:-1]
    heads = [n for n, text in enumerate(lines, 1) if text.startswith("## ") and " · " in text]
    assert len(heads) == 3
    for number in range(1, len(lines) + 1):
        found = message.read(item, number)
        above = [head for head in heads if head <= number]
        assert (found and found.first) == (above[-1] if above else None), number
    assert [read(item, head).last for head in heads] == [heads[1] - 2, heads[2] - 2, len(lines)]

    question, said, last = (read(item, head) for head in heads)
    assert (question.role, question.kind) == ("user", "user")
    assert question.time in lines[heads[0] - 1] and len(question.time) == 20
    assert [piece.text for piece in question.pieces] == ["first *question*\nof two lines"]
    assert [(p.kind, p.label, p.text) for p in said.pieces] == [
        ("reasoning", "reasoning", None),
        ("assistant", "text", "# Answer\n\n### text"),
        ("tool", "bash List", None),
        ("assistant", "synthetic", "hint"),
    ]
    assert [lines[piece.line - 1][:8] for piece in said.pieces] == ["### reas", "### text", "### tool",
                                                                    "### text"]  # fmt: skip
    assert [piece.text for piece in last.pieces] == ["### text"]


def test_past_the_end_it_is_the_last_message(book: Book) -> None:
    book.message("user", "a")
    last = book.message("assistant", "b")
    item = book.transcript()
    for line in (item.lines + 1, 10**12):
        assert read(item, line).first == last


def test_no_message_holds_the_head_or_a_notice_or_a_line_of_another_program(book: Book) -> None:
    first = book.message("user", "a")
    book.lines.append("")
    notice = book.add("notice", "## notice · now · title", "The title is now: x")
    item = book.transcript()
    assert [message.read(item, n) for n in (1, 2, notice, notice + 1)] == [None] * 4
    assert read(item, first).last == notice - 2
    foreign = Transcript("t", "/s", "T", item.path, item.lines, item.size, 1, 1, 1, False)
    assert message.read(foreign, first) is None
    marks_path(item.path).unlink()
    assert message.read(item, first) is None


def test_a_continued_message_names_the_other_places(book: Book) -> None:
    begin = book.message("assistant", "one", id="msg_a")
    between = book.message("user", "else", id="msg_b")
    again = []
    for text in ("two", "three"):
        book.lines.append("")
        again.append(book.add(
            "message:assistant", "## assistant · continued · msg_a", id="msg_a", digest="continued"
        ))  # fmt: skip
        book.add("assistant", "### text", text)
    item = book.transcript()
    first, second, third = (read(item, n) for n in (begin, again[0] + 2, again[1]))
    assert (first.begins, first.goes_on) == (None, again[0])
    assert (second.begins, second.goes_on) == (begin, again[1])
    assert (third.begins, third.goes_on) == (begin, None)
    assert [m.pieces[0].text for m in (first, second, third)] == ["one", "two", "three"]
    assert second.time == first.time != ""
    assert read(item, between).begins is None and read(item, between).goes_on is None


@pytest.mark.parametrize("seed", range(6))
def test_marks_are_found_in_a_file_of_many_blocks(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    book = Book(tmp_path / "t.md")
    book.add("header", "# T")
    for number in range(3_000):
        book.message("user" if number % 2 else "assistant", id=f"msg_{number % 2_500}")
        for _ in range(chance.choice((0, 0, 1, 3)) if number != 1_500 else 4_000):
            book.add("tool", "x" * chance.randrange(1, 80))
    item = book.transcript()
    assert marks_path(item.path).stat().st_size > 3 * files.BLOCK
    heads = [m.line for m in book.marks if not m.kind.startswith("tool")]
    long = heads[1_501]
    for line in [1, 2, item.lines, long, long + 1, long + 2_000, long + 3_999,
                 *chance.sample(range(1, item.lines), 60)]:  # fmt: skip
        at = files.heading_at(item.path, line)
        assert at is not None and at.line == max(n for n in heads if n <= line)
        assert files.heading_below(item.path, line) == min(
            (n for n in heads if n > line), default=None
        )
        wanted = [m for m in book.marks if line <= m.line <= line + 500]
        assert list(files.parts_between(item.path, line, line + 500)) == wanted
    assert files.places_of(item.path, "msg_7") == [
        m.line for m in book.marks if m.id == "msg_7"
    ] != []  # fmt: skip


# Masks ------------------------------------------------------------------------------------------


def shown(item: Transcript, first: int, last: int) -> list[str]:
    return [row.text for row in window.read(item, LineRange(first, last)).rows]


def test_a_text_is_masked_as_the_window_masks_it(book: Book) -> None:
    head = book.message("user", f"use {TOKEN} now", *key(20), "https://a:hunter2x@example.com/")
    item = book.transcript()
    found = read(item, head)
    assert found.pieces[0].text is not None
    assert found.pieces[0].text.split("\n") == shown(item, head + 1, found.last)
    assert TOKEN not in found.pieces[0].text and "hunter2x" not in found.pieces[0].text
    plain = read(item, head, mask=False).pieces[0].text
    assert plain == "\n".join(book.lines[head:])


def test_a_key_that_begins_in_a_message_above_or_ends_in_one_below_is_masked(book: Book) -> None:
    body = key(60)
    book.message("user", *body[:20])
    middle = book.message("assistant", *body[20:40])
    end = book.message("user", *body[40:])
    item = book.transcript()
    for head in (middle, end):
        text = read(item, head).pieces[0].text
        assert text is not None
        assert not any(line in text for line in body[1:-1])
    whole = shown(item, 1, item.lines)
    assert read(item, middle).pieces[0].text == "\n".join(whole[middle : middle + 20])


@pytest.mark.parametrize("lines", [1_510, 1_560, 1_610])
def test_a_key_over_the_border_of_what_is_shown_is_masked(lines: int, book: Book) -> None:
    secret = key(120)
    body = ["x" * 63] * (lines - 60) + secret
    head = book.message("user", *body, *["after"] * 4_000)
    item = book.transcript()
    found = read(item, head)
    text = found.pieces[0].text
    assert text is not None and found.rest is not None
    assert head + lines - 60 < found.rest < head + len(body)
    assert not any(line in text for line in secret[1:-1])


@pytest.mark.parametrize("shift", range(0, 42, 3))
def test_a_token_over_the_cut_of_a_line_is_masked(shift: int, book: Book) -> None:
    head = book.message(
        "user", "y" * (message.LINE_LIMIT - shift - 1) + " " + TOKEN + " " + "z" * 90_000
    )
    found = read(book.transcript(), head)
    text = found.pieces[0].text
    assert text is not None and "Fake" not in text
    assert found.pieces[0].cuts == ((head + 1, 90_001 + len(TOKEN) - shift),)


def test_a_mention_is_masked(book: Book) -> None:
    head = book.message("assistant")
    book.add("tool", f"### tool bash {TOKEN}")
    assert "Fake" not in read(book.transcript(), head).pieces[0].label


# Limits -----------------------------------------------------------------------------------------


def test_a_long_text_is_cut_at_a_line_and_says_where(book: Book) -> None:
    head = book.message("user", *["a line of text"] * 20_000)
    found = read(book.transcript(), head)
    (piece,) = found.pieces
    assert piece.text is not None
    count = message.TEXT_LIMIT // 15
    assert piece.text == "\n".join(["a line of text"] * count)
    assert found.rest == head + 1 + count
    assert found.last == head + 20_000


def test_texts_share_one_limit(book: Book) -> None:
    head = book.message("assistant", *["x" * 999] * 60)
    tool = book.add("tool", "### tool")
    second = book.add("assistant", "### text", *["y" * 999] * 60)
    book.add("tool", "### tool below")
    found = read(book.transcript(), head)
    assert [piece.line for piece in found.pieces] == [head + 1, tool, second]
    assert sum(len(piece.text or "") for piece in found.pieces) <= message.TEXT_LIMIT
    assert found.rest is not None and second < found.rest < second + 60


def test_many_parts_are_counted_out(book: Book) -> None:
    head = book.message("assistant")
    tools = [book.add("tool", "### tool") for _ in range(message.PIECES + 50)]
    found = read(book.transcript(), head)
    assert [piece.line for piece in found.pieces] == tools[: message.PIECES]
    assert found.rest == tools[message.PIECES]
    assert found.last == tools[-1]


def test_a_huge_message_takes_neither_memory_nor_time(book: Book) -> None:
    head = book.message("assistant", "short")
    book.add("tool", "### tool", *["z" * 5_000_000] * 4)
    text = book.add(
        "assistant", "### text", "before", "w" * 5_000_000, "between", *["v" * 79] * 1_000_000
    )
    book.message("user", "end")
    item = book.transcript()
    book.lines.clear()
    read(item, item.lines)  # counts the lines once
    tracemalloc.start()
    began = time.perf_counter()
    found = read(item, head)
    took = time.perf_counter() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 5
    assert peak < 12_000_000
    assert found.last == item.lines - 3
    assert [piece.line for piece in found.pieces] == [head + 1, head + 2, text]
    assert found.pieces[-1].cuts == ((text + 2, 5_000_000 - message.LINE_LIMIT),)
    assert found.rest is not None and found.rest > text + 3
