"""Saving lessons: what is new, never over what somebody else wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webapp.errors import Conflict, InvalidInput, SecretRefused
from webapp.memory import entries, origins
from webapp.memory.entries import MAX_TAG, MAX_TAGS, MAX_TITLE
from webapp.memory.reflect.lessons import Lesson
from webapp.memory.similar import similar
from webapp.opencode import Session
from webapp.store import Store

KIND = "lesson"
SOURCE = "reflection"


@dataclass(frozen=True, slots=True)
class Kept:
    """How many lessons were saved; skipped, as there is such an entry or they cannot be entries; and
    refused, as they hold a credential."""

    saved: int = 0
    skipped: int = 0
    refused: int = 0


def keep(store: Store, session: Session, lessons: Sequence[Lesson], now: int) -> Kept:
    """Saves the lessons of a session in its project. An earlier lesson of the same title is rewritten,
    unless somebody else wrote or changed it."""
    saved = skipped = refused = 0
    for lesson in lessons:
        try:
            done = _save(store, session, lesson, now)
        except SecretRefused:
            refused += 1
        except (InvalidInput, Conflict):
            skipped += 1
        else:
            saved += done
            skipped += not done
    return Kept(saved, skipped, refused)


def _save(store: Store, session: Session, lesson: Lesson, now: int) -> bool:
    """Whether a lesson was saved; one that is close to another entry is not."""
    title = " ".join(lesson.title.split())
    if len(title) > MAX_TITLE:
        title = title[: MAX_TITLE - 1].rstrip() + "…"
    tags = [tag for tag in lesson.tags if len(tag) <= MAX_TAG][:MAX_TAGS]
    draft = entries.draft(
        scope=session.scope, kind=KIND, title=title, body=lesson.body, tags=tags, now=now
    )
    close = similar(store, draft.scope, draft.title, draft.body, now=now)
    if any(not hit.same for hit in close):
        return False
    entries.save(store, draft, SOURCE, now, only_own=True, origin=origins.whole(session.id))
    return True
