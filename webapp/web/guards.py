"""Who may ask: the Host allow-list, the cross-site guard for writes, and the headers of answers."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from flask import Flask, Response, request

from webapp.errors import Refused
from webapp.settings import Settings

MAX_BODY = 64 * 1024 * 1024
"""Bytes of a request that the server takes at all; most pages take far less. A conversation of a million
tokens, which OpenCode sends to be compacted, is some 4 MB of text, and older versions send images too."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:\[\]@/]+?)\.?(?::[0-9]{1,5})?", re.ASCII)


def host_name(value: str) -> str:
    """The name in a Host header: no port, no trailing dot, lower case; empty if it is none."""
    match = _HOST.fullmatch(value.strip().lower())
    return match[1] if match else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """The names under which this server may be asked."""
    return frozenset({"localhost", "127.0.0.1", "[::1]", _bracketed(settings.host)})


def init_app(app: Flask, settings: Settings) -> None:
    """Puts the guards before every request and the headers on every answer."""
    allowed = allowed_hosts(settings)
    address = f"http://{_bracketed(settings.host)}:{settings.port}/"

    @app.before_request
    def _guard() -> None:
        if host_name(request.headers.get("Host", "")) not in allowed:
            raise Refused("This server answers only under its own address.", address=address)
        if request.method not in SAFE_METHODS and not _same_origin():
            raise Refused(
                "A page of another site sent this, so nothing was changed.", address=address
            )

    @app.after_request
    def _headers(response: Response) -> Response:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if request.endpoint != "static":
            response.headers.setdefault("Cache-Control", "no-store")
        return response


def _same_origin() -> bool:
    """Browsers say where a request comes from: in Sec-Fetch-Site, which a page cannot set, and else
    in Origin. A program that is no browser sends neither, and no page can make one do so.

    Origin is `null` for our own forms too, as our Referrer-Policy is no-referrer (Fetch, "append a
    request Origin header"), so it is asked only where Sec-Fetch-Site is absent.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("Origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == request.host.lower()
    except ValueError:
        return False
