"""OpenCode's own files, read-only, as frozen dataclasses."""

from webapp.opencode.database import reading
from webapp.opencode.records import Message, Part, Session
from webapp.opencode.sessions import Found, find_session, list_sessions, messages

__all__ = [
    "Found",
    "Message",
    "Part",
    "Session",
    "find_session",
    "list_sessions",
    "messages",
    "reading",
]
