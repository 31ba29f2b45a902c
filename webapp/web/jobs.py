"""Long work in a thread of its own, with progress that a page can poll and a way to stop it."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from webapp.errors import Conflict, MemoryAppError, NotFound

KEPT = 50


@dataclass
class Job:
    """One piece of long work. `result` and `problems` are for its page; `error` is why it failed."""

    id: str
    kind: str
    title: str
    done: int = 0
    total: int = 0
    note: str = ""
    state: str = "running"
    error: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def running(self) -> bool:
        """Whether the work still goes on."""
        return self.state == "running"


class Jobs:
    """The jobs of this process, the newest KEPT of them."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, kind: str, title: str, work: Callable[[Job], None]) -> Job:
        """Starts work in a thread. Raises Conflict if work of that kind is going on already."""
        with self._lock:
            for job in self._jobs.values():
                if job.kind == kind and job.running:
                    raise Conflict(f"{job.title} is already going on.", job=job.id)
            job = Job(secrets.token_hex(6), kind, title)
            self._jobs[job.id] = job
            for old in [j.id for j in self._jobs.values() if not j.running][:-KEPT]:
                del self._jobs[old]
        thread = threading.Thread(target=self._run, args=(job, work), name=kind, daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()
        return job

    def _run(self, job: Job, work: Callable[[Job], None]) -> None:
        try:
            work(job)
            job.state = "stopped" if job.stop.is_set() and job.done < job.total else "done"
        except MemoryAppError as error:
            job.state, job.error = "failed", error.message
        except Exception:
            logging.getLogger(__name__).exception("the job %s failed", job.kind)
            job.state = "failed"
            job.error = "Something unexpected went wrong; the server's log says what."

    def get(self, job_id: str) -> Job:
        """A job by id. Raises NotFound."""
        job = self._jobs.get(job_id)
        if job is None:
            raise NotFound("There is no such job; the server may have been restarted since.")
        return job

    def finish(self, seconds: float = 10) -> None:
        """Asks every job to stop after its present step, and waits for that."""
        for job in self._jobs.values():
            job.stop.set()
        for thread in self._threads:
            thread.join(seconds)
