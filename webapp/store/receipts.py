"""Receipts: what was forgotten, restored, purged or cleaned up, by whom, when, with counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webapp.errors import NotFound
from webapp.store.connection import Store
from webapp.store.models import ReceiptRow


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


def _read(row: ReceiptRow) -> Receipt:
    try:
        detail = json.loads(row.detail)
    except ValueError:
        detail = {"unreadable": row.detail}
    return Receipt(row.id, row.at, row.action, row.actor, row.summary, detail)


def listing(store: Store, limit: int = 100, before: int | None = None) -> list[Receipt]:
    """The newest receipts first, `before` an id for the next page."""
    if not store.has_table("receipts"):
        return []
    query = ReceiptRow.select().order_by(ReceiptRow.id.desc()).limit(limit)
    if before is not None:
        query = query.where(ReceiptRow.id < before)
    return [_read(row) for row in store.all(query)]


def get(store: Store, receipt_id: int) -> Receipt:
    """One receipt. Raises NotFound."""
    row = None
    if store.has_table("receipts"):
        row = store.first(ReceiptRow.select().where(ReceiptRow.id == receipt_id))
    if row is None:
        raise NotFound(f"There is no receipt {receipt_id}.")
    return _read(row)
