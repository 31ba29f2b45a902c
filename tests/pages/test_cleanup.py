"""`/cleanup`: the options, the dry run, and the apply of exactly that plan."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

SHOP = "/home/demo/shop"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
EMPTY = "ses_dd3fa4afcffekVr5jSKEyzYeLu"
LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"


@pytest.fixture
def full(site: Any) -> Any:
    """Every session of the fixture exported."""
    site.export_all()
    return site


def files(site: Any) -> set[str]:
    """The transcripts on disk."""
    return {path.stem for path in site.settings.transcripts_dir.glob("*/*.md")}


def dry_run(site: Any, **options: Any) -> Any:
    """The page with the plan, asked for through the form."""
    page = site.get("/cleanup")
    answer = site.submit(page, page.form("/cleanup"), "Dry run", **options)
    assert answer.status == 200, answer.text
    return answer


def planned(answer: Any) -> list[str]:
    """The sessions that would go."""
    rows = answer.doc.all("tr", data_item="")
    return [row.one("a").attrs["href"].rsplit("/", 1)[1] for row in rows]


def plan_title(answer: Any) -> str:
    title: str = answer.doc.one("h2", id="plan-title").text
    return title


def apply(site: Any, answer: Any) -> Any:
    """Presses the button of a dry run."""
    form = answer.form("/cleanup", method="post")
    return site.submit(answer, form, form.one("button").text)


def test_before_anything_is_asked_there_is_no_plan(full: Any) -> None:
    answer = full.get("/cleanup")
    assert answer.status == 200
    assert not answer.doc.all(id="plan-title")
    assert "The library has 15 transcripts" in answer.text
    fields = dict(answer.fields(answer.form("/cleanup")))
    assert fields == {"retention_days": "0", "max_sessions": "0", "keep_recent": "10", "scope": "",
                      "session": ""}  # fmt: skip


def test_with_every_rule_off_nothing_would_go(full: Any) -> None:
    answer = dry_run(full)
    assert plan_title(answer) == "Nothing would be removed"
    assert "Every rule is off" in answer.text
    assert not answer.doc.all("form", class_="apply")


def test_a_dry_run_names_each_transcript_its_reason_and_bytes_and_changes_nothing(
    full: Any,
) -> None:
    before = files(full)
    answer = dry_run(full, max_sessions="12", keep_recent="10")
    assert len(planned(answer)) == 3
    assert plan_title(answer).startswith("3 of 15 transcripts would go, ")
    for row in answer.doc.all("tr", data_item=""):
        cells = [cell.text for cell in row.all("td")]
        assert cells[1:3] == [SHOP, "more than 12 in its project"]
        assert re.fullmatch(r"[\d.]+ [KM]?B", cells[3])
    assert re.search(r"plan [0-9a-f]{12}", answer.text)
    assert files(full) == before
    assert full.get("/receipts").doc.all(class_="empty")


def test_the_plan_is_in_the_address(full: Any) -> None:
    query = urlencode({"max_sessions": 2, "keep_recent": 1, "session": KEYS, "scope": SHOP})
    one, two = full.get(f"/cleanup?{query}"), full.get(f"/cleanup?{query}")
    assert planned(one) == planned(two) and len(planned(one)) >= 13
    fields = dict(one.fields(one.form("/cleanup", method="get")))
    assert fields["session"] == KEYS and fields["scope"] == SHOP and fields["max_sessions"] == "2"


def test_apply_removes_exactly_the_plan_through_a_job_and_leaves_a_receipt(full: Any) -> None:
    before = files(full)
    answer = dry_run(full, session=f"{KEYS}, {EMPTY} {LONG}", keep_recent="0")
    assert set(planned(answer)) == {KEYS, EMPTY, LONG}
    sizes = {
        path.stem: sum(f.stat().st_size for f in path.parent.glob(f"{path.stem}.*"))
        for path in full.settings.transcripts_dir.glob("*/*.md")
    }
    started = apply(full, answer)
    assert started.status == 303
    job = full.finished(started)
    assert "3 of 3" in job.text
    assert files(full) == before - {KEYS, EMPTY, LONG}
    assert not list(full.settings.transcripts_dir.glob(f"*/{LONG}.*"))

    receipt = full.get(next(a for a in job.doc.all("a") if a.text == "Receipt").attrs["href"])
    assert receipt.main.one("h1").text == "Removed 3 transcripts"
    rows = receipt.doc.all("tr", data_item="")
    gone = {row.one("a").attrs["href"].rsplit("/", 1)[1] for row in rows}
    assert gone == {KEYS, EMPTY, LONG}
    (detail,) = full.rows("SELECT detail FROM receipts WHERE action = 'cleanup'")
    said = json.loads(detail[0])
    assert (said["planned"], said["removed"], said["interrupted"]) == (3, 3, False)
    assert said["bytes"] == sum(sizes[name] for name in gone)
    assert full.get(f"/transcripts/{LONG}").status == 410


def test_a_removed_transcript_is_not_exported_again_by_itself(full: Any) -> None:
    full.finished(apply(full, dry_run(full, session=KEYS, keep_recent="0")))
    again = full.post("/transcripts/export")
    assert again.location == "/transcripts"
    assert KEYS not in files(full)


def change_by_growth(site: Any) -> None:
    path = next(site.settings.transcripts_dir.glob(f"*/{KEYS}.md"))
    os.utime(path)
    site.rows("UPDATE transcripts SET updated_at = updated_at + 1 WHERE session_id = ?", KEYS)


def change_by_a_new_one(site: Any) -> None:
    site.foreign_transcript("ses_new", f"# New\nscope: {SHOP}\n")


def change_by_removal(site: Any) -> None:
    next(site.settings.transcripts_dir.glob(f"*/{EMPTY}.md")).unlink()


@pytest.mark.parametrize("change", [change_by_growth, change_by_a_new_one, change_by_removal])
def test_a_changed_library_is_refused_with_the_new_plan(full: Any, change: Any) -> None:
    answer = dry_run(full, max_sessions="5", keep_recent="1")
    (old,) = [v for k, v in answer.fields(answer.form("/cleanup", method="post"))
              if k == "fingerprint"]  # fmt: skip
    change(full)
    before = files(full)
    refused = apply(full, answer)
    assert refused.status == 409
    assert "nothing was removed" in refused.doc.one(role="alert").text
    assert files(full) == before
    assert full.rows("SELECT count(*) FROM receipts") == [(0,)]
    form = refused.form("/cleanup", method="post")
    new = dict(refused.fields(form))
    assert new["fingerprint"] != old
    assert (new["max_sessions"], new["keep_recent"]) == ("5", "1")
    job = full.finished(apply(full, refused))
    assert job.doc.one(class_="banner").text.startswith("Done.")
    assert len(full.rows("SELECT 1 FROM transcripts WHERE removed_at IS NULL")) < len(before)


def test_a_made_up_fingerprint_removes_nothing(full: Any) -> None:
    before = files(full)
    for mark in ("", "x", "0" * 12, "<script>", "0" * 9000):
        answer = full.post(
            "/cleanup", {"max_sessions": "1", "keep_recent": "0", "fingerprint": mark}
        )
        assert answer.status == 409
        answer.assert_inert()
    assert files(full) == before


def test_the_fingerprint_of_other_options_removes_nothing(full: Any) -> None:
    answer = dry_run(full, max_sessions="12")
    fields = dict(answer.fields(answer.form("/cleanup", method="post")))
    before = files(full)
    assert full.post("/cleanup", {**fields, "max_sessions": "1"}).status == 409
    assert files(full) == before


def test_a_second_apply_while_one_runs_leads_to_the_running_one(full: Any) -> None:
    import threading

    answer = dry_run(full, session=KEYS, keep_recent="0")
    release = threading.Event()
    running = full.jobs.start("cleanup", "Removing transcripts", lambda job: release.wait(10))
    try:
        assert apply(full, answer).location == f"/jobs/{running.id}"
        assert KEYS in files(full)
    finally:
        release.set()


def test_what_is_protected_is_shown_with_its_reason(full: Any) -> None:
    full.foreign_transcript("ses_other", f"# Other\nscope: {SHOP}\nx\n")
    answer = dry_run(full, session="ses_other", retention_days="1", keep_recent="100")
    assert plan_title(answer) == "Nothing would be removed"
    assert "What the rules name is protected" in answer.text
    answer = dry_run(full, session=f"ses_other {KEYS} ses_nosuch", keep_recent="0")
    assert planned(answer) == [KEYS]
    assert "written by another program" in answer.doc.one("details").text
    assert "Not in the library: ses_nosuch" in answer.text


def test_another_programs_transcript_is_never_removed(full: Any) -> None:
    path = full.foreign_transcript("ses_other", f"# Other\nscope: {SHOP}\nx\n")
    os.utime(path, (1, 1))
    full.finished(
        apply(full, dry_run(full, session="ses_other", max_sessions="1", keep_recent="0"))
    )
    assert path.read_text() == f"# Other\nscope: {SHOP}\nx\n"


def test_a_project_narrows_the_plan(full: Any) -> None:
    assert planned(full.get("/cleanup?max_sessions=1&keep_recent=0&scope=/nowhere")) == []
    assert len(planned(full.get(f"/cleanup?max_sessions=1&keep_recent=0&scope={SHOP}"))) == 14


@pytest.mark.parametrize("name", ["retention_days", "max_sessions", "keep_recent"])
def test_a_bad_number_is_refused_with_a_sentence(site: Any, name: str) -> None:
    for value in ("-1", "x", "1.5", "²", "٣", "1e3", "9" * 8, "9" * 5000, "1000001", "\0"):
        answer = site.get(f"/cleanup?{urlencode({'retention_days': '0', name: value})}")
        assert answer.status == 400, value
        assert answer.doc.one(role="alert").text
        posted = site.post("/cleanup", {"retention_days": "0", name: value, "fingerprint": "x"})
        assert posted.status == 400, value


def test_an_odd_session_is_told_as_unknown(full: Any) -> None:
    for session in ("..", "../../etc/passwd", "\0", "<script>", "x" * 5000, "a,b c"):
        answer = full.get(f"/cleanup?{urlencode({'session': session})}")
        assert answer.status == 200, session
        assert "Not in the library" in answer.text
        answer.assert_inert()


def test_an_empty_library_is_no_error(site: Any) -> None:
    answer = dry_run(site, max_sessions="1", keep_recent="0")
    assert plan_title(answer) == "Nothing would be removed"
    assert not site.settings.db.exists()


def test_the_defaults_are_those_of_the_settings(settings: Any, make_site: Any) -> None:
    from dataclasses import replace

    site = make_site(replace(settings, retention_days=90, max_sessions=200, keep_recent=3))
    page = site.get("/cleanup")
    fields = dict(page.fields(page.form("/cleanup")))
    assert (fields["retention_days"], fields["max_sessions"], fields["keep_recent"]) == (
        "90", "200", "3",
    )  # fmt: skip


def test_a_transcript_that_cannot_be_removed_is_told_and_the_rest_goes(
    full: Any, tmp_path: Path
) -> None:
    answer = dry_run(full, session=f"{KEYS} {EMPTY}", keep_recent="0")
    form = answer.form("/cleanup", method="post")
    marks = next(full.settings.transcripts_dir.glob(f"*/{KEYS}.marks"))
    marks.unlink()
    marks.mkdir()
    refused = full.submit(answer, form, form.one("button").text)
    if refused.status == 409:  # the bytes beside it are part of what the plan was made for
        form = refused.form("/cleanup", method="post")
        refused = full.submit(refused, form, form.one("button").text)
    job = full.finished(refused)
    assert EMPTY not in files(full)
    assert job.status == 200
    assert KEYS in job.text


# What was removed and lies aside ----------------------------------------------------------------


def figures(answer: Any) -> dict[str, str]:
    """The figures between the form and the plan."""
    boxes = answer.doc.one("dl", class_="figures").all("div")
    return {box.one("dt").text: box.one("dd").text for box in boxes}


def test_an_unused_installation_has_nothing_to_give_back(site: Any) -> None:
    answer = site.get("/cleanup")
    assert figures(answer) == {
        "in the 7-day trash": "0 B", "transcripts in it": "0", "the next goes": "—",
        "reclaimed so far": "0 B",
    }  # fmt: skip
    assert not answer.has_form("/cleanup/trash")
    assert not site.settings.data_dir.exists()


def test_the_bytes_are_told_before_in_between_and_after(full: Any) -> None:
    answer = dry_run(full, session=f"{KEYS} {EMPTY}", keep_recent="0")
    planned_bytes = figures(answer)["reclaimable"]
    assert planned_bytes in plan_title(answer)
    full.finished(apply(full, answer))

    page = full.get("/cleanup")
    shown = figures(page)
    assert shown["transcripts in it"] == "2"
    assert shown["the next goes"] in ("in 6 d", "in 7 d", "in 1 w")
    assert shown["reclaimed so far"] == "0 B"
    form = page.form("/cleanup/trash")
    button = form.one("button")
    assert "for good" in button.attrs["data-confirm"]
    assert "cannot be put back" in form.text and shown["in the 7-day trash"] in form.text
    given = full.follow(full.submit(page, form, "Give these bytes back now"))
    assert given.toasts == [f"Gave {shown['in the 7-day trash']} back."]
    after = figures(given)
    assert after["transcripts in it"] == "0" and after["the next goes"] == "—"
    assert after["reclaimed so far"] == shown["in the 7-day trash"]
    assert not given.has_form("/cleanup/trash")
    assert not list((full.settings.data_dir / "trash").glob("*/*"))

    ((number, actor),) = full.rows("SELECT id, actor FROM receipts WHERE action = 'swept'")
    receipt = full.get(f"/receipts/{number}")
    assert actor == "tester"
    assert receipt.main.one("h1").text == "Gave back the bytes of 2 removed transcripts for good"
    assert receipt.facts["why"] == "on demand"
    assert set(receipt.facts["ids"].split(", ")) == {KEYS, EMPTY}
    gone = full.get(f"/transcripts/{KEYS}")
    assert gone.status == 410 and not gone.has_form(f"/transcripts/{KEYS}/undo")


def test_what_was_removed_after_the_page_was_shown_is_kept(full: Any) -> None:
    full.finished(apply(full, dry_run(full, session=KEYS, keep_recent="0")))
    page = full.get("/cleanup")
    full.finished(apply(full, dry_run(full, session=EMPTY, keep_recent="0")))
    full.follow(full.submit(page, page.form("/cleanup/trash"), "Give these bytes back now"))
    assert {p.stem.split(".")[0] for p in (full.settings.data_dir / "trash").glob("*/*.md")} == {
        EMPTY
    }
    again = full.submit(page, page.form("/cleanup/trash"), "Give these bytes back now")
    assert full.follow(again).toasts == ["There was nothing to give back."]


@pytest.mark.parametrize("until", ["", "x", "-1", "1.5", "9" * 20, "²", "<script>"])
def test_bytes_are_not_given_back_without_saying_which(full: Any, until: str) -> None:
    full.finished(apply(full, dry_run(full, session=KEYS, keep_recent="0")))
    answer = full.post("/cleanup/trash", {"until": until})
    assert answer.status == 400
    answer.assert_inert()
    assert list((full.settings.data_dir / "trash").glob("*/*.md"))


def test_a_doubtful_clock_is_told(full: Any) -> None:
    full.finished(apply(full, dry_run(full, session=KEYS, keep_recent="0")))
    assert "the clock says" not in full.get("/cleanup").text
    (path,) = (full.settings.data_dir / "trash").glob("*/*.md")
    path.rename(path.with_name(f"{KEYS}.{4_000_000_000_000}.md"))
    assert "later than the clock says" in full.get("/cleanup").text


def test_the_receipt_of_a_killed_cleanup_shows_what_the_index_tells(full: Any) -> None:
    full.finished(apply(full, dry_run(full, session=f"{KEYS} {EMPTY}", keep_recent="0")))
    ((number, detail),) = full.rows("SELECT id, detail FROM receipts WHERE action = 'cleanup'")
    killed = {
        **json.loads(detail),
        "interrupted": True,
        "removed": 0,
        "bytes": 0,
        "transcripts": [],
    }
    full.rows("UPDATE receipts SET detail = ? WHERE id = ?", json.dumps(killed), number)
    page = full.get(f"/receipts/{number}")
    assert page.main.one("h1").text == "Removed 2 transcripts of 2 planned, then stopped"
    assert len(page.doc.all("tr", data_item="")) == 2
    full.submit(page, page.form(f"/receipts/{number}/undo"), "Put 2 transcripts back")
    assert {KEYS, EMPTY} <= files(full)
    after = full.get(f"/receipts/{number}")
    assert len(after.doc.all("tr", data_item="")) == 2
    assert "put back2" in after.main.one("dl", class_="facts").text
    assert full.rows("SELECT count(*) FROM receipts WHERE action = 'undo'") == [(1,)]
