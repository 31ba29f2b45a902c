"""What is promoted: lines of a transcript, a message, or an entry, masked and ready for a form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from webapp import secrets
from webapp.errors import InvalidInput, MemoryAppError, NotFound
from webapp.lines import MAX_WINDOW, LineRange, fingerprint, parse_range
from webapp.memory import entries, origins
from webapp.memory.entries import MAX_BODY, MAX_TITLE
from webapp.memory.origins import Origin
from webapp.opencode import Session, find_session
from webapp.scope import GLOBAL, MAX_SCOPE
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import files, library, message, window
from webapp.transcripts.library import Transcript

_COLOUR = re.compile("\x1b\\[[0-9;]{0,30}m")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OWN_HEADING = re.compile(r"### (?:text|step-start|step-finish|snapshot)\b.*")
_LEAD = re.compile(r"^(?:\s|>|#{1,6}(?=\s)|[*+-](?=\s)|\d{1,4}[.)](?=\s)|\[[ xX]\](?=\s))+")
_LINK = re.compile(r"!?\[([^\]\n]{0,400})\]\([^)\n]{0,2000}\)")
# Pairs around words; what stands inside or around an identifier (`__init__`, `ghp_…`, `2*3`) is none.
_EMPHASIS = re.compile(
    r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]{0,400}?[^\s*])\1(?![\w*])"
    r"|(?<!\w)(_{1,3})(?=[^\s_])([^_\n]{0,400}?\s[^_\n]{0,400}?[^\s_])\3(?!\w)"
    r"|(~~)(?=\S)([^~\n]{0,400}?\S)~~"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that was taken: `what` of `source`, the title of a transcript or of the entry.

    `rows` are its lines as they are shown, with their numbers (none for an entry); `text` is without
    the headings of messages and of text, and says at its end what it leaves out, as `cut` does;
    `address` are the arguments that name it again. `session` is None where OpenCode has it no more.
    """

    what: str
    source: str
    rows: tuple[tuple[int, str], ...]
    text: str
    title: str
    scope: str
    kind: str
    tags: tuple[str, ...]
    origin: Origin | None
    entry: entries.Entry | None
    session: Session | None
    address: Mapping[str, str]

    @property
    def cut(self) -> str:
        """What the text leaves out, in the words of its end; empty if it is whole."""
        found = re.search(r"(?:\n\n\[[^\n]* left out\])+$", self.text)
        return " ".join(found[0].split("\n\n")).strip() if found else ""


def take(store: Store, settings: Settings, args: Mapping[str, str]) -> Passage:
    """The passage that an address names: `session` with `lines` or `message`, or `entry`.

    A transcript is exported on demand. Raises InvalidInput and NotFound.
    """
    if args.get("entry"):
        return _of_entry(store, args["entry"])
    session_id = args.get("session", "")
    if not session_id or not (args.get("lines") or args.get("message")):
        raise InvalidInput(
            "Nothing is named to promote. Select lines of a transcript first, or choose a message or an"
            " entry."
        )
    wanted = None if args.get("message") else parse_range(args["lines"], MAX_WINDOW)
    opened = library.open_transcript(store, settings, session_id)
    item = opened.transcript
    if wanted is None:
        return _of_message(settings, item, args["message"], opened.problems)
    if wanted.first > item.lines:
        raise NotFound(
            f"The transcript has {item.lines:,} lines; there is no line {wanted.first:,} to promote."
        )
    span = LineRange(wanted.first, min(wanted.last, item.lines))
    seen = window.read(item, span)
    text = _joined(seen.rows, item.ours)
    return _of_lines(settings, item, seen, text, "", {"session": item.id, "lines": str(span)})


def _of_entry(store: Store, entry_id: str) -> Passage:
    entry = entries.get(store, entry_id)
    body = secrets.mask(plain(entry.body))
    title = secrets.mask(" ".join(plain(entry.title).split()))[:MAX_TITLE]
    return Passage(
        "an entry", title, (), fitted(body, MAX_BODY, "the entry"), title,
        # For another scope: global, and of a global one the person says which.
        GLOBAL if entry.scope != GLOBAL else "", secrets.mask(entry.kind),
        tuple(map(secrets.mask, entry.tags)), origins.of(store, entry.id),
        entry, None, {"entry": entry.id},
    )  # fmt: skip


def _of_message(
    settings: Settings, item: Transcript, message_id: str, problems: Iterable[str]
) -> Passage:
    line = files.lines_of(item.path, [message_id]).get(message_id) if item.ours else None
    found = message.read(item, line) if line is not None else None
    if found is None:
        raise NotFound(
            " ".join(
                [
                    f"The message {message_id[:60]} is not in the transcript. One that OpenCode is still"
                    " writing comes when it is finished.",
                    *problems,
                ]
            )
        )
    span = LineRange(found.first, min(found.last, found.first + MAX_WINDOW - 1))
    seen = window.read(item, span)
    texts = [piece.text for piece in found.pieces if piece.text and piece.text.strip()]
    text = "\n\n".join(text.strip("\n") for text in texts) or _joined(seen.rows, item.ours)
    left = [f"{count:,} bytes of line {number:,}" for p in found.pieces for number, count in p.cuts]
    if found.rest:
        left.append(f"lines {found.rest:,}-{found.last:,}")
    return _of_lines(
        settings, item, seen, text, " and ".join(left), {"session": item.id, "message": message_id}
    )


def _of_lines(
    settings: Settings, item: Transcript, seen: window.Window, text: str, left: str,
    address: Mapping[str, str],
) -> Passage:  # fmt: skip
    first, last = seen.first, seen.last
    origin = Origin(item.id, first, last, fingerprint(row.hash for row in seen.rows))
    name = f"line {first:,}" if first == last else f"lines {first:,}-{last:,}"
    cut = [f"{row.cut:,} bytes of line {row.number:,}" for row in seen.rows if row.cut]
    left = left or (" and ".join([*cut[:3], "of other lines"] if len(cut) > 3 else cut))
    text = plain(text).strip("\n")
    session: Session | None = None
    try:
        session, _ = find_session(settings.opencode_databases(), item.id)
    except MemoryAppError:
        session = None
    scope = session.scope if session is not None else item.scope
    scope = scope if scope.startswith("/") and len(scope) <= MAX_SCOPE else GLOBAL
    return Passage(
        name, item.title, tuple((row.number, row.text) for row in seen.rows),
        fitted(text, MAX_BODY, name, left),
        title_of(_said(seen.rows)) or title_of(text), scope, "fact", (), origin, None, session, address,
    )  # fmt: skip


def _said(rows: Iterable[window.Row]) -> str:
    """What somebody said among the lines, without the record's own; else whatever is no heading."""
    texts = [row for row in rows if not row.heading and row.kind != "header"]
    said = [row for row in texts if row.kind in ("user", "assistant")]
    return plain("\n".join(row.text for row in said or texts))


def _joined(rows: Iterable[window.Row], ours: bool) -> str:
    """The lines without the headings that the record puts between them."""
    kept = [
        row.text
        for row in rows
        if not (
            ours and (row.heading == 2 or (row.heading == 3 and _OWN_HEADING.fullmatch(row.text)))
        )
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept))


def plain(text: str) -> str:
    """A text as an entry can hold it: the colours of a terminal go, other control characters and half
    characters are named."""
    text = _COLOUR.sub("", text.replace("\r\n", "\n"))
    text = text.encode("utf-8", "replace").decode()
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def fitted(text: str, most: int, what: str, left: str = "") -> str:
    """A text of at most `most` characters that says at its end how much of it was left out."""
    ends = [f"{left} left out"] if left else []
    if len(text) + len(left) + 20 > most:
        room = most - len(left) - 200
        ends.insert(0, f"{len(text) - room:,} more characters of {what} left out")
        text = text[:room].rstrip()
    return text + "".join(f"\n\n[{end}]" for end in ends)


def _inside(match: re.Match[str]) -> str:
    return next(found for found in (match[2], match[4], match[6]) if found is not None)


def title_of(text: str) -> str:
    """The first line that says something, without its markup, in at most MAX_TITLE characters; one
    inside a code block only where there is no other."""
    lines = [line[:2_000] for line in text.split("\n")[:400]]
    fenced, prose = False, []
    for line in lines:
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            prose.append(line)
    for line in (*prose, *lines):
        said = _LINK.sub(r"\1", _LEAD.sub("", line)).replace("`", "")
        said = " ".join(_EMPHASIS.sub(_inside, said).split())
        if sum(char.isalnum() for char in said) < 2:
            continue
        if len(said) <= MAX_TITLE:
            return said
        cut = said[: MAX_TITLE - 1]
        return (cut[: cut.rfind(" ")] if " " in cut[60:] else cut) + "…"
    return ""
