"""Reflection: what is sent, to whom, once; what is saved of the answer; what is told of the rest."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.memory import entries, origins, reflect
from webapp.memory.query import SearchQuery
from webapp.memory.reflect import Reflector, endpoint, ledger
from webapp.memory.reflect.lessons import parse
from webapp.memory.reflect.watch import IDLE_MS
from webapp.memory.search import search
from webapp.opencode.touched import RETRY_MS
from webapp.settings import Settings
from webapp.store import Store

if TYPE_CHECKING:
    from tests.conftest import Endpoint, Talk

NewTalk = Callable[..., "Talk"]
START = 1_790_000_000_000
NOW = START + 3_600_000
SCOPE = "/home/demo/shop"
KEY = "sk-" + "Zq7" * 16
LESSON: Any = {
    "title": "Invoices are rounded per line", "body": "The tax office wants each line rounded by itself.",
    "tags": ["money"],
}  # fmt: skip


@pytest.fixture
def on(settings: Settings, llm: Endpoint, tmp_path: Path) -> Settings:
    """Settings with reflection on, and a key."""
    key = tmp_path / "key"
    key.write_text(KEY + "\n")
    return replace(
        settings, reflection=True, reflection_url=llm.url, reflection_model="small-1",
        reflection_key_file=key,
    )  # fmt: skip


def chat(talk: Talk, more: str = "") -> int:
    """A session with enough in it; returns when it counts as idle."""
    for number in range(3):
        talk.user(
            f"Question {number}: how are invoices to be rounded? " + "Some words. " * 10 + more
        )
        talk.assistant(f"Answer {number}: per line. " + "Other words. " * 10)
    return talk.session().updated_at + IDLE_MS


def reflector(settings: Settings, began: int = START) -> Reflector:
    return Reflector(Store(settings.db), settings, began)


def saved(settings: Settings) -> list[entries.Entry]:
    with Store(settings.db).session() as store:
        return [hit.entry for hit in search(store, SearchQuery("")).hits]


def rows(settings: Settings, now: int = NOW) -> list[reflect.Reflection]:
    with Store(settings.db).session() as store:
        return reflect.listing(store, now, 100)


def totals(settings: Settings) -> reflect.Totals:
    with Store(settings.db).session() as store:
        return reflect.totals(store)


def only(settings: Settings) -> ledger.Outcome:
    (row,) = rows(settings)
    return row.outcome


# What is saved ------------------------------------------------------------------------------------


def test_an_idle_session_is_asked_about_and_its_lessons_are_saved(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    idle = chat(talk)
    one = reflector(on)
    one.look(idle - 1)
    assert llm.received == [] and not on.data_dir.exists()
    one.look(idle)
    (question,) = llm.received
    assert llm.paths == ["/v1/chat/completions"]
    assert llm.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert question["model"] == "small-1" and question["stream"] is False and question["max_tokens"]
    assert "at most 3" in question["messages"][0]["content"]
    assert "User:\nQuestion 2" in llm.asked and "Assistant:\nAnswer 2" in llm.asked
    (entry,) = saved(on)
    assert (entry.scope, entry.kind, entry.title, entry.tags, entry.source) == (
        SCOPE, "lesson", LESSON["title"], ("money",), "reflection",
    )  # fmt: skip
    with Store(on.db).session() as store:
        origin = origins.of(store, entry.id)
    assert origin is not None and origin.is_whole and origin.session_id == talk.id
    assert only(on) == ledger.Outcome("done", "", 1200, 80, 1)
    assert totals(on) == reflect.Totals(1, 1200, 80, 0, 1)
    assert not one.problems.text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([LESSON]), f"```json\n{json.dumps([LESSON])}\n```", f"```\n{json.dumps([LESSON])}",
        json.dumps({"lessons": [LESSON]}), json.dumps(LESSON),
        f"Here is what I found [1]: {json.dumps([LESSON], indent=1)}\nI hope that it helps.",
        f"<think>[{{]}} never mind</think>\n{json.dumps([LESSON])}",
    ],
)  # fmt: skip
def test_an_answer_may_be_wrapped(text: str) -> None:
    (lesson,) = parse(text, 3).lessons
    assert (lesson.title, lesson.tags) == (LESSON["title"], ("money",))


@pytest.mark.parametrize("text", ["[]", "```json\n[]\n```", '{"lessons": []}', " [ ] \n"])
def test_an_empty_array_is_an_answer(text: str) -> None:
    assert parse(text, 3).lessons == () and parse(text, 3).problem == ""


@pytest.mark.parametrize(
    "text",
    ["There is nothing [to say] about foo[].", "", "[1, 2]", "[" * 100_000, '[{"title":', "null",
     "{" * 5000 + '{"a"', '"[]"'],
)  # fmt: skip
def test_prose_and_nonsense_are_told(text: str) -> None:
    assert parse(text, 3).lessons == () and parse(text, 3).problem


def test_prose_saves_nothing_and_is_told_with_its_cost(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    llm.body = llm.said("I think that you are doing very well.")
    reflector(on).look(chat(talk))
    assert saved(on) == []
    assert "prose" in only(on).problem and only(on).prompt_tokens == 1200


def test_an_answer_that_was_cut_off_says_so(talk: Talk, on: Settings, llm: Endpoint) -> None:
    llm.body = llm.said('[{"title": "x", "bo', finish="length")
    reflector(on).look(chat(talk))
    assert "cut off" in only(on).problem


def test_at_most_so_many_lessons_are_saved(talk: Talk, on: Settings, llm: Endpoint) -> None:
    words = ("apples", "boats", "clouds", "drums", "eagles")
    llm.body = llm.said(json.dumps([{"title": w * 2, "body": f"{w} {w[::-1]}"} for w in words]))
    reflector(replace(on, max_lessons=2)).look(chat(talk))
    assert {entry.title for entry in saved(on)} == {"applesapples", "boatsboats"}
    assert (only(on).saved, only(on).skipped) == (2, 3)


def test_what_cannot_be_an_entry_is_skipped_and_counted(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    odd = [
        {"title": "", "body": "b"}, {"title": "t", "body": ""}, {"title": 3, "body": "b"}, "x",
        {"title": "Bell \x07", "body": "b"}, {"title": "Long", "body": "b" * 9000},
        {"title": "w " * 200, "body": "fits, cut", "tags": "none"},
    ]  # fmt: skip
    llm.body = llm.said(json.dumps(odd))
    reflector(replace(on, max_lessons=10)).look(chat(talk))
    (entry,) = saved(on)
    assert entry.body == "fits, cut" and len(entry.title) <= 120 and entry.title.endswith("…")
    assert (only(on).saved, only(on).skipped) == (1, 6)


def test_a_credential_in_a_lesson_is_refused_and_counted(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    llm.body = llm.said(json.dumps([{"title": "The token", "body": f"It is {secret}."}, LESSON]))
    reflector(on).look(chat(talk))
    assert [entry.title for entry in saved(on)] == [LESSON["title"]]
    assert (only(on).saved, only(on).refused) == (1, 1)
    assert secret.encode() not in on.db.read_bytes()


def save_as(settings: Settings, source: str | None, title: str, body: str = "By hand.") -> str:
    draft = entries.draft(scope=SCOPE, kind="fact", title=title, body=body)
    with Store(settings.db).session() as store:
        return entries.save(store, draft, source).entry.id


@pytest.mark.parametrize("source", ["tester", "build", None])
def test_an_entry_of_somebody_else_is_never_rewritten(
    talk: Talk, on: Settings, llm: Endpoint, source: str | None
) -> None:
    save_as(on, source, LESSON["title"])
    reflector(on).look(chat(talk))
    (entry,) = saved(on)
    assert (entry.body, entry.source) == ("By hand.", source)
    assert (only(on).saved, only(on).skipped) == (0, 1)


def test_a_lesson_of_its_own_is_rewritten_but_not_once_a_person_has_edited_it(
    new_talk: NewTalk, on: Settings, llm: Endpoint
) -> None:
    kept = save_as(on, "reflection", LESSON["title"])
    one = reflector(on)
    one.look(chat(new_talk("ses_a")))
    (entry,) = saved(on)
    assert (entry.id, entry.body) == (kept, LESSON["body"])
    with Store(on.db).session() as store:
        mended = entries.draft(scope=SCOPE, kind="lesson", title=entry.title, body="Mended.")
        entries.edit(store, entry.id, mended, "tester")
    one.look(chat(new_talk("ses_b")))
    (entry,) = saved(on)
    assert (entry.body, entry.source) == ("Mended.", "tester")


def test_a_lesson_that_is_close_to_an_entry_is_skipped(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    save_as(on, "tester", "Invoices are rounded per each line")
    reflector(on).look(chat(talk))
    assert len(saved(on)) == 1 and only(on).skipped == 1


# What is sent -------------------------------------------------------------------------------------


def test_credentials_are_masked_before_anything_is_sent(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    message = talk.assistant("I looked.")
    state = {"status": "completed", "title": f"curl -H {secret}", "output": "no"}
    talk.part(message, {"type": "tool", "tool": "bash", "state": state})
    reflector(replace(on, mask=False)).look(chat(talk, f"The token is {secret}."))
    sent = json.dumps(llm.received)
    assert secret not in sent and secret[4:20] not in sent
    assert "ghp_…[masked 40]" in llm.asked


@pytest.mark.parametrize("most", range(1000, 1045))
def test_a_credential_at_the_cut_leaves_no_half(
    talk: Talk, on: Settings, llm: Endpoint, most: int
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    talk.user("First.")
    talk.user(f"{secret} {'z' * 985}")
    reflector(replace(on, transcript_chars=most)).look(talk.session().updated_at + IDLE_MS)
    assert "a1B2" not in llm.asked and "c3D4" not in llm.asked


def test_the_prompt_is_bounded_and_holds_the_end(talk: Talk, on: Settings, llm: Endpoint) -> None:
    talk.user("The very beginning. " + "x" * 50_000)
    idle = chat(talk, "y" * 20_000)
    reflector(replace(on, transcript_chars=2000)).look(idle)
    assert len(llm.asked) <= 2000 + len("<session>\n\n</session>")
    assert "[…]" in llm.asked and "Answer 2" in llm.asked and "beginning" not in llm.asked
    assert len(json.dumps(llm.received)) < 5000


def test_only_what_was_said_and_the_titles_of_tools_are_sent(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    message = talk.assistant("I look into it.")
    talk.part(message, {"type": "reasoning", "text": "a secret thought"})
    talk.part(message, {"type": "text", "text": "a synthetic text", "synthetic": True})
    state = {"title": "run the  tests", "input": {"command": "an input"}, "output": "an output"}
    talk.part(message, {"type": "tool", "tool": "bash", "state": {"status": "error", **state}})
    talk.part(message, {"type": "tool", "tool": None, "state": 3})
    talk.assistant("a summary", summary=True, agent="compaction")
    idle = chat(talk)
    taken_back = talk.user("taken back")
    talk.assistant("undone")
    talk.sql("UPDATE session SET revert = ? WHERE id = ?",
             json.dumps({"messageID": taken_back}), talk.id)  # fmt: skip
    reflector(on).look(idle + 10_000)
    assert "I look into it.\n[bash: run the tests (failed)]\n[tool]" in llm.asked
    for absent in (
        "thought",
        "synthetic",
        "an input",
        "an output",
        "summary",
        "taken back",
        "undone",
    ):
        assert absent not in llm.asked


def test_a_session_of_the_newer_runtime_is_sent_too(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    for number in range(3):
        talk.newer("user", {"text": f"Question {number} " + "words " * 20})
        content = [{"type": "text", "text": f"Answer {number} " + "words " * 20}]
        talk.newer("assistant", {"time": {"created": 1, "completed": 2}, "content": content})
    reflector(on).look(talk.session().updated_at + IDLE_MS)
    assert "User:\nQuestion 0" in llm.asked and "Assistant:\nAnswer 2" in llm.asked


# When, and how often ------------------------------------------------------------------------------


def test_off_asks_nothing_and_makes_no_table(talk: Talk, on: Settings, llm: Endpoint) -> None:
    save_as(on, "tester", "Something")
    off = replace(on, reflection=False)
    one = reflector(off)
    one.look(chat(talk))
    one.run(threading.Event())
    assert llm.received == [] and rows(off) == [] and totals(off) == reflect.Totals()
    with closing(sqlite3.connect(on.db)) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_master")]
    assert not [name for name in names if "reflection" in name]


@pytest.mark.parametrize("lacking", ["reflection_url", "reflection_model"])
def test_nothing_is_asked_before_all_is_set(
    talk: Talk, on: Settings, llm: Endpoint, caplog: pytest.LogCaptureFixture, lacking: str
) -> None:
    half = replace(on, **{lacking: None})  # type: ignore[arg-type]
    one = reflector(half)
    one.run(threading.Event())
    one.look(chat(talk))
    assert llm.received == [] and not on.data_dir.exists()
    assert lacking in caplog.text and lacking in reflect.missing(half)


def test_once_a_session_also_when_it_goes_on_and_after_a_restart(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    one = reflector(on)
    one.look(chat(talk))
    one.look(chat(talk))
    again = reflector(on)
    again.look(chat(talk))
    again.look(chat(talk) + IDLE_MS)
    assert len(llm.received) == 1 and len(rows(on)) == 1


def test_two_servers_ask_once_between_them(talk: Talk, on: Settings, llm: Endpoint) -> None:
    idle = chat(talk)
    gate = threading.Barrier(4)

    def look() -> None:
        one = reflector(on)
        gate.wait()
        one.look(idle)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(llm.received) == 1 and only(on).saved == 1


def test_what_was_idle_before_the_start_is_left_alone(
    new_talk: NewTalk, on: Settings, llm: Endpoint
) -> None:
    idle = chat(new_talk("ses_old"))
    later = reflector(on, began=idle + 1)
    later.look(idle + 1)
    later.look(idle + 5 * IDLE_MS)
    assert llm.received == []
    # It counts from the moment that somebody goes on with it.
    talk = new_talk("ses_new")
    talk._clock = idle + 10 * IDLE_MS
    later.look(chat(talk))
    assert len(llm.received) == 1


def test_a_session_that_goes_on_or_still_answers_is_not_idle(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    idle = chat(talk)
    one = reflector(on)
    one.look(idle - 1000)
    answer = talk.assistant("Let me see", done=False)
    one.look(idle)
    unfinished = talk.session().updated_at + IDLE_MS
    one.look(unfinished)
    one.look(unfinished + IDLE_MS)
    assert llm.received == [] and not on.data_dir.exists()
    talk.finish(answer)
    one.look(unfinished + IDLE_MS + 1000)
    one.look(unfinished + 3 * IDLE_MS)
    assert len(llm.received) == 1


def test_subagents_forks_and_short_sessions_are_not_asked_about(
    new_talk: NewTalk, on: Settings, llm: Endpoint
) -> None:
    child, fork, short, single = map(new_talk, ("ses_child", "ses_fork", "ses_short", "ses_single"))
    child.sql("UPDATE session SET parent_id = 'ses_x' WHERE id = 'ses_child'")
    chat(child)
    chat(fork)
    fork.sql("UPDATE session SET time_created = time_updated WHERE id = 'ses_fork'")
    short.user("Hello.")
    short.user("Bye.")
    single.user("One long prompt. " * 50)
    single.assistant("An answer. " * 50)
    one = reflector(on)
    one.look(single.session().updated_at + 2 * IDLE_MS)
    assert llm.received == [] and not on.data_dir.exists()
    # Once there is enough, it is asked about.
    single._clock += 2 * IDLE_MS
    single.user("And another thing.")
    one.look(single.session().updated_at + IDLE_MS)
    assert len(llm.received) == 1


def test_no_more_calls_an_hour_than_that(
    new_talk: NewTalk, on: Settings, llm: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "PER_HOUR", 2)
    idle = [chat(new_talk(f"ses_{number}")) for number in range(3)][-1]
    one = reflector(on)
    one.look(idle)
    assert len(llm.received) == 2 and "Too many calls" in one.problems.text
    one.look(idle + ledger.HOUR_MS - 1)
    assert len(llm.received) == 2
    one.look(idle + 2 * ledger.HOUR_MS)
    assert len(llm.received) == 3 and len(rows(on)) == 3


def test_nothing_is_opened_while_opencode_writes_nothing(
    talk: Talk, on: Settings, llm: Endpoint, trace: Any
) -> None:
    one = reflector(on)
    idle = chat(talk)
    one.look(idle)
    assert len(llm.received) == 1
    trace.assert_frugal(talk.db)
    one.look(idle + 1)
    trace.clear()
    for second in range(0, 3600, 3):
        one.look(idle + second * 1000)
    assert trace.opened == 0


# What goes wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500, 503])
def test_a_refusal_is_told_and_not_repeated(
    talk: Talk, on: Settings, llm: Endpoint, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    llm.status = status
    llm.body = json.dumps({"error": {"message": f"Incorrect\nkey {KEY} of yours"}}).encode()
    one = reflector(on)
    idle = chat(talk)
    for hour in range(5):
        one.look(idle + hour * ledger.HOUR_MS)
    assert len(llm.received) == 1 and saved(on) == []
    outcome = only(on)
    assert outcome.state == "failed" and f"({status})" in outcome.problem
    assert ("Incorrect key … of yours" in outcome.problem) is (status in (400, 404, 413, 422))
    assert one.problems.at == idle and str(status) in one.problems.text
    assert len(caplog.records) == 1
    for place in (caplog.text, outcome.problem, one.problems.text):
        assert KEY not in place and KEY[:8] not in place
    assert KEY.encode() not in on.db.read_bytes()


def test_a_redirect_is_not_followed(talk: Talk, on: Settings, llm: Endpoint) -> None:
    other = type(llm)()
    try:
        llm.status, llm.extra = 307, {"Location": other.url + "/chat/completions"}
        reflector(on).look(chat(talk))
        assert len(llm.received) == 1 and other.received == []
        assert "redirect (307)" in only(on).problem
    finally:
        other.stop()


def test_no_proxy_is_used(
    talk: Talk, on: Settings, llm: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    reflector(on).look(chat(talk))
    assert len(llm.received) == 1


def test_a_huge_answer_is_not_read(
    talk: Talk, on: Settings, llm: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "MAX_ANSWER", 100_000)
    llm.body = llm.said(json.dumps([LESSON])) + b" " * 20_000_000
    reflector(on).look(chat(talk))
    assert saved(on) == [] and "more than 100,000 bytes" in only(on).problem


@pytest.mark.parametrize("how", ["silent", "dripping", "dripping headers"])
def test_a_slow_endpoint_is_left(
    talk: Talk, on: Settings, llm: Endpoint, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 0.5)
    ended = threading.Event()

    def slowly(handler: Any) -> None:
        if how == "dripping":
            handler.send_response(200)
            handler.end_headers()
        if how == "dripping headers":
            handler.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
        while not ended.wait(0.05):
            try:
                handler.wfile.write(b" " if how != "silent" else b"")
            except OSError:
                return

    llm.before = slowly
    begun = time.monotonic()
    try:
        reflector(on).look(chat(talk))
    finally:
        ended.set()
    assert time.monotonic() - begun < 5
    assert "did not answer within" in only(on).problem and only(on).state == "failed"


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"null", b"[" * 100_000, b'{"choices": []}', b'{"choices": [{}]}',
     b'{"choices": [{"message": {"content": null}}]}', b'{"choices": {"a": 1}}', b"\xff\xfe"],
)  # fmt: skip
def test_what_is_no_chat_completion_is_told(
    talk: Talk, on: Settings, llm: Endpoint, body: bytes
) -> None:
    llm.body = body
    reflector(on).look(chat(talk))
    assert "something else than a chat completion" in only(on).problem


@pytest.mark.parametrize(
    "usage",
    [None, 3, {}, {"prompt_tokens": "many"}, {"prompt_tokens": -1, "completion_tokens": True}],
)
def test_odd_counts_are_none(talk: Talk, on: Settings, llm: Endpoint, usage: Any) -> None:
    llm.body = llm.said(json.dumps([LESSON]), usage)
    reflector(on).look(chat(talk))
    assert only(on) == ledger.Outcome("done", "", None, None, 1)
    assert totals(on).uncounted == 1


def test_an_endpoint_that_breaks_off_is_told_and_not_asked_again(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    def broken(handler: Any) -> None:
        handler.wfile.write(b"no http\r\n")
        handler.wfile.close()

    llm.before = broken
    one = reflector(on)
    idle = chat(talk)
    one.look(idle)
    one.look(idle + ledger.DAY_MS)
    assert len(llm.received) == 1 and "may have cost" in only(on).problem


def test_what_could_not_be_sent_is_tried_again_with_growing_pauses_and_given_up(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
    one = reflector(on := replace(on, reflection_url=url))
    at = chat(talk)
    one.look(at)
    assert only(on).state == "retry" and "cannot be reached" in only(on).problem
    for attempt, pause in enumerate(ledger.PAUSES_MS, 1):
        assert rows(on)[0].attempts == attempt
        one.look(at + pause - 1)
        assert rows(on)[0].attempts == attempt
        at += pause
        one.look(at)
    assert rows(on)[0].attempts == len(ledger.PAUSES_MS) + 1
    assert only(on).state == "unsent"
    one.look(at + ledger.DAY_MS)
    assert rows(on)[0].attempts == len(ledger.PAUSES_MS) + 1
    assert totals(on) == reflect.Totals()
    assert llm.received == []


def test_a_later_server_takes_up_what_could_not_be_sent(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    assert on.reflection_key_file is not None
    on.reflection_key_file.rename(on.reflection_key_file.with_suffix(".away"))
    idle = chat(talk)
    reflector(on).look(idle)
    assert llm.received == [] and "key file" in only(on).problem
    on.reflection_key_file.with_suffix(".away").rename(on.reflection_key_file)
    later = reflector(on, began=idle + ledger.DAY_MS)
    later.look(idle + ledger.DAY_MS)
    assert len(llm.received) == 1 and only(on).state == "done"


def test_a_session_that_was_deleted_is_given_up(talk: Talk, on: Settings, llm: Endpoint) -> None:
    on = replace(on, reflection_key_file=on.data_dir / "none")
    idle = chat(talk)
    reflector(on).look(idle)
    talk.sql("DELETE FROM session WHERE id = ?", talk.id)
    reflector(on, began=idle).look(idle + 1)
    assert only(on).state == "unsent" and "not in OpenCode" in only(on).problem


@pytest.mark.parametrize("text", ["", "\n", "two words", "sk-ü", "a" * 5000, "a\x00b"])
def test_a_file_without_a_key_is_told_and_never_repeated(
    talk: Talk, on: Settings, llm: Endpoint, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    assert on.reflection_key_file is not None
    on.reflection_key_file.write_text(text)
    reflector(on).look(chat(talk))
    assert llm.received == [] and "holds no key" in only(on).problem
    if text.strip():
        assert text not in only(on).problem and text not in caplog.text


def test_without_a_key_file_no_key_is_sent(talk: Talk, on: Settings, llm: Endpoint) -> None:
    reflector(replace(on, reflection_key_file=None)).look(chat(talk))
    assert "Authorization" not in llm.headers[0]


def test_a_read_only_store_is_told_before_anything_is_sent(
    talk: Talk, on: Settings, llm: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    save_as(on, "tester", "Something")
    with closing(sqlite3.connect(on.db)) as db, db:
        db.execute("CREATE TABLE reflections (theirs)")
    one = reflector(on)
    idle = chat(talk)
    one.look(idle)
    one.look(idle + RETRY_MS)
    assert llm.received == [] and "also has “theirs”" in one.problems.text
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert rows(on) == [] and totals(on) == reflect.Totals()


def test_a_store_that_cannot_be_written_any_more_after_the_call_is_told(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    def spoil(_handler: Any) -> None:
        with closing(sqlite3.connect(on.db)) as db, db:
            db.execute("ALTER TABLE trash ADD COLUMN theirs")

    llm.before = spoil
    one = reflector(on)
    idle = chat(talk)
    one.look(idle)
    one.look(idle + RETRY_MS)
    assert len(llm.received) == 1 and "theirs" in one.problems.text
    (row,) = rows(on, idle + ledger.DAY_MS)
    assert row.outcome.state == "interrupted"


KILLED = """
import sys
from dataclasses import replace
from pathlib import Path
from webapp import settings
from webapp.memory.reflect import Reflector
from webapp.store import Store
home, url, idle = sys.argv[1], sys.argv[2], int(sys.argv[3])
on = settings.load({}, {"HOME": home, "OPENCODE_MEMORY_REFLECTION": "1",
    "OPENCODE_MEMORY_REFLECTION_URL": url, "OPENCODE_MEMORY_REFLECTION_MODEL": "m"})
Reflector(Store(on.db), on, 0).look(idle)
"""


def test_a_kill_in_the_middle_of_a_call_is_told_and_the_call_is_not_repeated(
    talk: Talk, on: Settings, llm: Endpoint
) -> None:
    asked, ended = threading.Event(), threading.Event()

    def hang(_handler: Any) -> None:
        asked.set()
        ended.wait(20)

    llm.before = hang
    idle = chat(talk)
    home = on.data_dir.parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(home), llm.url, str(idle)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert asked.wait(20)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
        ended.set()
    (row,) = rows(on, idle)
    assert row.outcome.state == "calling"
    later = reflector(on)
    later.look(idle)
    later.look(chat(talk))
    assert len(llm.received) == 1
    (row,) = rows(on, idle + ledger.DAY_MS)
    assert row.outcome.state == "interrupted" and totals(on).calls == 1


def test_the_thread_looks_and_stops(
    talk: Talk, on: Settings, llm: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.memory.reflect.watch.LOOK_S", 0.01)
    # Idle in a second from now.
    shift = int(time.time() * 1000) + 1000 - chat(talk)
    talk.sql("UPDATE session SET time_updated = time_updated + ?", shift)
    talk.sql("UPDATE message SET time_updated = time_updated + ?", shift)
    one = Reflector(Store(on.db), on)
    stopping = threading.Event()
    thread = threading.Thread(target=one.run, args=(stopping,))
    thread.start()
    try:
        for _ in range(1000):
            if on.db.exists() and saved(on):
                break
            stopping.wait(0.01)
    finally:
        stopping.set()
        thread.join(5)
    assert not thread.is_alive() and len(llm.received) == 1 and len(saved(on)) == 1
