"""Scopes: the worktree of a folder, what may be given, and the folder name that stands for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.errors import InvalidInput
from webapp.scope import MAX_SCOPE, parse_scope, scope_folder, worktree


@pytest.mark.parametrize("git", ["folder", "file"])
def test_the_scope_of_a_folder_is_the_nearest_worktree_around_it(tmp_path: Path, git: str) -> None:
    """In a linked worktree or a submodule `.git` is a file."""
    inner = tmp_path / "shop" / "src" / "deep"
    inner.mkdir(parents=True)
    marker = tmp_path / "shop" / ".git"
    if git == "folder":
        marker.mkdir()
    else:
        marker.write_text("gitdir: elsewhere")
    shop = str((tmp_path / "shop").resolve())
    assert worktree(inner) == shop
    assert worktree(tmp_path / "shop") == shop
    (tmp_path / ".git").mkdir()
    assert worktree(inner) == shop


def test_a_folder_outside_any_worktree_is_its_own_scope(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    if any((parent / ".git").exists() for parent in folder.resolve().parents):
        pytest.skip("the folder for temporary files lies in a git worktree")
    assert worktree(folder) == str(folder.resolve())


def test_a_link_and_a_dotted_path_lead_to_the_same_scope(tmp_path: Path) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    expected = str((tmp_path / "shop").resolve())
    assert worktree(tmp_path / "link") == expected
    assert worktree(tmp_path / "shop" / ".." / "shop") == expected


def test_a_folder_that_is_not_there_is_its_own_scope_or_that_of_a_worktree_above(
    tmp_path: Path,
) -> None:
    (tmp_path / ".git").mkdir()
    assert worktree(tmp_path / "gone" / "deeper") == str(tmp_path.resolve())


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("global", "global"), (" global ", "global"), ("/home/a/shop", "/home/a/shop"),
        ("/home/a/shop/", "/home/a/shop"), ("/", "/"), ("//", "/"), (" /x ", "/x"),
        ("/with space/größe", "/with space/größe"), ("/" + "x" * (MAX_SCOPE - 1),) * 2,
    ],
)  # fmt: skip
def test_a_scope_is_global_or_an_absolute_path(text: str, scope: str) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize(
    "text", ["", "  ", "shop", "./shop", "../shop", "~/shop", "Global", "C:\\shop", "/a\0b",
    "/a\nb",
             "/a\rb", "/a\x1bb", "/a\x7f", "/\udcff", "/" + "x" * MAX_SCOPE],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_scope(text)
    assert caught.value.field == "scope"
    assert len(caught.value.message) < 200


SCOPES = st.text(st.characters(), max_size=300).map(lambda text: "/" + text)


@given(scope=SCOPES | st.just("global"))
@hypothesis_settings(deadline=None)
def test_a_scope_has_one_safe_folder_name(scope: str) -> None:
    name = scope_folder(scope)
    assert scope_folder(scope) == name
    assert Path(name).name == name
    assert name.isascii()
    assert name.isprintable()
    assert not name.startswith((".", "-"))
    assert "/" not in name
    assert " " not in name
    assert len(name) <= 100


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/home/a/b-c", "/home/a-b/c"), ("/home/a", "/home/A"), ("/home/größe", "/home/grosse"),
        ("/", "/-"), ("/数据", "/库存"), ("/a b", "/a-b"), ("global", "/global"),
        ("/" + "x" * 200 + "/a" * 60, "/" + "y" * 200 + "/a" * 60),
    ],
)  # fmt: skip
def test_scopes_that_read_alike_have_different_folders(one: str, other: str) -> None:
    assert scope_folder(one).lower() != scope_folder(other).lower()


def test_the_folder_name_of_a_scope_never_changes() -> None:
    assert scope_folder("/home/me/shop") == "home-me-shop-4a68c726"
    assert scope_folder("global") == "global-8001c274"
