"""Find a Chromium for the browser tests, or bring one: `python tests/e2e/ensure_browser.py`.

In this order: the one that CHROMIUM names, an installed one, Playwright's own, Playwright's own
after a download, Debian's package (as root, where apt-get is). Prints the one that is used; without
any, says so and exits 1.

conftest.py asks the same `find_browser`, so the tests use what this program found.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_APPS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
DOWNLOAD_SECONDS = 240
APT_SECONDS = 420


class NoBrowser(Exception):
    """There is none; the message says what to do."""


def find_browser() -> Path | None:
    """The browser to use, if one is here. Raises NoBrowser when CHROMIUM names none."""
    if named := os.environ.get("CHROMIUM"):
        found = shutil.which(named)
        if found is None or not _starts(Path(found)):
            raise NoBrowser(f"CHROMIUM is set to {named}, which is not a browser that starts.")
        return Path(found)
    return next(filter(_starts, _candidates()), None)


def _candidates() -> Iterator[Path]:
    for name in NAMES:
        if found := shutil.which(name):
            yield Path(found)
    for app in (*MAC_APPS, *(str(Path.home()) + app for app in MAC_APPS)):
        if os.access(app, os.X_OK):
            yield Path(app)
    yield from _playwrights_own()


def _playwrights_own() -> Iterator[Path]:
    """Playwright's download, looked up in its folder: its driver would take a process to ask."""
    default = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    folder = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or f"{default}/ms-playwright")
    builds = (build for build in folder.expanduser().glob("chromium-*") if build.name[9:].isdigit())
    for build in sorted(builds, key=lambda build: int(build.name[9:]), reverse=True):
        yield from build.glob("chrome-linux*/chrome")
        yield from build.glob("chrome-mac*/*.app/Contents/MacOS/*")


def _starts(browser: Path) -> bool:
    """Ubuntu's chromium-browser only recommends a snap, and a download may lack its libraries."""
    try:
        done = subprocess.run([browser, "--version"], capture_output=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _run(command: list[str], seconds: int) -> str | None:
    """What went wrong, in one line, or None."""
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return str(error)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            # The whole group: Playwright downloads in a child of a child.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"no end after {seconds} seconds"
        if code == 0:
            return None
        output.seek(0)
        lines = output.read().decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    telling = [line for line in said if "error" in line.lower()] or said[-1:] or ["no output"]
    return f"exit code {code}: {telling[0]}"


def ensure_driver() -> None:
    """Playwright's own node is linked to libatomic, which a small Debian lacks."""
    command = [sys.executable, "-m", "playwright", "--version"]
    problem = _run(command, 60)
    if problem is not None:
        _debian_install("libatomic1")
        problem = _run(command, 60)
    if problem is not None:
        raise NoBrowser(
            f"Playwright does not start ({problem}); on Debian or Ubuntu: apt install libatomic1"
        )


def ensure_browser() -> Path:
    if browser := find_browser():
        return browser
    command = [sys.executable, "-m", "playwright", "install", "--no-shell", "chromium"]
    _announce_and_run(command, DOWNLOAD_SECONDS)
    if browser := find_browser():
        return browser
    _debian_install("chromium")
    if browser := find_browser():
        return browser
    raise NoBrowser(
        "No browser for the tests: install Chromium or Google Chrome, "
        "or set CHROMIUM to the path of one."
    )


def _debian_install(package: str) -> None:
    if shutil.which("apt-get") and os.geteuid() == 0:
        _announce_and_run(["apt-get", "update"], APT_SECONDS)
        command = ["apt-get", "install", "-y", "--no-install-recommends", package]
        _announce_and_run(command, APT_SECONDS)


def _announce_and_run(command: list[str], seconds: int) -> None:
    """Try it. Whether it helped is looked up afterwards, so a failure is only said."""
    print(f"browser: trying {' '.join(command)}", flush=True)
    problem = _run(command, seconds)
    if problem is not None:
        print(f"browser: that failed ({problem})", flush=True)


def main() -> int:
    try:
        ensure_driver()
        browser = ensure_browser()
    except NoBrowser as error:
        print(f"browser: {error}", file=sys.stderr)
        return 1
    print(f"browser: {browser}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
