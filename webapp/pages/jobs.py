"""`/jobs/<id>`: the progress of long work, and the button that stops it."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, url_for
from werkzeug.utils import redirect

from webapp.web import current, render

blueprint = Blueprint("jobs", __name__)


@blueprint.get("/jobs/<job_id>")
def show(job_id: str) -> Any:
    """How far a job has come. A fragment of one that is over ends the polling: htmx stops at 286."""
    job = current.jobs().get(job_id)
    over = render.wants("job") and not job.running
    return render.page("job", "job", 286 if over else 200, job=job)


@blueprint.post("/jobs/<job_id>/stop")
def stop(job_id: str) -> Any:
    """Asks a job to stop after its present step; what is done stays done."""
    current.jobs().get(job_id).stop.set()
    return redirect(url_for("jobs.show", job_id=job_id), 303)
