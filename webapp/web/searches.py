"""Searches of the transcripts that go on while their page asks how far they are.

A page that shows an unfinished search asks again every half second; one that nobody asks about any
more is stopped, since its browser has gone away. They run in threads of their own, a few at a time,
so that however many people search, the server's threads are free for every other page.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable

from webapp.errors import MemoryAppError
from webapp.transcripts.grep import GrepResult, Search

AT_ONCE = 2
"""Searches that read the disk at the same time; each ripgrep takes all cores by itself."""

PATIENCE_S = 600.0
LEASE_S = 3.0
"""A search that nobody has looked at for so long is stopped."""

KEPT_S = 10.0
"""How long a finished search is kept for the pages that still wait for its end."""

FIRST_LOOK_S = 0.3
FIRST_HITS_S = 0.1
"""How long a request waits for the end of a search that it begins, without hits and with some."""

LOOKERS = 3
"""Requests that may wait for a search that has just begun; more would hold the server's threads."""


class Running:
    """A search, and who has looked at it last."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.seen = time.monotonic()
        self.ended: float | None = None
        self.is_waiting = True
        self.over = threading.Event()
        self.pages: set[str] = set()

    def result(self) -> GrepResult:
        """What has been found so far."""
        return self.search.result()


def _wait_for_hits(running: Running, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not running.search.has_hits:
        if running.over.wait(0.02):
            return


class Searches:
    """The searches of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_key: dict[Hashable, Running] = {}
        self._queue: deque[Running] = deque()
        self._active = 0
        self._lookers = threading.Semaphore(LOOKERS)
        self._watcher: threading.Thread | None = None

    def look(
        self, key: Hashable, make: Callable[[], Search], again: bool, page: str = ""
    ) -> Running:
        """The search of that key, begun if there is none; `again` says that a page asks once more
        for one that it has seen, so that a finished one will do. What `make` raises goes through.

        A `page` looks for one thing at a time: what it asked for before, as its text was typed, is
        stopped if no other page wants it.
        """
        with self._lock:
            self._forget()
            self._leave(page, key)
            held = self._by_key.get(key)
            if held is not None and (held.ended is None or again):
                held.seen = time.monotonic()
                held.pages.add(page)
                return held
        made = Running(make())
        made.pages.add(page)
        with self._lock:
            self._by_key[key] = made
            self._queue.append(made)
            self._next()
            if self._watcher is None or not self._watcher.is_alive():
                self._watcher = threading.Thread(target=self._watch, name="searches", daemon=True)
                self._watcher.start()
        if self._lookers.acquire(blocking=False):
            try:
                if not made.over.wait(min(FIRST_HITS_S, FIRST_LOOK_S)):
                    _wait_for_hits(made, FIRST_LOOK_S - FIRST_HITS_S)
            finally:
                self._lookers.release()
        return made

    def ahead(self, running: Running) -> int:
        """How many searches are before one that waits."""
        with self._lock:
            return self._queue.index(running) + self._active if running in self._queue else 0

    def stop(self) -> None:
        """Stops every search, at the end of the server."""
        with self._lock:
            held = list(self._by_key.values())
            self._queue.clear()
        for running in held:
            running.search.stop()

    def _leave(self, page: str, key: Hashable) -> None:
        for other, running in list(self._by_key.items()):
            if page and other != key and page in running.pages:
                running.pages.discard(page)
                if not running.pages and running.ended is None:
                    self._drop(other, running)

    def _drop(self, key: Hashable, running: Running) -> None:
        del self._by_key[key]
        if running in self._queue:
            self._queue.remove(running)
        running.search.stop()

    def _next(self) -> None:
        while self._queue and self._active < AT_ONCE:
            running = self._queue.popleft()
            running.is_waiting = False
            self._active += 1
            threading.Thread(target=self._run, args=(running,), name="search", daemon=True).start()

    def _run(self, running: Running) -> None:
        try:
            running.search.run(PATIENCE_S)
        except MemoryAppError as error:
            running.search.fail(error.message)
        except Exception:
            logging.getLogger(__name__).exception("a search failed")
            running.search.fail("The search failed; the server's log says why.")
        finally:
            with self._lock:
                running.ended = time.monotonic()
                self._active -= 1
                self._next()
            running.over.set()

    def _watch(self) -> None:
        while True:
            time.sleep(0.5)
            with self._lock:
                self._forget()
                if not self._by_key:
                    self._watcher = None
                    return

    def _forget(self) -> None:
        now = time.monotonic()
        for key, running in list(self._by_key.items()):
            if running.ended is not None:
                if now - max(running.ended, running.seen) > KEPT_S:
                    del self._by_key[key]
            elif now - running.seen > LEASE_S:
                self._drop(key, running)
