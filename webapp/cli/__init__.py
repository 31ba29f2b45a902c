"""The command line. `main` turns every known error into one line on stderr and an exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from webapp import __version__
from webapp.cli.base import Group, as_json_text, plain
from webapp.errors import InvalidInput, MemoryAppError


def main(args: list[str] | None = None) -> NoReturn:
    """Runs the program and exits: 0 done, 1 nothing found or refused, 2 bad input or unreadable.

    An error is one line on stderr, and with --json also an object on stdout.
    """
    given = sys.argv[1:] if args is None else args
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file name may hold bytes that are no text.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = cli(args, prog_name="opencode-memory", standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 0
    except click.ClickException as error:
        code = _tell(InvalidInput(error.format_message()), given)
    except click.Abort:
        click.echo("opencode-memory: stopped", err=True)
        code = 130
    except MemoryAppError as error:
        code = _tell(error, given)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        code = _tell(InvalidInput(f"{where}{error.strerror or error}."), given)
    sys.exit(code if isinstance(code, int) else 0)


def _tell(error: MemoryAppError, given: Sequence[str]) -> int:
    """Says what went wrong and returns the exit code. The arguments may not have been understood,
    so whether JSON was wanted is read off them."""
    message = " ".join(error.message.split())
    options = given[: given.index("--")] if "--" in given else given
    if "--json" in options:
        told: dict[str, Any] = {"code": error.code, "message": message}
        if isinstance(error, InvalidInput) and error.field:
            told["field"] = error.field
        if error.details:
            told["details"] = plain(error.details)
        click.echo(as_json_text({"ok": False, "error": told}))
    click.echo(f"opencode-memory: {message}", err=True)
    return error.exit_code


MODULES = {
    "run": ("serve", "demo", "status", "stop", "doctor", "mcp"),
    "entries": ("save", "search", "list", "show", "forget", "restore", "stats"),
    "agents": ("known", "continue", "recall", "remember"),
    "install": ("install", "uninstall"),
    "portable": ("dump", "import"),
    "transcripts": ("export", "transcripts", "read", "grep", "cleanup"),
}
"""Where each command is. Only the module of the one that is asked for is imported: all of them take a
seventh of a second, which an agent would wait for at each start of `mcp`."""


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(name for names in MODULES.values() for name in names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for module, names in MODULES.items():
            if cmd_name in names:
                commands = import_module(f"webapp.cli.{module}").COMMANDS
                return next(one for one in commands if one.name == cmd_name)
        return None


@click.group(
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command explains itself: opencode-memory search --help",
)
@click.version_option(__version__, prog_name="opencode-memory")
def cli() -> None:
    """Keeps what OpenCode's agents should remember, and the full record of every session.

    Start with: opencode-memory serve
    """
