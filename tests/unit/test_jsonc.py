"""A configuration is read as OpenCode reads it, and a change leaves every other byte as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp import jsonc

VALUE = {"type": "local", "command": ["a b", "mcp"]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcp": {\n    "memory": 1\n  }\n}'),
        ("// only a comment\n", '// only a comment\n{\n  "mcp": {\n    "memory": 1\n  }\n}'),
        ("{}", '{\n  "mcp": {\n    "memory": 1\n  }\n}'),
        ("{}\n", '{\n  "mcp": {\n    "memory": 1\n  }\n}\n'),
        ('{"a": 1}', '{"a": 1, "mcp": {"memory": 1}}'),
        ('{"a": 1, }', '{"a": 1, "mcp": {"memory": 1} }'),
        ('{\n\t"a": 1\n}\n', '{\n\t"a": 1,\n\t"mcp": {\n\t\t"memory": 1\n\t}\n}\n'),
        ('{\r\n    "a": 1\r\n}', '{\r\n    "a": 1,\r\n    "mcp": {\r\n        "memory": 1\r\n    }\r\n}'),
        ('{\n  "a": 1, // why\n}', '{\n  "a": 1, // why\n  "mcp": {\n    "memory": 1\n  },\n}'),
        ('{\n  "a": 1 // why\n}', '{\n  "a": 1, // why\n  "mcp": {\n    "memory": 1\n  }\n}'),
        ('{\n  "a": 1 /* b */ // why\n  // last\n}',
         '{\n  "a": 1, /* b */ // why\n  "mcp": {\n    "memory": 1\n  }\n  // last\n}'),
        ('{\n  "mcp": {\n    // none yet\n  }\n}',
         '{\n  "mcp": {\n    // none yet\n    "memory": 1\n  }\n}'),
        ('{"mcp": {"other": {}}}', '{"mcp": {"other": {}, "memory": 1}}'),
        ('{"mcp": {"memory": [2, /* x */ 3]}}', '{"mcp": {"memory": 1}}'),
        ('\ufeff{\n  "a": 1\n}', '\ufeff{\n  "a": 1,\n  "mcp": {\n    "memory": 1\n  }\n}'),
    ],
)  # fmt: skip
def test_a_key_is_put_where_a_person_would(before: str, after: str) -> None:
    assert jsonc.put(before, ("mcp", "memory"), 1) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a": 1, "b": 2, "c": 3}', '{"a": 1, "c": 3}'),
        ('{"b": 2, "c": 3}', '{"c": 3}'),
        ('{"a": 1, "b": 2}', '{"a": 1}'),
        ('{"a": 1, "b": 2, }', '{"a": 1, }'),
        ('{"b": 2}', "{}"),
        ('{\n  "a": 1,\n  "b": 2\n}', '{\n  "a": 1\n}'),
        ('{\n  "a": 1, // one\n  "b": 2 // two\n}', '{\n  "a": 1 // one // two\n}'),
        ('{\r\n  "b": 2,\r\n  "c": 3\r\n}', '{\r\n  "c": 3\r\n}'),
        ('{\n  // above\n  "b": {"x": [1]},\n}', "{\n  // above\n}"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_key_is_dropped_with_its_comma(before: str, after: str) -> None:
    assert jsonc.drop(before, ("b",)) == after
    jsonc.parse(after)


def test_an_array_grows_and_shrinks_at_its_end() -> None:
    for text in (
        '{"i": ["a"]}',
        '{\n  "i": [\n    "a", // x\n  ]\n}',
        '{"i": []}',
        "{}",
        '{"i": ["a",]}',
    ):
        grown = jsonc.append(text, ("i",), "b")
        assert jsonc.loads(grown)["i"][-1] == "b"
        assert jsonc.loads(jsonc.drop_item(grown, ("i",), "b")).get("i", []) == jsonc.loads(
            text
        ).get("i", [])
    assert jsonc.append('{"i": ["a"]}', ("i",), "b") == '{"i": ["a", "b"]}'
    assert jsonc.append('{\n  "i": [\n    "a", // x\n  ]\n}', ("i",), "b") == (
        '{\n  "i": [\n    "a", // x\n    "b",\n  ]\n}'
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": 1', "line 1, column 1: this '{' is not closed"),
        ('{\n  "a" 1\n}', "line 2, column 7: a colon is missing after the key"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3: a comma or '}' is missing before this"),
        ("{'a': 1}", "line 1, column 2: a key in quotes is missing here"),
        ('{"a": tru}', "line 1, column 7: 't' is no value"),
        ('{"a": 01}', "column 8"),
        ('{"a": }', "column 7"),
        ('{"a":', "a value is missing"),
        ('{"a": 1,', "is not closed"),
        ("[1", "is not closed"),
        ('{"a": "x\n"}', "this string does not end on its line"),
        ('{"a": "\\x"}', "an escape that is none"),
        ("{} {}", "stands after the end"),
        ("{} /* open", "this comment does not end"),
        ("[" * 5_000, "nested too deeply"),
        ('{"a": NaN}', "is no value"),
        ('{"a": 1,,}', "a key in quotes"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(text: str, where: str) -> None:
    with pytest.raises(jsonc.JsoncError, match=where.replace("{", r"\{").replace("}", r"\}")
                       .replace("[", r"\[")):  # fmt: skip
        jsonc.parse(text)


def test_something_else_on_the_way_is_not_overwritten() -> None:
    for text in ('{"mcp": 7}', '{"mcp": []}', "[]", "7"):
        with pytest.raises(jsonc.JsoncError, match="is no object"):
            jsonc.put(text, ("mcp", "memory"), 1)
    with pytest.raises(jsonc.JsoncError, match="is no array"):
        jsonc.append('{"i": {}}', ("i",), 1)


def test_of_a_key_that_stands_twice_the_last_one_counts() -> None:
    text = '{"a": 1, "a": {"b": 2}}'
    assert jsonc.loads(text) == {"a": {"b": 2}}
    assert jsonc.put(text, ("a", "b"), 3) == '{"a": 1, "a": {"b": 3}}'


_SCALARS = st.none() | st.booleans() | st.integers(-9999, 9999) | st.text(max_size=6)
_KEYS = st.sampled_from(["a", "b", "mcp", "memory", "provider", 'q"uote', "é"])
_VALUES: st.SearchStrategy[Any] = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_GAP = st.sampled_from(["", " ", "\n", "\r\n", "\n\n  ", "\t", " /* c */ ", " // line\n", "/**/"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """The same value in the odd forms that people write: comments, blanks and commas anywhere."""

    def written(value: Any) -> str:
        def gap() -> str:
            return draw(_GAP)

        def many(items: list[str], opening: str, closing: str) -> str:
            end = draw(st.sampled_from(["", ","])) if items else ""
            return (
                opening
                + gap()
                + ",".join(f"{gap()}{item}{gap()}" for item in items)
                + end
                + gap()
                + closing
            )

        if isinstance(value, dict):
            return many(
                [f"{json.dumps(k)}{gap()}:{gap()}{written(v)}" for k, v in value.items()], "{", "}"
            )
        if isinstance(value, list):
            return many([written(v) for v in value], "[", "]")
        return json.dumps(value)

    value = draw(st.dictionaries(_KEYS, _VALUES, max_size=4))
    return f"{draw(_GAP)}{written(value)}{draw(_GAP)}"


def _without(value: Any, path: tuple[str, ...]) -> Any:
    value = json.loads(json.dumps(value))
    held = value
    for key in path[:-1]:
        held = held.get(key) if isinstance(held, dict) else None
    if isinstance(held, dict):
        held.pop(path[-1], None)
    return value


@given(documents(), st.sampled_from([("mcp", "memory"), ("mcp",), ("new",), ("a", "b", "new")]))
@hypothesis_settings(max_examples=300, deadline=None)
def test_a_change_is_that_change_and_nothing_else(text: str, path: tuple[str, ...]) -> None:
    before = jsonc.loads(text)
    try:
        put = jsonc.put(text, path, VALUE)
    except jsonc.JsoncError:
        held = before
        for key in path[:-1]:
            held = held.get(key, {}) if isinstance(held, dict) else held
        assert not isinstance(held, dict)
        return
    after = jsonc.loads(put)
    assert jsonc.parse(put).find(path).value == VALUE  # type: ignore[union-attr]
    bare = _without(after, path)
    for depth in range(len(path) - 1, 0, -1):
        if jsonc.parse(text).find(path[:depth]) is None:
            bare = _without(bare, path[:depth])
    assert bare == _without(before, path)
    comments = text.count("/*") + text.count("//")
    if jsonc.parse(text).find(path) is None:
        assert put.count("/*") + put.count("//") == comments
        assert jsonc.loads(jsonc.drop(put, path)) == _without(after, path)
        kept = jsonc.drop(put, path)
        assert kept.count("/*") + kept.count("//") == comments


@given(st.text(alphabet='{}[]":,/*\\ \n\ta1tn\ufeff', max_size=40))
@hypothesis_settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        jsonc.parse(text)
    except jsonc.JsoncError as error:
        assert error.line >= 1 and error.column >= 1
