"""Saving, rewriting, editing and forgetting entries, with every limit of theirs."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.errors import Conflict, InvalidInput, NotFound, SecretRefused
from webapp.memory import entries, trash
from webapp.memory.entries import Draft, Entry, Saved
from webapp.memory.query import SearchQuery
from webapp.memory.search import ids_of_all_matches, search
from webapp.store import EntryRow, Store, receipts

NOW = 1_800_000_000_000
MIXED = "FAKE0fixture1"


def draft(**changes: Any) -> Draft:
    """A draft with something in every field, checked at NOW."""
    fields: dict[str, Any] = {
        "scope": "/home/a/shop", "kind": "fact", "title": "Tide", "body": "High at noon",
        "tags": ["sea"], "now": NOW, **changes,
    }  # fmt: skip
    return entries.draft(**fields)


def save(store: Store, now: int = NOW, source: str | None = "tester", **changes: Any) -> Saved:
    """Saves such a draft."""
    return entries.save(store, draft(now=now, **changes), source, now)


def all_live(store: Store) -> dict[str, Entry]:
    """Every row of the table by id, expired ones too."""
    return {row.id: entries.from_row(row) for row in store.all(EntryRow.select())}


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", "t"), ("title", "t" * 120), ("title", "🚢" * 120), ("body", "b"),
        ("body", "b" * 8000), ("body", "数" * 8000), ("kind", "k"), ("kind", "k" * 40),
        ("tags", [f"tag{n}" for n in range(12)]), ("tags", []), ("tags", ["g" * 64]),
        ("expires_at", NOW + 1), ("expires_at", None), ("scope", "global"), ("scope", "/"),
        ("expires_at", 253_402_300_799_999), ("body", "tab\tand\nnew line"),
        ("kind", "my own kind"),
    ],
)  # fmt: skip
def test_what_is_within_the_limits_is_kept_as_it_is(store: Store, field: str, value: Any) -> None:
    saved = save(store, **{field: value})
    kept = entries.get(store, saved.entry.id)
    assert kept == saved.entry
    assert getattr(kept, field) == (tuple(value) if field == "tags" else value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", ""), ("title", " \n\t "), ("title", "t" * 121), ("body", ""), ("body", "  \n "),
        ("body", "b" * 8001), ("kind", ""), ("kind", "  "), ("kind", "k" * 41),
        ("tags", [f"tag{n}" for n in range(13)]), ("tags", ["g" * 65]), ("expires_at", NOW),
        ("expires_at", NOW - 1), ("expires_at", 0), ("expires_at", -1), ("expires_at", 2**63),
        ("expires_at", 10**40), ("scope", ""), ("scope", "shop"), ("scope", "./shop"),
        ("title", "nul\0"), ("body", "bell\a"), ("body", "mark\x02"), ("kind", "\x7f"),
        ("tags", ["esc\x1b"]), ("title", "half \ud83d"), ("body", "half \udc00"),
        ("kind", "\ud800"),
        ("tags", ["\udfff"]), ("scope", "/home/\udcff"), ("scope", "/a\nb"),
    ],
)  # fmt: skip
def test_what_is_beyond_a_limit_is_refused_naming_the_field(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        draft(**{field: value})
    assert caught.value.field == field
    assert caught.value.status == 400
    assert len(caught.value.message) < 200


def test_a_refused_entry_leaves_no_file(store: Store) -> None:
    with pytest.raises(InvalidInput):
        save(store, title="")
    assert not store.exists


def test_white_space_in_title_kind_and_tags_is_put_in_order_and_tags_are_unique() -> None:
    made = draft(
        title="  High\n tide ", kind=" my  kind ", tags=["b", " a  c ", "b", "", "  "],
        body="\n\nline one\r\n  indented\n\n",
    )  # fmt: skip
    assert (made.title, made.kind, made.tags) == ("High tide", "my kind", ("b", "a c"))
    assert made.body == "line one\n  indented"


def test_twelve_tags_may_come_with_repetitions(store: Store) -> None:
    assert len(draft(tags=[f"t{n}" for n in range(12)] * 2).tags) == 12


TEXT = st.text(max_size=130) | st.text(st.characters(), max_size=40)


@given(title=TEXT, kind=TEXT, body=TEXT, tags=st.lists(TEXT, max_size=14), scope=TEXT)
@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_draft_is_either_refused_with_a_field_or_kept_word_for_word(
    store: Store, title: str, kind: str, body: str, tags: list[str], scope: str
) -> None:
    try:
        made = entries.draft(
            scope="/" + scope, kind=kind, title=title, body=body, tags=tags, now=NOW
        )
    except InvalidInput as error:
        assert error.field in {"scope", "kind", "title", "body", "tags"}
        return
    kept = entries.get(store, entries.save(store, made, None, NOW).entry.id)
    assert (kept.scope, kept.kind, kept.title, kept.body, kept.tags) == (
        made.scope, made.kind, made.title, made.body, made.tags,
    )  # fmt: skip


# --- secrets --------------------------------------------------------------------------------------

SECRETS = {
    "OpenAI": "sk-" + MIXED * 4,
    "Anthropic": "sk-ant-" + "api03-" + MIXED * 7 + "AA",
    "GitHub": "ghp_" + "FakeFixture0" * 3,
    "GitLab": "glpat-" + "FAKE0_fixture-1FAKE0",
    "AWS": "AKIA" + "FAKEFIXTURE00000",
    "Slack webhook": "https://hooks.slack.com/services/" + "T0FAKE000/B0FAKE000/" + MIXED * 2,
    "URL with a password": "postgres://" + "user:" + "hunter2" + "@host/database",
}


@pytest.mark.parametrize(
    ("name", "field"),
    [
        (name, field)
        for name, secret in SECRETS.items()
        for field, most in (("title", 120), ("kind", 40), ("body", 8000), ("tags", 64))
        if len(secret) <= most
    ],
)
def test_a_secret_is_refused_in_every_field_by_name_and_never_repeated(
    name: str, field: str
) -> None:
    secret = SECRETS[name]
    text = f"use {secret} here" if field in ("title", "body") else secret
    with pytest.raises(SecretRefused) as caught:
        draft(**{field: ["fine", text] if field == "tags" else text})
    error = caught.value
    assert error.field == field
    assert f"the {field} " in error.message.lower()
    assert error.details["kind"] in error.message
    shown = f"{error.message} {error.details!r} {error!r}"
    for start in range(0, len(secret) - 8):
        assert secret[start : start + 9] not in shown


def test_a_private_key_in_a_body_is_refused(store: Store) -> None:
    begin = "-----BEGIN " + "RSA PRIVATE" + " KEY-----"
    end = "-----END " + "RSA PRIVATE" + " KEY-----"
    lines = ["MII" + MIXED * 4 + f"+/Line{number}ab" for number in range(3)]
    with pytest.raises(SecretRefused) as caught:
        save(store, body="\n".join([begin, *lines, end]))
    assert caught.value.field == "body"
    assert MIXED not in caught.value.message


@pytest.mark.parametrize("field", ["title", "kind", "body", "tags"])
def test_prose_about_secrets_passes(store: Store, field: str) -> None:
    text = "rotate the ghp_ token"
    value: Any = [text] if field == "tags" else text
    saved = save(store, **{field: value})
    assert text in json.dumps(getattr(saved.entry, field))


def test_a_secret_is_refused_in_an_edit_and_in_the_title_of_a_restore(store: Store) -> None:
    first = save(store).entry
    entries.forget(store, [first.id], "tester", NOW)
    save(store)
    with pytest.raises(SecretRefused) as caught:
        trash.restore(store, first.id, "tester", trash.KEEP_BOTH, SECRETS["GitHub"], NOW)
    assert caught.value.field == "title"
    assert SECRETS["GitHub"] not in caught.value.message
    assert trash.count(store) == 1
    assert len(all_live(store)) == 1


# --- save -----------------------------------------------------------------------------------------


def test_a_new_entry_gets_a_uuid_its_times_and_its_writer(store: Store) -> None:
    saved = save(store, expires_at=NOW + 5)
    assert saved.created
    assert saved.expired == 0
    assert uuid.UUID(saved.entry.id).version == 4
    assert saved.entry == Entry(
        saved.entry.id, "/home/a/shop", "fact", "Tide", "High at noon", ("sea",), NOW, NOW, NOW + 5,
        "tester",
    )  # fmt: skip
    assert entries.get(store, saved.entry.id) == saved.entry


def test_tags_are_stored_as_the_plugin_reads_them(store: Store) -> None:
    saved = save(store, tags=['with "quotes"', "größe", "数据"])
    (raw,) = store.rows("SELECT tags FROM entries WHERE id = ?", (saved.entry.id,))[0]
    assert json.loads(raw) == ['with "quotes"', "größe", "数据"]
    assert search(store, SearchQuery("größe")).total == 1


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ('["a", "b"]', ("a", "b")), ("[]", ()), ("", ()), (None, ()), ("[1, null]", ("1", "null")),
        ("not json", ("not json",)), ('{"a": 1}', ('{"a": 1}',)), ('"word"', ('"word"',)),
        ("[" * 3000, ("[" * 3000,)), ('[["a"]]', ('["a"]',)),
    ],
)  # fmt: skip
def test_tags_that_another_program_wrote_are_shown_whatever_they_are(
    raw: str | None, shown: tuple[str, ...]
) -> None:
    assert entries.tags_of(raw) == shown


def test_a_save_of_the_same_scope_and_title_rewrites_keeping_id_and_creation(store: Store) -> None:
    first = save(store).entry
    again = save(
        store, NOW + 100, "other", body="High at one", kind="lesson", tags=[], expires_at=NOW + 500
    )
    assert not again.created
    assert again.entry == Entry(
        first.id, first.scope, "lesson", "Tide", "High at one", (), NOW, NOW + 100, NOW + 500,
        "other",
    )  # fmt: skip
    assert all_live(store) == {first.id: again.entry}


@pytest.mark.parametrize("change", [{"scope": "global"}, {"title": "tide"}, {"title": "Tide 2"}])
def test_another_scope_or_title_is_another_entry(store: Store, change: dict[str, Any]) -> None:
    first = save(store)
    second = save(store, **change)
    assert second.created
    assert set(all_live(store)) == {first.entry.id, second.entry.id}


@pytest.mark.parametrize(
    "change", [{"body": "Low"}, {"kind": "lesson"}, {"tags": ["land"]}], ids=lambda c: str(*c)
)
def test_the_former_text_of_a_rewrite_is_recoverable_from_the_trash(
    store: Store, change: dict[str, Any]
) -> None:
    first = save(store).entry
    save(store, NOW + 100, "other", **change)
    (item,) = trash.listing(store)
    assert item.entry.id != first.id
    assert (item.entry.kind, item.entry.body, item.entry.tags) == ("fact", "High at noon", ("sea",))
    assert (item.entry.source, item.entry.created_at) == ("tester", NOW)
    assert (item.trashed_at, item.trashed_by) == (NOW + 100, "other (rewrote)")
    trash.restore(store, item.entry.id, "tester", trash.REPLACE, now=NOW + 200)
    (back,) = all_live(store).values()
    assert (back.kind, back.body, back.tags) == ("fact", "High at noon", ("sea",))


def test_a_save_of_the_same_text_leaves_nothing_in_the_trash(store: Store) -> None:
    save(store)
    assert not save(store, NOW + 100).created
    assert trash.count(store) == 0


def test_every_former_text_stays_recoverable(store: Store) -> None:
    for number in range(5):
        save(store, NOW + number, body=f"text {number}")
    assert [item.entry.body for item in trash.listing(store)] == [
        "text 3", "text 2", "text 1", "text 0",
    ]  # fmt: skip


def test_two_saves_in_one_millisecond_get_different_times(store: Store) -> None:
    first = save(store).entry
    assert save(store, body="Other").entry.updated_at == first.updated_at + 1


def test_of_two_rows_of_the_plugin_with_one_title_the_newest_is_rewritten(store: Store) -> None:
    older = save(store).entry
    store.rows(
        "INSERT INTO entries SELECT 'twin', scope, kind, title, 'twin', tags, created_at, ?, NULL,"
        " NULL FROM entries",
        (NOW + 50,),
    )
    assert save(store, NOW + 100, body="Newest").entry.id == "twin"
    assert entries.get(store, older.id).body == "High at noon"


# --- expiry ---------------------------------------------------------------------------------------


def test_an_expired_entry_is_no_longer_live_from_its_very_millisecond(store: Store) -> None:
    entry = save(store, expires_at=NOW + 10).entry
    assert entries.is_live(entry, NOW + 9)
    assert not entries.is_live(entry, NOW + 10)
    assert search(store, SearchQuery("noon"), NOW + 9).total == 1
    assert search(store, SearchQuery("noon"), NOW + 10).total == 0


def test_a_save_moves_what_has_expired_in_any_scope_to_the_trash(store: Store) -> None:
    gone = save(store, title="Gone", scope="global", expires_at=NOW + 10).entry
    kept = save(store, title="Kept", expires_at=NOW + 11).entry
    saved = save(store, NOW + 10, title="New")
    assert saved.expired == 1
    assert set(all_live(store)) == {kept.id, saved.entry.id}
    (item,) = trash.listing(store)
    assert (item.entry, item.trashed_at, item.trashed_by) == (gone, NOW + 10, entries.EXPIRED)


def test_a_save_with_the_title_of_an_expired_entry_creates_another(store: Store) -> None:
    expired = save(store, expires_at=NOW + 10).entry
    saved = save(store, NOW + 20)
    assert saved.created
    assert saved.entry.id != expired.id
    assert saved.entry.created_at == NOW + 20


# --- edit -----------------------------------------------------------------------------------------


def test_an_edit_changes_an_entry_in_place_and_keeps_the_former_text(store: Store) -> None:
    first = save(store).entry
    new = draft(title="Ebb", body="Low at six", scope="global")
    edited = entries.edit(store, first.id, new, "other", first.updated_at, NOW + 100)
    assert edited == Entry(
        first.id, "global", "fact", "Ebb", "Low at six", ("sea",), NOW, NOW + 100, None, "other"
    )
    assert all_live(store) == {first.id: edited}
    (item,) = trash.listing(store)
    assert (item.entry.title, item.entry.body) == ("Tide", "High at noon")


def test_an_edit_of_what_somebody_else_changed_meanwhile_changes_nothing(store: Store) -> None:
    first = save(store).entry
    theirs = save(store, NOW, "other", body="Changed within the same millisecond").entry
    with pytest.raises(Conflict) as caught:
        entries.edit(store, first.id, draft(body="Mine"), "tester", first.updated_at, NOW + 100)
    assert caught.value.details["entry"] == theirs
    assert all_live(store) == {first.id: theirs}
    assert trash.count(store) == 1


def test_an_edit_may_not_take_the_title_of_another_live_entry(store: Store) -> None:
    first = save(store).entry
    other = save(store, title="Ebb").entry
    with pytest.raises(Conflict, match="Ebb") as caught:
        entries.edit(store, first.id, draft(title="Ebb"), "tester", now=NOW + 1)
    assert caught.value.details["entry"] == other
    assert all_live(store) == {first.id: first, other.id: other}


def test_an_edit_may_take_a_title_that_only_an_expired_entry_holds(store: Store) -> None:
    first = save(store).entry
    save(store, title="Ebb", expires_at=NOW + 5)
    assert entries.edit(store, first.id, draft(title="Ebb"), "tester", now=NOW + 6).title == "Ebb"


def test_an_edit_of_an_unknown_entry_is_not_found(store: Store) -> None:
    save(store)
    with pytest.raises(NotFound):
        entries.edit(store, "unknown", draft(), "tester")


# --- forget ---------------------------------------------------------------------------------------


def test_forget_by_id_moves_an_entry_of_any_scope_whole_and_leaves_a_receipt(store: Store) -> None:
    one = save(store, expires_at=NOW + 10**9).entry
    two = save(store, scope="/home/b/elsewhere", title="Ebb").entry
    assert entries.forget(store, [one.id, two.id, one.id], "tester", NOW + 100) == [one, two]
    assert all_live(store) == {}
    items = {item.entry.id: item for item in trash.listing(store)}
    assert {key: item.entry for key, item in items.items()} == {one.id: one, two.id: two}
    assert {(i.trashed_at, i.trashed_by) for i in items.values()} == {(NOW + 100, "tester")}
    (receipt,) = receipts.listing(store)
    assert (receipt.at, receipt.action, receipt.actor) == (NOW + 100, "forget", "tester")
    assert receipt.summary == "Forgot 2 entries"
    assert [entry["title"] for entry in receipt.detail["entries"]] == ["Tide", "Ebb"]
    assert receipts.get(store, receipt.id) == receipt


def test_forget_of_a_list_with_an_unknown_id_moves_none(store: Store) -> None:
    entry = save(store).entry
    with pytest.raises(NotFound):
        entries.forget(store, [entry.id, "unknown"], "tester")
    assert all_live(store) == {entry.id: entry}
    assert trash.count(store) == 0
    assert receipts.listing(store) == []


def test_at_most_fifty_are_forgotten_in_one_call(store: Store) -> None:
    ids = [save(store, title=f"Tide {number}").entry.id for number in range(51)]
    with pytest.raises(InvalidInput, match="50"):
        entries.forget(store, ids, "tester")
    assert len(all_live(store)) == 51
    assert len(entries.forget(store, ids[:50], "tester")) == 50


def test_forgetting_an_id_that_is_in_the_trash_already_destroys_neither_text(store: Store) -> None:
    first = save(store).entry
    entries.forget(store, [first.id], "tester", NOW)
    store.rows(
        "INSERT INTO entries SELECT id, scope, kind, title, 'Put back by another program', tags,"
        " created_at, updated_at, expires_at, NULL FROM trash"
    )
    entries.forget(store, [first.id], "tester", NOW + 1)
    assert [item.entry.body for item in trash.listing(store)] == [
        "Put back by another program", "High at noon",
    ]  # fmt: skip
    assert trash.get(store, first.id).entry.body == "Put back by another program"


def test_forget_by_query_takes_only_the_callers_scope_and_global(store: Store) -> None:
    mine = save(store).entry
    common = save(store, scope="global").entry
    save(store, scope="/home/b/shop")
    save(store, scope="/home/a/shop2")
    save(store, scope="/home/a/shop/inner")
    ids, total = ids_of_all_matches(store, SearchQuery("noon", "/home/a/shop"), NOW)
    assert (set(ids), total) == ({mine.id, common.id}, 2)
    ids, total = ids_of_all_matches(store, SearchQuery("noon", "global"), NOW)
    assert (ids, total) == ([common.id], 1)


@pytest.mark.parametrize(
    "words", ["noon scope:/home/b/other", "noon scope:other", 'noon scope:"/home/b/other"']
)
def test_a_scope_among_the_words_does_not_widen_a_forget(store: Store, words: str) -> None:
    save(store)
    save(store, scope="/home/b/other")
    assert ids_of_all_matches(store, SearchQuery(words, "/home/a/shop"), NOW) == ([], 0)


def test_a_scope_among_the_words_narrows_a_forget(store: Store) -> None:
    save(store)
    common = save(store, scope="global").entry
    query = SearchQuery("noon scope:global", "/home/a/shop")
    assert ids_of_all_matches(store, query, NOW) == ([common.id], 1)


def test_forget_by_query_takes_fifty_and_says_how_many_match(store: Store) -> None:
    for number in range(53):
        save(store, title=f"Tide {number}", now=NOW + number)
    query = SearchQuery("noon", "/home/a/shop")
    ids, total = ids_of_all_matches(store, query, NOW + 100)
    assert (len(ids), len(set(ids)), total) == (50, 50, 53)
    entries.forget(store, ids, "tester")
    ids, total = ids_of_all_matches(store, query, NOW + 100)
    assert (len(ids), total) == (3, 3)


def test_forget_by_query_never_takes_an_entry_that_matches_in_part(store: Store) -> None:
    both = save(store, body="apples and pears").entry
    save(store, title="Ebb", body="apples alone")
    save(store, title="Flood", body="pineapples and pearskins")
    query = SearchQuery("apples pears", "/home/a/shop")
    assert search(store, query, NOW).partial
    assert ids_of_all_matches(store, query, NOW) == ([both.id], 1)


def test_forget_by_query_leaves_expired_entries_alone(store: Store) -> None:
    save(store, expires_at=NOW + 5)
    assert ids_of_all_matches(store, SearchQuery("noon", "/home/a/shop"), NOW + 5) == ([], 0)


@pytest.mark.parametrize("words", ["", "  ", "kind:fact", '""', "\0"])
def test_forget_by_query_needs_a_word(store: Store, words: str) -> None:
    save(store)
    with pytest.raises(InvalidInput) as caught:
        ids_of_all_matches(store, SearchQuery(words, "/home/a/shop"))
    assert caught.value.field == "query"


# --- receipts -------------------------------------------------------------------------------------


def test_receipts_are_listed_newest_first_in_pages(store: Store) -> None:
    for number in range(5):
        with store.writing():
            receipts.write(store, "forget", "tester", f"number {number}", {"n": number}, number)
    first = receipts.listing(store, limit=2)
    assert [receipt.summary for receipt in first] == ["number 4", "number 3"]
    rest = receipts.listing(store, before=first[-1].id)
    assert [receipt.detail["n"] for receipt in rest] == [2, 1, 0]


def test_an_unknown_receipt_is_not_found_and_a_spoilt_one_still_shows(store: Store) -> None:
    with store.writing():
        number = receipts.write(store, "purge", "tester", "spoilt", {}, 1)
    store.rows("UPDATE receipts SET detail = 'not json'")
    assert receipts.get(store, number).detail == {"unreadable": "not json"}
    with pytest.raises(NotFound):
        receipts.get(store, number + 1)
