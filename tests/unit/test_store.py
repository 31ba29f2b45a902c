"""The file behind the store: created late and private, shared politely, and never a traceback."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from webapp.errors import Busy, InvalidInput, MemoryAppError, NotFound, ReadOnly, Unreadable
from webapp.memory import entries, stats, trash
from webapp.memory.query import SearchQuery
from webapp.memory.search import ids_of_all_matches, search
from webapp.store import EntryRow, Store, connection, index, receipts

LAYOUT = Path(__file__).parents[1] / "writers" / "layout.sql"


def save(store: Store, title: str = "One", body: str = "Some apples") -> entries.Entry:
    """Saves an entry."""
    draft = entries.draft(scope="global", kind="fact", title=title, body=body)
    return entries.save(store, draft, "tester").entry


def filled(path: Path) -> Path:
    """A file with one entry."""
    with Store(path).session() as store:
        save(store)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is made now waits for a lock for a fraction of a second."""
    monkeypatch.setattr(connection, "WRITE_PATIENCE_S", 0.2)
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 40)


@contextmanager
def locked(path: Path, how: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Another connection holds a lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(how)
        yield
        other.execute("ROLLBACK")


# --- a file that is not there yet -----------------------------------------------------------------


def test_a_look_at_a_missing_file_finds_an_empty_store_and_creates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data" / "opencode-memory" / "memory.db"
    with Store(path).session() as store:
        assert not store.exists
        assert store.read_only is None
        assert search(store, SearchQuery("apples kind:fact")).total == 0
        assert search(store, SearchQuery()).total == 0
        assert ids_of_all_matches(store, SearchQuery("apples")) == ([], 0)
        assert stats.stats(store).total == 0
        assert stats.facets(store).total == 0
        assert stats.over_time(store, "kind").days == ()
        assert (trash.listing(store), trash.count(store), receipts.listing(store)) == ([], 0, [])
        assert trash.sweep(store, 30) == 0
        assert set(index.check(store).values()) == {"ok"}
        assert store.disk_bytes() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_change_of_what_is_not_there_creates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data" / "memory.db"
    draft = entries.draft(scope="global", kind="fact", title="One", body="apples")
    with Store(path).session() as store:
        with pytest.raises(NotFound):
            entries.get(store, "nothing")
        with pytest.raises(NotFound):
            entries.forget(store, ["nothing"], "tester")
        with pytest.raises(NotFound):
            entries.edit(store, "nothing", draft, "tester")
        with pytest.raises(NotFound):
            trash.restore(store, "nothing", "tester")
        with pytest.raises(NotFound):
            trash.get(store, "nothing")
        with pytest.raises(NotFound):
            receipts.get(store, 1)
        assert entries.forget(store, [], "tester") == []
        assert trash.purge(store, None, "tester") == 0
        index.rebuild(store)
        with pytest.raises(NotFound):
            index.vacuum(store, "tester")
    assert list(tmp_path.iterdir()) == []


def test_the_first_save_creates_the_file_and_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "data" / "opencode-memory" / "memory.db"
    store = Store(path)
    with store.session():
        saved = save(store)
        assert store.exists
        assert entries.get(store, saved.id) == saved
    with store.session():
        assert entries.get(store, saved.id) == saved


def test_an_empty_file_reads_as_an_empty_store_and_stays_empty_until_the_first_save(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    path.touch()
    with Store(path).session() as store:
        assert search(store, SearchQuery("apples")).total == 0
    assert path.read_bytes() == b""
    filled(path)
    with Store(path).session() as store:
        assert search(store, SearchQuery("apples")).total == 1


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_folders_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "data" / "opencode-memory" / "memory.db"
    before = os.umask(umask)
    try:
        with Store(path).session() as store:
            save(store)
            made = [file for file in path.parent.iterdir() if file.is_file()]
            assert {file.name for file in made} == {"memory.db", "memory.db-wal", "memory.db-shm"}
            assert {mode(file) for file in made} == {0o600}
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700
    assert mode(path.parent.parent) == 0o700


def test_a_folder_that_was_there_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(0o755)
    folder.chmod(0o755)
    filled(folder / "memory.db")
    assert mode(folder) == 0o755


@pytest.mark.parametrize(
    "name", ["with space.db", "what?mode=memory.db", "50%25.db", "a#b.db", "Größe-中文.db",
    "a&b=c;d.db"]
)  # fmt: skip
def test_any_file_name_is_the_name_of_the_file(tmp_path: Path, name: str) -> None:
    filled(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with Store(tmp_path / name).session() as store:
        assert search(store, SearchQuery("apples")).total == 1


def test_a_first_save_that_cannot_create_the_file_says_so_and_the_store_stays_readable(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "file"
    with Store(tmp_path / "new" / "memory.db").session() as store:
        (tmp_path / "new").write_text("in the way now")
        with pytest.raises(Unreadable, match=r"cannot be created.*Nothing was saved"):
            save(store)
        assert search(store, SearchQuery("apples")).total == 0
        (tmp_path / "new").unlink()
        save(store)
        assert search(store, SearchQuery("apples")).total == 1
    with pytest.raises(Unreadable, match="cannot be reached"), Store(path / "memory.db").session():
        pass


# --- connections ----------------------------------------------------------------------------------


def test_each_connection_has_its_pragmas(tmp_path: Path) -> None:
    store = Store(filled(tmp_path / "memory.db"))
    for _ in range(2):
        with store.session():
            found = {
                name: store.value(f"PRAGMA {name}")
                for name in ("journal_mode", "busy_timeout", "foreign_keys", "synchronous")
            }
        assert found == {
            "journal_mode": "wal", "busy_timeout": 5000, "foreign_keys": 1, "synchronous": 1,
        }  # fmt: skip


def test_a_file_that_somebody_took_out_of_wal_mode_is_put_back(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db")
    store = Store(path)
    with store.session():
        pass
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode = delete").fetchone() == ("delete",)
    with store.session():
        assert store.value("PRAGMA journal_mode") == "wal"
        save(store, "Two")


def test_a_store_is_used_inside_a_session_only(tmp_path: Path) -> None:
    store = Store(filled(tmp_path / "memory.db"))
    with pytest.raises(RuntimeError, match="not open"):
        store.rows("SELECT 1")
    with store.session(), store.session():
        assert store.value("SELECT count(*) FROM entries") == 1
    with pytest.raises(RuntimeError, match="not open"):
        store.rows("SELECT 1")


def test_nested_use_is_one_session(tmp_path: Path) -> None:
    store = Store(filled(tmp_path / "memory.db"))
    with store.session():
        with store.session():
            inner = store.db.connection()
        assert store.db.connection() is inner
        assert store.value("SELECT 1") == 1


def test_a_closed_session_leaves_one_file(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_threads_share_a_store_and_write_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "memory.db")
    failures: list[BaseException] = []
    start = threading.Barrier(6)

    def work(name: int) -> None:
        try:
            start.wait(30)
            for number in range(25):
                with store.session():
                    save(store, f"{name}-{number}")
                    assert search(store, SearchQuery(f'"{name}-{number}"')).total >= 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    with store.session():
        assert store.value("SELECT count(*) FROM entries") == 150
        assert set(index.check(store).values()) == {"ok"}


def test_a_write_that_fails_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "memory.db")).session() as store:
        with pytest.raises(ZeroDivisionError), store.writing():
            store.run(EntryRow.update(body="half done"))
            raise ZeroDivisionError
        assert store.rows("SELECT body FROM entries") == [("Some apples",)]
        save(store, "Two")


def test_a_write_that_sqlite_itself_rolled_back_tells_its_own_error(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "memory.db")).session() as store:
        store.rows(
            "CREATE TRIGGER keeper BEFORE DELETE ON entries"
            " BEGIN SELECT RAISE(ROLLBACK, 'entries are kept by law'); END"
        )
        (entry,) = search(store, SearchQuery()).hits
        with pytest.raises(Unreadable, match="kept by law"):
            entries.forget(store, [entry.entry.id], "tester")
        assert trash.count(store) == 0
        save(store, "Two")


def test_the_version_changes_with_every_write_of_any_process(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = Store(path)
    seen = [store.version()]
    with store.session():
        save(store)
        seen.append(store.version())
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("UPDATE entries SET body = 'from elsewhere'")
            seen.append(store.version())
        assert store.version() == seen[-1]
    assert len(set(seen)) == 3


# --- locks ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_write_gives_up_on_a_lock_with_a_plain_sentence_and_changes_nothing(
    tmp_path: Path,
) -> None:
    path = filled(tmp_path / "memory.db")
    with Store(path).session() as store, locked(path):
        with pytest.raises(Busy, match=r"Another program.*Nothing was changed; try again"):
            save(store, "Two")
        assert search(store, SearchQuery("apples")).total == 1
        assert stats.stats(store).total == 1
    with Store(path).session() as store:
        assert store.rows("SELECT title FROM entries") == [("One",)]
        save(store, "Two")


@contextmanager
def locked_for_a_while(path: Path, *statements: str) -> Iterator[threading.Event]:
    """Another connection runs statements that take a lock, and lets go of it after 0.3 seconds;
    the event is set then."""
    held = threading.Event()
    release = threading.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            for statement in statements:
                other.execute(statement).fetchall()
            held.set()
            release.wait(30)
            other.execute("ROLLBACK")

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    timer = threading.Timer(0.3, release.set)
    timer.start()
    yield release
    timer.join(30)
    holder.join(30)


def test_a_write_waits_longer_than_one_busy_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 20)
    path = filled(tmp_path / "memory.db")
    with locked_for_a_while(path, "BEGIN IMMEDIATE") as released, Store(path).session() as store:
        save(store, "Two")
        assert released.is_set()
        assert search(store, SearchQuery("apples")).total == 2


def test_the_switch_to_wal_waits_longer_than_one_busy_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 20)
    path = filled(tmp_path / "memory.db")
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA journal_mode = delete")
    reading = ("BEGIN", "SELECT * FROM entries")
    with locked_for_a_while(path, *reading) as released, Store(path).session() as store:
        assert released.is_set()
        assert store.value("PRAGMA journal_mode") == "wal"


@pytest.mark.usefixtures("impatient")
def test_a_file_under_an_exclusive_lock_is_busy_and_readable_afterwards(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = exclusive")
        other.execute("UPDATE entries SET body = 'more apples'")
        with pytest.raises(Busy), Store(path).session():
            pass
    with Store(path).session() as store:
        assert search(store, SearchQuery('"more apples"')).total == 1


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("wal", [True, False], ids=["wal", "rollback journal"])
def test_a_file_that_needs_our_tables_while_it_is_locked_is_busy_and_left_as_it_is(
    tmp_path: Path, wal: bool
) -> None:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as plugin:
        plugin.execute(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}")
        plugin.executescript(LAYOUT.read_text("utf-8"))
    store = Store(path)
    with locked(path), pytest.raises(Busy), store.session():
        pass
    with store.session():
        assert store.read_only is None
        save(store)


# --- write-protected ------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_write_protected_file_is_read_with_its_index_and_never_written(
    tmp_path: Path, journal: str
) -> None:
    path = filled(tmp_path / "memory.db")
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA journal_mode = {journal}")
    path.chmod(0o444)
    before = path.read_bytes()
    store = Store(path)
    for _ in range(2):
        with store.session():
            assert "write-protected" in str(store.read_only)
            assert store.indexed
            assert search(store, SearchQuery("apple")).total == 1
            with pytest.raises(ReadOnly, match=r"write-protected.*Nothing was changed"):
                save(store, "Two")
            with pytest.raises(ReadOnly):
                index.vacuum(store, "tester")
            assert index.check(store)["webapp_words"] != "ok"
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["memory.db"]
    path.chmod(0o600)
    with store.session():
        assert store.read_only is None
        save(store, "Two")


def test_a_write_protected_file_shows_what_is_still_in_its_wal(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db")
    with Store(path).session() as writer:
        save(writer, "Two", "written and not yet in the file itself")
        assert path.with_name("memory.db-wal").stat().st_size > 0
        path.chmod(0o444)
        with Store(path).session() as reader:
            assert "write-protected" in str(reader.read_only)
            assert search(reader, SearchQuery("written")).total == 1


def test_a_write_protected_empty_file_reads_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    path.touch()
    path.chmod(0o444)
    with Store(path).session() as store:
        with pytest.raises(ReadOnly):
            save(store)
        assert search(store, SearchQuery("apples")).total == 0
    assert path.read_bytes() == b""


AS_ANOTHER_USER = """
import os, sys
from pathlib import Path
from webapp.errors import MemoryAppError
from webapp.memory import entries, trash
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.store import Store, index

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
store = Store(Path(sys.argv[1]))
try:
    with store.session():
        print(store.read_only)
        print([hit.entry.title for hit in search(store, SearchQuery("apple")).hits])
        draft = entries.draft(scope="global", kind="fact", title="Two", body="apples")
        entries.save(store, draft, "other")
        print("saved")
except MemoryAppError as error:
    print(type(error).__name__, error.message)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        if os.geteuid() == 0 and not all(p.stat().st_mode & 0o001 for p in folder.parents):
            pytest.skip("the folder for temporary files is closed to other users")
        yield folder
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(folder)


def look_as_another_user(path: Path) -> list[str]:
    """What somebody without root's rights meets."""
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("layout", ["ours", "plugin"])
def test_a_file_in_a_write_protected_folder_is_read_and_never_written(
    public_folder: Path, layout: str, journal: str
) -> None:
    path = public_folder / "memory.db"
    if layout == "ours":
        filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        if layout == "plugin":
            other.executescript(LAYOUT.read_text("utf-8"))
            other.execute(
                "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
                " VALUES ('x', 'global', 'fact', 'One', 'Some apples', 1, 1)"
            )
        other.execute(f"PRAGMA journal_mode = {journal}")
    path.chmod(0o666)
    public_folder.chmod(0o555)
    before = path.read_bytes()
    shown, titles, saved = look_as_another_user(path)
    assert shown == f"the folder of {path} is write-protected. It is shown read-only."
    assert titles == "['One']"
    assert saved == f"ReadOnly {shown} Nothing was changed."
    assert path.read_bytes() == before
    assert [file.name for file in public_folder.iterdir()] == ["memory.db"]


def test_a_file_that_may_not_be_read_says_so(public_folder: Path) -> None:
    path = filled(public_folder / "memory.db")
    path.chmod(0o000)
    public_folder.chmod(0o777)
    (line,) = look_as_another_user(path)
    assert line.startswith(f"Unreadable {path} cannot be opened; check who may read it")


def test_a_folder_that_may_not_be_entered_says_so(public_folder: Path) -> None:
    filled(public_folder / "closed" / "memory.db")
    (public_folder / "closed").chmod(0o000)
    (line,) = look_as_another_user(public_folder / "closed" / "memory.db")
    assert line.startswith("Unreadable")
    assert "cannot be reached" in line


# --- damage ---------------------------------------------------------------------------------------

HEADER = b"SQLite format 3\0"


@pytest.mark.parametrize(
    "content",
    [b"garbage " * 900, b"\0" * 8192, HEADER, HEADER + b"\xa5\x5a\x13" * 3000, b"# a text file\n"],
    ids=["garbage", "zeros", "header alone", "header and garbage", "text"],
)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(content)
    store = Store(path)
    for _ in range(2):
        with pytest.raises(Unreadable, match="is damaged or not an SQLite data"), store.session():
            pass
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["memory.db"]


def test_damage_that_shows_while_reading_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Store(path).session() as store:
        for number in range(60):
            save(store, f"Title {number}", f"apples {number} " * 300)
        pages = [
            row[0]
            for row in store.rows(
                "SELECT pageno FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf'"
            )
        ] if _has_dbstat(store) else []  # fmt: skip
        size = store.value("PRAGMA page_size")
        last = store.value("PRAGMA page_count")
    raw = bytearray(path.read_bytes())
    for page in pages[len(pages) // 2 :] or range(last // 2, last):
        raw[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(raw)
    with pytest.raises(Unreadable, match="damaged"), Store(path).session() as store:
        search(store, SearchQuery("apples", limit=60))
        search(store, SearchQuery("", limit=60))
        store.all(EntryRow.select())


def _has_dbstat(store: Store) -> bool:
    try:
        store.rows("SELECT 1 FROM dbstat LIMIT 1")
    except MemoryAppError:
        return False
    return True


def test_a_folder_where_the_file_should_be_says_so(tmp_path: Path) -> None:
    (tmp_path / "memory.db").mkdir()
    with pytest.raises(Unreadable, match="is not a file"), Store(tmp_path / "memory.db").session():
        pass


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path) -> None:
    path = filled(tmp_path / "memory.db")
    with Store(path).session() as store:
        store.value(f"PRAGMA max_page_count = {store.value('PRAGMA page_count')}")
        with pytest.raises(Unreadable, match=r"is full\. Nothing was changed"):
            for number in range(40):
                save(store, f"Title {number}", "apples and pears " * 400)
        before = store.value("SELECT count(*) FROM entries")
        store.value("PRAGMA max_page_count = 1000000")
        save(store, "After", "there is room again")
        assert store.value("SELECT count(*) FROM entries") == before + 1
        assert store.value("PRAGMA integrity_check") == "ok"
        assert set(index.check(store).values()) == {"ok"}


def test_a_text_that_is_no_utf8_hides_no_other_row(tmp_path: Path) -> None:
    """Bun writes half of a surrogate pair so, when a text was cut inside an emoji."""
    path = filled(tmp_path / "memory.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(
            "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
            " VALUES ('x', 'global', 'fact', 'Cut', CAST(x'6170706c657320eda0bd' AS TEXT), 1, 1)"
        )
    with Store(path).session() as store:
        assert search(store, SearchQuery("apples")).total == 2
        assert len(search(store, SearchQuery()).hits) == 2
        assert entries.get(store, "x").body.startswith("apples \ufffd")
        entries.forget(store, ["x"], "tester")
        assert trash.restore(store, "x", "tester").title == "Cut"
        assert set(index.check(store).values()) == {"ok"}


@pytest.mark.parametrize(
    "text", ["\ud800", "a\udcffb", "\0", "", "x" * 100_000, "'; DROP TABLE entries"]
)
def test_an_id_may_be_any_text(tmp_path: Path, text: str) -> None:
    with Store(filled(tmp_path / "memory.db")).session() as store:
        for look in (entries.get, trash.get):
            with pytest.raises((NotFound, InvalidInput)) as caught:
                look(store, text)
            assert len(caught.value.message) < 300
        with pytest.raises((NotFound, InvalidInput)):
            entries.forget(store, [text], "tester")
        with pytest.raises((NotFound, InvalidInput)):
            trash.restore(store, text, "tester")
        assert stats.stats(store).total == 1


def test_a_number_that_sqlite_cannot_hold_is_bad_input(tmp_path: Path) -> None:
    with Store(filled(tmp_path / "memory.db")).session() as store:
        with pytest.raises(InvalidInput, match="too large"):
            receipts.get(store, 2**80)
        with pytest.raises(InvalidInput, match="too large"):
            search(store, SearchQuery("apples", since=2**80))
