"""`export transcripts read grep cleanup`."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

SHOP = "/home/demo/shop"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
EMPTY = "ses_dd3fa4afcffekVr5jSKEyzYeLu"
RAW_KEYS = ("sk-" + "FAKE0fixture1" * 3, "ghp_" + "FakeFixture0" * 3, "AKIA" + "FAKEFIXTURE00000")
SESSIONS = 15


@pytest.fixture
def shop(cli: Any, newest_db: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line on the newest OpenCode database, in the scope of its sessions."""
    monkeypatch.setenv("OPENCODE_MEMORY_OPENCODE_DB", str(newest_db))
    return cli


def at_shop(cli: Any, *args: str) -> Any:
    """A run that must end well, in the sessions' project."""
    return cli.done(*args, "--scope", SHOP)


def files(cli: Any) -> set[str]:
    """The transcripts on disk."""
    return {path.stem for path in (cli.data_dir / "transcripts").glob("*/*.md")}


def rows(cli: Any, sql: str) -> list[tuple[Any, ...]]:
    """What memory.db holds."""
    with closing(sqlite3.connect(cli.data_dir / "memory.db")) as connection:
        return connection.execute(sql).fetchall()


# export -----------------------------------------------------------------------------------------


def test_export_writes_one_session_and_then_only_what_is_new(shop: Any) -> None:
    first = shop.done("export", KEYS)
    assert re.fullmatch(
        rf"{KEYS}  \+16 lines, 16 in all  /.+/{KEYS}\.md\n1 session exported\.\n", first.out
    )
    assert files(shop) == {KEYS}
    again = shop.done("export", KEYS, "--json").data["exported"]
    assert [(item["id"], item["lines"], item["added"]) for item in again] == [(KEYS, 16, 0)]


def test_export_all_writes_every_session(shop: Any) -> None:
    told = shop.done("export", "--all", "--json").data
    assert len(told["exported"]) == len(files(shop)) == SESSIONS
    assert told["problems"] == []
    for item in told["exported"]:
        text = Path(item["path"]).read_bytes()
        assert text.count(b"\n") == item["lines"]
        assert Path(item["path"]).stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_exported_is_told_and_the_rest_is(shop: Any, newest_db: Path) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("UPDATE session SET id = '../evil' WHERE id = ?", (EMPTY,))
    outcome = shop("export", "--all")
    assert outcome.code == 2
    assert "is not the id of a session" in outcome.sentence
    assert len(files(shop)) == SESSIONS - 1


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [(["ses_nosuch"], 1, "OpenCode has no session ses_nosuch"),
     (["../evil"], 2, "is not the id of a session"), (["a" * 300], 2, "is not the id")],
)  # fmt: skip
def test_an_unknown_session_is_not_exported(
    shop: Any, args: list[str], code: int, words: str
) -> None:
    outcome = shop("export", *args)
    assert outcome.code == code
    assert words in outcome.sentence
    assert not shop.data_dir.exists()


@pytest.mark.parametrize("args", [["--all"], [KEYS]])
@pytest.mark.parametrize("kind", ["missing", "garbage", "not set"])
def test_an_unreadable_opencode_database_is_exit_code_2(
    cli: Any, tmp_path: Path, kind: str, args: list[str]
) -> None:
    path = tmp_path / "opencode.db"
    if kind == "garbage":
        path.write_bytes(bytes(range(256)) * 40)
    more = [] if kind == "not set" else ["--opencode-db", str(path)]
    outcome = cli("export", *args, *more)
    assert outcome.code == 2
    assert ("--opencode-db" if kind == "not set" else str(path)) in outcome.sentence


def test_a_database_without_sessions_is_exit_code_1(shop: Any, newest_db: Path) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute("DELETE FROM session")
    outcome = shop("export", "--all")
    assert (outcome.code, outcome.out, outcome.err) == (1, "Nothing to export.\n", "")


# transcripts ------------------------------------------------------------------------------------


def test_transcripts_lists_size_lines_age_and_a_total(shop: Any) -> None:
    shop.done("export", KEYS)
    done = at_shop(shop, "transcripts")
    line, total = done.out.splitlines()
    assert re.fullmatch(
        rf"{KEYS} +16 lines +\d+ bytes  \d{{4}}-\d\d-\d\d  A key was pasted .+", line
    )
    assert re.fullmatch(r"1 transcripts?, 16 lines, [\d,]+ bytes", total)
    told = at_shop(shop, "transcripts", "--json").data
    assert (told["total"], told["lines"]) == (1, 16)
    assert told["transcripts"][0]["scope"] == SHOP
    assert told["size"] == Path(told["transcripts"][0]["path"]).stat().st_size


@pytest.mark.parametrize("sort", ["touched", "title", "size", "lines", "scope"])
def test_transcripts_can_be_sorted(shop: Any, sort: str) -> None:
    shop.done("export", "--all")
    rows = at_shop(shop, "transcripts", "--sort", sort, "--json").data["transcripts"]
    assert len(rows) == SESSIONS
    if sort in ("size", "lines"):
        values = [row[sort] for row in rows]
        assert values == sorted(values, reverse=True)


def test_without_transcripts_the_way_to_them_is_told(cli: Any) -> None:
    outcome = cli("transcripts")
    assert outcome.code == 1 and outcome.err == ""
    assert "opencode-memory export --all" in outcome.out
    assert cli("transcripts", "--json").data["transcripts"] == []
    assert not cli.data_dir.exists()


def test_transcripts_of_other_projects_need_everywhere(shop: Any) -> None:
    shop.done("export", "--all")
    assert shop("transcripts").code == 1
    assert shop.done("transcripts", "--everywhere", "--json").data["total"] == SESSIONS


# read -------------------------------------------------------------------------------------------


def test_read_prints_numbered_lines_and_exports_first_if_need_be(shop: Any) -> None:
    done = shop.done("read", LONG, "8-12")
    assert files(shop) == {LONG}
    (path,) = (shop.data_dir / "transcripts").glob(f"*/{LONG}.md")
    lines = path.read_bytes().decode().split("\n")
    assert done.out == "".join(f"{n:>2}  {lines[n - 1]}\n" for n in range(8, 13))
    told = shop.done("read", LONG, "8-12", "--json").data
    assert [row["line"] for row in told["lines"]] == [8, 9, 10, 11, 12]
    assert told["total"] == len(lines) - 1


def test_read_masks_keys_unless_they_are_asked_for(shop: Any) -> None:
    for more in ([], ["--json"]):
        hidden = shop.done("read", KEYS, "1-16", *more)
        assert not any(key in hidden.out for key in RAW_KEYS)
        assert "ghp_" in hidden.out
        shown = shop.done("read", KEYS, "1-16", "--reveal", *more)
        assert all(key in shown.out for key in RAW_KEYS)
    told = [
        summary for (summary,) in rows(shop, "SELECT summary FROM receipts WHERE action = 'reveal'")
    ]
    assert len(told) == 2 and all("lines 1-16" in summary for summary in told)


@pytest.mark.parametrize(
    ("lines", "code"),
    [("17", 1), ("100-200", 1), ("16-99", 0), ("0", 2), ("0-5", 2), ("9-3", 2), ("abc", 2),
     ("1-99999999999", 2), ("9" * 30, 2), ("", 2)],
)  # fmt: skip
def test_read_of_lines_that_are_not_there(shop: Any, lines: str, code: int) -> None:
    outcome = shop("read", KEYS, lines)
    assert outcome.code == code
    if code == 1:
        assert f"{KEYS} has 16 lines" in outcome.out and outcome.err == ""
        assert shop("read", KEYS, lines, "--json").data["lines"] == []
    if code == 2:
        assert outcome.sentence


@pytest.mark.parametrize(
    ("session", "code"),
    [("ses_nosuch", 1), ("..", 2), ("../../etc/passwd", 2), ("", 2), ("a/b", 2), ("x" * 300, 2)],
)
def test_read_of_an_unknown_session(shop: Any, session: str, code: int) -> None:
    outcome = shop("read", session, "1")
    assert outcome.code == code
    assert outcome.out == "" and outcome.sentence


def test_read_still_works_when_opencode_is_gone(shop: Any, newest_db: Path) -> None:
    before = shop.done("read", KEYS, "1-16").out
    newest_db.unlink()
    outcome = shop("read", KEYS, "1-16")
    assert (outcome.code, outcome.out) == (0, before)
    assert str(newest_db) in outcome.sentence


def test_read_of_a_removed_transcript_says_so(shop: Any) -> None:
    shop.done("export", KEYS)
    plan = at_shop(shop, "cleanup", "--session", KEYS, "--keep-recent", "0", "--json").data
    at_shop(
        shop, "cleanup", "--session", KEYS, "--keep-recent", "0", "--apply", plan["fingerprint"]
    )
    outcome = shop("read", KEYS, "1")
    assert outcome.code == 1
    assert "removed by a cleanup" in outcome.sentence
    assert shop.done("export", KEYS).out


# grep -------------------------------------------------------------------------------------------


def test_grep_prints_numbers_and_context(shop: Any) -> None:
    shop.done("export", "--all")
    done = at_shop(shop, "grep", "i will NOT repeat", "-C", "1")
    head, *lines, total = done.out.splitlines()
    assert head.startswith(f"{KEYS}  A key was pasted")
    assert [re.match(r"\d+[:-]", line)[0] for line in lines] == ["14-", "15:", "16-"]  # type: ignore[index]
    assert total == "1 line in 1 transcript"
    told = at_shop(shop, "grep", "i will NOT repeat", "--json").data
    assert (told["count"], told["exact"], told["complete"]) == (1, True, True)
    assert told["files"][0]["lines"][0]["hit"] is True


def test_grep_of_one_session_exports_it_first(shop: Any) -> None:
    told = shop.done("grep", "credentials", "--session", KEYS, "--json").data
    assert told["count"] == 1
    assert files(shop) == {KEYS}


def test_grep_says_when_only_every_word_was_found(shop: Any) -> None:
    shop.done("export", "--all")
    done = at_shop(shop, "grep", "credentials", "repeat")
    assert "No line holds this exact text" in done.out
    outcome = shop("grep", '"credentials repeat"', "--everywhere")
    assert outcome.code == 1
    assert outcome.out.startswith("Nothing found")


def test_grep_masks_keys_unless_they_are_asked_for(shop: Any) -> None:
    shop.done("export", "--all")
    for more in ([], ["--json"]):
        hidden = at_shop(shop, "grep", "use this key", *more)
        assert not any(key in hidden.out for key in RAW_KEYS)
        shown = at_shop(shop, "grep", "use this key", "--reveal", *more)
        assert all(key in shown.out for key in RAW_KEYS)
    told = str(rows(shop, "SELECT summary, detail FROM receipts WHERE action = 'reveal'"))
    assert told.count("without a mask") == 2 and "use this key" not in told


@pytest.mark.parametrize("words", ["xylophone", "(", "\\", "[a-", "*"])
def test_grep_without_a_hit_is_exit_code_1(shop: Any, words: str) -> None:
    shop.done("export", KEYS)
    outcome = shop("grep", words, "--session", KEYS)
    expected = 0 if words == "*" and outcome.code == 0 else 1
    assert outcome.code == expected and outcome.err == ""


@pytest.mark.parametrize("words", ["", "  ", '""', "a\nb", "x" * 20_000])
def test_grep_for_what_no_line_can_hold_is_exit_code_2(shop: Any, words: str) -> None:
    outcome = shop("grep", words)
    assert outcome.code == 2
    assert outcome.sentence


def test_grep_shows_at_most_so_many_and_says_so(shop: Any) -> None:
    shop.done("export", LONG)
    done = shop.done("grep", "price", "--session", LONG, "--limit", "3")
    assert re.search(r"\d+ lines in 1 transcript; the first 3 are shown", done.out)


# cleanup ----------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_plan_and_changes_nothing(shop: Any) -> None:
    shop.done("export", "--all")
    done = at_shop(shop, "cleanup", "--max-sessions", "12")
    lines = done.out.splitlines()
    assert sum("more than 12 in its project" in line for line in lines) == 3
    found = re.fullmatch(r"To do it, repeat the command with --apply ([0-9a-f]{12})", lines[-1])
    assert found and f"Fingerprint: {found[1]}" in lines[-2]
    assert len(files(shop)) == SESSIONS


def test_apply_removes_exactly_the_plan_and_names_its_receipt(shop: Any) -> None:
    shop.done("export", "--all")
    options = ["--max-sessions", "12"]
    plan = at_shop(shop, "cleanup", *options, "--json").data
    done = at_shop(shop, "cleanup", *options, "--apply", plan["fingerprint"], "--json").data
    assert (done["removed"], done["planned"], done["problems"]) == (3, 3, [])
    assert done["bytes"] == plan["bytes"] == sum(step["bytes"] for step in plan["remove"])
    assert isinstance(done["receipt"], int)
    gone = {step["id"] for step in plan["remove"]}
    assert len(files(shop)) == SESSIONS - 3 and not files(shop) & gone


@pytest.mark.parametrize(
    "options", [["--max-sessions", "1"], ["--max-sessions", "12", "--keep-recent", "0"], []]
)
def test_a_fingerprint_of_another_plan_is_refused_with_exit_code_1(
    shop: Any, options: list[str]
) -> None:
    shop.done("export", "--all")
    mark = at_shop(shop, "cleanup", "--max-sessions", "12", "--json").data["fingerprint"]
    outcome = shop("cleanup", *options, "--apply", mark, "--scope", SHOP)
    assert outcome.code == 1
    assert "nothing was removed" in outcome.sentence
    assert "Fingerprint: " in outcome.out and mark not in outcome.out
    told = shop("cleanup", *options, "--apply", mark, "--scope", SHOP, "--json")
    assert told.code == 1 and told.data["ok"] is False
    assert told.data["error"]["details"]["plan"]["fingerprint"] in outcome.out
    assert len(files(shop)) == SESSIONS


def test_a_changed_library_is_refused(shop: Any) -> None:
    shop.done("export", "--all")
    mark = at_shop(shop, "cleanup", "--max-sessions", "12", "--json").data["fingerprint"]
    (path,) = (shop.data_dir / "transcripts").glob(f"*/{EMPTY}.md")
    path.unlink()
    assert shop("cleanup", "--max-sessions", "12", "--apply", mark, "--scope", SHOP).code == 1
    assert len(files(shop)) == SESSIONS - 1


def test_what_stays_and_what_is_unknown_is_said(shop: Any) -> None:
    shop.done("export", "--all")
    done = at_shop(shop, "cleanup", "--session", KEYS, "--session", "ses_nosuch", "--keep-recent",
                   "100")  # fmt: skip
    assert f"{KEYS}  stays: among the 100 newest of its project" in done.out
    assert "ses_nosuch  is not in the library" in done.out
    assert "--apply" not in done.out


def test_an_empty_plan_can_be_applied(cli: Any) -> None:
    mark = cli.done("cleanup", "--json").data["fingerprint"]
    assert cli.done("cleanup", "--apply", mark, "--json").data["removed"] == 0


def test_a_read_only_store_refuses_an_apply(shop: Any) -> None:
    shop.done("export", KEYS)
    options = ["--session", KEYS, "--keep-recent", "0"]
    with closing(sqlite3.connect(shop.db)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.chmod(shop.db, 0o444)
    mark = at_shop(shop, "cleanup", *options, "--json").data["fingerprint"]
    outcome = shop("cleanup", *options, "--apply", mark, "--scope", SHOP)
    assert outcome.code == 2
    assert "write-protected" in outcome.sentence
    assert files(shop) == {KEYS}


# Folders in trouble -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [["transcripts"], ["grep", "x"], ["cleanup"], ["read", "ses_x", "1"]]
)
def test_a_data_folder_that_is_a_file_is_told(cli: Any, tmp_path: Path, args: list[str]) -> None:
    (tmp_path / "file").write_text("x")
    outcome = cli(*args, "--data-dir", str(tmp_path / "file"), "--db", str(tmp_path / "my.db"))
    assert outcome.code == 2
    assert str(tmp_path / "file") in outcome.sentence


def test_a_corrupt_store_is_exit_code_2(shop: Any) -> None:
    shop.data_dir.mkdir(parents=True)
    shop.db.write_bytes(b"no database" * 400)
    for args in (["export", KEYS], ["export", "--all"], ["transcripts"], ["read", KEYS, "1"],
                 ["grep", "x"], ["cleanup"]):  # fmt: skip
        outcome = shop(*args)
        assert outcome.code == 2, args
        assert str(shop.db) in outcome.sentence
