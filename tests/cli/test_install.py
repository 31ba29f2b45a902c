"""`install` and `uninstall`: the configuration is changed where it must be, and put back to the byte."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp import jsonc
from webapp.errors import Conflict, InvalidInput, Unreadable
from webapp.integration import installation, token
from webapp.integration.commands import texts
from webapp.integration.installation import apply, plan_install, plan_uninstall
from webapp.integration.pieces import Wanted
from webapp.settings import Settings, load

COMMANDS = texts(["/opt/opencode memory", "--port", "5000"], "opencode-memory-" + "0" * 32)
COMMENTED = '{\n  // mine\n  "theme": "x", // why\n  "agent": {"build": {"model": "a/b"}},\n}\n'


@pytest.fixture
def config(settings: Settings) -> Path:
    folder = settings.places.config_dir
    folder.mkdir(parents=True)
    return folder / "opencode.json"


def install(settings: Settings, project: Path | None = None, **wanted: bool) -> Any:
    return apply(settings, plan_install(settings, Wanted(**wanted), project, COMMANDS))


def uninstall(settings: Settings, project: Path | None = None) -> Any:
    return apply(settings, plan_uninstall(settings, project))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_new_configuration_has_every_piece_and_goes_again(settings: Settings) -> None:
    folder = settings.places.config_dir
    install(settings, inject=True)
    made = json.loads((folder / "opencode.json").read_text())
    assert made["mcp"]["memory"]["command"][-1] == "mcp"
    assert made["agent"]["compaction"]["model"] == "opencode-memory/pointer"
    options = made["provider"]["opencode-memory"]["options"]
    assert options["baseURL"] == "http://127.0.0.1:4748/v1"
    assert Path(options["apiKey"][6:-1]).read_text().strip() == token.read(settings)
    assert made["instructions"][0].startswith("http://127.0.0.1:4748/inject?scope=global&k=")
    assert {p.name for p in (folder / "command").iterdir()} == {f"{name}.md" for name in COMMANDS}
    for path in (installation.manifest_path(settings), token.path(settings)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    uninstall(settings)
    assert list(folder.iterdir()) == []
    assert not installation.manifest_path(settings).exists()


def test_comments_stay_and_a_second_time_there_is_nothing_to_do(
    settings: Settings, config: Path
) -> None:
    config.write_text(COMMENTED)
    config.chmod(0o640)
    install(settings)
    text = config.read_text()
    assert text.startswith('{\n  // mine\n  "theme": "x", // why\n')
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    again = plan_install(settings, Wanted(), None, COMMANDS)
    assert again.changes == ()
    uninstall(settings)
    assert config.read_text() == COMMENTED and not (config.parent / "command").exists()
    backups = list(settings.backups_dir.iterdir())
    assert [p.read_text() for p in backups if p.read_text() == COMMENTED] == [COMMENTED]
    assert {stat.S_IMODE(p.stat().st_mode) for p in backups} == {0o600}


_ODD = ["", " ", "\n", "// only\n", "{}", "{}\n", "{ }",
        '\ufeff{"a": 1}', '{"a": 1,}\r\n', '{\r\n\t"a": 1\r\n}',
        '{"mcp": {}}', '{"mcp": {"x": {}},\n"agent": {"compaction": {"prompt": "p"}}}',
        '{"instructions": ["a.md"], "provider": {"p": {}}}', '{"instructions": []}',
        '{"$schema": "https://opencode.ai/config.json"}',
        '{"agent": {"compaction": {}}} // end']  # fmt: skip


@given(
    st.sampled_from(_ODD)
    | st.dictionaries(
        st.sampled_from(["mcp", "agent", "provider", "theme", "é"]),
        st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.text(max_size=3), st.integers()))
    ).map(lambda value: json.dumps(value, indent=3)),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
@hypothesis_settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_uninstall_puts_every_byte_back(
    settings: Settings, text: str, compaction: bool, inject: bool, edited: bool
) -> None:
    config = settings.places.config_dir / "opencode.jsonc"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_bytes(text.encode())
    install(settings, compaction=compaction, inject=inject)
    assert jsonc.loads(config.read_text())["mcp"]["memory"]["type"] == "local"
    install(settings, compaction=not compaction, inject=not inject)
    made = config.read_bytes().decode()
    if edited:
        config.write_bytes(jsonc.put(made, ("mine",), 7).encode())
    uninstall(settings)
    if not edited:
        assert config.read_bytes() == text.encode()
        return
    left = jsonc.loads(config.read_bytes().decode())
    assert left.pop("mine") == 7
    left.pop("$schema", None)
    before = jsonc.loads(text)
    before.pop("$schema", None)
    assert left == before


def test_what_is_the_persons_own_is_not_overwritten(settings: Settings, config: Path) -> None:
    for text, place, way in (
        (
            '{"mcp": {"memory": {"type": "remote", "url": "http://x"}}}',
            "mcp.memory",
            "another name",
        ),
        (
            '{"agent": {"compaction": {"model": "anthropic/haiku"}}}',
            "agent.compaction.model",
            "--no-compaction",
        ),
        (
            '{"provider": {"opencode-memory": {"npm": "x"}}}',
            "provider.opencode-memory",
            "--no-compaction",
        ),
    ):
        config.write_text(text)
        before = tree(config.parent)
        with pytest.raises(Conflict, match=place) as told:
            install(settings)
        assert way in told.value.message and str(config) in told.value.message
        assert tree(config.parent) == before and not settings.data_dir.exists()
    config.write_text('{"agent": {"compaction": {"model": "anthropic/haiku"}}}')
    install(settings, compaction=False)
    assert json.loads(config.read_text())["agent"]["compaction"]["model"] == "anthropic/haiku"


def test_a_piece_of_ones_own_in_the_other_file_counts_too(settings: Settings, config: Path) -> None:
    config.write_text('{"agent": {"compaction": {"model": "a/b"}}}')
    config.with_suffix(".jsonc").write_text("{}")
    with pytest.raises(Conflict, match=r"agent\.compaction\.model in .*opencode\.json is your own"):
        install(settings)


def test_a_command_of_ones_own_stays_and_a_changed_one_too(
    settings: Settings, config: Path
) -> None:
    own = config.parent / "command" / "recall.md"
    own.parent.mkdir()
    own.write_text("mine")
    plan = plan_install(settings, Wanted(), None, COMMANDS)
    assert any("recall.md is your own" in note for note in plan.notes)
    apply(settings, plan)
    changed = own.with_name("memory.md")
    changed.write_text(changed.read_text() + "more")
    gone = plan_uninstall(settings, None)
    assert any("memory.md was changed" in note for note in gone.notes)
    apply(settings, gone)
    assert own.read_text() == "mine" and changed.read_text().endswith("more")
    assert {p.name for p in own.parent.iterdir()} == {"recall.md", "memory.md"}


def test_another_port_replaces_the_older_pieces(settings: Settings, config: Path) -> None:
    config.write_text(COMMENTED)
    install(settings, inject=True)
    moved = load({"port": "5005"}, {"HOME": str(settings.places.home)})
    install(moved, inject=True)
    text = config.read_text()
    assert "4748" not in text and "http://127.0.0.1:5005/v1" in text and text.count("/inject?") == 1
    uninstall(moved)
    assert config.read_text() == COMMENTED


def test_without_a_manifest_our_own_is_known_by_what_it_is(
    settings: Settings, config: Path
) -> None:
    config.write_text('{"theme": "x"}')
    install(settings, inject=True)
    installation.manifest_path(settings).write_text("{broken")
    uninstall(settings)
    assert json.loads(config.read_text()).get("theme") == "x"
    assert "memory" not in config.read_text().replace("opencode-memory-", "")


def test_a_link_stays_a_link(settings: Settings, config: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "opencode.json"
    real.parent.mkdir()
    real.write_text("{}")
    config.symlink_to(real)
    install(settings)
    assert config.is_symlink() and "memory" in real.read_text()
    uninstall(settings)
    assert config.is_symlink() and real.read_text() == "{}"


@pytest.mark.parametrize(
    "text", ['{"a": 1', "[]", "7", '{"mcp": 7}', '{"mcp": []}', '{"instructions": 7}']
)
def test_what_cannot_be_read_or_changed_is_said_and_left(
    settings: Settings, config: Path, text: str
) -> None:
    config.write_text(text)
    with pytest.raises(InvalidInput, match=str(config)):
        install(settings, inject=True)
    assert config.read_text() == text


def test_bytes_that_are_no_text_a_folder_and_a_dangling_link_are_said(
    settings: Settings, config: Path
) -> None:
    config.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InvalidInput, match="not UTF-8"):
        install(settings)
    config.unlink()
    config.mkdir()
    with pytest.raises(Unreadable, match="no regular file"):
        install(settings)
    config.rmdir()
    config.symlink_to("nowhere")
    with pytest.raises(Unreadable, match="link to a file that is not there"):
        install(settings)


def test_a_file_that_changed_meanwhile_is_left(settings: Settings, config: Path) -> None:
    config.write_text("{}")
    plan = plan_install(settings, Wanted(), None, COMMANDS)
    config.write_text('{"a": 1}')
    with pytest.raises(Conflict, match="changed meanwhile"):
        apply(settings, plan)
    assert config.read_text() == '{"a": 1}' and not (config.parent / "command").exists()


def test_if_one_file_cannot_be_written_all_are_as_before(settings: Settings, config: Path) -> None:
    config.write_text("{}")
    (config.parent / "command").write_text("a file in the folder's place")
    before = tree(config.parent)
    with pytest.raises(Unreadable):
        install(settings)
    assert tree(config.parent) == before
    assert not installation.manifest_path(settings).exists()


def test_for_a_project_it_is_the_projects_own_file(settings: Settings, tmp_path: Path) -> None:
    project = tmp_path / "shop"
    (project / ".git").mkdir(parents=True)
    before = tree(project)
    install(settings, project, inject=True)
    made = json.loads((project / "opencode.json").read_text())
    assert f"scope={project}" in made["instructions"][0]
    assert (project / ".opencode" / "command" / "memory.md").exists()
    assert not settings.places.config_dir.exists()
    uninstall(settings, project)
    assert tree(project) == before


def run(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webapp", *args], cwd=home, text=True, capture_output=True,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_on_the_command_line_it_asks_and_without_a_terminal_says_how(tmp_path: Path) -> None:
    done = run(tmp_path, "install")
    assert done.returncode == 1 and "+++ " in done.stdout and "add --yes" in done.stdout
    assert not (tmp_path / ".config").exists() and not (tmp_path / ".local").exists()
    done = run(tmp_path, "install", "--yes", "--no-commands", "--port", "5001", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["applied"] is True and len(told["changes"]) == 1
    made = (tmp_path / ".config" / "opencode" / "opencode.json").read_text()
    assert "127.0.0.1:5001/v1" in made and '"--port"' in made
    assert run(tmp_path, "install", "--yes", "--no-commands", "--port", "5001").stdout.startswith(
        "OpenCode is connected; there is nothing to write."
    )
    assert run(tmp_path, "uninstall", "--yes").returncode == 0
    assert not list((tmp_path / ".config" / "opencode").iterdir())
    assert "nothing of ours" in run(tmp_path, "uninstall").stdout


def test_two_at_once_leave_one_whole_configuration(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "webapp", "install", "--yes"]
    env = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    started = [
        subprocess.Popen(
            words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    for process in started:
        process.communicate(timeout=60)
    codes = [process.returncode for process in started]
    assert codes.count(0) >= 1 and set(codes) <= {0, 1}
    made = json.loads((tmp_path / ".config" / "opencode" / "opencode.json").read_text())
    assert list(made["mcp"]) == ["memory"]
    assert run(tmp_path, "uninstall", "--yes").returncode == 0
    assert not list((tmp_path / ".config" / "opencode").iterdir())


@pytest.mark.parametrize("keep", ["", '{\n  // c\n  "mcp": {"o": {}}, // x\n}\n', '{"a": 1}'])
def test_without_the_data_folder_nothing_of_ours_is_left(
    settings: Settings, config: Path, keep: str
) -> None:
    if keep:
        config.write_text(keep)
    install(settings, inject=True)
    shutil.rmtree(settings.data_dir)
    (config.parent / "command" / "mine.md").write_text("my own")
    recall = config.parent / "command" / "recall.md"
    recall.write_text(recall.read_text() + "and more\n")
    uninstall(settings)
    assert {p.name for p in (config.parent / "command").iterdir()} == {"mine.md", "recall.md"}
    if keep:
        assert config.read_text() == keep


@pytest.mark.parametrize("kind", ["hard link", "write-protected"])
def test_a_file_that_a_write_would_part_or_that_is_protected_is_left(
    settings: Settings, config: Path, tmp_path: Path, kind: str
) -> None:
    config.write_text("{}")
    if kind == "hard link":
        (tmp_path / "other").hardlink_to(config)
    else:
        config.chmod(0o444)
    with pytest.raises(Conflict, match=kind):
        install(settings)
    assert config.read_text() == "{}" and not (config.parent / "command").exists()


def test_a_manifest_that_somebody_wrote_to_removes_nothing_but_ours(
    settings: Settings, config: Path, tmp_path: Path
) -> None:
    config.write_text(COMMENTED)
    install(settings)
    own = [tmp_path / "own.md", config.parent / "command" / "own.md"]
    for path in own:
        path.write_text("mine")
    told = json.loads(installation.manifest_path(settings).read_text())
    (record,) = told["configs"].values()
    digest = hashlib.sha256(b"mine").hexdigest()[:32]
    record["commands"] |= {str(path): digest for path in own} | {"/": "x", "relative": digest}
    installation.manifest_path(settings).write_text(json.dumps(told))
    uninstall(settings)
    assert [path.read_text() for path in own] == ["mine", "mine"]
    assert [path.name for path in own[1].parent.iterdir()] == ["own.md"]
