"""Which instruction sources reach a session, on real folders."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webapp.opencode import (
    Instructions,
    Rule,
    Session,
    instructions,
    list_sessions,
    read_config,
    reading,
)
from webapp.opencode.config import MAX_ALL, MAX_CONFIG
from webapp.opencode.instructions import MAX_DIFFERENCE, MAX_ITEMS, MAX_TEXT
from webapp.settings import Places, places


class House:
    """A home, a config folder and a git project, with a session in it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.shop = root / "shop"
        self.inside = self.shop / "a" / "b"
        self.inside.mkdir(parents=True)
        (self.shop / ".git").mkdir()
        self.places = replace(places({"HOME": str(self.home)}), managed_dir=root / "managed")
        self.config = self.places.config_dir
        self.config.mkdir(parents=True)
        self.version = "1.18.33"

    def write(self, path: Path, text: str | bytes = "") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def configure(self, *entries: str, path: Path | None = None) -> Path:
        return self.write(
            path or self.shop / "opencode.json", json.dumps({"instructions": entries})
        )

    def look(
        self, folder: Path | None = None, worktree: Path | None = None,
        connection: sqlite3.Connection | None = None, **changed: Any,
    ) -> Instructions:  # fmt: skip
        folder = folder or self.inside
        session = Session(
            "ses_a",
            Path("x.db"),
            str(self.shop),
            str(folder),
            "",
            self.version,
            None,
            0,
            0,
            None,
            None,
        )
        places = replace(self.places, **changed)
        return instructions(session, read_config(session, worktree, places), places, connection)

    def paths(self, **given: Any) -> list[str]:
        return [item.place for item in self.look(**given).items]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house")


def test_nothing_there_is_nothing_shown(house: House) -> None:
    shown = house.look()
    assert (shown.items, shown.shadowed, shown.problems, shown.tokens) == ((), (), (), 0)
    assert shown.root == house.shop and not shown.newer and shown.baseline is None


def test_global_first_then_the_nearest_then_the_configured_then_addresses(house: House) -> None:
    top = house.write(house.config / "AGENTS.md", "global")
    root = house.write(house.shop / "AGENTS.md", "root")
    near = house.write(house.inside / "AGENTS.md", "near")
    house.write(house.shop.parent / "AGENTS.md", "above the root")
    extra = house.write(house.shop / "extra.md", "extra")
    house.configure("https://example.invalid/rules.md", "extra.md")
    shown = house.look()
    assert [(i.place, i.rule, i.exists, i.sent) for i in shown.items] == [
        (str(top), Rule.GLOBAL, True, True),
        (str(near), Rule.UPWARD, True, True),
        (str(root), Rule.UPWARD, True, True),
        (str(extra), Rule.CONFIG, True, True),
        ("https://example.invalid/rules.md", Rule.URL, None, None),
    ]
    assert shown.items[0].text == "global" and shown.items[0].tokens == 2
    assert "opencode.json" in shown.items[3].found_by and shown.shadowed == ()
    assert "not fetched here" in shown.items[4].problems[0]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("AGENTS.md", "CLAUDE.md", "CONTEXT.md"), "AGENTS.md"),
        (("CLAUDE.md", "CONTEXT.md"), "CLAUDE.md"),
        (("CONTEXT.md",), "CONTEXT.md"),
    ],
)
def test_the_first_family_shadows_the_others_even_a_nearer_one(
    house: House, names: tuple[str, ...], kept: str
) -> None:
    winner = house.write(house.shop / kept, kept)
    for name in names:
        house.write(house.inside / name, name)
    shown = house.look()
    assert [item.place for item in shown.items] == [str(house.inside / kept), str(winner)]
    assert [s.place for s in shown.shadowed] == [str(house.inside / n) for n in names if n != kept]
    assert all("was found first" in shadow.reason for shadow in shown.shadowed)
    assert ("deprecated" in shown.items[0].found_by) == (kept == "CONTEXT.md")


def test_claudes_global_file_counts_only_without_a_global_agents_file(house: House) -> None:
    claude = house.write(house.home / ".claude" / "CLAUDE.md", "claude")
    assert [(i.place, i.rule) for i in house.look().items] == [(str(claude), Rule.CLAUDE_HOME)]
    off = house.look(claude=False)
    assert off.items == () and "OPENCODE_DISABLE_CLAUDE_CODE" in off.shadowed[0].reason
    top = house.write(house.config / "AGENTS.md", "global")
    shown = house.look()
    assert [item.place for item in shown.items] == [str(top)]
    assert shown.shadowed[0].place == str(claude) and str(top) in shown.shadowed[0].reason


def test_without_claude_code_its_files_give_way_to_the_next_family(house: House) -> None:
    house.write(house.shop / "CLAUDE.md", "claude")
    context = house.write(house.shop / "CONTEXT.md", "context")
    shown = house.look(claude=False)
    assert [item.place for item in shown.items] == [str(context)]
    assert [shadow.place for shadow in shown.shadowed] == [str(house.shop / "CLAUDE.md")]


def test_another_config_folder_shadows_the_usual_one(house: House) -> None:
    house.write(house.config / "AGENTS.md", "usual")
    own = house.write(house.home / "own" / "AGENTS.md", "own")
    house.configure("~/x.md", path=own.parent / "opencode.json")
    x = house.write(house.home / "x.md", "x")
    shown = house.look(own_config_dir=own.parent)
    assert [item.place for item in shown.items] == [str(own), str(x)]
    assert "OPENCODE_CONFIG_DIR" in shown.shadowed[0].reason


def test_a_switched_off_project_leaves_the_global_things(house: House) -> None:
    house.write(house.shop / "AGENTS.md", "root")
    house.configure("x.md")
    house.configure("rel.md", path=house.config / "opencode.json")
    rel = house.write(house.config / "rel.md", "rel")
    house.write(house.shop / "rel.md", "not this")
    shown = house.look(project=False)
    assert [item.place for item in shown.items] == [str(rel)]
    assert "OPENCODE_DISABLE_PROJECT_CONFIG" in shown.shadowed[0].reason


def test_paths_globs_home_and_hidden_names(house: House) -> None:
    near = house.write(house.inside / "docs" / "one.md", "near one")
    far = house.write(house.shop / "docs" / "one.md", "far one")
    dot = house.write(house.shop / "docs" / ".dot.md", "dot")
    own = house.write(house.home / "own" / "rule.md", "own")
    house.write(house.home / "own" / ".hidden.md", "hidden")
    (house.shop / "docs" / "folder.md").mkdir()
    house.configure("docs/*.md", "~/own/*.md", str(house.home / "*" / "rule.md"), "no/*.md")
    shown = house.look()
    found = [item.place for item in shown.items if item.exists]
    assert found[0] == str(near) and set(found[1:3]) == {str(far), str(dot)}
    assert found[3:] == [str(own)]
    gone = [item for item in shown.items if not item.exists]
    assert "last part only" in gone[0].problems[0] and "up to the root" in gone[1].problems[0]
    assert [item.sent for item in gone] == [False, False]


def test_braces_classes_and_folders_below(house: House) -> None:
    for name in ("n.md", "m.md", "x1.md", "x2.md", "t/p/q/z.md", "t/y.md", "t/.s/u.md"):
        house.write(house.shop / name, name)
    (house.shop / "t" / "loop").symlink_to(house.shop / "t")
    house.configure("{n,m}.md", "x[!1].md", "./t/../t/**/*.md", "m.md")
    shown = house.look()
    names = [os.path.relpath(item.place, house.shop) for item in shown.items]
    assert names[:3] == ["n.md", "m.md", "x2.md"]
    assert sorted(names[3:]) == ["t/.s/u.md", "t/p/q/z.md", "t/y.md"]
    assert [s.place for s in shown.shadowed] == [str(house.shop / "m.md")]
    assert any("differs from call to call" in problem for problem in shown.problems)


def test_a_walk_is_bounded_and_a_form_that_is_not_understood_is_told(house: House) -> None:
    for number in range(MAX_ITEMS + 5):
        house.write(house.shop / "many" / f"{number}.md", "x")
    house.configure("many/*.md", "many/+(1|2).md")
    shown = house.look()
    assert len(shown.items) == MAX_ITEMS
    assert any("too many files" in problem for problem in shown.problems)
    assert any("not understood" in problem for problem in shown.problems)
    house.configure("*a*a*a*a*a*a*a*a*a*a*a*a*b")
    house.write(house.shop / ("a" * 200), "x")
    assert not house.look().items[0].exists


@pytest.mark.parametrize(("limit", "value"), [("MAX_LOOKED", 100), ("MAX_SECONDS", -1.0)])
def test_all_patterns_together_are_bounded(
    house: House, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    first = house.write(house.shop / "first.md", "x")
    house.configure("first.md", *(f"{number}*.md" for number in range(500)), "http://a/last")
    monkeypatch.setattr(f"webapp.opencode.patterns.{limit}", value)
    shown = house.look()
    (problem,) = (text for text in shown.problems if "too long" in text)
    assert shown.items[-1].place == "http://a/last"
    if limit == "MAX_LOOKED":
        assert shown.items[0].place == str(first)
        assert "*.md” on, were not looked for to the end" in problem
    else:
        assert len(shown.items) == 1
        assert "501 of its paths and patterns, from “first.md” on" in problem


def test_a_configuration_with_comments_is_read_and_one_that_does_not_parse_is_told(
    house: House,
) -> None:
    house.write(house.shop / "x.md", "x")
    house.write(house.shop / "opencode.jsonc", '{// why\n"instructions": [/* this */ "x.md",],}')
    broken = house.write(house.inside / "opencode.json", '{"instructions": [')
    wrong = house.write(house.shop / ".opencode" / "opencode.json", '{"instructions": "x.md"}')
    house.write(house.config / "opencode.json", b"\xff\xfe\x00")
    house.write(house.config / "config.json", "[" * 100_000)
    shown = house.look()
    assert [item.place for item in shown.items] == [str(house.shop / "x.md")]
    assert any(str(broken) in p and "cannot be parsed" in p for p in shown.problems)
    assert any(str(wrong) in p and "list of strings" in p for p in shown.problems)
    assert len(shown.problems) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"instructions": ["http://a/b//c", "/* no */ x", "q\\\\", "r\\",]//",],}', 4),
        ('{/**/"instructions": ["a" /* , */ , // b\n"c"/* d */, ] /* e */ , } // f', 2),
        ('{"instructions": ["a", /* never closed', None),
        ('{"instructions": ["a", "never closed\\', None),
        ("{'instructions': ['a']}", None),
        ('{"instructions": ["a",,]}', None),
    ],
)
def test_comments_and_trailing_commas_are_those_of_jsonc(
    house: House, text: str, expected: int | None
) -> None:
    house.write(house.shop / "opencode.jsonc", text)
    shown = house.look()
    if expected is None:
        assert "cannot be parsed" in shown.problems[0] and not shown.items
    else:
        assert len(shown.items) == expected and not shown.problems


@pytest.mark.parametrize(
    "text",
    ["1," * 500_000 + "]", ",/*" * 300_000, '"' + '\\"' * 450_000 + "\\", "," + " " * 900_000],
)
def test_a_large_configuration_with_comments_does_not_hold_the_page(
    house: House, text: str
) -> None:
    house.write(house.shop / "opencode.jsonc", '// c\n{"instructions": [' + text)
    assert any("cannot be parsed" in problem for problem in house.look().problems)


def test_all_configuration_together_is_bounded(house: House) -> None:
    text = json.dumps({"instructions": ["x.md"], "more": "x" * (MAX_CONFIG - 50)})
    folder = house.shop
    for _ in range(6):
        house.write(folder / "opencode.json", text)
        folder = folder / "d"
        folder.mkdir(exist_ok=True)
    problems = house.look(folder=folder).problems
    assert sum(f"more than {MAX_ALL:,} bytes" in problem for problem in problems) == 2


def test_lists_of_the_global_folder_replace_one_another_and_later_ones_add(house: House) -> None:
    files = [house.write(house.shop / f"{n}.md", str(n)) for n in range(6)]
    house.configure("0.md", path=house.config / "opencode.json")
    house.configure("1.md", path=house.config / "opencode.jsonc")
    house.configure("3.md", "1.md", path=house.inside / "opencode.json")
    house.configure("2.md", path=house.shop / "opencode.json")
    house.configure("4.md", path=house.shop / ".opencode" / "opencode.jsonc")
    own = house.configure("5.md", path=house.home / "own.json")
    shown = house.look(config_file=own, config_content='{"instructions": ["0.md"]}')
    assert [item.place for item in shown.items] == [str(files[n]) for n in (1, 5, 2, 3, 4, 0)]
    reasons = {shadow.place: shadow.reason for shadow in shown.shadowed}
    assert "replaces" in reasons["0.md"] and "names it already" in reasons["1.md"]


def test_placeholders_of_the_configuration(house: House) -> None:
    x = house.write(house.shop / "x.md", "x")
    house.configure("{env:WHICH}.md", "{file:secret.txt}", "https://host/{env:TOKEN}")
    shown = house.look(environment={"WHICH": "x", "TOKEN": "PLANTED-4711"})
    assert shown.items[0].place == str(x)
    assert "not read" in shown.items[1].problems[0]
    assert shown.items[2].place == "https://host/{env:TOKEN}" and "PLANTED" not in repr(shown)
    assert "PLANTED" not in repr(replace(house.places, environment={"TOKEN": "PLANTED-4711"}))


def test_a_link_is_followed_and_told(house: House) -> None:
    target = house.write(house.home / "shared.md", "shared")
    (house.shop / "AGENTS.md").symlink_to(target)
    (item,) = house.look().items
    assert item.link == str(target) and item.text == "shared" and item.sent


def test_a_broken_link_is_no_file_and_one_to_itself_loses_the_whole_name(house: House) -> None:
    (house.inside / "AGENTS.md").symlink_to(house.home / "gone.md")
    kept = house.write(house.shop / "AGENTS.md", "root")
    assert house.paths() == [str(kept)]
    (house.inside / "AGENTS.md").unlink()
    (house.inside / "AGENTS.md").symlink_to("AGENTS.md")
    claude = house.write(house.shop / "CLAUDE.md", "claude")
    shown = house.look()
    assert [item.place for item in shown.items] == [str(claude)]
    assert "cannot be looked at" in shown.problems[0]


def test_a_folder_or_a_pipe_of_that_name_wins_and_sends_nothing(house: House) -> None:
    (house.shop / "AGENTS.md").mkdir()
    os.mkfifo(house.inside / "AGENTS.md")
    house.write(house.shop / "CLAUDE.md", "claude")
    shown = house.look()
    assert [(i.exists, i.sent) for i in shown.items] == [(True, False)] * 2
    assert all("no regular file" in item.problems[0] for item in shown.items)
    assert [shadow.place for shadow in shown.shadowed] == [str(house.shop / "CLAUDE.md")]


def test_a_device_and_credentials_are_not_opened(house: House) -> None:
    (house.shop / "AGENTS.md").symlink_to("/dev/zero")
    secret = house.write(house.home / "auth.json", "PLANTED-4711")
    (house.shop / "rules.md").symlink_to(secret)
    house.configure("~/auth.json", "rules.md")
    shown = house.look()
    assert "no regular file" in shown.items[0].problems[0]
    assert all("never read" in item.problems[0] for item in shown.items[1:])
    assert len(shown.items) == 3 and "PLANTED" not in repr(shown)


def test_a_huge_file_is_cut_at_a_character_and_estimated(house: House) -> None:
    house.write(house.shop / "AGENTS.md", "é" * MAX_TEXT)
    odd = house.write(house.shop / "odd.md", "x" + "é" * MAX_TEXT)
    house.configure("odd.md")
    first, second = house.look().items
    assert (first.size, first.cut) == (2 * MAX_TEXT, MAX_TEXT)
    assert (first.characters, first.tokens, first.exact) == (MAX_TEXT, MAX_TEXT // 4, False)
    assert second.place == str(odd) and "�" not in second.text and second.cut == MAX_TEXT + 1


def test_an_empty_file_is_left_out_and_bad_utf8_is_told(house: House) -> None:
    house.write(house.shop / "AGENTS.md")
    house.write(house.shop / "bad.md", b"\xef\xbb\xbfgood \xff bad")
    house.configure("bad.md")
    empty, bad = house.look().items
    assert (empty.exists, empty.sent, empty.tokens) == (True, False, 0)
    assert bad.text == "good � bad" and bad.sent and "UTF-8" in bad.problems[0]
    assert house.look().tokens == bad.tokens


def test_names_that_are_no_text_can_be_shown(house: House) -> None:
    odd = os.path.join(os.fsencode(house.shop), b"odd\xff.md")
    with open(odd, "w") as file:
        file.write("odd")
    house.write(house.shop / "opencode.json", '{"instructions": ["odd*", "\\ud800/*", "a\\u0000"]}')
    shown = house.look(folder=Path(str(house.inside) + "\udcff"))
    assert [(i.text, i.sent) for i in shown.items] == [("odd", True), ("", False), ("", False)]
    assert repr(shown).encode() and "".join(i.place for i in shown.items).encode()


def test_a_session_without_a_folder_is_told(house: House) -> None:
    shown = house.look(folder=Path("nowhere"))
    assert "/nowhere is not there" in shown.problems[0]


def test_a_folder_that_no_file_system_could_have_is_told_by_either_runtime(
    house: House, newer: Callable[..., Instructions]
) -> None:
    folder = Path("no\0where")
    for shown in (house.look(folder=folder), newer([], folder=folder)):
        assert "is not there" in shown.problems[0]


def test_an_unreadable_file_is_told(
    open_folder: Path, as_stranger: Callable[[Callable[[], str]], str]
) -> None:
    house = House(open_folder)
    house.write(house.shop / "AGENTS.md", "root").chmod(0o000)
    house.configure("x.md").chmod(0o000)
    house.write(house.inside / "CLAUDE.md", "claude")
    house.write(house.config / "sub" / "AGENTS.md", "x")

    def look() -> str:
        shown = house.look()
        assert [(i.exists, i.sent) for i in shown.items] == [(True, False)]
        return shown.items[0].problems[0] + " " + shown.problems[0]

    answer = as_stranger(look)
    assert answer.count("Permission denied") == 2 and "AGENTS.md" in answer, answer


def test_a_folder_that_may_not_be_entered_loses_its_names(
    open_folder: Path, as_stranger: Callable[[Callable[[], str]], str]
) -> None:
    house = House(open_folder)
    house.write(house.shop / "AGENTS.md", "root")
    house.inside.chmod(0o000)
    try:
        answer = as_stranger(lambda: repr(house.look(worktree=house.shop)))
    finally:
        house.inside.chmod(0o755)
    assert answer.startswith("Instructions(items=(),") and "OpenCode then reads no AGENTS" in answer


def test_without_git_the_walk_goes_up_to_the_top(house: House) -> None:
    (house.shop / ".git").rmdir()
    root = house.write(house.shop / "AGENTS.md", "shop")
    above = house.write(house.shop.parent / "AGENTS.md", "above")
    shown = house.look()
    assert shown.root == Path("/")
    assert [item.place for item in shown.items] == [str(root), str(above)]
    assert house.paths(worktree=house.shop) == [str(root)]


def test_a_worktree_elsewhere_or_gone(house: House, tmp_path: Path) -> None:
    root = house.write(house.shop / "AGENTS.md", "shop")
    shown = house.look(worktree=tmp_path / "elsewhere")
    assert [item.place for item in shown.items] == [str(root)] and shown.root == house.shop
    assert "is not inside" in shown.problems[0]
    gone = tmp_path / "gone" / "deep"
    shown = house.look(folder=gone, worktree=gone.parent)
    assert shown.items == () and "is not there" in shown.problems[0]


def test_before_1_14_the_projects_files_came_first(house: House) -> None:
    house.version = "1.3.2"
    root = house.write(house.shop / "AGENTS.md", "shop")
    top = house.write(house.config / "AGENTS.md", "global")
    shown = house.look()
    assert [item.place for item in shown.items] == [str(root), str(top)]
    assert "1.3.2" in shown.problems[0]


@pytest.fixture
def newer(house: House, tmp_path: Path, invented_db: Path) -> Callable[..., Instructions]:
    """Looks at a session of the newer runtime that was told `files`."""

    def look(
        files: list[tuple[Path, str]] | None, snapshot: str = "", folder: Path | None = None
    ) -> Instructions:
        with closing(sqlite3.connect(invented_db)) as connection, connection:
            connection.execute("DELETE FROM session_context_epoch")
            if files is not None:
                value = [{"path": str(path), "content": text} for path, text in files]
                kept = {"core/instructions": {"value": value}} if value else {}
                connection.execute(
                    "INSERT INTO session_context_epoch (session_id, baseline, snapshot,"
                    " baseline_seq) VALUES ('ses_a', 'As sent.', ?, 1)",
                    (snapshot or json.dumps(kept),),
                )
            return house.look(folder, connection=connection)

    return look


def test_the_newer_runtime_reads_agents_files_only(
    house: House, newer: Callable[..., Instructions]
) -> None:
    top = house.write(house.config / "AGENTS.md", "global\n")
    near = house.write(house.inside / "AGENTS.md", "near\n")
    for path in (house.shop / "CLAUDE.md", house.home / ".claude" / "CLAUDE.md"):
        house.write(path, "claude")
    house.configure("x.md", "https://example.invalid/")
    shown = newer([(top, "global\n"), (near, "old\n")])
    assert shown.newer and shown.baseline is not None and shown.baseline.text == "As sent."
    assert [(i.place, i.rule) for i in shown.items] == [
        (str(top), Rule.GLOBAL), (str(near), Rule.UPWARD),
    ]  # fmt: skip
    assert len(shown.shadowed) == 4
    assert all("newer runtime" in shadow.reason for shadow in shown.shadowed)
    assert [line for line in shown.difference if line[:1] in "+-"] == [
        f"--- {near} (told)", f"+++ {near} (now)", "-old", "+near",
    ]  # fmt: skip


def test_what_was_told_and_is_gone_and_what_is_new_are_in_the_difference(
    house: House, newer: Callable[..., Instructions]
) -> None:
    new = house.write(house.shop / "AGENTS.md", "new")
    gone = house.inside / "AGENTS.md"
    lines = newer([(gone, "gone")]).difference
    assert f"--- {gone} (told)" in lines and "+++ (gone)" in lines and "-gone" in lines
    assert "--- (not told)" in lines and f"+++ {new} (now)" in lines and "+new" in lines
    assert newer([(new, "new")]).difference == ()
    house.write(new, "\n".join(map(str, range(MAX_DIFFERENCE * 2))))
    shown = newer([])
    assert len(shown.difference) == MAX_DIFFERENCE and shown.difference_cut > MAX_DIFFERENCE


def test_half_a_character_in_what_was_told_can_be_shown(
    newer: Callable[..., Instructions],
) -> None:
    shown = newer([(Path("/gone\ud83d"), "half \ud83d")])
    assert "-half ?" in shown.difference and "--- /gone? (told)" in shown.difference


def test_a_file_that_cannot_be_read_leaves_the_newer_runtime_what_it_was_told(
    house: House, newer: Callable[..., Instructions]
) -> None:
    (house.shop / "AGENTS.md").mkdir()
    near = house.write(house.inside / "AGENTS.md", "near")
    shown = newer([(near, "old")])
    assert [item.unreadable for item in shown.items] == [False, True]
    assert shown.difference == () and "told last" in shown.problems[0]
    (house.shop / "AGENTS.md").rmdir()
    (house.shop / "AGENTS.md").symlink_to("AGENTS.md")
    shown = newer([(near, "old")])
    assert shown.difference == () and "told last" in shown.problems[0]


def test_a_long_file_is_compared_as_far_as_it_is_read(
    house: House, newer: Callable[..., Instructions]
) -> None:
    long = house.write(house.shop / "AGENTS.md", "a line\n" * 20_000)
    assert newer([(long, "a line\n" * 20_000)]).difference == ()


@pytest.mark.parametrize(
    "snapshot", ["{", "[]", '{"core/instructions": 3}', '{"core/instructions": {"value": [{}]}}',
                 '{"core/instructions": {"value": [3]}}'],
)  # fmt: skip
def test_a_snapshot_that_cannot_be_read_is_told(
    newer: Callable[..., Instructions], snapshot: str
) -> None:
    shown = newer([], snapshot)
    assert shown.baseline is not None and shown.baseline.files is None
    assert shown.difference == () and "cannot be read" in shown.problems[0]


def test_a_database_without_that_table_is_the_older_runtimes(
    house: House, newer: Callable[..., Instructions], tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        assert not house.look(connection=connection).newer
    assert not newer(None).newer


def test_places_come_from_the_environment() -> None:
    usual = places({"HOME": "/home/demo"})
    assert usual == Places(
        Path("/home/demo"), Path("/home/demo/.config/opencode"), Path("/home/demo/.cache/opencode"),
        managed_dir=usual.managed_dir, environment={"HOME": "/home/demo"},
    )  # fmt: skip
    other = places(
        {"HOME": "/home/demo", "XDG_CONFIG_HOME": "/c", "OPENCODE_CONFIG_DIR": "/own",
         "OPENCODE_CONFIG": "/f.json", "OPENCODE_DISABLE_CLAUDE_CODE_PROMPT": "1",
         "OPENCODE_DISABLE_PROJECT_CONFIG": "true", "OPENCODE_CONFIG_CONTENT": "{}",
         "XDG_CACHE_HOME": "/x", "OPENCODE_MODELS_PATH": "/m.json", "OPENCODE_MODELS_URL": "http://m",
         "OPENCODE_DISABLE_AUTOCOMPACT": "1", "OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX": "64000"}
    )  # fmt: skip
    assert other.cache_dir == Path("/x/opencode") and other.models_path == Path("/m.json")
    assert other.models_url == "http://m" and not other.autocompact and other.output_max == 64_000
    assert other.config_dir == Path("/c/opencode") and other.own_config_dir == Path("/own")
    assert other.config_file == Path("/f.json") and not other.claude and not other.project
    assert not places({"HOME": "/h", "OPENCODE_DISABLE_CLAUDE_CODE": "TRUE"}).claude


def test_the_baseline_that_a_real_opencode_kept(house: House, newest_db: Path) -> None:
    found = next(
        session for session in list_sessions([newest_db]).sessions
        if session.id == "ses_dd3fa48b8ffeTVh5fVD8sckXhm"
    )  # fmt: skip
    with reading(newest_db) as connection:
        config = read_config(found, None, house.places)
        shown = instructions(found, config, house.places, connection)
    assert shown.newer and shown.baseline is not None and shown.baseline.files is not None
    ((path, text),) = shown.baseline.files
    assert path == "/home/demo/shop/AGENTS.md" and text in shown.baseline.text
    assert f"--- {path} (told)" in shown.difference and "+++ (gone)" in shown.difference
