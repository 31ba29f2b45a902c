"""OpenCode's own files, read-only, as frozen dataclasses."""

from webapp.opencode.config import Config, read_config
from webapp.opencode.database import reading, version
from webapp.opencode.history import (
    Compaction,
    History,
    Overflow,
    Replaced,
    State,
    list_compactions,
    overflow,
    seen_by_model,
)
from webapp.opencode.instructions import (
    Baseline,
    Instruction,
    Instructions,
    Rule,
    Shadowed,
    instructions,
)
from webapp.opencode.modelview import Item, Kind, LeftOut, Model, Why, estimate
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
    "Baseline",
    "Compaction",
    "Config",
    "Found",
    "History",
    "Instruction",
    "Instructions",
    "Item",
    "Kind",
    "LeftOut",
    "Message",
    "Model",
    "Overflow",
    "Part",
    "Replaced",
    "Rule",
    "Session",
    "Shadowed",
    "State",
    "Why",
    "estimate",
    "estimate_bytes",
    "find_session",
    "instructions",
    "last_compaction",
    "list_compactions",
    "list_sessions",
    "messages",
    "overflow",
    "read_config",
    "reading",
    "seen_by_model",
    "session_in",
    "touched_since",
    "version",
]
