"""Entries as a file and back: nothing is lost on the way, and nothing is written that was not shown."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.errors import InvalidInput, PlanChanged
from webapp.memory import entries, portable, trash
from webapp.memory.query import SearchQuery
from webapp.memory.search import search
from webapp.settings import Settings
from webapp.store import Store, receipts

NOW = 1_790_000_000_000
KEY = "ghp_" + "Zk3Wq9Lm5Rt7Vy1Bx8Nc2Hd6Jf4Gs0PaQe3T"


def save(store: Store, title: str, body: str = "A body.", **more: Any) -> entries.Entry:
    values = {"scope": "/a", "kind": "fact", **more}
    source, now = values.pop("source", "ann"), values.pop("now", NOW)
    return entries.save(
        store, entries.draft(title=title, body=body, now=now, **values), source, now
    ).entry


def everything(store: Store) -> list[entries.Entry]:
    found = search(store, SearchQuery(sort="oldest", limit=500), NOW).hits
    return sorted((hit.entry for hit in found), key=lambda entry: entry.id)


def text_of(store: Store, form: str, scope: str | None = None) -> bytes:
    return "".join(portable.dump(store, scope, form, NOW)).encode()


def bring(store: Store, data: bytes, into: str | None = None) -> portable.Plan:
    made = portable.plan(store, data, into, NOW + 5)
    return portable.apply(store, data, into, made.fingerprint, "bob", NOW + 5)[0]


@pytest.fixture
def other(tmp_path: Any) -> Any:
    with Store(tmp_path / "other" / "memory.db").session() as opened:
        yield opened


_LINES = st.sampled_from(
    ["", "## A heading", "<!-- opencode-memory {} -->", "\\<!-- opencode-memory x", "```", "---", "-->",
     "# OpenCode memory", "  indented", "\ttab", "a\rb", "é 検索 🙂", '{"id": 1}', "\u2028", "\\", "## "]
)  # fmt: skip


@given(st.lists(st.tuples(st.text(min_size=1, max_size=20), st.lists(_LINES, min_size=1, max_size=8)),
                min_size=1, max_size=4), st.sampled_from(portable.FORMATS))  # fmt: skip
@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_exported_comes_back_as_it_was(
    settings: Settings, made: list[tuple[str, list[str]]], form: str
) -> None:
    for name in ("one", "two"):
        folder = settings.data_dir / name
        for path in folder.glob("*"):
            path.unlink()
    with Store(settings.data_dir / "one" / "memory.db").session() as store:
        for number, (title, lines) in enumerate(made):
            try:
                save(store, title, "\n".join(lines), tags=["a", "b-->c"], now=NOW + number,
                     expires_at=NOW * 2 if number % 2 else None)  # fmt: skip
            except InvalidInput:
                continue
        before = everything(store)
        data = text_of(store, form)
    with Store(settings.data_dir / "two" / "memory.db").session() as store:
        if not before:
            return
        assert bring(store, data).counts["new"] == len(before)
        assert everything(store) == before
        assert portable.plan(store, data, None, NOW + 9).counts["same"] == len(before)


@pytest.mark.parametrize("form", portable.FORMATS)
def test_a_plan_says_what_becomes_of_each(store: Store, other: Store, form: str) -> None:
    for title in ("Kept", "Changed", "Fresh"):
        save(store, title)
    save(other, "Kept", source="plugin")
    was = save(other, "Changed", "Another body.", now=NOW - 1)
    data = text_of(store, form)
    made = portable.plan(other, data, None, NOW)
    assert {item.title: item.state for item in made.items} == {
        "Kept": "same", "Changed": "rewritten", "Fresh": "new"}  # fmt: skip
    assert [e.title for e in everything(other)] != []
    assert len(everything(other)) == 2
    done, receipt = portable.apply(other, data, None, made.fingerprint, "bob", NOW)
    assert done.counts == {"new": 1, "rewritten": 1, "same": 1, "refused": 0}
    found = {entry.title: entry for entry in everything(other)}
    assert found["Changed"].id == was.id and found["Changed"].body == "A body."
    assert found["Fresh"].source == "ann" and found["Kept"].source == "plugin"
    assert [item.entry.body for item in trash.listing(other, limit=9)] == ["Another body."]
    told = receipts.get(other, receipt)
    assert (told.action, told.actor, told.detail["new"]) == ("import", "bob", 1)


def test_a_secret_is_refused_and_never_repeated(store: Store) -> None:
    lines = [{"title": "A", "body": f"use {KEY}"}, {"title": KEY, "body": "b"}, {"title": "C", "body": "c"},
             {"title": "D", "body": "d", "tags": [KEY]}]  # fmt: skip
    data = "\n".join(map(json.dumps, lines)).encode()
    made = portable.plan(store, data, None, NOW)
    assert [item.state for item in made.items] == ["refused", "refused", "new", "refused"]
    assert KEY not in repr([(i.title, i.why) for i in made.items])
    assert "The body looks like it holds a secret (GitHub token)" in made.items[0].why
    bring(store, data)
    assert [entry.title for entry in everything(store)] == ["C"]


@pytest.mark.parametrize(
    ("line", "why"),
    [("{", "no JSON"), ("[1]", "no JSON object"), ("[" * 90_000, "no JSON"),
     ('{"title": 7}', "title is no text"),
     ('{"title": "a", "body": ""}', "body is empty"), ('{"title": "a", "body": "b", "tags": "x"}', "tags"),
     ('{"title": "a", "body": "b", "expires_at": 5}', "past"),
     ('{"title": "a", "body": "b", "expires_at": "soon"}', "no time"),
     ('{"title": "a", "body": "b", "scope": "../x"}', "absolute path"),
     ('{"title": "' + "a" * 121 + '", "body": "b"}', "at most 120"),
     ('{"title": "a", "body": "\\ud800"}', "Unicode"), ('{"title": "a", "body": "\\u0007"}', "control")],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_line_and_the_rest_goes_on(
    store: Store, line: str, why: str
) -> None:
    good = '{"title": "Good", "body": "b"}'
    made = portable.plan(store, f"{good}\n\n{line}\n".encode(), None, NOW)
    assert [(item.line, item.state) for item in made.items] == [(1, "new"), (3, "refused")]
    assert why in made.items[1].why


@pytest.mark.parametrize(
    ("data", "why"), [(b"\x1f\x8b\x08binary", "not UTF-8"), (b'{"a": "\0"}', "NUL")]
)
def test_a_file_that_is_no_text_is_refused(store: Store, data: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        portable.plan(store, data)


def test_prose_holds_no_entry_and_says_so(store: Store) -> None:
    (item,) = portable.plan(store, b"# Notes\n\nSomething.\n").items
    assert item.state == "refused" and "No entry was found" in item.why
    assert portable.plan(store, b" \n").items == ()


def test_keys_of_other_programs_are_understood(store: Store) -> None:
    line = {"title": "A", "body": "b", "createdAt": NOW - 9, "updatedAt": NOW - 5, "unknown": {"x": 1},
            "id": "1c9a0e6e-0000-4000-8000-000000000001"}  # fmt: skip
    bring(store, b"\xef\xbb\xbf" + json.dumps(line).encode() + b"\r\n")
    (entry,) = everything(store)
    assert (entry.scope, entry.kind, entry.created_at, entry.updated_at) == (
        "global",
        "fact",
        NOW - 9,
        NOW - 5,
    )
    assert entry.id == line["id"] and entry.source == "bob"


def test_of_two_with_one_title_the_first_is_taken_and_a_taken_id_is_not_kept(store: Store) -> None:
    there = save(store, "There")
    lines = [{"title": "A", "body": "first", "id": there.id}, {"title": "A", "body": "second"}]
    made = bring(store, "\n".join(map(json.dumps, lines)).encode(), "/b")
    assert [item.state for item in made.items] == ["new", "refused"]
    (entry,) = [e for e in everything(store) if e.scope == "/b"]
    assert entry.body == "first" and entry.id != there.id


def test_a_plan_that_no_longer_holds_writes_nothing(store: Store) -> None:
    data = b'{"title": "A", "body": "b"}\n{"title": "B", "body": "b"}'
    made = portable.plan(store, data, "/a", NOW)
    save(store, "A", "somebody else's")
    with pytest.raises(PlanChanged) as told:
        portable.apply(store, data, "/a", made.fingerprint, "bob", NOW)
    assert told.value.details["plan"].counts["rewritten"] == 1
    assert [entry.title for entry in everything(store)] == ["A"]
    with pytest.raises(PlanChanged):
        portable.apply(store, data, "/b", made.fingerprint, "bob", NOW)


def test_an_unused_memory_stays_so_until_something_is_written(
    settings: Settings, store: Store
) -> None:
    assert text_of(store, "jsonl") == b""
    made = portable.plan(store, b'{"title": "A", "body": "b"}')
    assert made.counts["new"] == 1 and not settings.db.exists()
    assert replace(made, items=()).counts["new"] == 0


def test_many_are_written_in_batches(store: Store) -> None:
    lines = [json.dumps({"title": f"T {n}", "body": "b"}) for n in range(portable.BATCH * 2 + 3)]
    assert bring(store, "\n".join(lines).encode()).counts["new"] == len(lines)
    assert len(text_of(store, "jsonl", "global").splitlines()) == len(lines)
    assert text_of(store, "jsonl", "/elsewhere") == text_of(store, "jsonl", "global")
