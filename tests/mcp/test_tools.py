"""The ten tools: what a model may give them, what they answer, and that no answer grows beyond bounds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.conftest import Talk
from webapp.errors import Conflict, InvalidInput, NotFound, PlanChanged, SecretRefused
from webapp.mcp import arguments, tools, work
from webapp.settings import Settings
from webapp.store import Store

SHOP = "/home/demo/shop"
KEY = "ghp_" + "FakeFixture0" * 3
CONTRACT = {
    "save": ["kind*", "title*", "body*", "scope", "tags", "expires_at"],
    "search": ["query*", "scope", "limit=10"],
    "list": ["scope", "limit=20"],
    "forget": ["id", "query"],
    "stats": ["scope"],
    "restore": ["id*"],
    "session_search": ["query*", "sessionID", "contextLines=2", "maxBytes=8000", "all=False"],
    "session_read": ["sessionID*", "offset=1", "limit=200", "maxBytes=16000"],
    "transcript_list": ["all=False", "scope"],
    "transcript_cleanup": ["dryRun=True", "apply", "allScopes=False", "sessionIDs", "retentionDays",
                           "keepRecent", "maxSessions"],
}  # fmt: skip
"""DESIGN.md, section 8; `*` is required, `=` the default."""


@pytest.fixture
def desk(store: Store, settings: Settings) -> work.Desk:
    return work.Desk(settings, store, SHOP, "opencode")


@pytest.fixture
def ask(desk: work.Desk) -> Callable[..., work.Answer]:
    """Calls a tool by its name, as the server does."""
    by_name = {tool.name: tool for tool in tools.TOOLS}

    def call(name: str, **given: Any) -> work.Answer:
        answer = tools.call(by_name[name], desk, given)
        json.dumps(dict(answer.data), allow_nan=False)
        size = len(answer.text.encode("utf-8", "replace"))
        assert size <= tools.MAX_BYTES + 200, size
        return answer

    return call


def test_names_arguments_and_defaults_are_those_of_the_contract() -> None:
    found = {
        tool.name: [
            one.name + ("*" if one.required else "" if one.default is None else f"={one.default}")
            for one in tool.arguments
        ]
        for tool in tools.TOOLS
    }
    assert found == CONTRACT
    for tool in tools.TOOLS:
        made = arguments.schema(tool.arguments)
        assert made["required"] == [one.name for one in tool.arguments if one.required]
        assert all(held["description"] for held in made["properties"].values())
        assert 30 < len(tool.description) < 500


def test_without_retrieval_the_tools_of_sessions_are_not_offered(settings: Settings) -> None:
    assert len(tools.offered(settings)) == 10
    names = {tool.name for tool in tools.offered(replace(settings, retrieval=False))}
    assert names == set(CONTRACT) - {"session_search", "session_read"}


def test_what_is_saved_is_found_forgotten_and_restored(ask: Callable[..., Any]) -> None:
    made = ask("save", kind="decision", title="Use WAL", body="Readers do not block.", tags=["db"])
    assert made.data["created"] and made.data["scope"] == SHOP
    again = ask("save", kind="decision", title="Use WAL", body="Readers never block.")
    assert not again.data["created"] and again.data["id"] == made.data["id"]
    assert again.data["former"] in again.text
    found = ask("search", query="readers block")
    assert found.data["entries"][0]["source"] == "opencode"
    assert "Readers never block." in found.text and made.data["id"] in found.text
    assert ask("list").data["total"] == 1
    assert ask("stats").data["by_kind"] == {"decision": 1}
    gone = ask("forget", query="WAL")
    assert gone.data == {
        "forgotten": [{"id": made.data["id"], "title": "Use WAL", "scope": SHOP}], "remaining": 0
    }  # fmt: skip
    assert ask("search", query="WAL").data["entries"] == []
    assert ask("restore", id=made.data["id"]).data["scope"] == SHOP
    assert ask("search", query="WAL").data["total"] == 1


def test_the_scope_is_the_projects_unless_another_is_named(ask: Callable[..., Any]) -> None:
    ask("save", kind="fact", title="Here", body="x")
    ask("save", kind="fact", title="Everywhere", body="x", scope="global")
    ask("save", kind="fact", title="Elsewhere", body="x", scope="/home/demo/docs")
    titles = [entry["title"] for entry in ask("list").data["entries"]]
    assert sorted(titles) == ["Everywhere", "Here"]
    assert ask("list", scope="/home/demo/docs").data["total"] == 2
    # A query never forgets what lies in another project.
    assert ask("forget", query="x").data["remaining"] == 0
    assert ask("list", scope="/home/demo/docs").data["total"] == 1
    with pytest.raises(InvalidInput, match="absolute path"):
        ask("list", scope="shop")


def test_a_secret_is_refused_by_name_and_never_repeated(ask: Callable[..., Any]) -> None:
    with pytest.raises(SecretRefused) as caught:
        ask("save", kind="fact", title="The token", body=f"It is {KEY}.")
    assert "body" in caught.value.message and KEY not in caught.value.message


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("save", {}, "argument kind is missing"),
        ("save", {"kind": "fact", "title": "", "body": "x"}, "title is empty"),
        ("save", {"kind": "fact", "title": "t" * 121, "body": "x"}, "121 characters"),
        ("save", {"kind": "fact", "title": "t", "body": "x", "expires_at": 5}, "in the past"),
        ("save", {"kind": "fact", "title": "t", "body": "x", "expires_at": "soon"}, "12h, 30d"),
        ("save", {"kind": "fact", "title": "t", "body": "x", "tags": [1]}, "a list of texts"),
        ("save", {"kind": "fact", "title": "t", "body": ["x"]}, "body is a text"),
        ("search", {"query": "x", "limit": "many"}, "limit is a whole number"),
        ("search", {"query": "x", "limit": True}, "limit is a whole number"),
        ("search", {"query": "x", "max": 3}, "no argument max. Known: limit, query, scope"),
        ("forget", {}, "either an id or a query"),
        ("forget", {"id": "a", "query": "b"}, "either an id or a query"),
        ("session_search", {"query": "x", "all": "perhaps"}, "all is true or false"),
        ("session_search", {"query": " "}, ""),
        ("session_read", {"sessionID": "../../etc/passwd"}, "no"),
        ("transcript_cleanup", {"dryRun": False}, "fingerprint"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told_in_a_sentence(
    ask: Callable[..., Any], tool: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises((InvalidInput, NotFound)) as caught:
        ask(tool, **given)
    assert words in work.failed(caught.value)
    assert work.failed(caught.value).endswith(".")


def test_numbers_beyond_the_caps_are_taken_for_the_nearest(ask: Callable[..., Any]) -> None:
    for number in range(60):
        ask("save", kind="fact", title=f"Fact {number}", body="word " * 1_500)
    for name in ("search", "list"):
        given = {"query": "word"} if name == "search" else {}
        assert len(ask(name, limit=10_000, **given).data["entries"]) == 50
        assert len(ask(name, limit=-3, **given).data["entries"]) == 1
        (one,) = ask(name, limit="1", **given).data["entries"]
        assert len(one["body"]) == 500 and one["truncated"]
    assert ask("forget", query="word").data["remaining"] == 10


def test_a_conflict_of_titles_changes_nothing(ask: Callable[..., Any]) -> None:
    first = ask("save", kind="fact", title="Same", body="one").data["id"]
    ask("forget", id=first)
    ask("save", kind="fact", title="Same", body="two")
    with pytest.raises(Conflict):
        ask("restore", id=first)
    assert ask("search", query="two").data["total"] == 1


# Transcripts ------------------------------------------------------------------------------------


def test_exact_lines_are_found_with_context_and_read_by_number(
    ask: Callable[..., Any], talk: Talk
) -> None:
    talk.user("First question.\nThe planted value is 4711.\nThanks.")
    talk.assistant(f"Noted. The token is {KEY}.")
    # Named by a tool and not on disk: exported on demand.
    read = ask("session_read", sessionID=talk.id)
    (line,) = (row["line"] for row in read.data["lines"] if "4711" in row["text"])
    found = ask("session_search", query="PLANTED value")
    assert found.data["count"] == 1 and found.data["exact"]
    assert f"{line}: The planted value is 4711." in found.text
    assert f"{line - 1}- First question." in found.text
    assert KEY not in read.text and "[masked" in read.text
    again = ask("session_read", sessionID=talk.id, offset=line, limit=1)
    assert [row["text"] for row in again.data["lines"]] == ["The planted value is 4711."]
    assert again.data["next"] == line + 1
    beyond = ask("session_read", sessionID=talk.id, offset=10_000)
    assert beyond.data["lines"] == [] and f"{beyond.data['total']} lines" in beyond.text
    assert ask("session_search", query="nothing like it").data["count"] == 0


def test_an_answer_is_cut_in_whole_lines_and_says_where_to_go_on(
    ask: Callable[..., Any], talk: Talk
) -> None:
    talk.user(
        "\n".join(f"Line {number} of many with some text behind it." for number in range(5_000))
    )
    read = ask("session_read", sessionID=talk.id, limit=5_000, maxBytes=2_000)
    assert len(read.text.encode()) < 2_100
    assert f"offset {read.data['next']}" in read.text
    assert read.data["lines"][-1]["line"] + 1 == read.data["next"]
    whole = ask("session_read", sessionID=talk.id, limit=10**9, maxBytes=10**9)
    assert whole.data["next"] is not None
    found = ask("session_search", query="some text", maxBytes=1_000)
    assert found.data["cut"] and len(found.text.encode()) < 1_200
    seen, offset = [], 1
    while offset is not None:
        page = ask("session_read", sessionID=talk.id, offset=offset, limit=1_000, maxBytes=60_000)
        seen += [row["line"] for row in page.data["lines"]]
        offset = page.data["next"]
    assert seen == list(range(1, page.data["total"] + 1))


def test_one_line_longer_than_the_answer_is_shown_by_its_beginning(
    ask: Callable[..., Any], talk: Talk
) -> None:
    talk.user("x" * 100_000)
    read = ask("session_read", sessionID=talk.id, offset=10, maxBytes=500)
    assert read.data["lines"] and len(read.text) < 700


def test_a_search_brings_the_transcripts_of_the_project_up_to_date_first(
    ask: Callable[..., Any], talk: Talk, new_talk: Callable[..., Talk],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    talk.user("The planted value.")
    other = new_talk("ses_other")
    other.user("The planted value too.")
    new_talk("ses_there", scope="/home/demo/docs").user("The planted value.")
    assert ask("session_search", query="planted").data["count"] == 2
    talk.assistant("Planted again.")
    assert ask("session_search", query="planted").data["count"] == 3
    monkeypatch.setattr(work, "REFRESH_S", -1)
    other.assistant("And again planted.")
    found = ask("session_search", query="planted", all=True)
    assert (found.data["count"], found.data["unread"], found.data["complete"]) == (3, 2, False)
    assert "2 sessions more of it are not exported yet" in found.text


def test_a_search_keeps_to_the_project_unless_all_is_said(
    ask: Callable[..., Any], new_talk: Callable[..., Talk]
) -> None:
    for name, scope in (("ses_here", SHOP), ("ses_there", "/home/demo/docs")):
        new_talk(name, scope=scope).user("The planted value.")
        ask("session_read", sessionID=name)
    assert [f["id"] for f in ask("session_search", query="planted").data["files"]] == ["ses_here"]
    assert len(ask("session_search", query="planted", all=True).data["files"]) == 2
    there = ask("session_search", query="planted", sessionID="ses_there")
    assert [file["id"] for file in there.data["files"]] == ["ses_there"]
    assert ask("transcript_list").data["total"] == 1
    assert ask("transcript_list", all=True).data["total"] == 2


def test_a_cleanup_is_a_dry_run_until_its_fingerprint_is_given(
    ask: Callable[..., Any], new_talk: Callable[..., Talk]
) -> None:
    for number in range(3):
        new_talk(f"ses_{number}").user(f"Question {number}.")
        ask("session_read", sessionID=f"ses_{number}")
    rules = {"maxSessions": 1, "keepRecent": 0}
    plan = ask("transcript_cleanup", **rules)
    assert plan.data["count"] == 2 and not plan.data["applied"]
    assert ask("transcript_list").data["total"] == 3
    with pytest.raises(PlanChanged):
        ask("transcript_cleanup", apply="0" * 16, **rules)
    assert ask("transcript_list").data["total"] == 3
    done = ask("transcript_cleanup", apply=plan.data["fingerprint"], **rules)
    assert done.data["removed"] == 2 and done.data["receipt"]
    assert ask("transcript_list").data["total"] == 1


def test_an_unused_memory_is_searched_without_a_file(
    ask: Callable[..., Any], settings: Settings
) -> None:
    for name in ("list", "stats", "transcript_list"):
        ask(name)
    ask("search", query="anything")
    ask("session_search", query="anything")
    assert not settings.db.exists()


def test_rows_of_other_programs_are_answered_within_bounds(
    ask: Callable[..., Any], settings: Settings
) -> None:
    ask("save", kind="fact", title="Ours", body="x")
    odd = [
        ("odd-1", "k" * 90_000, "t" * 90_000, "b" * 90_000, json.dumps(["tag" * 9_000] * 50)),
        ("odd-2", b"\xff", b"\x00", 7, "no json"),
    ]
    with closing(sqlite3.connect(settings.db)) as connection, connection:
        connection.executemany(
            "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at)"
            " VALUES (?, 'global', ?, ?, ?, ?, 'yesterday', x'00')", odd,
        )  # fmt: skip
    listed = ask("list")
    assert {entry["id"] for entry in listed.data["entries"]} >= {"odd-1", "odd-2"}
    ask("search", query="ours")
    ask("stats")
