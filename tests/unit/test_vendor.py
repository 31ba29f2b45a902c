"""What lies in static/vendor is what its README says, byte for byte."""

import hashlib
import re
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[2] / "static" / "vendor"
ROW = re.compile(r"\| (\S+) \| (\d+\.\d+\.\d+) \| (\S+) \| (\S+) \| ([0-9a-f]{64}) \|")
ROWS = ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8"))


def test_every_file_is_listed_once_and_every_listed_file_is_there() -> None:
    listed = sorted(row[3] for row in ROWS)
    assert listed == sorted(p.name for p in VENDOR.iterdir() if p.name != "README.md")


@pytest.mark.parametrize(("name", "sha256"), [(row[3], row[4]) for row in ROWS])
def test_file_has_the_listed_sha256(name: str, sha256: str) -> None:
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == sha256


@pytest.mark.parametrize(
    ("package", "name", "pattern"),
    [
        ("htmx.org", "htmx.min.js", r'version:"([0-9.]+)"'),
        ("uplot", "uPlot.iife.min.js", r"uPlot \(v([0-9.]+)\)"),
    ],
)
def test_the_file_itself_says_the_listed_version(package: str, name: str, pattern: str) -> None:
    found = re.search(pattern, (VENDOR / name).read_text(encoding="utf-8"))
    assert found is not None
    assert {row[1] for row in ROWS if row[0] == package} == {found[1]}


def test_each_package_has_its_licence_beside_it() -> None:
    packages = {row[0] for row in ROWS}
    assert {row[0] for row in ROWS if row[2] == "LICENSE"} == packages
