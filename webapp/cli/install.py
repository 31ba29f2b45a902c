"""`install` and `uninstall`: what connects OpenCode."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click

from webapp.cli.base import Run, command, fail
from webapp.errors import InvalidInput
from webapp.integration import installation, serving
from webapp.integration.commands import ending, texts
from webapp.integration.installation import Plan
from webapp.integration.pieces import Wanted
from webapp.integration.program import command as program
from webapp.scope import GLOBAL


def _project(run: Run, is_project: bool) -> Path | None:
    if not is_project:
        return None
    if run.scope == GLOBAL:
        raise InvalidInput("Name the project's folder, or run this in it.", "scope")
    return Path(run.scope)


def _elsewhere(run: Run) -> tuple[str, ...]:
    """What there is to say of a server of ours on another port than OpenCode will ask."""
    note = serving.running(run.settings).note
    if note is None or note.port == run.settings.port:
        return ()
    return (
        f"Your server runs at {note.url}, but OpenCode would ask port {run.settings.port}: put"
        f" `port = {note.port}` into config.toml and run this again, or end that one with"
        " `opencode-memory stop`.",
    )


def _carry_out(run: Run, plan: Plan, yes: bool, nothing: str, done: str) -> None:
    """Shows a plan, asks, and does it."""
    told = {
        "changes": [{"path": c.path, "diff": c.diff} for c in plan.changes], "notes": plan.notes,
        "applied": False,
    }  # fmt: skip
    notes = "".join(f"\n{note}" for note in plan.notes)
    if not plan.changes:
        run.out(told, nothing + notes)
        return
    if not run.as_json:
        for change in plan.changes:
            click.echo(change.diff)
        if notes:
            click.echo(notes.lstrip("\n"), err=True)
    if not yes:
        if run.as_json or not sys.stdin.isatty():
            run.out(told, "Nothing was written. To do this, add --yes.")
            fail(1)
        if not click.confirm("Write this?"):
            run.out(told, "Nothing was written.")
            fail(1)
    backups = installation.apply(run.settings, plan)
    kept = f"\nWhat was there before is kept in {run.settings.backups_dir}." if backups else ""
    run.out({**told, "applied": True, "backups": backups}, f"{done}{kept}")


@command("opencode-memory install")
@click.option("--project", is_flag=True, help="Only for the project of this folder, not for all.")
@click.option("--no-compaction", is_flag=True, help="Leave compactions to OpenCode's own model.")
@click.option(
    "--inject/--no-inject",
    default=None,
    help="The inventory before every call of a model; by default as the setting inject says.",
)
@click.option("--no-commands", is_flag=True, help="No slash commands.")
@click.option("--yes", is_flag=True, help="Write without asking.")
def install(
    run: Run, project: bool, no_compaction: bool, inject: bool | None, no_commands: bool, yes: bool
) -> None:  # fmt: skip
    """Connects OpenCode: shows what would be written to its configuration, and asks."""
    wanted = Wanted(
        compaction=not no_compaction and run.settings.retrieval,
        inject=run.settings.inject if inject is None else inject,
        commands=not no_commands,
    )
    where = _project(run, project)
    words = [*program(run.settings), *(["--scope", str(where)] if where else [])]
    files: Mapping[str, str] = {}
    if wanted.commands:
        files = texts(words, ending(installation.commands_dir(run.settings, where)))
    plan = installation.plan_install(run.settings, wanted, where, files)
    plan = replace(plan, notes=(*plan.notes, *_elsewhere(run)))
    _carry_out(
        run, plan, yes, "OpenCode is connected; there is nothing to write.",
        "OpenCode is connected from its next start on. Check it with: opencode-memory doctor",
    )  # fmt: skip


@command("opencode-memory uninstall")
@click.option("--project", is_flag=True, help="What was installed for the project of this folder.")
@click.option("--yes", is_flag=True, help="Write without asking.")
def uninstall(run: Run, project: bool, yes: bool) -> None:
    """Takes exactly our own out of OpenCode's configuration. What is remembered stays."""
    plan = installation.plan_uninstall(run.settings, _project(run, project))
    _carry_out(
        run, plan, yes, "There is nothing of ours in OpenCode's configuration.",
        "OpenCode is as it was before. What is remembered stays in "
        f"{shlex.quote(str(run.settings.data_dir))}.",
    )  # fmt: skip


COMMANDS = (install, uninstall)
