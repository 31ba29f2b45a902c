"""Export: a session of OpenCode appended to its transcript. Line N of a session never changes."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from webapp import opencode
from webapp.errors import Conflict, InvalidInput, MemoryAppError, Unreadable
from webapp.opencode import Session
from webapp.scope import scope_folder
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow, now_ms, private_folder
from webapp.transcripts import render
from webapp.transcripts.files import (
    Mark,
    load_marks,
    load_sources,
    locked,
    marks_around,
    marks_path,
    offsets_path,
    save_sources,
)
from webapp.transcripts.render import LABEL, Block

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.~-]{0,199}")
HEAD = 65_536
"""Bytes within which the first three lines of a transcript end, whatever its title."""

UNFINISHED_MS = 1
"""By so much the index puts a session with an unfinished message before its last touch: it may be
finished without another one."""

GONE = "gone"
_SWITCHES = ("agent-switched", "model-switched")
PRUNED = "pruned"
CONTINUED = "continued"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export did. `unfinished` messages are still being written by OpenCode and come with
    a later export."""

    session_id: str
    path: Path
    lines: int
    added: int
    created: bool
    unfinished: int


def check_id(session_id: str) -> str:
    """A session id that is safe as a file name. Raises InvalidInput."""
    if not _ID.fullmatch(session_id):
        raise InvalidInput(f"“{session_id[:60]}” is not the id of a session.", "session")
    return session_id


def path_of(settings: Settings, session: Session) -> Path:
    """Where the transcript of a session begins."""
    folder = settings.transcripts_dir / scope_folder(session.scope)
    return folder / f"{check_id(session.id)}.md"


def export(
    store: Store, settings: Settings, session: Session, now: int | None = None, again: bool = False
) -> Exported:
    """Appends what is new in a session to its transcript, creating it if need be.

    Only finished messages are written, in order: what follows an unfinished one waits for it. What
    changed in OpenCode above the end (pruned, edited, removed, taken back) becomes a dated notice at
    the end. The order is marks, text, the end mark, then the index row with the good lengths:
    whatever lies beyond those after a crash is cut by the next export.
    One that a cleanup removed is made anew only with `again`. Raises Unreadable, Busy, ReadOnly or
    Conflict; then the transcript reads as it did before.
    """
    at = now_ms() if now is None else now
    path = path_of(settings, session)
    if store.read_only:
        raise Unreadable(f"{store.read_only} So no transcript can be exported.")
    row = _row(store, settings, session)
    if row is not None and row.removed_at is not None and not again:
        raise _removed_one(session)
    if row is not None and row.removed_at is None:
        # It stays where it began, also when the project has moved.
        path = settings.transcripts_dir / row.path
    try:
        if row is None:
            path = _begun(settings, session.id, path)
        private_folder(path.parent)
        with locked(path) as descriptor, opencode.reading(session.db) as connection:
            # Whoever asked may have read the session a while ago.
            fresh = opencode.session_in(connection, session.db, session.id) or session
            return _append(store, settings, fresh, path, descriptor, connection, at, again)
    except OSError as error:
        raise Unreadable(
            f"The transcript {path} cannot be written: {error.strerror}. What was there is unharmed."
        ) from error


def _removed_one(session: Session) -> Conflict:
    return Conflict(
        f"The transcript of {session.id} was removed by a cleanup. Put it back or export it again on "
        "its own page."
    )


def _row(store: Store, settings: Settings, session: Session) -> TranscriptRow | None:
    found: TranscriptRow | None = store.first(
        TranscriptRow.select().where(TranscriptRow.session_id == session.id)
    )
    if found is None or safe_path(settings, session.id, found.path) is None:
        return None
    numbers = (found.size, found.lines, found.marks_size)
    return found if all(isinstance(number, int) for number in numbers) else None


def _begun(settings: Settings, session_id: str, path: Path) -> Path:
    """Where the transcript of a session that the index does not know was begun: in `path`, or where
    its project was then."""
    for each in (path, *settings.transcripts_dir.glob(f"*/{path.name}")):
        if each.parent.is_symlink() or not is_ours(each, session_id):
            continue
        if (last_end(each, _size(each)) or (0,))[0]:
            return each
    return path


def is_safe(session_id: str, relative: str) -> bool:
    """Whether the place where the index says that a transcript lies is one of the library: the index
    is in a file that other programs write too."""
    folder, _, name = relative.partition("/")
    return name == f"{session_id}.md" and "/" not in name and folder not in ("", ".", "..")


def safe_path(settings: Settings, session_id: str, relative: str) -> Path | None:
    """Where a transcript lies, or None if that is no place of the library."""
    return settings.transcripts_dir / relative if is_safe(session_id, relative) else None


def _append(
    store: Store, settings: Settings, session: Session, path: Path, descriptor: int,
    connection: sqlite3.Connection, at: int, again: bool,
) -> Exported:  # fmt: skip
    row = _row(store, settings, session)
    if row is not None and row.removed_at is not None:
        if not again:
            raise _removed_one(session)
        row = None
    size, lines, marks_size = _good_lengths(row, session, path, descriptor)
    os.fchmod(descriptor, 0o600)
    _truncate(descriptor, path, size, marks_size)
    marks = load_marks(path, marks_size)
    text = _Appender(descriptor, marks_path(path), lines)
    known = _Known(marks, load_sources(path, size, marks_size))
    unfinished = 0
    count = 0
    try:
        if size == 0:
            text.add(render.header(session), "header")
        elif known.has_other_title(session.title, row):
            title = render.one_line(session.title)
            text.notice(at, "title", [f"The title is now: {title}"], "title", _title_digest(title))
        seen: set[str] = set()
        same: set[str] = set()
        sources: dict[str, str] = {}
        for item in opencode.messages(connection, session.id, at, known.is_same):
            seen.add(item.id)
            if item.same:
                same.add(item.id)
                sources[item.id] = item.fingerprint
                count += 1
                continue
            if item.id not in known.messages and (unfinished or not item.finished):
                unfinished += 1
                continue
            count += 1
            rendered = render.message(item, settings.inline_output_max_bytes)
            _message(text, known, rendered.heading, rendered.parts, at, seen, item.finished)
            sources[item.id] = item.fingerprint
        seen.update(part for part, owner in known.owners.items() if owner in same)
        _removed(text, known, seen, at)
        _reverted(text, known, session, seen, at)
        text.finish()
    except BaseException:
        text.abandon()
        _truncate(descriptor, path, size, marks_size)
        raise
    if text.size or text.marks_size or sources != known.sources:
        save_sources(path, sources, size + text.size, marks_size + text.marks_size)
    created = size == 0
    values = {
        "session_id": session.id, "scope": session.scope,
        "path": str(path.relative_to(settings.transcripts_dir)), "title": session.title,
        "source_db": str(session.db), "created_at": session.created_at,
        "updated_at": session.updated_at - (UNFINISHED_MS if unfinished else 0),
        "exported_at": at if text.lines > lines or row is None else row.exported_at,
        "messages": count, "lines": text.lines, "size": size + text.size,
        "marks_size": marks_size + text.marks_size, "removed_at": None, "removed_by": None,
        "removed_why": None,
    }  # fmt: skip
    if row is None or any(getattr(row, key) != value for key, value in values.items()):
        with store.writing():
            store.run(TranscriptRow.insert(**values).on_conflict_replace())
    return Exported(session.id, path, text.lines, text.lines - lines, created, unfinished)


def _good_lengths(
    row: TranscriptRow | None, session: Session, path: Path, descriptor: int
) -> tuple[int, int, int]:
    """Size, lines and size of the marks up to which the files hold whole messages."""
    on_disk = os.fstat(descriptor).st_size
    if row is not None:
        # The index may be older than the files: a copy put back, a power cut. What an end mark says
        # is whole stays, else line N would change.
        later = last_end(path, on_disk)
        if later is not None and later[0] > row.size:
            return later
        if on_disk >= row.size:
            if _ends_at(path, row.marks_size, row.size):
                return row.size, row.lines, row.marks_size
            if later is not None and later[0] == row.size:
                return later
            raise Conflict(
                f"{marks_path(path)} is gone, cut short or not what it was, so what {path.name} "
                "holds already is not known. It can be read as it is; move it away to export the "
                "session anew."
            )
        if on_disk > 0:
            raise Conflict(
                f"{path} is shorter ({on_disk:,} bytes) than what was written to it "
                f"({row.size:,} bytes). It was left as it is. Move it away to export it anew."
            )
        return 0, 0, 0
    if on_disk == 0:
        return 0, 0, 0
    if _is_torn(path, session.id, on_disk):
        return 0, 0, 0
    if not _is_ours(os.pread(descriptor, HEAD, 0), session.id):
        raise Conflict(
            f"{path} is there already and was written by another program. It is shown as it is; "
            "move it away to export the session."
        )
    return _adopt(path, descriptor)


def _is_torn(path: Path, session_id: str, size: int) -> bool:
    """Whether a file is the beginning of our own first export, which was interrupted."""
    first = next(iter(marks_around(path, 1, 1)), None)
    begun = first is not None and (first.kind, first.id) == ("header", session_id)
    return begun and last_end(path, size) == (0, 0, 0)


def _is_ours(head: bytes, session_id: str) -> bool:
    lines = head.decode("utf-8", "replace").split("\n")
    return lines[1:3] == [render.FORMAT, f"session: {session_id}"]


def is_ours(path: Path, session_id: str) -> bool:
    """Whether a file begins as our transcript of that session does, whatever the index says."""
    try:
        with path.open("rb") as file:
            return _is_ours(file.read(HEAD), session_id)
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _adopt(path: Path, descriptor: int) -> tuple[int, int, int]:
    """The good lengths of our own file whose index row was lost."""
    found = last_end(path, os.fstat(descriptor).st_size)
    if found is None:
        raise Conflict(
            f"{path} is one of our transcripts, but neither the index nor its marks know how far "
            "it is whole. It can be read as it is; move it away to export the session anew."
        )
    return found


def _ends_at(path: Path, marks_size: int, size: int) -> bool:
    """Whether the first `marks_size` bytes of the marks end by saying that so much text is whole."""
    try:
        with marks_path(path).open("rb") as file:
            start = max(0, marks_size - 200)
            file.seek(start)
            end = file.read(marks_size - start)
    except (FileNotFoundError, ValueError):
        return False
    pieces = end.removesuffix(b"\n").rpartition(b"\n")[2].split(b"\t")
    whole = len(end) == marks_size - start and end.endswith(b"\n") and len(pieces) == 5
    return whole and pieces[1] == b"end" and pieces[3] == str(size).encode()


def last_end(path: Path, size: int) -> tuple[int, int, int] | None:
    """Size, lines and size of the marks up to the last whole message of the first `size` bytes of
    our own file, as its marks tell; None when they do not.

    Every append ends with a mark of kind `end`, whose digest is the size of the text. Where there
    are marks and never was an end, the very first export was interrupted: nothing is whole.
    """
    try:
        data = marks_path(path).read_bytes()
    except FileNotFoundError:
        return None
    if data and b"\tend\t" not in data:
        return 0, 0, 0
    ended = False
    position = len(data)
    while position > 0:
        start = data.rfind(b"\n", 0, position - 1) + 1
        pieces = data[start:position].decode("utf-8", "replace").rstrip("\n").split("\t")
        whole = len(pieces) == 5 and pieces[1] == "end" and pieces[3].isdigit()
        if whole and data[position - 1 : position] == b"\n":
            if 0 < int(pieces[3]) <= size:
                return int(pieces[3]), int(pieces[0]), position
            ended = True
        position = start
    return (0, 0, 0) if data and not ended else None


def _truncate(descriptor: int, path: Path, size: int, marks_size: int) -> None:
    """Cuts the files to their good lengths. Line counts may be of what is cut, so they go too."""
    if size == 0 or os.fstat(descriptor).st_size > size:
        offsets_path(path).unlink(missing_ok=True)
        os.ftruncate(descriptor, size)
    if _size(marks_path(path)) > marks_size:
        marks = os.open(marks_path(path), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.ftruncate(marks, marks_size)
        finally:
            os.close(marks)


class _Known:
    """What the marks say was written already: per id its line, the digest of its text (also that
    of before it went), for a part the message it was written under, and for a message what it was
    made of in OpenCode."""

    def __init__(self, marks: Iterable[Mark], sources: Mapping[str, str]) -> None:
        self.digests: dict[str, str] = {}
        self.before_gone: dict[str, str] = {}
        self.lines: dict[str, int] = {}
        self.messages: dict[str, str] = {}
        self.owners: dict[str, str] = {}
        self.sources = sources
        self.first_title = ""
        self.told_title: str | None = None
        owner = ""
        for line, kind, id, digest, label in marks:
            if kind == "header":
                self.first_title = label
            if kind == "notice" and id == "title":
                self.told_title = digest
                continue
            if kind in ("header", "end") or not id:
                continue
            if digest == CONTINUED:
                owner = id
                continue
            if digest == GONE:
                self.before_gone[id] = self.digests.get(id, "")
            self.digests[id] = digest
            self.lines.setdefault(id, line)
            if kind.startswith("message:"):
                self.messages[id] = kind.removeprefix("message:")
                owner = id
            elif kind != "notice":
                self.owners[id] = owner

    def has_other_title(self, title: str, row: TranscriptRow | None) -> bool:
        """Whether the transcript tells another title. Which one it told last, a mark says; before the
        first such mark the index, or where that was lost the head, as far as a label goes."""
        title = render.one_line(title)
        if self.told_title is not None:
            return self.told_title != _title_digest(title)
        if row is not None:
            return render.one_line(row.title) != title
        label = title[:LABEL].encode("utf-8", "replace").decode()
        return self.first_title.split() != label.split()

    def is_same(self, message_id: str, fingerprint: str) -> bool:
        """Whether a message is in OpenCode as it was when it was written or looked at last."""
        return (
            self.sources.get(message_id) == fingerprint
            and self.digests.get(message_id, GONE) != GONE
        )


def _title_digest(title: str) -> str:
    return hashlib.blake2b(title.encode("utf-8", "replace"), digest_size=8).hexdigest()


def digest(block: Block) -> str:
    """A short digest of a block's whole text, by which a later change is noticed."""
    text = (block.whole or block.text).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()


class _Appender:
    """Writes blocks and their marks; keeps count of lines and bytes."""

    def __init__(self, descriptor: int, marks: Path, lines: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_END)
        self._descriptor = descriptor
        self._text = io.BytesIO()
        self._marks_path = marks
        self._marks: io.BufferedWriter | None = None
        self._base = os.fstat(descriptor).st_size
        self.lines = lines
        self.size = 0
        self.marks_size = 0

    def add(self, block: Block, kind: str, text_digest: str | None = None) -> int:
        """Appends a block; returns the number of its first line."""
        first = self.lines + 1
        mark = Mark(first, kind, block.id, text_digest or digest(block), block.label)
        data = block.text.encode("utf-8", "backslashreplace") + b"\n"
        self._text.write(data)
        self.size += len(data)
        self.lines += data.count(b"\n")
        self._mark(mark)
        if self._text.tell() > 1 << 20:
            self._flush()
        return first

    def blank(self) -> None:
        """An empty line, before every heading of a message."""
        self._text.write(b"\n")
        self.size += 1
        self.lines += 1

    def notice(self, at: int, what: str, lines: list[str], id: str = "", state: str = "") -> None:
        """A dated notice; `state` becomes what is known of `id` from now on."""
        self.blank()
        self.add(render.notice(at, what, lines, id), "notice", state or "-")

    def finish(self) -> None:
        """Everything on disk, for good."""
        self._flush()
        if self.size:
            os.fsync(self._descriptor)
            end = str(self._base + self.size)
            self._mark(Mark(self.lines, "end", "", end, ""))
        if self._marks is not None:
            self._marks.flush()
            os.fsync(self._marks.fileno())
        self.abandon()

    def abandon(self) -> None:
        """Closes what is open without a promise."""
        if self._marks is not None:
            self._marks.close()
            self._marks = None

    def _mark(self, mark: Mark) -> None:
        if self._marks is None:
            descriptor = os.open(
                self._marks_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
            )
            os.fchmod(descriptor, 0o600)
            self._marks = os.fdopen(descriptor, "wb")
        data = mark.dump().encode("utf-8", "replace")
        self._marks.write(data)
        self.marks_size += len(data)

    def _flush(self) -> None:
        if self._marks is not None:
            self._marks.flush()
        view = self._text.getbuffer()
        position = 0
        while position < len(view):
            position += os.write(self._descriptor, view[position:])
        view.release()
        self._text = io.BytesIO()


def _message(
    text: _Appender, known: _Known, heading: Block, parts: Iterable[Block], at: int, seen: set[str],
    finished: bool,
) -> None:  # fmt: skip
    new = heading.id not in known.digests
    if new:
        text.blank()
        text.add(heading, f"message:{heading.kind}")
    elif known.digests[heading.id] == GONE:
        _changed(text, known, heading, GONE, digest(heading), at)
    elif finished and known.digests[heading.id] != digest(heading):
        _changed(text, known, heading, known.digests[heading.id], digest(heading), at)
    continued = False
    for block in parts:
        seen.add(block.id)
        before = known.digests.get(block.id)
        now = PRUNED + digest(block) if block.pruned else digest(block)
        if before is None:
            if not new and not continued:
                text.blank()
                again = f"## {heading.kind} · continued · {heading.id}"
                text.add(
                    replace(heading, text=again, whole=""), f"message:{heading.kind}", CONTINUED
                )
                continued = True
            text.add(block, block.kind, now)
        elif before != now:
            _changed(text, known, block, before, now, at)


def _changed(text: _Appender, known: _Known, block: Block, before: str, now: str, at: int) -> None:
    where = f"{block.id} (line {known.lines[block.id]})"
    if before == GONE:
        told = [f"{where} is there again."]
        if known.before_gone[block.id].removeprefix(PRUNED) != now.removeprefix(PRUNED):
            told = [f"{where} is there again and now reads:", block.text]
        text.notice(at, "back", told, block.id, now)
    elif block.pruned and not before.startswith(PRUNED):
        text.notice(
            at, "pruned",
            [f"The output of {where} has left the model's view; it stands above."], block.id, now,
        )  # fmt: skip
    elif before.removeprefix(PRUNED) != now.removeprefix(PRUNED):
        text.notice(at, "changed", [f"{where} now reads:", block.text], block.id, now)


def _removed(text: _Appender, known: _Known, seen: set[str], at: int) -> None:
    for message_id, kind in known.messages.items():
        if kind in _SWITCHES:
            continue  # An upgrade of OpenCode empties its table of them.
        if message_id not in seen and known.digests[message_id] != GONE:
            line = known.lines[message_id]
            text.notice(
                at, "removed", [f"{message_id} (line {line}) is no longer in OpenCode."],
                message_id, GONE,
            )  # fmt: skip
    for part_id, owner in known.owners.items():
        if part_id not in seen and owner in seen and known.digests[part_id] != GONE:
            line = known.lines[part_id]
            text.notice(
                at, "removed", [f"{part_id} (line {line}) is no longer in OpenCode."], part_id, GONE
            )


def _reverted(text: _Appender, known: _Known, session: Session, seen: set[str], at: int) -> None:
    before = known.digests.get("revert", "-")
    revert = session.revert or {}
    target = str(revert.get("messageID") or "")
    part = str(revert.get("partID") or "")
    now = f"{target}/{part}".strip("/") or "-"
    if now == before:
        return
    if now == "-":
        taken, _, part_taken = before.partition("/")
        if (part_taken or taken) in seen:
            text.notice(at, "un-revert", ["What was taken back is in force again."], "revert", "-")
        else:
            text.notice(at, "revert", ["What was taken back is gone for good."], "revert", "-")
        return
    line = known.lines.get(part or target)
    where = f"{part or target}" + (f" (line {line})" if line else "")
    text.notice(at, "revert", [f"Everything from {where} on was taken back."], "revert", now)


def _is_removed(store: Store, session: Session) -> bool:
    return store.has_table("transcripts") and bool(
        store.value(
            "SELECT 1 FROM transcripts WHERE session_id = ? AND removed_at IS NOT NULL",
            (session.id,),
        )
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """One step of an export of many: what was done with `session`, or why it could not be. Of one
    that a cleanup has removed meanwhile there is neither."""

    done: int
    total: int
    session: Session
    exported: Exported | None
    problem: str = ""


def export_many(
    store: Store, settings: Settings, sessions: list[Session], now: int | None = None,
    again: bool = False,
) -> Iterator[Progress]:  # fmt: skip
    """Exports sessions one after the other. One that fails is reported and the rest goes on. Those
    that a cleanup removed are left out, unless `again`."""
    for number, session in enumerate(sessions, 1):
        if not again and _is_removed(store, session):
            yield Progress(number, len(sessions), session, None)
            continue
        try:
            done = export(store, settings, session, now, again)
            yield Progress(number, len(sessions), session, done)
        except MemoryAppError as error:
            yield Progress(number, len(sessions), session, None, error.message)
