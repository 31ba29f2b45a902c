"""What every browser test stands on: the real program, a real browser, and no silent page problem.

`server` starts the program, `page` is a tab, `context_factory` makes further browsers with another
look or without script. A console error, an uncaught exception, a broken content security policy or
a request to another host fails the test at its end. A test that provokes one says which:
`@pytest.mark.allow_page_problems("404")`, or `page_problems.allow("404")`.
"""

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "test-results"
START_SECONDS = 30
STOP_SECONDS = 15

BROWSER_ARGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


REPORT_CSP_VIOLATIONS = """
addEventListener("securitypolicyviolation", (e) => window.__cspViolation(
  `${e.effectiveDirective} refused ${e.blockedURI} at ${e.sourceFile}:${e.lineNumber}`));
"""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is `e2e`, and runs last: once started, Playwright's event loop stays."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: HERE in item.path.parents)


LOGS = pytest.StashKey[list[Path]]()
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        for log in item.stash.get(LOGS, []):
            text = log.read_text(encoding="utf-8", errors="replace")
            report.sections.append((f"server log {log}", text[-20_000:]))
    return report


@dataclass
class Server:
    url: str  # http://127.0.0.1:PORT, without a slash at the end
    port: int
    home: Path
    env: dict[str, str]
    log_path: Path
    process: subprocess.Popen[bytes]

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> int:
        """End it as a person would, and say how it ended. One that does not stop is a failure."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                pytest.fail(f"the server did not stop within {STOP_SECONDS} s of SIGTERM")
        return self.process.returncode

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def own_environment(home: Path) -> dict[str, str]:
    """This environment without a setting of OpenCode's or ours, and with a home of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENCODE", "XDG_"))}
    env["HOME"] = str(home)
    for name, folder in {
        "XDG_DATA_HOME": ".local/share",
        "XDG_CONFIG_HOME": ".config",
        "XDG_CACHE_HOME": ".cache",
        "XDG_STATE_HOME": ".local/state",
    }.items():
        env[name] = str(home / folder)
    env["PYTHONPATH"] = str(ROOT)
    env["PYTHONUNBUFFERED"] = "1"
    return env


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """A function that starts the real program and waits for its /healthz.

    server(*extra, options=(), env=None, home=None, cwd=None) -> Server

    `extra` stands behind `serve`, `options` (--db and the like) before it. `home` defaults to
    `tmp_path / "home"`; one that a test filled, or another server's, is taken as it is.
    """
    started: list[Server] = []
    logs = request.node.stash.setdefault(LOGS, [])

    def start(
        *extra: str,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        home: Path | None = None,
        cwd: Path | None = None,
    ) -> Server:
        home = home or tmp_path / "home"
        home.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = [sys.executable, "-m", "webapp", *options]
        command += ["serve", "--host", "127.0.0.1", "--port", str(port), *extra]
        log_path = tmp_path / f"server-{len(logs) + 1}.log"
        logs.append(log_path)
        environment = {**own_environment(home), **(env or {})}
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=cwd or home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        running = Server(f"http://127.0.0.1:{port}", port, home, environment, log_path, process)
        started.append(running)
        deadline = time.monotonic() + START_SECONDS
        while not answers(f"{running.url}/healthz"):
            if process.poll() is not None:
                pytest.fail(f"the server did not start: exit code {process.returncode}")
            if time.monotonic() > deadline:
                pytest.fail(f"the server did not answer /healthz within {START_SECONDS} s")
            time.sleep(0.05)
        return running

    with contextlib.ExitStack() as at_end:
        yield start
        for running in started:
            at_end.callback(running.stop)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    spec = importlib.util.spec_from_file_location("ensure_browser", HERE / "ensure_browser.py")
    assert spec is not None and spec.loader is not None
    ensure_browser = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ensure_browser)
    found = ensure_browser.find_browser()
    if found is None:
        pytest.fail("no browser: run python tests/e2e/ensure_browser.py first, as make test does")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=found,
            headless=True,
            # As root Chromium starts only with --no-sandbox, which False adds. Others keep it.
            chromium_sandbox=os.geteuid() != 0,
            args=BROWSER_ARGS,
        )
        yield launched
        launched.close()


@dataclass
class PageProblems:
    """What the pages of one test complained about."""

    found: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)

    def allow(self, *patterns: str) -> None:
        """Problems that one of these regular expressions finds are meant."""
        self.allowed += patterns

    def left(self) -> list[str]:
        return [p for p in self.found if not any(re.search(rule, p) for rule in self.allowed)]

    def watch(self, context: BrowserContext) -> None:
        context.expose_binding("__cspViolation", lambda _, text: self.found.append(f"csp: {text}"))
        context.add_init_script(REPORT_CSP_VIOLATIONS)
        context.on("console", self._console)
        context.on("weberror", lambda e: self.found.append(f"exception: {e.error}"))
        context.on("request", lambda r: self._request(r.url))

    def _console(self, message: Any) -> None:
        if message.type == "error":
            place = message.location.get("url", "")
            self.found.append(f"console: {message.text} ({place})")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        local = parts.hostname in ("127.0.0.1", "localhost", "::1")
        if parts.scheme in ("http", "https", "ws", "wss") and not local:
            self.found.append(f"request to another host: {url}")


@pytest.fixture
def page_problems(request: pytest.FixtureRequest) -> PageProblems:
    problems = PageProblems()
    for marker in request.node.iter_markers("allow_page_problems"):
        problems.allow(*(marker.args or ("",)))
    return problems


@pytest.fixture
def context_factory(
    request: pytest.FixtureRequest,
    browser: Browser,
    page_problems: PageProblems,
    server: Callable[..., Server],  # only so that pages close before the server that they poll
) -> Iterator[Callable[..., BrowserContext]]:
    """A function that opens a fresh browser profile, watched for problems and closed at the end.

    context_factory(*, storage_state=None, viewport=(1280, 800), color_scheme="light",
                    java_script_enabled=True, **more) -> BrowserContext

    `more` goes to Playwright's `new_context` as it is: `base_url`, `permissions`, `has_touch`, ...
    """
    contexts: list[BrowserContext] = []

    def make(
        *,
        storage_state: Any = None,
        viewport: tuple[int, int] = (1280, 800),
        color_scheme: Any = "light",
        java_script_enabled: bool = True,
        **more: Any,
    ) -> BrowserContext:
        context = browser.new_context(
            storage_state=storage_state,
            viewport={"width": viewport[0], "height": viewport[1]},
            color_scheme=color_scheme,
            java_script_enabled=java_script_enabled,
            **more,
        )
        contexts.append(context)
        context.set_default_timeout(10_000)
        page_problems.watch(context)
        return context

    yield make

    problems = page_problems.left()
    if problems or request.node.stash.get(FAILED, False):
        keep_pictures(request.node.nodeid, contexts)
    for context in contexts:
        context.close()
    problems = page_problems.left()
    if problems:
        pytest.fail("the page complained:\n" + "\n".join(f"  {p}" for p in problems), pytrace=False)


def keep_pictures(test: str, contexts: Sequence[BrowserContext]) -> None:
    RESULTS.mkdir(exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", test.removeprefix("tests/e2e/"))[:150]
    pages = [page for context in contexts for page in context.pages if not page.is_closed()]
    for number, page in enumerate(pages, 1):
        # A picture that cannot be taken must not hide the failure that it was to show.
        with contextlib.suppress(Exception):
            page.screenshot(path=RESULTS / f"{name}-{number}.png", timeout=5_000)


@pytest.fixture
def page(context_factory: Callable[..., BrowserContext]) -> Page:
    """A tab in a fresh profile: `page.context.new_page()` is a second one in the same."""
    return context_factory().new_page()
