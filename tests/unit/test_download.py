"""A whole transcript as a file."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from webapp.transcripts import download
from webapp.transcripts.library import Transcript

KEY = "ghp_" + "FakeFixture0" * 3
TEXT = (
    f"# <b>T</b>\n\n## user\n<script>alert(1)</script> & {KEY}\n日本\r\n" + "x" * 9_000 + "\nend\n"
)


def transcript(tmp_path: Path, text: str = TEXT) -> Transcript:
    path = tmp_path / "a.md"
    path.write_bytes(text.encode())
    return Transcript(
        "a",
        "/home/demo/shop",
        "<i>T</i>",
        path,
        text.count("\n"),
        path.stat().st_size,
        0,
        0,
        0,
        True,
    )


def whole(item: Transcript, form: str, mask: bool = True) -> str:
    return b"".join(download.stream(item, form, mask)).decode()


def test_text_without_a_mask_is_the_file(tmp_path: Path) -> None:
    assert whole(transcript(tmp_path), "text", mask=False) == TEXT


@pytest.mark.parametrize("form", sorted(download.FORMATS))
def test_no_format_gives_a_key_away(tmp_path: Path, form: str) -> None:
    text = whole(transcript(tmp_path), form)
    assert KEY not in text
    assert "ghp_…[masked 40]" in text
    assert "x" * 9_000 in text


def test_json_is_json_with_every_line(tmp_path: Path) -> None:
    found = json.loads(whole(transcript(tmp_path), "json", mask=False))
    assert [row["text"] for row in found["lines"]] == TEXT.split("\n")[:-1]
    assert [row["line"] for row in found["lines"]] == list(range(1, 8))
    assert (found["id"], found["line_count"], found["masked"]) == ("a", 7, False)


def test_html_holds_the_text_and_nothing_that_runs(tmp_path: Path) -> None:
    tags: set[str] = set()
    seen: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.add(tag)
            seen.extend(name for name, _ in attrs if name.startswith("on"))

    Reader().feed(whole(transcript(tmp_path), "html"))
    assert tags == {"html", "meta", "title", "style", "h1", "p", "div", "a", "code"}
    assert seen == []


def test_a_private_key_over_the_border_of_two_reads_stays_masked(tmp_path: Path) -> None:
    body = ["MIIEpAIBAAKCAQEA" + f"{n:04d}" + "fakeFAKE" * 5 for n in range(40)]
    lines = ["filler"] * (download.STEP - 20)
    lines += ["-----BEGIN RSA " + "PRIVATE KEY-----", *body, "-----END RSA " + "PRIVATE KEY-----"]
    text = whole(transcript(tmp_path, "\n".join([*lines, "after"]) + "\n"), "text")
    assert text.count("\n") == len(lines) + 1
    assert "fakeFAKE" not in text
    assert text.endswith("after\n")
