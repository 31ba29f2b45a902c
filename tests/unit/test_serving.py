"""The look at our port and the note: bounded whatever answers, private, and never obeyed blindly."""

from __future__ import annotations

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from webapp.errors import InvalidInput
from webapp.integration import serving
from webapp.integration.serving import Note, State
from webapp.settings import Settings, load

Listen = Callable[[Callable[[socket.socket], None]], None]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


@pytest.fixture
def settings(tmp_path: Path, listener: socket.socket) -> Settings:
    port = listener.getsockname()[1]
    return load({"port": str(port), "data_dir": tmp_path / "data"}, {"HOME": str(tmp_path)})


@pytest.fixture
def listen(listener: socket.socket) -> Iterator[Listen]:
    """Listens on our port, and does with each caller what it is told to."""
    stopping = threading.Event()
    threads: list[threading.Thread] = []

    def start(answer: Callable[[socket.socket], None]) -> None:
        listener.listen(8)
        listener.settimeout(0.05)

        def serve() -> None:
            while not stopping.is_set():
                with suppress(OSError), closing(listener.accept()[0]) as caller:
                    answer(caller)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield start
    stopping.set()
    for thread in threads:
        thread.join()


def note(settings: Settings, pid: int) -> Note:
    return Note(pid, "127.0.0.1", settings.port, "1", f"http://127.0.0.1:{settings.port}/", 1)


def saying(body: bytes) -> Callable[[socket.socket], None]:
    def answer(caller: socket.socket) -> None:
        caller.recv(4_096)
        caller.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body)

    return answer


def trickling(caller: socket.socket) -> None:
    for _ in range(60):
        caller.sendall(b"a")
        time.sleep(0.05)


def flooding(caller: socket.socket) -> None:
    for _ in range(200):
        caller.sendall(b"a" * 100_000)


def silent(caller: socket.socket) -> None:
    caller.settimeout(3)
    while caller.recv(4_096):
        pass


@pytest.mark.parametrize("answer", [trickling, flooding, silent, saying(b""), saying(b"[" * 9_000)])
def test_a_look_takes_less_than_a_second_whatever_listens(
    settings: Settings, listen: Listen, answer: Callable[[socket.socket], None]
) -> None:
    listen(answer)
    begun = time.monotonic()
    seen = serving.look(settings)
    assert time.monotonic() - begun < 1.2
    assert seen.state is State.FOREIGN and seen.note is None
    assert seen.is_mute == (answer in (trickling, silent))
    # Nothing is made beside a foreign program.
    assert serving.ensure(settings).state is State.FOREIGN
    assert not settings.data_dir.exists()


def test_the_note_is_private_whatever_the_umask(settings: Settings) -> None:
    before = os.umask(0)
    try:
        serving.write_note(settings, note(settings, 4321))
    finally:
        os.umask(before)
    assert stat.S_IMODE(serving.note_path(settings).stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    assert [path.name for path in settings.data_dir.iterdir()] == ["server.json"]


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_a_note_and_an_answer_that_agree_on_a_group_of_processes_are_nobodys(
    settings: Settings, listen: Listen, pid: int
) -> None:
    """To signal these would be to signal a whole group, or everybody."""
    serving.write_note(settings, note(settings, pid))
    listen(saying(b'{"name": "opencode-memory", "pid": %d}' % pid))
    assert serving.running(settings).note is None


def test_the_note_decides_whose_memory_it_is(settings: Settings, listen: Listen) -> None:
    listen(saying(b'{"name": "opencode-memory", "pid": 4321, "version": "1"}'))
    other = serving.look(settings)
    assert other.state is State.FOREIGN and "Another memory is served" in other.text
    serving.write_note(settings, note(settings, 4321))
    assert serving.look(settings).state is State.OURS


@pytest.mark.parametrize("is_there", [True, False])
def test_a_note_that_another_user_keeps_is_not_read(
    open_folder: Path, as_stranger: Callable[[Callable[[], str]], str], listen: Listen,
    listener: socket.socket, is_there: bool,
) -> None:  # fmt: skip
    port = listener.getsockname()[1]
    theirs = load({"port": str(port), "db": open_folder / "memory.db"}, {"HOME": str(open_folder)})
    listen(saying(b'{"name": "opencode-memory", "pid": 4321}'))
    if is_there:
        serving.write_note(theirs, note(theirs, 4321))
        assert serving.look(theirs).state is State.OURS
    if os.geteuid() != 0:
        pytest.skip("only root can look as another user")
    assert as_stranger(lambda: str(serving.ensure(theirs).state)) == "foreign"


def test_a_host_that_is_not_of_this_machine_is_never_asked(settings: Settings) -> None:
    far = load({"host": "example.org", "port": "80"}, {"HOME": str(settings.data_dir)})
    with pytest.raises(InvalidInput, match="not a loopback address"):
        serving.look(far)


def test_a_port_that_names_none_starts_nothing(tmp_path: Path) -> None:
    settings = load({"port": "0", "data_dir": tmp_path / "data"}, {"HOME": str(tmp_path)})
    with pytest.raises(InvalidInput, match="port = 0"):
        serving.ensure(settings)
    assert not settings.data_dir.exists()


def test_the_log_of_a_running_server_is_bounded(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    settings.data_dir.mkdir()
    monkeypatch.setattr(serving, "MAX_LOG", 1_000)
    kept = os.dup(2)
    descriptor = os.open(serving.log_path(settings), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.dup2(descriptor, 2)
        handler = serving.LogHandler(settings)
        with open(2, "w", closefd=False) as stream:
            handler.stream = stream  # pytest has put its own in place of it
            for number in range(100):
                text = "line %d" + "x" * 80
                handler.handle(logging.LogRecord("x", 30, "", 1, text, (number,), None))
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(descriptor)
    text = serving.log_path(settings).read_text()
    assert "line 99" in text and len(text) < 1_200


def test_keeping_never_raises_and_says_a_thing_once(
    settings: Settings, listen: Listen, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(serving, "AGAIN_S", 0.05)
    listen(saying(b"hello"))
    stopping = threading.Event()
    threading.Timer(0.6, stopping.set).start()
    serving.keep(settings, stopping)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "Another program listens" in told[0]
