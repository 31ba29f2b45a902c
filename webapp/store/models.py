"""The tables of memory.db as Peewee models.

The models carry no database: every query is run on the one that a `Store` holds, so that two
stores in one process never meet.
"""

from __future__ import annotations

from peewee import AutoField, IntegerField, Model, TextField


class _EntryColumns(Model):
    id = TextField(primary_key=True)
    scope = TextField()
    kind = TextField()
    title = TextField()
    body = TextField()
    tags = TextField(default="[]")
    created_at = IntegerField()
    updated_at = IntegerField()
    expires_at = IntegerField(null=True)
    source = TextField(null=True)


class EntryRow(_EntryColumns):
    """A live (or expired and not yet purged) entry. Times are epoch milliseconds."""

    class Meta:
        table_name = "entries"


class TrashRow(_EntryColumns):
    """A forgotten, replaced, rewritten or expired entry, whole, with when and by whom."""

    trashed_at = IntegerField()
    trashed_by = TextField()

    class Meta:
        table_name = "trash"


class TranscriptRow(Model):
    """One exported session. `size`, `lines` and `marks_size` are the last good lengths: what lies
    beyond them in the files is the remains of an interrupted append."""

    session_id = TextField(primary_key=True)
    scope = TextField()
    path = TextField()
    title = TextField()
    source_db = TextField()
    created_at = IntegerField()
    updated_at = IntegerField()
    exported_at = IntegerField()
    messages = IntegerField()
    lines = IntegerField()
    size = IntegerField()
    marks_size = IntegerField()
    removed_at = IntegerField(null=True)
    removed_by = TextField(null=True)
    removed_why = TextField(null=True)

    class Meta:
        table_name = "transcripts"


class ReceiptRow(Model):
    """What was forgotten, restored, purged or cleaned up. `detail` is a JSON object."""

    id = AutoField()
    at = IntegerField()
    action = TextField()
    actor = TextField()
    summary = TextField()
    detail = TextField(default="{}")

    class Meta:
        table_name = "receipts"
