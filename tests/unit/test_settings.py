"""Settings: one table, five sources, a plain error that names the setting and the source."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from webapp.errors import InvalidInput
from webapp.settings import PLUGIN, PREFIX, TABLE, Settings, load

DEFAULTS = {
    "host": "127.0.0.1", "port": 4748, "trash_days": 30, "inline_output_max_bytes": 50_000,
    "retrieval": True,
    "retention_days": 0, "keep_recent": 10, "max_sessions": 0, "mask": True, "opencode_db": None,
    "auto_export": "compacted", "auto_sweep": True, "reflection": False, "reflection_url": None,
    "reflection_model": None, "reflection_key_file": None, "max_lessons": 3, "transcript_chars": 8000,
}  # fmt: skip


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with a home folder and nothing else."""
    (tmp_path / "home").mkdir()
    return {"HOME": str(tmp_path / "home"), "USER": "tester"}


def config(env: dict[str, str], text: str) -> Path:
    """Writes our config.toml."""
    path = Path(env["HOME"], ".config", "opencode-memory", "config.toml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def opencode(env: dict[str, str], text: str, name: str = "opencode.json") -> Path:
    """Writes OpenCode's global configuration."""
    path = Path(env["HOME"], ".config", "opencode", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def plugin(env: dict[str, str], options: dict[str, Any], name: str = PLUGIN) -> Path:
    """Writes a configuration of OpenCode in which the plugin has options."""
    return opencode(env, json.dumps({"plugin": ["other", [name, options]]}))


# --- defaults and order ---------------------------------------------------------------------------


def test_without_any_source_every_setting_has_its_default(env: dict[str, str]) -> None:
    found = load({}, env)
    assert {name: getattr(found, name) for name in DEFAULTS} == DEFAULTS
    data = Path(env["HOME"], ".local/share/opencode-memory")
    assert (found.data_dir, found.db) == (data, data / "memory.db")
    assert found.transcripts_dir == data / "transcripts"
    assert found.opencode_dir == Path(env["HOME"], ".local/share/opencode")
    assert found.user == "tester"
    assert set(found.origins.values()) == {"default"}


def test_every_row_of_the_table_is_a_field_with_an_origin_and_a_help(env: dict[str, str]) -> None:
    names = [row.name for row in TABLE]
    assert set(names) <= {field.name for field in fields(Settings)}
    assert set(load({}, env).origins) == set(names)
    assert all(row.help.endswith(".") for row in TABLE)
    assert len(set(names)) == len(names)


def test_a_flag_beats_the_environment_beats_the_file_beats_the_plugin_beats_the_default(
    env: dict[str, str],
) -> None:
    seen: list[tuple[int, str]] = []

    def look(flags: dict[str, Any]) -> None:
        found = load(flags, env)
        seen.append((found.keep_recent, found.origins["keep_recent"]))

    look({})
    plugin_path = plugin(env, {"keepRecent": 1})
    look({})
    config_path = config(env, "keep_recent = 2")
    look({})
    env["OPENCODE_MEMORY_KEEP_RECENT"] = "3"
    look({})
    look({"keep_recent": 4})
    look({"keep_recent": None})
    assert seen == [
        (10, "default"), (1, str(plugin_path)), (2, str(config_path)),
        (3, "OPENCODE_MEMORY_KEEP_RECENT"), (4, "--keep-recent"),
        (3, "OPENCODE_MEMORY_KEEP_RECENT"),
    ]  # fmt: skip


def test_an_empty_variable_is_no_value(env: dict[str, str]) -> None:
    env["OPENCODE_MEMORY_PORT"] = ""
    assert load({}, env).port == 4748


def test_no_variable_of_the_machine_is_seen(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_MEMORY_PORT", "1")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    found = load({}, env)
    assert found.port == 4748
    assert found.data_dir.is_relative_to(env["HOME"])


def test_without_a_given_environment_that_of_the_process_is_read(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**env, "OPENCODE_MEMORY_PORT": "5000"}.items():
        monkeypatch.setenv(name, value)
    assert load().port == 5000


# --- paths ----------------------------------------------------------------------------------------


def test_the_xdg_folders_are_used(env: dict[str, str], tmp_path: Path) -> None:
    env["XDG_DATA_HOME"] = str(tmp_path / "data")
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    path = tmp_path / "config" / "opencode-memory" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("port = 5001")
    found = load({}, env)
    assert found.db == tmp_path / "data" / "opencode-memory" / "memory.db"
    assert found.opencode_dir == tmp_path / "data" / "opencode"
    assert found.port == 5001


def test_the_database_follows_the_data_folder_unless_it_is_set(
    env: dict[str, str], tmp_path: Path
) -> None:
    assert load({"data_dir": tmp_path / "d"}, env).db == tmp_path / "d" / "memory.db"
    both = load({"data_dir": tmp_path / "d", "db": str(tmp_path / "x.db")}, env)
    assert (both.db, both.transcripts_dir) == (tmp_path / "x.db", tmp_path / "d" / "transcripts")
    env["OPENCODE_MEMORY_DB"] = str(tmp_path / "y.db")
    assert load({}, env).db == tmp_path / "y.db"


def test_a_relative_path_and_a_tilde_become_absolute(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", env["HOME"])
    assert load({"db": "here.db"}, env).db == tmp_path / "here.db"
    assert load({"db": "~/there.db"}, env).db == Path(env["HOME"], "there.db")


def test_opencodes_databases_are_found_with_those_of_other_channels(env: dict[str, str]) -> None:
    found = load({}, env)
    assert found.opencode_databases() == []
    folder = found.opencode_dir
    folder.mkdir(parents=True)
    for name in (
        "opencode-dev.db",
        "opencode-beta.db",
        "opencode.db",
        "opencode.db-wal",
        "other.db",
    ):
        (folder / name).touch()
    (folder / "opencode-folder.db").mkdir()
    assert [path.name for path in found.opencode_databases()] == [
        "opencode.db", "opencode-beta.db", "opencode-dev.db",
    ]  # fmt: skip
    (folder / "opencode.db").unlink()
    assert [path.name for path in found.opencode_databases()] == [
        "opencode-beta.db", "opencode-dev.db",
    ]  # fmt: skip


def test_a_database_of_opencode_that_is_set_is_the_only_one(
    env: dict[str, str], tmp_path: Path
) -> None:
    folder = load({}, env).opencode_dir
    folder.mkdir(parents=True)
    (folder / "opencode.db").touch()
    found = load({"opencode_db": tmp_path / "mine.db"}, env)
    assert found.opencode_databases() == [tmp_path / "mine.db"]


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), (" on ", True), ("0", False), ("False", False),
     ("no", False), ("OFF", False)],
)  # fmt: skip
def test_a_switch_is_read_from_words(env: dict[str, str], text: str, value: bool) -> None:
    assert load({}, {**env, "OPENCODE_MEMORY_MASK": text}).mask is value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "abc"), ("port", ""), ("port", "65536"), ("port", "-1"), ("port", True),
        ("port", "4.5"), ("port", 4.5), ("port", float("nan")), ("port", float("inf")),
        ("port", []),
        ("port", "9" * 5000), ("trash_days", 0), ("trash_days", "-3"), ("trash_days", 10**13),
        ("keep_recent", -1), ("inline_output_max_bytes", 99), ("mask", "maybe"), ("mask", 2),
        ("host", ""), ("host", "  "), ("host", 127), ("db", ""), ("db", 5), ("db", "a\0b"),
        ("db", "~no-such-user-here/x.db"), ("data_dir", []), ("opencode_db", True),
        ("auto_export", "always"), ("auto_export", False), ("auto_export", ""),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_named_with_its_source(
    env: dict[str, str], name: str, value: Any
) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({name: value}, env)
    assert caught.value.field == name
    assert name in caught.value.message
    assert f"--{name.replace('_', '-')}" in caught.value.message
    assert len(caught.value.message) < 250


def test_a_wrong_choice_is_told_with_the_choices(env: dict[str, str]) -> None:
    path = config(env, 'auto_export = "sometimes"')
    with pytest.raises(InvalidInput) as caught:
        load({}, env)
    assert caught.value.message == (
        f"auto_export must be compacted, idle or off, but {path} says “sometimes”."
    )


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("port", 0, 0), ("port", "65535", 65535), ("port", " 80 ", 80), ("port", 80.0, 80),
        ("trash_days", 1, 1), ("keep_recent", 0, 0), ("host", " ::1 ", "::1"),
        ("mask", False, False), ("auto_export", " Idle ", "idle"), ("auto_export", "off", "off"),
        ("inline_output_max_bytes", 100, 100), ("retention_days", 10**12, 10**12),
    ],
)  # fmt: skip
def test_a_value_at_the_edge_is_kept(
    env: dict[str, str], name: str, value: Any, kept: object
) -> None:
    assert getattr(load({name: value}, env), name) == kept


def test_every_setting_can_come_from_every_source(env: dict[str, str]) -> None:
    for row in TABLE:
        value: Any = {int: 321, bool: False, str: "localhost", Path: "/srv/x"}[row.type]
        value = row.choices[-1] if row.choices else value
        value = min(max(value, row.low), row.high) if row.type is int else value
        value = "http://localhost/v1" if row.is_url else value
        expected = Path(value) if row.type is Path else value
        camel = row.name.split("_")[0] + "".join(p.title() for p in row.name.split("_")[1:])
        assert getattr(load({row.name: value}, env), row.name) == expected
        variable = {**env, PREFIX + row.name.upper(): str(value)}
        assert getattr(load({}, variable), row.name) == expected
        path = config(env, f"{row.name} = {json.dumps(value)}")
        assert getattr(load({}, env), row.name) == expected
        path.unlink()
        path = plugin(env, {camel: value})
        assert getattr(load({}, env), row.name) == expected
        path.unlink()


# --- config.toml ----------------------------------------------------------------------------------


def test_an_unknown_key_is_named_with_those_that_exist(env: dict[str, str]) -> None:
    path = config(env, "prot = 1")
    with pytest.raises(InvalidInput) as caught:
        load({}, env)
    assert f"{path} sets “prot”" in caught.value.message
    assert "port" in caught.value.message


@pytest.mark.parametrize(
    "content", [b"port = ", b"= 1", b"\xff\xfe", b"port = 1\nport = 2", b"[" * 50,
     b"a = " + b"[" * 20_000, b"port = " + b"9" * 5000],
    ids=["no value", "no key", "no utf-8", "twice", "brackets", "more brackets", "digits"],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(env: dict[str, str], content: bytes) -> None:
    path = config(env, "")
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot be read") as caught:
        load({}, env)
    assert str(path) in caught.value.message


def test_a_folder_in_the_place_of_the_file_is_named(env: dict[str, str]) -> None:
    path = config(env, "")
    path.unlink()
    path.mkdir()
    with pytest.raises(InvalidInput, match="cannot be read"):
        load({}, env)


def test_an_empty_file_changes_nothing(env: dict[str, str]) -> None:
    config(env, "# nothing set\n")
    assert load({}, env).port == 4748


@pytest.mark.parametrize(
    "text",
    ["port = inf", "port = nan", "port = 4748.5", 'port = "x"', "port = 2026-11-30", "[port]"],
)
def test_a_value_of_another_type_is_named_with_the_file(env: dict[str, str], text: str) -> None:
    path = config(env, text)
    with pytest.raises(InvalidInput, match="port must be a whole number") as caught:
        load({}, env)
    assert str(path) in caught.value.message


# --- the options of the plugin --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["opencode.json", "opencode.jsonc"])
def test_the_plugins_options_are_read_with_comments_and_trailing_commas(
    env: dict[str, str], name: str
) -> None:
    options = '{"retentionDays": 7, /* days */ "keepRecent": 3,}'
    text = f'{{\n// memory\n"plugin": ["x", ["{PLUGIN}", {options}],],}}'
    path = opencode(env, text, name)
    found = load({}, env)
    assert (found.retention_days, found.keep_recent) == (7, 3)
    assert found.origins["keep_recent"] == str(path)


def test_a_plugin_with_a_version_is_the_plugin(env: dict[str, str]) -> None:
    plugin(env, {"maxSessions": 5, "unknownToUs": 1}, PLUGIN + "@1.2.3")
    assert load({}, env).max_sessions == 5


def test_another_plugin_whose_name_begins_alike_is_not_the_plugin(env: dict[str, str]) -> None:
    plugin(env, {"maxSessions": 5}, PLUGIN + "-extra")
    assert load({}, env).max_sessions == 0


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "[]", '"text"', "{}", '{"plugin": null}', '{"plugin": {}}',
        '{"plugin": [7]}',
        '{"plugin": ["@log0u7/opencode-memory"]}', '{"plugin": [["@log0u7/opencode-memory"]]}',
        '{"plugin": [["@log0u7/opencode-memory", null]]}',
        '{"plugin": [["@log0u7/opencode-memory", []]]}',
        '{"plugin": [[null, {"keepRecent": 1}]]} // @log0u7/opencode-memory',
        '@log0u7/opencode-memory {', '["@log0u7/opencode-memory"]', "[" * 20_000 + PLUGIN,
        '{"@log0u7/opencode-memory": ' + "[" * 20_000,
    ],
)  # fmt: skip
def test_a_configuration_without_options_for_the_plugin_is_left_alone(
    env: dict[str, str], text: str
) -> None:
    opencode(env, text)
    assert load({}, env).keep_recent == 10


def test_a_configuration_that_is_no_text_is_left_alone(env: dict[str, str]) -> None:
    opencode(env, "").write_bytes(b"\xff" + PLUGIN.encode())
    assert load({}, env).keep_recent == 10


def test_an_option_of_the_plugin_that_cannot_be_used_is_named_with_its_file(
    env: dict[str, str],
) -> None:
    path = plugin(env, {"keepRecent": "many"})
    with pytest.raises(InvalidInput, match="keep_recent must be a whole number") as caught:
        load({}, env)
    assert str(path) in caught.value.message


# --- the person -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "user"),
    [
        ({"USER": "ada", "LOGNAME": "eve"}, "ada"), ({"USER": "", "LOGNAME": "eve"}, "eve"),
        ({"USER": "x" * 99}, "x" * 40),
    ],
)  # fmt: skip
def test_the_person_is_named_by_the_environment(
    env: dict[str, str], names: dict[str, str], user: str
) -> None:
    del env["USER"]
    assert load({}, {**env, **names}).user == user


def test_the_person_has_a_name_in_any_environment(env: dict[str, str]) -> None:
    del env["USER"]
    assert load({}, env).user


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["https://llm.example/v1", "http://127.0.0.1:11434/v1/", "http://[::1]:8080", "HTTPS://a.b/c"],
)
def test_an_address_is_taken_as_it_is(env: dict[str, str], url: str) -> None:
    assert load({}, env | {f"{PREFIX}REFLECTION_URL": url}).reflection_url == url


@pytest.mark.parametrize(
    "url",
    ["llm.example/v1", "ftp://llm.example", "file:///etc/passwd", "https://", "http://a:hunter2@b/v1",
     "https://a/v1?key=hunter2", "https://a/v1#hunter2", "http://a:99999/", "http://a b/", "http://[a",
     "https://a/\u202ehunter2", "javascript:hunter2"],
)  # fmt: skip
def test_an_address_that_may_hold_a_secret_or_leads_nowhere_is_refused_and_not_repeated(
    env: dict[str, str], url: str
) -> None:
    with pytest.raises(InvalidInput, match="reflection_url must be an address") as caught:
        load({}, env | {f"{PREFIX}REFLECTION_URL": url})
    assert "hunter2" not in caught.value.message and "says something else" in caught.value.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_lessons", 0),
        ("max_lessons", 11),
        ("transcript_chars", 10),
        ("transcript_chars", 10**6),
    ],
)
def test_what_a_reflection_takes_is_bounded(env: dict[str, str], name: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be from"):
        load({}, env | {PREFIX + name.upper(): str(value)})


def test_the_plugins_options_of_reflection_are_ours_too(env: dict[str, str]) -> None:
    plugin(env, {"reflection": True, "maxLessons": 5, "transcriptChars": 4000})
    found = load({}, env)
    assert (found.reflection, found.max_lessons, found.transcript_chars) == (True, 5, 4000)
    assert found.reflection_url is None
