"""What is built installs into an empty environment and serves pages, far from this folder."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest

ROOT = Path(__file__).parents[1]

# What pip says, as a warning before its error, when the package index could not be asked.
NO_ANSWER = re.compile(
    r"NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProxyError|ConnectionResetError"
)


def environment(home: Path) -> dict[str, str]:
    """Nothing of this folder, of a person's settings, or of the running environment."""
    dropped = ("OPENCODE", "XDG_", "PYTHONPATH", "VIRTUAL_ENV")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**env, "HOME": str(home), "PYTHONUNBUFFERED": "1"}


def run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    if done.returncode != 0 and NO_ANSWER.search(done.stdout):
        pytest.skip("the package index does not answer, so nothing can be built or installed")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, which was built from the sdist."""
    folder = tmp_path_factory.mktemp("wheel")
    dist, venv = folder / "dist", folder / "venv"
    run(sys.executable, "-m", "build", "--outdir", dist, ROOT, cwd=folder)
    (wheel,) = dist.glob("*.whl")
    run(sys.executable, "-m", "venv", venv, cwd=folder)
    pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--constraint", ROOT / "constraints.txt", wheel, cwd=folder)
    return venv / "bin"


@contextlib.contextmanager
def serving(program: Path, folder: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "serve", "--port", str(port)],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                get(f"http://127.0.0.1:{port}/healthz")
                break
            except (urllib.error.URLError, OSError):
                alive = process.poll() is None and time.monotonic() < deadline
                assert alive, f"no answer; the server said:\n{log.read_text()}"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as response:
        assert response.status == 200
        body: bytes = response.read()
        return body


def test_the_wheel_serves_pages_and_static_files(installed: Path, tmp_path: Path) -> None:
    with serving(installed / "opencode-memory", tmp_path) as url:
        page = get(url).decode()
        htmx = re.search(r'src="([^"]*/htmx\.min\.js[^"]*)"', page)
        assert "</html>" in page
        assert htmx is not None, page
        sent = get(urljoin(url, htmx[1]))
    assert sent == (ROOT / "static" / "vendor" / "htmx.min.js").read_bytes()


def test_the_wheel_carries_every_template_and_static_file(installed: Path) -> None:
    (package,) = installed.parent.glob("lib/python*/site-packages/webapp")
    for name in ("templates", "static"):
        here = {p.relative_to(ROOT) for p in (ROOT / name).rglob("*") if p.is_file()}
        there = {p.relative_to(package) for p in (package / name).rglob("*") if p.is_file()}
        assert here
        assert there == here
