"""OpenCode's database: opened read-only, left as it was, and never a reason to fall over."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from webapp.errors import Busy, MemoryAppError, Unreadable
from webapp.opencode import find_session, list_sessions, messages, reading
from webapp.opencode.database import BRIEF_S, FORBIDDEN, Patience, share_patience
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.export import export_many

if TYPE_CHECKING:
    from tests.conftest import Talk

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def nothing(path: Path) -> None:
    """Leaves the path empty."""


def folder(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.touch()


def prose(path: Path) -> None:
    path.write_text("This is no database.\n" * 100)


def cut_off(path: Path) -> None:
    whole = make_database(path, "session (id TEXT, time_created INTEGER, time_updated INTEGER)")
    data = whole.read_bytes()
    path.write_bytes(data[: len(data) // 2 + 17])


def scrambled(path: Path) -> None:
    whole = make_database(path, "session (id TEXT, time_created INTEGER, time_updated INTEGER)")
    data = bytearray(whole.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def no_session_table(path: Path) -> None:
    make_database(path, "unrelated (id TEXT)")


def no_times(path: Path) -> None:
    make_database(path, "session (id TEXT, title TEXT)")


def make_database(path: Path, table: str) -> Path:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE {table}")
        name = table.split()[0]
        connection.executemany(
            f"INSERT INTO {name} (id) VALUES (?)", [(f"row {n} " + "x" * 500,) for n in range(200)]
        )
    return path


UNREADABLE = (nothing, folder, empty, prose, cut_off, scrambled, no_session_table, no_times)


@pytest.mark.parametrize("spoil", UNREADABLE)
def test_an_unreadable_database_is_one_sentence_and_the_others_stay_readable(
    spoil: Callable[[Path], None], tmp_path: Path, talk: Talk
) -> None:
    bad = tmp_path / "bad.db"
    spoil(bad)

    found = list_sessions([bad, talk.db])

    assert [session.id for session in found.sessions] == [talk.id]
    assert len(found.problems) == 1
    problem = found.problems[0]
    assert str(bad) in problem and "\n" not in problem and problem.endswith(".")
    assert "Traceback" not in problem and "sqlite3." not in problem

    session, problems = find_session([bad, talk.db], talk.id)
    assert session is not None and session.id == talk.id
    assert problems == [problem]


@pytest.mark.parametrize("spoil", UNREADABLE)
def test_reading_an_unreadable_database_raises_an_error_for_people(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.db"
    spoil(bad)
    session, problems = find_session([bad], "ses_any")
    assert session is None and len(problems) == 1
    if spoil not in (empty, no_session_table, no_times, cut_off, scrambled):
        with pytest.raises(Unreadable), reading(bad):
            pass


def test_looking_for_a_database_does_not_create_it(tmp_path: Path) -> None:
    with pytest.raises(Unreadable), reading(tmp_path / "opencode.db"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_layout_that_lacks_columns_is_told_by_their_names(tmp_path: Path) -> None:
    no_times(tmp_path / "old.db")
    problem = list_sessions([tmp_path / "old.db"]).problems[0]
    assert "time_created, time_updated" in problem


def test_another_user_s_database_is_a_problem_and_not_a_crash(
    tmp_path: Path, open_folder: Path, as_stranger: Callable[[Callable[[], str]], str], talk: Talk
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user here")
    closed_folder, closed_file = talk.db, open_folder / "closed.db"
    closed_file.write_bytes(talk.db.read_bytes())
    closed_file.chmod(0o600)
    readable = open_folder / "open.db"
    readable.write_bytes(talk.db.read_bytes())
    readable.chmod(0o644)

    def work() -> str:
        found = list_sessions([closed_folder, closed_file, readable])
        ids = [session.id for session in found.sessions]
        return f"{len(found.problems)} problems, {ids}, {found.problems}"

    answer = as_stranger(work)
    assert answer.startswith(f"2 problems, ['{talk.id}']"), answer
    assert str(closed_file) in answer


def test_an_idle_wal_database_in_a_folder_of_another_user_is_read(
    open_folder: Path, as_stranger: Callable[[Callable[[], str]], str], talk: Talk
) -> None:
    wal(talk.db)
    readable = open_folder / "opencode.db"
    readable.write_bytes(talk.db.read_bytes())
    readable.chmod(0o644)

    def work() -> str:
        found = list_sessions([readable])
        return f"{[session.id for session in found.sessions]} {found.problems}"

    assert as_stranger(work) == f"['{talk.id}'] ()"
    assert beside(readable) == {"opencode.db"}


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The database locked by a connection that lets nobody else in."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_locked_database_is_told_and_is_fine_afterwards(
    journal: str, talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.opencode.database.BUSY_TIMEOUT_S", 0.2)
    other = tmp_path / "other.db"
    other.write_bytes(talk.db.read_bytes())
    with closing(sqlite3.connect(talk.db)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    with held(talk.db):
        found = list_sessions([talk.db, other])
        assert [session.id for session in found.sessions] == [talk.id]
        assert "locked by another program" in found.problems[0]
        with pytest.raises(Busy), reading(talk.db):
            pass
    assert list_sessions([talk.db]).problems == ()


def test_locked_databases_share_one_patience_and_none_is_waited_for_twice(
    talk: Talk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.opencode.database.BUSY_TIMEOUT_S", 0.2)
    other = tmp_path / "other.db"
    other.write_bytes(talk.db.read_bytes())
    patience = Patience()
    share_patience(patience)
    try:
        with held(talk.db), pytest.raises(Busy), reading(talk.db):
            pass
        assert patience.left <= 0
        assert patience.wait(talk.db, 3.0) == 0 and patience.wait(other, 3.0) == BRIEF_S
        for path in (talk.db, other):
            with reading(path) as connection:
                assert connection.execute("SELECT count(*) FROM session").fetchone() == (1,)
        with held(other), pytest.raises(Busy), reading(other, 0.0):
            pass
        assert patience.wait(other, 3.0) == 0
    finally:
        share_patience(None)


def wal(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")


def beside(path: Path) -> set[str]:
    return {each.name for each in path.parent.iterdir() if each.name.startswith(path.name)}


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_opening_leaves_nothing_beside_the_database_and_no_byte_of_it_changed(
    journal: str, opencode_db: Path, store: Store, settings: Settings
) -> None:
    with closing(sqlite3.connect(opencode_db)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    assert beside(opencode_db) == {opencode_db.name}
    before = opencode_db.read_bytes(), opencode_db.stat().st_mtime_ns

    found = list_sessions([opencode_db])
    steps = list(export_many(store, settings, list(found.sessions)))

    assert steps and not any(step.problem for step in steps)
    assert (opencode_db.read_bytes(), opencode_db.stat().st_mtime_ns) == before
    assert beside(opencode_db) == {opencode_db.name}


def test_commits_that_are_still_in_the_wal_are_seen_and_stay_there(talk: Talk) -> None:
    wal(talk.db)
    with closing(sqlite3.connect(talk.db, isolation_level=None)) as opencode:
        opencode.execute("PRAGMA wal_autocheckpoint = 0")
        opencode.execute("UPDATE session SET title = 'Only in the WAL'")
        log = talk.db.with_name(talk.db.name + "-wal")
        size = log.stat().st_size
        assert size > 0
        assert b"Only in the WAL" not in talk.db.read_bytes()

        assert talk.session().title == "Only in the WAL"

        assert log.stat().st_size == size
        assert b"Only in the WAL" not in talk.db.read_bytes()


def test_a_wal_that_a_crash_left_behind_is_read_and_kept(talk: Talk, tmp_path: Path) -> None:
    wal(talk.db)
    crashed = tmp_path / "crashed" / "opencode.db"
    crashed.parent.mkdir()
    log = talk.db.with_name(talk.db.name + "-wal")
    with closing(sqlite3.connect(talk.db, isolation_level=None)) as opencode:
        opencode.execute("UPDATE session SET title = 'Written just before the crash'")
        crashed.write_bytes(talk.db.read_bytes())
        crashed.with_name("opencode.db-wal").write_bytes(log.read_bytes())
    kept = crashed.with_name("opencode.db-wal").read_bytes()

    session, problems = find_session([crashed], talk.id)

    assert problems == []
    assert session is not None and session.title == "Written just before the crash"
    assert crashed.with_name("opencode.db-wal").read_bytes() == kept


def test_all_reads_see_one_moment(talk: Talk) -> None:
    wal(talk.db)
    first = talk.user("before")
    with reading(talk.db) as connection:
        talk.user("while we read")
        seen = [message.id for message in messages(connection, talk.id, 10**13)]
    assert seen == [first]


def test_opencode_can_write_while_we_read(talk: Talk) -> None:
    wal(talk.db)
    with reading(talk.db), closing(sqlite3.connect(talk.db, timeout=0.2)) as opencode, opencode:
        opencode.execute("UPDATE session SET title = 'Not held up'")
    assert talk.session().title == "Not held up"


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO todo SELECT id, '', '', '', 0, 0, 0 FROM session",
        "DELETE FROM session",
        "UPDATE session SET title = ''",
        "CREATE TABLE mine (id)",
        "DROP TABLE session",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode = truncate",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "VACUUM",
        "ATTACH DATABASE ':memory:' AS other",
    ],
)
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_nothing_can_be_written_through_a_reading_connection(
    statement: str, journal: str, talk: Talk
) -> None:
    with closing(sqlite3.connect(talk.db)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
    before = talk.db.read_bytes()
    with pytest.raises(MemoryAppError), reading(talk.db) as connection:
        connection.execute(statement)
    assert talk.db.read_bytes() == before


@pytest.mark.parametrize("table", sorted(FORBIDDEN))
def test_tables_with_tokens_and_the_event_log_are_refused(table: str, newest_db: Path) -> None:
    with pytest.raises(Unreadable), reading(newest_db) as connection:
        connection.execute(f"SELECT * FROM {table}").fetchall()


def test_the_forbidden_tables_are_those_of_the_design() -> None:
    tokens = {"account", "account_state", "control_account", "credential", "session_share"}
    assert tokens | {"event"} <= FORBIDDEN


def test_a_whole_export_reads_none_of_them(
    opencode_db: Path, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: set[str] = set()
    statements: list[str] = []
    connect = sqlite3.connect

    class Watched(sqlite3.Connection):
        """Notes which tables SQLite itself says are read, and every statement that runs."""

        def set_authorizer(self, callback: Callable[..., int] | None, /) -> None:
            def note(action: int, table: str | None, *rest: str | None) -> int:
                answer = callback(action, table, *rest) if callback else sqlite3.SQLITE_OK
                if action == sqlite3.SQLITE_READ and table and answer == sqlite3.SQLITE_OK:
                    read.add(table)
                return answer

            super().set_authorizer(note)
            self.set_trace_callback(statements.append)

    def watched(*args: object, **kwargs: object) -> sqlite3.Connection:
        return connect(*args, factory=Watched, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr("webapp.opencode.database.sqlite3.connect", watched)
    found = list_sessions([opencode_db])
    steps = list(export_many(store, settings, list(found.sessions)))
    monkeypatch.undo()

    assert steps and not any(step.problem for step in steps)
    assert {"session", "project", "message", "part"} <= read
    assert not read & FORBIDDEN
    for table in FORBIDDEN:
        assert not any(f" {table} " in f"{text} " for text in statements)


def test_a_path_with_odd_characters_is_opened(talk: Talk, tmp_path: Path) -> None:
    odd = tmp_path / "a?b#c%41 d&e.db"
    odd.write_bytes(talk.db.read_bytes())
    assert [session.id for session in list_sessions([odd]).sessions] == [talk.id]
