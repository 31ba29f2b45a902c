"""Receipts: what was forgotten, restored, purged or cleaned up, by whom, when, with counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.errors import NotFound
from webapp.store.connection import Store
from webapp.store.models import ReceiptRow
from webapp.store.values import as_text, as_time, tolerant


@dataclass(frozen=True, slots=True)
class Receipt:
    """One receipt; `detail` holds counts and names, `at` is epoch milliseconds."""

    id: int
    at: int
    action: str
    actor: str
    summary: str
    detail: Mapping[str, Any]


def write(
    store: Store, action: str, actor: str, summary: str, detail: Mapping[str, Any], at: int
) -> int:
    """Adds a receipt inside the caller's write transaction and returns its id."""
    return store.run(
        ReceiptRow.insert(
            at=at, action=action, actor=actor, summary=summary,
            detail=json.dumps(detail, ensure_ascii=False),
        )
    )  # fmt: skip


def update(store: Store, receipt_id: int, summary: str, detail: Mapping[str, Any]) -> None:
    """Tells more of work that is still going on, inside the caller's write transaction."""
    kept = json.dumps(detail, ensure_ascii=False)
    store.run(ReceiptRow.update(summary=summary, detail=kept).where(ReceiptRow.id == receipt_id))


def of(store: Store, action: str, at: int) -> int | None:
    """The number of the receipt of something that was done at that very moment, if there is one."""
    if not store.has_table("receipts"):
        return None
    found = store.value(
        "SELECT max(id) FROM receipts WHERE action = ? AND at = ?", (action, at)
    )  # fmt: skip
    return found if isinstance(found, int) else None


def total(store: Store, action: str, key: str) -> int:
    """The sum of one number in the details of all receipts of an action."""
    if not store.has_table("receipts"):
        return 0
    # Another program may have put anything there: what is no JSON or no whole number counts nothing.
    return int(
        store.value(
            "SELECT coalesce(sum(CASE WHEN json_valid(detail) THEN CASE json_type(detail, ?)"
            " WHEN 'integer' THEN json_extract(detail, ?) END END), 0)"
            " FROM receipts WHERE action = ?",
            (f"$.{key}", f"$.{key}", action),
        )
    )


def _read(row: ReceiptRow) -> Receipt:
    kept = as_text(row.detail)
    try:
        detail = json.loads(kept)
        if "\\u" in kept:
            # An escape may be half a character, which no page and no file name can hold.
            whole = json.dumps(detail, ensure_ascii=False).encode("utf-8", "replace")
            detail = json.loads(whole)
    except (ValueError, RecursionError):
        detail = None
    if not isinstance(detail, dict):
        detail = {"unreadable": kept}
    return Receipt(
        row.id, as_time(row.at) or 0, as_text(row.action), as_text(row.actor),
        as_text(row.summary), detail,
    )  # fmt: skip


def listing(store: Store, limit: int = 100, before: int | None = None) -> list[Receipt]:
    """The newest receipts first, `before` an id for the next page."""
    if not store.has_table("receipts"):
        return []
    query = ReceiptRow.select(*tolerant(ReceiptRow)).order_by(ReceiptRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(ReceiptRow.id < before)
    return [_read(row) for row in store.all(query)]


def get(store: Store, receipt_id: int) -> Receipt:
    """One receipt. Raises NotFound."""
    row = None
    if store.has_table("receipts"):
        row = store.first(
            ReceiptRow.select(*tolerant(ReceiptRow)).where(ReceiptRow.id == receipt_id)
        )
    if row is None:
        raise NotFound(f"There is no receipt {receipt_id}.")
    return _read(row)
