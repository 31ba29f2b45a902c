"""The endpoint of the compaction agent: its forms, its guard, and an answer whatever goes wrong."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.conftest import FIXTURES, SCOPE, Talk
from webapp import create_app
from webapp.integration import token
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import cleanup, library
from webapp.transcripts.cleanup import Options

REQUESTS = json.loads((FIXTURES / "compaction-requests.json").read_text("utf-8"))["1.18.33"]
SECRET = "ghp_" + "Zk3Wq9Lm5Rt7Vy1Bx8Nc2Hd6Jf4Gs0PaQe3T"


class Model:
    """The app, asked as OpenCode asks."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.token = token.ensure(settings)
        self.client = create_app(settings).test_client()

    def post(self, body: Any, **headers: str) -> TestResponse:
        head = {"Authorization": f"Bearer {self.token}"}
        head |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.client.post("/v1/chat/completions", data=data, headers=head)

    def answer(self, body: Any = None, **headers: str) -> str:
        """The text of an answer that is not streamed."""
        given = {**REQUESTS[0], "stream": False} if body is None else body
        response = self.post(given, **headers)
        assert response.status_code == 200, response.text
        (choice,) = response.get_json()["choices"]
        assert choice["finish_reason"] == "stop"
        return str(choice["message"]["content"])


@pytest.fixture
def model(settings: Settings) -> Model:
    return Model(settings)


@pytest.fixture
def told(talk: Talk) -> Talk:
    """A session with two requests."""
    talk.user("Count the rows.")
    talk.assistant("There are 42.")
    talk.user("And the columns?\nAll of them.")
    talk.assistant("Seven.")
    return talk


def test_a_stream_has_the_chunks_of_the_api(model: Model, told: Talk) -> None:
    response = model.post(REQUESTS[0], x_session_affinity=told.id)
    assert response.mimetype == "text/event-stream"
    events = response.text.removesuffix("\n\n").split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, None, "stop"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == 0
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1])
    assert "> And the columns?\n> All of them." in text

    without = {name: value for name, value in REQUESTS[0].items() if name != "stream_options"}
    assert '"usage"' not in model.post(without, x_session_id=told.id).text


@pytest.mark.parametrize("header", ["x-session-id", "x-session-affinity", "x-opencode-session"])
def test_the_session_is_exported_and_pointed_to(model: Model, told: Talk, header: str) -> None:
    text = model.answer(**{header: told.id})
    (path,) = model.settings.transcripts_dir.glob("*/*.md")
    lines = path.read_text().split("\n")
    assert f"{path} ({len(lines) - 1} lines)" in text
    at = int(text.split("of the user (line ")[1].split(")")[0])
    assert "user" in lines[at - 1] and "And the columns?" in lines[at : at + 3]
    assert "memory_session_read" in text and told.id in text and "memory_save" in text
    # Some 120 tokens beside the request and the path, at four characters a token.
    assert len(text) - len(str(path)) < 4 * 150


def test_a_second_compaction_says_where_the_first_one_stands(model: Model, told: Talk) -> None:
    told.part(told.message({"role": "user"}), {"type": "compaction", "auto": False})
    told.assistant("What the model wrote.", summary=True)
    told.user("Go on.")
    told.assistant("Gone on.")
    text = model.answer(x_session_id=told.id)
    at = int(text.split("stands in line ")[1].split(",")[0])
    (path,) = model.settings.transcripts_dir.glob("*/*.md")
    assert "compaction summary" in path.read_text().split("\n")[at - 1]
    assert "> Go on." in text


def test_what_opencode_wrote_by_itself_is_no_request_of_the_user(model: Model, told: Talk) -> None:
    message = told.message({"role": "user"})
    told.part(
        message, {"type": "text", "text": "Continue if you have next steps", "synthetic": True}
    )
    assert "> And the columns?" in model.answer(x_session_id=told.id)


def test_a_long_request_keeps_its_beginning_and_its_end(model: Model, told: Talk) -> None:
    told.user("first words " + "x" * 50_000 + " last words")
    text = model.answer(x_session_id=told.id)
    assert (
        "first words" in text and "last words" in text and "characters are in the record]" in text
    )
    assert len(text) < 3_000


def test_credentials_are_masked(model: Model, told: Talk) -> None:
    told.user(f"Use {SECRET} for it.")
    body = {
        "messages": [
            {"role": "user", "content": f"<conversation>\n[User]: {SECRET}\n</conversation>"}
        ]
    }
    assert SECRET not in model.answer(x_session_id=told.id) + model.answer(body)
    assert "> Use ghp_…[masked " in model.answer(x_session_id=told.id)


def test_the_newer_runtime_has_its_request_too(model: Model, talk: Talk) -> None:
    talk.newer("user", {"text": "Plan it."}, touch=True)
    assert "> Plan it." in model.answer(x_session_id=talk.id)


def test_without_retrieval_no_tool_is_named_that_is_not_there(
    settings: Settings, told: Talk
) -> None:
    text = Model(replace(settings, retrieval=False)).answer(x_session_id=told.id)
    assert "session_read" not in text and str(settings.transcripts_dir) in text


def test_a_session_whose_transcript_was_removed_is_exported_again(model: Model, told: Talk) -> None:
    before = model.answer(x_session_id=told.id)
    with Store(model.settings.db).session() as store:
        options = Options((told.id,), 0, 0, 0, SCOPE)
        plan = cleanup.plan(store, model.settings, options)
        list(cleanup.apply(store, model.settings, options, plan.fingerprint, "ann"))
        assert library.removed(store, told.id) is not None
    assert model.answer(x_session_id=told.id) == before


@pytest.mark.parametrize(
    ("session_id", "reason"),
    [("", "named no session"), ("ses_unknown", "ses_unknown"), ("../../etc/passwd", "is not the id"),
     ("ses_" + "x" * 5_000, "is not the id"), ("ses_\\ud800", "is not the id")],
)  # fmt: skip
def test_without_a_record_it_is_answered_from_the_request(
    model: Model, session_id: str, reason: str
) -> None:
    text = model.answer(
        {**REQUESTS[1], "stream": False}, **({"x_session_id": session_id} if session_id else {})
    )
    assert "could not be brought up to date" in text and reason in text
    assert "> Which is the widest?" in text
    assert "The summary before this one:\n\n## Objective\n- The rows are counted." in text
    assert "[Assistant]: The note." in text
    assert not model.settings.db.exists()


def test_no_opencode_a_corrupt_one_and_a_foreign_store_are_answered(
    model: Model, told: Talk, make_bad: Callable[[str], None]
) -> None:
    for kind in ("database", "store"):
        make_bad(kind)
        text = model.answer(x_session_id=told.id)
        assert "could not be brought up to date" in text and "> And the columns?" in text


@pytest.fixture
def make_bad(settings: Settings, told: Talk) -> Callable[[str], None]:
    def make(kind: str) -> None:
        if kind == "database":
            whole = told.db.read_bytes()
            told.db.write_bytes(b"not a database" * 100)
            told.db.with_name("kept").write_bytes(whole)
            return
        told.db.write_bytes(told.db.with_name("kept").read_bytes())
        settings.db.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(settings.db)) as connection:
            connection.execute("CREATE TABLE entries (one, two)")
            connection.commit()

    return make


def test_a_transcript_that_cannot_grow_is_pointed_to_with_the_reason(
    model: Model, told: Talk
) -> None:
    model.answer(x_session_id=told.id)
    told.user("One more thing.")
    (path,) = model.settings.transcripts_dir.glob("*/*.md")
    path.write_bytes(path.read_bytes()[:-5])
    text = model.answer(x_session_id=told.id)
    assert str(path) in text and "It may lack the newest messages:" in text and "is shorter" in text
    assert "> One more thing." in text


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic {}", "Bearer", "{}", "Bearer {}x"])
def test_without_the_token_nothing_is_told(model: Model, told: Talk, header: str | None) -> None:
    head = {} if header is None else {"Authorization": header.format(model.token)}
    for response in (
        model.client.post(
            "/v1/chat/completions", json=REQUESTS[0], headers=head | {"x-session-id": told.id}
        ),
        model.client.get("/v1/models", headers=head),
    ):
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert "token" in response.get_json()["error"]["message"]
    assert not model.settings.transcripts_dir.exists()


def test_where_no_token_was_made_nobody_comes_in_and_none_is_made(settings: Settings) -> None:
    client = create_app(settings).test_client()
    assert client.get("/v1/models", headers={"Authorization": "Bearer "}).status_code == 401
    assert not settings.data_dir.exists()


def test_the_models(model: Model) -> None:
    response = model.client.get("/v1/models", headers={"Authorization": f"bearer {model.token}"})
    assert [one["id"] for one in response.get_json()["data"]] == ["pointer"]


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"a": NaN', b"[" * 100_000]
)
def test_what_is_no_request_is_refused_in_words(model: Model, body: bytes) -> None:
    response = model.post(body)
    assert response.status_code == 400
    assert response.get_json()["error"]["message"] == "The body is no JSON object."


def test_a_conversation_of_many_megabytes_fits(model: Model, told: Talk) -> None:
    body = {**REQUESTS[0], "stream": False, "padding": "x" * 8_000_000}
    assert "> And the columns?" in model.answer(body, x_session_id=told.id)


def test_an_agent_that_took_it_for_its_model_is_told_what_it_is(model: Model, told: Talk) -> None:
    text = model.answer({**REQUESTS[0], "stream": False, "tools": [{}]}, x_session_id=told.id)
    assert "no model is set" in text and told.id not in text
