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

from webapp import __version__
from webapp import settings as setting_table
from webapp.settings import Settings
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
