"""A real OpenCode that reaches the memory over HTTP: its tools at `/mcp`, and `/inject` among its
`instructions`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waitress import wasyncore
from waitress.server import create_server

from tests.lab.conftest import NEEDS_LAB, play
from webapp import create_app
from webapp import settings as setting_table
from webapp.integration import token
from webapp.integration.inject import inject_url
from webapp.memory import entries
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.settings import Settings
from webapp.store import Store

SHOP = "/home/demo/shop"
SCENARIO = {
    "summary": "## Objective\n- Count the rows.",
    "sessions": [
        {"title": "Count the rows", "turns": [
            {"user": "Count.", "steps": [
                {"tool": "memory_save", "args": {
                    "kind": "lesson", "title": "Count twice", "body": "The first count was wrong."}},
                {"text": "Saved."},
            ]},
        ]},
    ],
}  # fmt: skip

pytestmark = NEEDS_LAB


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Settings]:
    """The settings of a server that runs."""
    home = tmp_path / "ours"
    home.mkdir()
    found = setting_table.load({}, {"HOME": str(home), "USER": "tester"})
    late: list[Any] = []
    server = create_server(
        lambda environ, start: late[0](environ, start), host="127.0.0.1", port=0, threads=8
    )
    found = replace(found, port=int(server.effective_port))
    late.append(create_app(found))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield found
    server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map))
    thread.join(10)
    server.task_dispatcher.shutdown()


def test_tools_and_inventory_come_over_http(served: Settings, tmp_path: Path) -> None:
    store = Store(served.db)
    with store.session():
        draft = entries.draft(scope="global", kind="gotcha", title="Ports clash", body="x")
        entries.save(store, draft, "ann")
    url = inject_url(served, SHOP)
    server = {
        "type": "remote", "url": f"http://127.0.0.1:{served.port}/mcp?scope={SHOP}",
        "headers": {"Authorization": f"Bearer {{file:{token.path(served)}}}"}, "oauth": False,
    }  # fmt: skip
    config = {"instructions": [url], "mcp": {"memory": server}}
    with play(tmp_path, SCENARIO, config) as played:
        requests = [one["body"] for one in played.requests() if one["body"].get("tools")]
    names = {tool["function"]["name"] for tool in requests[0]["tools"]}
    assert len({name for name in names if name.startswith("memory_")}) == 10
    prompt = "\n".join(
        part if isinstance(part, str) else part["text"]
        for message in requests[0]["messages"] if message["role"] == "system"
        for part in ([message["content"]] if isinstance(message["content"], str) else message["content"])
    )  # fmt: skip
    told = prompt.partition(f"Instructions from: {url}\n")[2]
    assert "`memory_search`" in told and "- gotcha: Ports clash (by ann)" in told
    with store.session():
        (hit,) = search(store, SearchQuery("first count")).hits
    assert (hit.entry.scope, hit.entry.source) == (SHOP, "opencode")
