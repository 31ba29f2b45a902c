"""`/settings`: each value and where it came from; `/healthz`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import request_finished

from webapp import __version__, opencode
from webapp import settings as setting_table
from webapp.memory import entries, origins
from webapp.memory.reflect import ledger
from webapp.memory.reflect.ledger import Outcome
from webapp.settings import Settings
from webapp.store import Store, now_ms
from webapp.web import current


def rows(answer: Any) -> dict[str, tuple[str, str]]:
    """Value and origin of each setting."""
    found = {}
    for row in answer.doc.one("table", class_="settings").one("tbody").all("tr"):
        cells = row.all("td")
        found[cells[0].one("code").text] = (cells[1].text, cells[2].text)
    return found


def test_every_setting_is_shown_with_its_help(site: Any) -> None:
    answer = site.get("/settings")
    assert answer.status == 200
    assert list(rows(answer)) == [row.name for row in setting_table.TABLE]
    for row in setting_table.TABLE:
        assert row.help in answer.text


def test_each_value_says_where_it_came_from(
    tmp_path: Path, make_site: Callable[[Settings], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "home" / ".config" / "opencode-memory"
    config.mkdir(parents=True)
    (config / "config.toml").write_text("trash_days = 7\nkeep_recent = 3\nmask = false\n")
    plugin = tmp_path / "home" / ".config" / "opencode"
    plugin.mkdir()
    (plugin / "opencode.json").write_text(
        '{"plugin": [["@log0u7/opencode-memory", {"keepRecent": 4, "maxSessions": 50}]]}'
    )
    env = {"HOME": str(tmp_path / "home"), "OPENCODE_MEMORY_KEEP_RECENT": "2"}
    monkeypatch.setenv("HOME", env["HOME"])
    site = make_site(setting_table.load({"db": str(tmp_path / "my.db")}, env))
    found = rows(site.get("/settings"))
    assert found["db"] == (str(tmp_path / "my.db"), "--db")
    assert found["keep_recent"] == ("2", "OPENCODE_MEMORY_KEEP_RECENT")
    assert found["trash_days"] == ("7", "~/.config/opencode-memory/config.toml")
    assert found["mask"] == ("false", "~/.config/opencode-memory/config.toml")
    assert found["max_sessions"] == ("50", "~/.config/opencode/opencode.json")
    assert found["retention_days"] == ("0", "default")
    assert found["opencode_db"] == ("none found", "default")


def test_the_databases_that_were_found_are_named(
    settings: Settings, make_site: Callable[[Settings], Any]
) -> None:
    settings.opencode_dir.mkdir(parents=True)
    for name in ("opencode.db", "opencode-beta.db"):
        (settings.opencode_dir / name).touch()
    value, _ = rows(make_site(settings).get("/settings"))["opencode_db"]
    assert value.endswith("opencode.db, " + str(settings.opencode_dir / "opencode-beta.db"))


def test_healthz_answers_without_secrets_or_paths(site: Any) -> None:
    answer = site.get("/healthz")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    told = json.loads(answer.body)
    assert told == {
        "ok": True,
        "name": "opencode-memory",
        "version": __version__,
        "pid": os.getpid(),
    }


def test_health_and_static_files_never_wait_for_the_store(site: Any) -> None:
    store = site.app.extensions[current.KEY].store
    opened: list[bool] = []

    def note(_app: Any, **_: Any) -> None:
        opened.append(getattr(store._local, "db", None) is not None)

    with request_finished.connected_to(note, site.app):
        for path in ("/healthz", "/static/app.css", "/"):
            assert site.get(path).status == 200
    assert opened == [False, False, True]


def test_the_watcher_tells_what_it_did(site: Any, settings: Settings, make_site: Any) -> None:
    page = site.get("/settings")
    assert "Auto export: has not run yet, 0 exported since the start, no problem" in page.text
    watcher = site.app.extensions[current.KEY].watcher
    assert watcher.look() is True
    text = site.get("/settings").text
    assert re.search(r"Auto export: last ran (just now|in a moment|\d+ s ago), \d+ exported", text)
    (site.settings.opencode_db).write_bytes(b"garbage" * 1000)
    watcher.look()
    assert "last problem" in site.get("/settings").text
    assert "damaged" in site.get("/settings").text
    off = make_site(replace(settings, auto_export="off"))
    assert "Auto export: off" in off.get("/settings").text


def test_what_the_watcher_exports_is_on_the_pages(site: Any) -> None:
    watcher = site.app.extensions[current.KEY].watcher
    watcher.look()
    assert watcher.status.exported == 2
    assert "2 transcripts" in site.get("/cleanup").text


# Reflection ---------------------------------------------------------------------------------------


def set_up(settings: Settings, **more: Any) -> Settings:
    """Settings with reflection on."""
    return replace(
        settings, **{"reflection": True, "reflection_url": "https://llm.example:8443/v1",
                     "reflection_model": "small-1", **more}
    )  # fmt: skip


def test_reflection_is_off_and_says_how_to_switch_it_on(site: Any) -> None:
    page = site.get("/settings")
    assert "Off: no session is sent anywhere" in page.text
    for name in ("reflection = true", "reflection_url", "reflection_model", "reflection_key_file"):
        assert name in page.text
    assert not page.main.all("table", class_="reflections")


def test_reflection_that_is_on_says_what_goes_where_or_what_it_lacks(
    settings: Settings, make_site: Any
) -> None:
    text = make_site(set_up(settings)).get("/settings").text
    assert "its last 8,000 characters are sent to llm.example:8443, masked" in text
    assert "model small-1 distils at most 3 lessons" in text
    half = make_site(set_up(settings, reflection_model=None)).get("/settings").text
    assert "Reflection is on. Set reflection_model too: until then nothing is asked." in half


def test_what_reflections_cost_and_led_to_is_told_and_never_the_key(
    settings: Settings, make_site: Any, tmp_path: Path
) -> None:
    key = tmp_path / "the-key"
    key.write_text("sk-" + "Zq7" * 16)
    on = set_up(settings, reflection_key_file=key)
    now = now_ms()
    outcomes = {
        "ses_done": Outcome("done", "", 1200, 80, 2, 1, 1),
        "ses_none": Outcome("done", "", 900, 3),
        "ses_bad": Outcome("failed", "The endpoint does not accept the key (401)."),
        "ses_later": Outcome("retry", "It cannot be reached: <b>refused</b>."),
        "ses_never": Outcome("unsent", "The session is not in OpenCode any more."),
    }
    with Store(on.db).session() as store:
        for number, (name, outcome) in enumerate(outcomes.items()):
            ledger.claim(store, name, "small-1", now - number)
            ledger.settle(store, name, outcome)
        ledger.claim(store, "ses_killed", "small-1", now - ledger.DAY_MS)
        ledger.claim(store, "ses_now", "small-1", now)
    page = make_site(on).get("/settings")
    assert page.facts["calls"] == "5"
    assert (page.facts["tokens sent"], page.facts["tokens received"]) == ("2,100", "83")
    assert page.facts["lessons saved"] == "2"
    assert "for 3 calls it told no count" in page.text
    told = {}
    for row in page.main.one("table", class_="reflections").one("tbody").all("tr"):
        cells = [cell.text for cell in row.all("td")]
        assert row.one("a").attrs["href"] == f"/sessions/{cells[0]}"
        told[cells[0]] = cells[2:]
    assert told == {
        "ses_done": ["done, 1 skipped, 1 refused", "2", "1,280"],
        "ses_none": ["done: nothing worth keeping", "0", "903"],
        "ses_bad": ["The endpoint does not accept the key (401).", "0", "—"],
        "ses_later": ["not sent, attempt 1; tried again later: "
                      "It cannot be reached: <b>refused</b>.", "0", "—"],
        "ses_never": ["not sent, given up after 1 attempt: "
                      "The session is not in OpenCode any more.", "0", "—"],
        "ses_killed": ["interrupted: the server ended in the middle of the call, which may have cost; "
                       "it is not made again", "0", "—"],
        "ses_now": ["being asked now", "0", "—"],
    }  # fmt: skip
    assert str(key) in page.text and "Zq7Zq7" not in page.html
    off = make_site(settings).get("/settings")
    assert "Off:" in off.text and off.facts["calls"] == "5"


def test_odd_values_of_another_program_take_nothing_down(
    settings: Settings, make_site: Any
) -> None:
    with Store(settings.db).session() as store:
        ledger.claim(store, "ses_a", "m", 1)
        store.rows("UPDATE reflections SET at = 'x', attempts = x'ff', saved = 'many', state = 3,"
                   " problem = x'fffe', prompt_tokens = 'many', session_id = x'ff'")  # fmt: skip
    assert make_site(set_up(settings)).get("/settings").status == 200


def test_the_settings_can_be_read_while_the_store_cannot(
    settings: Settings, make_site: Any
) -> None:
    settings.db.parent.mkdir(parents=True)
    settings.db.write_bytes(b"no database" * 400)
    page = make_site(set_up(settings)).get("/settings")
    assert page.status == 200 and "llm.example" in page.text


def test_a_lesson_leads_back_to_its_session(settings: Settings, make_site: Any) -> None:
    draft = entries.draft(scope="global", kind="lesson", title="t", body="b")
    with Store(settings.db).session() as store:
        saved = entries.save(store, draft, "reflection", origin=origins.whole("ses_a"))
    site = make_site(settings)
    page = site.get(f"/entries/{saved.entry.id}")
    assert page.facts["taken"] == "from the session ses_a"
    assert "/sessions/ses_a" in page.html
    assert site.get(f"/promote?entry={saved.entry.id}").status == 200
    assert site.get(f"/entries/new?copy={saved.entry.id}").status == 200


def test_sessions_are_named_by_their_titles(site: Any) -> None:
    draft = entries.draft(scope="global", kind="lesson", title="t", body="b")
    (talk, *_) = opencode.list_sessions([site.settings.opencode_db]).sessions
    with Store(site.settings.db).session() as store:
        ledger.claim(store, talk.id, "m", now_ms())
        saved = entries.save(store, draft, "reflection", origin=origins.whole(talk.id))
    table = site.get("/settings").main.one("table", class_="reflections")
    assert talk.title and table.one("a").text == talk.title
    assert site.get(f"/entries/{saved.entry.id}").facts["taken"] == f"from the session {talk.title}"
