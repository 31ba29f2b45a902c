"""OpenCode's own files, read-only, as frozen dataclasses."""

from webapp.opencode.database import reading, version
from webapp.opencode.records import Message, Part, Session
from webapp.opencode.sessions import (
    Found,
    find_session,
    last_compaction,
    list_sessions,
    messages,
    session_in,
    touched_since,
)
from webapp.opencode.sizes import estimate_bytes

__all__ = [
    "Found",
    "Message",
    "Part",
    "Session",
    "estimate_bytes",
    "find_session",
    "last_compaction",
    "list_sessions",
    "messages",
    "reading",
    "session_in",
    "touched_since",
    "version",
]
