"""The limits that OpenCode knows of a model, from its configuration and its catalogue.

Sources: the merging of `limit` in packages/opencode/src/provider/provider.ts, `compaction` in
config/config.ts and session/overflow.ts; for the newer runtime packages/core/src/session/compaction.ts.
The catalogue (models.dev) is the copy that OpenCode keeps: the file of OPENCODE_MODELS_PATH, else
in its cache folder `models.json`, or `models-<sha1 of the address>.json` where OPENCODE_MODELS_URL
names another address (1.14.34 and later; 1.3.2 writes `models.json` whatever the address). Where
that copy is missing or damaged OpenCode takes one that is built into it, which is not read here.
Nothing is ever fetched.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webapp.opencode.config import Config, within
from webapp.opencode.disk import head
from webapp.opencode.modelview import Model
from webapp.opencode.values import as_count, bindable, release
from webapp.settings import Places

OUTPUT_TOKENS = 32_000
"""The most that OpenCode asks a model to write, unless the environment names another number."""

MAX_CATALOGUE = 16_777_216
"""Bytes; models.dev had 2 to 4 MB in 2026. One of this size takes 45 MB while it is read, and 270 to
420 MB where it is nothing but short strings or empty lists."""

DEFAULT_ADDRESSES = ("https://models.dev", "https://models.opencode.ai")
"""Where OpenCode fetches its catalogue from by itself: the first until 1.17.19, the second in
1.18.33. An address set to a release's own default is as none."""

LOOKS_TWICE = (1, 15, 13)
"""From this release on OpenCode looks at the window after each step with its own number of
OUTPUT_TOKENS, and before each call with that of the environment: the larger one comes first. 1.15.0
and before take that of the environment alone."""

TAKES_INPUT = (1, 14, 34)
"""From this release on the configuration can name `limit.input`; 1.3.2 leaves that out of a model
that it names, even where the catalogue has it."""

ASKED = frozenset({"github-copilot", "gitlab"})
"""Providers that OpenCode 1.18.33 asks themselves for the limits of their models."""

_KINDS = ("context", "input", "output")


@dataclass(frozen=True, slots=True)
class Limits:
    """What OpenCode knows of a model, in tokens.

    `context` is the window, None where it is not known here, and 0 where OpenCode knows of none,
    which switches automatic compaction off. `auto` says whether it is on. `reserved` is what the
    configuration keeps free (`reserved`, in the newer runtime `buffer`). `source` is the file that
    names the window. `reasons` says in sentences why something is not known or does not happen,
    `remarks` what may be otherwise.
    """

    model: Model
    context: int | None
    input: int
    output: int
    output_max: int
    auto: bool
    reserved: int | None
    source: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]


def find_limits(
    model: Model, config: Config, places: Places, *, newer: bool, version: str = ""
) -> Limits:
    """The limits of a model for the runtime that goes on with a session; `version` is the one that
    began it."""
    found, base, named = _configured(model, config, newer)
    began = release(version)
    # A model that the configuration names may stand for another one of the catalogue.
    wanted = Model(model.provider, base or model.id)
    source = found["context"][1] if "context" in found else ""
    reasons: list[str] = []
    remarks: list[str] = []
    values = {kind: value for kind, (value, _) in found.items()}
    ignores_input = named and () < began < TAKES_INPUT and not newer
    complete = {"context", "output"} <= values.keys() and ("input" in values or ignores_input)
    listed: Mapping[str, int] | str | None = None
    if not complete:
        path = _catalogue(places, began)
        listed = _listed(path, wanted)
        if isinstance(listed, Mapping):
            source = source or str(path)
            values = {**listed, **values}
    if ignores_input:
        values.pop("input", None)
    context: int | None = values.get("context")
    if context is None:
        if named and listed is None:
            context = 0
            reasons.append(
                "The configuration names this model without a limit, and OpenCode's catalogue does"
                " not have it: OpenCode then never compacts by itself."
            )
        else:
            why = listed if isinstance(listed, str) else ""
            reasons.append(
                "Neither the configuration nor OpenCode's catalogue on this machine names the limit of"
                f" {model.provider}/{model.id}.{' ' if why else ''}{why}"
            )
    elif isinstance(listed, str) and not newer and not ignores_input:
        remarks.append(
            f"Whether the catalogue also names a limit of the input is not known. {listed}"
        )
    elif model.provider in ASKED and source and not found:
        remarks.append(
            "The limit is the catalogue's. OpenCode asks this provider itself, which may answer"
            " another one."
        )
    auto, reserved = _compaction(config, places, newer, reasons)
    most = places.output_max or OUTPUT_TOKENS
    if not () < began < LOOKS_TWICE:
        most = max(most, OUTPUT_TOKENS)
    return Limits(
        model, context, values.get("input", 0), values.get("output", 0), most, auto, reserved,
        bindable(source), tuple(map(bindable, reasons)), tuple(map(bindable, remarks)),
    )  # fmt: skip


def _configured(
    model: Model, config: Config, newer: bool
) -> tuple[dict[str, tuple[int, str]], str, bool]:
    """Each limit with the file that names it, the id that the model has in the catalogue where it
    is another, and whether the configuration names the model."""
    found: dict[str, tuple[int, str]] = {}
    base, named = "", False
    for document in config.documents:
        key = "providers" if newer and not document.is_older else "provider"
        entry = within(document.data, key, model.provider, "models", model.id)
        if not isinstance(entry, Mapping):
            continue
        named = True
        if isinstance(entry.get("id"), str) and entry["id"]:
            base = entry["id"]
        for kind in _KINDS:
            value = as_count(within(entry, "limit", kind))
            if value is not None:
                found[kind] = value, document.source
    return found, base, named


def _compaction(
    config: Config, places: Places, newer: bool, reasons: list[str]
) -> tuple[bool, int | None]:
    """Whether compaction goes by itself, and what is kept free for it."""
    auto, off_by, reserved = True, "", None
    for document in config.documents:
        given = document.data.get("compaction")
        word = within(given, "auto")
        if isinstance(word, bool):
            auto, off_by = word, f"“compaction.auto” in {document.source} is false."
        key = "buffer" if newer and not document.is_older else "reserved"
        value = as_count(within(given, key))
        reserved = reserved if value is None else value
    if not newer and not places.autocompact:
        auto, off_by = False, "OPENCODE_DISABLE_AUTOCOMPACT is set."
    if not auto:
        reasons.append(f"OpenCode does not compact by itself: {off_by}")
    return auto, reserved


def _catalogue(places: Places, began: tuple[int, ...]) -> Path:
    """The file that OpenCode's copy of the catalogue is."""
    if places.models_path is not None:
        return places.models_path
    usual = places.cache_dir / "models.json"
    if not places.models_url or () < began < TAKES_INPUT:
        return usual
    digest = hashlib.sha1(places.models_url.encode("utf-8", "replace"), usedforsecurity=False)
    hashed = places.cache_dir / f"models-{digest.hexdigest()}.json"
    if places.models_url in DEFAULT_ADDRESSES and not hashed.exists():
        return usual
    return hashed


def _listed(path: Path, model: Model) -> Mapping[str, int] | str | None:
    """The limits that the catalogue names of a model, None if it does not have it, or a sentence
    that says why it is of no use."""
    try:
        state = os.stat(path)
        identity = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except (OSError, ValueError):
        identity = (0, 0, 0, 0)
    return _looked_up(path, identity, model)


@functools.lru_cache(maxsize=128)
def _looked_up(
    path: Path, _identity: tuple[int, int, int, int], model: Model
) -> Mapping[str, int] | str | None:
    """A catalogue of 4 MB takes 50 ms to parse, so one model's answer is kept for as long as the
    file is the same."""
    builtin = "the one that is built into OpenCode is not read."
    got = head(str(path), MAX_CATALOGUE)
    if isinstance(got, str):
        return f"The copy {path} {got.rstrip('.')}; {builtin}"
    data, size = got
    if size > len(data):
        return (
            f"The copy {path} was not read: it has {size:,} bytes, and a catalogue of more than"
            f" {MAX_CATALOGUE:,} is too large to be parsed here."
        )
    try:
        found = json.loads(data, object_pairs_hook=_without_rest)
    except (ValueError, RecursionError):
        return f"The copy {path} cannot be parsed; {builtin}"
    if not isinstance(found, dict):
        return f"The copy {path} is no catalogue of models."
    entry: Any = within(found, model.provider, "models", model.id)
    if not isinstance(entry, Mapping):
        return None
    values = {kind: as_count(within(entry, "limit", kind)) for kind in _KINDS}
    return {kind: value for kind, value in values.items() if value is not None}


_NO_LIMITS: dict[str, Any] = {}


def _without_rest(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the catalogue without what tells no limit, so that no more is ever held."""
    kept = {
        key: value for key, value in pairs
        if isinstance(value, dict) or (key in _KINDS and isinstance(value, (int, float)))
    }  # fmt: skip
    return kept or _NO_LIMITS
