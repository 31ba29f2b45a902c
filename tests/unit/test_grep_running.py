"""A search is looked at while it goes on, stopped when nobody looks, and hinders no other."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from webapp.errors import Unreadable
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts import library
from webapp.transcripts.grep import MAX_COUNT, Search, grep, line_numbers
from webapp.web.searches import AT_ONCE, Running, Searches


def put(settings: Settings, name: str, age: int, text: str = "# T\nthe needle\n") -> None:
    path = settings.transcripts_dir / "x" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (1_790_000_000 - age,) * 2)


def until(true: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.01)


@pytest.fixture
def search(store: Store, settings: Settings, slow_disk: None) -> Callable[..., Search]:
    """Searches of a library whose second newest transcript takes a minute."""
    put(settings, "new", 1)
    put(settings, "slow", 2)
    put(settings, "old", 3)
    return lambda text="needle": Search(store, settings, text, context=1)


def test_what_was_found_is_told_while_the_rest_is_read(search: Callable[..., Search]) -> None:
    one = search()
    thread = threading.Thread(target=one.run, args=(60,))
    thread.start()
    # The hits of a batch are told a moment before its bytes are counted as read.
    until(lambda: one.result().count == 1 and one.result().searched > 0)
    found = one.result()
    assert [file.transcript.id for file in found.files] == ["new"]
    assert found.running and not found.complete
    assert 0 < found.searched < found.size
    one.stop()
    thread.join(10)
    assert not thread.is_alive()
    ended = one.result()
    assert not ended.running and not ended.complete and ended.count == 1


def test_a_search_of_too_long_a_time_says_so(
    store: Store, settings: Settings, slow_disk: None
) -> None:
    put(settings, "new", 1)
    put(settings, "slow", 2)
    found = grep(store, settings, "needle", patience=1.0)
    assert found.count == 1 and not found.complete
    assert "took more than 1 second" in found.trouble


def test_the_newest_come_first_over_all_batches(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.transcripts.grep.FIRST_BATCH", 40)
    for number in (4, 2, 5, 1, 3):
        put(settings, f"t{number}", number)
    found = grep(store, settings, "needle", max_hits=3)
    assert [file.transcript.id for file in found.files] == ["t1", "t2", "t3"]
    assert (found.count, found.shown, found.in_files, found.complete) == (5, 3, 5, True)
    assert found.searched == found.size > 0


def test_the_cap_counts_over_all_batches(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.transcripts.grep.FIRST_BATCH", 1)
    for number in range(3):
        put(settings, f"t{number}", number, "needle\n" * (MAX_COUNT // 2))
    found = grep(store, settings, "needle")
    assert found.count == MAX_COUNT and not found.complete
    assert found.in_files == 2


def test_a_transcript_that_goes_while_it_is_searched_is_no_trouble(
    store: Store, settings: Settings
) -> None:
    put(settings, "a", 1)
    put(settings, "b", 2)
    one = Search(store, settings, "needle")
    (settings.transcripts_dir / "x" / "b.md").unlink()
    one.run(30)
    found = one.result()
    assert found.count == 1 and found.complete and not found.trouble


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    monkeypatch.setattr("webapp.web.searches.FIRST_LOOK_S", 0.05)
    return Searches()


def test_a_search_that_nobody_asks_about_is_stopped(
    search: Callable[..., Search], searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.web.searches.LEASE_S", 0.5)
    running = searches.look("a", search, again=False)
    process = lambda: running.search._process  # noqa: E731
    until(lambda: running.result().count == 1 and process() is not None)
    held = process()
    until(running.over.is_set)
    assert held is not None and held.poll() is not None
    assert not running.result().running


def test_a_search_that_is_asked_about_goes_on(
    search: Callable[..., Search], searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.web.searches.LEASE_S", 2.0)
    running = searches.look("a", search, again=False)
    for _ in range(10):
        time.sleep(0.3)
        assert searches.look("a", search, again=True) is running
    assert running.result().running
    searches.stop()
    assert running.over.wait(10)


def test_the_same_search_is_done_once_and_a_finished_one_anew(
    store: Store, settings: Settings, searches: Searches
) -> None:
    put(settings, "new", 1)
    make = lambda: Search(store, settings, "needle")  # noqa: E731
    first = searches.look("a", make, again=False)
    assert first.over.wait(20)
    assert searches.look("a", make, again=True) is first
    assert searches.look("a", make, again=False) is not first


def test_a_page_looks_for_one_thing_at_a_time(
    search: Callable[..., Search], searches: Searches
) -> None:
    typed = searches.look("n", search, again=False, page="a")
    shared = searches.look("ne", search, again=False, page="b")
    assert searches.look("ne", search, again=False, page="a") is shared
    assert typed.over.wait(10) and not typed.result().running
    last = searches.look("nee", search, again=False, page="a")
    assert shared.result().running and last.result().running
    assert searches.look("ne", search, again=True, page="b") is shared
    searches.stop()


def test_others_wait_their_turn_and_are_told_how_many_are_before_them(
    search: Callable[..., Search], searches: Searches
) -> None:
    all_of_them: list[Running] = [searches.look(n, search, again=False) for n in range(AT_ONCE + 3)]
    assert [searches.ahead(one) for one in all_of_them] == [0] * AT_ONCE + [
        AT_ONCE, AT_ONCE + 1, AT_ONCE + 2
    ]  # fmt: skip
    assert [one.is_waiting for one in all_of_them] == [False] * AT_ONCE + [True] * 3
    all_of_them[0].search.stop()
    until(lambda: not all_of_them[AT_ONCE].is_waiting)
    searches.stop()


def test_what_cannot_be_searched_fails_with_its_reason(
    store: Store, settings: Settings, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(settings, "new", 1)
    monkeypatch.setattr("webapp.transcripts.ripgrep.program", lambda: "/nonexistent/rg")
    running = searches.look("a", lambda: Search(store, settings, "needle"), again=False)
    assert running.over.wait(20)
    found = running.result()
    assert not found.running and not found.complete and found.trouble


@pytest.mark.parametrize("signal", ["KILL", "BUS"])
def test_a_ripgrep_that_dies_is_trouble_and_not_nothing_found(
    store: Store, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: str
) -> None:
    put(settings, "new", 1)
    script = tmp_path / "dying-rg"
    script.write_text(f"#!/bin/sh\nkill -{signal} $$\n")
    script.chmod(0o700)
    monkeypatch.setattr("webapp.transcripts.ripgrep.program", lambda: str(script))
    with pytest.raises(Unreadable, match="ended by signal"):
        grep(store, settings, "needle")
    item = library.get(store, settings, "new")
    with pytest.raises(Unreadable):
        line_numbers(item, "needle")


def test_every_word_is_found_across_bytes_that_are_no_text(
    store: Store, settings: Settings
) -> None:
    put(settings, "new", 1)
    (settings.transcripts_dir / "x" / "new.md").write_bytes(b"# T\nalpha \xff\xfe omega\n")
    found = grep(store, settings, "omega alpha")
    assert found.count == 1 and not found.exact


def test_a_long_line_is_found_whatever_its_folder_is_called(
    store: Store, settings: Settings
) -> None:
    path = settings.transcripts_dir / 'a}b"c' / "x.md"
    path.parent.mkdir(parents=True)
    path.write_text("# T\n" + "y" * 2_000_000 + " needle\n")
    assert grep(store, settings, "needle").count == 1
