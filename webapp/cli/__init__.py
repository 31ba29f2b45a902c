"""The command line. `main` turns every known error into one line on stderr and an exit code."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from webapp.cli.base import Group
from webapp.errors import MemoryAppError


def main(args: list[str] | None = None) -> NoReturn:
    """Runs the program and exits: 0 done, 1 nothing found or refused, 2 bad input or unreadable."""
    try:
        code = cli(args, standalone_mode=False)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"opencode-memory: {' '.join(error.format_message().split())}", err=True)
        code = 2
    except click.Abort:
        click.echo("opencode-memory: stopped", err=True)
        code = 130
    except MemoryAppError as error:
        click.echo(f"opencode-memory: {' '.join(error.message.split())}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command explains itself: opencode-memory search --help",
)
def cli() -> None:
    """Keeps what OpenCode's agents should remember, and the full record of every session.

    Start with: opencode-memory serve
    """


def _register() -> None:
    from webapp.cli import entries, run, transcripts

    for module in (run, entries, transcripts):
        for command in module.COMMANDS:
            cli.add_command(command)


_register()
