"""Links that more than one page makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from flask import url_for


def message_link(session_id: str) -> Callable[..., str]:
    """Makes links to a message, or to a part of one, of this session."""

    def link(message_id: str, part_id: str = "", **args: Any) -> str:
        # A "/" would end the path; the newer runtime's messages might have one.
        by_path = "/" not in message_id and message_id not in ("", ".", "..")
        named: dict[str, Any] = {"message_id" if by_path else "at": message_id}
        place = url_for("session.show", session_id=session_id, **named, **args)
        return f"{place}#{quote(part_id or message_id, safe='')}"

    return link
