"""Entries that are close to one that is about to be saved."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from webapp.cli import demo_data
from webapp.memory import entries
from webapp.memory.similar import (
    MOST,
    SAME_ENTRY,
    SAME_TITLE,
    TEXT,
    TITLE,
    similar,
    words,
)
from webapp.store import Store

SHOP, BILLING = "/home/demo/shop", "/home/demo/billing"
LONG = (
    "Indent with tabs, never with spaces, in all files of the shop. The formatter does it, and the"
    " check in CI looks at every change."
)


def save(store: Store, title: str, body: str = "", scope: str = SHOP, **more: Any) -> str:
    draft = entries.draft(scope=scope, kind="fact", title=title, body=body or title, **more)
    return entries.save(store, draft, "tester").entry.id


def close(store: Store, title: str, body: str = "", scope: str = SHOP, **more: Any) -> list[Any]:
    return [
        (hit.entry.title, hit.why) for hit in similar(store, scope, title, body or title, **more)
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("we use tabs", "we use spaces"),
        ("deploy on Fridays is fine", "never deploy on Fridays"),
        ("Use tabs in Python files", "Use spaces in Python files"),
        ("Tests run before a commit", "A test runs before a commit"),
        ("The API returns cents", "the api returns euros"),
        ("我们使用制表符缩进", "我们使用空格缩进"),
        ("トライグラム索引を使う", "トライグラム索引を使わない"),
        ("들여쓰기는 탭으로 한다", "들여쓰기는 공백으로 한다"),
        ("Use `busy_timeout` = 5000", "Use `busy_timeout` = 1000"),
    ],
)
def test_a_title_of_nearly_the_same_words_is_close(store: Store, one: str, other: str) -> None:
    save(store, one, "One thing is so.")
    save(store, "Money is Decimal from the form to the mail", "Floats crept in twice.")
    assert close(store, other, "It is entirely different.") == [(one, TITLE)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use WAL", "Use UTC"),
        ("The cart is cached", "The mail is queued"),
        ("Use WAL mode and a busy timeout", "Use a queue and a worker"),
        ("Not now", "Not here"),
        ("検索は速い", "保存は遅い"),
    ],
)
def test_an_unrelated_title_is_not(store: Store, one: str, other: str) -> None:
    save(store, one, "One thing is so.")
    assert close(store, other, "Something else altogether, about the weather in spring.") == []


def test_no_two_entries_of_the_demo_are_close(store: Store) -> None:
    notes = [n for n in (*demo_data.NOTES, *demo_data.EVENTS) if isinstance(n, demo_data.Note)]
    for note in notes:
        save(store, note.title, note.body, note.scope)
    seen = 0
    for note in notes:
        for hit in similar(store, note.scope, note.title, note.body):
            assert hit.entry.title == note.title, (note.title, hit.entry.title, hit.why)
            seen += 1
    assert seen >= len({(note.scope, note.title) for note in notes})


def test_a_text_that_says_the_opposite_in_the_same_words_is_close(store: Store) -> None:
    save(store, "Indentation", LONG)
    opposite = LONG.replace("tabs", "x").replace("spaces", "tabs").replace("x", "spaces")
    assert close(store, "How code is laid out", opposite) == [("Indentation", TEXT)]
    assert close(store, "How code is laid out", f"As said before. {LONG} So it is.") == [
        ("Indentation", TEXT)
    ]
    assert close(store, "How code is laid out", "Two empty lines between functions, one between"
                 " methods, in all modules of the shop.") == []  # fmt: skip


def test_a_short_body_is_compared_as_a_title_is(store: Store) -> None:
    save(store, "Indentation", "We use tabs.")
    assert close(store, "Code style", "We use spaces.") == [("Indentation", TEXT)]
    assert close(store, "Code style", "Two empty lines.") == []


def test_the_same_title_is_first_whatever_its_case_and_where_it_is_told(store: Store) -> None:
    save(store, "Never deploy on Fridays", "So it is.", "global")
    save(store, "Deploy on Fridays", "Fine.", SHOP)
    save(store, "Deploy on Fridays", "Fine.", BILLING)
    assert close(store, "Deploy  on Fridays") == [
        ("Deploy on Fridays", SAME_ENTRY), ("Never deploy on Fridays", TITLE)
    ]  # fmt: skip
    assert close(store, "déploy on friday") == [
        ("Deploy on Fridays", SAME_TITLE), ("Never deploy on Fridays", TITLE)
    ]  # fmt: skip
    assert close(store, "Deploy on Fridays", scope="/other") == [("Never deploy on Fridays", TITLE)]
    # What is global holds in every project.
    assert close(store, "Deploy on Fridays", scope="global") == [
        ("Deploy on Fridays", SAME_TITLE), ("Deploy on Fridays", SAME_TITLE),
        ("Never deploy on Fridays", TITLE),
    ]  # fmt: skip


def test_only_live_ones_of_the_scope_and_global_and_not_the_entry_itself(store: Store) -> None:
    mine = save(store, "We use tabs")
    save(store, "We use tabs here", scope=BILLING)
    gone = save(store, "We use tabs today")
    entries.forget(store, [gone], "tester")
    now = 1_790_000_000_000
    draft = entries.draft(
        scope=SHOP, kind="fact", title="We use tabs for now", body="x", expires_at=now + 5, now=now
    )
    entries.save(store, draft, "tester", now)
    assert close(store, "We use tabs", exclude=mine) == []
    assert [title for title, _ in close(store, "We use spaces")] == ["We use tabs"]
    assert similar(store, SHOP, "We use tabs for ever", "y", now=now + 4)[0].why == TITLE


def test_at_most_five_the_closest_first(store: Store) -> None:
    for number in range(9):
        save(store, f"Deploy the shop on day {number}")
    save(store, "Deploy the shop on Monday or day 99")
    found = similar(store, SHOP, "Deploy the shop on day 10", "x")
    assert len(found) == MOST
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


HOSTILE = (
    "", " ", '"', "\0", "AND OR NOT NEAR(", "title : x", "* ^ -", "(((((", "\ud800", "%_\\", "👩‍💻" * 40,
    "\x1b[31m", "a" * 200, "' OR 1=1 --", "한", "字", "\u202e\u200b",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_is_a_legal_question(store: Store, text: str) -> None:
    save(store, "Something", "else")
    assert similar(store, SHOP, text, text) == ()
    assert similar(store, text, text, text) == ()
    if text.strip() and "\ud800" not in text and text.isprintable() and len(text) <= 120:
        save(store, text, "x")
        similar(store, SHOP, text, "x")


def test_bodies_of_8000_characters(store: Store) -> None:
    chance = random.Random(3)
    vocabulary = [f"word{number}" for number in range(900)]
    bodies = [" ".join(chance.choices(vocabulary, k=900))[:8_000] for _ in range(4)]
    for number, body in enumerate(bodies):
        save(store, f"Notes {number} on the {vocabulary[number]}", body)
    assert close(store, "Another", bodies[2][:7_000]) == [("Notes 2 on the word2", TEXT)]
    cjk = [
        "".join(
            chance.choices(
                "日本語中文記憶決定設定開発環境画面表示保存削除更新追加変更確認", k=8_000
            )
        )
        for _ in "ab"
    ]
    save(store, "覚書", cjk[0])
    assert ("覚書", TEXT) in close(store, "別の覚え", cjk[0][1_000:5_000])
    assert close(store, "別の覚え", "x" * 8_000) == []


def test_where_every_word_is_common_the_title_is_still_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.memory.similar.RARE", 3)
    letters = ["alpha", "beta", "gamma", "delta", "omega"]
    for pair in itertools.permutations(letters, 3):
        save(store, " ".join(pair), "x")
    found = close(store, "alpha beta delta", "y")
    assert found[0] == ("alpha beta delta", SAME_ENTRY)


def test_a_store_that_does_not_exist_or_has_no_index_finds_none(store: Store) -> None:
    assert similar(store, SHOP, "Title", "body") == ()
    assert not store.exists


def test_words_are_folded() -> None:
    assert words("Cafés, CLASS ﬁx_me!") == ["cafe", "class", "fix_me"]
    assert words("我们 use") == ["我", "们", "use"]
