"""OpenCode's own files, read-only, as frozen dataclasses."""

from webapp.opencode.config import Config, read_config
from webapp.opencode.database import last_version, reading, version
from webapp.opencode.history import (
    Compaction,
    Excerpts,
    History,
    Overflow,
    Replaced,
    State,
    list_compactions,
    outline,
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
from webapp.opencode.limits import Limits, find_limits
from webapp.opencode.modelview import Item, Kind, LeftOut, Model, Why, as_tokens, estimate, weigh
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
    "Excerpts",
    "Found",
    "History",
    "Instruction",
    "Instructions",
    "Item",
    "Kind",
    "LeftOut",
    "Limits",
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
    "as_tokens",
    "estimate",
    "estimate_bytes",
    "find_limits",
    "find_session",
    "instructions",
    "last_compaction",
    "last_version",
    "list_compactions",
    "list_sessions",
    "messages",
    "outline",
    "overflow",
    "read_config",
    "reading",
    "seen_by_model",
    "session_in",
    "touched_since",
    "version",
    "weigh",
]
