"""Where an entry was taken from: as long as the entry is there, and no longer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from webapp.errors import InvalidInput
from webapp.memory import entries, origins, trash
from webapp.memory.origins import Origin
from webapp.store import Store
from webapp.store.layout import PUBLIC_DDL

NOW = 1_790_000_000_000
DAY = 86_400_000
LINES = Origin("ses_a", 120, 140, "0123abcd")


def save(
    store: Store, body: str = "b", origin: Origin | None = LINES, **more: Any
) -> entries.Saved:
    draft = entries.draft(scope="global", kind="fact", title="t", body=body, now=NOW, **more)
    return entries.save(store, draft, "tester", NOW, origin=origin)


def count(store: Store) -> int:
    return int(store.value("SELECT count(*) FROM origins"))


def test_an_origin_has_the_time_of_its_save(store: Store) -> None:
    saved = save(store)
    found = origins.of(store, saved.entry.id)
    assert found == Origin("ses_a", 120, 140, "0123abcd", saved.entry.updated_at)
    assert LINES.lines == "120-140" and Origin("s", 3, 3, "").lines == "3"


def test_a_rewrite_without_an_origin_leaves_it_and_is_told_apart_by_its_time(store: Store) -> None:
    first = save(store)
    again = save(store, "other", None)
    found = origins.of(store, first.entry.id)
    assert found is not None and found.at == first.entry.updated_at != again.entry.updated_at
    assert again.former is not None
    # The former text in the trash came from there, unedited.
    former = origins.of(store, again.former)
    assert former == found and trash.get(store, again.former).entry.updated_at == former.at


def test_the_same_words_again_are_no_edit(store: Store) -> None:
    save(store)
    again = save(store, "b", None)
    found = origins.of(store, again.entry.id)
    assert found is not None and found.at == again.entry.updated_at


def test_it_survives_forget_and_restore_and_an_expiry(store: Store) -> None:
    saved = save(store, expires_at=NOW + DAY)
    entries.forget(store, [saved.entry.id], "tester", NOW)
    assert origins.of(store, saved.entry.id) is not None
    trash.restore(store, saved.entry.id, "tester", now=NOW)
    assert origins.of(store, saved.entry.id) is not None
    late = entries.draft(scope="global", kind="fact", title="other", body="x", now=NOW)
    entries.save(store, late, "tester", NOW + 2 * DAY)
    assert trash.get(store, saved.entry.id).trashed_by == "expired"
    assert origins.of(store, saved.entry.id) is not None


def test_it_goes_with_a_purge_and_with_a_sweep_but_not_from_under_a_live_entry(
    store: Store,
) -> None:
    saved = save(store)
    rewritten = save(store, "other", Origin("ses_b", 1, 1, "00000000"))
    assert rewritten.former and count(store) == 2
    trash.purge(store, [rewritten.former], "tester", NOW)
    found = origins.of(store, saved.entry.id)
    assert count(store) == 1 and found is not None and found.session_id == "ses_b"
    entries.forget(store, [saved.entry.id], "tester", NOW)
    keep = entries.draft(scope="global", kind="fact", title="later", body="x", now=NOW)
    entries.save(store, keep, "tester", NOW + 29 * DAY)
    entries.save(store, keep, "tester", NOW + 32 * DAY)
    assert trash.sweep(store, 30, NOW + 32 * DAY) == 1
    assert count(store) == 0


def test_of_two_texts_of_one_id_in_the_trash_each_keeps_it(store: Store) -> None:
    saved = save(store)
    entries.forget(store, [saved.entry.id], "tester", NOW)
    with store.writing():
        store.rows(
            "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
            " VALUES (?, 'global', 'fact', 'theirs', 'b', 1, 1)", (saved.entry.id,),
        )  # fmt: skip
    entries.forget(store, [saved.entry.id], "tester", NOW)
    ids = [item.entry.id for item in trash.listing(store)]
    assert len(ids) == 2 and set(origins.of_many(store, ids)) == set(ids)


@pytest.mark.parametrize(
    ("session", "lines", "hash_"),
    [("", "1", "0" * 8), ("a\0", "1", "0" * 8), ("x" * 301, "1", "0" * 8), ("s", "0", "0" * 8),
     ("s", "5-2", "0" * 8), ("s", "1-9999", "0" * 8), ("s", "1", "0" * 7), ("s", "1", "G" * 8),
     ("s", "1", "")],
)  # fmt: skip
def test_what_is_no_origin_is_refused(session: str, lines: str, hash_: str) -> None:
    with pytest.raises(InvalidInput):
        origins.parse(session, lines, hash_)
    assert origins.parse("ses_a", "120-140", "0123abcd") == LINES


def test_the_plugins_file_gets_the_table_and_its_own_layout_stays(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db, db:
        for statement in PUBLIC_DDL:
            db.execute(statement)
        before = db.execute("SELECT name, sql FROM sqlite_master").fetchall()
    with Store(path).session() as store:
        save(store)
        after = dict(store.rows("SELECT name, sql FROM sqlite_master"))
        added = set(after) - {name for name, _ in before}
        assert "origins" in added
        for name, sql in before:
            if name != "entries":
                assert after[name] == sql
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM entries")
        db.execute("ALTER TABLE origins ADD COLUMN theirs")
    with Store(path).session() as store:
        assert store.read_only and "“origins” also has “theirs”" in store.read_only


def test_a_read_only_file_without_the_table_has_no_origins(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db, db:
        for statement in PUBLIC_DDL:
            db.execute(statement)
    path.chmod(0o400)
    with Store(path).session() as store:
        assert store.read_only and origins.of(store, "x") is None


@pytest.mark.parametrize("table", ["origins", "receipts"])
def test_a_table_that_was_dropped_while_we_run_is_made_again(tmp_path: Path, table: str) -> None:
    store = Store(tmp_path / "memory.db")
    with store.session():
        save(store)
    with closing(sqlite3.connect(store.path)) as other:
        other.execute(f"DROP TABLE {table}")
    with store.session():
        entry = save(store, "other").entry
        assert origins.of(store, entry.id) is not None
        entries.forget(store, [entry.id], "tester")
        assert store.has_table(table)


def test_a_table_of_another_program_is_read_over_and_its_difference_is_named(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "memory.db")
    with store.session():
        entry = save(store).entry
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("DROP TABLE origins")
        other.execute("CREATE TABLE origins (entry_id TEXT PRIMARY KEY, theirs TEXT)")
    with store.session():
        assert origins.of(store, entry.id) is None
        assert "“origins” also has “theirs”" in (store.read_only or "")


def test_an_origin_may_be_a_session_as_a_whole(store: Store) -> None:
    saved = save(store, origin=origins.whole("ses_a"))
    found = origins.of(store, saved.entry.id)
    assert found is not None and found.is_whole and found.at == saved.entry.updated_at
    assert not LINES.is_whole
    store.rows("UPDATE origins SET last_line = 3")
    assert origins.of(store, saved.entry.id) is None
