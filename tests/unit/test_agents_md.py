"""A proposal for AGENTS.md: where it may go, exactly what changes, the write, and taking it back."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from webapp.errors import (
    Conflict,
    InvalidInput,
    MemoryAppError,
    PlanChanged,
    SecretRefused,
    Unreadable,
)
from webapp.memory import agents_md
from webapp.memory.agents_md import END, MAX_FILE, Target, proposal, writing
from webapp.opencode import Session
from webapp.settings import Places, Settings
from webapp.store import Store, receipts

KEY = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A worktree."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def places(settings: Settings) -> Places:
    """OpenCode's places, with a config folder."""
    settings.places.config_dir.mkdir(parents=True)
    return settings.places


def session_in(folder: Path, scope: Path, version: str = "1.18.33") -> Session:
    return Session(
        "ses_a", Path("x"), str(scope), str(folder), "t", version, None, 0, 0, None, None
    )


def the(targets: tuple[Target, ...], path: Path) -> Target:
    (found,) = [target for target in targets if target.path == path]
    return found


def root_of(project: Path, places: Places) -> Target:
    return the(agents_md.targets(str(project), None, places), project / "AGENTS.md")


def written(store: Store, settings: Settings, target: Target, text: str, place: str = END) -> int:
    plan = agents_md.propose(target, text, place)
    return agents_md.write(
        store, settings.backups_dir, target, text, place, plan.fingerprint, "tester",
        str(target.path.parent), {"session": "ses_a", "first": 1, "last": 2, "hash": "0" * 8},
    )  # fmt: skip


def patched(before: bytes | None, diff: tuple[str, ...]) -> bytes:
    """What a program that applies differences makes of a text."""
    old = (before or b"").decode().split("\n")
    head = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", diff[2])
    assert head is not None
    start, count = max(0, int(head[1]) - (int(head[2]) > 0)), int(head[2])
    taken, put = [], []
    for line in diff[3:]:
        if line.startswith("\\"):
            continue
        if line[0] in " -":
            taken.append(line[1:])
        if line[0] in " +":
            put.append(line[1:])
    assert (len(taken), len(put)) == (count, int(head[4]))
    assert old[start : start + count] == taken
    rest = old[start + count :]
    ends = "\n".join([*old[:start], *put, *rest])
    none = [number for number, line in enumerate(diff) if line.startswith("\\")]
    if before is None or not before or (none and rest == [""]):
        return (ends if ends.endswith("\n") or none else ends + "\n").encode()
    if not rest and not diff[-1].startswith("\\"):
        ends += "\n"
    return ends.encode()


# Where it may go ----------------------------------------------------------------------------------


def test_the_files_of_a_project_without_any_are_its_own_and_the_global_one(
    project: Path, places: Places
) -> None:
    found = agents_md.targets(str(project), None, places)
    assert [t.path for t in found] == [project / "AGENTS.md", places.config_dir / "AGENTS.md"]
    assert not any(t.exists or t.problem or t.warning for t in found)
    assert {t.state for t in found} == {"It is not there yet; once it is, OpenCode reads it."}


def test_the_folder_of_a_session_is_offered_when_it_is_another_one_inside(
    project: Path, places: Places, tmp_path: Path
) -> None:
    inside, outside = project / "packages" / "web", tmp_path / "elsewhere"
    inside.mkdir(parents=True)
    outside.mkdir()
    for folder, expected in ((inside, True), (outside, False), (project, False)):
        found = agents_md.targets(str(project), session_in(folder, project), places)
        assert (
            folder / "AGENTS.md" in [t.path for t in found if t.path.parent != project]
        ) is expected


def test_a_new_file_that_would_hide_one_that_is_read_says_so_and_offers_that_one(
    project: Path, places: Places
) -> None:
    (project / "CLAUDE.md").write_text("Be kind.\n")
    claude, agents, _ = agents_md.targets(str(project), None, places)
    assert claude.path == project / "CLAUDE.md" and claude.state == "OpenCode reads it."
    assert not claude.warning and not claude.problem
    assert f"OpenCode reads {project}/CLAUDE.md today" in agents.warning
    assert "a new AGENTS.md would hide it" in agents.warning
    (project / "AGENTS.md").write_text("Be brief.\n")
    found = agents_md.targets(str(project), None, places)
    assert [t.path.name for t in found] == ["AGENTS.md", "AGENTS.md"]
    assert not found[0].warning and found[0].state == "OpenCode reads it."


def test_a_file_further_down_is_hidden_too(project: Path, places: Places) -> None:
    sub = project / "sub"
    sub.mkdir()
    (sub / "CONTEXT.md").write_text("Old.\n")
    found = agents_md.targets(str(project), session_in(sub, project), places)
    assert [t.path for t in found[:3]] == [
        sub / "CONTEXT.md",
        project / "AGENTS.md",
        sub / "AGENTS.md",
    ]
    assert f"{sub}/CONTEXT.md" in found[1].warning and f"{sub}/CONTEXT.md" in found[2].warning


def test_the_global_file_would_hide_the_one_of_claude_code(project: Path, places: Places) -> None:
    claude = places.home / ".claude" / "CLAUDE.md"
    claude.parent.mkdir()
    claude.write_text("Global.\n")
    _, theirs, ours = agents_md.targets(str(project), None, places)
    assert theirs.path == claude and not theirs.problem
    assert str(claude) in ours.warning
    (ours.path).write_text("x\n")
    assert [t.path for t in agents_md.targets("global", None, places)] == [ours.path]


def test_a_session_of_the_newer_runtime_does_not_read_the_other_names(
    project: Path, places: Places, newest_db: Path
) -> None:
    (project / "CLAUDE.md").write_text("Be kind.\n")
    session = replace(session_in(project, project), db=newest_db)
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        (name,) = connection.execute("SELECT session_id FROM session_message LIMIT 1").fetchone()
        connection.execute("DELETE FROM message WHERE session_id = ?", (name,))
    agents, claude, _ = agents_md.targets(str(project), replace(session, id=name), places)
    assert (agents.path.name, claude.path.name) == ("AGENTS.md", "CLAUDE.md")
    assert "older runtime reads" in agents.warning and "reads AGENTS.md only" in agents.warning
    assert "not this file" in claude.warning
    # Of what cannot be asked the older one is taken.
    newest_db.write_bytes(b"garbage" * 1_000)
    found = agents_md.targets(str(project), replace(session, id=name), places)
    assert [t.path.name for t in found] == ["CLAUDE.md", "AGENTS.md", "AGENTS.md"]


def test_what_opencode_is_told_not_to_read_is_told(project: Path, places: Places) -> None:
    target = root_of(project, replace(places, project=False))
    assert target.warning.startswith("OPENCODE_DISABLE_PROJECT_CONFIG is set")
    (project / "AGENTS.md").write_text("x\n")
    assert (
        "OPENCODE_DISABLE_PROJECT_CONFIG" in root_of(project, replace(places, project=False)).state
    )


def test_a_project_that_is_gone_cannot_be_written_to(tmp_path: Path, places: Places) -> None:
    target = root_of(tmp_path / "gone", places)
    assert target.problem == f"The folder {tmp_path}/gone is not there."
    with pytest.raises(Conflict, match="is not there"):
        agents_md.propose(target, "Text", END)
    assert agents_md.headings(target) == ()


@pytest.mark.parametrize(
    "scope",
    ["shop", "", "/a\0b", "/" + "x" * 5_000, "/a\nb/\x1b[31m", "//", "/tmp/../..", "/dev/null"],
)
def test_an_odd_scope_of_another_program_does_no_harm(scope: str, places: Places) -> None:
    found = agents_md.targets(scope, None, places)
    assert found[-1].path == places.config_dir / "AGENTS.md" and found[-1].everywhere
    assert all(target.problem for target in found[:-1])


def test_a_difference_of_a_huge_line_without_an_end_is_bearable(
    project: Path, places: Places
) -> None:
    (project / "AGENTS.md").write_bytes(b"x" * (MAX_FILE - 6))
    plan = agents_md.propose(root_of(project, places), "New.", END)
    assert len("\n".join(plan.diff)) < 20_000 and "more characters" in plan.diff[3]
    assert plan.after == b"x" * (MAX_FILE - 6) + b"\n\nNew."
    with pytest.raises(Conflict, match="could not be taken back"):
        agents_md.propose(root_of(project, places), "New..", END)


def test_the_root_of_the_disk_is_no_project(places: Places) -> None:
    assert [t.path for t in agents_md.targets("/", None, places)] == [
        places.config_dir / "AGENTS.md"
    ]


# What cannot be written ---------------------------------------------------------------------------


def test_what_is_no_text_file_of_a_bearable_size_is_not_touched(
    project: Path, places: Places, tmp_path: Path
) -> None:
    path = project / "AGENTS.md"

    def problem() -> str:
        return root_of(project, places).problem

    path.write_bytes(b"caf\xe9\n")
    assert problem() == f"{path} is not UTF-8 (at byte 3), so it is not touched."
    path.write_bytes("text\n".encode("utf-16-le"))
    assert "NUL" in problem()
    path.write_bytes(b"x" * (MAX_FILE + 1))
    assert "more than 250,000 bytes" in problem()
    path.write_bytes(b"x" * MAX_FILE)
    assert not problem()
    path.chmod(0o400)
    assert "write-protected" in problem()
    path.chmod(0o600)
    os.link(path, project / "other")
    assert "hard link" in problem()
    path.unlink()
    path.mkdir()
    assert "no regular file" in problem()
    path.rmdir()
    os.mkfifo(path)
    assert "no regular file" in problem()


def test_a_folder_that_may_not_be_written_is_told(
    open_folder: Path, as_stranger: Callable[[Callable[[], str]], str], places: Places
) -> None:
    (open_folder / "AGENTS.md").write_text("x\n")
    mine = as_stranger(lambda: root_of(open_folder, replace(places, home=open_folder)).problem)
    assert mine == f"{open_folder}/AGENTS.md is write-protected."
    (open_folder / "AGENTS.md").chmod(0o666)
    mine = as_stranger(lambda: root_of(open_folder, replace(places, home=open_folder)).problem)
    assert mine == f"The folder {open_folder} is write-protected."
    (open_folder / "AGENTS.md").chmod(0o000)
    mine = as_stranger(lambda: root_of(open_folder, replace(places, home=open_folder)).problem)
    assert "cannot be read: Permission denied" in mine


def test_links_are_followed_only_to_files_that_are_meant(
    project: Path, places: Places, tmp_path: Path, store: Store, settings: Settings
) -> None:
    path, claude, secret = project / "AGENTS.md", project / "CLAUDE.md", tmp_path / "secret.txt"
    secret.write_text("keep out\n")
    path.symlink_to(secret)
    assert "none of the files that can be proposed to" in root_of(project, places).problem
    path.unlink()
    path.symlink_to(project / "nowhere")
    assert "leads nowhere" in root_of(project, places).problem
    path.unlink()
    path.symlink_to(path)
    assert "leads nowhere" in root_of(project, places).problem
    path.unlink()
    claude.write_text("Be kind.\n")
    path.symlink_to("CLAUDE.md")
    target = root_of(project, places)
    assert (target.file, target.problem) == (claude, "")
    written(store, settings, target, "Be brief.")
    assert path.is_symlink() and claude.read_text() == "Be kind.\n\nBe brief.\n"
    assert secret.read_text() == "keep out\n"


def test_a_folder_that_is_a_link_out_of_the_worktree_is_refused(
    project: Path, places: Places, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "sub").symlink_to(outside)
    found = agents_md.targets(str(project), session_in(project / "sub", project), places)
    assert "leads out of" in the(found, project / "sub" / "AGENTS.md").problem
    # Nor does it make a link from the root to what is in it one that is meant.
    (outside / "AGENTS.md").write_text("theirs\n")
    (project / "AGENTS.md").symlink_to(outside / "AGENTS.md")
    found = agents_md.targets(str(project), session_in(project / "sub", project), places)
    assert "none of the files" in the(found, project / "AGENTS.md").problem
    (project / "AGENTS.md").unlink()
    # The worktree itself may be reached through one.
    (tmp_path / "link").symlink_to(project)
    assert not root_of(tmp_path / "link", places).problem


# The change ---------------------------------------------------------------------------------------

BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"New.\n"),
        (b"", b"New.\n"),
        (BOM, BOM + b"New.\n"),
        (b"One.\n", b"One.\n\nNew.\n"),
        (b"One.", b"One.\n\nNew."),
        (b"One.\r\nTwo.\r\n", b"One.\r\nTwo.\r\n\r\nNew.\r\n"),
        (b"One.\r\nTwo.", b"One.\r\nTwo.\r\n\r\nNew."),
        (BOM + b"One.\n\n\n", BOM + b"One.\n\nNew.\n\n\n"),
        ("Größe\u2028 und\x0c\n".encode(), "Größe\u2028 und\x0c\n\nNew.\n".encode()),
    ],
)
def test_every_byte_of_the_file_stays_and_its_line_ends_go_on(
    before: bytes | None, after: bytes, project: Path, places: Places
) -> None:
    path = project / "AGENTS.md"
    if before is not None:
        path.write_bytes(before)
    plan = agents_md.propose(root_of(project, places), "New.", END)
    assert plan.after == after and plan.before == before


def test_an_item_joins_the_list_before_it(project: Path, places: Places) -> None:
    (project / "AGENTS.md").write_text("# Rules\n\n- One\n\n# More\n")
    target = root_of(project, places)
    assert agents_md.propose(target, "- Two", "0").after == b"# Rules\n\n- One\n- Two\n\n# More\n"
    assert agents_md.propose(target, "Two", "0").after == b"# Rules\n\n- One\n\nTwo\n\n# More\n"


SECTIONS = """# Shop
<!-- # no heading
-->
Intro.
## Style
```python
# no heading
~~~
```
    ```
    # nor this
    ```
## Tests ##
#no heading
####### nor this
# End"""


def test_a_text_goes_to_the_end_of_a_headings_own_text_and_never_into_code(
    project: Path, places: Places
) -> None:
    (project / "AGENTS.md").write_text(SECTIONS)
    target = root_of(project, places)
    found = agents_md.headings(target)
    assert [(h.level, h.text) for h in found] == [
        (1, "Shop"),
        (2, "Style"),
        (2, "Tests"),
        (1, "End"),
    ]
    for heading, before in zip(found, ("## Style", "## Tests", "# End", ""), strict=True):
        after = agents_md.propose(target, "New.", heading.place).after.decode()
        assert after.replace("\n\nNew.\n\n", "\n").replace("\n\nNew.", "") == SECTIONS
        assert f"\n\nNew.\n\n{before}" in after or after.endswith("# End\n\nNew.")
    for place in ("4", "-1", "x", "99999999", "٣"):
        with pytest.raises(InvalidInput, match="not in the file any more"):
            agents_md.propose(target, "New.", place)


def test_underlined_headings_and_what_only_looks_like_one(project: Path, places: Places) -> None:
    text = (
        "---\ntitle: x\n# no heading\nname: y\n---\nShop\n====\nText.\n\nStyle\n---\n- item\n---\n\n---\n"
        "| a |\n---\n    code\n---\n## End # #\n"
    )
    (project / "AGENTS.md").write_text(text)
    target = root_of(project, places)
    assert [(h.level, h.text) for h in agents_md.headings(target)] == [
        (1, "Shop"), (2, "Style"), (2, "| a |"), (2, "End #")
    ]  # fmt: skip
    after = agents_md.propose(target, "New.", "0").after.decode()
    assert "Text.\n\nNew.\n\nStyle\n---\n" in after
    assert "---\n\nNew.\n\n## End" in agents_md.propose(target, "New.", "2").after.decode()


@pytest.mark.parametrize(
    "line", ["# " + " " * 240_000 + "x", "#" * 240_000, " " * 240_000, "- " * 120_000, "`" * 240_000,
             "# a" + " #" * 120_000, "x\n" * 120_000, "# x\n" * 60_000, "<!--" * 60_000, ">" * 240_000,
             "[" * 240_000, "- x\n" * 60_000, "---\n" * 60_000]
)  # fmt: skip
def test_a_hostile_file_is_looked_through_in_one_pass(
    line: str, project: Path, places: Places
) -> None:
    (project / "AGENTS.md").write_text(f"# One\n{line}\n")
    target = root_of(project, places)
    assert len(agents_md.headings(target)) <= 200
    with contextlib.suppress(Conflict):  # a fence or a comment that is never closed
        assert len("\n".join(agents_md.propose(target, "New.", END).diff)) < 20_000


@pytest.mark.parametrize(
    "end", ["```\ncode", "~~~~\ncode\n~~~", "<!-- open", "<pre>\nopen", "<script>", "<![CDATA[ x"]
)  # fmt: skip
def test_nothing_is_put_into_a_block_that_is_not_closed(
    end: str, project: Path, places: Places
) -> None:
    (project / "AGENTS.md").write_text(f"# One\n\n# Two\n{end}\n")
    target = root_of(project, places)
    with pytest.raises(Conflict, match="is not closed"):
        agents_md.propose(target, "New.", END)
    assert agents_md.propose(target, "New.", "0").after.startswith(b"# One\n\nNew.\n\n# Two")


@pytest.mark.parametrize(
    "before",
    [None, b"", b"One.\n", b"One.", b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\n5", b"x\n" * 4_000,
     SECTIONS.encode(), b"# A\n# B\n# C\n"],
)  # fmt: skip
@pytest.mark.parametrize("place", [END, "0"])
def test_the_difference_is_exactly_what_is_written(
    before: bytes | None, place: str, project: Path, places: Places
) -> None:
    path = project / "AGENTS.md"
    if before is not None:
        path.write_bytes(before)
    target = root_of(project, places)
    if place == "0" and not agents_md.headings(target):
        return
    plan = agents_md.propose(target, "New.\n\n\tAnd more.", place)
    assert patched(before, plan.diff) == plan.after


PIECES = st.sampled_from(
    ["# A", "## B", "text", "", "- item", "```", "~~~", "<!-- c", "-->", "---", "===", "    code", "\ufeff",
     " ", "x" * 3_000, "\u2028", "```py"]
)  # fmt: skip
FILES = st.tuples(
    st.lists(PIECES, max_size=12), st.sampled_from(["\n", "\r\n"]), st.booleans()
).map(lambda made: (made[1].join(made[0]) + made[1] * made[2]).encode())


@hypothesis.given(before=FILES, number=st.integers(-1, 4))
def test_whatever_the_file_nothing_of_it_is_lost(before: bytes, number: int) -> None:
    place = END if number < 0 else str(number)
    try:
        after = proposal._with(before, "- New.\n\n# More", place, Path("/x"))
    except (InvalidInput, Conflict):
        return
    diff = proposal.difference(Path("/x"), before, after)
    if b"\r" not in before and b"x" * 3_000 not in before:
        assert patched(before, diff) == after
    kept = after.decode()
    if before.decode().removeprefix("\ufeff").strip():
        # Every line is still there, in order, and the file ends as it did.
        for line in before.decode().split("\n"):
            assert line.rstrip("\r") in kept
            kept = kept[kept.index(line.rstrip("\r")) + len(line.rstrip("\r")) :]
        assert after.endswith(b"\n") is before.endswith(b"\n")
    found, _ = proposal._sections(after.decode())
    # What was put there is a heading of the file, so it stands in no code and in no comment.
    assert "More" in [text for _, _, text in found]


def test_credentials_around_are_masked_and_one_in_the_text_is_refused(
    project: Path, places: Places
) -> None:
    (project / "AGENTS.md").write_text(f"Key: {KEY}\n")
    target = root_of(project, places)
    plan = agents_md.propose(target, "New.", END)
    assert KEY not in "\n".join(plan.diff) and "masked" in plan.diff[3]
    assert KEY.encode() in plan.after
    with pytest.raises(SecretRefused) as refused:
        agents_md.propose(target, f"Use {KEY}", END)
    assert KEY not in refused.value.message


def test_a_text_that_hides_something_is_refused_or_told(project: Path, places: Places) -> None:
    target = root_of(project, places)
    for bad, name in (
        ("a\x1b[2Kb", "U+001B"),
        ("a\rb", "U+000D"),
        ("a\0", "U+0000"),
        ("\x9b", "U+009B"),
    ):
        with pytest.raises(InvalidInput, match=name.replace("+", r"\+")):
            agents_md.propose(target, bad, END)
    for bad in ("", " \n", "x" * 8_001, "\ud800"):
        with pytest.raises(InvalidInput):
            agents_md.propose(target, bad, END)
    plan = agents_md.propose(target, "a\u200bb\u202ec\U000e0041", END)
    assert "U+200B, U+202E, U+E0041" in plan.notes[0]
    assert not agents_md.propose(target, "👩\u200d💻", END).notes
    assert agents_md.propose(target, "a\r\nb\r\n", END).after == b"a\nb\n"
    (project / "AGENTS.md").write_bytes(b"One.\r\na\r\nb\r\n")
    notes = agents_md.propose(root_of(project, places), "a\nb", END).notes
    assert notes[0] == "The file holds this text already."


# The write ----------------------------------------------------------------------------------------


def test_a_write_keeps_a_backup_and_a_receipt_and_can_be_taken_back(
    project: Path, places: Places, store: Store, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    before = BOM + b"# Shop\r\n\r\nRules."
    path.write_bytes(before)
    path.chmod(0o640)
    number = written(store, settings, root_of(project, places), "New.")
    assert path.read_bytes() == BOM + b"# Shop\r\n\r\nRules.\r\n\r\nNew."
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(project) == [".git", "AGENTS.md"] or set(os.listdir(project)) == {
        ".git", "AGENTS.md"
    }  # fmt: skip
    (backup,) = settings.backups_dir.iterdir()
    assert backup.read_bytes() == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.backups_dir.stat().st_mode) == 0o700

    receipt = receipts.get(store, number)
    assert (receipt.action, receipt.actor) == ("instructions", "tester")
    assert receipt.summary == f"Added 3 lines to {path}"
    change = agents_md.change_of(receipt, settings.backups_dir, settings.places)
    assert change.file == path and change.backup == backup and change.state == "written"
    assert change.origin["session"] == "ses_a" and not change.interrupted
    assert change.diff[-2:] == ("+New.", "\\ No newline at end of file")

    back = agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert agents_md.change_of(receipt, settings.backups_dir, settings.places).state == "former"
    taken = receipts.get(store, back)
    assert taken.summary == f"Took back what was written to {path}"
    assert agents_md.change_of(taken, settings.backups_dir, settings.places).takes_back == number
    # Taking back is a write like any other, so it can be taken back as well.
    agents_md.take_back(store, settings.backups_dir, settings.places, taken, "tester")
    assert path.read_bytes().endswith(b"New.")


def test_a_file_that_was_not_there_is_removed_again(
    project: Path, places: Places, store: Store, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    number = written(store, settings, root_of(project, places), "New.")
    assert path.read_text() == "New.\n" and not settings.backups_dir.exists()
    receipt = receipts.get(store, number)
    back = agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert not path.exists()
    (backup,) = settings.backups_dir.iterdir()
    assert backup.read_text() == "New.\n"
    agents_md.take_back(
        store, settings.backups_dir, settings.places, receipts.get(store, back), "tester"
    )
    assert path.read_text() == "New.\n"


def test_a_file_that_changed_is_not_written_and_the_new_difference_is_given(
    project: Path, places: Places, store: Store, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    target = root_of(project, places)
    plan = agents_md.propose(target, "New.", END)
    path.write_text("Other.\n")
    with pytest.raises(PlanChanged) as refused:
        agents_md.write(
            store, settings.backups_dir, target, "New.", END, plan.fingerprint, "t", "global", {}
        )
    assert path.read_text() == "Other.\n"
    assert "-Other" not in refused.value.details["plan"].diff
    assert " Other." in refused.value.details["plan"].diff
    assert receipts.listing(store) == [] and not settings.backups_dir.exists()


def test_a_file_that_was_changed_since_is_not_taken_back(
    project: Path, places: Places, store: Store, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    receipt = receipts.get(store, written(store, settings, root_of(project, places), "New."))
    path.write_text("One.\n\nNew, and mine.\n")
    with pytest.raises(Conflict, match=r"changed since.*by hand.*former text is kept in"):
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert path.read_text() == "One.\n\nNew, and mine.\n"
    path.unlink()
    with pytest.raises(Conflict, match="not there any more"):
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert not path.exists()


def test_a_backup_that_is_gone_or_another_is_not_put_back(
    project: Path, places: Places, store: Store, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    receipt = receipts.get(store, written(store, settings, root_of(project, places), "New."))
    (backup,) = settings.backups_dir.iterdir()
    backup.write_text("Something else.\n")
    with pytest.raises(Conflict, match="is not what was kept"):
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    backup.unlink()
    with pytest.raises(Conflict, match="is not what was kept"):
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert path.read_text() == "One.\n\nNew.\n"


def test_a_forged_receipt_reaches_no_other_file(
    project: Path, store: Store, settings: Settings, tmp_path: Path
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("keep\n")
    (project / "AGENTS.md").symlink_to(victim)
    digest = writing._digest(b"keep\n")
    forged: tuple[dict[str, Any], ...] = (
        {"file": str(victim), "diff": [], "was": None, "is": digest},
        {"file": str(project / "AGENTS.md"), "diff": [], "was": None, "is": digest},
        {"file": "AGENTS.md", "diff": [], "was": None, "is": digest},
        {"file": str(victim), "diff": 3},
        {"file": f"{project}/\0", "diff": []},
        {"file": str(victim), "diff": [], "backup": "../../x", "was": "a", "is": digest},
        {},
    )
    for detail in forged:
        with store.writing():
            number = receipts.write(store, "instructions", "x", "forged", detail, 1)
        with pytest.raises(MemoryAppError):
            forged_one = receipts.get(store, number)
            agents_md.take_back(store, settings.backups_dir, settings.places, forged_one, "tester")
        assert victim.read_text() == "keep\n"


def test_the_difference_that_is_taken_back_is_that_of_the_file(
    project: Path, places: Places, store: Store, settings: Settings, tmp_path: Path
) -> None:
    victim = tmp_path / "other" / "AGENTS.md"
    victim.parent.mkdir()
    victim.write_text(f"precious {KEY}\n")
    detail = {
        "file": str(victim), "diff": ["--- a", "+++ b", "@@ -0,0 +1,1 @@", "+harmless"], "was": None,
        "is": writing._digest(victim.read_bytes()),
    }  # fmt: skip

    def forged(scope: str) -> receipts.Receipt:
        with store.writing():
            more = {**detail, "scope": scope}
            number = receipts.write(store, "instructions", "x", "forged", more, 1)
        return receipts.get(store, number)

    for scope in (str(project), "/", "global", ""):
        receipt = forged(scope)
        change = agents_md.change_of(receipt, settings.backups_dir, places)
        assert change.state == "unknown" and f"{victim} is no instruction file" in change.told
        with pytest.raises(Conflict, match="is no instruction file"):
            agents_md.take_back(store, settings.backups_dir, places, receipt, "tester")
    assert victim.exists()
    # The folder it names itself: what would go is shown, and not what the receipt claims.
    change = agents_md.change_of(forged(str(victim.parent)), settings.backups_dir, places)
    assert change.state == "written" and change.measured and "removes it whole" in change.told
    assert change.diff[-1].startswith("+precious ghp_…[masked") and "harmless" not in str(
        change.diff
    )


def test_of_two_writers_at_once_one_gets_the_conflict(
    project: Path, places: Places, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    target = root_of(project, places)
    plan = agents_md.propose(target, "New.", END)
    start = threading.Barrier(6)
    results: list[str] = []

    def work() -> None:
        with Store(settings.db).session() as own:
            start.wait()
            try:
                agents_md.write(
                    own,
                    settings.backups_dir,
                    target,
                    "New.",
                    END,
                    plan.fingerprint,
                    "t",
                    "global",
                    {},
                )
                results.append("written")
            except PlanChanged:
                results.append("refused")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["refused"] * 5 + ["written"]
    assert path.read_text() == "One.\n\nNew.\n"
    assert len(list(settings.backups_dir.iterdir())) == 1


def test_a_file_that_came_to_be_there_is_not_overwritten(
    project: Path, places: Places, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = root_of(project, places)
    real = writing._appear

    def late(scratch: Path, file: Path) -> None:
        file.write_text("theirs\n")
        real(scratch, file)

    monkeypatch.setattr(writing, "_appear", late)
    with pytest.raises(PlanChanged) as changed:
        written(store, settings, target, "New.")
    assert changed.value.details["plan"].after == b"theirs\n\nNew.\n"
    assert target.file.read_text() == "theirs\n"
    assert receipts.listing(store) == []
    assert set(os.listdir(project)) == {".git", "AGENTS.md"}


@pytest.mark.parametrize("before", [None, "One.\n"])
def test_an_edit_while_the_store_is_waited_for_is_not_overwritten(
    project: Path, places: Places, store: Store, settings: Settings, before: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = project / "AGENTS.md"
    if before:
        path.write_text(before)
    real = receipts.write

    def late(*args: Any) -> int:
        path.write_text("An hour of work.\n")
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(receipts, "write", late)
        with pytest.raises(PlanChanged) as changed:
            written(store, settings, root_of(project, places), "New.")
    assert changed.value.details["plan"].before == b"An hour of work.\n"
    assert path.read_text() == "An hour of work.\n"
    assert receipts.listing(store) == [] and list(settings.backups_dir.glob("*")) == []

    path.unlink()
    if before:
        path.write_text(before)
    receipt = receipts.get(store, written(store, settings, root_of(project, places), "New."))
    kept = set(settings.backups_dir.glob("*"))
    monkeypatch.setattr(receipts, "write", late)
    with pytest.raises(Conflict, match="was changed since"):
        agents_md.take_back(store, settings.backups_dir, settings.places, receipt, "tester")
    assert path.read_text() == "An hour of work.\n"
    assert receipts.listing(store) == [receipt] and set(settings.backups_dir.glob("*")) == kept
    assert set(os.listdir(project)) == {".git", "AGENTS.md"}


@pytest.mark.parametrize(
    ("before", "text", "place"),
    [
        ("- item\n", "   # Rule\n\nMore.", "end"),  # it would be part of the item
        ("# A\n\n   # B\n", "* Rule\nmore", "0"),  # so would what follows
        ("---\n# A\n", "Rule\n\n---", "end"),  # what is above would be settings
        ("# A\n<div>\n- a\n", "- b\n# Rule", "end"),  # what looks like an item is none
    ],
)
def test_a_text_that_makes_other_headings_is_refused(
    project: Path, places: Places, before: str, text: str, place: str
) -> None:
    (project / "AGENTS.md").write_text(before)
    target = root_of(project, places)
    with pytest.raises(Conflict, match="Markdown would read a heading"):
        agents_md.propose(target, text, place)
    assert agents_md.propose(target, "Rule.", place).added == 2


@pytest.mark.parametrize(
    "text",
    ["Run:\n```\nmake", "<!-- a", "~~~\n```\n```", "- a\n  ```\n  b", "---\n```\nmake\n---"],
)
def test_a_text_that_would_swallow_what_follows_is_refused(
    project: Path, places: Places, text: str
) -> None:
    (project / "AGENTS.md").write_text("# A\n\none\n\n# B\n")
    target = root_of(project, places)
    if text.startswith("- a"):
        # The end of its item closes it.
        agents_md.propose(target, text, "0")
        return
    with pytest.raises(InvalidInput, match="is not closed"):
        agents_md.propose(target, text, "0")


def test_what_is_counted_is_what_the_difference_adds(project: Path, places: Places) -> None:
    (project / "AGENTS.md").write_text("# A\n\none\n\n# B\n")
    plan = agents_md.propose(root_of(project, places), "+ New.", "0")
    assert plan.added == sum(line[0] == "+" for line in plan.diff[3:]) == 2


def test_the_headings_are_masked(project: Path, places: Places) -> None:
    (project / "AGENTS.md").write_text(f"# Use {KEY}\n")
    (heading,) = agents_md.headings(root_of(project, places))
    assert heading.text == "Use ghp_…[masked 40]"


@pytest.mark.parametrize("folder", ["/a\0b", "/\ud800"])
def test_a_folder_whose_name_is_none_gets_words(project: Path, places: Places, folder: str) -> None:
    session = replace(session_in(project, project), directory=folder)
    found = agents_md.targets(str(project), session, places)
    assert the(found, project / "AGENTS.md").problem == ""
    assert [t.where for t in found if "No folder can have that name" in t.problem] == [
        "The folder of the session"
    ]
    assert "No folder can have" in agents_md.targets(folder, None, places)[0].problem


def test_another_name_of_a_file_is_told(project: Path, places: Places) -> None:
    (project / "AGENTS.md").write_text("One.\n")
    os.link(project / "AGENTS.md", project / "other.md")
    assert "another name" in root_of(project, places).problem


def test_without_a_place_for_the_backup_nothing_is_written(
    project: Path, places: Places, store: Store, settings: Settings
) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings.backups_dir.write_text("in the way")
    with pytest.raises(Unreadable, match="No backup can be kept"):
        written(store, settings, root_of(project, places), "New.")
    assert path.read_text() == "One.\n"


def test_a_file_that_cannot_be_written_after_all_leaves_no_receipt(
    open_folder: Path, as_stranger: Callable[[Callable[[], str]], str], settings: Settings,
    places: Places,
) -> None:  # fmt: skip
    data = open_folder / "data"
    folder = open_folder / "project"
    for one in (data, folder):
        one.mkdir()
        one.chmod(0o777)
    (folder / "AGENTS.md").write_text("One.\n")
    (folder / "AGENTS.md").chmod(0o666)
    own = replace(settings, data_dir=data, db=data / "memory.db")

    def work() -> str:
        target = root_of(folder, replace(places, home=folder))
        with Store(own.db).session() as store:
            try:
                written(store, own, target, "New.")
            except Conflict as error:
                return (
                    f"{error.message} {receipts.listing(store)} {list(own.backups_dir.iterdir())}"
                )
        return "written"

    # Another user's file in a folder where all may write: its owner could not be kept.
    told = as_stranger(work)
    if os.geteuid() == 0:
        assert told == (
            f"{folder}/AGENTS.md cannot be written: Operation not permitted. Nothing was changed."
            " [] []"
        )
        assert (folder / "AGENTS.md").read_text() == "One.\n"
        assert os.listdir(folder) == ["AGENTS.md"]
