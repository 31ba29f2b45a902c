"""`/trash`: restore one or many, the choices of a conflict, purge."""

from __future__ import annotations

from typing import Any

import pytest

from webapp.memory import entries, trash

SHOP = "/home/demo/shop"


def forget(site: Any, *titles: str, **more: Any) -> list[str]:
    """Entries of those titles in the trash; their ids."""
    with site.store() as store:
        ids = [site.save(title, **more).id for title in titles]
        entries.forget(store, ids, "tester")
    return ids


def live(site: Any) -> set[tuple[str, str]]:
    """Title and body of all live entries."""
    return set(site.rows("SELECT title, body FROM entries"))


def trashed(site: Any) -> set[str]:
    """The titles in the trash."""
    return {title for (title,) in site.rows("SELECT title FROM trash")}


def test_the_trash_lists_the_newest_first_with_what_is_needed_to_decide(site: Any) -> None:
    first = site.save("First", "The first body.", kind="lesson", scope=SHOP, tags=["x"])
    second = site.save("Second")
    with site.store() as store:
        entries.forget(store, [first.id], "build", now=1_790_000_000_000)
        entries.forget(store, [second.id], "tester", now=1_790_000_001_000)
    answer = site.get("/trash")
    hits = answer.doc.all(class_="trash-hit")
    assert [hit.one("h2").text for hit in hits] == ["Second", "First"]
    for words in ("The first body.", "lesson", SHOP, "x", "build"):
        assert words in hits[1].text
    assert hits[1].one("h2").one("a").attrs["href"] == f"/entries/{first.id}"
    assert "restored for 30 days" in answer.text
    assert answer.main.one("h1").one(class_="count").text == "2"


def test_an_empty_trash_says_so(site: Any) -> None:
    answer = site.get("/trash")
    assert answer.status == 200
    assert answer.doc.one(class_="empty").one("h2").text == "The trash is empty"
    assert not [f for f in answer.main.all("form") if f.attrs.get("method") == "post"]


def test_pages_follow_each_other(site: Any) -> None:
    with site.store() as store:
        for start in range(0, 150, 50):
            ids = [site.save(f"Entry {start + n:03}").id for n in range(50)]
            entries.forget(store, ids, "tester", now=1_790_000_000_000 + start)
    first = site.get("/trash")
    assert len(first.doc.all(class_="trash-hit")) == trash.PAGE
    second = site.get(first.doc.one("a", rel="next").attrs["href"])
    assert len(second.doc.all(class_="trash-hit")) == 50
    assert not second.doc.all("a", rel="next")
    titles = {hit.one("h2").text for page in (first, second) for hit in page.doc.all(class_="hit")}
    assert len(titles) == 150
    assert second.form("/trash/purge").all("button")[0].text == "Destroy all 150"


@pytest.mark.parametrize("page", ["0", "-1", "x", "9" * 5000])
def test_a_bad_page_is_refused(site: Any, page: str) -> None:
    assert site.get(f"/trash?page={page}").status == 400


# Restore ----------------------------------------------------------------------------------------


def test_the_form_alone_restores_one(site: Any) -> None:
    (entry_id,) = forget(site, "Back", scope=SHOP)
    answer = site.get("/trash")
    done = site.submit(answer, answer.form(f"/trash/{entry_id}/restore"), "restore “Back”")
    assert done.location == "/trash"
    after = site.follow(done)
    assert after.toasts == [f"“Back” is back in {SHOP}."]
    assert site.rows("SELECT id, scope FROM entries") == [(entry_id, SHOP)]
    assert trashed(site) == set()


def test_the_ticked_ones_are_restored_and_the_others_stay(site: Any) -> None:
    one, two, _ = forget(site, "One", "Two", "Three")
    answer = site.get("/trash")
    boxes = {box.attrs["value"] for box in answer.doc.all("input", name="id")}
    assert {one, two} < boxes
    done = site.submit(answer, answer.form("/trash/restore"), "Restore ticked", id=[one, two])
    assert site.follow(done).toasts == ["Restored 2 entries."]
    assert {title for title, _ in live(site)} == {"One", "Two"}
    assert trashed(site) == {"Three"}


def test_ticked_ones_that_are_gone_are_named_and_the_rest_is_restored(site: Any) -> None:
    (one,) = forget(site, "One")
    done = site.post("/trash/restore", {"id": [one, one, "nosuch"]})
    (toast,) = site.follow(done).toasts
    assert toast.startswith("Restored 1 entry. There is no entry nosuch")


@pytest.mark.parametrize("path", ["/trash/restore", "/trash/purge"])
def test_nothing_ticked_is_told(site: Any, path: str) -> None:
    forget(site, "One")
    answer = site.post(path)
    assert answer.location == "/trash"
    assert site.follow(answer).toasts == ["Nothing was ticked, so nothing was changed."]
    assert trashed(site) == {"One"}
    assert site.rows("SELECT count(*) FROM receipts") == [(1,)]


def test_a_conflict_changes_nothing_and_offers_the_choices(site: Any) -> None:
    (entry_id,) = forget(site, "Same", body="The old body.", scope=SHOP)
    site.save("Same", "The live body.", scope=SHOP)
    answer = site.post(f"/trash/{entry_id}/restore")
    assert answer.status == 409
    conflict = answer.doc.one("section", class_="conflict")
    assert conflict.attrs["role"] == "alert"
    assert [pre.text for pre in conflict.all("pre")] == ["The old body.", "The live body."]
    assert [b.text for b in conflict.all("button")] == ["Keep both", "Replace the live one"]
    assert conflict.one("input", name="title").attrs["value"] == "Same (2)"
    assert live(site) == {("Same", "The live body.")}
    assert trashed(site) == {"Same"}


@pytest.mark.parametrize(
    ("button", "title", "expected", "left"),
    [
        ("Keep both", "Same (2)", {("Same", "live"), ("Same (2)", "old")}, set()),
        ("Keep both", "Another", {("Same", "live"), ("Another", "old")}, set()),
        ("Keep both", "", {("Same", "live"), ("Same (2)", "old")}, set()),
        ("Keep both", "Same", {("Same", "live"), ("Same (2)", "old")}, set()),
        ("Replace the live one", "Same (2)", {("Same", "old")}, {"Same"}),
    ],
)
def test_each_choice_of_a_conflict_does_what_it_says(
    site: Any, button: str, title: str, expected: set[tuple[str, str]], left: set[str]
) -> None:
    (entry_id,) = forget(site, "Same", body="old")
    site.save("Same", "live")
    asked = site.post(f"/trash/{entry_id}/restore")
    form = asked.doc.one("section", class_="conflict").one("form")
    done = site.submit(asked, form, button, title=title)
    assert done.location == "/trash"
    assert live(site) == expected
    assert trashed(site) == left
    assert (entry_id, "old") in site.rows("SELECT id, body FROM entries")


@pytest.mark.parametrize(
    ("title", "status", "words"),
    [
        ("Taken", 409, "is taken as well"),
        ("t" * 121, 400, "at most 120"),
        ("ghp_" + "FakeFixture0" * 3, 400, "looks like it holds a secret"),
    ],
)
def test_a_new_title_that_cannot_be_taken_changes_nothing(
    site: Any, title: str, status: int, words: str
) -> None:
    (entry_id,) = forget(site, "Same", body="old")
    site.save("Same", "live")
    site.save("Taken", "other")
    answer = site.post(f"/trash/{entry_id}/restore", {"choice": "keep_both", "title": title})
    assert answer.status == status
    assert words in answer.text
    assert live(site) == {("Same", "live"), ("Taken", "other")}
    assert trashed(site) == {"Same"}


def test_an_unknown_choice_is_refused(site: Any) -> None:
    (entry_id,) = forget(site, "Same")
    answer = site.post(f"/trash/{entry_id}/restore", {"choice": "burn"})
    assert answer.status == 400
    assert trashed(site) == {"Same"}


def test_of_many_those_without_conflict_come_back_and_the_others_are_asked_about(site: Any) -> None:
    one, same, also = forget(site, "One", "Same", "Also")
    site.save("Same", "live")
    site.save("Also", "live")
    answer = site.post("/trash/restore", {"id": [one, same, also]})
    assert answer.status == 409
    assert answer.toasts == ["Restored 1 entry. 2 need a choice."]
    assert len(answer.doc.all("section", class_="conflict")) == 2
    assert "One" in {title for title, _ in live(site)}
    assert trashed(site) == {"Same", "Also"}
    assert site.get("/").toasts == []


def test_a_restore_of_what_is_not_in_the_trash_is_a_404(site: Any) -> None:
    entry = site.save("Live")
    for entry_id in (entry.id, "nosuch", "%00", ".."):
        assert site.post(f"/trash/{entry_id}/restore").status == 404
        assert site.post(f"/trash/{entry_id}/purge").status == 404
    assert live(site) == {("Live", "A body.")}


def test_an_entry_whose_time_is_over_comes_back_without_it(site: Any) -> None:
    site.save("Live")
    site.rows(
        "INSERT INTO trash VALUES ('old', 'global', 'fact', 'Old', 'b', '[]', 1, 1, 5, NULL, 6, 'x')"
    )
    assert site.post("/trash/old/restore").status == 303
    assert site.rows("SELECT expires_at FROM entries WHERE id = 'old'") == [(None,)]


# Purge ------------------------------------------------------------------------------------------


def test_the_forms_alone_destroy_one_or_the_ticked(site: Any) -> None:
    one, two, three = forget(site, "One", "Two", "Three")
    answer = site.get("/trash")
    gone = site.submit(answer, answer.form(f"/trash/{one}/purge"), "destroy “One”")
    assert site.follow(gone).toasts == ["Destroyed 1 entry for good."]
    assert trashed(site) == {"Two", "Three"}
    answer = site.get("/trash")
    many = answer.doc.one("form", id="many")
    gone = site.submit(answer, many, "Destroy ticked", id=[two, three])
    assert site.follow(gone).toasts == ["Destroyed 2 entries for good."]
    assert trashed(site) == set()
    details = [row[0] for row in site.rows("SELECT summary FROM receipts WHERE action = 'purge'")]
    assert details == ["Destroyed 1 entry from the trash", "Destroyed 2 entries from the trash"]


def test_destroy_all_destroys_what_the_page_counted(site: Any) -> None:
    forget(site, "One", "Two")
    answer = site.get("/trash")
    gone = site.submit(answer, answer.form("/trash/purge"), "Destroy all 2")
    assert site.follow(gone).toasts == ["Destroyed 2 entries for good."]
    assert trashed(site) == set()


@pytest.mark.parametrize("count", [None, "", "1", "3", "2 ", "x"])
def test_destroy_all_with_another_count_destroys_nothing(site: Any, count: str | None) -> None:
    forget(site, "One", "Two")
    data = {"all": "1"} if count is None else {"all": "1", "count": count}
    answer = site.post("/trash/purge", data)
    assert answer.status == 409
    assert "The trash has changed" in answer.text
    assert trashed(site) == {"One", "Two"}


def test_destroy_all_after_another_program_threw_something_in_destroys_nothing(site: Any) -> None:
    forget(site, "One")
    answer = site.get("/trash")
    forget(site, "Two")
    assert site.submit(answer, answer.form("/trash/purge"), "Destroy all 1").status == 409
    assert trashed(site) == {"One", "Two"}


def test_a_purge_touches_no_live_entry(site: Any) -> None:
    entry = site.save("Live")
    forget(site, "Gone")
    site.post("/trash/purge", {"id": [entry.id]})
    assert {title for title, _ in live(site)} == {"Live"}
    assert trashed(site) == {"Gone"}
