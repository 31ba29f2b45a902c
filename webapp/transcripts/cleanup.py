"""Cleanup: a plan made by pure functions, then the apply of that very plan."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from webapp.errors import Conflict, InvalidInput, NotFound, PlanChanged, ReadOnly, Unreadable
from webapp.opencode import list_sessions
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow, now_ms, receipts
from webapp.store.receipts import Receipt
from webapp.transcripts import aside
from webapp.transcripts.export import is_ours, safe_path
from webapp.transcripts.files import locked, marks_path, offsets_path, sources_path
from webapp.transcripts.library import Removed, Transcript, removed, shown_title, transcripts

DAY_MS = 86_400_000
ONLY_COPY = "; OpenCode no longer has it"
BATCH = 25
ACTION = "cleanup"
AUTO = "auto-sweep"
"""Who a cleanup is by that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to remove. `sessions` are named ids; `scope` None is every scope; 0 switches a rule off."""

    sessions: tuple[str, ...] = ()
    retention_days: int = 0
    max_sessions: int = 0
    keep_recent: int = 10
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A transcript that goes, why, and the bytes it gives back."""

    transcript: Transcript
    why: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A named or due transcript that stays, and why."""

    transcript: Transcript
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a cleanup would remove, and the fingerprint of the library that it was made for."""

    options: Options
    steps: tuple[Step, ...]
    kept: tuple[Kept, ...]
    unknown: tuple[str, ...]
    considered: int
    fingerprint: str

    @property
    def bytes(self) -> int:
        """Bytes that the whole plan gives back."""
        return sum(step.bytes for step in self.steps)


@dataclass(frozen=True, slots=True)
class Applied:
    """How far an apply has come. `problems` are transcripts that could not be removed, or of which
    something stayed."""

    done: int
    total: int
    bytes: int
    problems: tuple[str, ...]
    interrupted: bool
    receipt: int | None


def make_plan(
    library: Sequence[Transcript],
    options: Options,
    now: int,
    touched: Mapping[str, int] | None = None,
    bytes_of: Callable[[Transcript], int] = lambda item: item.size,
) -> Plan:
    """Plans a cleanup. Pure: nothing is read or written.

    Order: named sessions, of whatever scope; then those untouched for `retention_days`; then, per
    scope, the oldest beyond `max_sessions`. The `keep_recent` newest of each scope always stay, and
    so does a file that another program wrote. `touched` gives later times of last touch, by session
    id.
    """
    touched = touched or {}

    def touch(item: Transcript) -> int:
        return max(item.touched_at, touched.get(item.id, 0))

    def is_in_scope(item: Transcript) -> bool:
        return options.scope in (None, item.scope)

    scoped = [item for item in library if is_in_scope(item) or item.id in options.sessions]
    ordered = sorted(scoped, key=lambda item: (-touch(item), item.id))
    groups: dict[str, list[Transcript]] = {}
    for item in sorted(library, key=lambda item: (-touch(item), item.id)):
        groups.setdefault(item.scope, []).append(item)
    recent = {item.id for group in groups.values() for item in group[: options.keep_recent]}
    due: dict[str, str] = {}
    by_id = {item.id: item for item in library}
    for session_id in options.sessions:
        if session_id in by_id:
            due.setdefault(session_id, "named")
    if options.retention_days:
        horizon = now - options.retention_days * DAY_MS
        for item in ordered:
            if not is_in_scope(item):
                continue
            if touch(item) < horizon:
                days = (now - touch(item)) // DAY_MS
                due.setdefault(item.id, f"untouched for {days} days, over {options.retention_days}")
    if options.max_sessions:
        for scope, group in groups.items():
            if options.scope not in (None, scope):
                continue
            left = [item for item in group if item.id not in due or item.id in recent]
            for item in left[options.max_sessions :]:
                due.setdefault(item.id, f"more than {options.max_sessions} in its project")
    steps, kept = [], []
    for item in sorted((by_id[name] for name in due), key=lambda t: (touch(t), t.id)):
        if not item.ours:
            kept.append(Kept(item, "written by another program"))
        elif item.id in recent:
            kept.append(Kept(item, f"among the {options.keep_recent} newest of its project"))
        else:
            steps.append(Step(item, due[item.id], bytes_of(item)))
    facts = [(t.id, t.size, touch(t), t.scope) for t in sorted(scoped, key=lambda t: t.id)]
    chosen = [step.transcript.id for step in steps]
    text = json.dumps([asdict(options), facts, chosen], sort_keys=True)
    return Plan(
        options, tuple(steps), tuple(kept),
        tuple(name for name in options.sessions if name not in by_id), len(scoped),
        hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12],
    )  # fmt: skip


def plan(store: Store, settings: Settings, options: Options, now: int | None = None) -> Plan:
    """Plans a cleanup of the library as it is now. A session's last touch is its last change in
    OpenCode or of its transcript, whichever is later."""
    for name in ("retention_days", "max_sessions", "keep_recent"):
        if not 0 <= getattr(options, name) <= 1_000_000:
            raise InvalidInput(f"{name} must be from 0 to 1,000,000.", name)
    found = list_sessions(settings.opencode_databases())
    if found.problems and (options.retention_days or options.max_sessions):
        raise Unreadable(
            "OpenCode could not be asked which sessions are still in use, so only named ones can be "
            f"removed now. {' '.join(found.problems)}"
        )
    touched = {session.id: session.updated_at for session in found.sessions}
    at = now_ms() if now is None else now
    made = make_plan(transcripts(store, settings), options, at, touched, disk_bytes)
    steps = tuple(
        step if step.transcript.id in touched else replace(step, why=f"{step.why}{ONLY_COPY}")
        for step in made.steps
    )
    return replace(made, steps=steps)


def disk_bytes(item: Transcript) -> int:
    """Bytes of a transcript and what lies beside it."""
    total = 0
    for path in (item.path, *(of(item.path) for of in (marks_path, offsets_path, sources_path))):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def apply(
    store: Store,
    settings: Settings,
    options: Options,
    fingerprint: str,
    actor: str,
    stopped: Callable[[], bool] = lambda: False,
    now: int | None = None,
) -> Iterator[Applied]:
    """Removes what the plan of `fingerprint` named, in batches, yielding after each batch.

    Raises PlanChanged, with the new plan in its details, if the library is not what it was. When
    `stopped` turns true the rest stays. Whatever was removed by then is in the receipt, also when
    the caller ends early.
    """
    at = now_ms() if now is None else now
    fresh = plan(store, settings, options, at)
    if fresh.fingerprint != fingerprint:
        raise PlanChanged(
            "This is not the plan of these options for the library as it is now, so nothing was "
            "removed. Look at the new plan and apply that one.",
            plan=fresh,
        )
    if store.read_only:
        raise ReadOnly(f"{store.read_only} So nothing was removed.")
    total = len(fresh.steps)
    gone: list[Step] = []
    problems: list[str] = []
    failed = 0
    receipt: int | None = None
    interrupted = True

    def note() -> None:
        """Brings the receipt up to what is done. It is there before anything goes, so that a killed
        cleanup has one too."""
        nonlocal receipt
        summary, detail = _story(options, gone, failed, problems, total, interrupted)
        with store.writing():
            if receipt is None:
                receipt = receipts.write(store, ACTION, actor, summary, detail, at)
            else:
                receipts.update(store, receipt, summary, detail)

    try:
        for start in range(0, total, BATCH):
            if stopped():
                break
            note()
            for step in fresh.steps[start : start + BATCH]:
                try:
                    left = _remove(store, settings, step, actor, at)
                    gone.append(step)
                    problems += [f"{step.transcript.id}: {path} stays" for path in left]
                except (OSError, NotFound) as error:
                    failed += 1
                    problems.append(f"{step.transcript.id}: {error}")
            done = len(gone) + failed
            if done < total:
                yield Applied(done, total, _sum(gone), tuple(problems), False, None)
        interrupted = len(gone) + failed < total
    finally:
        if receipt is not None:
            note()
    yield Applied(len(gone) + failed, total, _sum(gone), tuple(problems), interrupted, receipt)


def sweep(
    store: Store, settings: Settings, stopped: Callable[[], bool] = lambda: False,
    now: int | None = None,
) -> Applied | None:  # fmt: skip
    """Removes in every project what the settings' own limits name; None if there was nothing to do.

    Raises Unreadable when OpenCode cannot be asked which sessions are still in use, and what `apply`
    raises; then nothing was removed.
    """
    if not settings.auto_sweep or not (settings.retention_days or settings.max_sessions):
        return None
    if not settings.opencode_databases():
        raise Unreadable(
            f"No OpenCode database was found in {settings.opencode_dir}, so it is not known which "
            "sessions are still in use, and nothing was cleaned up."
        )
    options = Options((), settings.retention_days, settings.max_sessions, settings.keep_recent)
    made = plan(store, settings, options, now)
    if not made.steps:
        return None
    done = None
    for done in apply(store, settings, options, made.fingerprint, AUTO, stopped, now):  # noqa: B007
        pass
    return done


def _sum(steps: Sequence[Step]) -> int:
    return sum(step.bytes for step in steps)


def _remove(store: Store, settings: Settings, step: Step, actor: str, at: int) -> list[Path]:
    item = step.transcript
    # The index is told first: a crash between the two leaves a file without a row, which is still
    # listed and can be read; the other way round a row would point at nothing.
    with locked(item.path, create=False) as descriptor:
        if not os.fstat(descriptor).st_size or removed(store, item.id) is not None:
            raise NotFound("somebody else has removed it meanwhile")
        _note(store, item, at, actor, step.why)
        try:
            return aside.set_aside(settings, item.path, at)
        except OSError:
            if item.path.exists():
                _note(store, item, None, None, None)
            raise


def undo(
    store: Store, settings: Settings, session_id: str, actor: str, now: int | None = None
) -> None:
    """Puts a removed transcript back as it was, line for line, and leaves a receipt.

    Raises NotFound if it is not removed or its bytes are gone, Conflict if there is another by now,
    ReadOnly and Unreadable.
    """
    at = now_ms() if now is None else now
    gone = _put_back(store, settings, session_id)
    with store.writing():
        receipts.write(
            store,
            "undo",
            actor,
            f"Put the transcript “{shown_title(gone.title, settings)}” back",
            {"id": session_id},
            at,
        )


def _put_back(store: Store, settings: Settings, session_id: str) -> Removed:
    gone = _undoable(store, settings, session_id)
    if gone is None:
        raise NotFound(
            f"The transcript of {session_id} is not among the removed ones any more; they are kept "
            f"for {aside.DAYS} days."
        )
    if store.read_only:
        raise ReadOnly(f"{store.read_only} So nothing was put back.")
    path = settings.transcripts_dir / gone.path
    try:
        if aside.is_aside(settings, path, gone.removed_at):
            aside.put_back(settings, path, gone.removed_at)
    except OSError as error:
        raise Unreadable(f"{path} cannot be put back: {error.strerror}.") from error
    with store.writing():
        store.run(
            TranscriptRow.update(removed_at=None, removed_by=None, removed_why=None).where(
                TranscriptRow.session_id == session_id
            )
        )
    return gone


def undo_receipt(
    store: Store, settings: Settings, receipt_id: int, actor: str
) -> tuple[int, list[str]]:
    """Puts back every transcript that a cleanup's receipt names and that is still kept, notes that in
    it, and leaves one receipt more. Returns how many, and why the others are not."""
    stored = receipts.get(store, receipt_id)
    if stored.action != ACTION:
        raise InvalidInput(f"Receipt {receipt_id} is not one of a cleanup.", "receipt")
    found = whole(store, settings, stored)
    if found is not stored and not store.read_only:
        # What the index tells of a killed cleanup is gone once it is undone.
        with store.writing():
            receipts.update(store, found.id, found.summary, found.detail)
    done: list[str] = []
    problems = []
    for session_id in named(found):
        try:
            done.append(_put_back(store, settings, session_id).id)
        except (NotFound, Conflict) as error:
            problems.append(error.message)
    if done:
        word = "transcript" if len(done) == 1 else "transcripts"
        summary = f"Put {len(done)} {word} of receipt {receipt_id} back"
        before = found.detail.get("put back")
        total = len(done) + _whole(before)
        with store.writing():
            receipts.write(store, "undo", actor, summary, {"ids": done}, now_ms())
            receipts.update(store, found.id, found.summary, {**found.detail, "put back": total})
    return len(done), problems


def named(receipt: Receipt) -> list[str]:
    """The ids that a receipt names as removed. Another program may have put anything there: what is no
    id leads to no transcript."""
    items = receipt.detail.get("transcripts")
    items = items if isinstance(items, list) else []
    ids = [item.get("id") for item in items if isinstance(item, dict)]
    return [found for found in ids if isinstance(found, str) and found and found.isprintable()]


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def can_undo(store: Store, settings: Settings, session_id: str) -> bool:
    """Whether a removed transcript can still be put back as it was."""
    return _undoable(store, settings, session_id) is not None


def _undoable(store: Store, settings: Settings, session_id: str) -> Removed | None:
    gone = removed(store, session_id)
    if gone is None or safe_path(settings, session_id, gone.path) is None:
        return None
    path = settings.transcripts_dir / gone.path
    # A cleanup that was killed between the note and the move has left it where it was.
    kept = aside.is_aside(settings, path, gone.removed_at)
    return gone if kept or is_ours(path, session_id) else None


def whole(store: Store, settings: Settings, receipt: Receipt) -> Receipt:
    """A cleanup's receipt with all that was removed. One that was killed could not tell of its last
    batch any more: that is added from the index, which is written before each transcript goes."""
    detail = receipt.detail
    told = detail.get("transcripts")
    if receipt.action != ACTION or not detail.get("interrupted") or not isinstance(told, list):
        return receipt
    known = set(named(receipt))
    rows = store.all(
        TranscriptRow.select()
        .where(TranscriptRow.removed_at == receipt.at, TranscriptRow.removed_by == receipt.actor)
        .order_by(TranscriptRow.session_id)
    )
    more = [
        {"id": row.session_id, "title": shown_title(row.title, settings), "scope": row.scope,
         "bytes": row.size + row.marks_size, "lines": row.lines, "why": row.removed_why}
        for row in rows if row.session_id not in known
    ]  # fmt: skip
    if not more:
        return receipt
    count = len(told) + len(more)
    freed = _whole(detail.get("bytes")) + sum(item["bytes"] for item in more)
    full = {**detail, "removed": count, "bytes": freed, "transcripts": [*told, *more]}
    return replace(receipt, summary=_summary(count, 0, detail.get("planned", 0), True), detail=full)


def _note(
    store: Store, item: Transcript, at: int | None, actor: str | None, why: str | None
) -> None:
    with store.writing():
        store.run(
            TranscriptRow.update(removed_at=at, removed_by=actor, removed_why=why).where(
                TranscriptRow.session_id == item.id
            )
        )


def _summary(count: int, failed: int, total: int, interrupted: bool) -> str:
    text = f"Removed {count} {'transcript' if count == 1 else 'transcripts'}"
    if interrupted:
        text += f" of {total} planned, then stopped"
    if failed:
        text += f"; {failed} could not be removed"
    return text


def _story(
    options: Options, gone: Sequence[Step], failed: int, problems: Sequence[str], total: int,
    interrupted: bool,
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    detail = {
        "options": asdict(options), "planned": total, "removed": len(gone), "bytes": _sum(gone),
        "interrupted": interrupted, "problems": list(problems),
        "transcripts": [
            {"id": s.transcript.id, "title": s.transcript.title, "scope": s.transcript.scope,
             "bytes": s.bytes, "lines": s.transcript.lines, "why": s.why} for s in gone
        ],
    }  # fmt: skip
    return _summary(len(gone), failed, total, interrupted), detail
