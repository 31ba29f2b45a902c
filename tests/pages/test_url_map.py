"""Every address is visited once, on hostile data; no page costs more queries with more rows."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from webapp.memory import entries
from webapp.settings import Settings
from webapp.store import receipts
from webapp.web import current

SHOP = "/home/demo/shop"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
HOSTILE = "ses_dd3fa60a9ffeTXS1icqe58uEPT"


def real_values(site: Any) -> dict[str, str]:
    """For each argument of a rule something that is there."""
    job = site.jobs.start("other", "<script>alert(1)</script>", lambda job: None)
    ((receipt,),) = site.rows("SELECT max(id) FROM receipts")
    message = site.get(f"/sessions/{HOSTILE}").doc.all(class_="msg")[0].attrs["id"]
    return {"message_id": message, "entry_id": "hostile-0", "session_id": HOSTILE,
            "lines": "9-20", "line": "9", "job_id": job.id,
            "receipt_id": str(receipt), "filename": "app.css"}  # fmt: skip


def test_every_rule_answers_a_get_and_none_with_a_server_error(hostile: Any) -> None:
    values = real_values(hostile)
    expected = {"entries.listing": 302, "transcripts.go": 302, "transcripts.find": 302,
                "promote.show": 400, "inject.show": 403}  # fmt: skip
    boxes = (hostile.get(f"/sessions{path}").doc.one(id="news") for path in ("", f"/{HOSTILE}"))
    polls = [box.attrs["data-poll"] for box in boxes]
    asked = {
        name: "?" + urlsplit(poll).query
        for name, poll in zip(("news.sessions", "news.session"), polls, strict=True)
    }
    seen = set()
    for rule in hostile.app.url_map.iter_rules():
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda m: values[m[1]], rule.rule)
        path += asked.get(rule.endpoint, "")
        answer = hostile.get(path)
        writes = "GET" not in rule.methods or rule.endpoint.endswith(".only_by_post")
        pages_too = rule.rule in ("/entries", "/entries/<entry_id>", "/cleanup")
        if writes and not pages_too:
            assert answer.status == 405, path
        else:
            assert answer.status == expected.get(rule.endpoint, 302 if path == "/entries" else 200), (
                path, answer.text[:200],
            )  # fmt: skip
        answer.assert_inert()
        seen.add(rule.endpoint)
    assert len(seen) >= 25


HOSTILE_PAGES = (
    "/", "/?q=alert", "/?q=title+0", "/?kind=<script>alert(1)</script>", "/?scope=\"><svg onload=x>",
    "/?tag=' onfocus=x", "/?source=<b>", "/?since=2020-01-01&until=2030-01-01",
    "/?q=<script>alert(1)</script>&page=2", "/?q=\"' onfocus=x\"&kind=zzz",
    "/?tab=transcripts&q=alert", "/?tab=transcripts&q=<script>", "/?tab=transcripts&q=zzz\"><b>",
    "/?tab=transcripts&scope=\"><svg>&q=onerror", "/?page=<script>", "/?sort=\"><script>",
    "/?age=<b>", "/?since=\"><script>", "/entries/hostile-0", "/entries/hostile-2",
    "/entries/hostile-0/edit", "/entries/new?title=\"><script>&body=</textarea><script>x</script>"
    "&kind=\"><b>&scope=\"><b>&tags=\"><b>&expires=\"><b>&seen=\"><b>",
    "/entries/<script>", "/trash", "/trash/<script>/restore", "/sessions",
    "/sessions?project=\"><b>&agent=<b>&model=<b>&workspace=\"><svg>&q=<script>", "/sessions?order=<b>",
    "/sessions?after=\"><script>", "/sessions?parent=<script>", "/sessions?archived=<b>",
    "/sessions?since=<b>", "/sessions?errors=1&order=project", "/transcripts", "/transcripts?show=missing",
    "/transcripts?scope=\"><b>&q=\"><svg onload=x>", "/transcripts?sort=<script>",
    "/transcripts?show=\"><script>", f"/transcripts/{HOSTILE}", f"/transcripts/{HOSTILE}/9-20?q=alert",
    f"/transcripts/{HOSTILE}/9?h=\"><script>", f"/transcripts/{HOSTILE}/<script>",
    f"/transcripts/{HOSTILE}?wrap=\"><script>", "/transcripts/hostile", "/transcripts/hostile/3?q=<img",
    f"/sessions/{HOSTILE}", f"/sessions/{HOSTILE}?order=newest", f"/sessions/{HOSTILE}/<script>",
    f"/sessions/{HOSTILE}?at=\"><script>&after=<b>", f"/sessions/{HOSTILE}?order=\"><script>",
    f"/sessions/{HOSTILE}?before=\"><svg onload=x>", "/sessions/<script>alert(1)<script>",
    "/transcripts/<script>alert(1)<script>", "/cleanup?max_sessions=1&keep_recent=0",
    "/cleanup?session=<script>&scope=\"><b>", "/cleanup?max_sessions=<script>", "/receipts",
    "/receipts/1", "/receipts?before=<script>", "/promote?entry=hostile-0",
    "/promote?entry=hostile-0&to=file", f"/promote?session={HOSTILE}&lines=9-20",
    f"/promote?session={HOSTILE}&lines=9-20&to=file", "/promote?session=<script>&message=\"><b>",
    "/promote?session=hostile&lines=1-4&to=\"><b>", "/entries/new?session=\"><b>&lines=<b>&h=<b>&copy=<b>",
    "/stats", "/settings", "/jobs/<script>", "/<script>",
)  # fmt: skip


@pytest.mark.parametrize("htmx", [{}, {"HX-Request": "true", "HX-Target": "results"}])
def test_no_data_and_no_address_becomes_markup_on_any_page(
    hostile: Any, htmx: dict[str, str]
) -> None:
    for path in HOSTILE_PAGES:
        answer = hostile.get(path, headers=htmx)
        assert answer.status < 500, (path, answer.text[:200])
        answer.assert_inert()
        assert "49" not in re.findall(r"autofocus='.{0,40}", answer.text)


def test_the_hostile_data_is_really_on_the_pages(hostile: Any) -> None:
    for path in ("/", "/?q=alert", "/entries/hostile-0", "/entries/hostile-2", "/trash", "/stats",
                 "/sessions", "/transcripts", f"/transcripts/{HOSTILE}", f"/sessions/{HOSTILE}",
                 "/transcripts/hostile", "/receipts/1", "/?tab=transcripts&q=alert",
                 "/cleanup?max_sessions=1&keep_recent=0"):  # fmt: skip
        answer = hostile.get(path)
        assert "<script>alert(1)</script>" in answer.text, path
    form = hostile.get("/entries/hostile-0/edit")
    fields = dict(form.fields(form.form("/entries/hostile-0")))
    assert "<script>alert(1)</script>" in fields["title"]
    assert "</select><script>alert(7)</script>" in fields["tags"]


def test_the_pages_after_a_write_show_hostile_names_as_text(hostile: Any) -> None:
    gone = hostile.follow(hostile.post("/entries/hostile-1/forget"))
    gone.assert_inert()
    assert "<script>alert(1)</script>" in gone.toasts[0]
    ((title, scope),) = hostile.rows("SELECT title, scope FROM trash WHERE id = 'hostile-1'")
    hostile.foreign_entry("twin", title=title, scope=scope)
    conflict = hostile.post("/trash/hostile-1/restore")
    assert conflict.status == 409
    conflict.assert_inert()
    refused = hostile.post(
        "/entries/twin", {"title": "<script>", "kind": "", "body": "</textarea>"}
    )
    assert refused.status == 400
    refused.assert_inert()


def test_every_link_and_form_on_every_page_leads_somewhere(site: Any) -> None:
    """Follows every link of the site once, from a store with one of each."""
    site.save("Use WAL", scope=SHOP, tags=["a & b", "100%"], kind="my kind", source="a/b")
    gone = site.save("Gone")
    site.post(f"/entries/{gone.id}/forget")
    site.export_all()
    page = site.get(f"/cleanup?session={KEYS}&keep_recent=0")
    site.finished(site.submit(page, page.form("/cleanup", method="post"), "Remove 1 transcript"))
    posts = {rule.rule for rule in site.app.url_map.iter_rules() if "POST" in rule.methods}
    patterns = [re.compile(re.sub(r"<[^>]+>", "[^/]+", rule)) for rule in posts]
    todo = ["/", "/cleanup?max_sessions=3", "/?tab=transcripts&q=price"]
    seen: set[str] = set()
    while todo and len(seen) < 160:
        path = todo.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = site.get(path)
        if answer.status in (302, 303, 308):
            todo.append(urlsplit(answer.location)._replace(fragment="").geturl())
            continue
        assert answer.status in (200, 410), path
        for node in answer.doc.all("a") + answer.doc.all("link"):
            parts = urlsplit(urljoin("http://localhost" + path, node.attrs["href"]))
            # One link of each kind is enough: numbers and ids are told apart by their path only.
            kind = re.sub(r"\d+", "0", parts.path) + "?" + re.sub(r"=[^&]*", "", parts.query)
            if kind not in seen:
                seen.add(kind)
                todo.append(parts._replace(scheme="", netloc="", fragment="").geturl())
        for form in answer.doc.all("form", method="post"):
            action = urlsplit(form.attrs["action"]).path
            assert any(pattern.fullmatch(action) for pattern in patterns), action
    assert len(seen) > 40


# Queries ----------------------------------------------------------------------------------------


class Statements(logging.Handler):
    """The statements that Peewee ran, without those that look at the layout of the file."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        sql = str(record.msg[0] if isinstance(record.msg, tuple) else record.msg)
        if not sql.startswith("PRAGMA") and "sqlite_master" not in sql:
            self.found.append(sql)


@contextmanager
def statements() -> Any:
    logger = logging.getLogger("peewee")
    handler, level = Statements(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def fill(site: Any, count: int) -> None:
    """`count` of everything that a page can list."""
    with site.store() as store:
        ids = [
            site.save(f"Needle alpha {n}", f"Body {n}", scope=f"/home/demo/p{n}", kind=f"kind {n}",
                      tags=[f"tag{n}"], source=f"writer {n}").id
            for n in range(count)
        ]  # fmt: skip
        gone = [site.save(f"Gone {n}").id for n in range(count)]
        entries.forget(store, gone, "tester")
        with store.writing():
            for n in range(count - 1):
                receipts.write(store, "forget", "tester", f"Receipt {n}", {}, n)
    for n in range(count):
        site.foreign_transcript(
            f"ses_{n}", f"# Talk {n}\nscope: /home/demo/p{n}\nneedle\n", f"f{n}"
        )
    site.first_entry = ids[0]


PAGES = {
    "/": 9,
    "/?q=needle": 11,
    "/?q=needle+alpha&sort=title": 9,
    "/?tab=transcripts&q=needle": 12,
    "/entries/{entry}": 7,
    "/entries/{entry}/edit": 8,
    "/trash": 8,
    "/sessions": 4,
    "/transcripts": 10,
    "/transcripts/ses_0": 7,
    "/cleanup?max_sessions=1&keep_recent=0": 11,
    "/receipts": 5,
    "/stats": 13,
}


def count_queries(
    settings: Settings, make_site: Callable[[Settings], Any], folder: Path, rows: int
) -> dict[str, int]:
    """Queries per page of a fresh app on a store with so many of each."""
    found = {}
    data = folder / f"data-{rows}"
    filled = make_site(replace(settings, data_dir=data, db=data / "memory.db"))
    fill(filled, rows)
    for path in PAGES:
        site = make_site(filled.settings)
        with site.app.extensions[current.KEY].store.session():
            pass  # a first look at the file, which later ones are spared
        with statements() as ran:
            answer = site.get(path.format(entry=filled.first_entry))
        assert answer.status == 200, path
        found[path] = len(ran)
    return found


def test_a_page_costs_the_same_queries_with_one_row_and_with_thirty(
    settings: Settings, make_site: Callable[[Settings], Any], tmp_path: Path
) -> None:
    one = count_queries(settings, make_site, tmp_path, 1)
    thirty = count_queries(settings, make_site, tmp_path, 30)
    assert one == thirty == PAGES


def test_the_page_of_a_session_costs_the_same_queries_with_one_row_and_with_thirty(
    site: Any,
) -> None:
    counts = []
    for rows in (1, 30):
        fill(site, rows)
        site.get("/")  # a first look at the file, which later ones are spared
        with statements() as ran:
            assert site.get(f"/sessions/{HOSTILE}").status == 200
        counts.append(len(ran))
    assert counts == [6, 6]
