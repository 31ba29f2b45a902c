"""One value for a search, shared by every surface, and the parser of what a person typed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from webapp.errors import InvalidInput

MAX_TEXT = 1_000
MAX_TERMS = 24
SORTS = {"best": "best match", "newest": "newest", "oldest": "oldest", "title": "title"}

_PIECE = re.compile(
    r'(?:(?P<name>kind|tag|scope|source):(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]\S*)))'
    r'|"(?P<phrase>[^"]*)"|(?P<word>[^\s"]+)',
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for, and where. `scope` None means every scope; a scope includes `global`.

    `since` and `until` bound `updated_at` in epoch milliseconds, `until` excluded.
    """

    text: str = ""
    scope: str | None = None
    kind: str | None = None
    tag: str | None = None
    source: str | None = None
    since: int | None = None
    until: int | None = None
    sort: str = "best"
    limit: int = 20
    offset: int = 0

    @property
    def is_filtered(self) -> bool:
        """Whether anything narrows the list besides its order and page."""
        return self != SearchQuery(sort=self.sort, limit=self.limit, offset=self.offset)

    @property
    def is_narrowed(self) -> bool:
        """Whether a filter narrows the list, apart from the words."""
        return replace(self, text="").is_filtered

    def with_page(self, offset: int) -> SearchQuery:
        """The same search, from another place on."""
        return replace(self, offset=offset)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The terms of a text, and the query with its `kind:`-like filters taken out of the text."""

    query: SearchQuery
    terms: tuple[str, ...]


def clean(text: str) -> str:
    """Text as SQLite and a page can hold it: no NUL, no lone surrogates."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def parse(query: SearchQuery) -> Parsed:
    """Splits the text into words, `"phrases"` and filters. Every text is legal."""
    terms: list[str] = []
    filters: dict[str, Any] = {}
    for match in _PIECE.finditer(clean(query.text)[:MAX_TEXT]):
        if match["name"]:
            value = match["quoted"] if match["quoted"] is not None else match["bare"]
            if value.strip():
                filters[match["name"].lower()] = value.strip()
            continue
        term = (match["phrase"] if match["phrase"] is not None else match["word"]).strip()
        if term and term not in terms:
            terms.append(term)
    return Parsed(replace(query, **filters), tuple(terms[:MAX_TERMS]))


def parse_day(text: str, field: str) -> int | None:
    """`2026-11-30` as epoch milliseconds of its start in UTC, None for an empty text."""
    if not text.strip():
        return None
    try:
        day = date.fromisoformat(text.strip())
        return int(datetime.combine(day, time(), UTC).timestamp() * 1000)
    except ValueError as error:
        raise InvalidInput(f"“{text[:40]}” is not a date such as 2026-11-30.", field) from error


def parse_expiry(text: str, now: int) -> int | None:
    """When an entry expires: `30d`, `12h`, `2w`, a date or an ISO time; empty means never.

    Returns epoch milliseconds. A time without a zone is UTC. Raises InvalidInput for anything else
    and for a time that has passed.
    """
    text = text.strip()
    if not text:
        return None
    match = re.fullmatch(r"(\d{1,5})\s*([hdw])", text, re.ASCII)
    if match:
        unit = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}[match[2]]
        moment = now + int(match[1]) * int(unit.total_seconds() * 1000)
    else:
        try:
            parsed = datetime.fromisoformat(text)
            parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
            moment = int(parsed.timestamp() * 1000)
        except (ValueError, OverflowError) as error:
            raise InvalidInput(
                f"“{text[:40]}” is no time to expire. Write 12h, 30d, 2w, or a date such as "
                "2027-01-31.",
                "expires",
            ) from error
    if moment <= now:
        raise InvalidInput(f"“{text[:40]}” has already passed; an entry cannot expire then.",
                           "expires")  # fmt: skip
    return moment
