"""The server in the background: started once, found by its note, and never another program ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from webapp import __version__
from webapp.errors import Unreadable
from webapp.integration import diagnosis, serving
from webapp.integration.serving import Note, State
from webapp.settings import Settings, load

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(home: Path) -> Iterator[Settings]:
    """Settings with a free port; whatever servers were started are ended."""
    found = load({"port": str(free_port()), "data_dir": home / "data"}, {"HOME": str(home)})
    yield found
    while (note := serving.running(found).note) is not None:
        os.kill(note.pid, signal.SIGKILL)
        gone(replace(found, port=note.port))


def gone(settings: Settings) -> None:
    deadline = time.monotonic() + 20
    while serving.look(settings).state is State.OURS:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def run(settings: Settings, home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webapp", *args, "--port", str(settings.port), "--data-dir",
         str(settings.data_dir)],
        cwd=home, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def servers(settings: Settings) -> list[str]:
    """The processes that serve on our port."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True
    )
    return [
        line for line in listed.stdout.splitlines()
        if " serve " in line and f"--port {settings.port}" in line
    ]  # fmt: skip


ENSURE = (
    "import sys; from webapp.settings import load; from webapp.integration import serving;"
    " s = load({'port': sys.argv[1], 'data_dir': sys.argv[2]});"
    " print(serving.ensure(s).note.pid)"
)


def test_many_that_begin_at_once_start_one_server(settings: Settings, home: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ENSURE, str(settings.port), str(settings.data_dir)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "HOME": str(home)},
        )
        for _ in range(10)
    ]  # fmt: skip
    pids = {process.communicate(timeout=60)[0].strip() for process in started}
    assert len(pids) == 1
    note = serving.read_note(settings)
    assert note is not None and str(note.pid) in pids and note.port == settings.port
    # Who started it is gone, and it goes on.
    assert serving.look(settings).state is State.OURS
    assert stat.S_IMODE(serving.note_path(settings).stat().st_mode) == 0o600
    assert os.getsid(note.pid) != os.getsid(0)
    assert len(servers(settings)) == 1

    told = run(settings, home, "status", "--json")
    assert told.returncode == 0 and json.loads(told.stdout)["server"]["pid"] == note.pid
    again = run(settings, home, "serve")
    assert again.returncode == 2 and f"is served already. It runs at {note.url}" in again.stderr
    assert run(settings, home, "stop").returncode == 0
    assert serving.look(settings).state is State.SILENT
    # An unused memory leaves nothing behind.
    assert not settings.data_dir.exists()
    assert run(settings, home, "status").returncode == 1
    assert run(settings, home, "stop").returncode == 1


def test_after_a_kill_the_stale_note_is_not_obeyed(settings: Settings, home: Path) -> None:
    first = serving.ensure(settings).note
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    gone(settings)
    assert serving.read_note(settings) == first
    assert run(settings, home, "stop").returncode == 1
    second = serving.ensure(settings).note
    assert second is not None and second.pid != first.pid


@pytest.mark.parametrize(
    "note",
    [b"", b"{", b"[]", b'{"pid": 1}', b'{"pid": "x", "host": 1}', b"\xff" * 50, b"[" * 9_000],
)
def test_a_note_of_no_use_counts_as_none(settings: Settings, note: bytes) -> None:
    settings.data_dir.mkdir()
    serving.note_path(settings).write_bytes(note)
    assert serving.read_note(settings) is None
    assert serving.look(settings).state is State.SILENT


class _Foreign(BaseHTTPRequestHandler):
    answer = b"hello"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)


@pytest.fixture
def foreign(settings: Settings) -> Iterator[Callable[[bytes], None]]:
    """Another program on our port, which says what it is told to say."""
    server = HTTPServer(("127.0.0.1", settings.port), _Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def say(answer: bytes) -> None:
        _Foreign.answer = answer

    yield say
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [(b"hello", "Another program listens"), (b"[" * 9_000, "Another program listens"),
     (b'{"ok": true, "name": "opencode-memory", "version": "1", "pid": 1}', "Another memory is served")],
)  # fmt: skip
def test_another_program_on_the_port_is_told_of_and_left_alone(
    settings: Settings, home: Path, foreign: Callable[[bytes], None], answer: bytes, told: str
) -> None:
    foreign(answer)
    # A note that names a living process which is not the one that answers.
    serving.write_note(settings, Note(os.getpid(), "127.0.0.1", settings.port, "1", "http://x/", 1))
    seen = serving.ensure(settings)
    assert seen.state is State.FOREIGN and told in seen.text and "port" in seen.text
    done = run(settings, home, "stop")
    assert done.returncode == 1 and "nothing of ours to stop" in done.stdout
    assert serving.look(settings).state is State.FOREIGN


def test_one_that_listens_and_says_nothing_is_given_up_soon(settings: Settings) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", settings.port))
        sock.listen(8)
        begun = time.monotonic()
        assert serving.look(settings).state is State.FOREIGN
        assert time.monotonic() - begun < 5


def test_what_a_server_that_does_not_come_up_says_is_told(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCODE_MEMORY_TRASH_DAYS", "no number")
    with pytest.raises(Unreadable, match="trash_days must be a whole number"):
        serving.ensure(settings)
    assert stat.S_IMODE(serving.log_path(settings).stat().st_mode) == 0o600


def test_a_server_on_another_port_is_found_and_stopped_by_its_note(
    settings: Settings, home: Path
) -> None:
    """And a second one of the same memory takes no note away from the first."""
    first = serving.ensure(settings).note
    assert first is not None
    elsewhere = replace(settings, port=free_port())
    second = serving.ensure(elsewhere).note
    assert second is not None and second.pid != first.pid
    assert serving.look(settings).note == first and serving.look(elsewhere).note == second
    third = replace(settings, port=free_port())
    told = run(third, home, "status")
    assert told.returncode == 0 and f"not on port {third.port}" in told.stdout
    # The first is asked for at its own port, so that the log and the note of the second stay.
    assert run(settings, home, "stop").returncode == 0
    assert serving.log_path(settings).exists()
    assert serving.look(elsewhere).note == second
    assert run(third, home, "stop").returncode == 0
    assert serving.look(elsewhere).state is State.SILENT
    # The folder was made for the first, which could not remove it while the second was there.
    assert list(settings.data_dir.iterdir()) == []


def test_a_folder_that_was_there_before_stays(settings: Settings, home: Path) -> None:
    settings.data_dir.mkdir()
    serving.ensure(settings)
    assert run(settings, home, "stop").returncode == 0
    assert list(settings.data_dir.iterdir()) == []


def test_the_folders_of_a_server_that_was_not_used_go_though_they_are_two(
    settings: Settings, home: Path
) -> None:
    db = home / "elsewhere" / "memory.db"
    apart = replace(settings, db=db, origins={**settings.origins, "db": "flag"})
    note = serving.ensure(apart).note
    assert note is not None and serving.stop(apart, note)
    gone_by(lambda: not settings.data_dir.exists() and not apart.db.parent.exists())


def gone_by(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_where_the_note_cannot_be_written_it_serves_once_and_says_so(settings: Settings) -> None:
    """A folder in the note's place, which nobody overwrites."""
    serving.note_path(settings).mkdir(parents=True)
    seen = serving.ensure(settings)
    try:
        assert seen.state is State.FOREIGN and seen.pid > 1 and "whose note is gone" in seen.text
        assert "server.json cannot be written" in serving.log_path(settings).read_text()
        assert serving.ensure(settings).pid == seen.pid
        assert len(servers(settings)) == 1
    finally:
        os.kill(seen.pid, signal.SIGKILL)
        gone_by(lambda: serving.look(settings).state is State.SILENT)


def test_a_server_of_another_version_is_told_of_and_left_alone(
    settings: Settings, home: Path
) -> None:
    note = serving.ensure(settings).note
    assert note is not None
    serving.write_note(settings, replace(note, version="0.0.1"))
    told = run(settings, home, "status")
    assert told.returncode == 0 and "version 0.0.1" in told.stdout and "restart it" in told.stdout
    found = list(diagnosis._answer(settings, __version__))
    assert [one.ok for one in found] == [False] and "restart it" in found[0].text
    assert next(diagnosis._answer(settings, "0.0.1")).ok
    assert serving.ensure(settings).pid == note.pid


def test_a_start_that_is_killed_in_the_middle_leaves_the_next_one_free(
    settings: Settings, home: Path
) -> None:
    """Who starts it is killed while it holds the lock, and so is the server before it answers."""
    starter = subprocess.Popen(
        [sys.executable, "-c", ENSURE, str(settings.port), str(settings.data_dir)],
        cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    gone_by(settings.data_dir.exists)
    starter.kill()
    starter.wait()
    note = serving.ensure(settings).note
    assert note is not None
    gone_by(lambda: len(servers(settings)) == 1)


def test_install_says_where_the_server_runs_on_another_port(settings: Settings, home: Path) -> None:
    serving.ensure(settings)
    done = subprocess.run(
        [sys.executable, "-m", "webapp", "install", "--port", str(free_port()), "--data-dir",
         str(settings.data_dir)],
        cwd=home, text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert f"put `port = {settings.port}` into config.toml" in done.stderr
