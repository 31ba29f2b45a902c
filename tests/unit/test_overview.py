"""Pages of sessions: filters, order, paging over databases, and what the shown ones are told of."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from webapp.errors import InvalidInput
from webapp.opencode import find_session, list_sessions, messages, overview, reading
from webapp.opencode.overview import Filter, Item, page

if TYPE_CHECKING:
    from tests.conftest import Talk

FILES = sorted((Path(__file__).parents[1] / "fixtures").glob("opencode-*.db"))
START = 1_790_000_000_000
NOW = 1_800_000_000_000
DAY_MS = 86_400_000
PLACEHOLDER = "New session - 2026-11-30T10:35:01.848Z"


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of each database that a real OpenCode wrote."""
    return Path(shutil.copyfile(request.param, tmp_path / "opencode.db"))


def whole(items: tuple[Item, ...]) -> Iterator[Item]:
    """Sessions with all that stand below them."""
    for item in items:
        yield item
        yield from whole(item.children)


def ids(found: overview.Page) -> list[str]:
    return [item.id for item in found.items]


def one(db: Path, session_id: str, **wanted: Any) -> Item:
    """One session of a list of all."""
    return next(item for item in whole(page([db], Filter(**wanted)).items) if item.id == session_id)


# Databases of real versions -----------------------------------------------------------------------


def test_every_session_of_every_version_is_listed_once(db: Path) -> None:
    found = page([db], Filter())
    listed = [item.id for item in whole(found.items)]
    expected = list_sessions([db]).sessions
    assert sorted(listed) == sorted(session.id for session in expected)
    assert found.total == len(expected) == overview.count([db], 1)
    assert not found.problems and found.after is None
    assert {item.project for item in whole(found.items)} == {one.scope for one in expected}
    ages = [item.touched_at for item in found.items]
    assert ages == sorted(ages, reverse=True)


def test_messages_are_counted_as_they_are_exported(db: Path) -> None:
    for item in whole(page([db], Filter()).items):
        with reading(db) as connection:
            assert item.messages == len(list(messages(connection, item.id, NOW))), item.title


def test_what_a_version_keeps_no_column_for_is_told_by_the_messages(db: Path) -> None:
    found = {item.title: item for item in whole(page([db], Filter()).items)}
    for item in found.values():
        if item.messages:
            assert item.models == ("scripted/m1",) and item.agents[0] in ("build", "general")
            assert item.tokens is not None and item.cost == 0
    if "mixed" in db.name or "The model failed" not in found:
        return
    assert {title for title, item in found.items() if item.failed} == {"The model failed"}
    assert {title[:7] for title, item in found.items() if item.compacted} == {"Migrate"}
    assert sum(item.archived_at is not None for item in found.values()) == 1


def test_a_fork_names_its_origin_and_a_subagent_stands_below_its_parent(db: Path) -> None:
    items = page([db], Filter()).items
    forks = [item for item in whole(items) if item.is_fork]
    assert len(forks) == (0 if len(items) < 5 else 1)
    for fork in forks:
        assert fork.origin is not None
        assert fork.title == f"{fork.origin.title} (fork #1)"
    for item in items:
        assert item.parent_id is None
        assert [child.parent_id for child in item.children] == [item.id] * item.child_count
    assert sum(item.child_count for item in items) == (0 if len(items) < 5 else 1)


def test_a_placeholder_is_replaced_by_the_first_request(newest_db: Path) -> None:
    (item,) = (item for item in page([newest_db], Filter()).items if item.request)
    assert item.title.startswith("New session")
    assert item.request == "Hello from the newer runtime."
    assert item.tokens is not None and item.tokens.input > 1000


# Order, paging and filters -------------------------------------------------------------------------


@pytest.fixture
def many(new_talk: Callable[..., Talk], invented_db: Path) -> Path:
    """Twenty sessions of two projects, some touched at the same moment."""
    for number in range(20):
        talk = new_talk(
            f"ses_{number:02}", scope=f"/home/demo/p{number % 2}", title=f"Talk {number}"
        )
        talk.sql(
            "UPDATE session SET time_updated = ?, agent = ?, model = ? WHERE id = ?",
            START + number // 3 * 1000, ("build", "plan")[number % 2],
            json.dumps({"id": f"m{number % 3}", "providerID": "p"}), talk.id,
        )  # fmt: skip
    return invented_db


@pytest.mark.parametrize("order", overview.ORDERS)
def test_pages_follow_each_other_without_gap_or_repetition(many: Path, order: str) -> None:
    everything = ids(page([many], Filter(), order, limit=100))
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        found = page([many], Filter(), order, after, limit=3)
        seen += ids(found)
        after = found.after
    assert seen == everything and len(set(seen)) == 20


@pytest.mark.parametrize("order", overview.ORDERS)
@pytest.mark.parametrize("wanted", [Filter(), Filter(agent="plan"), Filter(errors=True)])
def test_pages_lead_back_the_way_they_came(
    many: Path, new_talk: Callable[..., Talk], order: str, wanted: Filter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for number in range(4):
        talk = new_talk(f"ses_failed_{number}", scope=f"/home/demo/p{number % 2}")
        talk.assistant(error={"name": "APIError", "data": {}})
    monkeypatch.setattr(overview, "WALK", 3)
    pages = [page([many], wanted, order, limit=3)]
    assert pages[0].before is None
    while pages[-1].after is not None:
        pages.append(page([many], wanted, order, pages[-1].after, limit=3))
    assert len(pages) > 3
    back, before = [pages[-1]], pages[-1].before
    while before is not None:
        back.append(page([many], wanted, order, before=before, limit=3))
        assert back[-1].after
        before = back[-1].before
    forth = [name for one in pages for name in ids(one)]
    assert [name for one in reversed(back) for name in ids(one)] == forth
    again = page([many], wanted, order, back[-1].after or "", limit=3)
    assert ids(again) == ids(pages[1])


def test_two_sessions_that_name_each_other_as_parent_are_both_there(
    new_talk: Callable[..., Talk], invented_db: Path
) -> None:
    for name, parent in (("ses_a", "ses_b"), ("ses_b", "ses_a"), ("ses_c", "ses_c")):
        as_child(new_talk(name), parent)
    found = page([invented_db], Filter())
    assert sorted(ids(found)) == ["ses_a", "ses_c"]
    (pair,) = (item for item in found.items if item.id == "ses_a")
    assert [child.id for child in pair.children] == ["ses_b"]


def test_several_databases_are_merged(many: Path, tmp_path: Path) -> None:
    other = Path(shutil.copyfile(many, tmp_path / "opencode-dev.db"))
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute(
            "UPDATE session SET id = 'x' || id, time_updated = time_updated + 1 WHERE id > 'ses_05'"
        )
    seen: list[Item] = []
    after: str | None = ""
    while after is not None:
        found = page([many, other], Filter(), "touched", after, limit=7)
        seen += found.items
        after = found.after
    assert found.total == 40
    ages = [item.touched_at for item in seen]
    assert ages == sorted(ages, reverse=True)
    assert {(item.db, item.id) for item in seen} >= {(other, "xses_07"), (many, "ses_07")}


@pytest.mark.parametrize("order", overview.ORDERS)
def test_no_copy_is_lost_between_two_pages(many: Path, tmp_path: Path, order: str) -> None:
    """Copies are touched at the same moment, and may be of another project where that has moved."""
    databases = [many, *(Path(shutil.copyfile(many, tmp_path / name)) for name in ("a.db", "b.db"))]
    with closing(sqlite3.connect(databases[1])) as connection, connection:
        connection.execute("UPDATE project SET worktree = worktree || '-moved'")
    pages = [page(databases, Filter(), order, limit=7)]
    while pages[-1].after is not None and len(pages) < 20:
        pages.append(page(databases, Filter(), order, pages[-1].after, limit=7))
    forth = [(item.id, item.db) for one in pages for item in one.items]
    assert len(forth) == len(set(forth)) == 60
    back: list[overview.Page] = []
    before = pages[-1].before
    while before is not None and len(back) < 20:
        back.append(page(databases, Filter(), order, limit=7, before=before))
        before = back[-1].before
    rest = [(item.id, item.db) for one in reversed(back) for item in one.items]
    assert rest == forth[: len(rest)] and len(rest) > 50
    assert page(databases, Filter(), order, limit=100).total == 60


def test_values_of_other_types_filter_and_page_as_they_are_shown(
    new_talk: Callable[..., Talk], invented_db: Path
) -> None:
    odd = ("5", "x'ff'", "1e308", "''", "CAST(x'fe' AS TEXT)")
    for number in range(20):
        talk = new_talk(f"ses_{number:02}", scope=f"/home/demo/p{number % 3}", title="Ünseen word")
        talk.sql(
            f"UPDATE session SET title = title || {odd[number % 5]}, agent = {odd[number % 5]}"
        )
    talk.sql("UPDATE project SET worktree = x'2f78' WHERE worktree LIKE '%p1'")
    talk.sql("UPDATE session SET project_id = 'gone', directory = x'2f79' WHERE id > 'ses_15'")
    found = overview.facets([invented_db])
    assert sum(choice.count for choice in found.projects) == 20
    for choice in found.projects:
        assert page([invented_db], Filter(project=choice.value)).total == choice.count
    assert page([invented_db], Filter(text="ünseen")).total == 20
    seen: list[str] = []
    after: str | None = ""
    while after is not None and len(seen) < 99:
        one_page = page([invented_db], Filter(), "project", after, limit=3)
        seen += ids(one_page)
        after = one_page.after
    assert len(seen) == len(set(seen)) == 20


def test_a_workspace_that_two_databases_call_differently_is_one_choice(
    new_talk: Callable[..., Talk], invented_db: Path, tmp_path: Path
) -> None:
    talk = new_talk("ses_a")
    talk.sql(
        "INSERT INTO workspace (id, type, name, project_id, time_used)"
        " SELECT 'wrk', 'local', 'One', project_id, 1"
        " FROM session"
    )
    talk.sql("UPDATE session SET workspace_id = 'wrk'")
    other = Path(shutil.copyfile(invented_db, tmp_path / "other.db"))
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE workspace SET name = 'Two'")
    (choice,) = overview.facets([invented_db, other]).workspaces
    assert (choice.value, choice.label, choice.count) == ("wrk", "One", 2)


def test_the_older_copy_of_a_session_is_marked(many: Path, tmp_path: Path) -> None:
    other = Path(shutil.copyfile(many, tmp_path / "opencode-dev.db"))
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("UPDATE session SET time_updated = time_updated + 9 WHERE id = 'ses_03'")
    items = page([many, other], Filter()).items
    assert [(item.db, item.id) for item in items if item.is_older_copy] == [(many, "ses_03")]
    copies = [(item.db, item.id) for item in items if item.is_copy]
    assert len(copies) == 19 and {db for db, _ in copies} == {other}
    assert (other, "ses_03") not in copies


def test_pieces_of_an_id_are_no_words(new_talk: Callable[..., Talk]) -> None:
    db = new_talk("ses_dd44FixFpX8", title="Mend the till").db
    new_talk("ses_dd45", title="Fix the till")
    new_talk("own-id", title="Other")
    for text, expected in (
        ("fix", ["ses_dd45"]), ("dd44", []), ("ses_dd4", ["ses_dd44FixFpX8", "ses_dd45"]),
        ("ses_DD44fixfpx8", ["ses_dd44FixFpX8"]), ("own-id", ["own-id"]), ("own-i", []),
        ("till ses_dd44", ["ses_dd44FixFpX8"]), ("es_dd44", []),
    ):  # fmt: skip
        assert sorted(ids(page([db], Filter(text=text)))) == expected, text


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(project="/home/demo/p1"), range(1, 20, 2)),
        (Filter(agent="plan", model="p/m0"), (3, 9, 15)),
        (Filter(model="p/m2"), range(2, 20, 3)),
        (Filter(text="TALK 1"), (1, *range(10, 20))),
        (Filter(text="ses_07 talk"), (7,)),
        (Filter(since=START + 6000), (18, 19)),
        (Filter(until=START + 1000), (0, 1, 2)),
        (Filter(archived=True), ()),
        (Filter(archived=False, text="talk 19"), (19,)),
        (Filter(project="/home"), ()),
        (Filter(agent="\ud800"), ()),
    ],
)
def test_filters(many: Path, wanted: Filter, expected: Any) -> None:
    found = page([many], wanted)
    assert sorted(ids(found)) == [f"ses_{number:02}" for number in expected]
    assert found.total == len(found.items)


def test_facets_count_what_the_filters_leave(many: Path) -> None:
    facets = overview.facets([many])
    assert [(c.value, c.count) for c in facets.agents] == [("build", 10), ("plan", 10)]
    for name in ("project", "agent", "model"):
        for choice in getattr(facets, f"{name}s"):
            assert page([many], Filter(**{name: choice.value})).total == choice.count
    assert facets.no_agent == facets.no_model == 0


@pytest.mark.parametrize(
    "after",
    ["x", "12", "12~a", "~d/ses_01", "-1~d/ses_01", "1" * 40 + "~d/a", "١~d/a"],
)
def test_a_place_that_is_none_is_refused(many: Path, after: str) -> None:
    with pytest.raises(InvalidInput, match="first page"):
        page([many], Filter(), "touched", after)
    with pytest.raises(InvalidInput, match="first page"):
        page([many], Filter(), "project", f"5~{many.name}/ses_gone")


def test_a_session_of_the_newer_runtime_is_as_young_as_its_last_message(many: Path) -> None:
    with closing(sqlite3.connect(many)) as connection, connection:
        connection.execute(
            "INSERT INTO session_message (id, session_id, type, seq, time_created, time_updated, data)"
            " VALUES ('m', 'ses_00', 'user', 1, ?, 0, '{}')",
            (START + DAY_MS,),
        )
    assert ids(page([many], Filter()))[0] == "ses_00"


def test_workspaces_have_their_names(many: Path) -> None:
    with closing(sqlite3.connect(many)) as connection, connection:
        connection.execute("INSERT INTO workspace (id, type, name, project_id, time_used)"
                           " VALUES ('wrk_1', 'git', 'feature', 'p', 0)")  # fmt: skip
        connection.execute("UPDATE session SET workspace_id = 'wrk_1' WHERE id = 'ses_04'")
        connection.execute("UPDATE session SET workspace_id = 'wrk_gone' WHERE id = 'ses_05'")
    labels = {choice.value: choice.label for choice in overview.facets([many]).workspaces}
    assert labels == {"wrk_1": "feature", "wrk_gone": "wrk_gone"}
    (item,) = page([many], Filter(workspace="wrk_1")).items
    assert (item.id, item.workspace) == ("ses_04", "feature")


# Errors and compactions ----------------------------------------------------------------------------


def test_a_filter_by_errors_says_how_far_it_looked(
    new_talk: Callable[..., Talk], invented_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        talk = new_talk(f"ses_{number}")
        talk.sql("UPDATE session SET time_updated = ? WHERE id = ?", START + number, talk.id)
        if number in (1, 8):
            talk.assistant(error={"name": "APIError", "data": {}})
            talk.sql("UPDATE session SET time_updated = ? WHERE id = ?", START + number, talk.id)
    monkeypatch.setattr(overview, "WALK", 4)
    first = page([invented_db], Filter(errors=True))
    assert (ids(first), first.looked, first.total) == (["ses_8"], 4, 10)
    assert first.looked_until == START + 6 and first.after
    second = page([invented_db], Filter(errors=True), after=first.after)
    assert (ids(second), second.looked) == ([], 4)
    third = page([invented_db], Filter(errors=True), after=second.after or "")
    assert (ids(third), third.looked, third.after) == (["ses_1"], 2, None)
    assert ids(page([invented_db], Filter(errors=True, compacted=True))) == []


def test_a_slow_walk_ends_in_time(
    new_talk: Callable[..., Talk], invented_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        new_talk(f"ses_{number}")
    monkeypatch.setattr(overview, "WALK_S", -1)
    found = page([invented_db], Filter(compacted=True))
    assert found.looked == 1 and found.after


def test_what_a_person_stopped_is_no_error(talk: Talk) -> None:
    talk.user("Go.")
    talk.assistant(error={"name": "MessageAbortedError", "data": {}})
    assert not one(talk.db, talk.id).failed
    talk.newer("assistant", {"agent": "build", "error": {"type": "unknown", "message": "x"}})
    assert one(talk.db, talk.id).failed


def test_a_compaction_of_either_runtime(new_talk: Callable[..., Talk]) -> None:
    older, newer, running = new_talk("ses_a"), new_talk("ses_b"), new_talk("ses_c")
    older.assistant("What was done.", summary=True, agent="compaction")
    newer.newer("compaction", {"reason": "auto", "summary": "Done."})
    running.newer("compaction", {"reason": "auto", "summary": ""})
    running.assistant(None, done=False, summary=True)
    assert one(older.db, "ses_a").compacted and one(older.db, "ses_b").compacted
    assert not one(older.db, "ses_c").compacted
    assert set(ids(page([older.db], Filter(compacted=True)))) == {"ses_a", "ses_b"}


def test_of_a_long_session_only_the_newest_messages_are_told(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "LOOK", 2)
    for number in range(5):
        talk.assistant(modelID=f"m{number}", cost=1.5, tokens={"input": 10, "cache": {"read": 5}})
    item = one(talk.db, talk.id)
    assert (item.messages, item.models, item.more) == (5, ("p1/m3", "p1/m4"), True)
    assert item.cost == 3.0 and item.tokens is not None and item.tokens.total == 30
    assert item.partial


@pytest.mark.parametrize("newer", [False, True])
def test_of_large_messages_only_the_newest_are_looked_at(
    talk: Talk, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "LOOK_SIZE", 100_000)
    big = "x" * 60_000
    for number in range(3):
        if newer:
            data = {"content": [{"type": "text", "text": big}], "agent": f"a{number}", "cost": 1.5}
            talk.newer("assistant", data)
        else:
            talk.assistant(agent=f"a{number}", cost=1.5, summary={"diffs": big})
    item = one(talk.db, talk.id)
    assert (item.agents, item.cost, item.more, item.partial) == (("a2",), 1.5, True, True)
    monkeypatch.setattr(overview, "LOOK_SIZE", 10)
    assert one(talk.db, talk.id).agents == ("a2",)
    monkeypatch.setattr(overview, "LOOK_SIZE", 1_000_000)
    whole_one = one(talk.db, talk.id)
    assert (len(whole_one.agents), whole_one.cost, whole_one.more) == (3, 4.5, False)


# Subagents and forks -------------------------------------------------------------------------------


def as_child(talk: Talk, parent: str) -> None:
    talk.sql("UPDATE session SET parent_id = ? WHERE id = ?", parent, talk.id)


def test_subagents_of_subagents_and_of_nobody(new_talk: Callable[..., Talk]) -> None:
    db = new_talk("ses_root").db
    as_child(new_talk("ses_child"), "ses_root")
    as_child(new_talk("ses_grandchild"), "ses_child")
    as_child(new_talk("ses_orphan"), "ses_gone")
    as_child(new_talk("ses_own"), "ses_own")
    found = page([db], Filter())
    assert set(ids(found)) == {"ses_root", "ses_orphan", "ses_own"}
    (child,) = one(db, "ses_root").children
    assert [below.id for below in child.children] == ["ses_grandchild"]
    flat = page([db], Filter(text="child"))
    assert {item.id: item.parent and item.parent.id for item in flat.items} == {
        "ses_child": "ses_root", "ses_grandchild": "ses_child",
    }  # fmt: skip


def test_many_subagents_are_counted_and_the_first_listed(new_talk: Callable[..., Talk]) -> None:
    db = new_talk("ses_root").db
    for number in range(overview.CHILDREN + 2):
        as_child(new_talk(f"ses_child_{number:02}"), "ses_root")
    item = one(db, "ses_root")
    assert (item.child_count, len(item.children)) == (overview.CHILDREN + 2, overview.CHILDREN)
    assert page([db], Filter(parent="ses_root")).total == overview.CHILDREN + 2


def family(db: Path, parents: dict[str, str | None], **values: Any) -> None:
    """Sessions with these parents, written as other programs may."""
    with closing(sqlite3.connect(db)) as connection, connection:
        for number, (name, parent) in enumerate(parents.items()):
            connection.execute(
                "INSERT INTO session (id, project_id, parent_id, slug, directory, title, version,"
                " time_created, time_updated) SELECT ?, project_id, ?, slug, directory, ?, version,"
                " ?, ? FROM session WHERE id = 'ses_root'",
                (name, parent, name, START + number, START + number),
            )


def reached(db: Path, wanted: Filter) -> list[str]:
    """Every session that the list and the links of its counts lead to, as often as they do."""
    found: list[str] = []
    waiting, seen = [wanted], set[str | None]()
    for one_list in waiting:
        if one_list.parent in seen:
            continue  # a circle leads round
        seen.add(one_list.parent)
        place: str | None = ""
        while place is not None:
            shown = page([db], one_list, after=place)
            for item in whole(shown.items):
                found.append(item.id)
                if item.child_count > len(item.children):
                    waiting.append(replace(wanted, parent=item.id))
            place = shown.after
    return found


def test_circles_of_parents_are_reached_whatever_their_length(
    new_talk: Callable[..., Talk],
) -> None:
    db = new_talk("ses_root").db
    names: dict[str, str | None] = {}
    for length in (2, 3, 4, 12):
        ring = [f"ses_{length}_{n}" for n in range(length)]
        names |= dict(zip(ring, [*ring[1:], ring[0]], strict=True))
        names[f"ses_{length}_beside"] = ring[-1]
    family(db, names)
    assert set(reached(db, Filter())) == {"ses_root", *names}
    assert sorted(ids(page([db], Filter()))) == [
        "ses_12_0",
        "ses_2_0",
        "ses_3_0",
        "ses_4_0",
        "ses_root",
    ]


def test_subagents_below_the_levels_that_are_listed_are_counted_and_reached(
    new_talk: Callable[..., Talk],
) -> None:
    db = new_talk("ses_root").db
    chain = ["ses_root", *(f"ses_{n:02}" for n in range(3 * overview.DEPTH))]
    family(db, dict(zip(chain[1:], chain, strict=False)))
    (item,) = page([db], Filter()).items
    for _ in range(overview.DEPTH):
        (item,) = item.children
    assert (item.child_count, item.children) == (1, ())
    assert sorted(reached(db, Filter())) == sorted(chain)


def test_a_large_family_is_cut_and_reached(new_talk: Callable[..., Talk]) -> None:
    db = new_talk("ses_root").db
    names: dict[str, str | None] = {}
    for first in range(overview.CHILDREN):
        names[f"ses_{first}"] = "ses_root"
        for second in range(overview.CHILDREN):
            names[f"ses_{first}_{second}"] = f"ses_{first}"
    family(db, names)
    (root,) = page([db], Filter()).items
    assert len(list(whole(root.children))) == overview.FAMILY
    assert len(root.children) == overview.CHILDREN
    assert set(reached(db, Filter())) == {"ses_root", *names}


def test_the_families_of_a_page_together_are_cut_and_reached(
    new_talk: Callable[..., Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    db = new_talk("ses_root").db
    names = {f"ses_{n}": None for n in range(3)} | {f"ses_{n}_{m}": f"ses_{n}" for n in range(3)
             for m in range(2)}  # fmt: skip
    family(db, names)
    monkeypatch.setattr(overview, "FAMILIES", 3)
    roots = [item for item in page([db], Filter()).items if item.id != "ses_root"]
    assert [len(item.children) for item in roots] == [2, 1, 0]
    assert [item.child_count for item in roots] == [2, 2, 2]
    assert set(reached(db, Filter())) == {"ses_root", *names}


@pytest.mark.parametrize("column", ["project_id", "workspace_id"])
def test_a_filter_lists_a_subagent_whose_parent_is_elsewhere(
    new_talk: Callable[..., Talk], column: str
) -> None:
    other = new_talk("ses_other", scope="/home/demo/elsewhere")
    new_talk("ses_root")
    family(other.db, {"ses_a": "ses_root", "ses_b": "ses_a", "ses_c": "ses_b"})
    if column == "project_id":
        change = "(SELECT project_id FROM session WHERE id = 'ses_other')"
        wanted, rest = Filter(project="/home/demo/elsewhere"), Filter(project="/home/demo/shop")
    else:
        change, wanted, rest = "'wrk_1'", Filter(workspace="wrk_1"), Filter(workspace="")
    other.sql(f"UPDATE session SET {column} = {change} WHERE id IN ('ses_a', 'ses_c', 'ses_other')")
    assert sorted(reached(other.db, wanted)) == ["ses_a", "ses_c", "ses_other"]
    item = next(item for item in page([other.db], wanted).items if item.id == "ses_a")
    assert item.parent is not None and item.parent.id == "ses_root"
    assert sorted(reached(other.db, rest)) == ["ses_b", "ses_root"]
    assert page([other.db], wanted).total == 3


def fork(new_talk: Callable[..., Talk], origin: Talk, name: str, title: str) -> Talk:
    """A copy of a session with new ids and the old times, made an hour later."""
    talk = new_talk(name, title=title)
    talk.sql("UPDATE session SET time_created = ? WHERE id = ?", START + 3_600_000, name)
    talk.sql(
        "INSERT INTO message (id, session_id, time_created, time_updated, data) SELECT id || ?, ?,"
        " time_created, time_updated, data FROM message WHERE session_id = ?",
        name, name, origin.id,
    )  # fmt: skip
    return talk


def test_a_fork_is_told_by_its_copied_history(new_talk: Callable[..., Talk]) -> None:
    origin = new_talk("ses_a", title="Mend the till")
    for text in ("One.", "Two."):
        origin.user(text)
    db = origin.db
    fork(new_talk, origin, "ses_b", "Mend the till (fork #1)")
    fork(new_talk, origin, "ses_c", "Another name")
    for name in ("ses_b", "ses_c"):
        item = one(db, name)
        assert item.is_fork and item.origin == overview.Origin("ses_a", "Mend the till")
    assert not one(db, "ses_a").is_fork
    new_talk("ses_d", title="Mend the till (fork #2)")
    assert one(db, "ses_d").origin == overview.Origin("ses_a", "Mend the till")
    new_talk("ses_e", title="Nothing (fork #1)")
    item = one(db, "ses_e")
    assert item.is_fork and item.origin is None


# Odd rows and databases ------------------------------------------------------------------------------


def test_a_session_whose_project_is_gone_is_listed_with_its_folder(talk: Talk) -> None:
    talk.sql("DELETE FROM project")
    assert one(talk.db, talk.id).project == "/home/demo/shop"
    assert overview.facets([talk.db]).projects[0].value == "/home/demo/shop"


def test_json_that_does_not_parse_is_shown_as_it_is(new_talk: Callable[..., Talk]) -> None:
    message, part, newer = new_talk("ses_a"), new_talk("ses_b"), new_talk("ses_c")
    for one_of_them in (message, part, newer):
        one_of_them.sql(
            "UPDATE session SET title = ?, model = '{oops' WHERE id = ?",
            PLACEHOLDER,
            one_of_them.id,
        )
    message.message("{not json")
    part.part(part.message({"role": "user"}), "{nor this")
    newer.newer("user", "{nor that")
    found = {item.id: item for item in page([message.db], Filter()).items}
    assert found["ses_a"].request == "{not json"
    assert found["ses_b"].request == "{nor this"
    assert found["ses_c"].request == "{nor that"
    assert {item.models[0] for item in found.values()} == {"{oops"}
    assert page([message.db], Filter(model="{oops")).total == 3


def test_hidden_parts_are_no_request(talk: Talk) -> None:
    talk.sql("UPDATE session SET title = ? WHERE id = ?", PLACEHOLDER, talk.id)
    message_id = talk.message({"role": "user"})
    talk.part(message_id, {"type": "file", "url": "data:x"})
    talk.part(message_id, {"type": "text", "text": "Behind the scenes.", "synthetic": True})
    talk.part(message_id, {"type": "text", "text": " The request. "})
    assert one(talk.db, talk.id).request == "The request."


def test_half_a_character_in_json_takes_nothing_down(new_talk: Callable[..., Talk]) -> None:
    older, newer = new_talk("ses_a"), new_talk("ses_b")
    half = r'"half an emoji \ud83d"'
    for talk in (older, newer):
        talk.sql(
            "UPDATE session SET title = ?, model = ? WHERE id = ?",
            PLACEHOLDER, f'{{"providerID": {half}, "id": {half}}}', talk.id,
        )  # fmt: skip
    message = older.message(f'{{"role": "user", "agent": {half}, "modelID": {half}}}')
    older.part(message, f'{{"type": "text", "text": {half}}}')
    newer.newer("user", f'{{"text": {half}}}')
    found = page([older.db], Filter())
    assert [item.request for item in found.items] == ["half an emoji ?"] * 2
    for item in found.items:
        "".join((*item.agents, *item.models)).encode()
    for choice in overview.facets([older.db]).models:
        choice.value.encode()


@pytest.mark.parametrize(
    "change",
    [
        "cost = 'much', tokens_input = 'x', summary_additions = 9e999, summary_deletions = 1",
        "title = x'ff00', agent = x'ff', model = x'00'",
        "time_created = 'soon', time_updated = -5, time_archived = 'x'",
        "model = '[1]', agent = '', directory = ''",
        "title = '', workspace_id = '', parent_id = ''",
    ],
)
def test_odd_values_of_other_writers_take_nothing_down(talk: Talk, change: str) -> None:
    talk.user("Hello.")
    with suppress(sqlite3.IntegrityError):
        talk.sql(f"UPDATE session SET {change}")
    found = page([talk.db], Filter())
    assert ids(found) == [talk.id] and not found.problems
    assert ids(page([talk.db], Filter(), "project")) == [talk.id]
    overview.facets([talk.db])


def test_a_row_without_an_id_is_told_and_left_out(talk: Talk) -> None:
    talk.sql("UPDATE session SET id = x'00ff' WHERE id = ?", talk.id)
    found = page([talk.db], Filter())
    assert not found.items and "whose id is no text" in found.problems[0]


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DELETE FROM session"], "yields no session"),
        (["DROP TABLE session"], "“session” lacks everything"),
        (["ALTER TABLE session RENAME COLUMN time_updated TO touched"], "lacks time_updated"),
        (["DROP TABLE part"], "“part” lacks everything"),
    ],
)
def test_a_layout_that_is_not_known_is_told(
    newest_db: Path, statements: list[str], words: str
) -> None:
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    found = page([newest_db], Filter())
    (problem,) = found.problems
    assert words in problem and str(newest_db) in problem
    if "part" in words:
        assert len(found.items) > 5 and all(item.messages is None for item in found.items)
    else:
        assert not found.items and not found.readable


def test_a_damaged_database_leaves_the_others_readable(newest_db: Path, tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.db", tmp_path / "empty.db"
    broken.write_bytes(b"no database at all" * 100)
    empty.touch()
    found = page([broken, empty, tmp_path / "gone.db", newest_db], Filter())
    assert found.readable == (newest_db,) and found.items
    assert [word for word, text in zip(("damaged", "is empty", "not there"), found.problems,
            strict=True) if word in text] == ["damaged", "is empty", "not there"]  # fmt: skip
    assert overview.count([broken, tmp_path / "gone.db"], 1) is None
    assert overview.count([broken, newest_db], 1) == find_count(newest_db)


def find_count(db: Path) -> int:
    assert find_session([db], "x")[0] is None
    return len(list_sessions([db]).sessions)


def test_a_locked_database_is_told_once_and_does_not_hold_the_rail(
    newest_db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(newest_db, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = delete")
        connection.execute("BEGIN EXCLUSIVE")
        assert overview.count([newest_db], 0.01) is None
        monkeypatch.setattr(
            "webapp.opencode.overview.reading", lambda path, t=0.01: reading(path, t)
        )
        (problem,) = page([newest_db], Filter()).problems
    assert "locked by another program" in problem
