"""Commands over the transcripts."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from webapp.cli.base import Run, command, fail, none_in, nothing_found, read_body
from webapp.errors import InvalidInput, NotFound, PlanChanged, Unreadable
from webapp.lines import parse_range
from webapp.opencode import Session, find_session
from webapp.store import now_ms, receipts
from webapp.transcripts import aside, cleanup, export, grep, library, window
from webapp.transcripts.cleanup import Options, Plan
from webapp.transcripts.library import Transcript
from webapp.transcripts.pending import Pending, pending, room

if TYPE_CHECKING:
    from webapp.store import Store

PATIENCE_S = 600.0
"""How long a search may take whose reader can press Ctrl-C."""


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _facts(item: Transcript) -> dict[str, object]:
    return {
        "id": item.id, "scope": item.scope, "title": item.title, "path": str(item.path),
        "lines": item.lines, "size": item.size, "touched_at": item.touched_at, "ours": item.ours,
    }  # fmt: skip


@command("opencode-memory export --all", name="export")
@click.argument("session", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session that OpenCode knows.")
@click.option("--missing", is_flag=True, help="Only those that have no transcript yet.")
def export_command(run: Run, session: str | None, everything: bool, missing: bool) -> None:
    """Writes sessions out of OpenCode's database as numbered text; only what is new is appended.

    What is done stays done: after an interruption the same command goes on where it stopped.
    """
    if bool(session) + everything + missing != 1:
        raise InvalidInput("Give either a session or --all or --missing.")
    if session:
        export.check_id(session)
    databases = run.settings.opencode_databases()
    if not databases:
        raise Unreadable(
            f"No OpenCode database was found in {run.settings.opencode_dir}. Name it with "
            "--opencode-db."
        )
    with run.store() as store:
        if session:
            chosen, problems, left_out = [_one(run, session)], [], 0
            if cleanup.can_undo(store, run.settings, session):
                cleanup.undo(store, run.settings, session, run.settings.user)
        else:
            found = pending(store, run.settings)
            chosen = list(found.chosen("every" if everything else "missing"))
            problems, left_out = list(found.problems), found.removed
            if not found.total and problems:
                raise Unreadable(" ".join(problems))
            _tell_room(run, found)
        done = _export(run, store, chosen, problems, bool(session))
    for problem in problems:
        click.echo(f"opencode-memory: {problem}", err=True)
    grown = sum(1 for made in done if made["added"])
    text = f"{_many(len(done), 'session')} exported." if done else "Nothing to export."
    if done and grown < len(done):
        text = f"{_many(len(done), 'session')} looked through, {grown:,} with new lines."
    if left_out:
        text += (
            f" {left_out:,} that a cleanup removed stay away; export one by its id to have it back."
        )
    run.out({"exported": done, "problems": problems, "left_out": left_out}, text)
    if problems:
        fail(2)
    if not done:
        fail(1)


def _one(run: Run, session_id: str) -> Session:
    found, problems = find_session(run.settings.opencode_databases(), session_id)
    if found is None and problems:
        raise Unreadable(" ".join(problems))
    if found is None:
        raise NotFound(f"OpenCode has no session {session_id}.")
    return found


def _tell_room(run: Run, found: Pending) -> None:
    """Says what disk the sessions without a transcript will take, where somebody looks on."""
    if not found.absent or run.as_json or not sys.stderr.isatty():
        return
    needed = room(run.settings, found.absent)
    if needed is None:
        return
    click.echo(
        f"{_many(len(found.absent), 'session')} without a transcript: about"
        f" {needed.bytes / 1e6:,.1f} MB of text; {needed.free / 1e6:,.0f} MB are free.", err=True,
    )  # fmt: skip
    if not needed.is_enough:
        click.echo("opencode-memory: that may be more than the disk has room for.", err=True)


def _export(
    run: Run, store: Store, chosen: list[Session], problems: list[str], again: bool
) -> list[dict[str, object]]:  # fmt: skip
    """Exports the sessions, with a progress bar where standard error is a terminal, else with one
    line for each that got new text."""
    done: list[dict[str, object]] = []
    is_watched = sys.stderr.isatty() and not run.as_json and len(chosen) > 1
    with click.progressbar(
        length=len(chosen), label="Exporting", file=sys.stderr, hidden=not is_watched, show_pos=True
    ) as bar:
        for step in export.export_many(store, run.settings, chosen, again=again):
            bar.update(1)
            if step.exported is None and not step.problem:
                continue
            if step.exported is None:
                problems.append(f"{step.session.id}: {step.problem}")
                continue
            made = step.exported
            done.append({"id": made.session_id, "path": str(made.path), "lines": made.lines,
                         "added": made.added, "unfinished": made.unfinished})  # fmt: skip
            if not run.as_json and not is_watched and (made.added or len(chosen) == 1):
                more = f", {made.unfinished} still being written" if made.unfinished else ""
                click.echo(
                    f"{made.session_id}  +{made.added} lines, {made.lines} in all{more}  {made.path}"
                )
    return done


@command("opencode-memory transcripts", name="transcripts")
@click.option("--everywhere", is_flag=True, help="Every project, not only this one and global.")
@click.option(
    "--sort", type=click.Choice(library.SORTS), default="touched", show_default=True, help="Order."
)
def transcripts_command(run: Run, everywhere: bool, sort: str) -> None:
    """Lists the transcripts with size, lines and age, and a total."""
    with run.store() as store:
        found = library.listing(
            store, run.settings, scope=None if everywhere else run.scope, sort=sort,
            descending=sort in ("touched", "size", "lines"), limit=1_000_000,
        )  # fmt: skip
    lines = [
        f"{item.id}  {item.lines:>9,} lines  {item.size:>12,} bytes  {_day(item.touched_at)}  {item.title}"
        + (f"  ({item.scope})" if everywhere else "")
        for item in found.items
    ]
    lines.append(f"{found.total} transcripts, {found.lines:,} lines, {found.size:,} bytes")
    data = {"transcripts": [_facts(item) for item in found.items], "total": found.total,
            "lines": found.lines, "size": found.size}  # fmt: skip
    run.out(data, "\n".join(lines) if found.items else
            f"{none_in(run, 'transcripts')} Every project: add --everywhere. "
            "Sessions are written with: opencode-memory export --all")  # fmt: skip
    if not found.items:
        fail(1)


def _tell_reveal(run: Run, store: Store, summary: str, detail: dict[str, object]) -> None:
    """A look past the mask leaves a receipt, as it does in the browser. What was searched for is not
    in it, since that may be the credential."""
    if run.settings.mask:
        with store.writing():
            receipts.write(store, "reveal", run.settings.user, summary, detail, now_ms())


@command("opencode-memory read ses_dd3fa5a78ffeZgDejs2wUU3Afh 900-940")
@click.argument("session")
@click.argument("lines")
@click.option("--reveal", is_flag=True, help="Do not mask credentials.")
def read(run: Run, session: str, lines: str, reveal: bool) -> None:
    """Prints numbered lines of a session; it is exported first if need be."""
    wanted = parse_range(lines)
    with run.store() as store:
        opened = library.open_transcript(store, run.settings, session)
        if reveal:
            _tell_reveal(run, store, f"Revealed lines {wanted} of “{opened.transcript.title}”",
                         {"session": session, "lines": str(wanted)})  # fmt: skip
    for problem in opened.problems:
        click.echo(f"opencode-memory: {problem}", err=True)
    seen = window.read(opened.transcript, wanted, run.settings.mask and not reveal)
    rows = [{"line": row.number, "text": row.text, "cut": row.cut} for row in seen.rows]
    width = len(str(wanted.last))
    text = "\n".join(
        f"{row.number:>{width}}  {row.text}" + (f" […{row.cut:,} bytes more]" if row.cut else "")
        for row in seen.rows
    )
    data = {"id": session, "path": str(opened.transcript.path), "total": seen.total, "lines": rows}
    run.out(
        data, text or f"{session} has {seen.total:,} lines; line {wanted.first:,} is past the end."
    )
    if not rows:
        fail(1)


@command('opencode-memory grep "busy_timeout" --context 2', name="grep")
@click.argument("words", nargs=-1, required=True)
@click.option("--session", help="Only this session; it is exported first if need be.")
@click.option("--context", "-C", type=click.IntRange(0, 20), default=0, help="Lines around a hit.")
@click.option("--everywhere", is_flag=True, help="Every project, not only this one and global.")
@click.option(
    "--limit", type=click.IntRange(1, 5000), default=200, show_default=True, help="Most hits."
)
@click.option("--reveal", is_flag=True, help="Do not mask credentials.")
def grep_command(
    run: Run, words: tuple[str, ...], session: str | None, context: int, everywhere: bool,
    limit: int, reveal: bool,
) -> None:  # fmt: skip
    """Finds exact lines in the transcripts, whatever their case."""
    with run.store() as store:
        item = library.open_transcript(store, run.settings, session).transcript if session else None
        if reveal:
            _tell_reveal(run, store, "Searched transcripts without a mask",
                         {"session": session or "all", "words": len(words)})  # fmt: skip
        found = grep.grep(
            store, run.settings, " ".join(words), session=item,
            scope=None if everywhere or session else run.scope, context=context, max_hits=limit,
            mask=run.settings.mask and not reveal, patience=PATIENCE_S,
        )  # fmt: skip
    lines = []
    for file in found.files:
        lines.append(f"{file.transcript.id}  {file.transcript.title}  ({file.count})")
        lines += [f"{line.number}{':' if line.is_hit else '-'} {line.text}" for line in file.lines]
    if not found.exact and found.count:
        lines.append("No line holds this exact text; these hold every word.")
    bound = "" if found.complete else "at least "
    shown = f"; the first {found.shown} are shown" if found.shown < found.count else ""
    where = f"{_many(found.count, 'line')} in {_many(found.in_files, 'transcript')}"
    lines.append(f"{bound}{where}{shown}")
    data = {
        "count": found.count, "complete": found.complete, "exact": found.exact,
        "shown": found.shown,
        "files": [
            {"id": f.transcript.id, "title": f.transcript.title, "count": f.count,
             "lines": [{"line": x.number, "text": x.text, "hit": x.is_hit} for x in f.lines]}
            for f in found.files
        ],
    }  # fmt: skip
    run.out(
        data, "\n".join(lines) if found.count else nothing_found(run, everywhere or bool(session))
    )
    if not found.count:
        fail(1)


def _plan_data(plan: Plan) -> dict[str, object]:
    return {
        "fingerprint": plan.fingerprint, "considered": plan.considered, "bytes": plan.bytes,
        "remove": [{"id": s.transcript.id, "title": s.transcript.title, "why": s.why,
                    "bytes": s.bytes} for s in plan.steps],
        "kept": [{"id": k.transcript.id, "why": k.why} for k in plan.kept],
        "unknown": list(plan.unknown),
    }  # fmt: skip


def _plan_text(plan: Plan) -> str:
    lines = [
        f"{s.transcript.id}  {s.bytes:>12,} bytes  {s.why}  {s.transcript.title}"
        for s in plan.steps
    ]
    lines += [f"{k.transcript.id}  stays: {k.why}" for k in plan.kept]
    lines += [f"{name}  is not in the library" for name in plan.unknown]
    lines.append(
        f"{len(plan.steps)} of {plan.considered} transcripts would go, {plan.bytes:,} bytes. "
        f"Fingerprint: {plan.fingerprint}"
    )
    return "\n".join(lines)


def _applied(words: tuple[str, ...]) -> str | None:
    """The fingerprint in `apply FINGERPRINT`; a slash command gives both on standard input, for `-`."""
    given = read_body(" ".join(words), "words").split()
    if not given:
        return None
    if len(given) != 2 or given[0] != "apply":
        raise InvalidInput(f"“{' '.join(given)[:40]}” is nothing to do. Say nothing for a dry run, or: "
                           "apply FINGERPRINT")  # fmt: skip
    return given[1]


def _undo(run: Run, receipt: int) -> None:
    with run.store() as store:
        done, problems = cleanup.undo_receipt(store, run.settings, receipt, run.settings.user)
    for problem in problems:
        click.echo(f"opencode-memory: {problem}", err=True)
    run.out({"put_back": done, "problems": problems}, f"Put {_many(done, 'transcript')} back.")
    if not done:
        fail(1)


@command("opencode-memory cleanup --retention-days 90", name="cleanup")
@click.argument("words", nargs=-1, metavar="[apply FINGERPRINT]")
@click.option("--session", "sessions", multiple=True, help="Name a session to remove.")
@click.option("--retention-days", type=click.IntRange(0, 1_000_000), help="0 is off.")
@click.option("--max-sessions", type=click.IntRange(0, 1_000_000), help="Per project; 0 is off.")
@click.option(
    "--keep-recent", type=click.IntRange(0, 1_000_000), help="Newest per project that stay."
)
@click.option("--everywhere", is_flag=True, help="Every project, not only this one.")
@click.option("--apply", "fingerprint", metavar="FINGERPRINT", help="Apply the plan shown before.")
@click.option("--undo", type=int, metavar="RECEIPT", help="Put back what that cleanup removed.")
def cleanup_command(
    run: Run, sessions: tuple[str, ...], retention_days: int | None, max_sessions: int | None,
    keep_recent: int | None, everywhere: bool, fingerprint: str | None, undo: int | None,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """Shows which transcripts a cleanup would remove, or applies a plan by its fingerprint.

    Apply takes the same options as the dry run that printed the fingerprint.
    """
    settings = run.settings
    if undo is not None:
        _undo(run, undo)
        return
    fingerprint = _applied(words) or fingerprint
    options = Options(
        tuple(dict.fromkeys(sessions)),
        settings.retention_days if retention_days is None else retention_days,
        settings.max_sessions if max_sessions is None else max_sessions,
        settings.keep_recent if keep_recent is None else keep_recent,
        None if everywhere else run.scope,
    )
    with run.store() as store:
        if fingerprint is None:
            plan = cleanup.plan(store, settings, options)
            text = _plan_text(plan)
            if not (options.sessions or options.retention_days or options.max_sessions):
                text += "\nEvery rule is off: say --retention-days, --max-sessions or --session."
            if plan.kept:
                text += "\nWhat stays as one of the newest goes only with --keep-recent 0."
            if plan.steps:
                text += f"\nTo do it, repeat the command with --apply {plan.fingerprint}"
            run.out(_plan_data(plan), text)
            if options.sessions and not plan.steps and not plan.kept:
                fail(1)
            return
        try:
            last = None
            for last in cleanup.apply(store, settings, options, fingerprint, settings.user):
                if not run.as_json and last.receipt is None and last.done < last.total:
                    click.echo(f"{last.done} of {last.total}", err=True)
        except PlanChanged as error:
            plan = error.details["plan"]
            error.details["plan"] = _plan_data(plan)
            if not run.as_json:
                click.echo(_plan_text(plan))
            raise
    assert last is not None  # apply always yields its result
    text = f"Removed {last.done - len(last.problems)} of {last.total} transcripts, {last.bytes:,} bytes."
    if last.receipt is not None:
        text += (
            f" Receipt {last.receipt}. The bytes are given back in {aside.DAYS} days; until then: "
            f"opencode-memory cleanup --undo {last.receipt}"
        )
    data = {"removed": last.done - len(last.problems), "planned": last.total, "bytes": last.bytes,
            "problems": list(last.problems), "receipt": last.receipt}  # fmt: skip
    for problem in last.problems:
        click.echo(f"opencode-memory: {problem}", err=True)
    run.out(data, text)
    if last.problems:
        fail(2)


COMMANDS = (export_command, transcripts_command, read, grep_command, cleanup_command)
