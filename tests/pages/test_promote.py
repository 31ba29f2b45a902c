"""Promote: lines, a message or an entry as an entry, or into AGENTS.md; what is close is shown first."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from webapp.errors import Busy
from webapp.lines import fingerprint, line_hash
from webapp.settings import Settings
from webapp.store import Store
from webapp.web.passage import title_of

SHOP = "/home/demo/shop"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
HOSTILE = "ses_dd3fa60a9ffeTXS1icqe58uEPT"
GHP = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def lines_of(site: Any, session: str, first: int, last: int) -> list[str]:
    """Lines of the transcript as they are on disk."""
    (path,) = site.settings.transcripts_dir.glob(f"*/{session}.md")
    return path.read_text("utf-8").split("\n")[first - 1 : last]


def entry_form(answer: Any) -> Any:
    return answer.form("/entries")


def fields(answer: Any) -> dict[str, str]:
    return dict(answer.fields(entry_form(answer)))


@pytest.fixture
def project(site: Any, newest_db: Path, tmp_path: Path) -> Path:
    """The worktree of the fixture's session, now a real folder."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    site.settings.places.config_dir.mkdir(parents=True)
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE project SET worktree = ? WHERE worktree = ?", (str(folder), SHOP)
        )
        connection.execute("UPDATE session SET directory = ?", (str(folder),))
    return folder


# What is taken ------------------------------------------------------------------------------------


def test_lines_prefill_an_entry_masked_and_without_the_records_headings(site: Any) -> None:
    page = site.get(f"/promote?session={KEYS}&lines=9-16")
    assert page.status == 200
    form = fields(page)
    assert form["scope"] == SHOP and form["kind"] == "fact" and form["lines"] == "9-16"
    assert form["title"].startswith("Use this key: sk-…[masked 42]") and len(form["title"]) <= 120
    assert "I will not repeat or store credentials." in form["body"]
    assert "## user" not in form["body"] and "step-start" not in form["body"]
    assert "ghp_…[masked 40]" in form["body"]
    assert form["h"] == fingerprint(line_hash(line) for line in lines_of(site, KEYS, 9, 16))
    assert "credentials masked" in page.main.text and "[masked 42]" in page.main.text


def test_masking_off_does_not_reach_what_is_promoted(
    settings: Settings, newest_db: Path, make_site: Callable[[Settings], Any]
) -> None:
    site = make_site(replace(settings, opencode_db=newest_db, mask=False))
    for path in (
        f"/promote?session={KEYS}&lines=9-16",
        f"/promote?session={KEYS}&lines=10&to=file",
    ):
        page = site.get(path)
        secrets = lines_of(site, KEYS, 10, 10)[0].split()
        assert not any(word in page.html for word in secrets if len(word) > 30)


def test_a_message_is_its_texts_and_its_lines_are_the_origin(site: Any) -> None:
    session = site.get(f"/sessions/{KEYS}")
    links = [a.attrs["href"] for a in session.doc.all("a") if a.text == "promote"]
    assert len(links) == 2
    form = fields(site.get(links[1]))
    assert form["body"].startswith("I will not repeat or store credentials.")
    assert form["body"] == form["body"].strip() and "step-" not in form["body"]
    assert form["lines"] == "12-16"
    assert form["title"].startswith("I will not repeat")


def test_an_entry_is_copied_for_another_scope(site: Any) -> None:
    mine = site.save("Use WAL", "It is *so*.", scope=SHOP, kind="decision", tags=["db", "x"])
    link = site.get(f"/entries/{mine.id}").doc.one("a", data_promote="").attrs["href"]
    page = site.get(link)
    form = fields(page)
    assert (form["scope"], form["kind"], form["tags"]) == ("global", "decision", "db, x")
    assert (form["title"], form["body"], form["copy"]) == ("Use WAL", "It is *so*.", mine.id)
    # The entry that it is a copy of is not told as close to it.
    assert not page.main.all(class_="close-ones")
    saved = site.follow(site.submit(page, entry_form(page), "Save"))
    assert saved.toasts == ["Saved the entry."]
    assert site.rows("SELECT count(*) FROM entries WHERE title = 'Use WAL'") == [(2,)]
    everywhere = site.save("Answer briefly", scope="global")
    assert fields(site.get(f"/promote?entry={everywhere.id}"))["scope"] == ""


def test_what_is_too_long_says_how_much_was_left_out(site: Any) -> None:
    text = "# Talk\n" + "".join(f"line {n} " + "x" * 100 + "\n" for n in range(300))
    site.foreign_transcript("long", text)
    form = fields(site.get("/promote?session=long&lines=2-301"))
    found = re.search(r"\n\n\[([0-9,]+) more characters of lines 2-301 left out\]$", form["body"])
    assert found and len(form["body"]) <= 8_000
    whole = "\n".join(text.split("\n")[1:301])
    kept = form["body"][: found.start()]
    assert whole.startswith(kept)
    assert abs(int(found[1].replace(",", "")) - (len(whole) - len(kept))) < 5
    assert form["title"].startswith("line 0 x")
    assert form["scope"] == "global"
    page = site.get("/promote?session=long&lines=2-301")
    assert site.submit(page, entry_form(page), "Save").status == 303


def test_control_characters_of_a_terminal_do_not_stop_the_save(site: Any) -> None:
    site.foreign_transcript("ansi", "# A\n\x1b[31mred\x1b[0m and \x07bell \x00 nul\n\x1b[31m\n")
    page = site.get("/promote?session=ansi&lines=2")
    assert fields(page)["body"] == "red and \\x07bell \\x00 nul"
    assert site.submit(page, entry_form(page), "Save").status == 303


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 400, "Nothing is named to promote"),
        ("session=" + KEYS, 400, "Nothing is named"),
        (f"session={KEYS}&lines=0", 400, "there is no line 0"),
        (f"session={KEYS}&lines=5-3", 400, "runs backwards"),
        (f"session={KEYS}&lines=1-99999", 400, "up to 2,000 lines"),
        (f"session={KEYS}&lines=<script>", 400, "is not a line range"),
        (f"session={KEYS}&lines=999", 404, "there is no line 999"),
        (f"session={KEYS}&message=msg_none", 404, "is not in the transcript"),
        (f"session={KEYS}&message=<script>", 404, "is not in the transcript"),
        ("session=ses_none&lines=1", 404, "knows a session ses_none"),
        ("session=<script>&lines=1", 400, "session"),
        ("entry=none", 404, "There is no entry none"),
        (f"session={KEYS}&lines=1&to=mail", 400, "is no way to promote"),
    ],
)
def test_what_cannot_be_taken_is_told(site: Any, query: str, status: int, words: str) -> None:
    page = site.get(f"/promote?{quote(query, safe='=&')}")
    assert page.status == status and words in page.text
    page.assert_inert()


def test_a_store_that_is_read_only_says_why_nothing_can_be_saved(site: Any) -> None:
    site.save("One")
    site.export_all()
    site.rows("ALTER TABLE trash ADD COLUMN theirs TEXT")
    for way in ("entry", "file"):
        page = site.get(f"/promote?session={KEYS}&lines=9-16&to={way}")
        assert page.status == 200
        assert "Nothing can be saved from here" in page.text and "“theirs”" in page.text
        assert not page.main.all("textarea") and not page.main.all("form")
        assert "I will not repeat" in page.text
    for path in ("/promote/write", "/entries"):
        answer = site.post(path, {"session": KEYS, "lines": "9", "text": "x", "title": "x"})
        assert answer.status == 409 and "Nothing was changed" in answer.text


def test_a_removed_transcript_says_so(site: Any) -> None:
    site.export_all()
    page = site.get(f"/cleanup?session={KEYS}&keep_recent=0")
    site.finished(site.submit(page, page.form("/cleanup", method="post"), "Remove 1 transcript"))
    gone = site.get(f"/promote?session={KEYS}&lines=9")
    assert gone.status == 404 and "removed by a cleanup" in gone.text
    assert any(a.attrs["href"] == f"/transcripts/{KEYS}" for a in gone.main.all("a"))


# Where it came from -------------------------------------------------------------------------------


def promoted(site: Any, lines: str = "9-16", **values: str) -> str:
    """Saves lines as an entry through the pages; returns its id."""
    page = site.get(f"/promote?session={KEYS}&lines={lines}")
    answer = site.submit(page, entry_form(page), "Save", **values)
    return str(answer.location.rsplit("/", 1)[1])


def test_the_entry_leads_back_to_its_lines_which_notice_other_text(site: Any) -> None:
    entry = promoted(site, title="Keys are not kept")
    page = site.get(f"/entries/{entry}")
    assert page.facts["written by"] == "tester"
    assert page.facts["taken"] == "from lines 9–16 of A key was pasted by mistake"
    link = next(a for a in page.main.all("a") if "9–16" in a.text).attrs["href"]
    assert re.fullmatch(rf"/transcripts/{KEYS}/9-16\?h=[0-9a-f]{{8}}#L9", link)
    back = site.get(link.split("#")[0])
    assert len(back.main.all(class_="selected")) == 8
    assert not back.main.all(class_="moved")
    other = site.get(link.split("#")[0].replace("9-16", "8-15"))
    assert other.main.all(class_="moved")


def test_the_origin_lives_through_an_edit_the_trash_and_a_restore_and_goes_with_a_purge(
    site: Any,
) -> None:
    entry = promoted(site, title="Keys are not kept")
    page = site.get(f"/entries/{entry}/edit")
    site.submit(page, page.form(f"/entries/{entry}"), "Save", tags="keys", shown="x")
    told = "from lines 9–16 of A key was pasted by mistake (the entry was edited since)"
    assert site.get(f"/entries/{entry}").facts["taken"] == told
    site.post(f"/entries/{entry}/forget")
    gone = site.get(f"/entries/{entry}")
    assert gone.status == 410 and gone.facts["taken"] == told
    trash = site.get("/trash")
    # The text before the edit is in the trash too, and came from there as it is.
    assert trash.text.count("from lines 9–16 of A key was pasted by mistake") == 2
    assert trash.text.count("edited since") == 1
    site.post(f"/trash/{entry}/restore")
    assert site.get(f"/entries/{entry}").facts["taken"] == told
    assert site.rows("SELECT count(*) FROM origins") == [(2,)]
    site.post(f"/entries/{entry}/forget")
    site.post(f"/trash/{entry}/purge")
    assert site.rows("SELECT count(*) FROM origins") == [(1,)]


def test_a_promotion_that_rewrites_replaces_the_origin_and_the_former_text_keeps_its_own(
    site: Any,
) -> None:
    entry = promoted(site, "9-16", title="Keys are not kept")
    page = site.get(f"/promote?session={KEYS}&lines=12-16")
    asked = site.submit(page, entry_form(page), "Save", title="Keys are not kept")
    assert asked.status == 409 and "Saving would rewrite it" in asked.text
    form = fields(asked)
    assert (form["session"], form["lines"]) == (KEYS, "12-16")
    assert f"/transcripts/{KEYS}/12-16" in [
        a.attrs["href"].split("?")[0] for a in asked.main.all("a")
    ]
    done = site.submit(asked, entry_form(asked), "Save", rewrite="1")
    assert done.location == f"/entries/{entry}"
    assert site.get(done.location).facts["taken"].startswith("from lines 12–16 of")
    ((former,),) = site.rows("SELECT id FROM trash")
    assert site.get(f"/entries/{former}").facts["taken"].startswith("from lines 9–16 of")


def test_saving_the_same_words_again_is_no_edit(site: Any) -> None:
    entry = promoted(site, title="Keys are not kept")
    ((body,),) = site.rows("SELECT body FROM entries")
    site.save("Keys are not kept", body, scope=SHOP)
    assert "edited" not in site.get(f"/entries/{entry}").facts["taken"]
    site.save("Keys are not kept", "Otherwise.", scope=SHOP)
    assert "edited since" in site.get(f"/entries/{entry}").facts["taken"]


def test_a_copy_of_an_entry_keeps_the_way_back(site: Any) -> None:
    entry = promoted(site, title="Keys are not kept")
    page = site.get(f"/promote?entry={entry}")
    copy = site.submit(page, entry_form(page), "Save").location
    assert site.get(copy).facts["taken"] == "from lines 9–16 of A key was pasted by mistake"


@pytest.mark.parametrize(
    "bad", [{"lines": "x"}, {"lines": ""}, {"h": "zz"}, {"h": ""}, {"session": "a\nb"},
            {"session": "x" * 400}]
)  # fmt: skip
def test_a_bad_origin_is_refused_and_nothing_is_saved(site: Any, bad: dict[str, str]) -> None:
    good = {"title": "t", "kind": "fact", "body": "b", "scope": "global", "session": KEYS,
            "lines": "9", "h": "0" * 8}  # fmt: skip
    answer = site.post("/entries", {**good, **bad})
    assert answer.status == 400
    answer.assert_inert()
    assert (
        site.rows("SELECT count(*) FROM entries") == [(0,)] if site.settings.db.exists() else True
    )


def test_odd_origins_of_another_program_do_no_harm(site: Any) -> None:
    entry = site.save("One")
    site.rows("INSERT INTO origins VALUES (?, ?, 'x', -3, ?, 'y')", entry.id, b"\xff", b"\xff")
    assert "taken" not in site.get(f"/entries/{entry.id}").facts
    site.rows("UPDATE origins SET first_line = 3, last_line = 9")
    page = site.get(f"/entries/{entry.id}")
    assert page.status == 200 and page.facts["taken"].startswith("from lines 3–9 of")
    page.assert_inert()


# What is close ------------------------------------------------------------------------------------


def new(title: str, body: str = "It is so.", scope: str = SHOP, **more: Any) -> dict[str, Any]:
    return {"title": title, "kind": "fact", "body": body, "scope": scope, **more}


def test_the_first_save_shows_what_is_close_and_the_second_saves(site: Any) -> None:
    tabs = site.save("We use tabs", "In every file.", scope=SHOP)
    asked = site.post("/entries", new("We use spaces"))
    assert asked.status == 409
    assert site.rows("SELECT count(*) FROM entries") == [(1,)]
    assert "Nothing is saved yet" in asked.text and "In every file." in asked.text
    links = {a.attrs["href"] for a in asked.main.all("a")}
    assert {f"/entries/{tabs.id}", f"/entries/{tabs.id}/edit"} <= links
    saved = site.submit(asked, entry_form(asked), "Save anyway")
    assert saved.status == 303
    assert site.rows("SELECT count(*) FROM entries") == [(2,)]


def test_only_what_was_not_shown_is_asked_about_and_a_changed_one_again(site: Any) -> None:
    site.save("We use tabs", "In every file.", scope=SHOP)
    asked = site.post("/entries", new("We use spaces"))
    site.save("We use tabs", "In no file.", scope=SHOP)
    again = site.submit(asked, entry_form(asked), "Save anyway")
    assert again.status == 409 and "In no file." in again.text
    site.save("We use ems", "In CSS.", scope=SHOP)
    again = site.submit(again, entry_form(again), "Save anyway")
    assert again.status == 409 and "2 entries are close" in again.text
    assert site.submit(again, entry_form(again), "Save anyway").status == 303


def test_a_fragment_shows_them_as_one_types_and_then_the_save_does_not_ask(site: Any) -> None:
    tabs = site.save("We use tabs", "In every file.", scope=SHOP)
    htmx = {"HX-Request": "true", "HX-Target": "similar"}
    answer = site.post("/similar", new("We use spaces"), headers=htmx)
    assert answer.status == 200 and not answer.is_page
    shown = answer.doc.one("input", name="shown").attrs["value"]
    assert shown == f"{tabs.id}:{tabs.updated_at}"
    assert site.post("/entries", new("We use spaces", shown=[shown])).status == 303
    assert (
        "close"
        not in site.post(
            "/similar", new("Money is Decimal", "From a form to a mail."), headers=htmx
        ).html
    )
    for form in ({}, new("We use spaces", scope="nowhere"), new("x" * 10_000, "y" * 100_000)):
        assert site.post("/similar", form, headers=htmx).status == 200
    assert site.post("/similar", new("We use spaces")).is_page


def test_an_edit_asks_only_when_its_words_change(site: Any) -> None:
    site.save("We use tabs", scope=SHOP)
    mine = site.post("/entries", new("We use spaces", shown=["x"]))
    mine = site.submit(mine, entry_form(mine), "Save anyway").location
    page = site.get(f"{mine}/edit")
    form = page.form(mine)
    assert site.submit(page, form, "Save", tags="style").status == 303
    # It was close to that one before, and saved all the same.
    page = site.get(f"{mine}/edit")
    assert site.submit(page, page.form(mine), "Save", title="We use ems").status == 303
    site.save("We use points", "In print.", scope=SHOP)
    page = site.get(f"{mine}/edit")
    asked = site.submit(page, page.form(mine), "Save", title="We use spaces")
    assert asked.status == 409 and "In print." in asked.text
    assert "We use ems" not in asked.main.one(class_="close-ones").text
    assert site.submit(asked, asked.form(mine), "Save anyway").status == 303


def test_hostile_neighbours_are_text(hostile: Any) -> None:
    ((title, body),) = hostile.rows("SELECT title, body FROM entries WHERE id = 'hostile-0'")
    page = hostile.post("/similar", new(title[:119], body, scope="global"))
    page.assert_inert()
    hostile.rows("UPDATE entries SET scope = 'global'")
    page = hostile.post("/entries", new("<script>alert(1)</script>", body, scope="global"))
    page.assert_inert()
    for path in (
        "/promote?entry=hostile-0",
        "/promote?entry=hostile-0&to=file",
        f"/promote?session={HOSTILE}&lines=1-20",
        "/promote?session=hostile&lines=1-4",
    ):
        page = hostile.get(path)
        assert page.status == 200, page.text
        page.assert_inert()


# AGENTS.md ----------------------------------------------------------------------------------------


def proposed(site: Any, path: Path, lines: str = "15", **values: str) -> Any:
    """The page with the difference for a file."""
    page = site.get(f"/promote?session={KEYS}&lines={lines}&to=file")
    form = page.form("/promote/diff")
    (radio,) = [
        node for node in form.all("input", type="radio")
        if node.parent and node.parent.text == str(path)
    ]  # fmt: skip
    return site.submit(page, form, "Show the difference", target=radio.attrs["value"], **values)


def test_lines_are_shown_as_a_difference_written_and_taken_back(site: Any, project: Path) -> None:
    path = project / "AGENTS.md"
    path.write_bytes(b"# Shop\r\n\r\n## Keys\r\n\r\n- None.\r\n\r\n## Rest\r\n")
    page = site.get(f"/promote?session={KEYS}&lines=15&to=file")
    form = page.form("/promote/diff")
    where = form.all("select")[0]
    assert [o.text for o in where.all("option")] == [
        "at the end", "under # Shop", "under ## Keys", "under ## Rest"
    ]  # fmt: skip
    shown = proposed(site, path, **{where.attrs["name"]: "1"})
    assert shown.status == 200 and b"rotate" not in path.read_bytes()
    difference = shown.main.one("pre", class_="diff")
    assert next(n.text for n in difference.all(class_="d-add")).startswith("+I will not repeat")
    done = site.submit(shown, shown.form("/promote/write"), "Write it")
    receipt = site.follow(done)
    assert receipt.toasts == [f"Written to {path}."]
    assert b"- None.\r\n\r\nI will not repeat" in path.read_bytes()
    assert receipt.facts["file"] == str(path) and receipt.facts["scope"] == str(project)
    assert receipt.facts["taken from"] == "line 15 of A key was pasted by mistake"
    assert "by tester" in receipt.text
    (backup,) = site.settings.backups_dir.iterdir()
    assert receipt.facts["former text"].endswith(backup.name)
    back = site.follow(site.submit(receipt, receipt.form(f"{done.location}/undo"), "Take it back"))
    assert path.read_bytes() == b"# Shop\r\n\r\n## Keys\r\n\r\n- None.\r\n\r\n## Rest\r\n"
    assert "takes back" in back.facts and back.status == 200
    first = site.get(done.location)
    assert "is what it was before" in first.text and not first.main.all("form")
    assert site.get("/receipts").main.all("tr")[1].text.startswith("Took back")


def test_an_existing_claude_file_is_chosen_before_a_new_agents_file(
    site: Any, project: Path
) -> None:
    (project / "CLAUDE.md").write_text("Be kind.\n")
    page = site.get(f"/promote?session={KEYS}&lines=15&to=file")
    (checked,) = [n for n in page.main.all("input", type="radio") if "checked" in n.attrs]
    assert checked.parent and checked.parent.text == f"{project}/CLAUDE.md"
    assert "a new AGENTS.md would hide it" in page.text
    shown = proposed(site, project / "AGENTS.md")
    assert "would hide it" in shown.main.one("section", class_="proposal").text


def test_a_file_that_changes_in_between_is_shown_anew_and_not_written(
    site: Any, project: Path
) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    shown = proposed(site, path)
    path.write_text("Two.\n")
    refused = site.submit(shown, shown.form("/promote/write"), "Write it")
    assert refused.status == 409 and "so nothing was written. This is the new one" in refused.text
    assert "Two." in refused.main.one("pre", class_="diff").text
    assert path.read_text() == "Two.\n"
    done = site.submit(refused, refused.form("/promote/write"), "Write it")
    assert done.status == 303 and path.read_text().startswith("Two.\n\nI will not")


def test_two_browsers_with_the_same_difference(site: Any, project: Path) -> None:
    path = project / "AGENTS.md"
    one, two = proposed(site, path, text="One says."), proposed(site, path, text="Two says.")
    assert site.submit(one, one.form("/promote/write"), "Write it").status == 303
    late = site.submit(two, two.form("/promote/write"), "Write it")
    assert late.status == 409 and path.read_text() == "One says.\n"
    assert site.submit(late, late.form("/promote/write"), "Write it").status == 303
    assert path.read_text() == "One says.\n\nTwo says.\n"


def test_a_change_since_is_not_taken_back_and_says_what_to_do(site: Any, project: Path) -> None:
    path = project / "AGENTS.md"
    path.write_text("One.\n")
    shown = proposed(site, path)
    done = site.submit(shown, shown.form("/promote/write"), "Write it").location
    page = site.get(done)
    path.write_text("Mine.\n")
    refused = site.submit(page, page.form(f"{done}/undo"), "Take it back")
    assert refused.status == 409
    assert "was changed since" in refused.text and "by hand" in refused.text
    assert path.read_text() == "Mine.\n"
    after = site.get(done)
    assert "was changed since" in after.text and not after.main.all("form")


def test_secrets_and_control_characters_are_refused_and_the_text_is_kept(
    site: Any, project: Path
) -> None:
    path = project / "AGENTS.md"
    for bad, word in ((f"Key {GHP}", "secret"), ("a\x1b[2Kb", "U+001B"), ("", "empty")):
        answer = proposed(site, path, text=bad)
        assert answer.status == 400 and word in answer.main.one("p", class_="bad").text
        assert not answer.main.all("section", class_="proposal")
        kept = answer.main.one("textarea").raw
        assert kept.removeprefix("\n") == bad or bad == ""
        answer.assert_inert()
    assert not path.exists()
    told = proposed(site, path, text="a\u202eb")
    assert "U+202E" in told.main.one("pre", class_="diff").text


def test_no_path_is_taken_from_a_form(site: Any, project: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("keep\n")
    for target in (str(victim), "../victim", "", "x" * 12):
        for path in ("/promote/diff", "/promote/write"):
            answer = site.post(
                path, {"session": KEYS, "lines": "15", "target": target, "text": "x"}
            )
            assert answer.status == 400 and "Choose one of the files" in answer.text
    assert victim.read_text() == "keep\n"


def test_each_file_that_cannot_be_written_says_why(site: Any, project: Path) -> None:
    path = project / "AGENTS.md"
    path.write_bytes(b"x" * 5_000_000)
    page = site.get(f"/promote?session={KEYS}&lines=15&to=file")
    assert "more than 250,000 bytes" in page.text
    path.unlink()
    os.mkfifo(path)
    page = site.get(f"/promote?session={KEYS}&lines=15&to=file")
    assert "no regular file" in page.text
    for node in page.main.all("input", type="radio"):
        assert ("disabled" in node.attrs) is (node.attrs["value"] != _usable(page))


def _usable(page: Any) -> str:
    (found,) = [n for n in page.main.all("input", type="radio") if "disabled" not in n.attrs]
    return str(found.attrs["value"])


def test_a_project_folder_that_is_gone_leaves_the_global_file(site: Any) -> None:
    site.settings.places.config_dir.mkdir(parents=True)
    page = site.get(f"/promote?session={KEYS}&lines=15&to=file")
    assert f"The folder {SHOP} is not there." in page.text
    written = proposed(site, site.settings.places.config_dir / "AGENTS.md")
    done = site.follow(site.submit(written, written.form("/promote/write"), "Write it"))
    assert done.facts["former text"] == "there was no such file"
    assert (site.settings.places.config_dir / "AGENTS.md").read_text().startswith("I will not")


def test_an_entry_is_proposed_with_its_title_as_a_heading(site: Any, project: Path) -> None:
    entry = site.save("Use WAL", "It is so.", scope=str(project))
    page = site.get(f"/promote?entry={entry.id}&to=file")
    assert page.main.one("textarea").raw.strip() == "## Use WAL\n\nIt is so."
    shown = site.submit(page, page.form("/promote/diff"), "Show the difference")
    done = site.follow(site.submit(shown, shown.form("/promote/write"), "Write it"))
    assert (project / "AGENTS.md").read_text() == "## Use WAL\n\nIt is so.\n"
    link = next(a for a in done.main.all("a") if a.text == "Use WAL")
    assert link.attrs["href"] == f"/entries/{entry.id}"


def test_a_page_of_another_site_writes_nothing(site: Any, project: Path) -> None:
    path = project / "AGENTS.md"
    shown = proposed(site, path)
    sent = dict(shown.fields(shown.form("/promote/write")))
    answer = site.post("/promote/write", sent, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 403 and not path.exists()
    assert site.get("/promote/write").status == 405


def test_what_another_program_wrote_unmasked_is_masked(site: Any, project: Path) -> None:
    site.save("One")
    site.foreign_entry("odd", title=f"Use {GHP}", kind=GHP, tags=json.dumps([GHP]), body="b")
    page = site.get("/promote?entry=odd")
    assert page.status == 200 and GHP not in page.html and "ghp_…[masked 40]" in page.main.text
    page = site.get("/promote?entry=odd&to=file")
    assert page.status == 200 and GHP not in page.html


@pytest.mark.parametrize("folder", ["/a\0b", "/" + "x" * 5_000, "relative", "", "/a\nb", b"/\xff"])
def test_an_odd_folder_of_a_session_gets_words(
    site: Any, project: Path, newest_db: Path, folder: str | bytes
) -> None:
    for column in ("session.directory", "project.worktree"):
        table, name = column.split(".")
        with closing(sqlite3.connect(newest_db)) as connection, connection:
            connection.execute(f"UPDATE {table} SET {name} = CAST(? AS TEXT)", (folder,))
        page = site.get(f"/promote?session={KEYS}&lines=9-16&to=file")
        assert page.status == 200, column
        assert page.form("/promote/diff").all("input", type="radio")
        if folder == "/a\0b" and table == "session":
            assert "No folder can have that name" in page.main.text


def test_a_cut_text_says_so_above_it(site: Any, newest_db: Path) -> None:
    assert "Not all of it fits" not in site.get(f"/promote?session={KEYS}&lines=9-16").main.text
    site.save("One")
    site.foreign_entry("long", title="Long", body="word " * 4_000)
    page = site.get("/promote?entry=long")
    (banner,) = [p for p in page.main.all("p") if "Not all of it fits" in p.text]
    assert re.search(r"\[[\d,]+ more characters of the entry left out\]", banner.text)


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("- **Use** the `__init__` of shop", "Use the __init__ of shop"),
        ("ghp_…[masked 40] is refused", "ghp_…[masked 40] is refused"),
        ("__init__ of the shop", "__init__ of the shop"),
        ("> ### __Bold words__ and *one*", "Bold words and one"),
        ("--flag and f(**kwargs) and 2*3*4", "--flag and f(**kwargs) and 2*3*4"),
    ],
)
def test_a_title_loses_markup_and_nothing_else(line: str, title: str) -> None:
    assert title_of(line) == title


def _areas(page: Any) -> list[str]:
    return [area.raw.removeprefix("\n") for area in page.main.all("textarea")]


def test_no_text_is_lost_to_a_locked_store(
    site: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project / "AGENTS.md"
    site.save("One")
    page = proposed(site, path, text="An hour of work.")
    write = page.form("/promote/write")
    entry = site.save("Edited")

    def busy(*args: Any, **kwargs: Any) -> Any:
        raise Busy("Another process is writing. Try again.")

    monkeypatch.setattr(Store, "writing", busy)
    answer = site.submit(page, write)
    assert answer.status == 503 and "An hour of work." in _areas(answer) and not path.exists()
    assert "Another process is writing" in answer.main.text
    fields_ = {**new("Two", "A body of work."), "shown": ""}
    answer = site.post("/entries", fields_)
    assert answer.status == 503 and _areas(answer) == ["A body of work."]
    assert answer.form("/entries")
    answer = site.post(f"/entries/{entry.id}", {**fields_, "seen": str(entry.updated_at)})
    assert answer.status == 503 and _areas(answer) == ["A body of work."]
    assert answer.form(f"/entries/{entry.id}")
    monkeypatch.setattr(Store, "open", busy)
    for address in ("/entries", f"/entries/{entry.id}"):
        answer = site.post(address, fields_)
        assert answer.status == 503 and _areas(answer) == ["A body of work."], address
        assert answer.form(address)


def test_no_text_is_lost_to_a_purge_or_a_transcript_that_went(site: Any, project: Path) -> None:
    entry = site.save("One")
    site.post(f"/entries/{entry.id}/forget")
    site.post(f"/trash/{entry.id}/purge")
    answer = site.post(f"/entries/{entry.id}", {**new("One", "My words."), "self": entry.id})
    assert answer.status == 404 and _areas(answer) == ["My words."]
    assert "was purged" in answer.main.text and answer.form("/entries")
    for address in ("/promote/write", "/promote/diff"):
        answer = site.post(address, {"session": "ses_gone", "lines": "1", "text": "My <b>words."})
        assert answer.status == 404 and _areas(answer) == ["My <b>words."]


ODD: dict[str, Any] = {"file": "/x/AGENTS.md", "diff": [], "is": "0", "was": None}


@pytest.mark.parametrize(
    ("action", "detail"),
    [
        (
            "instructions",
            {**ODD, "origin": {"session": "a\0b", "first": 1, "last": 2, "hash": "0" * 8}},
        ),
        (
            "instructions",
            {**ODD, "origin": {"session": "s", "first": 1, "last": 10**30, "hash": "0"}},
        ),
        ("instructions", {**ODD, "origin": {"entry": "\ud800", "title": ["x"]}}),
        ("instructions", {**ODD, "origin": {"entry": "e", "title": "\ud800"}}),
        ("instructions", {**ODD, "file": "/x/\ud800"}),
        ("instructions", {**ODD, "takes_back": -1, "scope": ["x"]}),
        ("instructions", {**ODD, "takes_back": 10**30, "diff": ["\ud800", 1, None]}),
        ("cleanup", {"transcripts": "abc"}),
        ("cleanup", {"transcripts": 5}),
        ("cleanup", {"transcripts": [1, {}, {"id": []}, {"id": "a\0b"}, {"id": "../x"}]}),
        ("cleanup", {"transcripts": [{"id": []}], "interrupted": True, "bytes": "x"}),
        ("cleanup", {"options": "x", "problems": 5, "put back": "x"}),
        ("forget", {"\ud800": "x", "": [{"\ud800": 1}], "entries": [1]}),
    ],
)
def test_whatever_a_receipt_of_another_program_holds_is_shown(
    site: Any, action: str, detail: dict[str, Any]
) -> None:
    site.save("One")
    site.rows(
        "INSERT INTO receipts (id, at, action, actor, summary, detail) VALUES (7, 1, ?, 'x', 'odd', ?)",
        action, json.dumps(detail),
    )  # fmt: skip
    assert site.get("/receipts").status == 200
    assert site.get("/receipts/7").status == 200
    assert site.post("/receipts/7/undo").status in (303, 400, 404, 409)
    assert site.get("/receipts/7").status == 200


def test_a_receipt_of_this_kind_that_says_nonsense_is_shown_as_kept(site: Any) -> None:
    site.save("One")
    for number, detail in enumerate(
        ('{"file": 3}', "[]", "not json", '{"file": "/x", "diff": ["<b>"]}'), 1
    ):
        site.rows(
            "INSERT INTO receipts (at, action, actor, summary, detail) VALUES (1, 'instructions', '<b>',"
            " '<script>', ?)", detail,
        )  # fmt: skip
        page = site.get(f"/receipts/{number}")
        assert page.status == 200
        page.assert_inert()
        assert site.post(f"/receipts/{number}/undo").status in (404, 409)
