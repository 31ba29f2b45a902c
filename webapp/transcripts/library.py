"""The library: every transcript on disk, ours and those that another program put there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from webapp import secrets
from webapp.errors import MemoryAppError, NotFound, Unreadable
from webapp.opencode import Session, find_session
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.transcripts.export import Exported, check_id, export, is_ours, last_end, safe_path
from webapp.transcripts.files import Offsets

SORTS = ("touched", "title", "size", "lines", "scope")
HEAD = 4096


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript on disk. `size` and `lines` are what holds whole messages; `touched_at` is the
    later of the session's last change in OpenCode and the file's own. `ours` is false for a file
    that another program wrote."""

    id: str
    scope: str
    title: str
    path: Path
    lines: int
    size: int
    created_at: int
    touched_at: int
    exported_at: int
    ours: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """What is left of a transcript that a cleanup removed."""

    id: str
    title: str
    scope: str
    removed_at: int
    removed_by: str
    why: str
    path: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Transcripts in the order asked for, and the totals of all of them."""

    items: tuple[Transcript, ...]
    total: int
    lines: int
    size: int


def transcripts(store: Store, settings: Settings) -> list[Transcript]:
    """Every transcript, unordered. Files that no index row names are listed as foreign."""
    found: dict[str, Transcript] = {}
    paths: set[Path] = set()
    if store.has_table("transcripts"):
        for row in store.all(TranscriptRow.select().where(TranscriptRow.removed_at.is_null())):
            if safe_path(settings, row.session_id, row.path) is None:
                continue
            item = _of_row(row, settings)
            if item.path.is_file():
                found[item.id] = item
                paths.add(item.path)
    for path in _files(settings):
        if path not in paths:
            foreign = _foreign(path, found, settings)
            if foreign is not None:
                found[foreign.id] = foreign
    return list(found.values())


def shown_title(title: str, settings: Settings) -> str:
    """The title of a session as it may be shown: OpenCode makes it out of the first request, which
    may hold a credential."""
    return secrets.mask(title) if settings.mask else title


def _of_row(row: TranscriptRow, settings: Settings) -> Transcript:
    return Transcript(
        row.session_id, row.scope, shown_title(row.title, settings),
        settings.transcripts_dir / row.path, row.lines, row.size, row.created_at,
        row.updated_at or row.created_at, row.exported_at, True,
    )  # fmt: skip


def _files(settings: Settings) -> Iterable[Path]:
    try:
        folders = [
            p for p in settings.transcripts_dir.iterdir() if p.is_dir() and not p.is_symlink()
        ]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(
            f"The folder {settings.transcripts_dir} cannot be read: {error.strerror}."
        ) from error
    return [
        path
        for folder in folders
        for path in folder.glob("*.md")
        if path.is_file() and not path.is_symlink() and _is_text(path)
    ]


def _is_text(path: Path) -> bool:
    """Whether a path can stand in a link and on a page."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _foreign(path: Path, taken: dict[str, Transcript], settings: Settings) -> Transcript | None:
    """A file that no index row names, or None for one that is gone or holds nothing whole, as a
    transcript is during its first export. One that may not be read is listed with no lines."""
    try:
        state = path.stat()
        size = state.st_size
        end = last_end(path, size) if is_ours(path, path.stem) else None
        if end is not None:
            size = end[0]
        if not size:
            return None
        with path.open("rb") as file:
            head = file.read(HEAD).decode("utf-8", "replace").split("\n")
        lines = Offsets.of(path, size, stable=False).total()
    except FileNotFoundError:
        return None
    except OSError:
        head, lines = [""], 0
    title = head[0].lstrip("# ").strip() or path.stem
    fields = dict(line.split(": ", 1) for line in head[1:12] if ": " in line)
    name = path.stem if path.stem not in taken else f"{path.stem}~{path.parent.name}"
    touched = state.st_mtime_ns // 1_000_000
    return Transcript(
        name, fields.get("scope") or path.parent.name, shown_title(title[:200], settings), path,
        lines, size, touched, touched, touched, False,
    )  # fmt: skip


def listing(
    store: Store,
    settings: Settings,
    *,
    scope: str | None = None,
    text: str = "",
    sort: str = "touched",
    descending: bool = True,
    offset: int = 0,
    limit: int = 100,
) -> Listing:
    """A page of the library, filtered by scope and by words in title or id."""
    items = [item for item in transcripts(store, settings) if scope in (None, item.scope)]
    for word in text.casefold().split():
        items = [item for item in items if word in f"{item.title} {item.id}".casefold()]
    keys = {
        "touched": lambda t: t.touched_at, "title": lambda t: t.title.casefold(),
        "size": lambda t: t.size, "lines": lambda t: t.lines, "scope": lambda t: t.scope,
    }  # fmt: skip
    items.sort(key=lambda t: t.id)
    items.sort(key=keys.get(sort, keys["touched"]), reverse=descending)
    return Listing(
        tuple(items[offset : offset + limit]), len(items), sum(t.lines for t in items),
        sum(t.size for t in items),
    )  # fmt: skip


def get(store: Store, settings: Settings, session_id: str) -> Transcript:
    """One transcript that is on disk, also one that another program gave a name which is no id of
    a session. Raises NotFound."""
    if store.has_table("transcripts"):
        row = store.first(
            TranscriptRow.select().where(
                TranscriptRow.session_id == session_id, TranscriptRow.removed_at.is_null()
            )
        )
        if row is not None and safe_path(settings, session_id, row.path) is not None:
            item = _of_row(row, settings)
            if item.path.is_file():
                return item
    for path in _files(settings):
        if session_id in (path.stem, f"{path.stem}~{path.parent.name}"):
            foreign = _foreign(path, {}, settings)
            if foreign is not None:
                return replace(foreign, id=session_id)
    raise NotFound(f"There is no transcript of a session {session_id[:60]}.")


def removed(store: Store, session_id: str) -> Removed | None:
    """What a cleanup noted when it removed a transcript."""
    if not store.has_table("transcripts"):
        return None
    row = store.first(
        TranscriptRow.select().where(
            TranscriptRow.session_id == session_id, TranscriptRow.removed_at.is_null(False)
        )
    )
    if row is None:
        return None
    return Removed(
        row.session_id,
        row.title,
        row.scope,
        row.removed_at,
        row.removed_by,
        row.removed_why,
        row.path,
    )


def removed_ids(store: Store) -> set[str]:
    """The sessions whose transcripts a cleanup removed and nobody has exported since."""
    if not store.has_table("transcripts"):
        return set()
    rows = store.rows("SELECT session_id FROM transcripts WHERE removed_at IS NOT NULL")
    return {row[0] for row in rows}


@dataclass(frozen=True, slots=True)
class Opened:
    """A transcript brought up to date, what the export did (None if nothing was needed), and the
    problems that kept it from being newer."""

    transcript: Transcript
    exported: Exported | None
    problems: tuple[str, ...]


def open_transcript(store: Store, settings: Settings, session_id: str) -> Opened:
    """A transcript by session id: exported on demand if it is not on disk, and brought up to date
    if the session went on. One that a cleanup removed is not made again here.

    What keeps it from being brought up to date (no OpenCode, a locked file, a read-only store)
    becomes a problem as long as there is something on disk to show; else NotFound or the problem's
    own error is raised.
    """
    gone = removed(store, session_id)
    held: Transcript | None
    try:
        held = get(store, settings, session_id)
    except NotFound:
        check_id(session_id)
        held = None
    if held is None and gone is not None:
        gone = replace(gone, title=shown_title(gone.title, settings))
        raise NotFound(f"The transcript of {session_id} was removed by a cleanup.", removed=gone)
    if held is not None and not held.ours and (gone or not is_ours(held.path, session_id)):
        return Opened(held, None, ())
    session, problems = find_session(settings.opencode_databases(), session_id)
    if session is None:
        if held is not None:
            return Opened(held, None, tuple(problems))
        if problems:
            raise NotFound(
                f"There is no transcript of {session_id}, and OpenCode could not be asked for it: "
                + " ".join(problems)
            )
        raise NotFound(f"Neither a transcript nor OpenCode knows a session {session_id}.")
    if held is not None and held.ours and held.touched_at >= session.updated_at:
        return Opened(held, None, tuple(problems))
    try:
        exported = export(store, settings, session)
    except MemoryAppError as error:
        if held is None:
            raise
        return Opened(held, None, (*problems, error.message))
    return Opened(get(store, settings, session_id), exported, tuple(problems))


def missing(
    store: Store, settings: Settings, sessions: Iterable[Session]
) -> tuple[list[Session], list[Session]]:
    """Of OpenCode's sessions those without a transcript, and those whose transcript is behind.

    A session whose transcript a cleanup removed counts as neither, else an export of everything
    would undo the cleanup.
    """
    rows: dict[str, TranscriptRow] = {}
    if store.has_table("transcripts"):
        rows = {row.session_id: row for row in store.all(TranscriptRow.select())}
    absent, behind = [], []
    for session in sessions:
        row = rows.get(session.id)
        if row is None:
            absent.append(session)
        elif row.removed_at is None and row.updated_at < session.updated_at:
            behind.append(session)
    return absent, behind
