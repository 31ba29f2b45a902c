"""Pages of the sessions of all databases: filtered, ordered and paged by key in SQL.

A page reads the table of sessions; of the sessions that it shows it looks up in the indexes of the
messages what their rows do not say. Whether a session has errors or was compacted stands in no
column and no index, so it is told of the shown ones, from their newest LOOK messages; a filter by it
walks through at most WALK sessions a page and says how far it came. Our transcripts know it too, but
only of what has been exported.
"""

from __future__ import annotations

import heapq
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from webapp.errors import InvalidInput, MemoryAppError, Unreadable
from webapp.opencode.database import columns, plain, reading
from webapp.opencode.requests import first_request
from webapp.opencode.sessions import count_messages, message_tables, without_id
from webapp.opencode.values import (
    as_number,
    as_text,
    as_when,
    bindable,
    is_id,
    sql_when,
)

LOOK = 200
LOOK_SIZE = 4_000_000
"""The newest messages of a shown session that are looked at, and their characters together, of which
the last message may have more. The newer runtime's hold what the tools gave out: without a bound a list
of three sessions of 500 MB took 10 s and 620 MB."""

WALK = 4000
WALK_S = 1.0
"""Sessions, and seconds, that a filter by errors or compactions looks through for one page."""

CHILDREN = 20
"""Subagents that are listed below a session, DEPTH the levels below each other, FAMILY all that are
listed below one root, and FAMILIES below the roots of a page. Of what is beyond there is a count."""
DEPTH = 4
FAMILY = 100
FAMILIES = 1000

ORIGINS = 200
"""Sessions that are compared with the forks of a page."""
SOON_MS = 60_000
"""A session's first message comes within this time after the session."""

REQUEST = 2000
"""Characters of a first request that are read."""
PLACEHOLDER = re.compile(r"(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z?( \(fork #\d+\))?")
FORK = re.compile(r"(?P<base>.*) \(fork #\d+\)", re.DOTALL)
ORDERS = ("touched", "project")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which sessions. `text` holds words of a title, an id, or the begin of one with “ses_”. `since`
    and `until` (exclusive) are of the last touch; `parent` asks for the subagents of a session;
    `archived` None is all of them."""

    text: str = ""
    project: str | None = None
    workspace: str | None = None
    agent: str | None = None
    model: str | None = None
    parent: str | None = None
    since: int | None = None
    until: int | None = None
    archived: bool | None = None
    errors: bool = False
    compacted: bool = False

    @property
    def is_deep(self) -> bool:
        """Whether messages must be looked at to answer it."""
        return self.errors or self.compacted

    @property
    def is_tree(self) -> bool:
        """Whether subagents stand below those whom they belong to, as far as both match."""
        return self == Filter(project=self.project, workspace=self.workspace, parent=self.parent)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens by kind."""

    input: int
    output: int
    reasoning: int
    cache_read: int
    cache_write: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class Origin:
    """The session that another belongs to or was copied from."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class Item:
    """A session in a list. What its database does not keep is None or empty.

    `request` is its first request when its title is a placeholder. `partial` says that cost and
    tokens are those of the newest messages only, `more` that there are older messages than those
    that `agents`, `models`, `failed` and `compacted` tell of. A likely fork names in `origin` whom it
    repeats, if that is found. `children` are the first of `child_count` subagents;
    there may be none where too many are listed already.
    """

    id: str
    db: Path
    title: str
    project: str
    workspace: str
    directory: str
    parent_id: str | None
    created_at: int
    touched_at: int
    archived_at: int | None
    agents: tuple[str, ...]
    models: tuple[str, ...]
    cost: float | None
    tokens: Tokens | None
    lines: tuple[int, int] | None
    request: str = ""
    messages: int | None = None
    partial: bool = False
    more: bool = False
    failed: bool = False
    compacted: bool = False
    is_fork: bool = False
    origin: Origin | None = None
    parent: Origin | None = None
    is_older_copy: bool = False
    is_copy: bool = False
    children: tuple[Item, ...] = ()
    child_count: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """Sessions in the order asked for. `after` is the place of the next page, `before` that of the
    previous one; None where the list ends.

    `total` counts what the filter leaves, errors and compactions aside. `looked` says how many of
    them were looked into for these, the last of them touched at `looked_until`; None without such a
    filter. `problems` holds a sentence for each database that gave none or not all of its sessions,
    `unused` one for each that nothing has been put into yet, `readable` the databases that gave some.
    """

    items: tuple[Item, ...]
    after: str | None
    before: str | None
    total: int
    looked: int | None
    looked_until: int
    problems: tuple[str, ...]
    readable: tuple[Path, ...]
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A value that sessions can be filtered by, as it is shown, and how many have it."""

    value: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Facets:
    """What the filters offer, most used first; `no_agent` and `no_model` are the sessions whose row
    names none."""

    projects: tuple[Choice, ...]
    workspaces: tuple[Choice, ...]
    agents: tuple[Choice, ...]
    models: tuple[Choice, ...]
    no_agent: int
    no_model: int


def count(databases: Iterable[Path], timeout: float) -> int | None:
    """How many sessions there are, None when no database answers within `timeout` seconds."""
    total: int | None = None
    for path in databases:
        with suppress(MemoryAppError), reading(path, timeout) as connection:
            if columns(connection, "session"):
                (found,) = connection.execute("SELECT count(*) FROM session").fetchone()
                total = (total or 0) + int(found)
    return total


def without_sessions(databases: Iterable[Path]) -> list[str]:
    """One sentence for each database that has been used and yields no session."""
    problems = []
    for path in databases:
        try:
            with reading(path) as connection:
                _Layout(connection, path)
        except _UnusedError:
            continue
        except MemoryAppError as error:
            problems.append(error.message)
    return problems


def facets(databases: Iterable[Path]) -> Facets:
    """Counts for the filters. A database that cannot be read gives none."""
    found: dict[str, Counter[str]] = {
        name: Counter() for name in ("project", "workspace", "agent", "model")
    }
    names: dict[str, str] = {}
    for path in databases:
        with suppress(MemoryAppError), reading(path) as connection:
            layout = _Layout(connection, path)
            sql = (
                f"SELECT {layout.project}, {layout.workspace_id}, {layout.workspace},"
                f" {layout.agent}, {layout.model}, count(*) {layout.tables}"
                f" WHERE {_HAS_ID} GROUP BY 1, 2, 3, 4, 5"
            )
            for row in connection.execute(sql):
                project, workspace, name, agent, model = map(as_text, row[:5])
                names.setdefault(workspace, name)
                for key, value in (
                    ("project", project), ("workspace", workspace), ("agent", agent), ("model", model)
                ):  # fmt: skip
                    found[key][value] += row[5]

    def choices(name: str) -> tuple[Choice, ...]:
        rows = sorted(found[name].items(), key=lambda row: (-row[1], row[0]))
        labels = names if name == "workspace" else {}
        return tuple(
            Choice(value, labels.get(value, value), number) for value, number in rows if value
        )

    return Facets(
        choices("project"), choices("workspace"), choices("agent"), choices("model"),
        found["agent"][""], found["model"][""],
    )  # fmt: skip


def page(
    databases: Sequence[Path], wanted: Filter, order: str = "touched", after: str = "",
    limit: int = 50, before: str = "",
) -> Page:  # fmt: skip
    """A page of sessions, by last touch or by project and workspace. `after` or `before` is a Page's.
    Raises InvalidInput for a place that is not in the list any more.

    With a filter of other things than project, workspace and parent, each session stands alone and
    names its parent.
    """
    problems: list[str] = []
    readable: list[Path] = []
    unused: list[str] = []
    total = 0
    back = bool(before) and not after
    place = _place(databases, after or before, order) if after or before else None
    at = databases.index(place.db) if place is not None and place.db in databases else -1
    lists: list[list[Item]] = []
    take = WALK if wanted.is_deep else limit
    for number, path in enumerate(databases):
        try:
            with reading(path) as connection:
                layout = _Layout(connection, path)
                problems += without_id(connection, path, ["session"])
                where, values = layout.where(wanted)
                (matching,) = connection.execute(
                    f"SELECT count(*) {layout.tables} WHERE {where}", values
                ).fetchone()
                total += int(matching)
                # Copies of one session stand in the order of their databases.
                is_copy_next = number < at if back else number > at
                lists.append(layout.listing(wanted, order, place, take + 1, back, is_copy_next))
                if not layout.messages and layout.unknown_messages:
                    problems.append(layout.unknown_messages)
                readable.append(path)
        except _UnusedError as error:
            unused.append(error.message)
        except MemoryAppError as error:
            problems.append(error.message)
    merged = heapq.merge(*lists, key=lambda item: _key(item, order, databases), reverse=back)
    candidates = list(islice(merged, take + 1))
    looker = _Looker(readable, problems)
    looked = 0
    items: list[Item] = []
    ends = time.monotonic() + WALK_S
    with looker:
        for item in candidates[:take]:
            if wanted.is_deep and looked and time.monotonic() > ends:
                break
            looked += 1
            seen = looker.look(item)
            if (not wanted.errors or seen.failed) and (not wanted.compacted or seen.compacted):
                items.append(seen)
            if len(items) == limit:
                break
        items = looker.relate(items[::-1] if back else items, wanted)
    held = candidates[:looked]
    # Whoever came from a page can go back to it.
    onward = _cursor(held[-1]) if held and looked < len(candidates) else None
    backward = _cursor(held[0]) if held and place is not None else None
    return Page(
        tuple(items), *((backward, onward) if back else (onward, backward)), total,
        looked if wanted.is_deep else None, held[0 if back else -1].touched_at if held else 0,
        tuple(dict.fromkeys(problems)), tuple(readable), tuple(unused),
    )  # fmt: skip


def _text(column: str) -> str:
    """A column as text in SQL, so that every value sorts and compares as it is shown; bytes are none."""
    return f"CASE typeof({column}) WHEN 'blob' THEN NULL ELSE CAST({column} AS TEXT) END"


_HAS_ID = "typeof(s.id) = 'text' AND s.id <> ''"
_Key = tuple[Any, ...]
_T = TypeVar("_T")


def _key(item: Item, order: str, databases: Sequence[Path]) -> _Key:
    newest = (-item.touched_at, _Reversed(item.id), databases.index(item.db))
    return (item.project, item.workspace, *newest) if order == "project" else newest


class _Reversed:
    """A text that sorts the other way round."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __lt__(self, other: _Reversed) -> bool:
        return self.text > other.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and self.text == other.text


def _cursor(item: Item) -> str:
    return f"{item.touched_at}~{item.db.name}/{item.id}"


def _place(databases: Iterable[Path], cursor: str, order: str) -> Item:
    """The session after which a page begins, at the time that the link names, since it may have been
    touched again."""
    when, _, rest = cursor.partition("~")
    name, _, session_id = rest.partition("/")
    if when.isascii() and when.isdigit() and len(when) < 16 and session_id:
        path = next((each for each in databases if each.name == name), Path())
        if order != "project":
            return Item(session_id, path, "", "", "", "", None, 0, int(when), None, (), (), None,
                        None, None)  # fmt: skip
        with suppress(MemoryAppError), reading(path) as connection:
            for item in _Layout(connection, path).items("s.id = ?", [bindable(session_id)]):
                return replace(item, touched_at=int(when))
    raise InvalidInput("That place in the list is gone. Begin with its first page.", "after")


class _UnusedError(Unreadable):
    """A database that OpenCode has made and put nothing into yet."""


class _Layout:
    """How one database keeps its sessions, as pieces of SQL. Raises Unreadable with what is wrong
    with it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection = connection
        self.path = path
        have = columns(connection, "session")
        self._check(have)

        def column(name: str) -> str:
            return f"s.{name}" if name in have else "NULL"

        self.have = have
        self.column = column
        self.unknown_messages = ""
        self.tables, self.project = self._projects()
        self.workspace_id = f"coalesce({_text(column('workspace_id'))}, '')"
        self.workspace = self.workspace_id
        names = {"name", "branch"} & columns(connection, "workspace")
        if "workspace_id" in have and "id" in columns(connection, "workspace") and names:
            self.tables += " LEFT JOIN workspace w ON w.id = s.workspace_id"
            named = ", ".join(
                f"nullif({_text(f'w.{name}')}, '')" for name in sorted(names, reverse=True)
            )
            self.workspace = f"coalesce({named}, {self.workspace_id})"
        self.agent = f"coalesce({_text(column('agent'))}, '')"
        self.model = "''"
        if "model" in have:
            model = "CAST(s.model AS TEXT)"
            self.model = (
                f"coalesce(CASE WHEN json_valid({model}) THEN"
                f" coalesce(json_extract({model}, '$.providerID') || '/', '')"
                f" || json_extract({model}, '$.id') END, {model}, '')"
            )
        self.touched = self._touched()

    def _check(self, have: set[str]) -> None:
        (tables,) = self.connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
        ).fetchone()
        if not tables:
            raise Unreadable(
                f"OpenCode's database {self.path} is empty: there is no table in it. Start OpenCode"
                " once, or name the database that it uses with --opencode-db."
            )
        missing = {"id", "time_created", "time_updated"} - have
        if missing:
            raise Unreadable(
                f"OpenCode's database {self.path} has a layout that this version does not know: its"
                f" table “session” lacks {', '.join(sorted(missing)) if have else 'everything'}."
                " A newer OpenCode may have written it; look for an update of this program."
            )
        if not self._holds("session"):
            if not any(map(self._holds, ("message", "part", "session_message"))):
                raise _UnusedError(
                    f"OpenCode's database {self.path} holds no session yet; they are listed here as"
                    " soon as OpenCode is used. If it has been used with this database, this is a"
                    " problem of its schema, which this version does not know; look for an update"
                    " of this program, or name the database that OpenCode uses with --opencode-db."
                )
            raise Unreadable(
                f"OpenCode's database {self.path} was found and read, but yields no session: its"
                " table “session” holds no row. If OpenCode has been used with it, this is a problem"
                " of its schema, which this version does not know; look for an update of this"
                " program, or name the database that OpenCode uses with --opencode-db."
            )

    def _holds(self, table: str) -> bool:
        return bool(columns(self.connection, table)) and (
            self.connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None
        )

    def _projects(self) -> tuple[str, str]:
        directory = f"coalesce(nullif({_text(self.column('directory'))}, ''), 'global')"
        if "project_id" not in self.have or not {"id", "worktree"} <= columns(
            self.connection, "project"
        ):
            return "FROM session s", directory
        return (
            "FROM session s LEFT JOIN project p ON p.id = s.project_id",
            f"coalesce(nullif(nullif({_text('p.worktree')}, ''), '/'), {directory})",
        )

    def _touched(self) -> str:
        """The last touch. The newer runtime leaves the session's own time alone when messages come
        in, so the begin of its last one counts too, which stands in an index."""
        own = sql_when("s.time_updated")
        if not {"session_id", "time_created", "seq"} <= columns(self.connection, "session_message"):
            return own
        return (
            f"max({own}, (SELECT {sql_when('last')} FROM (SELECT max(time_created) AS last"
            " FROM session_message WHERE session_id = s.id)))"
        )

    @cached_property
    def messages(self) -> set[str]:
        """The tables of messages, none when their layout is not known."""
        try:
            return message_tables(self.connection)
        except Unreadable as error:
            self.unknown_messages = error.message.replace(
                "OpenCode's database", f"OpenCode's database {self.path}", 1
            )
            return set()

    def where(self, wanted: Filter) -> tuple[str, list[Any]]:
        """The condition of a filter, without what only messages can tell."""
        pieces, values = [_HAS_ID], list[Any]()
        for sql, value in (
            (self.project, wanted.project), (self.workspace_id, wanted.workspace),
            (self.agent, wanted.agent), (self.model, wanted.model),
            (self.column("parent_id"), wanted.parent),
        ):  # fmt: skip
            if value is not None:
                pieces.append(f"{sql} = ?")
                values.append(bindable(value))
        for sign, limit in ((">=", wanted.since), ("<", wanted.until)):
            if limit is not None:
                pieces.append(f"{self.touched} {sign} ?")
                values.append(limit)
        if wanted.archived is not None:
            archived = self.column("time_archived")
            pieces.append(f"{archived} IS {'NOT ' if wanted.archived else ''}NULL")
        words = wanted.text.casefold().split()
        if words:
            self.connection.create_function(
                "fold", 1, lambda raw: as_text(raw).casefold(), deterministic=True
            )
        for word in words:
            # Pieces of an id are random, and so are what they match.
            is_id_begun = word.startswith("ses_")
            # As bytes: a function fails with text that is no UTF-8.
            folded = "fold(CAST(s.id AS BLOB))"
            of_id = f"substr({folded}, 1, length(?))" if is_id_begun else folded
            title = f"fold(CAST({self.column('title')} AS BLOB))"
            pieces.append(f"(instr({title}, ?) OR {of_id} = ?)")
            values += [bindable(word)] * (3 if is_id_begun else 2)
        return " AND ".join(pieces), values

    def listing(
        self, wanted: Filter, order: str, place: Item | None, limit: int, back: bool,
        is_copy_next: bool,
    ) -> list[Item]:  # fmt: skip
        """The first sessions after a place, or with `back` the last before it, the nearest first; a
        copy of the place itself is among them if `is_copy_next`. Of trees only the roots: those whose
        parent does not match, and one of each circle of parents."""
        where, values = self.where(wanted)
        if wanted.is_tree and wanted.parent is None and "parent_id" in self.have:
            circles = self._circles(where, values)
            self.connection.create_function("opens_circle", 1, lambda raw: as_text(raw) in circles)
            where += (
                " AND (s.parent_id IS NULL OR s.parent_id = s.id OR s.parent_id NOT IN"
                f" (SELECT s.id {self.tables} WHERE {where})"
                f"{' OR opens_circle(CAST(s.id AS BLOB))' if circles else ''})"
            )
            values = [*values, *values]
        groups = (self.project, self.workspace)
        less, more, falling, rising = (">", "<", "", " DESC") if back else ("<", ">", " DESC", "")
        if place is not None:
            equal = "=" if is_copy_next else ""
            newer = f"({self.touched}, s.id) {less}{equal} (?, ?)"
            values_of_place: list[Any] = [place.touched_at, bindable(place.id)]
            if order == "project":
                pair = f"({', '.join(groups)})"
                newer = f"({pair} {more} (?, ?) OR ({pair} = (?, ?) AND {newer}))"
                values_of_place = [*[place.project, place.workspace] * 2, *values_of_place]
            where += f" AND {newer}"
            values += values_of_place
        first = "".join(f"{name}{rising}, " for name in groups) if order == "project" else ""
        rest = f"ORDER BY {first}{self.touched}{falling}, s.id{falling} LIMIT ?"
        return list(self.items(where, [*values, limit], rest))

    def _circles(self, where: str, values: Sequence[Any]) -> set[str]:
        """One session of each circle in which all name the next as parent. Only those whose parent
        has a parent itself can be in one, which are few: subagents seldom have subagents."""
        parents = dict(
            self.connection.execute(
                f"SELECT s.id, s.parent_id {self.tables} JOIN session q ON q.id = s.parent_id"
                f" AND q.parent_id <> q.id WHERE {where} AND s.parent_id <> s.id",
                values,
            ).fetchall()
        )
        found: set[str] = set()
        known: set[str] = set()
        for start in parents:
            here, path = start, dict[str, int]()
            while here in parents and here not in known:
                known.add(here)
                path[here] = len(path)
                here = parents[here]
            if here in path:
                found.add(min([*path][path[here] :]))
        return found

    def items(self, where: str, values: Sequence[Any], rest: str = "") -> Iterator[Item]:
        """Sessions as their rows tell of them."""
        figures = (
            "cost", "tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read",
            "tokens_cache_write", "summary_additions", "summary_deletions",
        )  # fmt: skip
        sql = (
            f"SELECT s.id, {self.column('title')}, {self.project}, {self.workspace},"
            f" {self.column('directory')}, {self.column('parent_id')}, s.time_created,"
            f" {self.touched}, {self.column('time_archived')}, {self.agent}, {self.model},"
            f" {', '.join(map(self.column, figures))} {self.tables} WHERE {where} {rest}"
        )
        for row in self.connection.execute(sql, values):
            cost, *tokens, added, deleted = map(as_number, row[11:])
            agent, model = as_text(row[9]), as_text(row[10])
            yield Item(
                id=row[0], db=self.path, title=as_text(row[1]), project=as_text(row[2]),
                workspace=as_text(row[3]), directory=as_text(row[4]),
                parent_id=as_text(row[5]) or None, created_at=as_when(row[6]),
                touched_at=as_when(row[7]),
                archived_at=as_when(row[8]) if row[8] is not None else None,
                agents=(agent,) if agent else (), models=(model,) if model else (), cost=cost,
                tokens=_tokens(tokens),
                lines=None if added is None or deleted is None else (int(added), int(deleted)),
            )  # fmt: skip


def _tokens(numbers: Sequence[float | None]) -> Tokens | None:
    if all(number is None for number in numbers):
        return None
    return Tokens(*(int(number or 0) for number in numbers))


_TOKENS = ("input", "output", "reasoning", "cache.read", "cache.write")
_FAILED = (
    "json_extract(d, '$.error') IS NOT NULL"
    " AND coalesce(json_extract(d, '$.error.name'), '') <> 'MessageAbortedError'"
)
"""A person who stops an answer makes no error of it."""

_SUMMARISED = "(json_extract(d, '$.summary') = 1 AND json_extract(d, '$.time.completed') > 0)"


def _newest(
    connection: sqlite3.Connection, table: str, session_id: str, order: str, kind: str, agent: str,
    model: str, compacted: str,
) -> tuple[list[tuple[Any, ...]], bool]:  # fmt: skip
    """What the newest messages of a session say, one row for each agent and model, and whether there
    are older ones."""
    recent, are_older = _recent(connection, table, session_id, order)
    if not recent:
        return [], False
    sums = ", ".join(f"total(json_extract(d, '$.tokens.{name}'))" for name in _TOKENS)
    rows = connection.execute(
        f"SELECT {agent}, {model}, total({_FAILED}), total({compacted}),"
        f" total(json_extract(d, '$.cost')), {sums} FROM"
        f" (SELECT {kind} AS kind, CASE WHEN json_valid(CAST(data AS TEXT)) THEN CAST(data AS TEXT)"
        f" ELSE '{{}}' END AS d FROM {table} WHERE rowid IN ({', '.join(map(str, recent))}))"
        " WHERE kind <> 'assistant' OR json_extract(d, '$.role') IS NULL"
        " OR json_extract(d, '$.role') = 'assistant' GROUP BY 1, 2"
    ).fetchall()
    return rows, are_older


def _recent(
    connection: sqlite3.Connection, table: str, session_id: str, order: str
) -> tuple[list[int], bool]:  # fmt: skip
    """The rows of the messages that are looked at, and whether there are older ones."""
    found: list[int] = []
    size = 0
    for rowid, length in connection.execute(
        f"SELECT rowid, length(data) FROM {table} WHERE session_id = ? ORDER BY {order}"
        f" LIMIT {LOOK + 1}",
        (bindable(session_id),),
    ):
        size += length or 0
        if found and (size > LOOK_SIZE or len(found) == LOOK):
            return found, True
        found.append(rowid)
    return found, False


class _Looker:
    """Finds out about the sessions of a page what their rows do not say. What cannot be read any
    more leaves them as they are, with a problem."""

    def __init__(self, databases: Iterable[Path], problems: list[str]) -> None:
        self._databases = tuple(databases)
        self._problems = problems
        self._open: dict[Path, _Layout] = {}
        self._given_up: set[Path] = set()
        self._stack = ExitStack()

    def __enter__(self) -> _Looker:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _ask(
        self, path: Path, otherwise: _T, question: Callable[..., _T], *about: object
    ) -> _T:  # fmt: skip
        if path in self._given_up:
            return otherwise
        try:
            if path not in self._open:
                connection = self._stack.enter_context(reading(path))
                self._open[path] = _Layout(connection, path)
            return question(self._open[path], *about)
        except sqlite3.Error as error:
            self._problems.append(plain(path, error).message)
        except MemoryAppError as error:
            self._problems.append(error.message)
        self._given_up.add(path)
        return otherwise

    def look(self, item: Item) -> Item:
        """A session with what its messages say."""
        return self._ask(item.db, item, _look, item)

    def relate(self, items: Sequence[Item], wanted: Filter) -> list[Item]:
        """Sessions with their parents and in trees with their subagents, with the origins of forks,
        and with a mark on the copies that another database has newer, or an earlier one as new."""
        done = list(items)
        for at, path in enumerate(self._databases):
            mine = [number for number, item in enumerate(done) if item.db == path]
            families = [done[number] for number in mine]
            families = self._ask(path, families, _named, families)
            if wanted.is_tree:
                families = self._ask(path, families, _with_families, families, wanted)
            families = self._ask(path, families, _forks, families)
            for number, item in zip(mine, families, strict=True):
                done[number] = item
            others = [item for item in done if item.db != path]
            unknown: dict[str, int] = {}
            there = self._ask(path, unknown, _touches, others) if others else unknown
            for number, item in enumerate(done):
                touched = there.get(item.id, -1) if item.db != path else -1
                if touched > item.touched_at:
                    done[number] = replace(item, is_older_copy=True)
                elif touched == item.touched_at and self._databases.index(item.db) > at:
                    done[number] = replace(item, is_copy=True)
        return done


def _look(layout: _Layout, item: Item) -> Item:
    """A session with the count of its messages and what the newest of them say."""
    if not layout.messages:
        return item
    connection = layout.connection
    item = replace(item, messages=count_messages(connection, layout.messages, item.id))
    rows: list[tuple[Any, ...]] = []
    sums: list[tuple[Any, ...]] = []
    more = False
    if "message" in layout.messages:
        rows, more = _newest(
            connection, "message", item.id, "time_created DESC, id DESC", "'message'",
            "json_extract(d, '$.agent')",
            "coalesce(json_extract(d, '$.providerID') || '/', '') || json_extract(d, '$.modelID')",
            _SUMMARISED,
        )  # fmt: skip
        sums = rows
    if "session_message" in layout.messages:
        order = "seq" if "seq" in columns(connection, "session_message") else "time_created"
        found, are_older = _newest(
            connection, "session_message", item.id, f"{order} DESC, id DESC", "CAST(type AS TEXT)",
            "json_extract(d, '$.agent')",
            "coalesce(json_extract(d, '$.model.providerID') || '/', '')"
            " || json_extract(d, '$.model.id')",
            "(kind = 'compaction' AND json_extract(d, '$.summary') > '')",
        )  # fmt: skip
        rows, sums, more = rows + found, sums or found, more or are_older
    agents = [as_text(row[0]) for row in rows if row[0] not in (None, "", "compaction")]
    models = [as_text(row[1]) for row in rows if row[1]]
    item = replace(
        item, more=more, failed=any(row[2] for row in rows), compacted=any(row[3] for row in rows),
        agents=tuple(dict.fromkeys((*item.agents, *agents))),
        models=tuple(dict.fromkeys((*item.models, *models))),
    )  # fmt: skip
    # The newer runtime leaves the columns of the session at 0, and older versions have none.
    cost, *tokens = [as_number(sum(row[at] for row in sums)) for at in range(4, 10)]
    if sums and not item.cost and (item.tokens is None or not item.tokens.total):
        item = replace(item, cost=cost, tokens=_tokens(tokens), partial=more)
    if not item.title or PLACEHOLDER.fullmatch(item.title):
        item = replace(
            item, request=first_request(layout.connection, layout.messages, item.id, REQUEST)
        )
    return item


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _with_families(layout: _Layout, items: Sequence[Item], wanted: Filter) -> list[Item]:
    """Sessions with all that stands below them and matches too."""
    if "parent_id" not in layout.have:
        return list(items)
    above = frozenset({wanted.parent} if wanted.parent else ())
    family = _Family(layout, *layout.where(replace(wanted, parent=None)), FAMILIES)
    return [family.below(item, above) for item in items]


@dataclass(slots=True)
class _Family:
    """Lists what stands below sessions; `left` is how many more may stand below the present root,
    `of_page` below it and the next ones."""

    layout: _Layout
    where: str
    values: list[Any]
    of_page: int
    left: int = 0

    def below(self, root: Item, above: frozenset[str]) -> Item:
        """A session with its subagents, the earliest first, and theirs. Those `above` it do not
        come again."""
        most = self.left = min(FAMILY, self.of_page)
        found = self._below(root, above, DEPTH)
        self.of_page -= most - self.left
        return found

    def _below(self, item: Item, above: frozenset[str], depth: int) -> Item:
        above |= {item.id}
        known = [bindable(name) for name in above]
        where = f"s.parent_id = ? AND s.id NOT IN ({_marks(known)}) AND {self.where}"
        values = [bindable(item.id), *known, *self.values]
        (number,) = self.layout.connection.execute(
            f"SELECT count(*) {self.layout.tables} WHERE {where}", values
        ).fetchone()
        most = min(CHILDREN, self.left) if depth else 0
        if not number or not most:
            return replace(item, child_count=int(number))
        found = self.layout.items(where, [*values, most], "ORDER BY s.time_created, s.id LIMIT ?")
        children = [_look(self.layout, child) for child in list(found)]
        self.left -= len(children)
        return replace(
            item, child_count=int(number),
            children=tuple(self._below(child, above, depth - 1) for child in children),
        )  # fmt: skip


def _named(layout: _Layout, items: Sequence[Item]) -> list[Item]:
    """Sessions with the titles of their parents."""
    parents = list({bindable(item.parent_id) for item in items if item.parent_id})
    titles = dict(
        layout.connection.execute(
            f"SELECT s.id, {layout.column('title')} FROM session s WHERE s.id IN ({_marks(parents)})",
            parents,
        ).fetchall()
    )
    return [
        replace(item, parent=Origin(item.parent_id, as_text(titles[item.parent_id])))
        if item.parent_id and item.parent_id in titles
        else item
        for item in items
    ]


def _touches(layout: _Layout, items: Sequence[Item]) -> dict[str, int]:
    """When this database says that sessions of others were last touched."""
    names = [bindable(item.id) for item in items]
    rows = layout.connection.execute(
        f"SELECT s.id, {layout.touched} FROM session s WHERE s.id IN ({_marks(names)})", names
    )
    return {name: as_when(touched) for name, touched in rows if is_id(name)}


def _forks(layout: _Layout, items: Sequence[Item]) -> list[Item]:
    """Sessions with a mark on those that look like forks: a fork has no link to its origin, but says
    “(fork #1)” in its title, and its first messages are copies that are older than itself.

    The origin is looked for by title, and among the sessions that were made just before the first
    copied message; it is the earliest that has messages at the very same times.
    """
    times = {
        item.id: _first_times(layout, item.id) for item in items if not item.parent_id
    }  # fmt: skip
    bases = {
        item.id: match["base"]
        for item in items
        if not item.parent_id and (match := FORK.fullmatch(item.title))
    }
    copied = {
        item.id: times[item.id][0]
        for item in items
        if times.get(item.id) and times[item.id][0] < item.created_at
    }
    if not bases and not copied:
        return list(items)
    titles = [bindable(base) for base in dict.fromkeys(bases.values())]
    pieces = [f"{layout.column('title')} IN ({_marks(titles)})"]
    values: list[Any] = [*titles]
    for first in set(copied.values()):
        pieces.append("s.time_created BETWEEN ? AND ?")
        values += [first - SOON_MS, first]
    candidates = [
        (name, as_text(title), as_when(created), as_text(project))
        for name, title, created, project in layout.connection.execute(
            f"SELECT s.id, {layout.column('title')}, s.time_created, {layout.project}"
            f" {layout.tables} WHERE {_HAS_ID} AND ({' OR '.join(pieces)})"
            " ORDER BY s.time_created, s.id LIMIT ?",
            [*values, ORIGINS],
        )
    ]
    done = []
    for item in items:
        if item.id in bases or item.id in copied:
            item = replace(item, is_fork=True, origin=_origin(layout, item, bases.get(item.id),
                           times[item.id] if item.id in copied else [], candidates))  # fmt: skip
        done.append(item)
    return done


def _origin(
    layout: _Layout, item: Item, base: str | None, times: list[int],
    candidates: Sequence[tuple[str, str, int, str]],
) -> Origin | None:  # fmt: skip
    older = [one for one in candidates if one[0] != item.id and one[2] <= item.created_at]
    if times:
        for name, title, created, _ in older:
            is_near = times[0] - SOON_MS <= created <= times[0]
            if (is_near or title == base) and _agree(_first_times(layout, name), times):
                return Origin(name, title)
    named = [one for one in older if one[1] == base and one[3] == item.project]
    return Origin(named[-1][0], named[-1][1]) if named and not times else None


def _agree(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether two histories begin alike, as far as both go."""
    shared = min(len(one), len(other))
    return shared > 0 and list(one[:shared]) == list(other[:shared])


def _first_times(layout: _Layout, session_id: str) -> list[int]:
    """When the first messages of a session were made, out of an index."""
    for table in ("message", "session_message"):
        if table in layout.messages:
            rows = layout.connection.execute(
                f"SELECT time_created FROM {table} WHERE session_id = ? ORDER BY time_created LIMIT 3",
                (bindable(session_id),),
            ).fetchall()
            if rows:
                return [as_when(row[0]) for row in rows if as_when(row[0])]
    return []
