"""Programs that show a token in place of a person who signed in."""

from __future__ import annotations

from flask import request

from webapp.integration import token
from webapp.web.current import settings

_SCHEME = "bearer "


def is_shown() -> bool:
    """Whether this request carries `Authorization: Bearer` with our token. Raises Unreadable when the
    token's file is of no use."""
    header = request.headers.get("Authorization", "")
    if header[: len(_SCHEME)].lower() != _SCHEME:
        return False
    return token.matches(settings(), header[len(_SCHEME) :].strip())
