"""`/mcp`: the tools over Streamable HTTP, for a program that shows the token.

No session is kept: a POST holds one message and is answered with JSON, and GET and DELETE are 405, as the
protocol allows ("Streamable HTTP", revisions 2025-03-26 to 2025-11-25). Only the first message of a client
of these revisions names its program, so the id of the session that it is given holds that name, and
comes back with every later message.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import threading
from urllib.parse import quote, unquote

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from webapp.errors import Busy, InvalidInput, MemoryAppError
from webapp.scope import GLOBAL, parse_scope
from webapp.web import bearer, current

INTRODUCTIONS = ("initialize", "server/discover")
"""The messages that are answered with the instructions, which are put together for no other."""

SESSION = "Mcp-Session-Id"
MAX_NAME = 60
AT_ONCE = 6
"""Calls that run at the same time; of the server's eight threads the others are the pages'."""

PATIENCE_S = 2.0
NO_TOKEN = (
    "Show the token of this memory, as “Authorization: Bearer …”. It stands in the file “token” of the"
    " data folder."
)
SERVER_ERROR = -32000
CODES = {400: -32600, 405: -32600, 413: -32600, 415: -32600, 500: -32603}
"""JSON-RPC's codes for what goes wrong before a message is read; SERVER_ERROR for what is not here."""

log = logging.getLogger(__name__)
_running = threading.BoundedSemaphore(AT_ONCE)


def init_app(app: Flask, version: str) -> None:
    """Registers the address. `version` is what the server says of itself."""
    blueprint = Blueprint("mcp", __name__)

    @blueprint.route("/mcp", methods=("GET", "DELETE"))
    def only_by_post() -> Response:
        text = "Only a POST is answered here: no stream and no session is kept."
        return _error(405, text, Allow="POST")

    @blueprint.post("/mcp")
    def answer() -> Response:
        if not bearer.is_shown():
            return _error(401, NO_TOKEN, **{"WWW-Authenticate": "Bearer"})
        if request.mimetype != "application/json":
            return _error(415, "Send application/json.")
        scope = parse_scope(request.args.get("scope") or GLOBAL)
        if not _running.acquire(timeout=PATIENCE_S):
            raise Busy(f"{AT_ONCE} calls are running. Try again when one of them is done.")
        try:
            return _answered(scope, request.get_data(), version)
        finally:
            _running.release()

    blueprint.register_error_handler(MemoryAppError, _refused)
    blueprint.register_error_handler(HTTPException, _failed)
    blueprint.register_error_handler(Exception, _unexpected)
    app.register_blueprint(blueprint)


def _answered(scope: str, body: bytes, version: str) -> Response:
    from webapp.mcp.exchange import exchange
    from webapp.mcp.server import WRITER, make_server

    method, name = _read(body)
    writer = _named(request.headers.get(SESSION, "")) or WRITER
    server = make_server(
        current.settings(), scope, version, introduced=method in INTRODUCTIONS, writer=writer
    )
    status, headers, content = exchange(server, list(request.headers), body)
    response = Response(content, status, list(headers))
    if method == "initialize" and status == 200:
        response.headers[SESSION] = f"{quote(name[:MAX_NAME], safe='')}.{secrets.token_hex(16)}"
    return response


def _read(body: bytes) -> tuple[str, str]:
    """The method of a message and the name of the program that introduces itself by it; empty where
    there is none. What is wrong with a message is for the SDK to tell, but for a batch, which it tells
    in the words of its schema. Raises InvalidInput."""
    try:
        message = json.loads(body)
        if isinstance(message, list):
            raise InvalidInput("Send one message at a time; a batch is not taken.")
        method = message["method"]
        name = message["params"]["clientInfo"]["name"] if method == "initialize" else ""
    except (ValueError, RecursionError, LookupError, TypeError):
        return "", ""
    return str(method), str(name)


def _named(session: str) -> str:
    """The program's name in the id of a session that we gave; empty where there is none."""
    found = re.fullmatch(r"([!-~]*)\.[0-9a-f]{32}", session)
    return " ".join(unquote(found[1]).split())[:MAX_NAME] if found else ""


def _error(status: int, text: str, **headers: str) -> Response:
    error = {"code": CODES.get(status, SERVER_ERROR), "message": text}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error})
    return Response(body, status, headers, mimetype="application/json")


def _refused(error: MemoryAppError) -> Response:
    return _error(error.status, error.message)


def _failed(error: HTTPException) -> Response:
    text = "That is more than fits into one message." if error.code == 413 else error.description
    return _error(error.code or 500, text or "That failed.")


def _unexpected(_found: Exception) -> Response:
    log.exception("unexpected error at /mcp")
    return _error(500, "Something unexpected went wrong; the server's log says what happened.")
