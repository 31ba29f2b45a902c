"""The library: every transcript on disk, ours and those that another program put there."""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from webapp import secrets
from webapp.errors import InvalidInput, MemoryAppError, NotFound
from webapp.opencode import find_session
from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.store.values import as_text, as_time
from webapp.transcripts.export import Exported, check_id, export, is_ours, is_safe, last_end
from webapp.transcripts.files import Offsets
from webapp.transcripts.folders import SETTLED_NS, SUFFIX, texts

SORTS = ("touched", "title", "size", "lines", "scope")
HEAD = 4096


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript on disk. `size` and `lines` are what holds whole messages; `touched_at` is the
    session's last change in OpenCode, or the file's. `ours` is false for a file that another program
    wrote; `on_disk` is false when the index names a file that somebody has taken away."""

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
    on_disk: bool = True


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
    """A page of transcripts in the order asked for, and the totals of all that were asked for.
    `after` and `before` name the next and the previous page, if there is one."""

    items: tuple[Transcript, ...]
    total: int
    lines: int
    size: int
    after: str | None = None
    before: str | None = None


def transcripts(store: Store, settings: Settings) -> list[Transcript]:
    """Every transcript on disk, unordered. Files that no index row names are listed as foreign."""
    there = texts(settings.transcripts_dir)
    ours = [item for item in map(_item(settings, there), _rows(store)) if item.on_disk]
    return [*ours, *_foreign_files(store, settings, there)]


@dataclass(frozen=True, slots=True)
class Text:
    """A transcript to be searched: its path below the library's folder, and how far it is whole.
    `make` tells the rest, which takes longer than all of this."""

    path: str
    size: int
    lines: int
    touched_at: int
    make: Callable[[], Transcript]


NEWEST = 400
"""Rows that are read before all others: of 20,000, all take 150 ms, and these 3."""


def newest_first(store: Store, settings: Settings, scope: str | None = None) -> Iterator[Text]:
    """Every transcript on disk, of one scope (with global) or all, the last touched first.

    The store is opened as rows are needed, and closed while they are used. One that cannot be read
    counts as empty, so that the files on disk are found all the same.
    """
    with store.session(in_place=True):
        foreign = [
            text_of(settings, item)
            for item in _foreign_files(store, settings)
            if scope is None or item.scope in (scope, "global")
        ]
    foreign.sort(key=lambda text: (-text.touched_at, text.path))
    return heapq.merge(_ours(store, settings, scope), foreign, key=lambda text: -text.touched_at)


def _ours(store: Store, settings: Settings, scope: str | None) -> Iterator[Text]:
    there = texts(settings.transcripts_dir)
    make = _item(settings, there)
    where = "" if scope is None else "AND scope IN (?, 'global')"
    values = [] if scope is None else [scope]
    seen: set[str] = set()
    for limit in (NEWEST, -1):
        with store.session(in_place=True):
            rows = _rows(
                store, f"{where} ORDER BY updated_at DESC, session_id DESC LIMIT ?", [*values, limit]
            )  # fmt: skip
        for row in rows:
            session_id, path = as_text(row[0]), as_text(row[3])
            folder, _, name = path.partition("/")
            if (
                session_id not in seen
                and name in there.get(folder, ())
                and is_safe(session_id, path)
            ):
                touched = as_time(row[7]) or as_time(row[6]) or 0
                size, lines = as_time(row[5]) or 0, as_time(row[4]) or 0
                yield Text(path, size, lines, touched, partial(make, row))
        if len(rows) < NEWEST:
            return
        seen = {as_text(row[0]) for row in rows}


def bytes_in(store: Store, settings: Settings, scope: str | None = None) -> int:
    """The bytes of all that `newest_first` gives."""
    with store.session(in_place=True):
        found = totals(store, settings) if scope is None else None
        if found is not None:
            return found.size
        return sum(
            listing(store, settings, scope=name, limit=0).size for name in {scope, "global"}
        )  # fmt: skip


def text_of(settings: Settings, item: Transcript) -> Text:
    """A transcript as a text to be searched."""
    path = str(item.path.relative_to(settings.transcripts_dir))
    return Text(path, item.size, item.lines, item.touched_at, lambda: item)


def totals(store: Store, settings: Settings) -> Listing:
    """How many transcripts there are, their lines and bytes; no items."""
    return listing(store, settings, limit=0)


@dataclass(frozen=True, slots=True)
class ScopeTotals:
    """The transcripts of one scope: how many, their lines and bytes."""

    scope: str
    count: int
    lines: int
    size: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The library by scope, the largest first; how many transcripts of each scope begin on each day
    (days since 1970), the earliest first; and the bytes of all with their marks."""

    by_scope: tuple[ScopeTotals, ...]
    by_day: tuple[tuple[int, str, int], ...]
    disk: int


_BY_SCOPE = (
    "SELECT scope, count(*), total(lines), total(size), total(marks_size) FROM transcripts"
    " WHERE removed_at IS NULL GROUP BY scope"
)
_BY_DAY = (
    "SELECT CAST(created_at AS INTEGER) / 86400000, scope, count(*) FROM transcripts"
    " WHERE removed_at IS NULL GROUP BY 1, 2"
)


def overview(store: Store, settings: Settings) -> Overview:
    """Counts and sizes for the stats, from the index and the files of other programs."""
    sums: dict[str, list[int]] = {}
    days: dict[tuple[int, str], int] = {}
    disk = 0
    if store.has_table("transcripts"):
        for scope, *found in store.rows(_BY_SCOPE):
            count, lines, size, marks = map(int, found)
            sums[as_text(scope)] = [count, lines, size]
            disk += size + marks
        days = {(day or 0, as_text(scope)): count for day, scope, count in store.rows(_BY_DAY)}
    for item in _foreign_files(store, settings):
        row = sums.setdefault(item.scope, [0, 0, 0])
        for number, more in enumerate((1, item.lines, item.size)):
            row[number] += more
        day = (item.created_at // 86_400_000, item.scope)
        days[day] = days.get(day, 0) + 1
        disk += item.size
    by_scope = sorted(sums.items(), key=lambda pair: (-pair[1][2], pair[0]))
    return Overview(
        tuple(ScopeTotals(scope, *row) for scope, row in by_scope),
        tuple((day, scope, count) for (day, scope), count in sorted(days.items())), disk,
    )  # fmt: skip


def scopes(store: Store, settings: Settings) -> list[str]:
    """The scopes that have a transcript, sorted."""
    found = {item.scope for item in _foreign_files(store, settings)}
    if store.has_table("transcripts"):
        sql = "SELECT DISTINCT scope FROM transcripts WHERE removed_at IS NULL"
        found |= {as_text(scope) for (scope,) in store.rows(sql)}
    return sorted(found)


def shown_title(title: str, settings: Settings) -> str:
    """The title of a session as it may be shown: OpenCode makes it out of the first request, which
    may hold a credential."""
    return secrets.mask(title) if settings.mask else title


_COLUMNS = "session_id, scope, title, path, lines, size, created_at, updated_at, exported_at"


def _rows(store: Store, rest: str = "", values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    if not store.has_table("transcripts"):
        return []
    sql = f"SELECT {_COLUMNS} FROM transcripts WHERE removed_at IS NULL {rest}"
    return store.rows(sql, values)


def _item(
    settings: Settings, there: Mapping[str, frozenset[str]]
) -> Callable[[Sequence[Any]], Transcript]:
    """Makes transcripts of the rows of `_COLUMNS`."""

    def make(row: Sequence[Any]) -> Transcript:
        session_id, scope, title, path = map(as_text, row[:4])
        lines, size, created, touched, exported = (as_time(value) or 0 for value in row[4:9])
        folder, _, name = path.partition("/")
        on_disk = name in there.get(folder, ()) and is_safe(session_id, path)
        return Transcript(
            session_id, scope, shown_title(title, settings), settings.transcripts_dir / path, lines,
            size, created, touched or created, exported, True, on_disk,
        )  # fmt: skip

    return make


def _foreign_files(
    store: Store, settings: Settings, there: Mapping[str, frozenset[str]] | None = None
) -> list[Transcript]:
    """The files that no row of the index names."""
    there = texts(settings.transcripts_dir) if there is None else there
    indexed = _indexed(store)
    paths = [
        (folder, name)
        for folder, names in there.items()
        for name in sorted(names - indexed.get(folder, frozenset()))
    ]
    if not paths:
        return []
    taken = {name for names in indexed.values() for name in names}
    found = []
    for folder, name in paths:
        item = _foreign(settings, f"{folder}/{name}")
        if item is not None:
            found.append(replace(item, id=f"{item.id}~{folder}") if name in taken else item)
            taken.add(name)
    return found


_known: dict[Path, tuple[tuple[int, ...], Mapping[str, frozenset[str]]]] = {}


def _indexed(store: Store) -> Mapping[str, frozenset[str]]:
    """The names of the files that the index names, by folder; read again when somebody has written
    to the store."""
    version = store.version()
    held = _known.get(store.path)
    if held is not None and version and held[0] == version:
        return held[1]
    found: dict[str, set[str]] = {}
    if store.has_table("transcripts"):
        for (path,) in store.rows("SELECT path FROM transcripts WHERE removed_at IS NULL"):
            folder, _, name = as_text(path).partition("/")
            found.setdefault(folder, set()).add(name)
    known = {folder: frozenset(names) for folder, names in found.items()}
    if version and max(version) < time.time_ns() - SETTLED_NS:
        _known[store.path] = (version, known)
    return known


_facts: dict[tuple[str, bool], tuple[tuple[int, int, int], Transcript | None]] = {}


def _foreign(settings: Settings, relative: str) -> Transcript | None:
    """A file that no index row names, or None for one that is gone or holds nothing whole, as a
    transcript is during its first export. Read again only when it has changed."""
    path = settings.transcripts_dir / relative
    key = (str(path), settings.mask)
    try:
        state = path.stat()
    except OSError:
        return None
    now = (state.st_ino, state.st_mtime_ns, state.st_size)
    held = _facts.get(key)
    if held is not None and held[0] == now:
        return held[1]
    item, settled = _look(settings, path, state)
    if settled:
        _facts[key] = (now, item)
    return item


def _look(
    settings: Settings, path: Path, state: os.stat_result
) -> tuple[Transcript | None, bool]:  # fmt: skip
    """What a foreign file is, and whether that is so until the file itself changes. One that may
    not be read is listed with no lines."""
    size = state.st_size
    ours = is_ours(path, path.stem)
    try:
        end = last_end(path, size) if ours else None
        size = end[0] if end is not None else size
        if not size:
            return None, False
        with path.open("rb") as file:
            head = file.read(HEAD).decode("utf-8", "replace").split("\n")
        lines = Offsets.of(path, size, stable=False).total()
    except FileNotFoundError:
        return None, False
    except OSError:
        head, lines, ours = [""], 0, True
    title = head[0].lstrip("# ").strip() or path.stem
    fields = dict(line.split(": ", 1) for line in head[1:12] if ": " in line)
    touched = state.st_mtime_ns // 1_000_000
    item = Transcript(
        path.stem, shown_title(fields.get("scope") or path.parent.name, settings),
        shown_title(title, settings)[:200],
        path, lines, size, touched, touched, touched, False,
    )  # fmt: skip
    return item, not ours


_SORT_SQL = {
    "touched": "updated_at",
    "title": "title COLLATE NOCASE",
    "size": "size",
    "lines": "lines",
    "scope": "scope",
}
_SORT_KEY: Mapping[str, Callable[[Transcript], int | str]] = {
    "touched": lambda item: item.touched_at,
    "title": lambda item: item.title,
    "size": lambda item: item.size,
    "lines": lambda item: item.lines,
    "scope": lambda item: item.scope,
}
_Key = tuple[Any, str]


def listing(
    store: Store,
    settings: Settings,
    *,
    scope: str | None = None,
    text: str = "",
    sort: str = "touched",
    descending: bool = True,
    after: str = "",
    before: str = "",
    limit: int = 100,
) -> Listing:
    """A page of the library, filtered by scope and by words in title or id.

    The index is filtered, sorted and paged by key in SQL; the files of other programs, which have
    no row there, are merged in. `after` and `before` are a Listing's; with neither it is the first
    page. A transcript whose file is gone is listed, with `on_disk` false. Raises InvalidInput for a
    place that is not in the list any more.
    """
    words = text.casefold().split()
    foreign = [
        item
        for item in _foreign_files(store, settings)
        if scope in (None, item.scope)
        and all(word in f"{item.title} {item.id}".casefold() for word in words)
    ]
    where, values = "", []
    if scope is not None:
        where, values = "AND scope = ?", [scope]
    for word in words:
        where += " AND instr(fold(title || ' ' || session_id), ?)"
        values.append(word)
    total = lines = size = 0
    if store.has_table("transcripts"):
        sums = (
            "SELECT count(*), total(lines), total(size) FROM transcripts WHERE removed_at IS NULL"
        )
        ((total, lines, size),) = store.rows(f"{sums} {where}", values)
    whole = Listing(
        (), total + len(foreign), int(lines) + sum(item.lines for item in foreign),
        int(size) + sum(item.size for item in foreign),
    )  # fmt: skip
    if not limit:
        return whole
    backwards = bool(before)
    place = _place(store, foreign, sort, before or after) if before or after else None
    down = descending != backwards
    ours = _page(store, settings, where, values, sort, down, place, limit + 1)
    theirs = [((_SORT_KEY[sort](item), item.id), item) for item in foreign]
    if place is not None:
        limits = _rank(place, sort)
        theirs = [
            pair
            for pair in theirs
            if (_rank(pair[0], sort) < limits if down else _rank(pair[0], sort) > limits)
        ]
    pairs = sorted([*ours, *theirs], key=lambda pair: _rank(pair[0], sort), reverse=down)
    more = len(pairs) > limit
    pairs = pairs[:limit]
    if backwards:
        pairs.reverse()
    has_after, has_before = (True, more) if backwards else (more, place is not None)
    return replace(
        whole, items=tuple(item for _, item in pairs),
        after=_cursor(pairs[-1][0]) if pairs and has_after else None,
        before=_cursor(pairs[0][0]) if pairs and has_before else None,
    )  # fmt: skip


def _page(
    store: Store, settings: Settings, where: str, values: Sequence[object], sort: str, down: bool,
    place: _Key | None, limit: int,
) -> list[tuple[_Key, Transcript]]:  # fmt: skip
    if not store.has_table("transcripts"):
        return []
    key, order = _SORT_SQL[sort], "DESC" if down else "ASC"
    if place is not None:
        where += f" AND ({key}, session_id) {'<' if down else '>'} (?, ?)"
        values = [*values, *place]
    rows = store.rows(
        f"SELECT {_COLUMNS}, {key} FROM transcripts WHERE removed_at IS NULL {where}"
        f" ORDER BY {key} {order}, session_id {order} LIMIT ?",
        [*values, limit],
    )
    make = _item(settings, texts(settings.transcripts_dir))
    return [((row[9], as_text(row[0])), make(row)) for row in rows]


def _rank(key: _Key, sort: str) -> tuple[int, Any, bytes]:
    """The order that SQLite gives the key of a row: numbers before texts, texts by their bytes, and
    those of a title as if they were small ASCII letters."""
    value, name = key
    if not isinstance(value, int | float | str):
        return 2, as_text(value).encode("utf-8", "replace"), name.encode("utf-8", "replace")
    if isinstance(value, str):
        folded = value.encode("utf-8", "replace")
        folded = folded.lower() if sort == "title" else folded
        return 1, folded, name.encode("utf-8", "replace")
    return 0, value, name.encode("utf-8", "replace")


def _cursor(key: _Key) -> str:
    """The place of a row in a link. A title may hold a credential, so of a text the id is enough."""
    value, name = key
    return f"{value}~{name}" if isinstance(value, int) else f"~{name}"


def _place(store: Store, foreign: Sequence[Transcript], sort: str, cursor: str) -> _Key:
    value, _, name = cursor.partition("~")
    if value.isascii() and value.removeprefix("-").isdigit() and len(value) < 19:
        return int(value), name
    if store.has_table("transcripts"):
        sql = f"SELECT {_SORT_SQL[sort]} FROM transcripts WHERE session_id = ?"
        for (found,) in store.rows(sql, (name,)):
            return found, name
    for item in foreign:
        if item.id == name:
            return _SORT_KEY[sort](item), name
    raise InvalidInput("That place in the list is gone. Begin with its first page.", "after")


def get(store: Store, settings: Settings, session_id: str) -> Transcript:
    """One transcript that is on disk, also one that another program gave a name which is no id of
    a session. Raises NotFound."""
    there = texts(settings.transcripts_dir)
    for row in _rows(store, "AND session_id = ?", (session_id,)):
        item = _item(settings, there)(row)
        if item.on_disk:
            return item
    indexed = _indexed(store)
    for folder, names in there.items():
        for stem in (session_id, session_id.removesuffix(f"~{folder}")):
            name = f"{stem}{SUFFIX}"
            if name in names and name not in indexed.get(folder, frozenset()):
                item_or_none = _foreign(settings, f"{folder}/{name}")
                if item_or_none is not None:
                    return replace(item_or_none, id=session_id)
    raise NotFound(f"There is no transcript of a session {session_id[:60]}.")


def get_ours(store: Store, settings: Settings, session_id: str) -> Transcript | None:
    """The transcript that we wrote of a session, or None."""
    try:
        found = get(store, settings, session_id)
    except NotFound:
        return None
    return found if found.ours else None


def titles(store: Store, settings: Settings, ids: Sequence[str]) -> Mapping[str, str]:
    """The titles of some exported sessions by their ids, also of removed ones; of those that only
    another program wrote there is none."""
    if not ids or not store.has_table("transcripts"):
        return {}
    holes = ", ".join("?" * len(ids))
    rows = store.rows(
        f"SELECT session_id, title FROM transcripts WHERE session_id IN ({holes})", ids
    )
    return {as_text(row[0]): shown_title(as_text(row[1]), settings) for row in rows}


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
    if held is not None and held.ours and held.touched_at == session.updated_at:
        return Opened(held, None, tuple(problems))
    try:
        exported = export(store, settings, session)
    except MemoryAppError as error:
        if held is None:
            raise
        return Opened(held, None, (*problems, error.message))
    return Opened(get(store, settings, session_id), exported, tuple(problems))
