"""Entries as a file that other people and other machines can read, and back: JSON lines and Markdown.

An import is a plan first, which says of every entry what would become of it, and then exactly that plan.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from webapp.errors import InvalidInput, MemoryAppError, PlanChanged, SecretRefused
from webapp.memory import entries
from webapp.memory.entries import Draft, Entry, draft
from webapp.memory.search import in_scope, live
from webapp.store import Store, now_ms, receipts

FORMATS = ("jsonl", "markdown")
FIELDS = (
    "id",
    "scope",
    "kind",
    "title",
    "body",
    "tags",
    "created_at",
    "updated_at",
    "expires_at",
    "source",
)
MAX_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 100_000
BATCH = 200
PAGE = 500
MAX_SOURCE = 60

NEW, REWRITTEN, SAME, REFUSED = "new", "rewritten", "same", "refused"
STATES = (NEW, REWRITTEN, SAME, REFUSED)

_MARK = "<!-- opencode-memory "
_MARKED = re.compile(re.escape(_MARK) + r"(\{.*\}) -->")
_ESCAPED = re.compile(r"\\*" + re.escape(_MARK))
_TIMES = ("created_at", "updated_at")


def check_form(form: str) -> str:
    """A form that there is. Raises InvalidInput."""
    if form not in FORMATS:
        raise InvalidInput(f"“{form[:20]}” is no form. Known: {', '.join(FORMATS)}.", "as")
    return form


def dump(store: Store, scope: str | None, form: str, now: int | None = None) -> Iterator[str]:
    """The live entries of a scope and `global`, or of every scope, as the pieces of a text, in the order
    in which they were made. The store is to be open until the last one."""
    return _pieces(store, scope, form, now_ms() if now is None else now)


def _pieces(store: Store, scope: str | None, form: str, at: int) -> Iterator[str]:
    where = live(at) & in_scope(scope)
    columns = ", ".join(f"e.{n}" if n in store.columns else f"NULL AS {n}" for n in FIELDS)
    last = -1
    if form == "markdown":
        yield "# OpenCode memory\n"
    while True:
        rows = store.rows(
            f"SELECT {columns}, e.rowid FROM entries e WHERE {where.sql} AND e.rowid > ?"
            " ORDER BY e.rowid LIMIT ?",
            (*where.params, last, PAGE),
        )
        for row in rows:
            entry = entries.from_values(*row[:10])
            yield _as_markdown(entry) if form == "markdown" else _as_json(entry) + "\n"
        if len(rows) < PAGE:
            return
        last = rows[-1][10]


def _as_json(entry: Entry) -> str:
    values = {name: getattr(entry, name) for name in FIELDS}
    return json.dumps({**values, "tags": list(entry.tags)}, ensure_ascii=False)


def _as_markdown(entry: Entry) -> str:
    facts = {name: getattr(entry, name) for name in FIELDS if name not in ("title", "body")}
    told = json.dumps({**facts, "tags": list(entry.tags)}, ensure_ascii=False).replace(
        "-->", "--\\u003e"
    )
    body = "\n".join(
        "\\" + line if _ESCAPED.match(line) else line for line in entry.body.split("\n")
    )
    title = " ".join(entry.title.split())
    return f"\n## {title}\n{_MARK}{told} -->\n\n{body}\n"


# Reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a file: the line where it begins, what would become of it (one of STATES) and why.
    `before` is the live entry that it would rewrite, `kept` what of the file's own is kept beside the
    text."""

    line: int
    state: str
    title: str
    scope: str
    why: str = ""
    draft: Draft | None = None
    before: Entry | None = None
    kept: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What an import would do. `fingerprint` is of the file, the options and the entries as they are."""

    items: tuple[Item, ...]
    fingerprint: str

    @property
    def counts(self) -> Mapping[str, int]:
        """How many entries have each of STATES."""
        found = Counter(item.state for item in self.items)
        return {state: found[state] for state in STATES}


def plan(store: Store, data: bytes, into: str | None = None, now: int | None = None) -> Plan:
    """What an import of a file would do; `into` puts everything into one scope. Nothing is written.

    Raises InvalidInput for a file that is too large or no text; what is wrong with one entry is told of
    that one."""
    at = now_ms() if now is None else now
    found: list[Item] = []
    names: dict[tuple[str, str], int] = {}
    digest = hashlib.sha256(data)
    digest.update(repr(into).encode())
    for line, raw in _read(data):
        if len(found) >= MAX_ENTRIES:
            raise InvalidInput(f"The file has more than {MAX_ENTRIES:,} entries; split it.", "file")
        item = _item(store, line, raw, into, at)
        if item.draft is not None:
            name = (item.draft.scope, item.draft.title)
            if name in names:
                item = replace(
                    item, state=REFUSED, draft=None, before=None,
                    why=f"Line {names[name]:,} has the same title in the same scope; that one is taken.",
                )  # fmt: skip
            else:
                names[name] = line
        before = (item.before.id, item.before.updated_at) if item.before else None
        digest.update(repr((line, item.state, before)).encode())
        found.append(item)
    return Plan(tuple(found), digest.hexdigest()[:12])


def _read(data: bytes) -> Iterator[tuple[int, Any]]:
    """The entries of a file as they stand there, each with its line: an object, or a sentence on what is
    wrong with it."""
    if len(data) > MAX_BYTES:
        raise InvalidInput(f"The file has {len(data):,} bytes; at most {MAX_BYTES:,} fit.", "file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"The file is not UTF-8 text (at byte {error.start:,}).", "file"
        ) from error
    if "\0" in text:
        raise InvalidInput("The file holds NUL characters, so it is no text.", "file")
    text = text.replace("\r\n", "\n")
    if text.lstrip()[:1] in ("{", "["):
        return _read_lines(text)
    return _read_markdown(text)


def _read_lines(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            yield number, "This line is no JSON. Every entry is an object on a line of its own."
            continue
        yield number, found if isinstance(found, dict) else "This line is no JSON object."


def _read_markdown(text: str) -> Iterator[tuple[int, Any]]:
    lines = text.split("\n")
    starts = [at for at in range(len(lines) - 1) if lines[at].startswith("## ")
              and _MARKED.fullmatch(lines[at + 1])]  # fmt: skip
    if not starts and text.strip():
        yield (
            1,
            (
                "No entry was found. A file of entries is JSON lines, or Markdown as it is exported here."
            ),
        )
    for at, following in pairwise([*starts, len(lines)]):
        marked = _MARKED.fullmatch(lines[at + 1])
        assert marked is not None
        try:
            found = json.loads(marked[1])
        except (ValueError, RecursionError):
            yield at + 1, "The comment below this heading is no JSON."
            continue
        body = [line[1:] if _ESCAPED.match(line) and line[0] == "\\" else line
                for line in lines[at + 2 : following]]  # fmt: skip
        yield at + 1, {**found, "title": lines[at][3:], "body": "\n".join(body)}


def _item(store: Store, line: int, raw: Any, into: str | None, at: int) -> Item:
    if isinstance(raw, str):
        return Item(line, REFUSED, "", "", raw)
    values = {_snake(name): value for name, value in raw.items()}
    title, scope = (_shown(values.get(name)) for name in ("title", "scope"))
    scope = into or scope or "global"
    try:
        made = _draft(values, scope, at)
    except SecretRefused as error:
        # What looks like a credential is not repeated, wherever it stands.
        shown = "" if error.field in ("title", "kind") else title
        return Item(line, REFUSED, shown, scope, error.message)
    except MemoryAppError as error:
        return Item(line, REFUSED, title, scope, error.message)
    kept = _kept(store, values)
    twin = entries.live_twin(store, made.scope, made.title, at) if store.exists else None
    if twin is None:
        return Item(line, NEW, made.title, made.scope, "", made, None, kept)
    before = entries.from_row(twin)
    is_same = (before.kind, before.body, before.tags, before.expires_at) == (
        made.kind, made.body, made.tags, made.expires_at,
    )  # fmt: skip
    return Item(
        line, SAME if is_same else REWRITTEN, made.title, made.scope, "", made, before, kept
    )


def _draft(values: Mapping[str, Any], scope: str, at: int) -> Draft:
    texts = {}
    for name in ("kind", "title", "body"):
        value = values.get(name, "fact" if name == "kind" else "")
        if not isinstance(value, str):
            raise InvalidInput(f"The {name} is no text.", name)
        texts[name] = value
    tags = values.get("tags") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidInput("The tags are no list of texts.", "tags")
    expires = values.get("expires_at")
    if expires is not None and (isinstance(expires, bool) or not isinstance(expires, int)):
        raise InvalidInput("expires_at is no time in epoch milliseconds.", "expires_at")
    return draft(scope=scope, tags=tags, expires_at=expires, now=at, **texts)


def _kept(store: Store, values: Mapping[str, Any]) -> dict[str, Any]:
    """The id if nobody has it, the times and the writer, where they are of use."""
    found: dict[str, Any] = {}
    entry_id = values.get("id")
    if isinstance(entry_id, str) and re.fullmatch(r"[0-9A-Za-z-]{8,64}", entry_id):
        found["id"] = entry_id
    for name in _TIMES:
        time = values.get(name)
        if isinstance(time, int) and not isinstance(time, bool) and 0 < time <= now_ms():
            found[name] = time
    source = values.get("source")
    if isinstance(source, str) and source.strip():
        try:
            entries.check_text("source", source[:MAX_SOURCE], MAX_SOURCE)
            found["source"] = " ".join(source.split())[:MAX_SOURCE]
        except InvalidInput:
            pass
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda m: "_" + m[1].lower(), name)


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else ""
    return " ".join(text.encode("utf-8", "replace").decode().split())[:200]


# Writing ------------------------------------------------------------------------------------------


def apply(
    store: Store,
    data: bytes,
    into: str | None,
    fingerprint: str,
    actor: str,
    now: int | None = None,
) -> tuple[Plan, int]:
    """Does what the plan of that fingerprint says: the plan, and the number of the receipt that it left.
    Entries without a writer of their own get the person who imports them.

    Raises PlanChanged with the plan as it is now (`details["plan"]`) when the file, the options or one of
    the entries is no longer what the plan was made for; then nothing was written. Killed in the middle,
    what was written is there, and the next plan calls it the same.
    """
    at = now_ms() if now is None else now
    made = plan(store, data, into, at)
    if made.fingerprint != fingerprint:
        raise PlanChanged(
            "This is not the plan of that file for the entries as they are now, so nothing was written."
            " Look at the new plan and apply that one.",
            plan=made,
        )
    due = [item for item in made.items if item.state in (NEW, REWRITTEN)]
    written: list[str] = []
    for start in range(0, len(due), BATCH):
        with store.writing():
            for item in due[start : start + BATCH]:
                assert item.draft is not None
                kept = dict(item.kept or {})
                source = kept.pop("source", actor)
                saved = entries.save_within(store, item.draft, source, at, kept=kept)
                written.append(saved.entry.id)
    counts = made.counts
    with store.writing():
        receipt = receipts.write(
            store, "import", actor,
            f"Imported {counts[NEW]:,} new and {counts[REWRITTEN]:,} rewritten entries",
            {**counts, "entries": written[:1_000]}, at,
        )  # fmt: skip
    return made, receipt
