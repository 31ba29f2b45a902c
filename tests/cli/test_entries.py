"""`save search list show forget restore stats`."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from webapp.store import Store

TOKEN = "ghp_" + "FakeFixture0" * 3
KEY = "sk-ant-" + "api03-" + "FAKE0fixture1" * 7 + "AA"


def rows(cli: Any, sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """Runs plain SQL on memory.db, as another program would."""
    with closing(sqlite3.connect(cli.db)) as connection, connection:
        return connection.execute(sql, params).fetchall()


def entry(cli: Any, entry_id: str) -> dict[str, Any]:
    """An entry as `show --json` tells it."""
    found: dict[str, Any] = cli.done("show", entry_id, "--json").data["entry"]
    return found


# save -------------------------------------------------------------------------------------------


def test_save_creates_and_says_where(cli: Any) -> None:
    done = cli.done("save", "--kind", "decision", "--title", "Use WAL", "--body", "Because.",
                    "--tag", "db", "--tag", "sqlite")  # fmt: skip
    verb, entry_id, word, scope = done.out.split()
    assert (verb, word, scope) == ("Created", "in", str(cli.project))
    saved = entry(cli, entry_id)
    assert saved["title"] == "Use WAL" and saved["kind"] == "decision"
    assert saved["body"] == "Because." and saved["tags"] == ["db", "sqlite"]
    assert saved["source"] == "tester" and saved["expires_at"] is None


def test_save_makes_private_files(cli: Any) -> None:
    umask = os.umask(0)
    try:
        cli.save("T")
    finally:
        os.umask(umask)
    assert cli.db.stat().st_mode & 0o777 == 0o600
    assert cli.data_dir.stat().st_mode & 0o777 == 0o700


def test_save_rewrites_the_live_entry_of_the_same_title_and_says_so(cli: Any) -> None:
    first = cli.save("Use WAL", "Old.")
    again = cli.done("save", "--kind", "fact", "--title", "Use  WAL ", "--body", "New.")
    former = rows(cli, "SELECT id FROM trash")[0][0]
    said = f"Rewrote {first} in {cli.project}; its former text is in the trash as {former}\n"
    assert again.out == said
    assert entry(cli, first)["body"] == "New."
    assert rows(cli, "SELECT title, body FROM trash") == [("Use WAL", "Old.")]
    told = cli.done("save", "--kind", "fact", "--title", "Use WAL", "--body", "New.", "--json").data
    assert (told["id"], told["created"]) == (first, False)


@pytest.mark.parametrize(
    ("when", "low", "high"),
    [("12h", 11.9, 12.1), ("30d", 719.9, 720.1), ("2w", 335.9, 336.1)],
)
def test_an_expiry_counts_from_now(cli: Any, when: str, low: float, high: float) -> None:
    saved = entry(cli, cli.save("T", "b", "--expires", when))
    hours = (saved["expires_at"] - saved["updated_at"]) / 3_600_000
    assert low < hours < high


def test_an_expiry_can_be_a_date(cli: Any) -> None:
    saved = entry(cli, cli.save("T", "b", "--expires", "2100-01-31"))
    assert saved["expires_at"] == 4_105_036_800_000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--title", "", "--body", "b"], "The title is empty"),
        (["--title", "t" * 121, "--body", "b"], "at most 120"),
        (["--title", "t", "--body", ""], "The body is empty"),
        (["--title", "t", "--body", "b" * 8001], "at most 8,000"),
        (["--title", "t", "--body", "b", *["--tag", "x"] * 1, *(x for n in range(12) for x in (
            "--tag", f"t{n}"))], "at most 12 tags"),
        (["--title", "t", "--body", "b", "--tag", "x" * 65], "at most 64"),
        (["--title", "t", "--body", "b", "--expires", "soon"], "is no time to expire"),
        (["--title", "t", "--body", "b", "--expires", "2001-01-01"], "already passed"),
        (["--title", f"t {KEY}", "--body", "b"], "The title looks like it holds a secret"),
        (["--title", "t", "--body", f"b\n{KEY}\n"], "The body looks like it holds a secret"),
        (["--title", "t", "--body", "b", "--tag", TOKEN], "One of the tags looks like it holds a secret"),
        (["--title", "a\x1bb", "--body", "b"], "control character"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_is_told_and_makes_no_file(
    cli: Any, args: list[str], words: str
) -> None:
    outcome = cli("save", "--kind", "fact", *args)
    assert outcome.code == 2
    assert words in outcome.sentence
    assert KEY not in outcome.err + outcome.out and TOKEN not in outcome.err + outcome.out
    assert not cli.data_dir.exists()


def test_the_body_can_come_from_standard_input(program: Any) -> None:
    text = "one\r\ntwo\n  three é 日本\n"
    made = program("save", "--kind", "fact", "--title", "T", "--body", "-", "--json",
                   stdin=text.encode())  # fmt: skip
    assert made.code == 0
    shown = program("show", made.data["id"], "--json")
    assert shown.data["entry"]["body"] == "one\ntwo\n  three é 日本"


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"\xff\xfe", "not UTF-8"), (b"", "body is empty"), (b"x" * 9000, "at most 8,000"),
     (b"a\0b", "control character")],
)  # fmt: skip
def test_a_body_from_standard_input_that_cannot_be_kept_is_told(
    program: Any, data: bytes, words: str
) -> None:
    outcome = program("save", "--kind", "fact", "--title", "T", "--body", "-", stdin=data,
                      env={"PYTHONIOENCODING": "utf-8:strict"})  # fmt: skip
    assert outcome.code == 2
    assert words in outcome.sentence


def test_the_writer_can_be_named(cli: Any) -> None:
    assert entry(cli, cli.save("T", "b", "--source", "a script"))["source"] == "a script"


# search, list, show -----------------------------------------------------------------------------


def test_search_prints_what_is_needed_to_choose(cli: Any) -> None:
    wanted = cli.save("Use WAL mode", "Readers do not block the writer.", "--tag", "db")
    cli.save("Something else")
    done = cli.done("search", "wal", "readers")
    lines = done.out.splitlines()
    assert lines[0] == f"{wanted}  Use WAL mode"
    assert "fact" in lines[1] and str(cli.project) in lines[1] and "#db" in lines[1]
    assert lines[2].strip() == "Readers do not block the writer."
    assert lines[-1] == "1 matching"
    assert "\x02" not in done.out and "\x03" not in done.out


def test_entries_with_some_of_the_words_are_marked_as_such(cli: Any) -> None:
    cli.save("Alpha")
    cli.save("Beta")
    done = cli.done("search", "alpha", "beta")
    assert done.out.count("(some of the words)") == 2
    data = cli.done("search", "alpha", "beta", "--json").data
    assert (data["total"], data["partial"], len(data["entries"])) == (0, 2, 2)


@pytest.mark.parametrize(
    "words",
    [["wal", "kind:fact"], ['"use wal"'], ["tag:db"], ["source:tester", "wal"], ["WA"], ["scope:global"]],
)  # fmt: skip
def test_filters_stand_among_the_words(cli: Any, words: list[str]) -> None:
    cli.save("Use WAL", "b", "--tag", "db", "--scope", "global")
    assert len(cli.done("search", *words, "--json").data["entries"]) == 1


@pytest.mark.parametrize(
    "words", [["nothing"], ["wal", "kind:poem"], ['"wal use"'], ["*"], ["NEAR("], ["\x02"]]
)
def test_nothing_found_is_exit_code_1(cli: Any, words: list[str]) -> None:
    cli.save("Use WAL")
    plain = cli("search", *words)
    assert (plain.code, plain.err) == (1, "")
    assert plain.out.startswith("Nothing found in /") and "--everywhere" in plain.out
    told = cli("search", *words, "--json")
    assert (told.code, told.data["ok"], told.data["entries"]) == (1, True, [])


def test_a_long_list_says_that_there_is_more(cli: Any) -> None:
    for number in range(4):
        cli.save(f"Needle {number}")
    done = cli.done("search", "needle", "--limit", "3")
    assert done.out.splitlines()[-1] == "4 matching, more with --limit"
    assert len(cli.done("list", "--limit", "2", "--json").data["entries"]) == 2


def test_list_is_newest_first(cli: Any) -> None:
    ids = [cli.save(f"T{number}") for number in range(3)]
    data = cli.done("list", "--json").data
    assert [e["id"] for e in data["entries"]] == ids[::-1]
    assert data["total"] == 3


def test_an_empty_list_says_how_to_see_all_and_makes_no_file(cli: Any) -> None:
    outcome = cli("list")
    assert outcome.code == 1
    assert "opencode-memory list --everywhere" in outcome.out and outcome.err == ""
    assert not cli.data_dir.exists()


def test_json_holds_previews_and_show_the_whole(cli: Any) -> None:
    entry_id = cli.save("T", "b" * 5000)
    (preview,) = cli.done("list", "--json").data["entries"]
    assert len(preview["body"]) == 500 and preview["truncated"] is True
    assert len(entry(cli, entry_id)["body"]) == 5000
    assert cli.done("show", entry_id).out.endswith("\n\n" + "b" * 5000 + "\n")


def test_show_tells_from_which_lines_an_entry_was_taken(cli: Any) -> None:
    entry_id = cli.save("T", "b")
    assert cli.done("show", entry_id, "--json").data["origin"] is None
    with Store(cli.db).session() as store, store.writing():
        store.rows(
            "INSERT INTO origins SELECT id, 'ses a/b', 120, 140, '0123abcd', updated_at FROM entries"
        )
    link = "/transcripts/ses%20a%2Fb/120-140?h=0123abcd#L120"
    assert cli.done("show", entry_id, "--json").data["origin"] == {
        "session": "ses a/b", "title": "ses a/b", "lines": "120-140", "hash": "0123abcd",
        "edited": False, "link": link,
    }  # fmt: skip
    cli.save("T", "c")
    out = cli.done("show", entry_id).out
    assert f"from lines 120-140 of ses a/b; the entry was edited since\n    {link}" in out


# forget, restore, stats -------------------------------------------------------------------------


def test_forget_by_id_reaches_every_project_and_restore_brings_it_back(cli: Any) -> None:
    entry_id = cli.save("T", "b", "--scope", "/home/me/other")
    assert cli.done("forget", entry_id).out.startswith(f"{entry_id}  T\nIn the trash now")
    assert cli.done("list", "--trash").out.split("\n")[0] == f"{entry_id}  T"
    assert cli("show", entry_id).code == 1
    back = cli.done("restore", entry_id)
    assert back.out == "Restored “T” to /home/me/other\n"
    assert entry(cli, entry_id)["scope"] == "/home/me/other"


def test_forget_by_words_takes_only_full_matches_of_this_project_and_global(cli: Any) -> None:
    mine, shared = cli.save("Alpha beta"), cli.save("Beta alpha", "b", "--scope", "global")
    cli.save("Alpha only")
    cli.save("Alpha beta", "b", "--scope", "/home/me/other")
    told = cli.done("forget", "--query", "alpha beta", "--json").data
    assert {gone["id"] for gone in told["forgotten"]} == {mine, shared}
    assert told["remaining"] == 0
    assert rows(cli, "SELECT count(*) FROM entries") == [(2,)]


def test_forget_by_words_takes_fifty_at_a_time_and_says_what_is_left(cli: Any) -> None:
    cli.save("Needle 0")
    for number in range(1, 53):
        rows(cli, "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
             " VALUES (?, 'global', 'fact', ?, 'b', 1, 1)", f"e{number}", f"Needle {number}")  # fmt: skip
    first = cli.done("forget", "--query", "needle")
    assert first.out.splitlines()[-1] == "3 more match; run it again to forget them."
    assert cli.done("forget", "--query", "needle", "--json").data["remaining"] == 0


def test_forget_of_nothing_is_exit_code_1(cli: Any) -> None:
    cli.save("T")
    outcome = cli("forget", "--query", "xylophone")
    assert (outcome.code, outcome.out, outcome.err) == (1, "Nothing found.\n", "")
    assert cli("forget", "nosuch").code == 1
    assert cli("forget", "--query", "kind:fact").code == 2


@pytest.mark.parametrize(
    ("choice", "title"),
    [(["--keep-both"], "Same (2)"), (["--keep-both", "--title", "Another"], "Another"),
     (["--replace"], "Same")],
)  # fmt: skip
def test_a_conflict_of_a_restore_is_exit_code_1_until_a_choice_is_made(
    cli: Any, choice: list[str], title: str
) -> None:
    entry_id = cli.save("Same", "old")
    cli.done("forget", entry_id)
    live = cli.save("Same", "live")
    outcome = cli("restore", entry_id)
    assert outcome.code == 1 and outcome.out == ""
    assert "already has the title “Same”" in outcome.sentence
    told = cli("restore", entry_id, "--json")
    assert told.data["error"]["code"] == "conflict"
    assert told.data["error"]["details"]["entry"]["id"] == live
    assert cli("restore", entry_id, "--keep-both", "--title", "t" * 121).code == 2
    assert rows(cli, "SELECT id, body FROM entries") == [(live, "live")]
    assert cli.done("restore", entry_id, *choice, "--json").data["title"] == title
    assert entry(cli, entry_id)["body"] == "old"


@pytest.mark.parametrize(
    "args", [["--keep-both", "--replace"], ["--title", "x"], ["--replace", "--title", "x"]]
)
def test_choices_that_do_not_go_together_are_refused(cli: Any, args: list[str]) -> None:
    entry_id = cli.save("T")
    cli.done("forget", entry_id)
    outcome = cli("restore", entry_id, *args)
    assert outcome.code == 2
    assert "--keep-both" in outcome.sentence
    assert rows(cli, "SELECT count(*) FROM trash") == [(1,)]


def test_the_trash_is_listed_with_who_threw_away(cli: Any) -> None:
    empty = cli("list", "--trash")
    assert (empty.code, empty.out) == (1, "The trash is empty.\n")
    assert not cli.data_dir.exists()
    entry_id = cli.save("T", "b", "--scope", "/home/me/other")
    cli.done("forget", entry_id)
    (told,) = cli.done("list", "--trash", "--json").data["entries"]
    assert (told["id"], told["trashed_by"]) == (entry_id, "tester")


def test_stats_count_by_kind(cli: Any) -> None:
    cli.save("A", kind="decision")
    cli.save("B")
    cli.save("C", "b", "--scope", "global")
    cli.done("forget", cli.save("D"))
    done = cli.done("stats")
    assert done.out.startswith("3 entries (1 global), 1 in the trash, ")
    assert "     2  fact\n     1  decision\n" in done.out
    told = cli.done("stats", "--json").data
    assert told["kinds"] == {"fact": 2, "decision": 1}
    assert told["bytes"] > 0 and told["oldest"] > 0


def test_stats_of_an_unused_installation_are_zero_and_leave_nothing(cli: Any) -> None:
    assert cli.done("stats", "--json").data["total"] == 0
    assert not cli.data_dir.exists()


# Stores in trouble ------------------------------------------------------------------------------

READS = (["list"], ["search", "needle"], ["show", "x"], ["stats"])
WRITES = (["save", "--kind", "fact", "--title", "New", "--body", "b"], ["forget", "x"], ["restore", "x"],
          ["forget", "--query", "needle"])  # fmt: skip


@pytest.mark.parametrize("content", [b"no database" * 400, b"SQLite format 3\0" + b"\xaa" * 8000])
def test_a_corrupt_store_is_exit_code_2_and_never_nothing_found(cli: Any, content: bytes) -> None:
    cli.data_dir.mkdir(parents=True)
    cli.db.write_bytes(content)
    for args in (*READS, *WRITES):
        outcome = cli(*args)
        assert outcome.code == 2, args
        assert str(cli.db) in outcome.sentence and outcome.out == ""
    assert cli.db.read_bytes() == content


def test_a_read_only_store_can_be_read_and_a_write_is_refused_with_the_reason(cli: Any) -> None:
    entry_id = cli.save("Needle")
    rows(cli, "PRAGMA wal_checkpoint(TRUNCATE)")
    os.chmod(cli.db, 0o444)
    assert cli.done("list").out and cli.done("show", entry_id).out
    for args in (["save", "--kind", "fact", "--title", "New", "--body", "b"], ["forget", entry_id],
                 ["forget", "--query", "needle"], ["restore", entry_id]):  # fmt: skip
        outcome = cli(*args)
        assert outcome.code == 2, args
        assert "is write-protected" in outcome.sentence
    told = cli("forget", entry_id, "--json")
    assert told.data["error"]["code"] == "read_only"
    assert cli.done("list", "--json").data["total"] == 1


@pytest.mark.parametrize("args", WRITES)
def test_a_folder_that_cannot_be_made_is_told(cli: Any, args: list[str]) -> None:
    cli.data_dir.parent.mkdir(parents=True)
    cli.data_dir.write_text("a file in the way")
    outcome = cli(*args)
    assert outcome.code == 2
    assert str(cli.data_dir) in outcome.sentence


def test_a_text_to_remember_may_come_from_standard_input(program: Any) -> None:
    done = program("remember", "-", stdin=b"Never on a Friday. Really.\n")
    assert "Remembered “Never on a Friday”" in done.out
