"""The model of OpenCode's compaction agent: an OpenAI-compatible endpoint that calls no model. It
exports the session and answers with the pointer to it."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

from flask import Blueprint, Response, request

from webapp.api import conversation
from webapp.errors import MemoryAppError
from webapp.secrets import mask
from webapp.transcripts import pointer
from webapp.web import bearer
from webapp.web.current import record_store, settings
from webapp.web.guards import MAX_BODY

blueprint = Blueprint("model", __name__)

MODEL = "pointer"
SESSION_HEADERS = ("x-opencode-session", "x-session-id", "x-session-affinity")
PRIOR = 4_000
TAIL = 12_000
"""Characters of the request that are kept when there is no record to point to."""

NO_AGENT = (
    "This is opencode-memory's endpoint for compactions, and no model that can work for you. OpenCode chose"
    " it because no model is set: choose one with /models, or set “model” in its configuration."
)
"""To a request with tools, which an agent sends and a compaction does not (1.3.2 to 1.18.33)."""

log = logging.getLogger(__name__)


@blueprint.errorhandler(MemoryAppError)
def failed(error: MemoryAppError) -> Response:
    """An error in the shape of this API."""
    return _error(error.status, error.message, error.code)


@blueprint.get("/v1/models")
def models() -> Response:
    """The one model there is."""
    if not bearer.is_shown():
        return _refused()
    return _json({"object": "list", "data": [
        {"id": MODEL, "object": "model", "created": 0, "owned_by": "opencode-memory"}]})  # fmt: skip


@blueprint.post("/v1/chat/completions")
def chat_completions() -> Response:
    """Answers a compaction, as a stream of chunks or at once. Whatever goes wrong on our side, there
    is an answer that OpenCode can go on with."""
    if not bearer.is_shown():
        return _refused()
    request.max_content_length = MAX_BODY
    try:
        body = request.get_json(force=True, silent=True)
    except RecursionError:
        body = None
    if not isinstance(body, dict):
        return _error(400, "The body is no JSON object.", "invalid_request_error")
    text = _answer(body)
    answer = _Completion(text, str(body.get("model") or MODEL)[:200])
    if body.get("stream") is not True:
        return _json(answer.whole())
    options = body.get("stream_options")
    with_usage = isinstance(options, Mapping) and options.get("include_usage") is True
    return Response(
        answer.stream(with_usage), mimetype="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


def _answer(body: Mapping[str, Any]) -> str:
    if body.get("tools"):
        return NO_AGENT
    session_id = next((v for name in SESSION_HEADERS if (v := request.headers.get(name))), "")
    try:
        if session_id:
            found = pointer.pointer(record_store(), settings(), session_id)
            return pointer.text(found, settings().retrieval)
        reason = "OpenCode named no session."
    except MemoryAppError as error:
        reason = error.message
    except Exception:
        log.exception("the compaction of %r was answered from its request", session_id[:60])
        reason = "Something unexpected went wrong; the server's log says what."
    return _from_request(conversation.read(body.get("messages")), reason)


def _from_request(told: conversation.Conversation, reason: str) -> str:
    """What can be kept without a record: the last request, the former summary and the newest of the
    conversation, as the request holds them."""
    pieces = [
        "The context was compacted, but the record of this session could not be brought up to date:"
        f" {' '.join(mask(reason).split())} So this is taken from the conversation itself and lacks"
        " what came before."
    ]
    if told.request.strip():
        pieces.append(f"The last request of the user:\n\n{pointer.quoted(told.request)}")
    if told.prior.strip():
        pieces.append(f"The summary before this one:\n\n{mask(told.prior)[:PRIOR]}")
    if told.text.strip():
        pieces.append(f"The end of the conversation:\n\n{mask(told.text)[-TAIL:]}")
    return "\n\n".join(pieces)


class _Completion:
    """One answer in the forms of the chat completions API. No model was called, so it took no
    tokens."""

    def __init__(self, text: str, model: str) -> None:
        self._text = text
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model
        }  # fmt: skip
        self._usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

    def whole(self) -> dict[str, Any]:
        """The answer at once."""
        message = {"role": "assistant", "content": self._text}
        return {
            **self._head, "object": "chat.completion", "usage": self._usage,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        }  # fmt: skip

    def stream(self, with_usage: bool) -> Iterator[str]:
        """The answer as server-sent events."""
        yield self._event({"role": "assistant", "content": ""}, None)
        yield self._event({"content": self._text}, None)
        yield self._event({}, "stop")
        if with_usage:
            yield self._line({"choices": [], "usage": self._usage})
        yield "data: [DONE]\n\n"

    def _event(self, delta: Mapping[str, str], finish: str | None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._line({"choices": [choice]})

    def _line(self, values: Mapping[str, Any]) -> str:
        chunk = {**self._head, "object": "chat.completion.chunk", **values}
        return f"data: {json.dumps(chunk)}\n\n"


def _refused() -> Response:
    answer = _error(
        401, "This asks for the token of opencode-memory as a bearer token. `opencode-memory install`"
        " puts it into OpenCode's configuration.", "authentication_error",
    )  # fmt: skip
    answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def _error(status: int, message: str, kind: str) -> Response:
    return _json({"error": {"message": message, "type": kind, "param": None, "code": kind}}, status)


def _json(value: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(value), status, mimetype="application/json")
