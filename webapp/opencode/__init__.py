"""OpenCode's own files, read-only, as frozen dataclasses."""

from webapp.opencode.database import reading
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

__all__ = [
    "Found",
    "Message",
    "Part",
    "Session",
    "find_session",
    "last_compaction",
    "list_sessions",
    "messages",
    "reading",
    "session_in",
    "touched_since",
]
