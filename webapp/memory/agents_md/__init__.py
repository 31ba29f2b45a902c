"""AGENTS.md: where a text may go, the exact change, the write on confirmation, and taking it back.

A person confirms a change that was shown byte for byte: `propose` makes it with a fingerprint, `write`
applies that one or refuses with a new one.
"""

from webapp.memory.agents_md.files import MAX_FILE
from webapp.memory.agents_md.proposal import (
    END,
    MAX_TEXT,
    Heading,
    Proposal,
    check,
    headings,
    propose,
)
from webapp.memory.agents_md.targets import NEWER, Target, targets
from webapp.memory.agents_md.writing import ACTION, Change, change_of, take_back, write

__all__ = [
    "ACTION",
    "END",
    "MAX_FILE",
    "MAX_TEXT",
    "NEWER",
    "Change",
    "Heading",
    "Proposal",
    "Target",
    "change_of",
    "check",
    "headings",
    "propose",
    "take_back",
    "targets",
    "write",
]
