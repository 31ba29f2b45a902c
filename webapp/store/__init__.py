"""memory.db: connections, models, layouts. The only place that knows Peewee."""

from peewee import DatabaseError

from webapp.store.connection import Store, now_ms, private_file, private_folder
from webapp.store.models import EntryRow, ReceiptRow, TranscriptRow, TrashRow

__all__ = [
    "DatabaseError",
    "EntryRow",
    "ReceiptRow",
    "Store",
    "TranscriptRow",
    "TrashRow",
    "now_ms",
    "private_file",
    "private_folder",
]
