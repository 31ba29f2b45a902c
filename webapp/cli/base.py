"""What every command shares: the global options, JSON output, and the open store."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webapp import settings as setting_table
from webapp.errors import InvalidInput
from webapp.scope import GLOBAL, parse_scope, worktree
from webapp.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webapp.store import Store

GLOBALS = ("db", "data_dir", "opencode_db", "port", "scope", "as_json")


@dataclass(frozen=True, slots=True)
class Run:
    """The settings of this run, the scope it works in, and whether it answers in JSON."""

    settings: Settings
    scope: str
    as_json: bool

    @contextmanager
    def store(self) -> Iterator[Store]:
        """memory.db, open."""
        from webapp.store import Store

        with Store(self.settings.db).session() as store:
            yield store

    def out(self, data: Any, text: str) -> None:
        """Prints the answer: `data` as JSON when asked for, else `text`."""
        if self.as_json:
            click.echo(as_json_text({"ok": True, **plain(data)}))
        elif text:
            click.echo(_safe(text) if sys.stdout.isatty() else text)


def as_json_text(data: Any) -> str:
    """JSON for standard output; all ASCII where that cannot hold every character."""
    is_unicode = "utf" in (getattr(sys.stdout, "encoding", None) or "").lower()
    return json.dumps(data, ensure_ascii=not is_unicode, indent=2)


def _safe(text: str) -> str:
    """Text without what a terminal would obey: a title or a transcript may hold escape sequences."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda m: f"\\x{ord(m[0]):02x}", text)


def plain(value: Any) -> Any:
    """Dataclasses, tuples and paths as JSON can hold them."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


class Group(click.Group):
    """The group: global options may stand before or after the command's name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options())

    def invoke(self, ctx: click.Context) -> Any:
        """Keeps the options given before the command for the command to find."""
        ctx.obj = {name: ctx.params.pop(name, None) for name in GLOBALS}
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever reads the output has seen enough; Python would complain once more at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None


def _global_options() -> list[click.Option]:
    return [
        click.Option(["--db"], metavar="FILE", help="The memory database."),
        click.Option(["--data-dir"], metavar="DIR", help="Folder of memory.db and transcripts."),
        click.Option(["--opencode-db"], metavar="FILE", help="OpenCode's database."),
        click.Option(
            ["--port"], metavar="NUMBER", help="The page's port; by default 4748, 0 picks a free one."
        ),
        click.Option(
            ["--scope"], metavar="PATH|global",
            help="The project to work in; by default the git worktree of this folder.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, default=None, help="Answer in JSON."),
    ]  # fmt: skip


def command(example: str, name: str | None = None, **flags: str) -> Callable[..., click.Command]:
    """A command with the global options, a `Run` as its first argument, and an example in its
    help. `flags` maps parameter names that are settings to their setting."""

    def wrap(function: Callable[..., Any]) -> click.Command:
        @functools.wraps(function)
        @click.pass_context
        def call(ctx: click.Context, **values: Any) -> Any:
            given = ctx.find_root().obj or {}
            chosen = {}
            for key in GLOBALS:
                value = values.pop(key, None)
                chosen[key] = value if value is not None else given.get(key)
            scope = chosen.pop("scope")
            as_json = bool(chosen.pop("as_json"))
            for parameter, setting in flags.items():
                chosen[setting] = values.pop(parameter, None)
            run = Run(
                setting_table.load(chosen),
                _scope(scope),
                as_json,
            )
            return function(run, **values)

        made = click.command(name, epilog=f"Example: {example}")(call)
        made.params.extend(_global_options())
        return made

    return wrap


def _scope(given: str | None) -> str:
    try:
        if given and given != GLOBAL and not given.startswith("/") and Path(given).is_dir():
            return worktree(Path(given))
        if given:
            return parse_scope(os.path.normpath(given) if given.startswith("/") else given)
        return worktree(Path.cwd())
    except FileNotFoundError as error:
        raise InvalidInput(
            "This folder is no longer there. Go to another, or name the project with --scope.",
            "scope",
        ) from error


def fail(code: int) -> None:
    """Ends the command with an exit code; what there was to say has been printed."""
    raise click.exceptions.Exit(code)


def nothing_found(run: Run, everywhere: bool) -> str:
    """What to say when a search came back empty, with where it looked."""
    if everywhere:
        return "Nothing found."
    return f"Nothing found in {_where(run)}. Every project: add --everywhere"


def none_in(run: Run, what: str) -> str:
    """That there are no such things where the command looked."""
    return f"No {what} in {_where(run)}."


def _where(run: Run) -> str:
    return GLOBAL if run.scope == GLOBAL else f"{run.scope} or global"


def read_body(body: str, field: str = "body") -> str:
    """The text of an option, or standard input for `-`."""
    if body != "-":
        return body
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput("Standard input is not UTF-8 text.", field) from error
