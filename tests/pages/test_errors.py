"""When things go wrong: each trouble has its sentence, and the rest of the program stays up."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from webapp.settings import Settings

KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
EMPTY = "ses_dd3fa4afcffekVr5jSKEyzYeLu"
FORM = {"title": "New", "kind": "fact", "scope": "global", "body": "b", "tags": ""}
PAGES = ("/", "/?q=live", "/?tab=transcripts", "/?tab=transcripts&q=x", "/entries/new", "/trash",
         "/transcripts", "/transcripts?show=missing", "/cleanup", "/cleanup?max_sessions=1",
         "/receipts", "/stats", "/settings", "/healthz")  # fmt: skip


def boom() -> str:
    """A view with a bug in it."""
    return str(dict[str, str]()["a secret of the program"])


def plugin_file(path: Path) -> None:
    """A store as the plugin writes it, with nothing of ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ddl = (Path(__file__).parents[1] / "writers" / "layout.sql").read_text("utf-8")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl)
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute(
            "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at)"
            " VALUES ('e1', 'global', 'fact', 'Live entry', 'needle', '[]', 1, 1)"
        )
        connection.commit()


# Errors of a request ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "title"),
    [("/nosuch", 404, "Not found"), ("/transcripts/", 404, "Not found"),
     ("/?page=x", 400, "That cannot be used"), ("/trash/purge", 405, "Not this way"),
     ("/entries/x/y/z", 404, "Not found"), ("/static/", 404, "Not found"),
     ("/boom", 500, "Something went wrong")],
)  # fmt: skip
def test_an_error_is_a_page_with_a_sentence_and_a_way_on(
    site: Any, path: str, status: int, title: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.app.add_url_rule("/boom", view_func=boom)
    answer = site.get(path)
    assert answer.status == status and answer.is_page
    alert = answer.doc.one(role="alert")
    assert alert.one("h1").text == title
    assert alert.one(class_="code").text == str(status)
    assert len(alert.all("p")[1].text) > 20
    assert {"/", "/transcripts"} <= {a.attrs["href"] for a in alert.all("a")}
    for word in ("Traceback", "KeyError", "a secret of the program", "werkzeug", ".py"):
        assert word not in answer.html
    assert ("a secret of the program" in caplog.text) == (status == 500)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("get", "/?page=x", 400), ("post", "/entries/nosuch/forget", 404), ("get", "/nosuch", 404),
     ("post", "/trash/x/restore", 404), ("get", "/boom", 500)],
)  # fmt: skip
def test_htmx_gets_an_error_as_a_toast_in_its_own_place(
    site: Any, method: str, path: str, status: int
) -> None:
    site.app.add_url_rule("/boom", view_func=boom)
    answer = getattr(site, method)(path, headers={"HX-Request": "true", "HX-Target": "content"})
    assert answer.status == status
    assert not answer.is_page
    assert answer.headers["HX-Retarget"] == "#toasts"
    assert answer.headers["HX-Reswap"] == "innerHTML"
    # Without this, the hx-select of the form that sent it would select nothing from the toast.
    assert answer.headers["HX-Reselect"] == "unset"
    toast = answer.doc.one(class_="toast")
    assert toast.attrs["role"] == "alert" and toast.one("span").text


def test_a_history_restore_of_a_broken_address_gets_the_whole_page(site: Any) -> None:
    answer = site.get(
        "/?page=x", headers={"HX-Request": "true", "HX-History-Restore-Request": "true"}
    )
    assert answer.status == 400 and answer.is_page
    assert "HX-Retarget" not in answer.headers


def test_a_head_request_is_answered_like_a_get_without_a_body(site: Any) -> None:
    for path, status in (("/", 200), ("/nosuch", 404), ("/transcripts", 200)):
        response = site.client.head(path)
        assert (response.status_code, response.data) == (status, b"")


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"title=%ff%fe&scope=global&kind=fact&body=%00", "application/x-www-form-urlencoded"),
     (b"\xff\x00=%", "application/x-www-form-urlencoded"), (b"{}", "application/json"),
     (b"--x\r\nbroken", "multipart/form-data; boundary=x"), (b"x", "multipart/form-data"),
     (b"a=1&" * 2000, "application/x-www-form-urlencoded"), (b"", "text/plain")],
)  # fmt: skip
def test_a_malformed_form_is_a_clear_4xx(site: Any, body: bytes, kind: str) -> None:
    answer = site.post("/entries", body, content_type=kind)
    assert 400 <= answer.status < 500
    assert answer.is_page
    assert not site.settings.db.exists()


# A store that cannot be read --------------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 64)


def a_text_file(path: Path) -> None:
    path.write_text("This is no database.\n" * 50)


def damaged_pages(path: Path) -> None:
    plugin_file(path)
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\xaa" * (len(data) - 100))


def another_programs_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")


def a_folder(path: Path) -> None:
    path.mkdir()


def entries_without_text(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE entries (id TEXT, title TEXT)")


BROKEN = (garbage, a_text_file, damaged_pages, another_programs_database, a_folder,
          entries_without_text)  # fmt: skip


@pytest.fixture(params=BROKEN, ids=lambda make: make.__name__)
def broken(request: pytest.FixtureRequest, site: Any) -> Any:
    """A site whose memory.db cannot be read, beside transcripts that can."""
    site.foreign_transcript("ses_one", "# One\nscope: /home/demo/shop\nthe needle\n")
    request.param(site.settings.db)
    return site


def test_the_pages_of_entries_say_what_is_wrong_with_503(broken: Any) -> None:
    for path in ("/", "/?q=needle", "/entries/x", "/entries/new", "/trash", "/stats", "/receipts",
                 "/cleanup?max_sessions=1"):  # fmt: skip
        answer = broken.get(path)
        assert answer.status == 503, path
        alert = answer.doc.one(role="alert")
        assert alert.one("h1").text == "Cannot be read right now"
        assert str(broken.settings.db) in alert.text
        assert "Traceback" not in answer.html
        for words in ("Nothing is remembered", "No entry matches", "The trash is empty"):
            assert words not in answer.text


def test_what_needs_no_store_still_works(broken: Any) -> None:
    assert broken.get("/healthz").status == 200
    settings = broken.get("/settings")
    assert settings.status == 200
    assert str(broken.settings.db) in settings.doc.all(class_="banner")[0].text


def test_transcripts_on_disk_can_still_be_listed_read_and_searched(broken: Any) -> None:
    listed = broken.get("/transcripts")
    assert listed.status == 200
    assert "One" in [row.one("a").text for row in listed.doc.all("tr", data_item="")]
    assert str(broken.settings.db) in listed.doc.all(class_="banner")[0].text
    assert not listed.has_form("/transcripts/export")
    assert "the needle" in broken.get("/transcripts/ses_one/3").text
    assert broken.get("/transcripts/ses_one/find?q=needle").location.startswith(
        "/transcripts/ses_one/3"
    )
    found = broken.get("/?tab=transcripts&q=needle")
    assert found.status == 200
    assert "1 line in 1" in found.text


def test_every_write_is_refused_and_the_file_is_left_as_it_is(broken: Any) -> None:
    path = broken.settings.db
    before = path.read_bytes() if path.is_file() else None
    for target in ("/entries", "/entries/x", "/entries/x/forget", "/trash/x/restore",
                   "/trash/x/purge", "/trash/purge", "/cleanup", "/transcripts/export",
                   f"/transcripts/{KEYS}/export"):  # fmt: skip
        answer = broken.post(target, {**FORM, "all": "1", "count": "0", "id": "x"})
        assert answer.status == 503, target
        assert str(path) in answer.doc.one(role="alert").text
    assert (path.read_bytes() if path.is_file() else None) == before
    opened = broken.get(f"/transcripts/{KEYS}")
    assert 400 <= opened.status <= 503 and opened.status != 500
    assert not list(broken.settings.transcripts_dir.rglob(f"{KEYS}*"))


def test_a_store_that_is_mended_is_used_at_once(broken: Any) -> None:
    path = broken.settings.db
    assert broken.get("/").status == 503
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    plugin_file(path)
    assert "Live entry" in broken.get("/").text


def test_a_store_that_breaks_while_the_server_runs_is_told(site: Any) -> None:
    site.save("Live entry")
    assert site.get("/").status == 200
    for suffix in ("-wal", "-shm"):
        site.settings.db.with_name(site.settings.db.name + suffix).unlink(missing_ok=True)
    garbage(site.settings.db)
    assert site.get("/").status == 503
    assert site.get("/transcripts").status == 200


# A store that must not be written ---------------------------------------------------------------


def write_protected(site: Any) -> str:
    site.save("Live entry", "needle")
    gone = site.save("Gone entry")
    site.follow(site.post(f"/entries/{gone.id}/forget"))
    site.get(f"/transcripts/{EMPTY}")
    with site.store() as store:
        store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    os.chmod(site.settings.db, 0o444)
    return "is write-protected"


def write_protected_plugin(site: Any) -> str:
    plugin_file(site.settings.db)
    os.chmod(site.settings.db, 0o444)
    return "is write-protected"


def foreign_column(site: Any) -> str:
    plugin_file(site.settings.db)
    site.rows("ALTER TABLE entries ADD COLUMN mood TEXT")
    return "also has “mood”"


def newer_version(site: Any) -> str:
    site.save("Live entry", "needle")
    site.rows("INSERT INTO webapp_migrations VALUES ('9999-from-the-future', 1)")
    return "newer version"


READ_ONLY = (write_protected, write_protected_plugin, foreign_column, newer_version)


@pytest.fixture(params=READ_ONLY, ids=lambda make: make.__name__)
def read_only(request: pytest.FixtureRequest, site: Any) -> Any:
    """A site whose memory.db is shown read-only; `site.why` are words of the reason."""
    site.foreign_transcript("ses_one", "# One\nthe needle\n")
    site.why = request.param(site)
    return site


def test_every_page_of_a_read_only_store_works_and_says_so(read_only: Any) -> None:
    for path in PAGES:
        answer = read_only.get(path)
        assert answer.status == 200, (path, answer.text)
        if path != "/healthz":
            assert read_only.why in answer.doc.all(class_="banner")[0].text, path
    assert "Live entry" in read_only.get("/?q=needle").text
    (link,) = [
        a.attrs["href"] for a in read_only.get("/").doc.one(class_="entry-hit").one("h2").all("a")
    ]
    assert read_only.get(link).status == 200


def test_a_read_only_store_offers_no_button_that_forgets_or_exports(read_only: Any) -> None:
    link = read_only.get("/").doc.one(class_="entry-hit").one("h2").one("a").attrs["href"]
    trashed = [a.attrs["href"] for h in read_only.get("/trash").doc.all("h2") for a in h.all("a")]
    plan = f"/cleanup?session={EMPTY}&keep_recent=0"
    for path in ("/", "/?q=needle", link, "/transcripts", "/trash", *trashed, plan):
        answer = read_only.get(path)
        for form in answer.doc.all("form"):
            assert form.attrs.get("method") != "post", (path, form.attrs)
        assert "Edit" not in [a.text for a in answer.main.all("a")]


def test_every_write_to_a_read_only_store_is_a_409_with_the_reason(read_only: Any) -> None:
    link = read_only.get("/").doc.one(class_="entry-hit").one("h2").one("a").attrs["href"]
    before = read_only.settings.db.read_bytes()
    for target in ("/entries", link, f"{link}/forget", "/trash/purge", "/trash/restore",
                   "/trash/x/restore", "/trash/x/purge", "/cleanup", "/transcripts/export",
                   f"/transcripts/{KEYS}/export", "/transcripts/ses_one/2/reveal"):  # fmt: skip
        answer = read_only.post(target, {**FORM, "all": "1", "count": "0", "id": "x"})
        assert answer.status == 409, (target, answer.text)
        assert read_only.why in answer.doc.one(role="alert").text
        assert "Nothing was changed" in answer.doc.one(role="alert").text
        if target in ("/entries", link):
            assert FORM["body"] in answer.doc.one("textarea").raw
    assert read_only.settings.db.read_bytes() == before


def test_a_session_that_is_not_exported_is_told_with_the_reason(read_only: Any) -> None:
    answer = read_only.get(f"/transcripts/{KEYS}")
    assert 400 <= answer.status <= 503 and answer.status != 500
    assert read_only.why in answer.doc.one(role="alert").text
    assert read_only.get("/transcripts/ses_one").status == 200


# Other trouble ----------------------------------------------------------------------------------


def test_an_empty_file_is_an_empty_store_and_the_first_save_fills_it(site: Any) -> None:
    site.settings.db.parent.mkdir(parents=True)
    site.settings.db.touch()
    assert site.get("/").doc.one(class_="empty").one("h2").text == "Nothing is remembered yet"
    assert site.settings.db.stat().st_size == 0
    assert site.post("/entries", FORM).status == 303
    assert "New" in site.get("/").text


def test_reading_an_unused_installation_leaves_nothing_behind(site: Any) -> None:
    for path in PAGES:
        assert site.get(path).status == 200, path
    for path in ("/entries/x", "/transcripts/ses_nosuch", "/receipts/1", "/jobs/x"):
        assert site.get(path).status == 404
    assert not site.settings.data_dir.exists()


def test_a_data_folder_that_cannot_be_made_is_told(
    settings: Settings, make_site: Callable[[Settings], Any]
) -> None:
    settings.data_dir.parent.mkdir(parents=True)
    settings.data_dir.write_text("a file in the way")
    site = make_site(settings)
    for answer in (site.get("/"), site.post("/entries", FORM)):
        assert answer.status == 503
        assert str(settings.data_dir) in answer.doc.one(role="alert").text
    for path in ("/transcripts", "/?tab=transcripts&q=x"):
        assert site.get(path).status in (200, 503)
    assert site.get("/healthz").status == 200


def test_rows_that_another_program_writes_show_on_the_next_request(site: Any) -> None:
    site.save("First")
    assert "1" in site.get("/").doc.one("a", data_go="e").text
    site.foreign_entry("second", title="Second from outside")
    answer = site.get("/?q=outside")
    assert "Second from outside" in answer.text
    assert "2" in answer.doc.one("a", data_go="e").text
