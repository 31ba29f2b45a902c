"""Who may ask: the Host allow-list, cross-site writes, the headers of answers, the templates."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from webapp.settings import Settings
from webapp.web import guards

ROOT = Path(__file__).parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"

WRITES = (
    "/entries",
    "/entries/{entry}",
    "/entries/{entry}/forget",
    "/promote/write",
    "/promote/diff",
    "/similar",
    "/import",
    "/trash/{trashed}/restore",
    "/trash/{trashed}/purge",
    "/trash/restore",
    "/trash/purge",
    "/transcripts/export",
    f"/transcripts/{KEYS}/export",
    f"/transcripts/{KEYS}/10/reveal",
    f"/transcripts/{KEYS}/undo",
    "/receipts/1/undo",
    "/cleanup",
    "/cleanup/trash",
    "/vacuum",
    "/jobs/{job}/stop",
)
FOR_PROGRAMS = {"/mcp", "/v1/chat/completions"}
"""No form is sent there, and the token is asked for: tests/mcp/test_http.py, tests/api/test_model.py."""

FORM = {"title": "New", "kind": "fact", "scope": "global", "body": "b", "tags": "", "all": "1",
        "count": "1", "max_sessions": "1", "keep_recent": "0", "fingerprint": "x"}  # fmt: skip


@pytest.fixture
def used(site: Any) -> Any:
    """A site with something to lose; `site.names` are the ids that stand in WRITES."""
    entry, trashed = site.save("Live entry"), site.save("Trashed entry")
    site.follow(site.post(f"/entries/{trashed.id}/forget"))
    job = site.jobs.start("other", "Other work", lambda job: job.stop.wait(20))
    site.names = {"entry": entry.id, "trashed": trashed.id, "job": job.id}
    site.running = job
    return site


def state(site: Any) -> Any:
    """Everything that a write could change."""
    tables = ("entries", "trash", "receipts", "transcripts")
    files = sorted(str(path) for path in site.settings.data_dir.rglob("*.m*"))
    return [site.rows(f"SELECT * FROM {t}") for t in tables], files, site.running.stop.is_set()


def test_every_rule_that_writes_is_tested_here(site: Any) -> None:
    posts = {rule.rule for rule in site.app.url_map.iter_rules() if "POST" in rule.methods}
    posts -= FOR_PROGRAMS
    named = {re.sub(r"\{\w+\}|ses_\w+|\d+", "<>", path) for path in WRITES}
    assert {re.sub(r"<[^>]+>", "<>", rule) for rule in posts} == named


def test_no_rule_takes_a_write_by_another_method(site: Any) -> None:
    for rule in site.app.url_map.iter_rules():
        refused = {"DELETE"} if rule.endpoint == "mcp.only_by_post" else set()
        assert not (rule.methods - refused) & {"PUT", "PATCH", "DELETE"}
        assert not ("POST" in rule.methods and "GET" in rule.methods), rule


def test_a_write_asked_for_with_get_is_a_405_or_a_page_and_changes_nothing(used: Any) -> None:
    before = state(used)
    for path in WRITES:
        answer = used.get(path.format(**used.names), query_string=FORM)
        pages = ("/entries", "/entries/{entry}", "/cleanup", "/import")
        assert answer.status in ((200, 302) if path in pages else (405,)), path
        if answer.status == 405:
            assert "another kind of request" in answer.doc.one(role="alert").text
        for method in ("PUT", "DELETE", "PATCH"):
            other = used.client.open(path.format(**used.names), method=method, data=FORM)
            assert other.status_code == 405
    assert state(used) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
        {"Sec-Fetch-Site": "nonsense"},
        {"Sec-Fetch-Site": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "http://localhost:9"},
        {"Origin": "http://user@localhost"},
        {"Origin": "http://[::1"},
        {"Origin": "localhost"},
        {"Origin": "http://evil.example", "HX-Request": "true"},
    ],
)
def test_a_write_from_another_site_is_refused_and_changes_nothing(
    used: Any, headers: dict[str, str]
) -> None:
    before = state(used)
    for path in WRITES:
        answer = used.post(path.format(**used.names), FORM, headers=headers)
        assert answer.status == 403, path
        assert "A page of another site sent this" in answer.text
    assert state(used) == before


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "null"},
        {"Origin": "http://localhost"},
        {"Origin": "HTTP://LOCALHOST"},
        {"Host": "127.0.0.1:4748", "Origin": "http://127.0.0.1:4748"},
        {"Host": "[::1]:4748", "Origin": "http://[::1]:4748"},
    ],
)
def test_a_write_from_our_own_page_or_from_a_program_is_taken(
    used: Any, headers: dict[str, str]
) -> None:
    assert used.post("/entries", FORM, headers=headers).status == 303
    assert used.rows("SELECT count(*) FROM entries") == [(2,)]


@pytest.mark.parametrize("site_header", ["cross-site", "same-site", "none"])
def test_reading_from_a_link_on_another_site_works(used: Any, site_header: str) -> None:
    assert used.get("/", headers={"Sec-Fetch-Site": site_header}).status == 200


# Host -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "LOCALHOST.:4748", "localhost:1", "127.0.0.1",
     "127.0.0.1:4748", "127.0.0.1.", "[::1]", "[::1]:4748", "[::1]:65535"],
)  # fmt: skip
def test_our_own_names_are_answered(site: Any, host: str) -> None:
    for path in ("/", "/healthz", "/static/app.css"):
        assert site.get(path, headers={"Host": host}).status == 200


FOREIGN = (
    "evil.example", "evil.example:4748", "127.0.0.1.evil.example", "localhost.evil.example",
    "evil.example.localhost", "127.0.0.2", "0.0.0.0", "127.1", "2130706433", "0x7f.0.0.1", "[::]",
    "[::ffff:127.0.0.1]", "::1", "[::1", "[::1].evil.example", "[::1]evil.example:80",
    "127.0.0.1@evil.example", "evil.example@127.0.0.1", "localhost:80:80", "localhost:", "localhost:x",
    "localhost/x", "local host", ":4748", ":", ".", "..", "localhost..", "localhost,evil.example", "*",
    "\u202elocalhost", "x" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("host", ["", *FOREIGN])
def test_any_other_name_is_refused_before_anything_else(site: Any, host: str) -> None:
    environ = {"HTTP_HOST": host.encode().decode("latin-1")}
    for path in ("/", "/healthz", "/static/app.css", "/nosuch", "/entries/x"):
        answer = site.get(path, environ_overrides=environ)
        assert answer.status == 403, path
        for name, value in guards.HEADERS.items():
            assert answer.headers[name] == value
    assert site.post("/entries", FORM, environ_overrides=environ).status == 403
    assert not site.settings.db.exists()


@pytest.mark.parametrize(
    ("method", "headers"),
    [("get", {"Host": "evil.example"}), ("post", {"Origin": "http://evil.example"}),
     ("get", {"Host": "evil.example", "HX-Request": "true"})],
)  # fmt: skip
def test_whoever_is_turned_away_learns_nothing_of_what_is_kept(
    used: Any, method: str, headers: dict[str, str]
) -> None:
    answer = getattr(used, method)("/entries", headers=headers)
    assert answer.status == 403
    answer.assert_inert()
    assert "Live entry" not in answer.html
    assert str(used.settings.data_dir) not in answer.html and "memory.db" not in answer.html
    assert not answer.doc.all("nav") and not answer.doc.all("form")
    assert [a.attrs["href"] for a in answer.doc.all("a")] == ["http://127.0.0.1:4748/"]


@pytest.mark.parametrize(
    ("host", "name", "address"),
    [("127.0.0.2", "127.0.0.2:4748", "http://127.0.0.2:4748/"),
     ("::1", "[::1]:4748", "http://[::1]:4748/")],
)  # fmt: skip
def test_the_address_that_is_served_is_allowed_and_named(
    settings: Settings, make_site: Callable[[Settings], Any], host: str, name: str, address: str
) -> None:
    site = make_site(replace(settings, host=host))
    assert site.get("/", headers={"Host": name}).status == 200
    assert address in site.get("/", headers={"Host": "evil.example"}).text


# The headers of answers -------------------------------------------------------------------------

POLICY = {
    "default-src": {"'none'"}, "script-src": {"'self'"}, "style-src": {"'self'"},
    "img-src": {"'self'", "data:"}, "connect-src": {"'self'"}, "form-action": {"'self'"},
    "base-uri": {"'none'"}, "frame-ancestors": {"'none'"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200), ("/?q=x", 200), ("/?page=x", 400), ("/entries/new", 200), ("/entries", 302),
        ("/entries/nosuch", 404), ("/trash", 200), ("/transcripts", 200), (f"/transcripts/{KEYS}", 200),
        (f"/transcripts/{KEYS}/0", 400), (f"/sessions/{KEYS}", 200),
        ("/sessions/ses_nosuch", 404), ("/transcripts/ses_nosuch", 404), ("/cleanup", 200),
        ("/receipts", 200), ("/receipts/9", 404), ("/stats", 200), ("/settings", 200),
        ("/healthz", 200), ("/jobs/x", 404), ("/trash/purge", 405), ("/nosuch", 404),
        ("/static/app.css", 200), ("/static/app.js", 200), ("/static/vendor/htmx.min.js", 200),
        ("/static/nosuch.css", 404), ("/static/../webapp/errors.py", 404),
        ("/boom", 500),
    ],
)  # fmt: skip
def test_every_answer_carries_the_security_headers(site: Any, path: str, status: int) -> None:
    site.app.add_url_rule("/boom", view_func=lambda: [][1])
    for headers in ({}, {"HX-Request": "true"}):
        answer = site.get(path, headers=headers)
        assert answer.status == status
        policy = answer.headers["Content-Security-Policy"]
        found = {part.split()[0]: set(part.split()[1:]) for part in policy.split(";")}
        assert found == POLICY
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        if not path.startswith("/static/app"):
            cached = "max-age" in answer.headers.get("Cache-Control", "")
            assert cached == path.startswith("/static/vendor")


def test_a_write_and_its_refusal_carry_them_too(used: Any) -> None:
    for answer in (used.post("/entries", FORM), used.post("/entries", {}), used.post("/trash/purge"),
                   used.post("/entries", {"body": "b" * (3 << 20)})):  # fmt: skip
        for name, value in guards.HEADERS.items():
            assert answer.headers[name] == value


def test_the_cookie_of_the_toasts_is_out_of_reach_of_scripts_and_other_sites(used: Any) -> None:
    (cookie,) = used.post("/entries", FORM).headers.getlist("Set-Cookie")
    attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/"} <= attributes
    assert cookie.startswith(f"opencode_memory_{used.settings.port}=")


def test_a_forged_cookie_is_ignored(site: Any) -> None:
    site.client.set_cookie(f"opencode_memory_{site.settings.port}", "eyJfZmxhc2hlcyI6W119.x.y")
    answer = site.get("/")
    assert answer.status == 200 and answer.toasts == []


def test_a_path_that_looks_like_another_host_stays_here(site: Any) -> None:
    answer = site.get("/", environ_overrides={"PATH_INFO": "//evil.example/x"})
    assert answer.status in (308, 404)
    if answer.status == 308:
        assert urlsplit(urljoin("http://localhost/", answer.location)).netloc == "localhost"
    for name, value in guards.HEADERS.items():
        assert answer.headers[name] == value


# Where a form leads back to ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    ["//evil.example/", "///evil.example", "/\\evil.example", "/\\/evil.example", "\\\\evil.example",
     "http://evil.example/", "https:evil.example", "javascript:alert(1)", "data:text/html,x",
     "/\t/evil.example", "/\n/evil.example", "\t//evil.example", " //evil.example", "evil.example",
     "/\r\nSet-Cookie: a=b", "/\0", "", "?x", "@evil.example", ".evil.example"],
)  # fmt: skip
def test_a_form_leads_to_no_other_site(used: Any, place: str) -> None:
    for path in ("/entries/{entry}/forget", "/trash/{trashed}/restore"):
        answer = used.post(path.format(**used.names), {"next": place})
        assert answer.status == 303
        assert answer.location in ("/", "/trash")
        assert "a=b" not in str(answer.headers)


@pytest.mark.parametrize(
    "place",
    ["/trash", "/?q=a+b&kind=x", "/entries/x", "/?q=%2F%2Fevil.example", "/a//b", "/?q=日本"],
)
def test_a_form_leads_back_to_the_page_it_came_from(used: Any, place: str) -> None:
    answer = used.post(f"/entries/{used.names['entry']}/forget", {"next": place})
    target = urlsplit(urljoin("http://localhost/", answer.location))
    assert target.netloc == "localhost"
    assert target.path == urlsplit(place).path


# Templates --------------------------------------------------------------------------------------


def test_there_are_templates_to_look_at() -> None:
    assert len(TEMPLATES) > 15


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_template_needs_what_the_policy_forbids(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"""[\s"'}]style\s*=""", text), "an inline style"
    assert not re.search(r"<style", text, re.IGNORECASE)
    assert not re.search(r"""[\s"'}]on[a-z]+\s*=""", text, re.IGNORECASE), "an inline handler"
    assert not re.search(r"hx-on|hx-vars|hx-vals\s*=\s*.?js:|javascript:", text, re.IGNORECASE)
    for tag in re.findall(r"<script\b[^>]*>", text, re.IGNORECASE):
        assert re.search(r"""src="\{\{ url_for\('static'""", tag), tag
    assert not re.search(r"<script\b[^>]*>\s*\S+?(?<!</script>)\s*</script>", text, re.IGNORECASE)
    assert not re.search(r"""(?:href|src|action)\s*=\s*["']?(?:https?:)?//""", text), "another site"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_template_takes_a_value_for_markup(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"\|\s*safe\b|autoescape\s+false|\bMarkup\b", text)
    assert not re.search(r"""\s[\w-]+=\{[{%]""", text), "an attribute without quotes"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_form_that_writes_is_a_post_to_a_route_of_ours(path: Path) -> None:
    for form in re.findall(r"<form\b[^>]*>", path.read_text("utf-8")):
        method = re.search(r'method="(\w+)"', form)
        assert method or "search.index" in form or "transcripts." in form, form
        if method and method[1] == "post":
            assert re.search(r'action="\{\{ (url_for\(|toast\.undo)', form), form


def test_the_stylesheet_asks_nobody_else() -> None:
    for path in (ROOT / "static").rglob("*.css"):
        text = path.read_text("utf-8")
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text), path
