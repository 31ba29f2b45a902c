"""`serve` and `doctor`; `demo` has its own tests."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def environment_of(program: Any) -> dict[str, str]:
    """The environment that `program` runs in."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
    return {**env, "HOME": str(program.home), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


class Server:
    """A running `serve`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.url = ""

    def wait_for_link(self) -> None:
        """Waits until the link is printed and answered."""
        deadline = time.monotonic() + 30
        while True:
            found = re.search(r"(http://127[^\s\"]+/)[\s\"]", self.log.read_text())
            if found:
                self.url = found[1]
                with contextlib.suppress(OSError):
                    if self.get("healthz")[0] == 200:
                        return
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@pytest.fixture
def serve(program: Any, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts `serve` on a free port and waits for its link."""
    started: list[Server] = []

    def start(*args: str) -> Server:
        log = tmp_path / f"server-{len(started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                program.command("serve", "--port", "0", *args), cwd=program.project, stdout=output,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment_of(program),
                # A shell lets what it runs in the background ignore this signal.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        started.append(Server(process, log))
        started[-1].wait_for_link()
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()


# serve ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_prints_its_link_answers_and_stops_cleanly(
    serve: Callable[..., Server], program: Any, number: signal.Signals
) -> None:
    server = serve()
    status, body = server.get("")
    assert status == 200 and b"Nothing is remembered yet" in body
    assert server.get("", Host="evil.example")[0] == 403
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    text = server.log.read_text()
    assert "Traceback" not in text
    assert str(program.home / ".local/share/opencode-memory/memory.db") in text
    assert "every user of this machine can open the page" in text
    assert not (program.home / ".local/share/opencode-memory").exists()


def test_serve_without_sign_in_says_what_that_means(serve: Callable[..., Server]) -> None:
    assert "every user of this machine can open the page" in serve("--no-auth").log.read_text()


def test_serve_reads_what_other_processes_write(serve: Callable[..., Server], program: Any) -> None:
    server = serve()
    assert b"Needle" not in server.get("?q=needle")[1]
    program("save", "--kind", "fact", "--title", "Needle from outside", "--body", "b")
    assert b"from outside" in server.get("?q=needle")[1]


def test_serve_with_a_corrupt_store_starts_and_says_so(
    serve: Callable[..., Server], program: Any
) -> None:
    folder = program.home / ".local/share/opencode-memory"
    folder.mkdir(parents=True)
    (folder / "memory.db").write_bytes(b"no database" * 400)
    server = serve()
    assert server.get("")[0] == 503
    assert server.get("transcripts")[0] == 200
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.evil.example", "", "localhost.evil",
     "127.0.0.1:80", "*"],
)  # fmt: skip
def test_serve_refuses_an_address_that_is_not_loopback(program: Any, cli: Any, host: str) -> None:
    outcome = cli("serve", "--port", "0", "--host", host)
    assert outcome.code == 2
    assert outcome.sentence
    if host:
        assert "not a loopback address" in outcome.sentence


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_taken_port_is_told_in_a_sentence(cli: Any, host: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        outcome = cli("serve", "--host", host, "--port", str(port))
    assert outcome.code == 2
    assert f"Port {port} on 127.0.0.1 cannot be used" in outcome.sentence
    assert "--port" in outcome.sentence


def test_a_second_server_on_the_port_of_a_first_does_not_start(
    serve: Callable[..., Server], program: Any
) -> None:
    first = serve()
    port = re.search(r":(\d+)/", first.url)
    assert port
    second = program("serve", "--port", port[1])
    assert second.code == 2
    assert f"is served already. It runs at {first.url}" in second.sentence
    assert first.get("healthz")[0] == 200


# doctor -----------------------------------------------------------------------------------------


def checks(outcome: Any) -> dict[str, tuple[str, str]]:
    """Name, `ok` or `BAD`, and text of each line."""
    found = {}
    for line in outcome.out.splitlines():
        word, rest = line[:4].strip(), line[5:]
        name, _, text = rest.partition(": ")
        found[name] = (word, text)
    return found


def sql(cli: Any, *statements: str) -> None:
    """Runs plain SQL on memory.db, as another program would."""
    with closing(sqlite3.connect(cli.db)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_an_unused_installation_is_healthy_and_stays_unused(cli: Any) -> None:
    found = checks(cli.done("doctor"))
    assert found["memory.db"][0] == "ok" and "first save" in found["memory.db"][1]
    assert found["OpenCode"][0] == "ok" and "--opencode-db" in found["OpenCode"][1]
    assert "ripgrep" in found["ripgrep"][1]
    assert not cli.data_dir.exists()


def test_a_healthy_installation_says_what_there_is(cli: Any, newest_db: Path) -> None:
    cli.save("T")
    cli.done("export", "--all", "--opencode-db", str(newest_db))
    outcome = cli.done("doctor", "--opencode-db", str(newest_db))
    found = checks(outcome)
    assert {word for word, _ in found.values()} == {"ok"}
    assert found["memory.db"][1] == f"{cli.db}, 1 entries"
    assert found["permissions"][1] == "0600"
    assert found["transcripts"][1].startswith("15 in ")
    assert found["OpenCode"][1] == f"{newest_db}, 15 sessions"
    assert {name for name in found if name.startswith("index ")} == {
        "index entries_fts", "index webapp_words", "index webapp_grams",
    }  # fmt: skip
    told = cli.done("doctor", "--json", "--opencode-db", str(newest_db)).data
    assert told["healthy"] is True and all(check["ok"] for check in told["checks"])


@pytest.mark.parametrize("index", ["entries_fts", "webapp_words", "webapp_grams"])
def test_an_index_that_drifted_is_found_and_rebuild_mends_it(cli: Any, index: str) -> None:
    cli.save("Needle one")
    cli.save("Needle two")
    sql(cli, f"INSERT INTO {index}({index}) VALUES ('delete-all')")
    bad = cli("doctor")
    assert (bad.code, bad.err) == (2, "")
    found = checks(bad)
    assert found[f"index {index}"][0] == "BAD"
    assert "opencode-memory doctor --rebuild" in found[f"index {index}"][1]
    assert sum(word == "BAD" for word, _ in found.values()) == 1
    told = cli("doctor", "--json")
    assert told.code == 2 and told.data["healthy"] is False
    mended = cli.done("doctor", "--rebuild")
    assert index in checks(mended)["rebuild"][1]
    cli.done("doctor")
    assert cli.done("search", "needle", "--json").data["total"] == 2


@pytest.mark.parametrize("content", [b"no database" * 400, b"SQLite format 3\0" + b"\xaa" * 8000])
def test_a_corrupt_store_is_exit_code_2_and_is_left_as_it_is(cli: Any, content: bytes) -> None:
    cli.data_dir.mkdir(parents=True)
    cli.db.write_bytes(content)
    for args in ([], ["--rebuild"]):
        outcome = cli("doctor", *args)
        assert (outcome.code, outcome.err) == (2, "")
        word, text = checks(outcome)["memory.db"]
        assert word == "BAD" and str(cli.db) in text
        assert checks(outcome)["ripgrep"][0] == "ok"
    assert cli.db.read_bytes() == content


def test_damaged_pages_are_found(cli: Any) -> None:
    cli.save("T", "b" * 7000)
    sql(cli, "PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(sqlite3.connect(cli.db)) as connection:
        (root,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'entries'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with cli.db.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xaa" * size)
    outcome = cli("doctor")
    assert outcome.code == 2
    assert "BAD" in {word for word, _ in checks(outcome).values()}


def test_a_store_that_others_may_read_is_told_with_the_remedy(cli: Any) -> None:
    cli.save("T")
    os.chmod(cli.db, 0o644)
    outcome = cli("doctor")
    assert outcome.code == 0
    _, text = checks(outcome)["permissions"]
    assert f"chmod 600 {cli.db}" in text


def test_a_foreign_store_is_told_with_the_difference(cli: Any) -> None:
    cli.save("T")
    sql(cli, "ALTER TABLE entries ADD COLUMN mood TEXT")
    outcome = cli("doctor")
    assert outcome.code == 2
    assert "“mood”" in checks(outcome)["memory.db"][1]


@pytest.mark.parametrize("kind", ["missing", "garbage", "unknown layout"])
def test_an_opencode_database_that_cannot_be_read_is_told(
    cli: Any, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "opencode.db"
    if kind == "garbage":
        path.write_bytes(bytes(range(256)) * 40)
    elif kind == "unknown layout":
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE session (id TEXT)")
    outcome = cli("doctor", "--opencode-db", str(path))
    assert outcome.code == 2
    word, text = checks(outcome)["OpenCode"]
    assert word == "BAD" and str(path) in text


def test_a_transcript_that_was_cut_short_is_told(cli: Any, newest_db: Path) -> None:
    cli.done("export", "--all", "--opencode-db", str(newest_db))
    path = next((cli.data_dir / "transcripts").glob("*/*.md"))
    os.truncate(path, 10)
    outcome = cli("doctor", "--opencode-db", str(newest_db))
    assert outcome.code == 2
    assert str(path) in checks(outcome)["transcripts"][1]


def test_a_data_folder_that_is_a_file_is_told(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    outcome = cli("doctor", "--data-dir", str(tmp_path / "file"))
    assert outcome.code == 2
    assert any(
        word == "BAD" and str(tmp_path / "file") in text for word, text in checks(outcome).values()
    )


def test_the_real_program_ends_with_the_same_codes(program: Any) -> None:
    assert program("doctor").code == 0
    folder = program.home / ".local/share/opencode-memory"
    folder.mkdir(parents=True)
    (folder / "memory.db").write_bytes(b"no database" * 400)
    outcome = program("doctor", "--json")
    assert outcome.code == 2
    assert outcome.data["healthy"] is False


def test_serve_tells_a_program_where_it_is(serve: Callable[..., Server]) -> None:
    server = serve("--json")
    told = json.loads(server.log.read_text())
    assert told["ok"] is True
    assert told["pid"] == server.process.pid
    assert told["url"] == f"http://127.0.0.1:{told['port']}/"
    assert server.get("healthz")[0] == 200


# The watcher and the space --------------------------------------------------------------------------


def test_serve_exports_a_session_by_itself_once_it_was_compacted(
    serve: Callable[..., Server], program: Any, newest_db: Path
) -> None:
    with closing(sqlite3.connect(newest_db)) as db, db:
        (compacted,) = db.execute(
            "SELECT session_id FROM message WHERE json_extract(data, '$.summary') = 1 LIMIT 1"
        ).fetchone()
        now = time.time_ns() // 1_000_000
        db.execute("UPDATE session SET time_updated = ? WHERE id = ?", (5, compacted))
        db.execute("UPDATE message SET time_updated = 5, time_created = 5,"
                   " data = json_set(data, '$.time.completed', 5)")  # fmt: skip
    folder = program.home / ".local/share/opencode-memory"
    server = serve("--opencode-db", str(newest_db))
    time.sleep(4)
    assert [path.name for path in folder.iterdir()] == ["server.json"]
    with closing(sqlite3.connect(newest_db)) as db, db:
        db.execute(
            "UPDATE message SET time_created = ?, time_updated = ?,"
            " data = json_set(data, '$.time.completed', ?)"
            " WHERE session_id = ? AND json_extract(data, '$.summary') = 1",
            (now, now + 1, now + 1, compacted),
        )
    deadline = time.monotonic() + 20
    while not list(folder.glob("transcripts/*/*.md")):
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.05)
    assert [path.stem for path in folder.glob("transcripts/*/*.md")] == [compacted]
    while b"1 exported" not in server.get("settings")[1]:
        assert time.monotonic() < deadline, server.log.read_text()
        time.sleep(0.05)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert "Traceback" not in server.log.read_text()


def test_unused_bytes_are_told_and_given_back(cli: Any) -> None:
    cli.save("Kept")
    assert "doctor --vacuum" not in cli.done("doctor").out
    with closing(sqlite3.connect(cli.db)) as db, db:
        for number in range(40):
            db.execute(
                "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
                " VALUES (?, 'global', 'fact', ?, ?, 1, 1)",
                (f"long-{number}", f"Long {number}", "x" * 100_000),
            )
        db.execute("DELETE FROM entries WHERE id LIKE 'long-%'")
    told = cli.done("doctor").out
    assert re.search(r"ok   space: [\d,]+ bytes are unused; .* doctor --vacuum", told)
    size = cli.db.stat().st_size
    done = cli.done("doctor", "--vacuum").out
    assert re.search(r"ok   vacuum: [\d,]+ bytes before, [\d,]+ after; receipt \d+", done)
    assert "bytes are unused" not in done and "BAD" not in done
    assert cli.db.stat().st_size < size - 1_000_000
    assert "Kept" in cli.done("search", "kept", "--everywhere").out


def test_a_vacuum_of_an_unused_installation_makes_nothing(cli: Any) -> None:
    cli.done("doctor", "--vacuum")
    assert not cli.data_dir.exists()


# reflection ---------------------------------------------------------------------------------------


def test_doctor_tells_whether_reflection_could_ask_and_asks_nobody(
    cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert not [c for c in cli("doctor", "--json").data["checks"] if c["name"] == "reflection"]
    key = tmp_path / "key"
    monkeypatch.setenv("OPENCODE_MEMORY_REFLECTION", "true")
    monkeypatch.setenv("OPENCODE_MEMORY_REFLECTION_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENCODE_MEMORY_REFLECTION_KEY_FILE", str(key))

    def told() -> tuple[bool, str]:
        (check,) = [c for c in cli("doctor", "--json").data["checks"] if c["name"] == "reflection"]
        return check["ok"], check["text"]

    assert told() == (False, "Set reflection_model too: until then nothing is asked.")
    monkeypatch.setenv("OPENCODE_MEMORY_REFLECTION_MODEL", "small-1")
    assert told() == (False, f"The key file {key} cannot be read: No such file or directory.")
    key.write_text("some-key")
    assert told() == (True, "small-1 at 127.0.0.1:9, which was not asked just now")


def test_the_server_reflects_on_a_session_that_goes_idle_and_tells_nobody_the_key(
    talk: Any, llm: Any, serve: Callable[..., Server], program: Any
) -> None:
    key = "sk-" + "Zq7" * 16
    config = program.home / ".config" / "opencode-memory"
    config.mkdir(parents=True)
    (config / "key").write_text(key)
    (config / "config.toml").write_text(
        f'reflection = true\nreflection_url = "{llm.url}"\nreflection_model = "m"\n'
        f'reflection_key_file = "{config / "key"}"\n'
    )
    for _ in range(3):
        talk.user("How are invoices to be rounded? " * 5)
        talk.assistant("Per line. " * 20)
    # It has been quiet for five minutes in a few seconds from now.
    shift = int(time.time() * 1000) - 300_000 + 6_000 - talk.session().updated_at
    for table in ("session", "message"):
        talk.sql(f"UPDATE {table} SET time_updated = time_updated + ?", shift)
    server = serve()
    deadline = time.monotonic() + 30
    while b"1,280" not in (page := server.get("settings")[1]):
        assert time.monotonic() < deadline, page
        time.sleep(0.1)
    assert len(llm.received) == 1 and key.encode() not in page
    assert b"Invoices are rounded per line" in server.get("?q=source:reflection")[1]
    server.process.terminate()
    assert server.process.wait(20) == 0
    assert key not in server.log.read_text() and "Traceback" not in server.log.read_text()
