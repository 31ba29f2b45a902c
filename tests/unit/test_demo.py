"""`demo` shows every page full: what its data promises is in it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from webapp import secrets
from webapp import settings as setting_table
from webapp.cli import demo_data, demo_opencode, demo_sessions
from webapp.cli.demo import build
from webapp.cli.demo_parts import BILLING, DOCS, SHOP
from webapp.errors import Conflict, InvalidInput
from webapp.lines import LineRange
from webapp.memory import entries, search, trash
from webapp.memory.query import SearchQuery
from webapp.opencode import Session, list_sessions, messages, reading
from webapp.scope import GLOBAL
from webapp.settings import Settings
from webapp.store import Store, index, now_ms, receipts
from webapp.transcripts import cleanup, grep, library, window
from webapp.transcripts.pending import pending

FIXTURE = Path(__file__).parents[1] / "fixtures" / "opencode-1.18.33.db"
REMOVED = demo_sessions.SET_UP.id
DAY_MS = 86_400_000


def _settings(folder: Path) -> Settings:
    loaded = setting_table.load({}, {"HOME": str(folder), "USER": "demo"})
    return replace(loaded, opencode_db=folder / "opencode.db")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The invented data, written once for all tests here."""
    made = _settings(tmp_path_factory.mktemp("demo"))
    build(made)
    return made


@pytest.fixture
def memory(built: Settings) -> Iterator[Store]:
    with Store(built.db).session() as opened:
        yield opened


@pytest.fixture
def sessions(built: Settings) -> tuple[Session, ...]:
    found = list_sessions(built.opencode_databases())
    assert not found.problems
    return found.sessions


def _live(store: Store) -> list[entries.Entry]:
    page = search.search(store, SearchQuery(sort="newest", limit=100))
    assert page.total == len(page.hits)
    return [hit.entry for hit in page.hits]


def _parts(settings: Settings, session_id: str = "%") -> list[dict[str, Any]]:
    assert settings.opencode_db is not None
    with reading(settings.opencode_db) as connection:
        rows = connection.execute(
            "SELECT data FROM part WHERE session_id LIKE ? ORDER BY id", (session_id,)
        ).fetchall()
    return [json.loads(row[0]) for row in rows]


def _text(store: Store, settings: Settings, session_id: str) -> str:
    return library.get(store, settings, session_id).path.read_bytes().decode()


def test_entries_are_of_every_scope_kind_and_source(memory: Store) -> None:
    found = _live(memory)
    assert 45 <= len(found) <= 50
    assert {entry.scope for entry in found} == {SHOP, BILLING, DOCS, GLOBAL}
    assert {entry.kind for entry in found} == set(entries.KINDS)
    assert {entry.source for entry in found} == {"build", "plan", "reflection", "demo"}
    assert all(entry.tags for entry in found)


def test_entries_are_of_every_month(memory: Store) -> None:
    now = now_ms()
    months = Counter((now - entry.created_at) // (30 * DAY_MS) for entry in _live(memory))
    assert sorted(months) == [0, 1, 2, 3, 4]
    assert all(count >= 4 for count in months.values())
    days = {entry.created_at // DAY_MS for entry in _live(memory)}
    assert len(days) >= 35


def test_two_entries_will_expire(memory: Store) -> None:
    expiring = [entry for entry in _live(memory) if entry.expires_at is not None]
    assert len(expiring) == 2
    assert all(entries.is_live(entry) for entry in expiring)


def test_one_body_is_long_markdown(memory: Store) -> None:
    long = max(_live(memory), key=lambda entry: len(entry.body))
    assert len(long.body) > 1_500
    for piece in ("\n|---|", "\n1. ", "\n- ", "\n```sh\n"):
        assert piece in long.body


def test_titles_of_every_sort(memory: Store) -> None:
    titles = [entry.title for entry in _live(memory)]
    assert [len(title) for title in titles if title == demo_data.LONG_TITLE] == [120]
    assert max(map(len, titles)) == entries.MAX_TITLE
    assert any("<script>" in title for title in titles)
    assert sum(not title.isascii() and title == demo_data.CJK_TITLE for title in titles) == 1
    assert "Use WAL mode and a busy timeout" in titles


def test_a_two_character_word_is_found(memory: Store) -> None:
    hits = search.search(memory, SearchQuery(text="検索")).hits
    assert [hit.entry.title for hit in hits] == [demo_data.CJK_TITLE]


def test_an_entry_was_saved_twice_and_one_was_edited(memory: Store) -> None:
    changed = {e.title for e in _live(memory) if e.updated_at > e.created_at}
    assert changed == {"A due date is a day, not an instant", "Reminders go out on Wednesdays"}


def test_one_of_eight_in_the_trash_conflicts(memory: Store) -> None:
    gone = trash.listing(memory)
    assert len(gone) == 8
    live = {(entry.scope, entry.title) for entry in _live(memory)}
    twins = [item.entry for item in gone if (item.entry.scope, item.entry.title) in live]
    assert [twin.title for twin in twins] == [demo_data.CONFLICT_TITLE]
    with pytest.raises(Conflict):
        trash.restore(memory, twins[0].id, "demo")
    assert {item.trashed_by for item in gone} == {"demo", "build", "expired", "demo (rewrote)"}
    assert all(item.trashed_at > now_ms() - 29 * DAY_MS for item in gone)


def test_receipts_are_in_order(memory: Store) -> None:
    found = receipts.listing(memory)
    assert {receipt.action for receipt in found} == {
        "forget", "restore", "purge", "sweep", "cleanup",
    }  # fmt: skip
    assert [receipt.at for receipt in found] == sorted((r.at for r in found), reverse=True)


def test_the_search_indexes_are_sound(memory: Store) -> None:
    assert set(index.check(memory).values()) == {"ok"}


def test_sessions_are_of_every_project_and_month(sessions: tuple[Session, ...]) -> None:
    assert len(sessions) == len(demo_sessions.SCRIPTS) == 27
    assert {session.scope for session in sessions} == {SHOP, BILLING, DOCS}
    now = now_ms()
    assert all(session.created_at < session.updated_at <= now for session in sessions)
    assert {(now - s.created_at) // (30 * DAY_MS) for s in sessions} == {0, 1, 2, 3, 4}
    assert len({session.id for session in sessions}) == len({s.title for s in sessions}) == 27


def test_sessions_of_every_sort(built: Settings, sessions: tuple[Session, ...]) -> None:
    ids = {session.id for session in sessions}
    parents = {session.parent_id for session in sessions if session.parent_id}
    assert len(parents) == 2
    assert parents < ids
    assert sum(session.archived_at is not None for session in sessions) == 1
    reverted = [session for session in sessions if session.revert]
    assert [session.id for session in reverted] == [demo_sessions.REVERTED.id]
    assert built.opencode_db is not None
    with reading(built.opencode_db) as connection:
        newer = connection.execute("SELECT DISTINCT session_id FROM session_message").fetchall()
        whole = {
            message.id
            for message in messages(connection, demo_sessions.REVERTED.id, now_ms())
        }  # fmt: skip
    assert newer == [(demo_sessions.RATES.id,)]
    assert reverted[0].revert is not None
    assert reverted[0].revert["messageID"] in whole


def test_every_part_type_is_present(built: Settings) -> None:
    found = _parts(built)
    assert {part["type"] for part in found} == {
        "text", "reasoning", "tool", "file", "patch", "step-start", "step-finish", "compaction",
        "subtask", "agent", "retry", "snapshot",
    }  # fmt: skip
    calls = {
        (part["tool"], part["state"]["status"]) for part in found if part["type"] == "tool"
    }  # fmt: skip
    for name in ("bash", "read", "write", "edit", "grep", "glob", "todowrite", "task"):
        assert (name, "completed") in calls
    assert {status for _, status in calls} == {"completed", "error", "running"}
    assert any(part.get("synthetic") for part in found)
    assert any("compacted" in p["state"]["time"] for p in found if p["type"] == "tool")


def test_messages_of_every_sort(built: Settings) -> None:
    assert built.opencode_db is not None
    now = now_ms()
    seen: Counter[str] = Counter()
    with reading(built.opencode_db) as connection:
        for script in demo_sessions.SCRIPTS:
            found = list(messages(connection, script.id, now))
            assert [m.created_at for m in found] == sorted(m.created_at for m in found)
            for before, message in zip([None, *found], found, strict=False):
                data = message.data or {}
                seen["messages"] += 1
                seen["unfinished"] += not message.finished
                seen["error"] += "error" in data
                seen["switched"] += message.role == "model-switched"
                if data.get("summary") is True:
                    seen["summary"] += 1
                    assert before is not None
                    assert [part.type for part in before.parts] == ["compaction"]
    assert seen["summary"] == 2
    assert (seen["error"], seen["unfinished"], seen["switched"]) == (1, 1, 1)
    assert seen["messages"] > 120


def test_tasks_name_the_sessions_of_their_subagents(
    built: Settings, sessions: tuple[Session, ...]
) -> None:
    children = {session.id for session in sessions if session.parent_id}
    named = {
        part["state"]["metadata"]["sessionId"]
        for part in _parts(built)
        if part["type"] == "tool" and part["tool"] == "task"
    }
    assert named == children


def test_three_sessions_have_no_transcript(
    memory: Store, built: Settings, sessions: tuple[Session, ...]
) -> None:
    found = pending(memory, built)
    absent, behind = list(found.absent), list(found.behind)
    assert len(absent) == 3
    assert not behind
    listing = library.listing(memory, built)
    assert listing.total == len(sessions) - 3 - 1
    assert all(item.ours for item in listing.items)


def test_one_transcript_was_removed_by_a_cleanup(memory: Store, built: Settings) -> None:
    gone = library.removed(memory, REMOVED)
    assert gone is not None
    assert gone.removed_by == "demo"
    assert "untouched for" in gone.why
    receipt = next(r for r in receipts.listing(memory) if r.action == "cleanup")
    assert [item["id"] for item in receipt.detail["transcripts"]] == [REMOVED]
    listed = {item.id for item in library.transcripts(memory, built)}
    assert REMOVED not in listed


def test_a_cleanup_has_something_left_to_plan(memory: Store, built: Settings) -> None:
    planned = cleanup.plan(memory, built, cleanup.Options(retention_days=60))
    assert planned.steps
    assert planned.kept


def test_the_planted_value_is_found_in_one_long_transcript(memory: Store, built: Settings) -> None:
    result = grep.grep(memory, built, demo_sessions.PLANTED)
    assert demo_sessions.PLANTED == "PLANTED-EXACT-VALUE-7731"
    assert [file.transcript.id for file in result.files] == [demo_sessions.PRICE_LISTS.id]
    assert result.exact
    assert result.count >= 2
    assert result.files[0].transcript.lines > 2_000
    hit = next(line for line in result.files[0].lines if line.is_hit)
    seen = window.read(result.files[0].transcript, LineRange(hit.number, hit.number))
    assert demo_sessions.PLANTED in seen.rows[0].text


def test_pasted_keys_are_whole_on_disk_and_masked_when_shown(
    memory: Store, built: Settings
) -> None:
    keys = (demo_sessions.FAKE_MODEL_KEY, demo_sessions.FAKE_GIT_TOKEN)
    text = _text(memory, built, demo_sessions.KEY_PASTED.id)
    assert all(key in text for key in keys)
    item = library.get(memory, built, demo_sessions.KEY_PASTED.id)
    shown = "\n".join(row.text for row in window.read(item, LineRange(1, item.lines)).rows)
    assert not any(key in shown for key in keys)
    assert "masked" in shown


def test_no_source_file_holds_a_whole_key() -> None:
    folder = Path(demo_data.__file__).parent
    sources = [*folder.glob("demo*.py"), Path(__file__)]
    assert len(sources) > 4
    for path in sources:
        assert not secrets.find(path.read_text("utf-8")), path


def test_colours_line_ends_and_long_lines_are_verbatim(memory: Store, built: Settings) -> None:
    text = _text(memory, built, demo_sessions.FEED.id)
    assert "\x1b[31m" in text
    assert "\r\n" in text
    assert 12_000 in map(len, text.split("\n"))


def test_japanese_and_chinese_lines_are_found(memory: Store, built: Settings) -> None:
    for words in ("全文検索", "用户身份验证"):
        result = grep.grep(memory, built, words)
        assert [file.transcript.id for file in result.files] == [demo_sessions.JAPANESE.id]


def test_a_long_output_is_cut_in_its_transcript(memory: Store, built: Settings) -> None:
    assert "bytes are cut here" in _text(memory, built, demo_sessions.BANK.id)


def test_columns_are_those_of_a_real_database(built: Settings, tmp_path: Path) -> None:
    real = shutil.copyfile(FIXTURE, tmp_path / "real.db")
    assert built.opencode_db is not None
    found: list[dict[str, list[str]]] = []
    for path in (built.opencode_db, Path(real)):
        connection = sqlite3.connect(path)
        found.append({
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in demo_opencode.TABLES
        })  # fmt: skip
        connection.close()
    assert found[0] == found[1]


def test_ids_and_texts_are_the_same_in_every_run(built: Settings, tmp_path: Path) -> None:
    again = _settings(tmp_path)
    build(again)
    seen = []
    for settings in (built, again):
        with Store(settings.db).session() as store:
            rows = store.rows("SELECT id, title, body, tags, source FROM entries ORDER BY id")
            gone = [(item.entry.id, item.entry.title) for item in trash.listing(store)]
            made = store.rows("SELECT session_id, title, lines, size FROM transcripts ORDER BY 1")
        assert settings.opencode_db is not None
        with reading(settings.opencode_db) as connection:
            ids = connection.execute("SELECT id FROM message UNION SELECT id FROM part").fetchall()
        seen.append((rows, gone, made, sorted(ids)))
    assert seen[0] == seen[1]


def test_files_are_private(built: Settings) -> None:
    assert built.opencode_db is not None
    for path in (built.db, built.opencode_db):
        assert path.stat().st_mode & 0o077 == 0


def test_it_never_writes_into_files_that_are_there(tmp_path: Path) -> None:
    settings = _settings(tmp_path)
    assert settings.opencode_db is not None
    settings.opencode_db.write_bytes(b"somebody's")
    with pytest.raises(Conflict):
        build(settings)
    assert settings.opencode_db.read_bytes() == b"somebody's"
    assert not settings.db.exists()


def test_it_needs_a_place_for_the_database_of_opencode(settings: Settings) -> None:
    with pytest.raises(InvalidInput):
        build(replace(settings, opencode_db=None))
