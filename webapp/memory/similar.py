"""Entries that are close to one that is about to be saved, since two that say the same, or the
opposite, are better told before than after.

Close means one of these, in this order:

* the same title, whatever its case, accents and plurals;
* titles of which most words agree: twice the number of shared words over the number of both
  (Dice's coefficient) is at least TITLE_CLOSE, and a shared one is more than a small word. “We use
  tabs” and “We use spaces” are close (4 of 6), “Use WAL” and “Use UTC” are not (2 of 4);
* texts, title and body, that share at least TEXT_CLOSE of the pairs of neighbouring words of the
  shorter one (w-shingling, Broder 1997); a body of a few words is compared as a title is.

What the words mean is not known here: a contradiction in other words is not found. In scripts
without spaces each character is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from webapp.memory.entries import MAX_BODY, MAX_TITLE, Entry, from_values
from webapp.memory.query import clean
from webapp.memory.search import live
from webapp.scope import GLOBAL
from webapp.store import Store, now_ms

MOST = 5
TITLE_CLOSE = 0.6
TEXT_CLOSE = 0.5
FEW_PAIRS = 6
"""A text of fewer pairs says too little for them to be counted."""

SHORT_BODY = 12
"""Words up to which a body is compared as a title is."""

ASKED = 24
"""Words of a text of which it is counted in how many entries they are, the longest first."""

RARE = 2_000
"""Entries that a word may be in and still lead to candidates, and that all of them may lead to."""

CANDIDATES = 30

SAME_TITLE, TITLE, TEXT = (
    "the same title",
    "a title of nearly the same words",
    "much of the same text",
)
SAME_ENTRY = "this very title in this project: saving asks before it rewrites it"

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_RUN = re.compile(rf"[{_UNSPACED}]{{3,}}")
_SMALL = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by do does for from has have in into is it its no not of on or our than"
        " that the their then this to was we were will with you your never always",
    )
)
"""Words that say nothing of what a text is about."""


@dataclass(frozen=True, slots=True)
class Similar:
    """A close entry, why it is, and how close, from 0 to 1. `same` says that saving would rewrite it."""

    entry: Entry
    why: str
    score: float
    same: bool = False


def similar(
    store: Store, scope: str, title: str, body: str, exclude: str | None = None,
    now: int | None = None,
) -> tuple[Similar, ...]:  # fmt: skip
    """At most MOST live entries of a scope and of `global` that are close to a title and a text, the
    closest first; for a global one also entries of that very title in any project.

    `exclude` is the id of the entry that is edited. A store without our index finds none.
    """
    title, body = clean(title)[:MAX_TITLE], clean(body)[: MAX_BODY + 1_000]
    if not store.indexed or not (title.strip() or body.strip()):
        return ()
    at = now_ms() if now is None else now
    scope, title = clean(scope), " ".join(title.split())
    new = _Text(title, body)
    found = []
    for entry in _candidates(store, scope, title, body, at):
        if not entry.id or entry.id == exclude:
            continue
        if (entry.scope, entry.title) == (scope, title):
            found.append(Similar(entry, SAME_ENTRY, 1.0, True))
        elif hit := _compare(new, entry, scope):
            found.append(hit)
    found.sort(key=lambda hit: (not hit.same, -hit.score, -hit.entry.updated_at, hit.entry.id))
    return tuple(found[:MOST])


class _Text:
    """The words of a title and a body, and the pairs of neighbours among them."""

    def __init__(self, title: str, body: str) -> None:
        self.title = words(title)
        self.body = words(body)
        self.pairs = set(pairwise(self.title)) | set(pairwise(self.body))


def words(text: str) -> list[str]:
    """The words of a text, folded so that case, accents and an English plural make no difference."""
    plain = text.casefold()
    if not plain.isascii():
        plain = "".join(
            char for char in unicodedata.normalize("NFKD", plain) if not unicodedata.combining(char)
        )
        plain = unicodedata.normalize("NFC", plain).casefold()
    return [
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
        for word in _WORD.findall(plain)
    ]


def dice(one: Sequence[str], other: Sequence[str]) -> float:
    """Dice's coefficient of two texts' words; 0 where they share nothing but small words."""
    shared = Counter(one) & Counter(other)
    if not any(word not in _SMALL for word in shared):
        return 0.0
    return 2 * shared.total() / (len(one) + len(other))


def _compare(new: _Text, entry: Entry, scope: str) -> Similar | None:
    old = _Text(entry.title[:MAX_TITLE], entry.body[:MAX_BODY])
    if new.title and new.title == old.title:
        return Similar(entry, SAME_TITLE, 1.0)
    if entry.scope not in (scope, GLOBAL):
        return None
    by_title = dice(new.title, old.title)
    if by_title >= TITLE_CLOSE:
        return Similar(entry, TITLE, by_title)
    by_text = 0.0
    fewest = min(len(new.pairs), len(old.pairs))
    if fewest >= FEW_PAIRS:
        by_text = len(new.pairs & old.pairs) / fewest
    bodies = len(new.body), len(old.body)
    if by_text < TEXT_CLOSE and all(2 < count <= SHORT_BODY for count in bodies):
        by_text = dice(new.body, old.body)
        return Similar(entry, TEXT, by_text) if by_text >= TITLE_CLOSE else None
    return Similar(entry, TEXT, by_text) if by_text >= TEXT_CLOSE else None


_COLUMNS = (
    "e.id, e.scope, e.kind, e.title, e.body, e.tags, e.created_at, e.updated_at, e.expires_at,"
    " e.source"
)


def _candidates(store: Store, scope: str, title: str, body: str, at: int) -> Iterable[Entry]:
    """What the indexes find: the very title, then the entries with the rarest of the words."""
    found: dict[object, Entry] = {}
    within = live(at)
    here = "e.scope IN (?, ?)"
    rows = store.rows(
        f"SELECT {_COLUMNS} FROM entries e WHERE {here} AND e.title = ? AND {within.sql} LIMIT ?",
        (scope, GLOBAL, title, *within.params, CANDIDATES),
    )
    tokens = _tokens(title)
    everywhere = "1" if scope == GLOBAL else here
    limits = () if scope == GLOBAL else (scope, GLOBAL)
    if tokens:
        rows += store.rows(
            f"SELECT {_COLUMNS} FROM webapp_words w CROSS JOIN entries e ON e.rowid = w.rowid"
            f" WHERE webapp_words MATCH ? AND {everywhere} AND {within.sql} LIMIT ?",
            (
                "title : (" + " AND ".join(_quoted(token) for token in tokens) + ")",
                *limits, *within.params, CANDIDATES,
            ),
        )  # fmt: skip
    for index, wanted in (
        ("webapp_words", _rarest(store, "webapp_words", tokens, True)),
        ("webapp_words", _rarest(store, "webapp_words", _tokens(f"{title}\n{body}"), False)),
        ("webapp_grams", _rarest(store, "webapp_grams", _grams(title), True)),
        ("webapp_grams", _rarest(store, "webapp_grams", _grams(body), False)),
    ):
        if wanted:
            rows += store.rows(
                f"SELECT {_COLUMNS} FROM {index} w CROSS JOIN entries e ON e.rowid = w.rowid"
                f" WHERE {index} MATCH ? AND {here} AND {within.sql} ORDER BY w.rank LIMIT ?",
                (wanted, scope, GLOBAL, *within.params, CANDIDATES),
            )
    for row in rows:
        if isinstance(row[0], str):
            found.setdefault(row[0], from_values(*row))
    return found.values()


def _tokens(text: str) -> list[str]:
    """Words to look for, the longest first."""
    found = dict.fromkeys(
        word
        for word in re.findall(rf"[^\W{_UNSPACED}]+", text.lower())
        if word not in _SMALL and len(word) <= 60
    )
    return sorted(found, key=len, reverse=True)[:ASKED]


def _grams(text: str) -> list[str]:
    """Three characters of each run without spaces, spread over the text."""
    found = list(
        dict.fromkeys(run[at : at + 3] for run in _RUN.findall(text) for at in range(len(run) - 2))
    )
    return found[:: max(1, len(found) // ASKED)][:ASKED]


def _quoted(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


def _rarest(store: Store, index: str, tokens: Sequence[str], in_title: bool) -> str:
    """An FTS5 query for the entries with any of the tokens that lead to few; where all lead to many,
    for those with all of a title's. Ranking a hundred thousand would take longer than a search."""
    column = "title : " if in_title else ""
    counted = []
    for token in tokens:
        query = f"{column}{_quoted(token)}"
        count = store.value(
            f"SELECT count(*) FROM (SELECT 1 FROM {index} WHERE {index} MATCH ? LIMIT ?)",
            (query, RARE + 1),
        )
        if count:
            counted.append((count, token))
    counted.sort()
    taken: list[str] = []
    total = 0
    for count, token in counted:
        total += count
        if total > RARE:
            break
        taken.append(token)
    if taken:
        return f"{column}(" + " OR ".join(map(_quoted, taken)) + ")"
    if in_title and len(counted) > 1:
        return f"{column}(" + " AND ".join(_quoted(token) for _, token in counted) + ")"
    return ""
