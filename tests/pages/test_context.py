"""`/context/<id>`: what the model sees, and what is only in the record."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES
from webapp.opencode import list_sessions
from webapp.settings import Settings

LONG = "ses_dd3fa5a78ffeZgDejs2wUU3Afh"
KEYS = "ses_dd3fa5e7effemH7wTRNHHN8qG8"
EMPTY = "ses_dd3fa4afcffekVr5jSKEyzYeLu"
FILES = sorted(path.name for path in FIXTURES.glob("opencode-*.db"))


def column(answer: Any, name: str) -> Any:
    return answer.doc.one("section", aria_labelledby=name)


def test_a_compacted_session_shows_the_summary_what_follows_and_what_left(site: Any) -> None:
    site.get(f"/transcripts/{LONG}")
    answer = site.get(f"/context/{LONG}")
    assert answer.status == 200
    seen = column(answer, "seen-head")
    assert "What did we do so far?" in seen.text
    titles = [item.text for item in seen.all("summary")]
    assert "summary" in titles[0] or "summary" in titles[1]
    stored = column(answer, "stored-head").text
    assert "left at compaction 1" in stored and "left at compaction 2" in stored
    links = [a.attrs["href"] for a in column(answer, "stored-head").all("a")]
    assert links and all(site.get(link.split("#")[0]).status == 200 for link in links[:3])


def test_earlier_moments_can_be_stepped_to(site: Any) -> None:
    answer = site.get(f"/context/{LONG}")
    moments = answer.doc.one("nav", aria_label="As of").all("a")
    assert [a.text for a in moments] == [
        "now", "after compaction 2", "before compaction 2", "after compaction 1",
        "before compaction 1",
    ]  # fmt: skip
    first = site.get(moments[-1].attrs["href"])
    assert first.status == 200
    assert "What did we do so far?" not in column(first, "seen-head").text
    assert "Nothing: the model sees all" in column(first, "stored-head").text
    (chosen,) = [
        a for a in first.doc.one("nav", aria_label="As of").all("a") if "aria-current" in a.attrs
    ]
    assert chosen.text == "before compaction 1"


@pytest.mark.parametrize("name", FILES)
def test_every_session_of_every_version_opens(
    name: str, settings: Settings, tmp_path: Path, make_site: Callable[[Settings], Any]
) -> None:
    db = tmp_path / name
    shutil.copyfile(FIXTURES / name, db)
    site = make_site(replace(settings, opencode_db=db))
    for session in list_sessions([db]).sessions:
        answer = site.get(f"/context/{session.id}")
        assert answer.status == 200, (session.id, answer.text[:300])
        answer.assert_inert()
    assert not settings.db.exists()


def test_a_session_without_messages_is_told(site: Any) -> None:
    answer = site.get(f"/context/{EMPTY}")
    assert "Nothing yet" in column(answer, "seen-head").text


def test_credentials_are_masked(site: Any) -> None:
    answer = site.get(f"/context/{KEYS}")
    assert "ghp_…[masked" in answer.text
    assert "FakeFixture0FakeFixture0" not in answer.html


def test_a_pruned_output_is_the_placeholder_and_its_line_is_named(
    site: Any, newest_db: Path
) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        connection.execute(
            "UPDATE part SET data = json_set(data, '$.state.time.compacted', 5) WHERE id IN (SELECT id"
            " FROM part WHERE session_id = ? AND json_extract(data, '$.type') = 'tool'"
            " AND json_extract(data, '$.state.status') = 'completed' ORDER BY id DESC LIMIT 1)",
            (LONG,),
        )
    site.get(f"/transcripts/{LONG}")
    answer = site.get(f"/context/{LONG}")
    assert "[Old tool result content cleared]" in column(answer, "seen-head").text
    stored = column(answer, "stored-head")
    assert "1 pruned output" in stored.text and "line " in stored.text


@pytest.mark.parametrize(
    ("path", "status"),
    [("/context/ses_nosuch", 404), ("/context/..", 400), ("/context/a%20b", 400),
     (f"/context/{LONG}?after=msg_nosuch", 404), (f"/context/{LONG}?before=<script>", 404)],
)  # fmt: skip
def test_what_is_not_there_is_told(site: Any, path: str, status: int) -> None:
    answer = site.get(path)
    assert answer.status == status
    answer.assert_inert()


@pytest.mark.parametrize("kind", ["missing", "garbage", "empty"])
def test_an_opencode_that_cannot_be_read_is_told(site: Any, newest_db: Path, kind: str) -> None:
    newest_db.unlink()
    if kind == "garbage":
        newest_db.write_bytes(b"\xff" * 9000)
    elif kind == "empty":
        newest_db.touch()
    answer = site.get(f"/context/{LONG}")
    assert answer.status == 503 and str(newest_db) in answer.text
    assert site.get("/").status == 200


def test_the_instructions_that_reach_a_session_and_those_that_are_shadowed_are_named(
    settings: Settings, tmp_path: Path, make_site: Callable[[Settings], Any]
) -> None:
    key = "ghp_" + "FakeFixture0" * 3
    db, shop = tmp_path / "opencode.db", tmp_path / "shop"
    shutil.copyfile(FIXTURES / "opencode-1.18.33.db", db)
    (shop / ".git").mkdir(parents=True)
    (shop / "AGENTS.md").write_text(f"# Rules\nUse {key} <script>alert(1)</script>\n")
    (shop / "CLAUDE.md").write_text("# Others\n")
    config = settings.places.config_dir
    config.mkdir(parents=True)
    (config / "AGENTS.md").write_text("Be brief.\n")
    (config / "opencode.json").write_text('{"instructions": ["http://127.0.0.1:1/never-fetched"]}')
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE project SET worktree = ?", (str(shop),))
        connection.execute("UPDATE session SET directory = ?", (str(shop),))
    answer = make_site(replace(settings, opencode_db=db)).get(f"/context/{LONG}")
    answer.assert_inert()
    told = column(answer, "told-head")
    places = [node.text for node in told.all("b")]
    assert [Path(place).name for place in places[:2]] == ["AGENTS.md", "AGENTS.md"]
    assert any("never-fetched" in place for place in places)
    assert any(place.endswith("CLAUDE.md") for place in places)
    assert "Be brief." in told.text and "# Rules" in told.text
    assert key not in answer.html and "ghp_…[masked" in told.text


def test_a_session_that_no_instruction_reaches_says_so(site: Any) -> None:
    assert "no instruction file reaches" in column(site.get(f"/context/{LONG}"), "told-head").text
