"""Entries: save, edit, list, forget. Limits and rules are those of DESIGN.md, section 4."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webapp import secrets
from webapp.errors import Conflict, InvalidInput, NotFound, SecretRefused
from webapp.memory import origins
from webapp.memory.origins import Origin
from webapp.scope import GLOBAL, parse_scope
from webapp.store import EntryRow, Store, TrashRow, now_ms, receipts
from webapp.store.values import as_text, as_time, has_text_id, tolerant

MAX_TITLE = 120
MAX_BODY = 8_000
MAX_TAGS = 12
MAX_TAG = 64
MAX_KIND = 40
MAX_PER_CALL = 50
MAX_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999, beyond which no date can be shown."""
KINDS = ("decision", "fact", "preference", "gotcha", "lesson", "compaction")
EXPIRED = "expired"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it is shown. Times are epoch milliseconds."""

    id: str
    scope: str
    kind: str
    title: str
    body: str
    tags: tuple[str, ...]
    created_at: int
    updated_at: int
    expires_at: int | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save did: `created` or else rewrote; `expired` rows went to the trash. `former` is the
    id under which a text that was rewritten is in the trash, None if the text is the same."""

    entry: Entry
    created: bool
    expired: int = 0
    former: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry before it is saved, already checked; build it with `draft()`."""

    scope: str
    kind: str
    title: str
    body: str
    tags: tuple[str, ...]
    expires_at: int | None


def tags_of(kept: object) -> tuple[str, ...]:
    """The tags in a stored JSON array; a text that is no array is shown as one tag."""
    text = as_text(kept)
    try:
        found = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return (text,)
    if not isinstance(found, list):
        return (text,)
    return tuple(tag if isinstance(tag, str) else json.dumps(tag) for tag in found)


def from_row(row: Any) -> Entry:
    """An `EntryRow` or `TrashRow` as a value."""
    return from_values(
        row.id, row.scope, row.kind, row.title, row.body, row.tags,
        row.created_at, row.updated_at, row.expires_at, row.source,
    )  # fmt: skip


def from_values(
    id_: object, scope: object, kind: object, title: object, body: object, tags: object,
    created_at: object, updated_at: object, expires_at: object, source: object,
) -> Entry:  # fmt: skip
    """What the columns hold as a value. Other programs write there too, and one odd row must not
    hide the others: what is no text becomes one, a time that is none 0, such an expiry None."""
    return Entry(
        as_text(id_), as_text(scope), as_text(kind), as_text(title), as_text(body), tags_of(tags),
        as_time(created_at) or 0, as_time(updated_at) or 0, as_time(expires_at),
        None if source is None else as_text(source),
    )  # fmt: skip


def columns_of(store: Store) -> list[Any]:
    """The model's columns that the open file has; a read-only public file lacks `source`."""
    return tolerant(EntryRow, store.columns)


def _has_id() -> Any:
    """Without an id that is a text, a row cannot be told from others and is only shown."""
    return has_text_id(EntryRow)


def draft(
    *,
    scope: str,
    kind: str,
    title: str,
    body: str,
    tags: Sequence[str] = (),
    expires_at: int | None = None,
    now: int | None = None,
) -> Draft:
    """Checks what is to be saved. Raises InvalidInput or SecretRefused that name the field."""
    title = " ".join(title.split())
    kind = " ".join(kind.split())
    body = body.replace("\r\n", "\n").strip("\n")
    clean = tuple(dict.fromkeys(t for t in (" ".join(tag.split()) for tag in tags) if t))
    check_text("title", title, MAX_TITLE)
    check_text("kind", kind, MAX_KIND)
    check_text("body", body, MAX_BODY)
    if len(clean) > MAX_TAGS:
        raise InvalidInput(f"An entry has at most {MAX_TAGS} tags; this one has {len(clean)}.",
                           "tags")  # fmt: skip
    for tag in clean:
        check_text("tags", tag, MAX_TAG)
    if expires_at is not None and expires_at <= (now_ms() if now is None else now):
        raise InvalidInput(
            "expires_at lies in the past; an entry cannot expire then.", "expires_at"
        )
    if expires_at is not None and expires_at > MAX_TIME:
        raise InvalidInput("expires_at lies after the year 9999; leave it out.", "expires_at")
    return Draft(parse_scope(scope), kind, title, body, clean, expires_at)


def check_text(field: str, text: str, most: int) -> None:
    """Checks one text of an entry. Raises InvalidInput or SecretRefused that names `field`; a
    secret is never repeated."""
    what = "One of the tags" if field == "tags" else f"The {field}"
    if not text.strip():
        raise InvalidInput(f"{what} is empty; write something there.", field)
    if len(text) > most:
        raise InvalidInput(f"{what} has {len(text):,} characters; at most {most:,} fit.", field)
    if _CONTROL.search(text.replace("\n", " ").replace("\t", " ").replace("\r", " ")):
        raise InvalidInput(f"{what} holds a control character that cannot be kept.", field)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} is not valid Unicode text.", field) from error
    found = secrets.find(text)
    if found:
        raise SecretRefused(
            f"{what} looks like it holds a secret ({found[0].kind}). Nothing was saved; "
            "take it out and say where the secret is kept instead.",
            field,
            kind=found[0].kind,
        )


def save(
    store: Store,
    new: Draft,
    source: str | None,
    now: int | None = None,
    may_rewrite: bool = True,
    only_own: bool = False,
    origin: Origin | None = None,
) -> Saved:
    """Saves an entry. The live entry of the same scope and title is rewritten (its id and
    `created_at` stay, its former text goes to the trash); expired rows leave for the trash too.

    With `may_rewrite` false an entry of that title is a Conflict, and nothing is saved; with `only_own`
    so is one that was not written, or was last changed, by this `source`. `origin` is
    where the text was taken from; if it has no time, it gets that of this save.
    """
    at = now_ms() if now is None else now
    with store.writing():
        return save_within(store, new, source, at, may_rewrite, origin, only_own=only_own)


def save_within(
    store: Store, new: Draft, source: str | None, at: int, may_rewrite: bool = True,
    origin: Origin | None = None, kept: Mapping[str, Any] | None = None, only_own: bool = False,
) -> Saved:  # fmt: skip
    """`save` inside the caller's write transaction. `kept` are the id and the times that a new entry had
    elsewhere; an id that is taken here is not kept."""
    expired = _retire_expired(store, at)
    row = live_twin(store, new.scope, new.title, at)
    if row is None:
        entry = _insert(store, new, source, at, kept or {})
        if origin is not None:
            origins.keep(store, entry.id, origin, origin.at or at)
        return Saved(entry, True, expired)
    if not may_rewrite:
        raise Conflict(
            f"There is already an entry “{new.title}” in {new.scope}. Saving would rewrite it; "
            "tick the box below if you want that.",
            entry=from_row(row), rewrite=True,
        )  # fmt: skip
    if only_own and from_row(row).source != source:
        raise Conflict(
            f"The entry “{new.title}” in {new.scope} is somebody else's, so it stays as it is.",
            entry=from_row(row),
        )
    entry, former = _rewrite(store, row, new, source, at)
    if origin is not None:
        origins.keep(store, entry.id, origin, origin.at or entry.updated_at)
    return Saved(entry, False, expired, former)


def edit(
    store: Store,
    entry_id: str,
    new: Draft,
    source: str | None,
    seen_updated_at: int | None = None,
    now: int | None = None,
) -> Entry:
    """Changes an entry in place.

    Raises NotFound, and Conflict when somebody changed it since `seen_updated_at` or when another
    live entry already has that scope and title.
    """
    at = now_ms() if now is None else now
    with store.writing(create=False):
        row = _row(store, entry_id)
        if seen_updated_at is not None and from_row(row).updated_at != seen_updated_at:
            raise Conflict(
                "Somebody changed this entry while you were editing it. Nothing was saved; below "
                "is what it says now, and your text is still in the form.",
                entry=from_row(row),
            )
        twin = live_twin(store, new.scope, new.title, at, other_than=entry_id)
        if twin is not None:
            raise Conflict(
                f"Another entry in {new.scope} already has the title “{new.title}”. Choose another "
                "title, or edit that one.",
                entry=from_row(twin),
            )
        return _rewrite(store, row, new, source, at)[0]


def get(store: Store, entry_id: str) -> Entry:
    """One entry, expired or not. Raises NotFound."""
    return from_row(_row(store, entry_id))


def is_live(entry: Entry, now: int | None = None) -> bool:
    """Whether an entry has not expired."""
    return entry.expires_at is None or entry.expires_at > (now_ms() if now is None else now)


def forget(store: Store, ids: Sequence[str], actor: str, now: int | None = None) -> list[Entry]:
    """Moves entries to the trash, whatever their scope, and leaves a receipt.

    At most MAX_PER_CALL at a time. Raises NotFound if one is missing; then none is moved.
    """
    # A search may give the id of a row of another program, which is no text.
    given: Sequence[object] = ids
    ids = [entry_id for entry_id in given if isinstance(entry_id, str)]
    if not ids:
        return []
    if len(ids) > MAX_PER_CALL:
        raise InvalidInput(f"At most {MAX_PER_CALL} entries can be forgotten at a time.", "id")
    at = now_ms() if now is None else now
    with store.writing(create=False):
        rows = [_row(store, entry_id) for entry_id in dict.fromkeys(ids)]
        for row in rows:
            to_trash(store, row, actor, at)
        gone = [from_row(row) for row in rows]
        what = f"“{gone[0].title}”" if len(gone) == 1 else f"{len(gone)} entries"
        receipts.write(
            store, "forget", actor, f"Forgot {what}",
            {"entries": [{"id": e.id, "title": e.title, "scope": e.scope} for e in gone]}, at,
        )  # fmt: skip
    return gone


def to_trash(store: Store, row: Any, by: str, at: int, entry_id: str | None = None) -> None:
    """Moves a live row to the trash inside the caller's transaction. With `entry_id` the row stays
    and a copy of it is put there under that id. An earlier text that is in the trash under the same
    id gets another one, as only the sweep and a purge destroy anything."""
    other = str(uuid.uuid4())
    if store.run(TrashRow.update(id=other).where(TrashRow.id == (entry_id or row.id))):
        origins.copy(store, entry_id or row.id, other)
    values = {name: getattr(row, name) for name in EntryRow._meta.fields}
    values["id"] = entry_id or row.id
    store.run(TrashRow.insert(**values, trashed_at=at, trashed_by=by))
    if entry_id is None:
        store.run(EntryRow.delete().where(EntryRow.id == row.id))


def _retire_expired(store: Store, at: int) -> int:
    rows = store.all(
        EntryRow.select(*tolerant(EntryRow)).where(
            EntryRow.expires_at.is_null(False), EntryRow.expires_at <= at, _has_id()
        )
    )
    for row in rows:
        to_trash(store, row, EXPIRED, at)
    return len(rows)


def _row(store: Store, entry_id: str) -> Any:
    row = store.first(EntryRow.select(*columns_of(store)).where(EntryRow.id == entry_id))
    if row is None:
        raise NotFound(
            f"There is no entry {entry_id[:60]}. Ids are given whole; it may be in the trash."
        )
    return row


def live_twin(store: Store, scope: str, title: str, at: int, other_than: str | None = None) -> Any:
    """The live row that holds a title in a scope, the newest if the plugin made several."""
    query = EntryRow.select(*columns_of(store)).where(
        EntryRow.scope == scope,
        EntryRow.title == title,
        _has_id(),
        (EntryRow.expires_at.is_null()) | (EntryRow.expires_at > at),
    )
    if other_than is not None:
        query = query.where(EntryRow.id != other_than)
    return store.first(query.order_by(EntryRow.updated_at.desc()))


def _insert(
    store: Store, new: Draft, source: str | None, at: int, kept: Mapping[str, Any]
) -> Entry:  # fmt: skip
    taken = "SELECT 1 FROM entries WHERE id = ?1 UNION ALL SELECT 1 FROM trash WHERE id = ?1"
    entry_id = kept.get("id")
    if entry_id is None or store.rows(taken, (entry_id,)):
        entry_id = str(uuid.uuid4())
    created = kept.get("created_at", at)
    values = {
        "id": entry_id, "scope": new.scope, "kind": new.kind, "title": new.title,
        "body": new.body, "tags": json.dumps(new.tags, ensure_ascii=False), "created_at": created,
        "updated_at": max(created, kept.get("updated_at", at)), "expires_at": new.expires_at,
        "source": source,
    }  # fmt: skip
    store.run(EntryRow.insert(**values))
    return from_row(EntryRow(**values))


def _rewrite(
    store: Store, row: Any, new: Draft, source: str | None, at: int
) -> tuple[Entry, str | None]:
    before = from_row(row)
    changed = (before.kind, before.title, before.body, before.tags) != (
        new.kind, new.title, new.body, new.tags,
    )  # fmt: skip
    former = str(uuid.uuid4()) if changed else None
    if former is not None:
        to_trash(store, row, f"{source or 'unknown'} (rewrote)", at, entry_id=former)
        origins.copy(store, row.id, former)
    # Two saves within one millisecond still get different times, so that an edit can tell them.
    if before.updated_at < MAX_TIME:
        at = max(at, before.updated_at + 1)
    values = {
        "scope": new.scope, "kind": new.kind, "title": new.title, "body": new.body,
        "tags": json.dumps(new.tags, ensure_ascii=False), "updated_at": at,
        "expires_at": new.expires_at, "source": source,
    }  # fmt: skip
    store.run(EntryRow.update(**values).where(EntryRow.id == row.id))
    if not changed:
        origins.follow(store, row.id, before.updated_at, at)
    return from_row(EntryRow(id=row.id, created_at=row.created_at, **values)), former


__all__ = [
    "GLOBAL", "KINDS", "Draft", "Entry", "Saved", "draft", "edit", "forget", "from_row", "get",
    "is_live", "live_twin", "save", "save_within", "tags_of", "to_trash",
]  # fmt: skip
