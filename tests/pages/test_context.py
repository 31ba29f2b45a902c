"""`/context/<id>`: what the model sees, and what is only in the record."""

from __future__ import annotations

import json
import re
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
NEWER = "ses_dd3fa48b8ffeTVh5fVD8sckXhm"
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
    assert "Nothing had left the model's view" in column(first, "stored-head").text
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


MODEL = ("scripted", "m1")


def configured(settings: Settings, **more: Any) -> None:
    """A configuration that names the limits of the fixture's model, and an empty catalogue."""
    places = settings.places
    for folder in (places.config_dir, places.cache_dir):
        folder.mkdir(parents=True, exist_ok=True)
    limit = more.pop("limit", {"context": 128_000, "output": 4_000})
    config = {"provider": {MODEL[0]: {"models": {MODEL[1]: {"limit": limit}}}}, **more}
    (places.config_dir / "opencode.json").write_text(json.dumps(config))
    (places.cache_dir / "models.json").write_text("{}")


def bar(answer: Any) -> dict[str, tuple[float, float]]:
    """The segments of the bar by their class: where each begins and ends."""
    (svg,) = answer.doc.all("svg", class_="meter")
    return {
        rect.attrs["class"]: (float(rect.attrs["x"]), float(rect.attrs["x"]) + float(rect.attrs["width"]))
        for rect in svg.all("rect")
    }  # fmt: skip


def test_how_full_the_window_is_is_told_and_drawn(site: Any) -> None:
    configured(site.settings)
    answer = site.get(f"/context/{LONG}")
    answer.assert_inert()
    seen = column(answer, "seen-head")
    (told,) = re.findall(r"([0-9,]+) of 128,000 tokens", seen.text)
    measured = int(told.replace(",", ""))
    assert "compacts by itself at 124,000 · compacted twice" in seen.text
    assert "counted at the last answer" in seen.text
    drawn = bar(answer)
    assert drawn["s-reserve"][0] == 968.8 and drawn["s-free"] == (0, 1000)
    assert drawn["s-summary"][0] == 0 and drawn["s-summary"][1] == drawn["s-after"][0]
    assert abs(drawn["s-rest"][1] - measured / 128) < 1 and drawn["s-counted"][1] <= 1000
    assert f"free {124_000 - measured:,}" in seen.text
    (svg,) = answer.doc.all("svg", class_="meter")
    assert svg.attrs["role"] == "img" and "summary about" in svg.attrs["aria-label"]
    chart = answer.doc.one("div", class_="small")
    assert chart.attrs["data-usable"] == "124000" and "data-at" not in chart.attrs


def test_an_unknown_limit_is_said_to_be_unknown(site: Any) -> None:
    answer = site.get(f"/context/{LONG}")
    seen = column(answer, "seen-head").text
    assert "Neither the configuration nor OpenCode's catalogue on this machine names" in seen
    assert " of 128,000" not in seen and "compacts by itself" not in seen
    assert answer.doc.all("svg", class_="meter") == []
    assert "data-usable" not in answer.doc.one("div", class_="small").attrs
    assert "counted at the last answer" in seen and "summary " in seen


def test_a_model_without_a_limit_never_compacts(site: Any) -> None:
    configured(site.settings, limit={})
    assert "never compacts by itself" in column(site.get(f"/context/{LONG}"), "seen-head").text


def test_compaction_that_is_switched_off_has_no_threshold(site: Any) -> None:
    configured(site.settings, compaction={"auto": False})
    answer = site.get(f"/context/{LONG}")
    seen = column(answer, "seen-head").text
    assert "does not compact by itself" in seen and "“compaction.auto” in" in seen
    assert "s-reserve" not in bar(answer) and "data-usable" not in answer.html


def test_an_overflow_that_is_reached_is_told(site: Any) -> None:
    configured(site.settings, limit={"context": 4_100, "output": 4_000})
    answer = site.get(f"/context/{LONG}")
    assert "over 100, so OpenCode compacts before it goes on" in column(answer, "seen-head").text
    drawn = bar(answer)
    assert all(0 <= start <= end <= 1001 for start, end in drawn.values())


def test_an_earlier_moment_is_told_as_it_was(site: Any) -> None:
    configured(site.settings)
    moments = site.get(f"/context/{LONG}").doc.one("nav", aria_label="As of").all("a")
    after, before = (site.get(moments[n].attrs["href"]) for n in (1, 4))
    seen = column(after, "seen-head").text
    assert seen.startswith("The model saw about ") and "compacted twice" in seen
    assert "no answer has been counted since the compaction" in seen
    seen = column(before, "seen-head").text
    assert "never compacted" in seen and "as it is today" in seen
    assert "Nothing had left the model's view by then." in column(before, "stored-head").text
    numbers = [a.doc.one("div", class_="small").attrs["data-at"] for a in (before, after)]
    assert 1 < int(numbers[0]) < int(numbers[1])


def test_the_newer_runtime_is_told_to_reckon_by_itself(site: Any) -> None:
    configured(site.settings)
    answer = site.get(f"/context/{NEWER}")
    seen = column(answer, "seen-head").text
    assert "compacts by itself above 108,000, by OpenCode's own estimate" in seen
    assert "of 128,000 tokens" in seen


def test_what_left_has_its_estimate(site: Any) -> None:
    stored = column(site.get(f"/context/{LONG}"), "stored-head").text
    counts = [int(n.replace(",", "")) for n in re.findall(r"about ([0-9,]+) tokens", stored)]
    assert counts[0] == sum(counts[1:]) and min(counts) > 0


def test_of_a_long_session_the_middle_is_counted_and_not_held(site: Any, newest_db: Path) -> None:
    key = "ghp_" + "FakeFixture0" * 3
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        for n in range(900):
            name, text = f"msg_z{n:05d}", f"Text {n}. " + "x " * (985 if n else 975) + key
            data = {"role": "user", "time": {"created": 9_000_000_000_000 + n},
                    "model": {"providerID": MODEL[0], "modelID": MODEL[1]}}  # fmt: skip
            connection.execute(
                "INSERT INTO message (id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, 1, ?)", (name, EMPTY, 9_000_000_000_000 + n, json.dumps(data)),
            )  # fmt: skip
            connection.execute(
                "INSERT INTO part (id, message_id, session_id, time_created, time_updated, data)"
                " VALUES (?, ?, ?, 1, 1, ?)",
                (f"prt_z{n:05d}", name, EMPTY, json.dumps({"type": "text", "text": text})),
            )
    answer = site.get(f"/context/{EMPTY}")
    seen = column(answer, "seen-head")
    assert "700 messages in between" in seen.text
    assert "Text 99." in seen.text and "Text 800." in seen.text
    assert "Text 100." not in seen.text and "Text 799." not in seen.text
    assert key not in answer.html and key[:20] not in answer.html and "ghp_" in answer.html
    (total,) = re.findall(r"about ([0-9,]+) tokens", seen.one("h2").text)
    assert int(total.replace(",", "")) > 450_000
