"""The limits of a model, from invented configurations and catalogues on real folders."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from webapp.opencode import Config, Limits, Model, Session, find_limits, read_config
from webapp.opencode.limits import MAX_CATALOGUE, _looked_up
from webapp.settings import Places, places

LARGE = Model("example", "large")


class House:
    """A home and a project, with a configuration and a catalogue."""

    def __init__(self, root: Path) -> None:
        self.shop = root / "shop"
        self.shop.mkdir(parents=True)
        (self.shop / ".git").mkdir()
        self.places = replace(places({"HOME": str(root / "home")}), managed_dir=root / "managed")
        self.cache = self.places.cache_dir / "models.json"

    def write(self, path: Path, data: Any) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    def configure(self, limit: Any = None, path: Path | None = None, **more: Any) -> Path:
        """Names the model in a configuration of the older form."""
        model = {} if limit is None else {"limit": limit}
        provider = {"example": {"options": {"apiKey": "k"}, "models": {"large": model}}}
        return self.write(path or self.shop / "opencode.json", {"provider": provider, **more})

    def list(self, limit: Any, path: Path | None = None) -> Path:
        """Names the model in the catalogue."""
        entry = {"example": {"models": {"large": {"limit": limit}}}}
        return self.write(path or self.cache, entry)

    def config(self, set_to: Places | None = None) -> Config:
        session = Session(
            "ses_a", Path("x.db"), str(self.shop), str(self.shop), "", "1.18.33", None, 0, 0, None,
            None,
        )  # fmt: skip
        return read_config(session, None, set_to or self.places)

    def look(
        self, *, model: Model = LARGE, newer: bool = False, version: str = "1.18.33", **changed: Any
    ) -> Limits:
        set_to = replace(self.places, **changed)
        return find_limits(model, self.config(set_to), set_to, newer=newer, version=version)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def three(found: Limits) -> tuple[int | None, int, int]:
    return found.context, found.input, found.output


def test_the_configuration_stands_over_the_catalogue_number_by_number(house: House) -> None:
    listed = house.list({"context": 200_000, "input": 180_000, "output": 64_000})
    found = house.look()
    assert three(found) == (200_000, 180_000, 64_000) and found.source == str(listed)
    house.configure({"context": 100_000}, house.places.config_dir / "opencode.json")
    own = house.configure({"output": 9_000})
    found = house.look()
    assert three(found) == (100_000, 180_000, 9_000) and found.reasons == ()
    assert found.source == str(house.places.config_dir / "opencode.json")
    house.configure({"context": 50_000, "output": 9_000}, own)
    assert (house.look().context, house.look().source) == (50_000, str(own))


def test_a_model_that_stands_for_another_has_that_ones_limits(house: House) -> None:
    house.list({"context": 200_000, "output": 64_000})
    models = {"mine": {"id": "large", "limit": {"output": 1_000}}}
    house.write(house.shop / "opencode.json", {"provider": {"example": {"models": models}}})
    assert three(house.look(model=Model("example", "mine"))) == (200_000, 0, 1_000)


def test_until_1_3_a_configured_model_has_no_limit_of_the_input(house: House) -> None:
    house.list({"context": 200_000, "input": 180_000, "output": 64_000})
    assert house.look(version="1.3.2").input == 180_000
    house.configure({"context": 200_000, "input": 150_000, "output": 64_000})
    assert house.look(version="1.3.2").input == 0
    assert house.look(version="1.14.34").input == house.look(version="").input == 150_000


def test_what_is_nowhere_is_said_to_be_unknown(house: House) -> None:
    found = house.look()
    assert found.context is None and found.source == ""
    (reason,) = found.reasons
    assert reason.startswith("Neither the configuration nor OpenCode's catalogue on this machine")
    assert "example/large" in reason and str(house.cache) in reason and "not there" in reason
    house.configure({"output": 100})
    assert house.look().context is None
    house.write(house.cache, {})
    house.configure()
    found = house.look()
    assert found.context == 0 and "never compacts" in found.reasons[0]


def test_a_configured_window_beside_an_unread_catalogue_is_remarked_on(house: House) -> None:
    house.configure({"context": 1_000, "output": 100})
    found = house.look()
    assert three(found) == (1_000, 0, 100) and found.reasons == ()
    assert "limit of the input is not known" in found.remarks[0]
    assert house.look(newer=True).remarks == ()
    house.list({"context": 5, "output": 5})
    assert house.look().remarks == ()


@pytest.mark.parametrize(
    ("damage", "word"),
    [("{", "cannot be parsed"), ("[1]", "no catalogue"), ("[" * 200_000, "cannot be parsed"),
     ('{"example": ' + "9" * 5_000 + "}", "cannot be parsed"), ("null", "no catalogue")],
)  # fmt: skip
def test_a_damaged_catalogue_is_told(house: House, damage: str, word: str) -> None:
    house.write(house.cache, damage)
    found = house.look()
    assert found.context is None and word in found.reasons[0]


def test_a_catalogue_that_is_no_file_or_too_large_is_told(house: House) -> None:
    house.cache.parent.mkdir(parents=True)
    os.mkfifo(house.cache)
    assert "no regular file" in house.look().reasons[0]
    house.cache.unlink()
    with house.cache.open("wb") as file:
        file.truncate(MAX_CATALOGUE + 1)
    assert MAX_CATALOGUE <= 16 * 1024 * 1024
    assert "too large to be parsed" in house.look().reasons[0]
    house.cache.unlink()
    house.cache.symlink_to(house.write(house.cache.parent / "auth.json", {"example": {}}))
    assert "holds credentials" in house.look().reasons[0]


@pytest.mark.parametrize("value", [True, "9", None, -1, [1], {}, 1e300, float("nan")])
def test_a_limit_that_is_no_number_of_tokens_is_none(house: House, value: Any) -> None:
    house.list({"context": value, "output": value, "input": value})
    assert house.look().context is None
    house.list({"context": 5_000, "output": value, "input": value})
    assert three(house.look()) == (5_000, 0, 0)


def test_a_large_catalogue_is_never_held_whole(house: House) -> None:
    model = {"id": "example/model-of-some-length", "attachment": True, "reasoning": False,
             "tool_call": True, "knowledge": "2026-01", "release_date": "2026-01-01",
             "last_updated": "2026-01-01", "open_weights": False,
             "modalities": {"input": ["text", "image"], "output": ["text"]},
             "cost": {"input": 3, "output": 15}, "limit": {"context": 7_000, "output": 900}}  # fmt: skip
    models = {f"m{number}": {**model, "name": f"Model {number}"} for number in range(15_000)}
    size = house.write(house.cache, {"example": {"models": models}}).stat().st_size
    tracemalloc.start()
    try:
        found = _looked_up(house.cache, (1, 2, 3, 4), Model("example", "m14999"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == {"context": 7_000, "output": 900}
    # The bytes and their text are twice its size; parsed as a whole it took seven times its size.
    assert peak < 5 * size


def test_the_catalogue_is_parsed_once_for_as_long_as_it_is_the_same(house: House) -> None:
    house.list({"context": 1_000, "output": 10})
    assert house.look().context == 1_000
    before = _looked_up.cache_info()
    assert house.look().context == 1_000
    assert _looked_up.cache_info().misses == before.misses
    house.list({"context": 2_000, "output": 10})
    assert house.look().context == 2_000
    house.cache.unlink()
    assert house.look().context is None


def test_the_catalogue_is_where_the_environment_says(house: House) -> None:
    address = "https://models.example"
    digest = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    house.list({"context": 1, "output": 1})
    house.list({"context": 2, "output": 1}, house.cache.with_name(f"models-{digest}.json"))
    path = house.list({"context": 3, "output": 1}, house.shop / "own.json")
    assert house.look(models_url=address).context == 2
    assert house.look(models_url=address, version="1.3.2").context == 1
    assert house.look(models_url="https://models.dev").context == 1
    assert house.look(models_url="https://other.example").context is None
    assert house.look(models_url=address, models_path=path).context == 3


def test_compaction_is_what_the_last_document_says(house: House) -> None:
    first = house.places.config_dir / "opencode.json"
    house.configure(compaction={"auto": False, "reserved": 10}, path=first)
    assert (house.look().auto, house.look().reserved) == (False, 10)
    assert "compaction.auto" in house.look().reasons[-1]
    own = house.configure(compaction={"auto": True})
    assert (house.look().auto, house.look().reserved) == (True, 10)
    found = house.look(autocompact=False)
    assert not found.auto and "OPENCODE_DISABLE_AUTOCOMPACT" in found.reasons[-1]
    assert house.look(autocompact=False, newer=True).auto
    house.configure(compaction="odd", path=own)
    assert (house.look().auto, house.look().reserved) == (False, 10)


def test_the_newer_runtime_reads_both_forms(house: House) -> None:
    house.configure({"context": 1_000, "output": 10}, compaction={"reserved": 11, "buffer": 12})
    assert three(house.look(newer=True)) == (1_000, 0, 10)
    assert house.look(newer=True).reserved == 11
    models = {"large": {"limit": {"context": 2_000, "output": 20}}}
    house.write(house.shop / "opencode.json", {
        "providers": {"example": {"models": models}}, "compaction": {"reserved": 11, "buffer": 12},
    })  # fmt: skip
    assert three(house.look(newer=True)) == (2_000, 0, 20)
    assert house.look(newer=True).reserved == 12
    assert house.look().context is None and house.look().reserved == 11


def test_the_most_that_is_written_comes_from_the_environment(house: House) -> None:
    assert house.look().output_max == 32_000
    assert house.look(output_max=64_000).output_max == 64_000
    assert house.look(output_max=5_000).output_max == 32_000
    assert house.look(output_max=5_000, version="1.15.0").output_max == 5_000


def test_no_credential_of_a_provider_is_held(house: House) -> None:
    house.configure({"context": 1}, disabled_providers=["secret-word"])
    config = house.config()
    assert "apiKey" not in repr(config) and "secret-word" not in repr(config)
    (document,) = config.documents
    assert document.is_older and document.data == {
        "provider": {"example": {"models": {"large": {"limit": {"context": 1}}}}}
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["example", "models", "large", "limit", "context", "input", "output", "id",
                         "auto", "reserved", "buffer"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(JSON, JSON, JSON, st.booleans())
def test_nothing_that_a_file_may_hold_breaks_it(
    house: House, provider: Any, compaction: Any, listed: Any, newer: bool
) -> None:
    given_ = {"provider": provider, "providers": provider, "compaction": compaction}
    house.write(house.shop / "opencode.json", given_)
    house.write(house.cache, listed)
    found = house.look(newer=newer)
    assert found.context is None or found.context >= 0
    assert all(isinstance(reason, str) for reason in found.reasons)
