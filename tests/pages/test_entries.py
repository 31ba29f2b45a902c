"""`/entries/…`: show, create, edit, forget."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

SHOP = "/home/demo/shop"
KEY = "ghp_" + "FakeFixture0" * 3


def form_data(**changes: Any) -> dict[str, Any]:
    """What the form for a new entry sends."""
    values = {"scope": SHOP, "kind": "fact", "title": "A title", "body": "A body.", "tags": "a, b",
              "expires": "", "seen": "", **changes}  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}


# Show -------------------------------------------------------------------------------------------


def test_an_entry_is_shown_with_its_facts(site: Any) -> None:
    entry = site.save("Use WAL", "Readers do **not** block.", kind="decision", scope=SHOP,
                      tags=["db", "sqlite"], source="build")  # fmt: skip
    answer = site.get(f"/entries/{entry.id}")
    assert answer.status == 200
    assert answer.main.one("h1").text == "Use WAL"
    assert answer.doc.one(class_="prose").one("strong").text == "not"
    assert answer.doc.one("pre").raw == "Readers do **not** block."
    assert answer.facts["written by"] == "build"
    assert answer.facts["expires"] == "never"
    assert answer.facts["id"] == entry.id
    links = {a.text: a.attrs["href"] for a in answer.doc.one("article").all("a")}
    assert links["db"] == "/?tag=db"
    assert links[SHOP] == f"/?scope={SHOP}"
    assert links["decision"] == "/?kind=decision"


@pytest.mark.parametrize(
    ("body", "tag"),
    [("# Head", "h1"), ("- one\n- two", "li"), ("`code`", "code"), ("> said", "blockquote"),
     ("| a |\n|---|\n| b |", "td"), ("[x](https://example.org/)", "a")],
)  # fmt: skip
def test_a_body_is_markdown(site: Any, body: str, tag: str) -> None:
    entry = site.save("Markdown", body)
    assert site.get(f"/entries/{entry.id}").doc.one(class_="prose").all(tag)


@pytest.mark.parametrize(
    "body",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "![x](http://evil.example/track.png)",
        "![x](data:image/svg+xml,<svg onload=alert(1)>)",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](&#106;avascript:alert(1))",
        "[x](vbscript:x)",
        "[x](data:text/html,<script>alert(1)</script>)",
        "[x](file:///etc/passwd)",
        "<javascript:alert(1)>",
        "[x]: javascript:alert(1)\n\n[x]",
        "<details open ontoggle=alert(1)>",
        "<a href=/ style=position:fixed>x</a>",
        '[x](https://example.org/ "onmouseover=alert(1)")',
        "```<script>\nx\n```",
        "<iframe src=//evil.example></iframe>",
        "<style>*{display:none}</style>",
    ],
)
def test_a_body_can_run_load_or_frame_nothing(site: Any, body: str) -> None:
    entry = site.save("Body", body)
    answer = site.get(f"/entries/{entry.id}")
    answer.assert_inert()
    assert answer.doc.one("details", class_="raw").raw.strip().endswith(body)


def test_a_link_in_a_body_tells_the_other_site_nothing(site: Any) -> None:
    entry = site.save("Body", "[x](https://example.org/)")
    link = site.get(f"/entries/{entry.id}").doc.one(class_="prose").one("a")
    assert set(link.attrs["rel"].split()) >= {"noopener", "noreferrer"}


@pytest.mark.parametrize("path", ["", "/edit"])
def test_an_unknown_entry_is_a_404_with_a_way_on(site: Any, path: str) -> None:
    answer = site.get(f"/entries/nosuch{path}")
    assert answer.status == 404
    assert answer.is_page
    assert "There is no" in answer.doc.one(role="alert").text
    assert {"/", "/transcripts"} <= {a.attrs["href"] for a in answer.main.all("a")}


@pytest.mark.parametrize(
    "entry_id",
    ["%00", "a%00b", "..", "%2e%2e", "%F0%9F%98%80", "%ff", "a" * 6000, "%3Cscript%3E", "'", "%22",
     "new%2Fx", "%E2%80%AE"],
)  # fmt: skip
def test_an_odd_id_is_a_404(site: Any, entry_id: str) -> None:
    site.save("Something")
    for path in ("", "/edit"):
        answer = site.get(f"/entries/{entry_id}{path}")
        assert answer.status == 404
        answer.assert_inert()


def test_an_entry_in_the_trash_says_so_and_offers_to_come_back(site: Any) -> None:
    entry = site.save("Gone")
    site.follow(site.post(f"/entries/{entry.id}/forget"))
    answer = site.get(f"/entries/{entry.id}")
    assert answer.status == 410
    assert "in the trash since" in answer.doc.one(class_="banner").text
    assert not answer.has_form(f"/entries/{entry.id}/forget")
    form = answer.form(f"/trash/{entry.id}/restore")
    back = site.submit(answer, form, "Restore")
    assert back.location == f"/entries/{entry.id}"
    assert site.follow(back).status == 200


def test_a_purged_entry_is_a_404_that_points_at_the_receipts(site: Any) -> None:
    entry = site.save("Gone")
    site.post(f"/entries/{entry.id}/forget")
    site.post(f"/trash/{entry.id}/purge")
    answer = site.get(f"/entries/{entry.id}")
    assert answer.status == 404
    assert "receipts" in answer.text


def test_an_expired_entry_says_so(site: Any) -> None:
    site.save("Live")
    site.foreign_entry("old", title="Old", expires_at=1_790_000_000_000)
    answer = site.get("/entries/old")
    assert answer.status == 200
    assert "This entry expired" in answer.doc.one(class_="banner").text


def test_odd_values_of_another_program_are_shown(site: Any) -> None:
    site.save("Live")
    for number, tags in enumerate(["", "no json", "{}", "[1, null, [2]]", '"x"', "[" * 50]):
        site.foreign_entry(f"odd-{number}", tags=tags, title=f"Odd {number}")
    site.foreign_entry("times", title="Times", created_at=-1, updated_at=10**18, expires_at=10**18)
    site.foreign_entry("long", title="t" * 20_000, body="b" * 200_000, kind="k" * 5000)
    for path in ("/", "/?sort=oldest", "/?q=odd", "/stats", "/entries/times", "/entries/long",
                 "/entries/long/edit", *(f"/entries/odd-{n}" for n in range(6))):  # fmt: skip
        answer = site.get(path)
        assert answer.status == 200, (path, answer.text[:300])


# Create -----------------------------------------------------------------------------------------


def test_the_form_for_a_new_entry_takes_its_fields_from_the_address(site: Any) -> None:
    answer = site.get(f"/entries/new?title={quote('A <b> & c')}&scope={SHOP}&kind=lesson&tags=x")
    fields = dict(answer.fields(answer.form("/entries")))
    assert fields["title"] == "A <b> & c"
    assert (fields["scope"], fields["kind"], fields["tags"]) == (SHOP, "lesson", "x")


def test_the_form_alone_creates_an_entry(site: Any) -> None:
    answer = site.get("/entries/new")
    form = answer.form("/entries")
    made = site.submit(
        answer, form, "Save", title="Use WAL", body="Because.", tags="db, db,, sqlite "
    )
    shown = site.follow(made)
    assert shown.main.one("h1").text == "Use WAL"
    assert shown.toasts == ["Saved the entry."]
    assert [a.text for a in shown.doc.one("article").all("a", class_="tag")] == ["db", "sqlite"]
    assert site.rows("SELECT scope, kind, source FROM entries") == [("global", "fact", "tester")]
    assert site.get(made.location).toasts == []


def test_line_ends_of_a_browser_become_those_of_a_file(site: Any) -> None:
    site.post("/entries", form_data(body="one\r\ntwo\r\n"))
    assert site.rows("SELECT body FROM entries") == [("one\ntwo",)]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"title": ""}, "title", "is empty"),
        ({"title": "  \t "}, "title", "is empty"),
        ({"title": None}, "title", "is empty"),
        ({"title": "t" * 121}, "title", "at most 120"),
        ({"title": "a\x07b"}, "title", "control character"),
        ({"body": ""}, "body", "is empty"),
        ({"body": "b" * 8001}, "body", "at most 8,000"),
        ({"kind": ""}, "kind", "is empty"),
        ({"kind": "k" * 41}, "kind", "at most 40"),
        ({"tags": ",".join(f"t{n}" for n in range(13))}, "tags", "at most 12"),
        ({"tags": "t" * 65}, "tags", "at most 64"),
        ({"scope": "shop"}, "scope", "absolute path"),
        ({"scope": ""}, "scope", "absolute path"),
        ({"scope": "/" + "s" * 5000}, "scope", "absolute path"),
        ({"expires": "tomorrow"}, "expires", "is no time to expire"),
        ({"expires": "2001-01-01"}, "expires", "already passed"),
        ({"expires": "0d"}, "expires", "already passed"),
        ({"expires": "10000-01-01"}, "expires", "is no time to expire"),
        ({"title": f"Key {KEY}"}, "title", "looks like it holds a secret (GitHub token)"),
        ({"body": f"Key {KEY}"}, "body", "looks like it holds a secret (GitHub token)"),
        ({"kind": KEY}, "kind", "looks like it holds a secret (GitHub token)"),
        ({"tags": f"x, {KEY}"}, "tags", "looks like it holds a secret (GitHub token)"),
    ],
)
def test_what_cannot_be_saved_is_told_at_its_field(
    site: Any, changes: dict[str, Any], field: str, words: str
) -> None:
    answer = site.post("/entries", form_data(**changes))
    assert answer.status == 400
    message = answer.doc.one(class_="field-error")
    assert words in message.text
    assert KEY not in message.text
    wrong = answer.doc.one(id=field)
    assert wrong.attrs["aria-invalid"] == "true"
    assert wrong.attrs["aria-describedby"] == message.attrs["id"]
    assert dict(answer.fields(answer.form("/entries")))["scope"] == changes.get("scope", SHOP)
    assert not site.settings.db.exists()


def test_prose_about_a_secret_is_saved(site: Any) -> None:
    assert site.post("/entries", form_data(body="Rotate the ghp_ token.")).status == 303


def test_an_existing_title_is_asked_about_before_it_is_rewritten(site: Any) -> None:
    entry = site.save("Use WAL", "The first text.", scope=SHOP)
    asked = site.post("/entries", form_data(title="Use WAL", body="The second text."))
    assert asked.status == 409
    assert "There is already an entry “Use WAL”" in asked.doc.one(role="alert").text
    conflict = asked.doc.one(class_="conflict")
    assert conflict.one("pre").text == "The first text."
    assert conflict.one("a").attrs["href"] == f"/entries/{entry.id}"
    assert site.rows("SELECT body FROM entries") == [("The first text.",)]

    form = asked.form("/entries")
    assert dict(asked.fields(form))["body"] == "The second text."
    assert site.submit(asked, form, "Save").status == 409
    done = site.submit(asked, form, "Save", rewrite="1")
    assert done.location == f"/entries/{entry.id}"
    assert site.follow(done).toasts == ["Rewrote the entry."]
    assert site.rows("SELECT id, body FROM entries") == [(entry.id, "The second text.")]
    assert site.rows("SELECT title, body FROM trash") == [("Use WAL", "The first text.")]


def test_another_title_or_the_same_one_elsewhere_is_no_conflict(site: Any) -> None:
    site.save("Use WAL", scope=SHOP)
    assert site.post("/entries", form_data(title="Use WAL2")).status == 303
    # The same title in another scope is shown first, and then saved as an entry of its own.
    asked = site.post("/entries", form_data(title="Use WAL", scope="global"))
    assert "close to this" in asked.text and not asked.main.all("input", name="rewrite")
    assert site.submit(asked, asked.form("/entries"), "Save anyway").status == 303
    assert site.rows("SELECT count(*) FROM entries") == [(3,)]


def test_the_list_of_entries_is_the_search_without_words(site: Any) -> None:
    assert site.get("/entries").location == "/?sort=newest"


# Edit -------------------------------------------------------------------------------------------


def test_the_form_alone_edits_an_entry(site: Any) -> None:
    entry = site.save("Use WAL", "Old.", kind="decision", scope=SHOP, tags=["a", "b"])
    answer = site.get(f"/entries/{entry.id}/edit")
    form = answer.form(f"/entries/{entry.id}")
    fields = dict(answer.fields(form))
    assert (fields["title"], fields["body"], fields["tags"]) == ("Use WAL", "Old.", "a, b")
    done = site.submit(answer, form, "Save", body="New.", title="Use WAL mode")
    assert done.location == f"/entries/{entry.id}"
    assert site.follow(done).toasts == ["Saved your changes."]
    assert site.rows("SELECT id, title, body, kind, tags, created_at FROM entries") == [
        (entry.id, "Use WAL mode", "New.", "decision", '["a", "b"]', entry.created_at)
    ]
    assert site.rows("SELECT body FROM trash") == [("Old.",)]


def test_an_edit_of_one_field_leaves_the_others_exactly(site: Any) -> None:
    site.save("Something")
    site.foreign_entry("x", title="X", body="\n  indented\n", tags='["a, b", "c"]', scope=SHOP,
                       expires_at=4_000_000_000_123)  # fmt: skip
    answer = site.get("/entries/x/edit")
    site.submit(answer, answer.form("/entries/x"), "Save", kind="lesson")
    (row,) = site.rows(
        "SELECT kind, title, body, tags, scope, expires_at FROM entries WHERE id='x'"
    )
    assert row == ("lesson", "X", "  indented", '["a, b", "c"]', SHOP, 4_000_000_000_123)


def test_an_edit_of_what_changed_meanwhile_shows_both_and_writes_nothing(site: Any) -> None:
    entry = site.save("Use WAL", "First.", scope=SHOP)
    answer = site.get(f"/entries/{entry.id}/edit")
    form = answer.form(f"/entries/{entry.id}")
    site.save("Use WAL", "Second, by an agent.", scope=SHOP, source="build")
    conflict = site.submit(answer, form, "Save", body="Third, by me.")
    assert conflict.status == 409
    assert "Somebody changed this entry" in conflict.doc.one(role="alert").text
    assert conflict.doc.one(class_="conflict").one("pre").text == "Second, by an agent."
    again = conflict.form(f"/entries/{entry.id}")
    assert dict(conflict.fields(again))["body"] == "Third, by me."
    assert site.rows("SELECT body FROM entries") == [("Second, by an agent.",)]

    assert site.submit(conflict, again, "Save over what it says now").status == 303
    assert site.rows("SELECT body FROM entries") == [("Third, by me.",)]
    assert {body for (body,) in site.rows("SELECT body FROM trash")} == {
        "First.", "Second, by an agent.",
    }  # fmt: skip


def test_an_edit_cannot_take_the_title_of_another_entry(site: Any) -> None:
    other = site.save("Taken", "The other.")
    entry = site.save("Mine")
    answer = site.get(f"/entries/{entry.id}/edit")
    conflict = site.submit(answer, answer.form(f"/entries/{entry.id}"), "Save", title="Taken")
    assert conflict.status == 409
    assert conflict.doc.one(class_="conflict").one("a").attrs["href"] == f"/entries/{other.id}"
    assert not conflict.doc.all("input", name="rewrite")
    assert {title for (title,) in site.rows("SELECT title FROM entries")} == {"Taken", "Mine"}


@pytest.mark.parametrize("seen", ["", "abc", "-1", "²", "1.5", "9" * 30, "9" * 5000])
def test_an_odd_seen_value_is_no_server_error(site: Any, seen: str) -> None:
    entry = site.save("Mine")
    answer = site.post(f"/entries/{entry.id}", form_data(title="Mine", seen=seen))
    assert answer.status in (303, 409)


@pytest.mark.parametrize("path", ["/entries/nosuch", "/entries/nosuch/forget"])
def test_a_write_to_an_unknown_entry_is_a_404(site: Any, path: str) -> None:
    answer = site.post(path, form_data())
    assert answer.status == 404
    assert not site.settings.db.exists()


def test_a_body_that_is_far_too_large_is_refused(site: Any) -> None:
    answer = site.post("/entries", form_data(body="b" * (3 << 20)))
    assert answer.status == 413
    assert "more than fits" in answer.text


# Forget -----------------------------------------------------------------------------------------


def test_forget_and_undo(site: Any) -> None:
    entry = site.save("Needle", "The body.", scope=SHOP)
    answer = site.get("/?q=needle&kind=fact")
    gone = site.submit(answer, answer.form(f"/entries/{entry.id}/forget"), "forget “Needle”")
    assert gone.location == "/?q=needle&kind=fact"
    after = site.follow(gone)
    assert after.toasts == ["“Needle” is in the trash."]
    assert not after.doc.all(class_="entry-hit")
    undone = site.submit(after, after.doc.one("div", id="toasts").one("form"), "Undo")
    assert undone.location == "/?q=needle&kind=fact"
    back = site.follow(undone)
    assert back.toasts == [f"“Needle” is back in {SHOP}."]
    assert back.doc.one("div", id="toasts").one("a").attrs["href"] == f"/entries/{entry.id}"
    assert len(back.doc.all(class_="entry-hit")) == 1
    assert site.rows("SELECT id, body, created_at FROM entries") == [
        (entry.id, "The body.", entry.created_at)
    ]
    assert [r[0] for r in site.rows("SELECT action FROM receipts ORDER BY id")] == [
        "forget", "restore",
    ]  # fmt: skip


def test_a_forget_twice_is_a_404_the_second_time(site: Any) -> None:
    entry = site.save("Needle")
    assert site.post(f"/entries/{entry.id}/forget").status == 303
    assert site.post(f"/entries/{entry.id}/forget").status == 404


def test_an_enormous_title_of_another_program_fits_into_the_toast(site: Any) -> None:
    site.save("Something")
    title = "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(9000))
    site.foreign_entry("long", title=title)
    gone = site.post("/entries/long/forget")
    cookies = gone.headers.getlist("Set-Cookie")
    assert cookies and all(len(cookie) < 4000 for cookie in cookies)
    assert site.follow(gone).toasts[0].startswith("“" + title[:50])


def test_an_edit_of_what_was_forgotten_meanwhile_keeps_the_text(site: Any) -> None:
    entry = site.save("Shared", "Old.")
    page = site.get(f"/entries/{entry.id}/edit")
    site.post(f"/entries/{entry.id}/forget")
    answer = site.submit(page, page.form(f"/entries/{entry.id}"), "Save", body="What I wrote.")
    assert answer.status == 409
    assert "Somebody forgot this entry" in answer.text
    form = answer.form("/entries")
    saved = site.submit(answer, form, "Save")
    assert saved.status == 303
    assert "What I wrote." in site.follow(saved).text
