"""`dump` and `import`: entries as a file, and back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from webapp.cli.base import Run, command, fail
from webapp.errors import InvalidInput, PlanChanged
from webapp.memory import portable
from webapp.memory.portable import NEW, REFUSED, REWRITTEN, Plan
from webapp.scope import parse_scope

SHOWN = 50


@command("opencode-memory dump --everywhere entries.jsonl")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(portable.FORMATS),
    help="By default markdown for a file that ends in .md, else jsonl.",
)
@click.option("--everywhere", is_flag=True, help="Every project, not only this one and global.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def dump(run: Run, file: Path | None, form: str | None, everywhere: bool, force: bool) -> None:
    """Writes the entries to a file, or to standard output."""
    if form is None:
        form = "markdown" if file is not None and file.suffix == ".md" else "jsonl"
    with run.store() as store:
        pieces = portable.dump(store, None if everywhere else run.scope, form)
        if file is None:
            for piece in pieces:
                sys.stdout.write(piece)
            return
        if file.exists() and not force:
            raise InvalidInput(f"{file} is there already. Name another, or add --force.", "file")
        # Entries are private, so a file of them is too.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        count = 0
        with open(descriptor, "w", encoding="utf-8", errors="replace", newline="") as opened:
            for piece in pieces:
                opened.write(piece)
                count += piece.startswith(("{", "\n## "))
    run.out({"file": file, "entries": count}, f"{count:,} entries are in {file}.")


@command("opencode-memory import entries.jsonl", name="import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--into", metavar="PATH|global", help="Put everything into this project.")
@click.option("--apply", "fingerprint", metavar="FINGERPRINT", help="Apply the plan shown before.")
def import_command(run: Run, file: Path, into: str | None, fingerprint: str | None) -> None:
    """Shows what an import of entries would do, or does it by its fingerprint. `-` is standard input."""
    into = parse_scope(into) if into else None
    if str(file) == "-":
        data = sys.stdin.buffer.read(portable.MAX_BYTES + 1)
    else:
        with file.open("rb") as opened:
            data = opened.read(portable.MAX_BYTES + 1)
    with run.store() as store:
        if fingerprint is None:
            plan = portable.plan(store, data, into)
            text = _text(plan)
            counts = plan.counts
            if counts[NEW] or counts[REWRITTEN]:
                text += (
                    f"\nNothing was written. To do it, repeat this with --apply {plan.fingerprint}"
                )
            run.out(_told(plan), text)
            if not plan.items or counts[REFUSED] == len(plan.items):
                fail(1)
            return
        try:
            plan, receipt = portable.apply(store, data, into, fingerprint, run.settings.user)
        except PlanChanged as error:
            fresh = error.details["plan"]
            error.details["plan"] = _told(fresh)
            if not run.as_json:
                click.echo(f"{_text(fresh)}\nIts fingerprint: {fresh.fingerprint}")
            raise
    counts = plan.counts
    text = (
        f"{counts[NEW]:,} new, {counts[REWRITTEN]:,} rewritten (their former text is in the trash),"
        f" {counts[REFUSED]:,} refused; receipt {receipt}."
    )
    run.out({**_told(plan), "receipt": receipt}, text)


def _text(plan: Plan) -> str:
    counts = ", ".join(f"{count:,} {state}" for state, count in plan.counts.items())
    shown = [item for item in plan.items if item.state != portable.SAME]
    shown.sort(key=lambda item: item.state != REFUSED)
    lines = [
        f"{item.state:9}  line {item.line:,}  {item.title}  {item.scope}"
        + (f"\n    {item.why}" if item.why else "")
        for item in shown[:SHOWN]
    ]
    if len(shown) > SHOWN:
        lines.append(f"and {len(shown) - SHOWN:,} more")
    return "\n".join([f"{counts}.", *lines])


def _told(plan: Plan) -> dict[str, object]:
    return {
        "counts": plan.counts, "fingerprint": plan.fingerprint,
        "items": [{"line": i.line, "state": i.state, "title": i.title, "scope": i.scope, "why": i.why}
                  for i in plan.items],
    }  # fmt: skip


COMMANDS = (dump, import_command)
