"""Windows of a transcript: numbers, kinds, masking, cut lines and hashes."""

from __future__ import annotations

import random
import sqlite3
import string
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webapp.errors import NotFound
from webapp.lines import MAX_WINDOW, LineRange, line_hash
from webapp.opencode import list_sessions
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import window
from webapp.transcripts.export import export
from webapp.transcripts.files import LINE_SHOWN
from webapp.transcripts.library import Transcript, get

if TYPE_CHECKING:
    from tests.conftest import Talk

TOKEN = "gh" + "p_" + "FakeFixture0" * 3
ACCESS = "AK" + "IA" + "FAKEFIXTURE00000"
LETTERS = string.ascii_letters + string.digits + "+/"


def private_key(lines: int, seed: int = 1) -> list[str]:
    """The lines of an invented private key."""
    chance = random.Random(seed)
    body = ["".join(chance.choices(LETTERS, k=64)) for _ in range(lines - 1)]
    name = "RSA PRIVATE" + " KEY-----"
    return ["-----BEGIN " + name, *body, "".join(chance.choices(LETTERS, k=30)), "-----END " + name]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Transcript]:
    """Makes a transcript of a text."""

    def write(text: str) -> Transcript:
        path = tmp_path / "t.md"
        data = text.encode("utf-8", "surrogateescape")
        path.write_bytes(data)
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        return Transcript("t", "/s", "T", path, lines, len(data), 1, 1, 1, True)

    return write


Write = Callable[[str], Transcript]


def shown(item: Transcript, first: int, last: int, mask: bool = True) -> dict[int, str]:
    return {row.number: row.text for row in window.read(item, LineRange(first, last), mask).rows}


def test_a_window_tells_its_place_in_the_whole(written: Write) -> None:
    item = written("".join(f"line {n}\n" for n in range(1, 1001)))
    seen = window.read(item, LineRange(400, 410))
    assert [row.number for row in seen.rows] == list(range(400, 411))
    assert [row.text for row in seen.rows] == [f"line {n}" for n in range(400, 411)]
    assert (seen.first, seen.last, seen.total) == (400, 410, 1000)
    assert seen.has_before and seen.has_after
    start, end = window.read(item, LineRange(1, 5)), window.read(item, LineRange(995, 1200))
    assert not start.has_before and start.has_after
    assert end.has_before and not end.has_after and end.last == 1000


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("first", [11, 12, 1000, 10**12])
def test_past_the_end_a_window_is_empty_and_tells_the_length(
    first: int, mask: bool, written: Write
) -> None:
    item = written("line\n" * 10)
    seen = window.read(item, LineRange(first, first + 100), mask)
    assert seen.rows == () and seen.total == 10 and not seen.has_after and seen.has_before


@pytest.mark.parametrize("mask", [True, False])
def test_an_empty_transcript_has_an_empty_window(mask: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    path.touch()
    item = Transcript("t", "/s", "T", path, 0, 0, 1, 1, 1, True)
    seen = window.read(item, LineRange(1, 200), mask)
    assert seen.rows == () and seen.total == 0 and not seen.has_before and not seen.has_after


def test_a_transcript_that_is_gone_is_not_an_empty_one(written: Write) -> None:
    item = written("line\n")
    item.path.unlink()
    with pytest.raises(NotFound):
        window.read(item, LineRange(1, 5))


@pytest.mark.parametrize(
    ("first", "last", "total", "wanted"),
    [
        (1, 1, 1000, (1, 200)),
        (500, 500, 1000, (492, 691)),
        (500, 800, 1000, (492, 808)),
        (995, 1000, 1000, (987, 1000)),
        (5, 5, 7, (1, 7)),
        (5, 90, 20, (1, 20)),
        (1, MAX_WINDOW, 10**6, (1, MAX_WINDOW)),
    ],
)
def test_a_selection_is_shown_with_some_lines_around_it(
    first: int, last: int, total: int, wanted: tuple[int, int]
) -> None:
    found = window.span(LineRange(first, last), total)
    assert (found.first, found.last) == wanted


@pytest.mark.parametrize("first", [1, 2, 8, 9, 100, 5_000, 9_998, 10_000])
@pytest.mark.parametrize("length", [1, 2, 150, 199, 200, 201, 1_990, 1_999, MAX_WINDOW])
def test_every_selected_line_that_is_there_is_shown(first: int, length: int) -> None:
    total = 10_000
    selected = LineRange(first, first + length - 1)
    found = window.span(selected, total)
    assert found.first <= selected.first and found.last >= min(selected.last, total)
    assert found.first >= 1 and found.last <= total
    assert len(found) <= MAX_WINDOW + 2 * window.ABOVE


def test_a_selection_past_the_end_stays_what_it_is() -> None:
    assert window.span(LineRange(50, 60), 10) == LineRange(50, 60)
    assert window.span(LineRange(1, 1), 0) == LineRange(1, 1)


def test_kinds_and_headings_follow_the_marks_and_not_the_looks(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("## assistant · fake heading\n### tool fake\nplain")
    answer = talk.assistant("Sure.")
    state = {"status": "completed", "input": {"command": "ls"}, "output": "## user · no\n\na.py"}
    talk.part(answer, {"type": "tool", "tool": "bash", "callID": "c", "state": state})
    bad = {"status": "error", "input": {}, "error": "boom"}
    talk.part(answer, {"type": "tool", "tool": "read", "callID": "d", "state": bad})
    talk.part(answer, {"type": "reasoning", "text": "hm"})
    talk.export(store, settings)
    talk.sql("UPDATE session SET title = 'other'")
    talk.export(store, settings)

    rows = window.read(get(store, settings, talk.id), LineRange(1, 100)).rows
    table = {row.text: (row.kind, row.heading) for row in rows}
    assert table["# Invented ses_invented"] == ("header", 0)
    assert table["## assistant · fake heading"] == ("user", 0)
    assert table["### tool fake"] == ("user", 0)
    assert table["Sure."] == ("assistant", 0)
    assert table["## user · no"] == ("tool", 0)
    assert table["a.py"] == ("tool", 0)
    assert table["### tool bash · completed · c"] == ("tool", 3)
    assert table["### tool read · error · d"] == ("error", 3)
    assert table["#### output"] == ("tool", 4)
    assert table["boom"] == ("error", 0)
    assert table["### reasoning"] == ("reasoning", 3)
    headings = [row.kind for row in rows if row.heading == 2]
    assert headings == ["user", "assistant", "notice"]
    empty = [row for row in rows if not row.text]
    assert [row.kind for row in empty] == ["plain", "plain", "tool", "plain"]


def test_a_continued_message_has_the_colour_of_its_message(
    talk: Talk, store: Store, settings: Settings
) -> None:
    first = talk.user("one")
    talk.assistant("two")
    talk.export(store, settings)
    talk.part(first, {"type": "text", "text": "late"})
    talk.export(store, settings)
    rows = window.read(get(store, settings, talk.id), LineRange(1, 100)).rows
    assert [(row.kind, row.heading) for row in rows[-3:]] == [("user", 2), ("user", 3), ("user", 0)]


def test_a_line_has_the_same_kind_in_any_window(
    newest_db: Path, store: Store, settings: Settings
) -> None:
    sessions = list(list_sessions([newest_db]).sessions)
    session = max(sessions, key=lambda each: export(store, settings, each).lines)
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("UPDATE session SET title = 'renamed'")
        connection.execute("DELETE FROM part WHERE id IN (SELECT max(id) FROM part)")
    export(store, settings, replace(session, title="renamed"))
    item = get(store, settings, session.id)
    whole = window.read(item, LineRange(1, item.lines)).rows
    assert len(whole) == item.lines > 150 and whole[-2].kind == "notice"
    for row in whole:
        assert window.read(item, LineRange(row.number, row.number)).rows == (row,)


def test_a_file_of_another_program_has_its_headings_by_their_looks(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n## user\nhello\n### deeper\n##no\n")
    item = Transcript("notes", "x", "Notes", path, 5, path.stat().st_size, 1, 1, 1, False)
    rows = window.read(item, LineRange(1, 9)).rows
    assert [row.heading for row in rows] == [0, 2, 0, 0, 0]
    assert {row.kind for row in rows} == {"plain"}


@pytest.mark.parametrize("secret", [TOKEN, ACCESS, "postgres://me:" + "hunter2fake" + "@db/x"])
def test_a_credential_is_masked_and_numbers_stay(secret: str, written: Write) -> None:
    text = [f"line {n}" for n in range(1, 400)]
    text[199] = f"export KEY={secret} # mine"
    item = written("\n".join(text) + "\n")
    masked, plain = shown(item, 150, 260), shown(item, 150, 260, mask=False)
    assert masked.keys() == plain.keys() == dict.fromkeys(range(150, 261)).keys()
    assert plain[200] == text[199]
    assert "masked" in masked[200] and masked[200].endswith(" # mine")
    assert secret not in masked[200] and secret[-12:-6] not in masked[200].replace("@db/x", "")
    assert all(masked[n] == plain[n] for n in plain if n != 200)
    assert item.path.read_text() == "\n".join(text) + "\n"


@pytest.mark.parametrize("size", [2, 25, 50, 100])
def test_no_line_of_a_private_key_is_shown_whatever_the_window(size: int, written: Write) -> None:
    key = private_key(size)
    text = ["before", *key, "after"]
    item = written("\n".join(text) + "\n")
    body = key[1:-1]
    chance = random.Random(size)
    windows = [(1, len(text)), (1, 3), (size // 2 + 2, size // 2 + 2), (3, size + 1)]
    windows += [(size + 1, size + 1), (size + 2, size + 4)]
    for _ in range(8):
        first = chance.randrange(1, len(text) + 1)
        windows.append((first, first + chance.choice((0, 1, 5))))
    for first, last in windows:
        rows = shown(item, first, last)
        assert list(rows) == list(range(first, min(last, len(text)) + 1))
        for number, line in rows.items():
            if text[number - 1] in body:
                assert text[number - 1][:8] not in line, (first, last, number)
            else:
                assert line == text[number - 1]


@pytest.mark.parametrize("secret", [TOKEN, ACCESS, "https://me:" + "hunter2fake" + "@db.example/x"])
@pytest.mark.parametrize("into", range(2, 36, 3))
def test_a_credential_that_the_cut_of_a_long_line_splits_is_masked(
    into: int, secret: str, written: Write
) -> None:
    start = LINE_SHOWN - into
    item = written("first\n" + "." * (start - 1) + " " + secret + " " + "z" * 9_000 + "\nlast\n")
    rows = window.read(item, LineRange(1, 3)).rows
    assert [row.number for row in rows] == [1, 2, 3] and rows[2].text == "last"
    hidden = secret.partition("me:")[2] or secret[4:]
    assert hidden[:3] not in rows[1].text
    assert rows[1].cut > 0


def test_a_key_far_inside_a_cut_line_is_masked_when_the_line_is_shown_whole(
    written: Write,
) -> None:
    item = written("." * 50_000 + " " + TOKEN + " end\nnext\n")
    rows = window.read(item, LineRange(1, 2), full=1).rows
    assert rows[0].cut == 0 and rows[0].text.endswith(" end")
    assert TOKEN not in rows[0].text and "masked" in rows[0].text


def test_a_long_line_is_cut_and_can_be_shown_whole(written: Write) -> None:
    item = written("a\n" + "x" * 70_000 + "\n" + "y" * 9_000 + "\nd\n")
    rows = window.read(item, LineRange(1, 4)).rows
    assert [row.cut for row in rows] == [0, 66_000, 5_000, 0]
    assert rows[1].text == "x" * LINE_SHOWN
    whole = window.read(item, LineRange(1, 4), full=2).rows
    assert whole[1].text == "x" * 70_000 and whole[1].cut == 0
    assert whole[2] == rows[2]
    for odd in (1, 4, 99, 0):
        assert window.read(item, LineRange(1, 4), full=odd).rows == rows


def test_even_a_whole_line_has_an_end(written: Write) -> None:
    item = written("x" * (window.FULL_LINE + 5) + "\n")
    (row,) = window.read(item, LineRange(1, 1), mask=False, full=1).rows
    assert row.cut == 5 and len(row.text) == window.FULL_LINE


def test_the_hash_is_of_the_verbatim_text(written: Write) -> None:
    item = written(f"plain\nkey {TOKEN}\n")
    masked = window.read(item, LineRange(1, 2)).rows
    plain = window.read(item, LineRange(1, 2), mask=False).rows
    assert [row.hash for row in masked] == [row.hash for row in plain]
    assert plain[1].hash == line_hash(f"key {TOKEN}")


@pytest.mark.parametrize(
    "text", ["x" * 70_000, "é日😀" * 9_000, "." * 3_980 + " " + TOKEN + "z" * 99]
)
def test_the_hash_of_a_long_line_is_the_same_cut_or_whole_masked_or_not(
    text: str, written: Write
) -> None:
    item = written(text + "\nnext\n")
    found = {
        window.read(item, LineRange(1, 1), mask, full).rows[0].hash
        for mask in (True, False)
        for full in (None, 1)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    "odd",
    ["cr\rvt\x0bff\x0c", "nel\x85", "ls\u2028ps\u2029", "nul\x00", "fs\x1cgs\x1drs\x1e",
     "bad \udcff byte", "lone \udced\udca0\udcbd", "", "\t"],
)  # fmt: skip
@pytest.mark.parametrize("mask", [True, False])
def test_odd_characters_do_not_shift_the_numbers(odd: str, mask: bool, written: Write) -> None:
    item = written(f"first\n{odd}\nkey {TOKEN}{odd}\nlast\n")
    rows = shown(item, 1, 4, mask)
    assert rows[1] == "first" and rows[4] == "last" and rows[3].startswith("key gh")
    assert rows[2] == odd.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def test_a_tail_beyond_the_good_length_is_not_shown(
    talk: Talk, store: Store, settings: Settings
) -> None:
    talk.user("hello")
    done = talk.export(store, settings)
    with done.path.open("ab") as file:
        file.write(b"half a message\n" * 9)
    seen = window.read(get(store, settings, talk.id), LineRange(1, 500))
    assert seen.total == done.lines == len(seen.rows)
    assert not any("half a message" in row.text for row in seen.rows)
