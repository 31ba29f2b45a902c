"""The tools over HTTP: a real server, asked by the SDK's own client and by hand."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from waitress import wasyncore
from waitress.server import create_server

from webapp import create_app
from webapp.integration import token
from webapp.mcp import http as mcp_http
from webapp.settings import Settings
from webapp.store import Store

SHOP = "/home/demo/my shop"
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "opencode \u00e9", "version": "1"}},
}  # fmt: skip


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """What the error of JSON-RPC says."""
        assert self.data["jsonrpc"] == "2.0" and self.data["error"]["code"] < 0
        return str(self.data["error"]["message"])


@dataclass
class Site:
    port: int
    token: str

    def ask(
        self, body: Any = b"", scope: str = "", method: str = "POST", path: str = "", **headers: str
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }  # fmt: skip
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        where = path or "/mcp" + (f"?scope={quote(scope)}" if scope else "")
        try:
            connection.request(method, where, content, sent)
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read())
        finally:
            connection.close()

    def call(self, tool: str, given: Any, scope: str = SHOP, **headers: str) -> Any:
        params = {"name": tool, "arguments": given}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        answer = self.ask(message, scope, **headers)
        assert answer.status == 200, answer.body
        return answer.data["result"]


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    """The app under waitress, as `serve` starts it."""
    server = create_server(
        create_app(settings), host="127.0.0.1", port=0, threads=8, max_request_body_size=4 << 20
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield Site(server.effective_port, token.ensure(settings))
    # In the loop's own thread: it ends when nothing is left to wait for.
    server.trigger.pull_trigger(lambda: wasyncore.close_all(server._map))
    thread.join(10)
    server.task_dispatcher.shutdown()


# The SDK's own client ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdks_client_lists_saves_and_searches(
    site: Site, store: Store, settings: Settings, mode: str
) -> None:
    import anyio
    import httpx2
    import mcp_types as types
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async def talk() -> None:
        headers = {"Authorization": f"Bearer {site.token}"}
        url = f"http://127.0.0.1:{site.port}/mcp?scope={quote(SHOP)}"
        who = types.Implementation(name="editor", version="1")
        for told in (None, "- lesson: Known (by editor)"):
            async with (
                httpx2.AsyncClient(headers=headers, timeout=30) as http_client,
                Client(
                    streamable_http_client(url, http_client=http_client), mode=mode, client_info=who
                ) as client,
            ):
                if told is None:
                    assert client.instructions is None
                    assert not settings.db.exists()
                else:
                    assert client.instructions is not None and told in client.instructions
                assert len((await client.list_tools()).tools) == 10
                made = await client.call_tool(
                    "save", {"kind": "lesson", "title": "Known", "body": "x"}
                )
                assert made.structured_content["scope"] == SHOP
                found = await client.call_tool("search", {"query": "known"})
                assert found.structured_content["entries"][0]["source"] == "editor"
                wrong = await client.call_tool("save", {"kind": "fact"})
                assert wrong.is_error and "title is missing" in str(wrong.content)

    # Not in this thread: the event loop of a browser test may run in it.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, talk).result()


# By hand ----------------------------------------------------------------------------------------


def test_a_program_is_known_by_the_session_that_it_was_given(site: Site) -> None:
    hello = site.ask(HELLO, SHOP)
    assert hello.data["result"]["serverInfo"]["name"] == "memory"
    session = hello.headers["Mcp-Session-Id"]
    given = {"kind": "fact", "title": "One", "body": "x"}
    site.call("save", given, Mcp_Session_Id=session)
    site.call("save", {**given, "title": "Two"})
    site.call("save", {**given, "title": "Three"}, Mcp_Session_Id="<script>." + "0" * 31)
    found = site.call("list", {})["structuredContent"]["entries"]
    assert {one["title"]: one["source"] for one in found} == {
        "One": "opencode \u00e9", "Two": "agent", "Three": "agent"
    }  # fmt: skip
    long = {**HELLO["params"], "clientInfo": {"name": "n\n" * 5_000, "version": "1"}}
    session = site.ask({**HELLO, "params": long}).headers["Mcp-Session-Id"]
    site.call("save", {**given, "title": "Four"}, Mcp_Session_Id=session)
    source = site.call("search", {"query": "four"})["structuredContent"]["entries"][0]["source"]
    assert 0 < len(source) <= 60 and set(source) == {"n", " "}


def test_the_scope_is_that_of_the_address_else_global(site: Site) -> None:
    given = {"kind": "fact", "title": "One", "body": "x"}
    assert site.call("save", given)["structuredContent"]["scope"] == SHOP
    assert site.call("save", given, scope="")["structuredContent"]["scope"] == "global"
    assert site.call("list", {}, scope="/home/demo/docs")["structuredContent"]["total"] == 1
    wrong = site.ask(HELLO, "shop")
    assert wrong.status == 400 and "absolute path" in wrong.message


def test_instructions_come_with_the_introduction(site: Site, store: Store) -> None:
    assert "instructions" not in site.ask(HELLO, SHOP).data["result"]
    site.call("save", {"kind": "gotcha", "title": "Ports clash", "body": "x"})
    told = site.ask(HELLO, SHOP).data["result"]["instructions"]
    assert "- gotcha: Ports clash (by agent)" in told and "my shop and global" in told
    assert "Ports" not in site.ask(HELLO).data["result"]["instructions"]


def test_nobody_comes_in_without_the_token(site: Site, settings: Settings) -> None:
    for shown in ("", "Bearer", "Bearer x", "Basic " + site.token, "Bearer " + site.token + "x"):
        answer = site.ask(HELLO, Authorization=shown)
        assert answer.status == 401 and "file “token”" in answer.message
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert site.ask(HELLO, Authorization="bearer  " + site.token).status == 200
    token.path(settings).unlink()
    assert site.ask(HELLO).status == 401
    token.path(settings).write_text("short\n")
    answer = site.ask(HELLO)
    assert answer.status == 503 and "holds no token" in answer.message


def test_no_page_of_another_site_and_no_other_name_gets_an_answer(site: Site) -> None:
    for headers in (
        {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
    ):  # fmt: skip
        answer = site.ask(HELLO, **headers)
        assert answer.status == 403 and answer.message
        assert not any(name.startswith("Access-Control") for name in answer.headers)
    asked = site.ask(method="OPTIONS", Origin="https://evil.example")
    assert not any(name.startswith("Access-Control") for name in asked.headers)


def test_what_is_no_message_is_refused_in_the_shape_of_the_protocol(site: Site) -> None:
    deep = b'{"id":1,"params":' + b"[" * 200_000
    for body, headers, status in (
        (b"", {}, 400), (b"{", {}, 400), (b"[" * 200_000, {}, 400), (deep, {}, 400), (b"\xff", {}, 400),
        ([HELLO], {}, 400), ({"jsonrpc": "2.0"}, {}, 400), (b"7", {}, 400),
        (HELLO, {"Content-Type": "text/plain"}, 415), (HELLO, {"Accept": "text/html"}, 406),
        (b"x" * (3 << 20), {}, 413),
        ({**HELLO, "method": "tools/list"}, {"MCP-Protocol-Version": "1999-01-01"}, 400),
    ):  # fmt: skip
        answer = site.ask(body, **headers)
        assert answer.status == status, (str(body)[:40], answer.body)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.message and "Traceback" not in answer.message
    assert "a batch is not taken" in site.ask([HELLO]).message
    unknown = site.ask({"jsonrpc": "2.0", "id": 7, "method": "no/such"}).data
    assert unknown["id"] == 7 and unknown["error"]["code"] == -32601
    assert site.call("no_such_tool", {})["isError"]
    assert site.ask(HELLO).status == 200


def test_a_notification_is_taken_and_only_a_post_is_answered(site: Site) -> None:
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/unknown"):
        answer = site.ask({"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}})
        assert (answer.status, answer.body) == (202, b"")
    for method in ("GET", "DELETE"):
        answer = site.ask(method=method)
        assert answer.status == 405 and answer.headers["Allow"] == "POST" and answer.message
    assert site.ask(method="PUT").status == 405


def test_a_memory_that_cannot_be_read_is_an_error_of_the_tool(
    site: Site, settings: Settings
) -> None:
    settings.db.write_bytes(b"no database at all" * 400)
    assert site.ask(HELLO).status == 200
    answer = site.call("search", {"query": "x"})
    assert answer["isError"] and "memory.db" in answer["content"][0]["text"]


def test_many_calls_at_once_are_all_answered(site: Site) -> None:
    def work(number: int) -> None:
        answer = site.call("save", {"kind": "fact", "title": f"Fact {number}", "body": "x"})
        done.append(answer["isError"])

    done: list[bool] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert done == [False] * 24
    assert site.call("list", {})["structuredContent"]["total"] == 24


def test_calls_leave_room_for_the_pages(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http, "PATIENCE_S", 0.2)
    held = [mcp_http._running.acquire(timeout=1) for _ in range(mcp_http.AT_ONCE)]
    assert all(held)
    try:
        answer = site.ask(HELLO)
        assert answer.status == 503 and "Try again" in answer.message
        begun = time.monotonic()
        assert site.ask(method="GET", path="/stats").status == 200
        assert time.monotonic() - begun < 5
    finally:
        for _ in held:
            mcp_http._running.release()
    assert site.ask(HELLO).status == 200


def test_the_server_starts_without_the_sdk(settings: Settings) -> None:
    code = (
        "import sys; from webapp import create_app; from webapp.settings import load;"
        " create_app(load({}, {'HOME': sys.argv[1]}));"
        " print([name for name in ('mcp', 'mcp_types', 'anyio', 'pydantic') if name in sys.modules])"
    )
    made = subprocess.run(
        [sys.executable, "-c", code, str(settings.data_dir)], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert made.stdout.strip() == "[]"
