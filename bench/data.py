"""Invented data of the sizes that are measured: a store, and one transcript with its index row."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from webapp.settings import Settings
from webapp.store import Store, TranscriptRow
from webapp.store.layout import PUBLIC_DDL
from webapp.transcripts.files import Mark

NOW = 1_790_000_000_000
DAY_MS = 86_400_000

COMMON = "deploy"
ALSO_COMMON = "cache"
OFTEN = "migration"
RARE = "zanzibar"
CJK = "検索"
RARE_ENTRIES = 20
"""Fewer than a page holds, so that the search also looks for parts of words."""

SESSION = "ses_bench"
NEEDLE = "the needle of the haystack"
NEEDLES = 3
ABSENT = "nosuchline"
APART = "haystack elsewhere"
"""Two words that no line holds together."""

EVERYWHERE = "ba"
LINES_A_PART = 50
PARTS_A_MESSAGE = 8
MESSAGES_A_BLOCK = 40

_SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo")
_HAN = "日本語中文記憶決定設定開発環境画面表示保存削除更新追加変更確認"
_PLACE = b"@" * len(NEEDLE)


def _words(chance: random.Random) -> Iterator[str]:
    """Words without end, few of them often and many seldom, as in a language."""
    made = {"".join(chance.choices(_SYLLABLES, k=chance.randint(2, 5))) for _ in range(9_000)}
    vocabulary = sorted(made)
    chance.shuffle(vocabulary)
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(vocabulary))))
    while True:
        yield from chance.choices(vocabulary, cum_weights=weights, k=50_000)


def _entries(count: int) -> Iterator[tuple[object, ...]]:
    chance = random.Random(7)
    words = _words(chance)
    kinds = ("decision", "fact", "preference", "gotcha", "lesson")
    # How often a word is put into a body: every so many entries, from the given one on.
    every = {COMMON: (5, 1), ALSO_COMMON: (3, 0), OFTEN: (10, 3)}
    every |= {RARE: (max(2, count // RARE_ENTRIES), 1)}
    for number in range(count):
        body = list(itertools.islice(words, chance.randint(25, 95)))
        for word, (step, first) in every.items():
            if number % step == first or (word is COMMON and number % step == 0):
                body.insert(chance.randrange(len(body)), word)
        if number % 50 == 7:
            before, after = chance.choices(_HAN, k=12), chance.choices(_HAN, k=9)
            body.insert(3, "".join((*before, CJK, *after)))
        title = " ".join(itertools.islice(words, chance.randint(3, 8)))[:100]
        tags = json.dumps(list(itertools.islice(words, chance.randint(0, 3))))
        at = NOW - chance.randrange(400 * DAY_MS)
        scope = "global" if number % 12 == 0 else f"/home/demo/project-{chance.randrange(20)}"
        yield (
            str(uuid.UUID(int=chance.getrandbits(128), version=4)), scope, chance.choice(kinds),
            f"{title} {number}", " ".join(body), tags, at, at,
            NOW + 3650 * DAY_MS if number % 40 == 0 else None,
        )  # fmt: skip


def make_store(path: Path, count: int) -> None:
    """A memory.db as the plugin leaves it: its layout, and nothing of ours."""
    path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA synchronous = off")
        for statement in PUBLIC_DDL:
            db.execute(statement)
        with db:
            db.executemany(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _entries(count)
            )
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.chmod(0o600)


@dataclass(frozen=True, slots=True)
class Text:
    """A transcript that was made: its file, and how many lines and bytes it has."""

    path: Path
    lines: int
    size: int


def _block() -> tuple[bytes, list[tuple[int, str, str]]]:
    """Some messages with their parts, and where each begins: line, kind, label. One of the lines
    is `_PLACE`, where a needle may be put."""
    chance = random.Random(11)
    words = _words(chance)
    lines: list[str] = []
    marks: list[tuple[int, str, str]] = []
    for message in range(MESSAGES_A_BLOCK):
        role = "assistant" if message % 4 else "user"
        lines.append("")
        marks.append((len(lines), f"message:{role}", " ".join(itertools.islice(words, 6))))
        lines.append(f"## {role} · build · provider/model · 2026-11-30 10:35:02Z · msg_{message}")
        for part in range(PARTS_A_MESSAGE):
            kind = ("text", "tool", "reasoning", "tool")[part % 4]
            marks.append((len(lines), kind, next(words)))
            lines.append(f"### {kind} {EVERYWHERE} · prt_{message}_{part}")
            for _ in range(LINES_A_PART - 1):
                text = " ".join(itertools.islice(words, chance.randint(4, 20)))
                place = f"/home/demo/project/src/{next(words)}/{next(words)}.py:120: "
                lines.append(f"{place if chance.random() < 0.3 else ''}{EVERYWHERE} {text}")
    lines[len(lines) // 3] = f"{EVERYWHERE} {_PLACE.decode()}"
    return ("\n".join(lines) + "\n").encode(), marks


def make_transcript(settings: Settings, size: int) -> Text:
    """A transcript of about `size` bytes, a hundred a line, as an export would leave it: with its
    marks and its row in the index."""
    folder = settings.transcripts_dir / "project"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    path = folder / f"{SESSION}.md"
    block, marks = _block()
    a_block = block.count(b"\n")
    blocks = max(NEEDLES, size // len(block))
    needles = {blocks * number // NEEDLES for number in range(NEEDLES)}
    shape = b"".join(
        b"%d\t" + f"{kind}\tprt_{at}\t0123456789abcdef\t{label}\n".encode()
        for at, kind, label in marks
    )
    lines = 1
    with path.open("wb") as text, path.with_suffix(".marks").open("wb") as beside:
        text.write(b"# Invented\n")
        beside.write(Mark(1, "header", SESSION, "0", "Invented").dump().encode())
        for number in range(blocks):
            text.write(block.replace(_PLACE, NEEDLE.encode()) if number in needles else block)
            beside.write(shape % tuple(lines + 1 + at for at, _, _ in marks))
            lines += a_block
        total = text.tell()
        beside.write(Mark(lines, "end", "", str(total), "").dump().encode())
        marks_size = beside.tell()
    with Store(settings.db).session() as store, store.writing():
        store.run(TranscriptRow.insert(
            session_id=SESSION, scope="/home/demo/project-1", path=f"project/{path.name}",
            title="Invented", source_db="", created_at=NOW, updated_at=NOW, exported_at=NOW,
            messages=blocks * MESSAGES_A_BLOCK, lines=lines, size=total, marks_size=marks_size,
        ))  # fmt: skip
    return Text(path, lines, total)


def make_library(settings: Settings, size: int, files: int) -> int:
    """A library of about `size` bytes in `files` transcripts of twenty projects, most small and a
    few large, as exports would leave it. Returns its bytes."""
    block, _ = _block()
    lines = block.split(b"\n")
    chance = random.Random(13)
    weights = [chance.paretovariate(1.2) for _ in range(files)]
    whole = sum(weights)
    rows, total = [], 0
    for number, weight in enumerate(weights):
        session, project = f"ses_{number:06}", chance.randrange(20)
        path = settings.transcripts_dir / f"project-{project}" / f"{session}.md"
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        wanted = max(2_000, int(size * weight / whole))
        head = f"# Talk {number} about {' '.join(chance.choices(_SYLLABLES, k=4))}\n".encode()
        with path.open("wb") as text:
            text.write(head)
            count = 1
            while wanted >= len(block):
                text.write(block)
                wanted -= len(block)
                count += len(lines) - 1
            start = chance.randrange(len(lines) // 2)
            rest = lines[start : start + max(1, wanted // 100)]
            if number % (files // 20 or 1) == 0:
                rest.append(NEEDLE.encode())
            text.write(b"\n".join(rest) + b"\n")
            count += len(rest)
            length = text.tell()
        total += length
        rows.append({
            "session_id": session, "scope": f"/home/demo/project-{project}",
            "path": f"project-{project}/{session}.md", "title": head[2:-1].decode(),
            "source_db": "", "created_at": NOW - number * 60_000,
            "updated_at": NOW - number * 60_000, "exported_at": NOW, "messages": 1,
            "lines": count, "size": length, "marks_size": 0,
        })  # fmt: skip
    with Store(settings.db).session() as store, store.writing():
        for start in range(0, files, 500):
            store.run(TranscriptRow.insert_many(rows[start : start + 500]))
    return total


_OPENCODE = (
    "CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL)",
    "CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text,"
    " title text, version text, revert text, time_created integer, time_updated integer,"
    " time_archived integer)",
    "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
    " time_updated integer, data text)",
    "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text,"
    " time_created integer, time_updated integer, data text)",
    "CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id)",
    "CREATE INDEX part_message_id_id_idx ON part (message_id, id)",
    "CREATE INDEX part_session_idx ON part (session_id)",
)


def make_session(path: Path, parts: int) -> None:
    """A database of OpenCode's with one session of so many parts, most of them tool calls."""
    chance = random.Random(17)
    words = _words(chance)

    def text(low: int, high: int) -> str:
        return " ".join(itertools.islice(words, chance.randint(low, high)))

    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = wal")
        for statement in _OPENCODE:
            db.execute(statement)
        db.execute("INSERT INTO project VALUES ('p', '/home/demo/project-1')")
        db.execute(
            "INSERT INTO session VALUES (?, 'p', NULL, '/home/demo/project-1', 'A long talk',"
            " '1.18.33', NULL, ?, ?, NULL)", (SESSION, NOW, NOW + parts),
        )  # fmt: skip
        for number in range(parts // PARTS_A_MESSAGE):
            message, at = f"msg_{number:08}", NOW + number * PARTS_A_MESSAGE
            is_user = number % 10 == 0
            data = {"role": "user", "time": {"created": at}, "agent": "build"} if is_user else {
                "role": "assistant", "time": {"created": at, "completed": at + 5}, "agent": "build",
                "modelID": "model", "providerID": "provider", "cost": 0.01,
                "tokens": {"input": 10, "output": 20, "reasoning": 0, "cache": {"read": 5, "write": 0}},
            }  # fmt: skip
            db.execute(
                "INSERT INTO message VALUES (?, ?, ?, ?, ?)",
                (message, SESSION, at, at, json.dumps(data)),
            )
            for part in range(PARTS_A_MESSAGE):
                body: dict[str, object]
                if is_user or part == 0:
                    body = {"type": "text", "text": text(20, 80)}
                elif part == 1:
                    body = {
                        "type": "reasoning",
                        "text": text(20, 60),
                        "time": {"start": 1, "end": 9},
                    }
                else:
                    output = "\n".join(text(4, 14) for _ in range(chance.randint(2, 30)))
                    body = {
                        "type": "tool", "tool": "bash", "callID": f"call_{number}_{part}",
                        "state": {
                            "status": "completed", "title": text(2, 5), "output": output,
                            "input": {"command": text(3, 9), "description": text(3, 6)},
                            "metadata": {"exit": 0}, "time": {"start": at, "end": at + 3},
                        },
                    }  # fmt: skip
                db.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)",
                    (f"prt_{number:08}_{part}", message, SESSION, at, at, json.dumps(body)),
                )


PARTS_A_SESSION = 100
_MESSAGES = 10


def session_name(number: int) -> str:
    """The id of a session among many."""
    return f"ses_{number:08}"


def make_sessions(path: Path, count: int) -> None:
    """A database of OpenCode's with so many sessions of PARTS_A_SESSION short parts each, in twenty
    projects; every fortieth has an error."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA synchronous = off")
        for statement in (
            *_OPENCODE, "CREATE INDEX session_project_idx ON session (project_id)",
            "CREATE INDEX session_parent_idx ON session (parent_id)",
        ):  # fmt: skip
            db.execute(statement)
        projects = ((f"p{n}", f"/home/demo/project-{n}") for n in range(20))
        db.executemany("INSERT INTO project VALUES (?, ?)", projects)
        db.executemany(
            "INSERT INTO session VALUES (?, ?, NULL, ?, ?, '1.18.33', NULL, ?, ?, NULL)",
            (
                (session_name(n), f"p{n % 20}", f"/home/demo/project-{n % 20}", f"A talk {n}",
                 NOW + n * 1000, NOW + n * 1000 + 999)
                for n in range(count)
            ),
        )  # fmt: skip
        db.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?)", _short_messages(count))
        db.executemany("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", _short_parts(count))


def _short_messages(count: int) -> Iterator[tuple[object, ...]]:
    for number in range(count):
        for place in range(_MESSAGES):
            at = NOW + number * 1000 + place
            role = "user" if place % 2 == 0 else "assistant"
            facts: dict[str, object] = {
                "role": role, "time": {"created": at, "completed": at}, "agent": "build",
                "modelID": "model", "providerID": "provider", "cost": 0.01,
                "tokens": {"input": 900, "output": 20, "cache": {"read": 5, "write": 0}},
            }  # fmt: skip
            if number % 40 == 0 and place == 5:
                facts["error"] = {"name": "APIError", "data": {"message": "It failed."}}
            yield f"msg_{number:08}_{place}", session_name(number), at, at, json.dumps(facts)


def _short_parts(count: int) -> Iterator[tuple[object, ...]]:
    data = json.dumps({"type": "text", "text": "A short text that stands for what was said."})
    for number in range(count):
        for place in range(PARTS_A_SESSION):
            message = place * _MESSAGES // PARTS_A_SESSION
            at = NOW + number * 1000 + message
            yield (f"prt_{number:08}_{place:03}", f"msg_{number:08}_{message}", session_name(number),
                   at, at, data)  # fmt: skip
