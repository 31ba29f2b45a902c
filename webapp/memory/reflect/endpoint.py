"""One question to an OpenAI-compatible endpoint: where, how long, how much, and what may go wrong.

It goes to the host of the address and to no other: no redirect is followed and no proxy is used.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from webapp import secrets
from webapp.errors import MemoryAppError
from webapp.opencode.values import bindable

CONNECT_S = 15.0
ANSWER_S = 120.0
"""Seconds for the connection, and from then on for the whole of the answer."""

MAX_ANSWER = 1_000_000
"""Bytes of an answer that are read."""

MAX_KEY = 4_096
MAX_TOKENS = 4_000
"""Tokens that the model is allowed to write, what it thinks included."""

MAX_WORDS = 200
_TELLING = (400, 404, 413, 422)
"""What the endpoint says is repeated for these only; an answer about the key may hold part of it."""

_MEANING = {
    401: "does not accept the key; check reflection_key_file",
    403: "does not allow this key or model; check reflection_key_file and reflection_model",
    404: "does not know this address or model; check reflection_url and reflection_model",
    429: "takes no more questions for now, or its quota is used up",
}


class NotSent(MemoryAppError):
    """Nothing of the session has left this machine, so that nothing was paid."""

    code = "not_sent"


class Failed(MemoryAppError):
    """The endpoint was asked and did not answer as it should."""

    code = "endpoint_failed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Whom to ask. The key is read from its file at each call."""

    url: str
    model: str
    key_file: Path | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote; `is_cut` when it ran into its limit. Tokens are what the endpoint says that
    it counted, None where it says nothing."""

    text: str
    is_cut: bool
    prompt_tokens: int | None
    completion_tokens: int | None


def ask(endpoint: Endpoint, system: str, user: str) -> Answer:
    """Asks once. Raises NotSent or Failed with a sentence that holds neither the key nor what was
    asked."""
    key = read_key(endpoint.key_file)
    address = urlsplit(endpoint.url)
    connection = _connected(address)
    late = threading.Event()
    # The connection forgets its socket as soon as the answer begins, if it is the last one.
    timer = threading.Timer(ANSWER_S, _give_up, (connection.sock, late))
    timer.daemon = True
    timer.start()
    try:
        status, body = _exchange(connection, address, _question(endpoint, system, user), key)
    except (OSError, http.client.HTTPException, ValueError) as error:
        if late.is_set() or isinstance(error, TimeoutError):
            why = f"did not answer within {ANSWER_S:.0f} seconds"
        else:
            why = "broke off the connection"
        raise Failed(f"The endpoint {why}; the call may have cost.") from error
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise Failed(
            f"The endpoint did not answer within {ANSWER_S:.0f} seconds; it may have cost."
        )
    if status != 200:
        raise Failed(_refusal(status, body, key))
    if len(body) > MAX_ANSWER:
        raise Failed(
            f"The endpoint answered with more than {MAX_ANSWER:,} bytes, which were not read; the call"
            " may have cost."
        )
    return _answer(body)


def read_key(path: Path | None) -> str:
    """The key in a file, empty without one. Raises NotSent with a sentence that does not hold it."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_KEY + 1).decode("ascii", "replace").strip()
    except OSError as error:
        raise NotSent(f"The key file {path} cannot be read: {error.strerror}.") from error
    if (
        not text
        or len(text) > MAX_KEY
        or not text.isascii()
        or not text.isprintable()
        or " " in text
    ):
        raise NotSent(f"{path} holds no key; it is to be one line, without spaces.")
    return text


def _connected(address: SplitResult) -> http.client.HTTPConnection:
    host, is_https = address.hostname or "", address.scheme == "https"
    port = address.port or (443 if is_https else 80)
    try:
        connection = (
            http.client.HTTPSConnection(
                host, port, timeout=CONNECT_S, context=ssl.create_default_context()
            )
            if is_https
            else http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        )
        connection.connect()
        connection.sock.settimeout(ANSWER_S)
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or type(error).__name__
        raise NotSent(f"The endpoint {host} cannot be reached: {reason}.") from error
    return connection


def _give_up(held: socket.socket, late: threading.Event) -> None:
    """Ends an exchange that takes too long; a timeout of the socket begins anew with each byte."""
    late.set()
    try:
        # Not SSLSocket.shutdown, which takes the state away that the other thread still reads.
        socket.socket.shutdown(held, socket.SHUT_RDWR)
    except OSError:
        return


def _question(endpoint: Endpoint, system: str, user: str) -> bytes:
    # "max_tokens: This value is now deprecated in favor of max_completion_tokens, and is not compatible
    # with o-series models" (platform.openai.com/docs/api-reference/chat/create); others know the old
    # name only.
    is_openai = urlsplit(endpoint.url).hostname == "api.openai.com"
    question = {
        "model": endpoint.model,
        "stream": False,
        "max_completion_tokens" if is_openai else "max_tokens": MAX_TOKENS,
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": user},
        ],
    }
    return json.dumps(question, ensure_ascii=False).encode("utf-8", "replace")


def _exchange(
    connection: http.client.HTTPConnection, address: SplitResult, question: bytes, key: str
) -> tuple[int, bytes]:
    path = address.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions"
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection.request("POST", path, question, headers)
    answer = connection.getresponse()
    return answer.status, answer.read(MAX_ANSWER + 1)


def _refusal(status: int, body: bytes, key: str) -> str:
    if 300 <= status < 400:
        return (
            f"The endpoint answers with a redirect ({status}), which is not followed. Set reflection_url"
            " to the address that it leads to."
        )
    meaning = _MEANING.get(status, "refused the call" if status < 500 else "failed")
    words = _words(body, key) if status in _TELLING else ""
    return f"The endpoint {meaning} ({status}){': ' + words if words else '.'}"


def _words(body: bytes, key: str) -> str:
    """What the endpoint says itself, in one short line."""
    found = _json(body)
    error = found.get("error")
    text = error.get("message") if isinstance(error, dict) else error
    if not isinstance(text, str):
        return ""
    plain = " ".join(text.replace(key, "…").split() if key else text.split())
    return bindable(secrets.mask(plain))[:MAX_WORDS]


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _answer(body: bytes) -> Answer:
    found = _json(body)
    choices = found.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = [piece.get("text") for piece in content if isinstance(piece, dict)]
        content = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(choice, dict) or not isinstance(content, str):
        raise Failed("The endpoint answered with something else than a chat completion.")
    usage = found.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        bindable(content), choice.get("finish_reason") == "length",
        _count(counts.get("prompt_tokens")), _count(counts.get("completion_tokens")),
    )  # fmt: skip


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**12
    return value if is_count and isinstance(value, int) else None
