"""The real server on a free port, asked over HTTP, and the memory it takes."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlencode

from webapp import settings as setting_table
from webapp.settings import PREFIX, Settings

ROOT = Path(__file__).parents[1]
START_S = 120.0
"""How long a server may take to answer first: it may have indexes to build."""

FRAGMENT = {"HX-Request": "true", "HX-Target": "results"}


def environment(home: Path) -> dict[str, str]:
    """An environment in which the program sees nothing of this machine's own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        env.pop(name, None)
    return env | {"HOME": str(home), "USER": "bench"}


def settings_of(home: Path) -> Settings:
    """The settings in force in that environment."""
    return setting_table.load({}, environment(home))


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: seconds from the request to its first byte and to its last, and its body."""

    first_byte: float
    whole: float
    body: bytes


class Server:
    """`python -m webapp serve` on the data in `home`, started here and stopped at the end."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self._log = (home / f"server-{self.port}.log").open("wb")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "webapp", "serve", "--no-auth", "--port", str(self.port)],
            cwd=ROOT, env=environment(home), stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log,
        )  # fmt: skip
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            self.first_answer = self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> float:
        """Seconds from the start of the process to the first answered /healthz."""
        while time.perf_counter() - self.started < START_S:
            if self.process.poll() is not None:
                break
            try:
                self.get("/healthz")
                return time.perf_counter() - self.started
            except OSError:
                self._connection.close()
                time.sleep(0.002)
        log = Path(self._log.name).read_text("utf-8", "replace")[-2000:]
        raise RuntimeError(f"the server did not start:\n{log}")

    def get(self, path: str, headers: Mapping[str, str] | None = None, **args: str) -> Answer:
        """Asks for a page on a connection that is kept, as a browser does."""
        return self._ask(path + ("?" + urlencode(args) if args else ""), headers, 200)

    def unchanged(self, path: str, tag: str) -> Answer:
        """Asks for what has not changed since its tag was told."""
        return self._ask(path, {"If-None-Match": tag}, 304)

    def _ask(self, target: str, headers: Mapping[str, str] | None, status: int) -> Answer:
        start = time.perf_counter()
        self._connection.request("GET", target, headers=dict(headers or {}))
        response = self._connection.getresponse()
        first_byte = time.perf_counter() - start
        body = response.read()
        whole = time.perf_counter() - start
        if response.status != status:
            raise RuntimeError(f"{target} answered {response.status}: {body[:300]!r}")
        return Answer(first_byte, whole, body)

    def megabytes(self) -> float:
        """Memory that the process holds (resident set)."""
        return resident(self.process.pid)

    def peak(self) -> float:
        """The most memory that the process has held so far, in megabytes."""
        return resident(self.process.pid, "VmHWM:")

    def stop(self) -> None:
        """Ends the server."""
        self._connection.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._log.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def resident(pid: int, what: str = "VmRSS:") -> float:
    """Resident megabytes of a process, now or (VmHWM) at the most; elsewhere than on Linux what `ps`
    says now."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        return int(status.split(what)[1].split()[0]) * 1024 / 1e6
    except FileNotFoundError:
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        return int(subprocess.run(command, capture_output=True, check=True).stdout) * 1024 / 1e6
