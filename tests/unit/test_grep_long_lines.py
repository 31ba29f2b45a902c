"""A search in lines of any length, in memory that does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from webapp.errors import Unreadable
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.grep import grep


def put(settings: Settings, data: bytes) -> None:
    folder = settings.transcripts_dir / "shop"
    folder.mkdir(parents=True)
    (folder / "ses_long.md").write_bytes(data)


@pytest.mark.parametrize("end", [b"needle", b'"},"line_number":77,"absolute_offset":9,"sub needle'])
@pytest.mark.parametrize(
    "filling", [b"x" * 3_000_000, '日本\\"\t'.encode() * 300_000, b"\xff" * 3_000_000]
)
def test_a_hit_in_a_line_of_megabytes_is_told_with_its_number(
    store: Store, settings: Settings, filling: bytes, end: bytes
) -> None:
    put(settings, b"first\n" + filling + end + b"\nneedle two\nlast\n")
    found = grep(store, settings, "needle", context=1)
    (file,) = found.files
    assert (found.count, file.count) == (2, 2)
    assert [(line.number, line.is_hit) for line in file.lines] == [
        (1, False), (2, True), (3, True), (4, False),
    ]  # fmt: skip
    assert 0 < len(file.lines[1].text) < 600
    assert file.lines[1].text[:10] == filling.decode("utf-8", "replace")[:10].replace("\t", "\t")


def test_every_word_is_found_in_a_line_of_megabytes(store: Store, settings: Settings) -> None:
    put(settings, b"alpha " + b"x" * 3_000_000 + b" omega\nalpha only\n")
    found = grep(store, settings, "omega alpha")
    assert [line.number for file in found.files for line in file.lines] == [1]
    assert not found.exact


SCRIPT = """
import resource, sys
from webapp import settings as table
from webapp.store import Store
from webapp.transcripts.grep import grep
settings = table.load({"data_dir": sys.argv[1]}, {"HOME": sys.argv[1]})
with Store(settings.db).session() as store:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert grep(store, settings, "x", context=1).count == 3
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_line(settings: Settings, tmp_path: Path) -> None:
    put(settings, (b"x" + b"y" * 40_000_000 + b"\n") * 3)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(settings.data_dir)], capture_output=True, text=True,
        cwd=Path(__file__).parents[2], check=True,
    )  # fmt: skip
    kilobytes = int(done.stdout) // (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < 30_000


def test_a_search_that_was_stopped_is_no_empty_result(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(settings, b"needle in a line of hay\n" * 400_000)
    monkeypatch.setattr("webapp.transcripts.grep.TIMEOUT_S", 0.0)
    for text in ("nothing", "needle nothing hay"):
        with pytest.raises(Unreadable, match="stopped before it found"):
            grep(store, settings, text)
