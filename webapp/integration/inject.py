"""The address of the inventory that OpenCode fetches again for every call of a model."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote

from webapp.integration import token
from webapp.integration.program import address
from webapp.scope import GLOBAL
from webapp.settings import Settings

KEY_CHARS = 32


def inject_key(secret: str, scope: str) -> str:
    """The key of a scope's address, made of the token. OpenCode sends no header with an address of its
    `instructions`, and shows the address itself to the model; so the key opens this one inventory and
    does not tell the token."""
    message = b"inject" + scope.encode("utf-8", "surrogatepass")
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()[:KEY_CHARS]


def inject_url(settings: Settings, scope: str | None) -> str:
    """The address of the inventory of a project, or of `global`. Makes the token if there is none.
    Raises Unreadable when that cannot be."""
    where = scope or GLOBAL
    key = inject_key(token.ensure(settings), where)
    return f"{address(settings)}inject?scope={quote(where, safe='/')}&k={key}"


def is_key(settings: Settings, scope: str, given: str) -> bool:
    """Whether this is the key of that scope. False where there is no token. Raises Unreadable when the
    token's file is of no use."""
    secret = token.read(settings)
    if secret is None:
        return False
    return hmac.compare_digest(inject_key(secret, scope).encode(), given.encode("utf-8", "replace"))
