"""`serve`, `demo` and `doctor`."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webapp import __version__
from webapp.cli.base import Run, command, fail
from webapp.errors import MemoryAppError, Unreadable
from webapp.scope import GLOBAL

if TYPE_CHECKING:
    from webapp.integration.serving import Note
    from webapp.settings import Settings

THREADS = 8


def _bound(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    # Not SO_REUSEADDR's meaning elsewhere: on Linux and macOS it only skips TIME_WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        # Only listening settles who owns the port: two servers may both bind before either listens.
        sock.listen(128)
    except OSError as error:
        sock.close()
        reason = error.strerror or "unknown reason"
        raise Unreadable(
            f"Port {port} on {host} cannot be used ({reason}). Is the program running already? "
            "Open its page, or choose another port with --port (0 picks a free one)."
        ) from error
    return sock


def _sweep_daily(services: Any, stopping: threading.Event) -> None:
    """Sweeps the trash, and what cleanups removed, at the start and then once a day, for as long as
    the server runs."""
    from webapp.memory import trash
    from webapp.store import now_ms
    from webapp.transcripts import aside

    log = logging.getLogger(__name__)
    while True:
        try:
            with services.store.session():
                swept = trash.sweep(services.store, services.settings.trash_days)
            if swept:
                log.warning("destroyed %d entries that were too long in the trash", swept)
        except MemoryAppError as error:
            log.warning("the trash was not swept: %s", error.message)
        try:
            with services.store.session():
                freed = aside.sweep(services.store, services.settings, now_ms())
            if freed:
                log.warning("%d bytes of transcripts removed a week ago are free now", freed)
        except MemoryAppError as error:
            log.warning("the removed transcripts were not swept: %s", error.message)
        if stopping.wait(86_400):
            return


def serve_app(
    run: Run, settings: Settings, open_browser: bool, made: tuple[Path, ...] = ()
) -> None:
    """Serves until SIGINT or SIGTERM; running requests and jobs are finished first. `made` names folders
    that were made for this server, and go with it if they are empty."""
    from dataclasses import replace

    from waitress.server import create_server

    from webapp import create_app
    from webapp.integration import serving
    from webapp.web import current
    from webapp.web.guards import MAX_BODY

    host = serving.loopback(settings.host)
    try:
        sock = _bound(host, settings.port)
    except Unreadable as error:
        seen = serving.look(settings)
        if seen.state is serving.State.OURS:
            raise Unreadable(
                f"OpenCode memory is served already. {seen.text} Stop it with: opencode-memory stop"
            ) from error
        raise
    port = sock.getsockname()[1]
    app = create_app(replace(settings, host=host, port=port))
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        handlers=[serving.LogHandler(settings)],
    )  # fmt: skip
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    services: Any = app.extensions[current.KEY]
    stopping = threading.Event()
    keepers = [
        threading.Thread(target=_sweep_daily, args=(services, stopping), daemon=True),
        threading.Thread(target=services.watcher.run, args=(stopping,), daemon=True),
    ]
    if settings.reflection:
        run_it = services.reflector.run
        keepers.append(threading.Thread(target=run_it, args=(stopping,), daemon=True))
    for keeper in keepers:
        keeper.start()
    server = create_server(
        app, sockets=[sock], threads=THREADS, ident=None, channel_timeout=60,
        max_request_body_size=MAX_BODY, clear_untrusted_proxy_headers=True,
    )  # fmt: skip
    shown = f"[{host}]" if ":" in host else host
    link = f"http://{shown}:{port}/"
    found = settings.opencode_databases()
    where = ", ".join(map(str, found)) or f"none found in {settings.opencode_dir}"
    text = [
        f"OpenCode memory is at {link}",
        f"  entries      {settings.db}",
        f"  transcripts  {settings.transcripts_dir}",
        f"  OpenCode     {where}",
        "  sign-in      none: every user of this machine can open the page",
        "Stop it with Ctrl-C.",
    ]
    data = {"url": link, "port": port, "pid": os.getpid(), "db": settings.db,
            "transcripts": settings.transcripts_dir, "opencode": found}  # fmt: skip

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)
    if open_browser:
        threading.Timer(0.3, webbrowser.open, (link,)).start()
    made = (*made, *serving.missing(settings))
    try:
        _leave_note(settings, serving.Note(
            os.getpid(), host, port, __version__, link, time.time_ns() // 1_000_000
        ))  # fmt: skip
        run.out(data, "\n".join(text))
        sys.stdout.flush()
        server.run()
    except KeyboardInterrupt:
        pass
    finally:
        try:
            stopping.set()
            services.searches.stop()
            services.jobs.finish()
            for keeper in keepers:
                keeper.join(10)
            server.close()
        finally:
            serving.clear(settings, made)


def _leave_note(settings: Settings, note: Note) -> None:
    """Leaves the note; without it the server serves all the same."""
    from webapp.integration import serving

    try:
        serving.write_note(settings, note)
    except Unreadable as error:
        click.echo(
            f"opencode-memory: {error.message} Other programs will not find this server.", err=True
        )


@command("opencode-memory serve --port 4750 --open", host="host")
@click.option("--host", metavar="ADDRESS", help="A loopback address; by default 127.0.0.1.")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
@click.option("--no-auth", is_flag=True, help="No sign-in: everybody on this machine may come in.")
@click.option(
    "--made", metavar="DIR", multiple=True, type=click.Path(path_type=Path),
    help="A folder made for this server: removed at its end if it is empty.",
)  # fmt: skip
def serve(run: Run, open_browser: bool, no_auth: bool, made: tuple[Path, ...]) -> None:
    """Serves the pages on this machine and prints the link."""
    serve_app(run, run.settings, open_browser, made)


@command("opencode-memory demo --port 0")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in a browser.")
def demo(run: Run, open_browser: bool) -> None:
    """Serves invented data from a temporary folder, which is removed at the end."""
    from dataclasses import replace

    from webapp.cli.demo import build, invented_home

    folder = Path(tempfile.mkdtemp(prefix="opencode-memory-demo-"))
    os.chmod(folder, 0o700)
    try:
        values: dict[str, Any] = {"data_dir": folder / "data", "db": folder / "data" / "memory.db",
                  "opencode_db": folder / "opencode.db", "trash_days": 30, "auto_sweep": False,
                  "reflection": False}  # fmt: skip
        settings = replace(
            run.settings, user="demo", places=invented_home(folder),
            origins={**run.settings.origins, **dict.fromkeys(values, "demo")}, **values,
        )  # fmt: skip
        build(settings)
        if not run.as_json:
            click.echo(f"Invented data in {folder}; nothing of yours is touched.")
        serve_app(run, settings, open_browser)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@command("opencode-memory status")
def status(run: Run) -> None:
    """Tells whether the server runs, where, and since when."""
    from webapp.integration import serving

    seen = serving.running(run.settings)
    is_running = seen.state is serving.State.OURS
    log = serving.log_path(run.settings)
    text = seen.text
    if seen.note is not None:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(seen.note.started_at / 1000))
        text += f" It started at {since}. {serving.outdated(seen.note, __version__)}".rstrip()
    if log.exists():
        text += f" What it complains about is in {log}."
    run.out({"running": is_running, "state": str(seen.state), "text": text, "server": seen.note,
             "log": log}, text)  # fmt: skip
    if not is_running:
        fail(1)


@command("opencode-memory stop", name="stop")
def stop_command(run: Run) -> None:
    """Ends the server that runs in the background; what it is doing is finished first."""
    from webapp.integration import serving

    seen = serving.running(run.settings)
    if seen.note is None:
        run.out({"stopped": False}, f"{seen.text} There is nothing of ours to stop.")
        fail(1)
        return
    if not serving.stop(run.settings, seen.note):
        raise Unreadable(f"It was told to end, but still runs (pid {seen.note.pid}).")
    text = f"The server at {seen.note.url} has ended."
    if run.settings.keep_serving:
        text += " Tools that OpenCode runs start it again, unless keep_serving is false."
    run.out({"stopped": True}, text)


@command("opencode-memory doctor", name="doctor")
@click.option("--rebuild", is_flag=True, help="Build the search indexes anew.")
@click.option("--vacuum", is_flag=True, help="Give the unused bytes of memory.db back.")
def doctor(run: Run, rebuild: bool, vacuum: bool) -> None:
    """Checks every piece and says in words what is wrong and what to do."""
    from webapp.cli.checks import checks

    project = None if run.scope == GLOBAL else Path(run.scope)
    found = checks(run.settings, rebuild, vacuum, project)
    text = "\n".join(f"{'ok  ' if c.ok else 'BAD '} {c.name}: {c.text}" for c in found)
    run.out({"healthy": all(c.ok for c in found), "checks": [
        {"name": c.name, "ok": c.ok, "text": c.text} for c in found]}, text)  # fmt: skip
    if not all(c.ok for c in found):
        fail(2)


@command("opencode-memory mcp", name="mcp")
def mcp_command(run: Run) -> None:
    """Serves the memory's tools to an agent over standard input and output (MCP).

    Agents start this themselves, in the folder of their project.
    """
    from webapp.mcp.server import serve as serve_tools  # the SDK takes most of a second to import

    serve_tools(run.settings, run.scope, __version__)


COMMANDS = (serve, demo, status, stop_command, doctor, mcp_command)
