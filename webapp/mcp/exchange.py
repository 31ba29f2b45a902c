"""One HTTP request through the SDK's own Streamable HTTP transport, without a session: a JSON-RPC message
in, JSON out. Imports the SDK, so it is imported at the first request.

An event loop of its own for each request takes a millisecond, keeps nothing between requests and needs
no thread; a library that puts ASGI under WSGI would keep a loop running for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

Headers = Sequence[tuple[str, str]]


def exchange(server: Server[Any], headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
    """What the SDK answers a POST of this body: the status, the headers and the body."""
    return anyio.run(_exchange, server, headers, body)


async def _exchange(
    server: Server[Any], headers: Headers, body: bytes
) -> tuple[int, Headers, bytes]:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/mcp", "raw_path": b"/mcp", "query_string": b"",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in headers],
    }  # fmt: skip
    waiting = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if not waiting:
            await anyio.sleep_forever()  # whether the client is still there is not known under WSGI
        return waiting.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    answered = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in sent[0]["headers"]
    ]
    return sent[0]["status"], answered, b"".join(one.get("body", b"") for one in sent[1:])
