"""The ten tools as they are offered: names, arguments, defaults and caps are those of DESIGN.md,
section 8. What they do is in work.py, which is imported when the first is called: an agent waits for
this list, and the store and the transcripts take a tenth of a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webapp.mcp.arguments import BOOLEAN, INTEGER, STRING, STRINGS, WHEN, Argument, read
from webapp.settings import Settings

if TYPE_CHECKING:
    from webapp.mcp.work import Answer, Desk

MAX_BYTES = 64_000
"""The most that a tool answers with, whatever is asked."""

MAX_LINES = 2_000
MAX_CONTEXT = 20
MAX_ENTRIES = 50
KINDS = "decision, fact, preference, gotcha, lesson"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is offered. `writes` says that it changes something, `destroys` that what it
    takes away may be gone for good one day; `retrieval` that it reads transcripts."""

    name: str
    description: str
    arguments: tuple[Argument, ...] = ()
    writes: bool = False
    destroys: bool = False
    retrieval: bool = False


def call(tool: Tool, desk: Desk, given: Mapping[str, Any] | None) -> Answer:
    """Runs a tool on what a model gave. Raises MemoryAppError with a sentence."""
    from webapp.mcp import work

    return work.WORK[tool.name](desk, read(tool.arguments, given))


def offered(settings: Settings) -> tuple[Tool, ...]:
    """The tools that these settings offer: without `retrieval` not those of the transcripts."""
    return tuple(tool for tool in TOOLS if settings.retrieval or not tool.retrieval)


_SCOPE = Argument(
    "scope", STRING, "The absolute path of a project, or global. Left out: this project."
)
_SESSION = "The id of a session, such as ses_…; it is exported first if need be."


def _number(name: str, description: str, default: int, least: int, most: int) -> Argument:
    return Argument(name, INTEGER, description, default=default, least=least, most=most)


TOOLS = (
    Tool(
        "save",
        "Keep something that should outlive this session: a decision and its reason, a fact, a"
        " preference, a gotcha, a lesson. One thing an entry; a title that says it. An entry of the same"
        " title in the same project is rewritten (its former text goes to the trash). Never save a"
        " credential: say where it is kept instead.",
        (
            Argument(
                "kind",
                STRING,
                "One of decision, fact, preference, gotcha, lesson, compaction, or a word of your own.",
                True,
            ),
            Argument("title", STRING, "1 to 120 characters that say the thing itself.", True),
            Argument(
                "body", STRING, "Up to 8,000 characters: what, why, and how it is known.", True
            ),
            Argument("scope", STRING, "Left out: this project. global: for every project."),
            Argument("tags", STRINGS, "At most 12 short tags."),
            Argument(
                "expires_at", WHEN, "When it stops to hold: epoch milliseconds, or 30d, or a date."
            ),
        ),
        writes=True,
    ),
    Tool(
        "search",
        "Search what is remembered of this project and global. Entries that hold every word come first."
        ' "a phrase", kind:decision, tag:db and source:name narrow it. Do this before you guess or ask.',
        (
            Argument("query", STRING, "Words that the entry holds.", True),
            _SCOPE,
            _number("limit", "Most entries.", 10, 1, MAX_ENTRIES),
        ),
    ),
    Tool(
        "list",
        "The newest entries of this project and global.",
        (_SCOPE, _number("limit", "Most entries.", 20, 1, MAX_ENTRIES)),
    ),
    Tool(
        "forget",
        "Move an entry to the trash by its id, or all entries of this project and global that hold every"
        " word of a query (at most 50). They can be restored for 30 days.",
        (
            Argument("id", STRING, "The id of an entry."),
            Argument("query", STRING, "Words; every entry that holds them all is forgotten."),
        ),
        writes=True,
        destroys=True,
    ),
    Tool("stats", "How much is remembered: counts by kind, size, age.", (_SCOPE,)),
    Tool(
        "restore",
        "Put a forgotten entry back where it was.",
        (Argument("id", STRING, "The id that forget or save told.", True),),
        writes=True,
    ),
    Tool(
        "session_search",
        "Find exact lines in the full records of earlier sessions of this project (also what a"
        " compaction took out of view): the text as it is, whatever its case. Answers with line numbers"
        " for session_read. Credentials are masked.",
        (
            Argument("query", STRING, "The text that a line holds.", True),
            Argument("sessionID", STRING, f"Only this session. {_SESSION}"),
            Argument(
                "contextLines",
                INTEGER,
                "Lines around each hit.",
                default=2,
                least=0,
                most=MAX_CONTEXT,
            ),
            Argument(
                "maxBytes",
                INTEGER,
                "Most bytes of the answer.",
                default=8_000,
                least=500,
                most=MAX_BYTES,
            ),
            Argument("all", BOOLEAN, "Every project, not only this one.", default=False),
        ),
        retrieval=True,
    ),
    Tool(
        "session_read",
        "Read numbered lines of the full record of a session, word for word. Line numbers never change.",
        (
            Argument("sessionID", STRING, _SESSION, True),
            Argument("offset", INTEGER, "The first line.", default=1, least=1),
            _number("limit", "Most lines.", 200, 1, MAX_LINES),
            Argument(
                "maxBytes",
                INTEGER,
                "Most bytes of the answer.",
                default=16_000,
                least=500,
                most=MAX_BYTES,
            ),
        ),
        retrieval=True,
    ),
    Tool(
        "transcript_list",
        "The full records of sessions that are kept, the last touched first, with their sizes.",
        (Argument("all", BOOLEAN, "Every project, not only this one.", default=False), _SCOPE),
    ),
    Tool(
        "transcript_cleanup",
        "Show which full records a cleanup would remove. It removes nothing until you call it again with"
        " the same arguments and the fingerprint of that plan in apply; ask the person first.",
        (
            Argument("dryRun", BOOLEAN, "Only show the plan.", default=True),
            Argument("apply", STRING, "The fingerprint of the plan to carry out."),
            Argument("allScopes", BOOLEAN, "Every project, not only this one.", default=False),
            Argument("sessionIDs", STRINGS, "Sessions to remove by name."),
            Argument(
                "retentionDays", INTEGER, "Remove what was untouched for longer; 0 is off.", least=0
            ),
            Argument(
                "keepRecent", INTEGER, "The newest of each project that always stay.", least=0
            ),
            Argument("maxSessions", INTEGER, "The most that a project keeps; 0 is off.", least=0),
        ),
        writes=True,
        destroys=True,
    ),
)
