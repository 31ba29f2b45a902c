"""`/jobs/<id>`: progress that a page polls, the end of polling, stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from webapp.errors import Unreadable
from webapp.web.jobs import Job


class Gate:
    """Work that a test lets go on when it likes."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.begun = threading.Event()
        self.go = threading.Event()
        self.work: Callable[[Job], None] = lambda job: None

    def start(self, kind: str = "export", title: str = "Exporting <b>sessions</b>") -> Any:
        """A job that has done 3 of 10 and waits."""

        def run(job: Job) -> None:
            job.total, job.done, job.note = 10, 3, "<script>alert(1)</script>"
            self.begun.set()
            self.go.wait(20)
            self.work(job)

        job = self.site.jobs.start(kind, title, run)
        assert self.begun.wait(20)
        return job

    def finish(self, job: Any) -> None:
        """Lets it go on and waits for its end."""
        self.go.set()
        deadline = time.monotonic() + 20
        while job.running:
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.fixture
def gate(site: Any) -> Iterator[Gate]:
    made = Gate(site)
    yield made
    made.go.set()


def test_a_running_job_shows_how_far_it_is_and_polls(gate: Gate) -> None:
    job = gate.start()
    answer = gate.site.get(f"/jobs/{job.id}")
    assert answer.status == 200 and answer.is_page
    answer.assert_inert()
    box = answer.doc.one("div", id="job")
    assert box.attrs["hx-get"] == f"/jobs/{job.id}"
    assert "every" in box.attrs["hx-trigger"] and box.attrs["hx-target"] == "this"
    progress = box.one("progress")
    assert (progress.attrs["value"], progress.attrs["max"]) == ("3", "10")
    assert "3 of 10" in box.text and "<script>alert(1)</script>" in box.text
    assert answer.doc.one("noscript").one("meta").attrs["http-equiv"] == "refresh"


def test_a_poll_of_a_running_job_goes_on_with_200_and_a_fragment(gate: Gate) -> None:
    job = gate.start()
    answer = gate.site.fragment(f"/jobs/{job.id}", "job")
    assert answer.status == 200
    assert not answer.is_page
    assert answer.html.strip() in gate.site.get(f"/jobs/{job.id}").html


def test_a_poll_of_a_job_that_is_over_ends_the_polling_with_286(gate: Gate) -> None:
    job = gate.start()
    gate.work = lambda job: setattr(job, "done", 10)
    gate.finish(job)
    part = gate.site.fragment(f"/jobs/{job.id}", "job")
    assert part.status == 286
    assert part.doc.one(class_="banner").text == "Done."
    assert not part.doc.all("form")
    page = gate.site.get(f"/jobs/{job.id}")
    assert page.status == 200
    assert "hx-get" not in page.doc.one("div", id="job").attrs
    assert "http-equiv" not in page.html
    restored = gate.site.fragment(
        f"/jobs/{job.id}", "job", **{"HX-History-Restore-Request": "true"}
    )
    assert restored.status == 200 and restored.is_page


def test_a_job_can_be_stopped_without_script_and_says_what_was_done(gate: Gate) -> None:
    job = gate.start()
    page = gate.site.get(f"/jobs/{job.id}")
    stopped = gate.site.submit(page, page.form(f"/jobs/{job.id}/stop"), "Stop")
    assert stopped.location == f"/jobs/{job.id}"
    assert job.stop.is_set()
    gate.finish(job)
    after = gate.site.get(f"/jobs/{job.id}")
    assert "Stopped: 3 of 10 were done" in after.doc.one(class_="banner").text


def test_a_job_that_fails_says_why(gate: Gate) -> None:
    def fail(job: Job) -> None:
        raise Unreadable("The disk <b>is</b> full.")

    job = gate.start()
    gate.work = fail
    gate.finish(job)
    answer = gate.site.get(f"/jobs/{job.id}")
    assert answer.doc.one(role="alert").text == "The disk <b>is</b> full."
    answer.assert_inert()


def test_an_unexpected_failure_shows_no_traceback(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    job = gate.start()
    gate.work = lambda job: [][1]
    gate.finish(job)
    answer = gate.site.get(f"/jobs/{job.id}")
    assert "Something unexpected went wrong" in answer.doc.one(role="alert").text
    assert "IndexError" not in answer.html and "Traceback" not in answer.html
    assert "IndexError" in caplog.text


def test_problems_are_listed_and_escaped(gate: Gate) -> None:
    job = gate.start()
    gate.work = lambda job: job.problems.extend(
        f"<img src=x onerror=alert({n})>" for n in range(150)
    )
    gate.finish(job)
    answer = gate.site.get(f"/jobs/{job.id}")
    answer.assert_inert()
    assert "150 problems" in answer.text
    assert len(answer.main.all("li")) == 100


def test_the_same_work_is_not_begun_twice(gate: Gate) -> None:
    job = gate.start("export")
    again = gate.site.post("/transcripts/export")
    assert again.status == 303
    assert again.location == f"/jobs/{job.id}"


def test_a_stopped_export_keeps_what_is_done(site: Any) -> None:
    started = site.post("/transcripts/export")
    site.post(f"{started.location}/stop")
    site.finished(started)
    left = site.get("/transcripts?show=missing")
    done = len(list(site.settings.transcripts_dir.glob("*/*.md")))
    assert len(left.doc.all("tr", data_item="")) == 15 - done


@pytest.mark.parametrize("job_id", ["nosuch", "%00", "..", "a" * 5000, "%3Cscript%3E"])
def test_an_unknown_job_is_a_404_with_a_way_on(site: Any, job_id: str) -> None:
    for answer in (site.get(f"/jobs/{job_id}"), site.post(f"/jobs/{job_id}/stop")):
        assert answer.status == 404
        assert "/transcripts" in [a.attrs["href"] for a in answer.main.all("a")]
        answer.assert_inert()
    polled = site.fragment(f"/jobs/{job_id}", "job")
    assert polled.status == 404
