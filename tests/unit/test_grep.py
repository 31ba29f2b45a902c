"""Search of the transcripts: exact lines with their numbers, whatever the text."""

from __future__ import annotations

import random
import string
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webapp.errors import InvalidInput, MemoryAppError, Unreadable
from webapp.lines import LineRange
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import ripgrep, window
from webapp.transcripts.grep import (
    MAX_COUNT,
    SHOWN,
    FileHits,
    GrepResult,
    grep,
    line_numbers,
)
from webapp.transcripts.library import get, transcripts

if TYPE_CHECKING:
    from tests.conftest import Talk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

NewTalk = Callable[..., "Talk"]
TOKEN = "gh" + "p_" + "FakeFixture0" * 3


class Library:
    """Files of another program in a transcripts folder: any bytes, no export needed."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings

    def add(self, name: str, text: str, folder: str = "notes") -> None:
        path = self.settings.transcripts_dir / folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))

    def find(self, text: str, **options: object) -> GrepResult:
        return grep(self.store, self.settings, text, **options)  # type: ignore[arg-type]

    def hits(self, text: str, **options: object) -> list[int]:
        return numbers(self.find(text, **options))


def numbers(found: GrepResult) -> list[int]:
    return [line.number for file in found.files for line in file.lines if line.is_hit]


def marked(file: FileHits) -> list[str]:
    """What the spans of all hits of a file mark."""
    return [line.text[start:end] for line in file.lines if line.is_hit for start, end in line.spans]


@pytest.fixture
def library(store: Store, settings: Settings) -> Library:
    return Library(store, settings)


def test_no_transcripts_is_nothing_found(library: Library) -> None:
    found = library.find("anything")
    assert (found.files, found.count, found.exact, found.complete) == ((), 0, True, True)


@pytest.mark.parametrize("empty", ["", " ", "\t", '""', '" "', "\n", "\0", "\r\n", '"\0"'])
def test_an_empty_search_is_refused(empty: str, library: Library) -> None:
    library.add("a", "something\n")
    with pytest.raises(InvalidInput):
        library.find(empty)


def test_case_does_not_matter_and_numbers_are_those_of_the_lines(library: Library) -> None:
    library.add("a", "one\nTwo fish\nthree\nTWO FISH\n\ntwo  fish\n")
    found = library.find("two fish")
    assert numbers(found) == [2, 4]
    assert (found.count, found.shown, found.exact, found.complete) == (2, 2, True, True)
    assert marked(found.files[0]) == ["Two fish", "TWO FISH"]


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("äpfel", "zwei ÄPFEL und ÄpFeL"),
        ("ÇA VA", "😀😀 ça va?"),
        ("привет", "скажи ПРИВЕТ миру"),
        ("日本", "これは日本語です"),
        ("語", "日本語"),
        ("😀", "a 😀 b 😀"),
        ("σ", "ΟΔΟΣ ὁδός"),
        ("e\u0301", "cafe\u0301 CAFE\u0301"),
        ("ﬁ", "ﬁle"),
        ("ss", "Massen"),
        ("x", "ümläut\u2028x\x85x"),
    ],
)
def test_any_language_is_found_and_the_right_characters_are_marked(
    query: str, line: str, library: Library
) -> None:
    library.add("a", f"before\n{line}\nafter\n")
    found = library.find(query)
    assert numbers(found) == [2]
    spans = marked(found.files[0])
    assert spans and all(span.casefold() == query.casefold() for span in spans)
    assert found.files[0].lines[0].text == line


@pytest.mark.parametrize("before", ["\udcff\udcfe", "é\udce2\udc82é", "\udced\udca0\udcbd", "\x00"])
def test_marks_are_right_behind_bytes_that_are_no_utf_8(before: str, library: Library) -> None:
    library.add("a", f"{before} needle ü needle\n")
    found = library.find("NEEDLE")
    assert marked(found.files[0]) == ["needle", "needle"]


@pytest.mark.parametrize(
    "odd",
    [
        ".*", "a.b", "[x]", "(", ")", "\\", "\\d", "a|b", "^start", "end$", "*", "+", "?", "{2}",
        "-e", "--", "--help", "-", "--files", "-f/etc/passwd", "$(id)", "`id`", "; rm -rf", "'",
        '"', 'say "hi"', "%s", "C++", "GB/s", "BENCH-100821", "multi-agent", "a\tb", "#", "!", "~",
        "/", "//", "\\n", "\\x00", "<b>", "&amp;", "\x1b[31m", "a\rb",
    ],
)  # fmt: skip
def test_odd_text_is_only_text(odd: str, library: Library) -> None:
    library.add("a", f"nothing here\nfound {odd} there\naXb xx 22\n")
    assert library.hits(odd) == [2]
    assert marked(library.find(odd).files[0]) == [odd]
    item = next(iter(transcripts(library.store, library.settings)))
    assert line_numbers(item, odd) == [2]


@pytest.mark.parametrize("odd", ["\ud800", "a\udfffb", "\ud83d \ude00", "\udcff"])
def test_half_a_character_in_the_query_is_no_crash(odd: str, library: Library) -> None:
    library.add("a", "something\n")
    assert library.find(odd).count == 0
    assert line_numbers(transcripts(library.store, library.settings)[0], odd) == []


def test_a_lone_surrogate_is_found_as_it_was_written(
    talk: Talk, store: Store, settings: Settings
) -> None:
    message = talk.message({"role": "user"})
    talk.part(message, '{"type": "text", "text": "lone \\ud83d here"}')
    talk.export(store, settings)
    assert grep(store, settings, "lone \ud83d here").count == 1


def test_a_nul_in_the_query_is_left_out_and_nuls_in_a_file_hide_nothing(library: Library) -> None:
    library.add("a", "\0\0\0\nfirst needle\0\n" + "\0" * 5_000 + "\nneedle again\n")
    assert library.hits("nee\0dle") == [2, 4]


@pytest.mark.parametrize("query", ["a\nb", "a\n\nb", '"a\nb"'])
def test_a_line_end_in_the_query_is_refused(query: str, library: Library) -> None:
    library.add("a", "a\nb\n")
    with pytest.raises(InvalidInput):
        library.find(query)


@pytest.mark.parametrize("around", ["{}\n", "\n{}", "{}\r\n"])
def test_a_line_end_at_the_edge_of_the_query_is_left_out(around: str, library: Library) -> None:
    library.add("a", "x\nneedle\n")
    assert library.hits(around.format("needle")) == [2]


@pytest.mark.parametrize("length", [1_000, 1_001, 10_000, 200_000, 3_000_000])
@pytest.mark.parametrize("letter", ["x", "é", "😀", "x ", "ab cd ef gh "])
def test_a_very_long_query_is_searched_or_refused_in_a_sentence(
    letter: str, length: int, library: Library
) -> None:
    query = (letter * length)[:length].strip()
    library.add("a", f"start\n{query}\nend\n")
    for search in (
        lambda: library.hits(query),
        lambda: library.hits(query[::-1]) and [2],
        lambda: line_numbers(transcripts(library.store, library.settings)[0], query),
    ):
        try:
            assert search() in ([2], [])
        except InvalidInput as error:
            assert len(error.message) < 200
            assert length > 1_000
    if length <= 1_000:
        assert library.hits(query) == [2]


def test_several_long_words_that_are_no_phrase_are_searched_too(library: Library) -> None:
    words = ["é" * 240, "ü(" * 120, "ß" * 240, "😀" * 240]
    library.add("a", f"{words[3]} {words[1]} {words[0]} {words[2]}\nother\n")
    found = library.find(" ".join(words))
    assert numbers(found) == [1] and not found.exact


def test_several_words_fall_back_to_lines_with_every_word_and_say_so(library: Library) -> None:
    library.add("a", "the quick brown fox\nfox and QUICK dog\nonly quick\nbrown only\n")
    found = library.find("fox quick")
    assert numbers(found) == [1, 2] and not found.exact
    assert [mark.lower() for mark in marked(found.files[0])] == ["quick", "fox", "fox", "quick"]
    exact = library.find("quick brown")
    assert numbers(exact) == [1] and exact.exact


def test_more_words_than_the_pattern_takes_must_all_be_there(library: Library) -> None:
    library.add("a", "zulu alpha bravo charlie delta echo\nzulu bravo charlie delta echo\n")
    found = library.find("alpha bravo charlie delta echo zulu")
    assert numbers(found) == [1] and not found.exact


def test_words_of_odd_characters_fall_back_too(library: Library) -> None:
    library.add("a", "x (b) y a.* z\nx (b) y aXX z\n日本 の 東京\n")
    assert library.hits("a.* (b)") == [1]
    assert library.hits("東京 日本") == [3]


def test_quotes_force_the_exact_text(library: Library) -> None:
    library.add("a", 'fox quick\nquick fox\nsays "quick fox" now\n')
    found = library.find('"quick fox"')
    assert numbers(found) == [2, 3] and found.exact
    assert library.find('"fox  quick"').count == 0
    assert library.find('"fox  quick"').exact
    assert library.hits('xyzzy "') == [] and library.hits('"') == [3]


def test_one_word_that_is_nowhere_is_an_exact_nothing(library: Library) -> None:
    library.add("a", "something\n")
    found = library.find("nowhere")
    assert found.count == 0 and found.exact and found.complete


def test_context_lines_come_with_the_hit_and_are_no_hits(library: Library) -> None:
    library.add(
        "a", "".join(f"line {n}{' needle' if n in (5, 7, 30) else ''}\n" for n in range(1, 41))
    )
    found = library.find("needle", context=2)
    lines = found.files[0].lines
    assert [line.number for line in lines] == [3, 4, 5, 6, 7, 8, 9, 28, 29, 30, 31, 32]
    assert [line.number for line in lines if line.is_hit] == [5, 7, 30]
    assert all(not line.spans for line in lines if not line.is_hit)
    assert found.count == 3


def test_the_last_shown_hit_has_its_context_too(library: Library) -> None:
    library.add(
        "a", "".join(f"line {n}{' needle' if n % 10 == 5 else ''}\n" for n in range(1, 100))
    )
    found = library.find("needle", context=2, max_hits=2)
    assert [line.number for line in found.files[0].lines] == [3, 4, 5, 6, 7, 13, 14, 15, 16, 17]
    assert (found.count, found.shown) == (10, 2)


def test_hits_are_capped_and_counted(library: Library) -> None:
    library.add("a", "needle\n" * 300)
    library.add("b", "needle\n" * 300)
    found = library.find("needle", max_hits=50)
    assert (found.count, found.shown, found.complete) == (600, 50, True)
    assert len(numbers(found)) == 50
    assert all(file.count == 300 for file in found.files)


def test_far_too_many_hits_are_a_lower_bound_and_say_so(library: Library) -> None:
    library.add("a", "needle\n" * (MAX_COUNT * 3))
    found = library.find("needle")
    assert not found.complete and MAX_COUNT <= found.count < MAX_COUNT * 3
    assert len(numbers(found)) == found.shown == 200
    few = library.find("needle", session=transcripts(library.store, library.settings)[0])
    assert not few.complete


def test_a_search_that_is_cut_off_is_never_called_complete(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.add("a", "needle in a line of hay\n" * 400_000)
    item = transcripts(library.store, library.settings)[0]
    monkeypatch.setattr("webapp.transcripts.grep.TIMEOUT_S", 0.0)
    with pytest.raises(Unreadable, match="stopped before it found"):
        library.find("no such needle anywhere")
    with pytest.raises(Unreadable):
        line_numbers(item, "no such needle")


def test_one_session_one_scope_or_all(new_talk: NewTalk, store: Store, settings: Settings) -> None:
    here, there, everywhere = (
        new_talk("ses_here", scope="/home/demo/shop"),
        new_talk("ses_there", scope="/home/demo/other"),
        new_talk("ses_global", scope="global"),
    )
    for talk in (here, there, everywhere):
        talk.user(f"a needle of {talk.id}")
        talk.export(store, settings)

    def found(**options: object) -> set[str]:
        result = grep(store, settings, "needle", **options)  # type: ignore[arg-type]
        return {file.transcript.id for file in result.files}

    assert found() == {"ses_here", "ses_there", "ses_global"}
    assert found(scope="/home/demo/shop") == {"ses_here", "ses_global"}
    assert found(scope="/nowhere") == {"ses_global"}
    assert found(session=get(store, settings, "ses_there")) == {"ses_there"}


def test_a_scope_in_a_shared_folder_shows_only_its_own(library: Library) -> None:
    library.add("mine", "# M\nscope: /mine\nneedle\n", folder="shared")
    library.add("theirs", "# T\nscope: /theirs\nneedle\n", folder="shared")
    found = library.find("needle", scope="/mine")
    assert [file.transcript.id for file in found.files] == ["mine"] and found.count == 1


def test_the_last_touched_transcript_comes_first(
    new_talk: NewTalk, store: Store, settings: Settings
) -> None:
    old, new = new_talk("ses_old"), new_talk("ses_new")
    for talk in (old, new, new):
        talk.user("needle")
    for talk in (new, old):
        talk.export(store, settings)
    found = grep(store, settings, "needle")
    assert [file.transcript.id for file in found.files] == ["ses_new", "ses_old"]


def test_a_partial_tail_is_not_searched(talk: Talk, store: Store, settings: Settings) -> None:
    talk.user("a needle")
    done = talk.export(store, settings)
    with done.path.open("ab") as file:
        file.write(b"half a message with a needle\n" * 5)
    found = grep(store, settings, "needle", context=3)
    assert found.count == 1 and len(numbers(found)) == 1
    assert all(line.number <= done.lines for line in found.files[0].lines)
    assert grep(store, settings, "half a message").count == 0
    item = get(store, settings, talk.id)
    assert line_numbers(item, "needle") == numbers(found)
    assert line_numbers(item, "half a message") == []


def test_only_transcripts_are_searched(library: Library) -> None:
    library.add("a", "needle\n")
    folder = library.settings.transcripts_dir / "notes"
    (folder / "a.marks").write_text("needle\n")
    (folder / "a.offsets").write_text("needle\n")
    (folder / "a.md.bak").write_text("needle\n")
    (folder / ".gitignore").write_text("*\n")
    (folder / "link.md").symlink_to(folder / "a.marks")
    (library.settings.data_dir / "outside.md").write_text("needle\n")
    found = library.find("needle")
    assert [(file.transcript.id, file.count) for file in found.files] == [("a", 1)]
    assert found.count == 1


def test_a_hidden_or_ignored_folder_is_searched(library: Library) -> None:
    library.add("a", "needle\n", folder=".hidden")
    library.add("b", "needle\n", folder="plain")
    (library.settings.transcripts_dir / ".ignore").write_text("*\n")
    assert library.find("needle").count == 2


def test_a_file_without_a_last_line_end_is_searched_to_its_end(library: Library) -> None:
    library.add("a", "first\nneedle")
    assert library.hits("needle") == [2]


@pytest.mark.parametrize("bom", ["\ufeff", "\udcff\udcfe", "\udcfe\udcff"])
def test_a_byte_order_mark_changes_nothing(bom: str, library: Library) -> None:
    library.add("a", f"{bom}first needle\nsecond\nneedle\n")
    assert library.hits("needle") == [1, 3]


def test_crlf_files_keep_their_numbers(library: Library) -> None:
    library.add("a", "first\r\nneedle\r\n\r\nneedle\r\n")
    found = library.find("needle")
    assert numbers(found) == [2, 4]
    assert found.files[0].lines[0].text == "needle\r"


def test_numbers_agree_with_the_window_and_with_ripgrep(
    library: Library, settings: Settings
) -> None:
    chance = random.Random(7)
    pieces = ["needle", "hay", "", "cr\r", "ls\u2028", "nel\x85", "ff\x0c", "é" * 50, "y" * 70_000]
    lines = [" ".join(chance.choices(pieces[:8], k=3)) for _ in range(8_000)]
    for place in range(100, 8_000, 900):
        lines[place] = pieces[8] + " needle"
    library.add("a", "\n".join(lines) + "\n")
    item = transcripts(library.store, settings)[0]
    wanted = [n for n, line in enumerate(lines, 1) if "needle" in line]
    assert line_numbers(item, "NEEDLE") == wanted
    assert library.hits("needle", max_hits=4_000) == wanted[:4_000]
    rg = subprocess.run(
        [ripgrep.program(), "--text", "-n", "needle", str(item.path)],
        capture_output=True,
        check=True,
    ).stdout
    assert [int(line.split(b":")[0]) for line in rg.split(b"\n")[:-1]] == wanted
    for number in chance.sample(wanted, 25):
        (row,) = window.read(item, LineRange(number, number), mask=False).rows
        assert row.text == lines[number - 1][:4_000].encode()[:4_000].decode("utf-8", "ignore")


@pytest.mark.parametrize("place", [0, 100, SHOWN, 5_000, 60_000])
def test_of_a_long_line_the_place_of_the_match_is_shown(place: int, library: Library) -> None:
    library.add("a", "é" * place + "needle" + "ü" * 60_000 + "needle\n")
    (hit,) = library.find("needle").files[0].lines
    assert len(hit.text) <= SHOWN + 2
    assert hit.text[slice(*hit.spans[0])] == "needle"
    assert all(hit.text[start:end] == "needle" for start, end in hit.spans)


def test_context_lines_are_cut_too(library: Library) -> None:
    library.add("a", "x" * 90_000 + "\nneedle\n")
    context, _ = library.find("needle", context=1).files[0].lines
    assert len(context.text) <= SHOWN + 2


def test_a_credential_in_a_hit_or_its_context_is_masked_and_numbers_stay(library: Library) -> None:
    library.add("a", f"first\nkey {TOKEN} needle\nkey {TOKEN} only\nneedle {TOKEN}\n")
    found = library.find("needle", context=1)
    lines = found.files[0].lines
    assert [line.number for line in lines] == [1, 2, 3, 4]
    assert not any(TOKEN[4:12] in line.text for line in lines)
    assert all("masked" in line.text for line in lines[1:])
    assert marked(found.files[0]) == ["needle", "needle"]
    plain = library.find("needle", context=1, mask=False)
    assert plain.files[0].lines[1].text == f"key {TOKEN} needle"


@pytest.mark.parametrize("query", [TOKEN, TOKEN[4:14], "ghp_", "xture0Fake"])
def test_looking_for_a_credential_does_not_show_it(query: str, library: Library) -> None:
    library.add("a", f"the key is {TOKEN} and more\n")
    found = library.find(query)
    assert numbers(found) == [1]
    assert TOKEN[4:10] not in found.files[0].lines[0].text
    assert all(end <= len(found.files[0].lines[0].text) for _, end in found.files[0].lines[0].spans)


def test_a_credential_that_a_cut_would_split_is_masked(library: Library) -> None:
    for offset in range(0, 60, 7):
        library.add(
            f"a{offset}", "needle " + "." * (SHOWN - 30 - offset) + f" {TOKEN} " + "z" * 900 + "\n"
        )
    for file in library.find("needle").files:
        assert TOKEN[4:8] not in file.lines[0].text


def test_no_line_of_a_private_key_is_shown_as_hit_or_context(library: Library) -> None:
    chance = random.Random(3)
    alphabet = string.ascii_letters + string.digits + "+/"
    body = ["".join(chance.choices(alphabet, k=64)) for _ in range(49)]
    body.append("".join(chance.choices(alphabet, k=21)) + "==")
    name = "RSA PRIVATE" + " KEY-----"
    text = ["before", "-----BEGIN " + name, *body, "-----END " + name, "after"]
    library.add("a", "\n".join(text) + "\n")
    for number in (0, 1, 25, 48, 49):
        for context in (0, 3):
            found = library.find(body[number][5:15], context=context)
            assert found.count == 1
            for line in found.files[0].lines:
                if text[line.number - 1] in body:
                    assert text[line.number - 1][:6] not in line.text
                else:
                    assert line.text == text[line.number - 1]
    assert library.find("after", context=2).files[0].lines[0].text != body[-1]
    plain = library.find(body[25][5:15], mask=False)
    assert plain.files[0].lines[0].text == body[25]


def test_a_line_of_base64_that_is_no_key_is_shown(library: Library) -> None:
    line = "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4"
    library.add("a", f"a picture\n{line}\nend\n")
    assert library.find("AAAANSU").files[0].lines[0].text == line


def test_a_file_that_cannot_be_read_makes_the_answer_incomplete_and_not_wrong(
    open_folder: Path, settings: Settings, as_stranger: Callable[[Callable[[], str]], str]
) -> None:
    mine = replace(settings, data_dir=open_folder, db=open_folder / "memory.db")
    folder = mine.transcripts_dir / "notes"
    folder.mkdir(parents=True)
    for name in ("open", "closed"):
        (folder / f"{name}.md").write_text("needle\n")
        (folder / f"{name}.md").chmod(0o644)
    for each in (mine.transcripts_dir, folder):
        each.chmod(0o755)
    (folder / "closed.md").chmod(0o000)

    def work() -> str:
        with Store(mine.db).session() as store:
            listed = sorted(item.id for item in transcripts(store, mine))
            found = grep(store, mine, "needle")
            try:
                grep(store, mine, "no such text")
                nothing = "nothing found"
            except MemoryAppError as error:
                nothing = type(error).__name__
            hits = [(file.transcript.id, file.count) for file in found.files]
            return f"{listed} {hits} {found.complete} {nothing}"

    assert as_stranger(work) == "['closed', 'open'] [('open', 1)] False Unreadable"
