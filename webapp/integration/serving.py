"""The web server as other processes meet it: the note that it leaves beside memory.db, whether it
answers, and its start in the background when it does not."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from webapp.errors import InvalidInput, MemoryAppError, Unreadable
from webapp.integration import locks
from webapp.integration.program import NAME, command
from webapp.settings import Settings

NOTE = "server.json"
LOG = "server.log"
MAX_LOG = 1_048_576
MAX_NOTE = 10_000
MAX_ANSWER = 20_000
LOOK_S = 0.9
START_S = 20.0
LOCK_S = 30.0
STOP_S = 30.0
"""How long a server may take to finish what it is doing."""

AGAIN_S = 15.0
"""Seconds between two looks after the server."""

# OpenCode ends every descendant of a server of tools when it ends itself (anomalyco/opencode#15516), also
# one in a session of its own: the shell is gone at once, so that nobody's descendant is left.
DETACHED = 'exec "$@" >/dev/null & echo "$!"'

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Note:
    """What a running server says of itself. `started_at` is in epoch milliseconds."""

    pid: int
    host: str
    port: int
    version: str
    url: str
    started_at: int


class State(StrEnum):
    """Who answers on our port."""

    OURS = "ours"
    SILENT = "silent"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Look:
    """Who answers on our port, its note if it is ours, and what there is to say. `is_mute`: something
    listens and did not answer in time, such as a server that is just starting or ending. `pid` is of a
    server of this program that answered, be it ours or not."""

    state: State
    note: Note | None
    text: str
    is_mute: bool = False
    pid: int = 0


def loopback(host: str) -> str:
    """The address for a host's name. Raises InvalidInput for one that is not of this machine alone."""
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    with suppress(ValueError):
        if ipaddress.ip_address(name).is_loopback:
            return name
    raise InvalidInput(
        f"{host} is not a loopback address. Without sign-in this program would show your memory to "
        "the whole network, so it listens on 127.0.0.1 or ::1 only.",
        "host",
    )


def note_path(settings: Settings) -> Path:
    """Where a running server leaves its note."""
    return settings.db.parent / NOTE


def log_path(settings: Settings) -> Path:
    """What a server that was started in the background complains about."""
    return settings.data_dir / LOG


def read_note(settings: Settings) -> Note | None:
    """The note, also one of a server that is gone; None where there is none of use."""
    return _read(note_path(settings))


def _read(path: Path) -> Note | None:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MAX_NOTE))
        note = Note(
            int(found["pid"]), str(found["host"]), int(found["port"]), str(found["version"]),
            str(found["url"]), int(found["started_at"]),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    # To signal 0 or -1 is to signal a group, or everybody.
    return note if note.pid > 1 else None


def _notes(settings: Settings) -> list[tuple[Path, Note]]:
    """The notes of all servers of this memory: `server.json`, and `server-PORT.json` of those that were
    started while that one's server ran."""
    stem = Path(NOTE).stem
    paths = [note_path(settings), *sorted(note_path(settings).parent.glob(f"{stem}-*.json"))]
    return [(path, note) for path in paths if (note := _read(path)) is not None]


def write_note(settings: Settings, note: Note) -> None:
    """Leaves the note, in place of any whose server is gone. Raises Unreadable."""
    path = note_path(settings)
    former = read_note(settings)
    if former is not None and former.pid != note.pid and not _is_stale(former):
        path = path.with_name(f"{path.stem}-{note.port}.json")
    part = path.with_name(f"{NOTE}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump(asdict(note), file)
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise Unreadable(f"{path} cannot be written: {error.strerror}.") from error


def missing(settings: Settings) -> list[Path]:
    """The folders that are not there yet, and are therefore ours to remove should they stay empty."""
    return [
        path for path in dict.fromkeys((settings.data_dir, settings.db.parent)) if not path.exists()
    ]


def clear(settings: Settings, made: Iterable[Path]) -> None:
    """Takes this process's own note away at its end, and what else would be left behind by a memory that
    nobody has used: its own log and the folders that were made for it, as far as they are empty."""
    for path, note in _notes(settings):
        if note.pid == os.getpid() or _is_stale(note):
            with suppress(OSError):
                path.unlink()
    # Another server of this memory may complain into the same log.
    if is_logged(settings) and not _notes(settings):
        _remove_empty_log(settings)
    _remove_empty(made)


def _remove_empty_log(settings: Settings) -> None:
    with suppress(OSError):
        if log_path(settings).stat().st_size == 0:
            log_path(settings).unlink()


def _remove_empty(folders: Iterable[Path]) -> None:
    for folder in sorted(folders, key=lambda path: len(path.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def is_logged(settings: Settings) -> bool:
    """Whether what this process complains about goes to the log."""
    try:
        return os.path.samestat(os.fstat(2), log_path(settings).stat())
    except OSError:
        return False


class LogHandler(logging.StreamHandler[Any]):
    """Complains on standard error; where that is the log, it begins anew once it is too long."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._is_log = is_logged(settings)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line."""
        if self._is_log:
            with suppress(OSError):
                if os.fstat(2).st_size > MAX_LOG:
                    os.ftruncate(2, 0)
        super().emit(record)


def look(settings: Settings) -> Look:
    """Who answers on our port now, told within a second. Raises InvalidInput where the host is not of
    this machine."""
    where = f"port {settings.port} on {settings.host}"
    try:
        told = _told(loopback(settings.host), settings.port)
    except ConnectionRefusedError:
        return Look(State.SILENT, None, f"Nothing listens on {where}.")
    except TimeoutError:
        return Look(
            State.FOREIGN, None,
            f"What listens on {where} does not answer: another program, or a server that is busy. It is"
            " left alone.", is_mute=True,
        )  # fmt: skip
    except (OSError, ValueError, RecursionError):
        told = None
    pid = _pid(told)
    for _, note in _notes(settings):
        if pid and (note.pid, note.port) == (pid, settings.port):
            text = f"It runs at {note.url} (pid {note.pid}, version {note.version})."
            return Look(State.OURS, note, text, pid=pid)
    if _is_program(told):
        text = f"Another memory is served on {where}: another user's, one of another folder, or by a server"
        text += " whose note is gone."
    else:
        text = f"Another program listens on {where}."
    return Look(
        State.FOREIGN, None,
        f"{text} End it, or choose another port, `port` in config.toml, and run `opencode-memory install`"
        " again.", pid=pid,
    )  # fmt: skip


def running(settings: Settings) -> Look:
    """Our server: on our port, or else on the port that a note names. What `look` finds where there is
    none."""
    seen = look(settings)
    if seen.state is not State.OURS:
        for _, note in _notes(settings):
            if _answers(note):
                text = f"It runs at {note.url} (pid {note.pid}, version {note.version})"
                text += f", not on port {settings.port}."
                return Look(State.OURS, note, text, pid=note.pid)
    return seen


def outdated(note: Note, version: str) -> str:
    """What there is to say of a server of another version than this one; empty if it is the same."""
    if note.version == version:
        return ""
    return (
        f"This is version {version}, so restart it: end it with `opencode-memory stop`; the tools start"
        " it again, and so does `opencode-memory serve`."
    )


def _answers(note: Note) -> bool | None:
    """Whether the server of a note is what answers there; None where nobody answers in time."""
    try:
        return _pid(_told(loopback(note.host), note.port)) == note.pid
    except TimeoutError:
        return None
    except (InvalidInput, OSError, ValueError, RecursionError, OverflowError):
        return False


def _is_stale(note: Note) -> bool:
    """Whether the server of a note is gone; a busy one is not."""
    answers = _answers(note)
    return not _is_alive(note.pid) if answers is None else not answers


def _is_program(told: Any) -> bool:
    return isinstance(told, dict) and told.get("name") == NAME


def _pid(told: Any) -> int:
    """The process that says that it is this program, or 0."""
    pid = told.get("pid") if _is_program(told) else 0
    return pid if isinstance(pid, int) and pid > 1 else 0


def _told(host: str, port: int) -> Any:
    """What /healthz tells. It has LOOK_S in all: http.client's timeout is one for each piece, and a
    program that trickles held it for as long as it liked. Raises OSError and ValueError."""
    deadline = time.monotonic() + LOOK_S
    name = f"[{host}]" if ":" in host else host
    with socket.create_connection((host, port), timeout=LOOK_S) as sock:
        sock.sendall(f"GET /healthz HTTP/1.0\r\nHost: {name}:{port}\r\n\r\n".encode())
        data = b""
        while len(data) < MAX_ANSWER:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            sock.settimeout(left)
            piece = sock.recv(4_096)
            if not piece:
                break
            data += piece
    return json.loads(data.partition(b"\r\n\r\n")[2])


def ensure(settings: Settings) -> Look:
    """Starts the server in the background if nothing listens on our port, and waits until it answers. Of
    several processes one starts it. Raises InvalidInput where the settings name no port, and Unreadable
    with what the server complained about when it does not come up; another program on the port is left
    alone and told of."""
    if settings.port == 0:
        raise InvalidInput(
            "With port = 0 nobody knows where the server is. Name a port, or set keep_serving = false.",
            "port",
        )
    seen = look(settings)
    folder = settings.db.parent
    if seen.state is not State.SILENT and not (seen.is_mute and folder.is_dir()):
        return seen
    made = missing(settings)
    # Who starts it holds the lock until it answers, so a mute one is looked at again then.
    with _alone(folder):
        seen = look(settings)
        return _start(settings, made) if seen.state is State.SILENT else seen


def keep(settings: Settings, stopping: threading.Event) -> None:
    """Looks after the server for as long as a process of tools runs. Never raises."""
    told = ""
    while True:
        try:
            seen = ensure(settings)
            text = seen.text if seen.state is State.FOREIGN else ""
        except MemoryAppError as error:
            text = error.message
        if text and text != told:
            log.warning("the page and the compaction are not served: %s", text)
        told = text
        if stopping.wait(AGAIN_S):
            return


def stop(settings: Settings, note: Note) -> bool:
    """Asks a server that `running` has found to end, and waits until it has. False if it still runs
    after STOP_S. Raises Unreadable where it is not ours to end."""
    try:
        os.kill(note.pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    except OSError as error:
        raise Unreadable(f"The process {note.pid} cannot be ended: {error.strerror}.") from error
    deadline = time.monotonic() + STOP_S
    while _is_alive(note.pid):
        # Its note goes last. A process whose parent does not take note of its end stays in the table.
        if not any(one.pid == note.pid for _, one in _notes(settings)):
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _start(settings: Settings, made: list[Path]) -> Look:
    path = log_path(settings)
    words = [word for folder in made for word in ("--made", str(folder))]
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "ab") as file:
            begun = os.fstat(descriptor).st_size
            if begun > MAX_LOG:
                file.truncate(0)
                begun = 0
            done = subprocess.run(
                ["/bin/sh", "-c", DETACHED, "sh", *command(settings, "serve", *words)], cwd="/",
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, start_new_session=True,
                check=True,
            )  # fmt: skip
            pid = int(done.stdout)
    except OSError as error:
        where = error.filename or path
        raise Unreadable(f"The server cannot be started: {where}: {error.strerror}.") from error
    except (subprocess.SubprocessError, ValueError) as error:
        raise Unreadable(f"The server cannot be started: {error}.") from error
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        was_alive = _is_alive(pid)
        seen = look(settings)
        if seen.state is State.OURS or seen.pid == pid:
            return seen
        if not was_alive and not seen.is_mute:
            break
        time.sleep(0.05)
    said = _last_of_log(path, begun)
    _remove_empty_log(settings)
    _remove_empty(made)
    raise Unreadable(f"The server did not come up; {path} says: {said or 'nothing'}")


def _last_of_log(path: Path, begun: int) -> str:
    """What was written to the log since, its end at least, in one line."""
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(min(begun, size), size - 2_000))
        return " ".join(file.read().decode("utf-8", "replace").split())
    return ""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time, by a lock on the folder, so that no file is left behind."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{folder} cannot be used: {error.strerror}.") from error
    try:
        try:
            is_ours = locks.take(descriptor, LOCK_S)
        except OSError as error:
            raise Unreadable(f"{folder} cannot be locked: {error.strerror}.") from error
        if not is_ours:
            raise Unreadable(f"Another process holds {folder} for too long.")
        yield
    finally:
        os.close(descriptor)
