"""Help, options and errors that every command shares."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from webapp.cli import cli as group

CONTEXT = click.Context(group)
COMMANDS = group.list_commands(CONTEXT)
REQUIRED = {"serve", "demo", "save", "search", "list", "show", "forget", "restore", "stats", "export",
            "transcripts", "read", "grep", "cleanup", "doctor", "mcp"}  # fmt: skip
KEY = "ghp_" + "FakeFixture0" * 3


def test_every_command_of_the_plan_is_there() -> None:
    assert set(COMMANDS) >= REQUIRED


def test_the_version_is_told(cli: Any) -> None:
    assert re.fullmatch(r"opencode-memory, version \d+\.\d+\.\d+\n", cli.done("--version").out)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_program_explains_itself(cli: Any, flag: str) -> None:
    done = cli.done(flag)
    assert done.out.startswith("Usage: opencode-memory ")
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", done.out, re.MULTILINE), name


def test_without_a_command_the_help_is_shown(cli: Any) -> None:
    assert cli.done().out.strip() == cli.done("--help").out.strip()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_that_parses(cli: Any, name: str) -> None:
    done = cli.done(name, "--help")
    assert done.out.startswith(f"Usage: opencode-memory {name} ")
    (example,) = re.findall(r"^  ?Example: (opencode-memory .+)$", done.out, re.MULTILINE)
    assert example.split()[1] == name
    command = group.get_command(CONTEXT, name)
    assert command is not None and command.help
    assert command.help.strip().split("\n\n")[0].endswith(".")
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.name
    for option_name in re.findall(r" (--[a-z-]+)", example):
        assert any(option_name in param.opts for param in command.params), example
    for shared in ("--db", "--data-dir", "--opencode-db", "--scope", "--json"):
        assert shared in done.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bogus"], "No such command 'bogus'"),
        (["--bogus"], "No such option"),
        (["list", "--bogus"], "No such option"),
        (["search"], "Missing argument"),
        (["show"], "Missing argument"),
        (["show", "a", "b"], "unexpected extra argument"),
        (["save", "--kind", "fact"], "Missing option"),
        (["list", "--limit", "abc"], "is not a valid integer"),
        (["list", "--limit", "0"], "is not in the range"),
        (["list", "--limit", "51"], "is not in the range"),
        (["list", "--limit"], "requires an argument"),
        (["transcripts", "--sort", "mood"], "is not one of"),
        (["cleanup", "--keep-recent", "-1"], "is not in the range"),
        (["read", "ses_x"], "Missing argument"),
        (["list", "--scope", "/x" + "y" * 5000], "absolute path"),
        (["list", "--scope", "a\nb"], "absolute path"),
        (["list", "--scope", "nosuch"], "absolute path"),
        (["serve", "--port", "abc"], "must be a whole number"),
        (["serve", "--port", "70000"], "must be from 0 to 65535"),
        (["forget"], "either an id or --query"),
        (["forget", "x", "--query", "y"], "either an id or --query"),
        (["export"], "either a session or --all"),
        (["export", "ses_x", "--all"], "either a session or --all"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_be_understood_is_one_line_on_stderr_and_exit_code_2(
    cli: Any, args: list[str], words: str, as_json: bool
) -> None:
    outcome = cli(*(["--json"] if as_json else []), *args)
    assert outcome.code == 2
    assert words in outcome.sentence
    if as_json:
        error = outcome.data["error"]
        assert outcome.data["ok"] is False
        assert error["code"] == "invalid_input"
        assert error["message"] == outcome.sentence
    elif args[0] != "serve":
        assert outcome.out == ""
    assert not cli.db.exists()


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (["show", "nosuch"], 1, "not_found"),
        (["forget", "nosuch"], 1, "not_found"),
        (["restore", "nosuch"], 1, "not_found"),
        (["read", "ses_nosuch", "1"], 1, "not_found"),
        (["read", "ses_nosuch", "5-3"], 2, "invalid_input"),
        (["read", "../etc", "1"], 2, "invalid_input"),
        (["grep", "x", "--session", "ses_nosuch"], 1, "not_found"),
        (["cleanup", "--apply", "0123456789ab"], 1, "plan_changed"),
        (["export", "ses_nosuch"], 2, "unreadable"),
        (["export", "--all"], 2, "unreadable"),
        (["save", "--kind", "fact", "--title", KEY, "--body", "b"], 2, "secret_refused"),
        (["save", "--kind", "fact", "--title", "", "--body", "b"], 2, "invalid_input"),
        (["list", "--db", "."], 2, "unreadable"),
    ],
)
def test_an_error_with_json_is_an_object_and_the_same_line_and_code(
    cli: Any, args: list[str], code: int, word: str
) -> None:
    plain = cli(*args)
    outcome = cli(*args, "--json")
    assert plain.code == outcome.code == code
    assert plain.sentence == outcome.sentence
    assert set(outcome.data) == {"ok", "error"}
    assert outcome.data["ok"] is False
    assert outcome.data["error"]["code"] == word
    assert outcome.data["error"]["message"] == outcome.sentence
    assert KEY not in outcome.out + outcome.err
    if word == "plan_changed":
        assert outcome.data["error"]["details"]["plan"]["remove"] == []
    else:
        assert plain.out == ""


def test_the_word_json_as_a_value_is_no_option(cli: Any) -> None:
    outcome = cli("search", "--", "--json")
    assert outcome.code == 1
    assert outcome.out.startswith("Nothing found in ")


# Global options ---------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
def test_global_options_stand_before_or_after_the_command(
    cli: Any, tmp_path: Path, before: bool
) -> None:
    options = ["--db", str(tmp_path / "my.db"), "--scope", str(tmp_path / "other"), "--json"]
    command = ["save", "--kind", "fact", "--title", "T", "--body", "b"]
    outcome = cli.done(*(options + command if before else command + options))
    assert outcome.data["scope"] == str(tmp_path / "other")
    assert (tmp_path / "my.db").exists() and not cli.db.exists()


def test_an_option_after_the_command_beats_the_one_before(cli: Any, tmp_path: Path) -> None:
    cli.done("--db", str(tmp_path / "one.db"), "save", "--kind", "fact", "--title", "T", "--body", "b",
             "--db", str(tmp_path / "two.db"))  # fmt: skip
    assert (tmp_path / "two.db").exists() and not (tmp_path / "one.db").exists()


@pytest.mark.parametrize("before", [True, False])
def test_the_data_folder_holds_memory_and_transcripts(
    cli: Any, tmp_path: Path, newest_db: Path, before: bool
) -> None:
    options = ["--data-dir", str(tmp_path / "data"), "--opencode-db", str(newest_db)]
    command = ["export", "--all"]
    cli.done(*(options + command if before else command + options))
    assert (tmp_path / "data" / "memory.db").is_file()
    assert list((tmp_path / "data" / "transcripts").glob("*/ses_*.md"))
    assert not cli.data_dir.exists()


def test_a_flag_beats_the_environment(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_MEMORY_DB", str(tmp_path / "env.db"))
    cli.save("In the environment's file")
    assert (tmp_path / "env.db").exists()
    cli.save("In the flag's file", "b", "--db", str(tmp_path / "flag.db"))
    assert cli.done("stats", "--everywhere", "--json").data["total"] == 1


def test_a_relative_path_is_taken_from_this_folder(cli: Any) -> None:
    cli.save("T", "b", "--db", "my.db")
    assert (cli.project / "my.db").is_file()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("OPENCODE_MEMORY_PORT", "abc", "OPENCODE_MEMORY_PORT says"),
     ("OPENCODE_MEMORY_MASK", "perhaps", "true or false"),
     ("OPENCODE_MEMORY_TRASH_DAYS", "0", "must be from 1")],
)  # fmt: skip
def test_a_bad_setting_names_itself_and_its_source(
    cli: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    outcome = cli("list")
    assert outcome.code == 2
    assert words in outcome.sentence


@pytest.mark.parametrize("text", ["prot = 5000\n", "port = \n", "\xff"])
def test_a_bad_config_file_is_named(cli: Any, text: str) -> None:
    path = cli.home / ".config" / "opencode-memory" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    outcome = cli("list")
    assert outcome.code == 2
    assert str(path) in outcome.sentence


# Which project ----------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "src", "src/deep", ".git"])
def test_the_scope_is_the_git_worktree_of_the_folder(
    cli: Any, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(cli.project / folder)
    made = cli.done("save", "--kind", "fact", "--title", "T", "--body", "b", "--json")
    assert made.data["scope"] == str(cli.project)


def test_a_worktree_whose_git_is_a_file_counts(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = cli.project / "src"
    (inner / ".git").write_text("gitdir: ../.git/worktrees/src\n")
    monkeypatch.chdir(inner / "deep")
    assert cli.done("save", "--kind", "fact", "--title", "T", "--body", "b", "--json").data[
        "scope"
    ] == str(inner)


def test_outside_a_worktree_the_folder_itself_is_the_scope(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    monkeypatch.chdir(plain)
    made = cli.done("save", "--kind", "fact", "--title", "T", "--body", "b", "--json")
    assert made.data["scope"] == str(plain.resolve())


@pytest.mark.parametrize(
    ("given", "scope"),
    [("global", "global"), ("/home/me/shop", "/home/me/shop"), ("/home/me/shop/", "/home/me/shop"),
     ("/home/me/../you", "/home/you"), ("src", "{project}"), (".", "{project}")],
)  # fmt: skip
def test_a_scope_can_be_named(cli: Any, given: str, scope: str) -> None:
    made = cli.done(
        "save", "--kind", "fact", "--title", "T", "--body", "b", "--json", "--scope", given
    )
    assert made.data["scope"] == scope.format(project=cli.project)


def test_a_listing_holds_this_project_and_global_and_no_other(cli: Any) -> None:
    cli.save("Here")
    cli.save("Global", "b", "--scope", "global")
    cli.save("Elsewhere", "b", "--scope", "/home/me/other")

    def titles(*args: str) -> set[str]:
        return {e["title"] for e in cli.done(*args, "--json").data["entries"]}

    assert titles("list") == {"Here", "Global"}
    assert titles("list", "--everywhere") == {"Here", "Global", "Elsewhere"}
    assert titles("list", "--scope", "global") == {"Global"}
    assert titles("search", "b") == {"Here", "Global"}
    assert titles("search", "b", "--everywhere") == {"Here", "Global", "Elsewhere"}
    assert cli.done("stats", "--json").data["total"] == 2
    assert cli.done("stats", "--everywhere", "--json").data["total"] == 3


# A process of its own ---------------------------------------------------------------------------


def test_the_program_runs_as_a_module_and_by_its_exit_codes(program: Any) -> None:
    assert program("list").code == 1
    made = program("save", "--kind", "fact", "--title", "Needle", "--body", "b", "--json")
    assert (made.code, made.err) == (0, "")
    assert json.loads(made.out)["ok"] is True
    assert program("search", "needle").code == 0
    bad = program("show")
    assert bad.code == 2 and bad.out == "" and bad.sentence


def test_a_folder_that_is_gone_is_told(program: Any, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir "$0" && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, str(gone), *program.command("list")], cwd=gone, capture_output=True,
        env={"HOME": str(program.home), "PATH": "/usr/bin:/bin",
             "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1 and b"no longer there" in done.stderr


@pytest.mark.parametrize("command", [["list", "--json"], ["--help"]])
def test_a_reader_that_has_seen_enough_leaves_no_noise(program: Any, command: list[str]) -> None:
    program("save", "--kind", "fact", "--title", "T", "--body", "b" * 7900)
    process = subprocess.Popen(
        program.command(*command), cwd=program.project, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**environment_of(program), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == (0 if command[0] == "list" else 1)


def environment_of(program: Any) -> dict[str, str]:
    """The environment that `program` runs in."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
    return {**env, "HOME": str(program.home), "PYTHONPATH": str(Path(__file__).parents[2])}


def test_a_pipe_to_head_ends_well(program: Any) -> None:
    program("save", "--kind", "fact", "--title", "T", "--body", "b" * 7900)
    for more in ("list --json", "transcripts --json", "doctor"):
        quoted = " ".join(f"'{part}'" for part in program.command())
        done = subprocess.run(
            ["sh", "-c", f"{quoted} {more} | head -c 1"],
            cwd=program.project, env=environment_of(program), capture_output=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.stderr == b""


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii:strict", "latin-1:strict"])
def test_arguments_and_texts_that_the_terminal_cannot_show_are_no_crash(
    program: Any, encoding: str
) -> None:
    env = {"PYTHONIOENCODING": encoding}
    made = program("save", "--kind", "fact", "--title", "日本 “x” 😀", "--body", "é", env=env)
    assert made.code == 0
    listed = program("list", "--json", env=env)
    (entry,) = json.loads(listed.out)["entries"]
    assert entry["title"] == "日本 “x” 😀" and entry["body"] == "é"


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["save", "--kind", "fact", "--title", b"a\xffb", "--body", "x"], 2),
        (["save", "--kind", "fact", "--title", "x", "--body", b"\xff"], 2),
        (["save", "--kind", b"\xff", "--title", "x", "--body", "x"], 2),
        (["save", "--kind", "fact", "--title", "x", "--body", "x", "--tag", b"\xff"], 2),
        (["show", b"\xff"], 2),
        (["search", b"\xff"], 1),
        (["list", "--scope", b"/tmp/\xff"], 2),
        (["read", b"\xff", "1"], 2),
        (["read", "ses_x", b"\xff"], 2),
        (["grep", b"\xff"], 1),
        (["restore", b"\xff"], 2),
        (["forget", "--query", b"\xff"], 1),
        (["cleanup", "--session", b"\xff"], 1),
        (["doctor", "--data-dir", b"data\xff"], 0),
        (["list", "--db", b"\xff.db"], 1),
        ([b"\xff"], 2),
    ],
)  # fmt: skip
def test_bytes_that_are_no_text_are_no_crash(program: Any, args: list[Any], code: int) -> None:
    outcome = program(*args, "--json", env={"PYTHONIOENCODING": "utf-8:strict"})
    assert outcome.code == code, outcome
    assert outcome.data["ok"] is (code != 2)
    if code == 2:
        assert outcome.sentence
