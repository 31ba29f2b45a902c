"""Every setting: its name, default and help, and where its value came from.

Order of authority: flag, `OPENCODE_MEMORY_*`, config.toml, the options of an
`@log0u7/opencode-memory` entry in opencode.json, the default. No other module reads the environment.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webapp import jsonc
from webapp.errors import InvalidInput

PREFIX = "OPENCODE_MEMORY_"
PLUGIN = "@log0u7/opencode-memory"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: `type` is str, int, bool or Path; `low`/`high` bound an int, `choices`
    are the words that a str may be, and `is_url` says that it is an address."""

    name: str
    type: type
    default: Any
    help: str
    low: int = 0
    high: int = 10**12
    choices: tuple[str, ...] = ()
    is_url: bool = False


AUTO_EXPORT = ("compacted", "idle", "off")

TABLE: tuple[Setting, ...] = (
    Setting("data_dir", Path, None, "Folder of memory.db and the transcripts."),
    Setting("db", Path, None, "The memory database; by default memory.db in data_dir."),
    Setting("opencode_db", Path, None, "OpenCode's database; found by itself when not set."),
    Setting("host", str, "127.0.0.1", "Address the server listens on; loopback only."),
    Setting("port", int, 4748, "Port the server listens on.", 0, 65535),
    Setting("trash_days", int, 30, "Days an entry stays in the trash.", 1),
    Setting("retrieval", bool, True, "Offer agents the tools that read transcripts."),
    Setting(
        "inline_output_max_bytes", int, 50_000, "Longer tool output is cut head and tail.", 100
    ),
    Setting(
        "auto_export", str, "compacted",
        "Export a session by itself when compacted, also when idle, or off.", choices=AUTO_EXPORT,
    ),
    Setting(
        "retention_days", int, 0, "Cleanup: remove transcripts untouched for longer; 0 is off."
    ),
    Setting("keep_recent", int, 10, "Cleanup: the newest per project that are never removed."),
    Setting("max_sessions", int, 0, "Cleanup: most transcripts per project; 0 is off."),
    Setting(
        "auto_sweep", bool, True,
        "Cleanup by itself, by retention_days and max_sessions if they are set.",
    ),
    Setting(
        "inject", bool, False,
        "Install also puts the inventory before every call of a model.",
    ),
    Setting(
        "keep_serving", bool, True, "The tools start the web server when it does not run.",
    ),
    Setting("reflection", bool, False, "Distil lessons from idle sessions with a model of yours."),
    Setting(
        "reflection_url", str, None, "Reflection: an OpenAI-compatible endpoint, as …/v1.", is_url=True
    ),
    Setting("reflection_model", str, None, "Reflection: the model that is asked."),
    Setting("reflection_key_file", Path, None, "Reflection: a file that holds the key, if one is asked."),
    Setting("max_lessons", int, 3, "Reflection: most lessons of a session.", 1, 10),
    Setting(
        "transcript_chars", int, 8000, "Reflection: characters of a session's end that are sent.",
        1000, 100_000,
    ),
    Setting("mask", bool, True, "Mask credentials where transcript text is shown."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Places:
    """Where OpenCode looks for its configuration, its instructions and its catalogue of models, and
    what of its environment changes that (packages/opencode/src/flag/flag.ts,
    packages/core/src/global.ts).

    This is our environment: an OpenCode started with another one may look elsewhere. `autocompact`
    is false with OPENCODE_DISABLE_AUTOCOMPACT; `output_max` is the most tokens that a model is asked
    to write, where the environment sets it. `environment` and `config_content` may hold credentials,
    so neither shows in a repr.
    """

    home: Path
    config_dir: Path
    cache_dir: Path
    own_config_dir: Path | None = None
    config_file: Path | None = None
    config_content: str = field(default="", repr=False)
    managed_dir: Path = Path("/etc/opencode")
    models_path: Path | None = None
    models_url: str = ""
    claude: bool = True
    project: bool = True
    autocompact: bool = True
    output_max: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def places(environ: Mapping[str, str] | None = None) -> Places:
    """The places that OpenCode would use if it were started in this environment."""
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())

    def is_set(name: str) -> bool:
        return env.get(name, "").lower() in ("1", "true", "yes", "on", "y")

    def path(name: str) -> Path | None:
        return Path(env[name]).absolute() if env.get(name) else None

    most = env.get("OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX", "")
    return Places(
        home=home,
        config_dir=Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode",
        own_config_dir=path("OPENCODE_CONFIG_DIR"),
        config_file=path("OPENCODE_CONFIG"),
        config_content=env.get("OPENCODE_CONFIG_CONTENT", ""),
        managed_dir=Path(
            "/Library/Application Support/opencode" if sys.platform == "darwin" else "/etc/opencode"
        ),
        cache_dir=Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "opencode",
        models_path=path("OPENCODE_MODELS_PATH"),
        models_url=env.get("OPENCODE_MODELS_URL", ""),
        claude=not (
            is_set("OPENCODE_DISABLE_CLAUDE_CODE") or is_set("OPENCODE_DISABLE_CLAUDE_CODE_PROMPT")
        ),
        project=env.get("OPENCODE_DISABLE_PROJECT_CONFIG", "").lower() not in ("1", "true"),
        autocompact=env.get("OPENCODE_DISABLE_AUTOCOMPACT", "").lower() not in ("1", "true"),
        output_max=int(most) if re.fullmatch(r"0*[1-9][0-9]{0,9}", most) else None,
        environment=env,
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The values in force. `origins` says for each name where it came from."""

    data_dir: Path
    db: Path
    opencode_db: Path | None
    opencode_dir: Path
    user: str
    host: str
    port: int
    trash_days: int
    retrieval: bool
    inline_output_max_bytes: int
    auto_export: str
    retention_days: int
    keep_recent: int
    max_sessions: int
    auto_sweep: bool
    inject: bool
    keep_serving: bool
    reflection: bool
    reflection_url: str | None
    reflection_model: str | None
    reflection_key_file: Path | None
    max_lessons: int
    transcript_chars: int
    mask: bool
    origins: Mapping[str, str] = field(default_factory=dict)
    places: Places = field(default_factory=lambda: places({}))

    @property
    def transcripts_dir(self) -> Path:
        """Where the transcripts live, one folder per scope below it."""
        return self.data_dir / "transcripts"

    @property
    def backups_dir(self) -> Path:
        """Where the former text of an instruction file is kept that was written to."""
        return self.data_dir / "backups"

    def opencode_databases(self) -> list[Path]:
        """OpenCode's databases: the one that is set, else `opencode.db` and the `opencode-*.db`
        that other channels write beside it. Looked up anew each time, since OpenCode may be
        installed while we run."""
        if self.opencode_db is not None:
            return [self.opencode_db]
        main = self.opencode_dir / "opencode.db"
        try:
            others = sorted(p for p in self.opencode_dir.glob("opencode-*.db") if p.is_file())
            return ([main] if main.is_file() else []) + others
        except PermissionError:
            return [main]  # whoever opens it meets the reason and says it


def _bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off"}:
        return False
    raise ValueError


def _is_address(text: str) -> bool:
    """Whether a text is an http or https address that names a host and holds nothing that may be a
    secret: it is shown on a page."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and not set(text) & set(" ?#@\\")
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def _coerce(row: Setting, value: Any, origin: str) -> Any:
    try:
        if row.type is bool:
            return value if isinstance(value, bool) else _bool(str(value))
        if row.type is int:
            if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
                raise ValueError
            number = int(value)
            if not row.low <= number <= row.high:
                raise InvalidInput(
                    f"{row.name} must be from {row.low} to {row.high}, but {origin} says {number}.",
                    row.name,
                )
            return number
        if row.type is Path:
            if not isinstance(value, (str, os.PathLike)) or not str(value) or "\0" in str(value):
                raise ValueError
            return Path(value).expanduser().absolute()
        if not isinstance(value, str) or not value.strip():
            raise ValueError
        if row.choices and value.strip().lower() not in row.choices:
            raise ValueError
        if row.is_url and not _is_address(value.strip()):
            raise InvalidInput(
                f"{row.name} must be an address such as https://llm.example/v1, without a password or "
                f"anything from “?” on, but {origin} says something else.",
                row.name,
            )
        return value.strip().lower() if row.choices else value.strip()
    except (ValueError, TypeError, RuntimeError) as error:
        words = {bool: "true or false", int: "a whole number", Path: "a path", str: "a word"}
        wanted = words[row.type]
        if row.choices:
            wanted = f"{', '.join(row.choices[:-1])} or {row.choices[-1]}"
        raise InvalidInput(
            f"{row.name} must be {wanted}, but {origin} says “{str(value)[:60]}”.",
            row.name,
        ) from error


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}. Mend or remove it.") from error


def _plugin_options(folder: Path) -> tuple[dict[str, Any], str]:
    """The options object beside the plugin's name in the global opencode.json or .jsonc.

    A configuration that OpenCode itself could not parse is not ours to complain about: it is skipped.
    """
    for name in ("opencode.json", "opencode.jsonc"):
        path = folder / name
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if PLUGIN not in text:
            continue
        try:
            data = jsonc.loads(text)
        except jsonc.JsoncError:
            continue
        plugins = data.get("plugin") if isinstance(data, dict) else None
        for entry in plugins if isinstance(plugins, list) else []:
            if not (isinstance(entry, list) and len(entry) > 1 and isinstance(entry[1], dict)):
                continue
            if f"{entry[0]}@".startswith(PLUGIN + "@"):
                return {_snake(key): value for key, value in entry[1].items()}, str(path)
    return {}, ""


def _user(env: Mapping[str, str]) -> str:
    """The person who runs us; it becomes the `source` of what is written by hand."""
    name = env.get("USER") or env.get("LOGNAME")
    if not name:
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = "person"
    return name[:40]


def load(
    flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Reads every source and returns the values in force.

    Raises InvalidInput that names the setting and the source when a value cannot be used. An
    unknown key in config.toml is an error too, since a misspelt setting would else do nothing.
    """
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    data_home = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share")
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    config_path = config_home / "opencode-memory" / "config.toml"
    config = _toml(config_path)
    names = {row.name for row in TABLE}
    for key in config:
        if key not in names:
            raise InvalidInput(
                f"{config_path} sets “{key}”, which is no setting. Known: {', '.join(sorted(names))}."
            )
    plugin, plugin_path = _plugin_options(config_home / "opencode")
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for row in TABLE:
        variable = PREFIX + row.name.upper()
        if flags and flags.get(row.name) is not None:
            value, origin = flags[row.name], f"--{row.name.replace('_', '-')}"
        elif env.get(variable):
            value, origin = env[variable], variable
        elif row.name in config:
            value, origin = config[row.name], str(config_path)
        elif row.name in plugin:
            value, origin = plugin[row.name], plugin_path
        else:
            values[row.name], origins[row.name] = row.default, "default"
            continue
        values[row.name], origins[row.name] = _coerce(row, value, origin), origin
    if values["data_dir"] is None:
        values["data_dir"] = data_home / "opencode-memory"
    if values["db"] is None:
        values["db"] = values["data_dir"] / "memory.db"
    known = {f.name for f in fields(Settings)}
    return Settings(
        **{name: value for name, value in values.items() if name in known},
        opencode_dir=data_home / "opencode",
        user=_user(env),
        origins=origins,
        places=places(env),
    )
