"""The web server as other processes meet it: the note that it leaves beside memory.db, whether it
answers, and its start in the background when it does not."""

from __future__ import annotations

import http.client
import json
import logging
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from webapp.errors import Unreadable
from webapp.integration import locks
from webapp.integration.program import NAME, command
from webapp.settings import Settings

NOTE = "server.json"
LOG = "server.log"
MAX_LOG = 1_048_576
LOOK_S = 1.0
START_S = 20.0
LOCK_S = 30.0
AGAIN_S = 15.0
"""Seconds between two looks after the server."""

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
    """Who answers on our port, its note if it is ours, and what there is to say."""

    state: State
    note: Note | None
    text: str


def note_path(settings: Settings) -> Path:
    """Where a running server leaves its note."""
    return settings.db.parent / NOTE


def log_path(settings: Settings) -> Path:
    """What a server that was started in the background complains about."""
    return settings.data_dir / LOG


def read_note(settings: Settings) -> Note | None:
    """The note, also one of a server that is gone; None where there is none of use."""
    try:
        found = json.loads(note_path(settings).read_bytes()[:10_000])
        return Note(
            int(found["pid"]), str(found["host"]), int(found["port"]), str(found["version"]),
            str(found["url"]), int(found["started_at"]),
        )  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def write_note(settings: Settings, note: Note) -> None:
    """Leaves the note, in place of any other. Raises Unreadable."""
    path = note_path(settings)
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


def clear_note(settings: Settings) -> None:
    """Takes our own note away at the end, and what else would be left behind by a memory that nobody has
    used: an empty log, an empty folder."""
    with suppress(OSError):
        note = read_note(settings)
        if note is not None and note.pid == os.getpid():
            note_path(settings).unlink()
        if log_path(settings).stat().st_size == 0:
            log_path(settings).unlink()
    for folder in (settings.data_dir, settings.db.parent):
        with suppress(OSError):
            folder.rmdir()


def look(settings: Settings) -> Look:
    """Who answers on our port now."""
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    connection = http.client.HTTPConnection(host, settings.port, timeout=LOOK_S)
    note = read_note(settings)
    where = f"port {settings.port} on {settings.host}"
    try:
        connection.request("GET", "/healthz")
        told = json.loads(connection.getresponse().read(10_000))
    except ConnectionRefusedError:
        return Look(State.SILENT, None, f"Nothing listens on {where}.")
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        told = None
    finally:
        connection.close()
    if isinstance(told, dict) and told.get("name") == NAME:
        if note is not None and (note.pid, note.port) == (told.get("pid"), settings.port):
            return Look(
                State.OURS, note, f"It runs at {note.url} (pid {note.pid}, version {note.version})."
            )
        return Look(
            State.FOREIGN, None,
            f"Another memory is served on {where}: another user's, or one of another folder. Choose a port"
            " of your own, `port` in config.toml, and run `opencode-memory install` again.",
        )  # fmt: skip
    return Look(
        State.FOREIGN, None,
        f"Another program listens on {where}. End it, or choose another port, `port` in config.toml, and"
        " run `opencode-memory install` again.",
    )  # fmt: skip


def ensure(settings: Settings) -> Look:
    """Starts the server in the background if nothing listens on our port, and waits until it answers. Of
    several processes one starts it. Raises Unreadable with what the server complained about when it does
    not come up; another program on the port is left alone and told of."""
    seen = look(settings)
    if seen.state is not State.SILENT:
        return seen
    with _alone(settings.db.parent):
        seen = look(settings)
        return _start(settings) if seen.state is State.SILENT else seen


def keep(settings: Settings, stopping: threading.Event) -> None:
    """Looks after the server for as long as a process of tools runs. Never raises."""
    told = ""
    while True:
        try:
            seen = ensure(settings)
            text = seen.text if seen.state is State.FOREIGN else ""
        except Unreadable as error:
            text = error.message
        if text and text != told:
            log.warning("the page and the compaction are not served: %s", text)
        told = text
        if stopping.wait(AGAIN_S):
            return


_started: list[subprocess.Popen[bytes]] = []


def _start(settings: Settings) -> Look:
    _started[:] = [one for one in _started if one.poll() is None]
    path = log_path(settings)
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "ab") as file:
            begun = os.fstat(descriptor).st_size
            if begun > MAX_LOG:
                file.truncate(0)
                begun = 0
            process = subprocess.Popen(
                command(settings, "serve"), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=file, start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        where = error.filename or path
        raise Unreadable(f"The server cannot be started: {where}: {error.strerror}.") from error
    _started.append(process)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        seen = look(settings)
        if seen.state is State.OURS:
            return seen
        time.sleep(0.05)
    with path.open("rb") as file:
        file.seek(begun)
        said = file.read(2_000).decode("utf-8", "replace").strip()
    raise Unreadable(f"The server did not come up; {path} says: {said or 'nothing'}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time, by a lock on the folder, so that no file is left behind."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{folder} cannot be used: {error.strerror}.") from error
    try:
        if not locks.take(descriptor, LOCK_S):
            raise Unreadable(f"Another process holds {folder} for too long.")
        yield
    finally:
        os.close(descriptor)
