"""Page or fragment. The only place that knows the HX- headers."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, flash, g, make_response, render_template, url_for
from htmx_flask import Htmx, request
from werkzeug.exceptions import HTTPException
from werkzeug.utils import redirect

from webapp.errors import MemoryAppError, Refused, Unreadable
from webapp.opencode.values import bindable
from webapp.web import current

MAX_TOAST = 400


def page(
    name: str,
    target: str | None = None,
    status: int = 200,
    address: str | None = None,
    **values: Any,
) -> Response:
    """The page `<name>/index.html`, or its `_fragment.html` when htmx asked for `target`.

    The fragment is the very file that the page includes. A history restore gets the whole page.
    `address` is what the browser shows after a fragment has come.
    """
    fragment = target is not None and wants(target)
    template = f"{name}/_fragment.html" if fragment else f"{name}/index.html"
    response = make_response(
        encoded(render_template(template, is_fragment=fragment, **values)), status
    )
    if fragment and address is not None:
        response.headers["HX-Replace-Url"] = address
    response.vary.update(("HX-Request", "HX-Target"))
    return response


def wants(target: str) -> bool:
    """Whether htmx asked for the element of that id."""
    htmx = request.htmx
    return bool(htmx) and not htmx.history_restore_request and htmx.target == target


def back(fallback: str, text: str = "", undo: str | None = None, **link: str) -> Response:
    """After a write: to the page the form came from (its hidden `next`, only ever a path of ours),
    with a toast that says what happened and, with `undo`, offers to take it back. `link` and
    `link_text` lead on."""
    if text:
        _toast(text, undo, **link)
    return make_response(redirect(local_path(request.form.get("next")) or fallback, 303))


def polled(
    version: tuple[int, ...], template: str, make: Callable[[], tuple[dict[str, Any], bool]]
) -> Response:
    """The answer to a page that asks again and again: 304 as long as `version` is what it has seen,
    else the template with what `make` tells, and the tag to ask with the next time. `make` says too
    whether that holds until the version changes; what could not be read just now has no tag."""
    tag = etag(version)
    if request.if_none_match.contains(tag):
        response, holds = Response(status=304), True
    else:
        values, holds = make()
        response = make_response(encoded(render_template(template, **values)))
    if holds:
        response.set_etag(tag)
    return response


def encoded(html: str) -> bytes:
    """A page as it is sent. JSON may hold halves of characters, which UTF-8 does not have."""
    return html.encode("utf-8", "replace")


def etag(version: tuple[int, ...]) -> str:
    """A version as an entity tag."""
    return hashlib.blake2b(repr(version).encode(), digest_size=12).hexdigest()


def toast(text: str) -> None:
    """A toast on the page that this request answers with."""
    _toast(text)


def _toast(
    text: str, undo: str | None = None, link: str | None = None, link_text: str = ""
) -> None:
    # It travels in a cookie, and a browser drops one of over 4 KB.
    text = text if len(text) <= MAX_TOAST else text[: MAX_TOAST - 1] + "…"
    # Flask's stubs say str, yet any value that its session can hold may be flashed.
    flash({"text": text, "undo": undo, "link": link, "link_text": link_text})  # type: ignore[arg-type]


def local_path(value: str | None) -> str | None:
    """A path on this site, or None. `//host` and `/\\host` lead elsewhere and are refused."""
    if not value or not value.startswith("/") or value.startswith(("//", "/\\")):
        return None
    return None if any(ord(char) < 32 for char in value) else value


def here() -> str:
    """The path and query of this page, for a form's `next`."""
    full = request.full_path
    return full.removesuffix("?")


def _error_page(error: MemoryAppError) -> Response:
    if isinstance(error, Refused):
        return page("refused", status=error.status, error=error)
    job = error.details.get("job")
    if job:
        return make_response(redirect(url_for("jobs.show", job_id=job), 303))
    if request.htmx and not request.htmx.history_restore_request:
        html = encoded(render_template("error/_toast.html", error=error))
        response = make_response(html, error.status)
        response.headers["HX-Retarget"] = "#toasts"
        response.headers["HX-Reswap"] = "innerHTML"
        # A form's own hx-select would look for #content in the toast, and show nothing.
        response.headers["HX-Reselect"] = "unset"
        return response
    titles = {400: "That cannot be used", 403: "Not allowed", 404: "Not found",
              405: "Not this way", 409: "Nothing was changed", 413: "Too large",
              503: "Cannot be read right now"}  # fmt: skip
    title = titles.get(error.status, "Something went wrong")
    return page("error", status=error.status, error=error, title=title)


def init_app(app: Flask) -> None:
    """htmx, the error pages, and what every template may use."""
    Htmx(app)

    @app.context_processor
    def _values() -> dict[str, Any]:
        g.rail = g.get("rail") or functools.cache(current.rail)
        return {"rail": g.rail, "here": here, "settings": current.settings(),
                "read_only": current.read_only, "tilde": current.tilde}  # fmt: skip

    @app.url_defaults
    def _whole(_endpoint: str, values: dict[str, Any]) -> None:
        # An id out of JSON may hold half a character, which no address can be made of.
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = bindable(value)

    @app.errorhandler(MemoryAppError)
    def _known(error: MemoryAppError) -> Response:
        return _error_page(error)

    @app.errorhandler(HTTPException)
    def _http(error: HTTPException) -> Response:
        sentences = {
            404: "There is no such page.",
            405: "This address takes another kind of request; go back and use the button.",
            413: "That is more than fits into one request.",
        }
        plain = MemoryAppError(sentences.get(error.code or 500, error.description or "Unknown."))
        plain.status = error.code or 500
        return _error_page(plain)

    @app.errorhandler(OSError)
    def _system(error: OSError) -> Response:
        app.logger.warning("at %s: %s", request.path, error)
        where = current.tilde(error.filename) if isinstance(error.filename, str) else "A file"
        return _error_page(Unreadable(f"{where} cannot be used: {error.strerror or error}."))

    @app.errorhandler(Exception)
    def _unknown(error: Exception) -> Response:
        app.logger.exception("unexpected error at %s", request.path)
        return _error_page(
            MemoryAppError(
                "Something unexpected went wrong; nothing was lost. The server's log says what "
                "happened, and the other pages still work."
            )
        )
