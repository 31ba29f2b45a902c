"""The instruction sources that are shown, held against the system prompt of a real OpenCode."""

from __future__ import annotations

import json
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.lab.conftest import NEEDS_LAB, Played, play
from webapp import settings as setting_table
from webapp.opencode import Instructions, find_session, instructions, read_config, reading

pytestmark = NEEDS_LAB


class Handler(BaseHTTPRequestHandler):
    """Serves one instruction."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"From an address.\n")


class Lab:
    """A running OpenCode and what its model is sent."""

    def __init__(self, played: Played, address: str) -> None:
        self.port, self.made, self.root = played.port, played.sessions, played.root
        self.project = played.root / "shop"
        self.db, self.log, self.address = played.db, played.log, address

    def post(self, path: str, folder: Path, body: dict[str, Any]) -> Any:
        query = urllib.parse.urlencode({"directory": str(folder)})
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}?{query}", json.dumps(body).encode(),
            {"content-type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def sent(self, folder: Path) -> tuple[str, list[tuple[str, str]]]:
        """A new session's id, and the sources in the system prompt of its first call."""
        session = self.post("/session", folder, {"title": "asked"})["id"]
        before = len(self.log.read_text().splitlines())
        self.post(
            f"/session/{session}/message", folder,
            {"parts": [{"type": "text", "text": "Hello."}],
             "model": {"providerID": "scripted", "modelID": "m1"}},
        )  # fmt: skip
        request = json.loads(self.log.read_text().splitlines()[before])
        prompt = "\n".join(
            m["content"] for m in request["body"]["messages"] if m["role"] == "system"
        )
        return session, sources(prompt)

    def shown(self, session_id: str) -> Instructions:
        session, problems = find_session([self.db], session_id)
        assert session is not None and problems == []
        places = setting_table.places(
            {"HOME": str(self.root), "XDG_CONFIG_HOME": str(self.root / "config")}
        )
        with reading(self.db) as connection:
            return instructions(session, read_config(session, None, places), places, connection)


def sources(prompt: str) -> list[tuple[str, str]]:
    """Every “Instructions from:” of a prompt, with the first line that follows."""
    return re.findall(r"^Instructions from: (.*)\n(.*)$", prompt, re.MULTILINE)


def as_sent(shown: Instructions) -> list[tuple[str, str]]:
    """What is shown, as `sources` gives it; the one address is known to be there."""
    return [
        (item.place, item.text.split("\n")[0] if item.exists else "From an address.")
        for item in shown.items
        if item.sent is not False
    ]


def fill(root: Path) -> None:
    """A home, a configuration and a project with every kind of source."""
    shop = root / "shop"
    texts = {
        "config/opencode/AGENTS.md": "Global rules.",
        "config/opencode/opencode.json": json.dumps({"instructions": ["~/never.md"]}),
        "config/opencode/opencode.jsonc": '{// a comment\n"instructions": ["~/own/*.md", "docs/a.md",],}',
        "own/one.md": "Own one.",
        "own/.hidden.md": "Hidden.",
        "never.md": "Replaced.",
        ".claude/CLAUDE.md": "Claude's own.",
        "AGENTS.md": "Above the root.",
        "shop/CLAUDE.md": "Beside it.",
        "shop/docs/a.md": "A.",
        "shop/docs/c.md": "C.",
        "shop/docs/b.md": "B.",
        "shop/docs/.dot.md": "Dot.",
        "shop/docs/sub/d.md": "D.",
        "shop/docs/empty.md": "",
        "shop/deep/AGENTS.md": "Deep.",
        "shop/deep/docs/a.md": "Deep A.",
        "shop/deep/down/x.txt": "x",
        "shop/deep/down/CONTEXT.md": "Context.",
        "shop/deep/opencode.jsonc": json.dumps({"instructions": ["deep/{n,m}.md", "AGENTS.md"]}),
        "shop/deep/m.md": "M.",
        "shop/deep/n.md": "N.",
        "shop/.opencode/opencode.json": json.dumps({"instructions": ["docs/sub/**/*.md"]}),
        "tree/x.md": "X.",
        "shop/tree/x.md": "X.",
        "shop/tree/p/y.md": "Y.",
        "shop/tree/p/q/z.md": "Z.",
        "shop/tree/r/w.md": "W.",
        "shop/tree/r/v.md": "V.",
        "shop/tree/.s/u.md": "U.",
        "plain/CLAUDE.md": "Plain.",
        "plain/in/CLAUDE.md": "Plain in.",
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n" if text else "")
    (shop / "link.md").symlink_to(root / "never.md")
    (shop / "docs" / "folder.md").mkdir()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A real OpenCode in a home that `fill` made, with an address to fetch from."""
    folder = tmp_path_factory.mktemp("instructions")
    served = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{served.server_port}/rules.md"
    root = folder / "lab"
    fill(root)
    sources = [
        address, "docs/*.md", "link.md", "tree/**/[!x]*.md", "tree/**", str(root / "*" / "one.md")
    ]  # fmt: skip
    scenario = {"sessions": [{"title": "none"}]}
    try:
        with play(folder, scenario, {"instructions": sources}) as played:
            project = json.loads((root / "shop" / "opencode.json").read_text())
            del project["instructions"]
            (root / "plain" / "opencode.json").write_text(json.dumps(project))
            yield Lab(played, address)
    finally:
        served.shutdown()
        served.server_close()


@pytest.mark.parametrize("inside", ["shop", "shop/deep", "shop/deep/down", "plain", "plain/in"])
def test_the_sources_shown_are_those_of_the_system_prompt_in_its_order(
    lab: Lab, inside: str
) -> None:
    session, sent = lab.sent(lab.root / inside)
    shown = lab.shown(session)
    assert not shown.newer
    expected = as_sent(shown)
    raced = [n for n, item in enumerate(i for i in shown.items if i.sent is not False)
             if "**" in item.found_by]  # fmt: skip
    if raced:
        assert any("differs from call to call" in problem for problem in shown.problems)
        span = slice(raced[0], raced[-1] + 1)
        expected[span], sent[span] = sorted(expected[span]), sorted(sent[span])
    assert sent and expected == sent


def test_a_session_of_the_newer_runtime_was_told_what_is_shown(lab: Lab) -> None:
    if "newer runtime" not in lab.made:
        pytest.skip("this OpenCode has no newer runtime")
    shown = lab.shown(lab.made["newer runtime"])
    assert shown.newer and shown.baseline is not None and shown.baseline.files is not None
    assert sources(shown.baseline.text) == as_sent(shown)
    assert list(shown.baseline.files) == [(item.place, item.text) for item in shown.items]
    assert shown.difference == ()
    agents = lab.project / "AGENTS.md"
    kept = agents.read_text()
    try:
        agents.write_text(kept + "- A new line.\n")
        assert "+- A new line." in lab.shown(lab.made["newer runtime"]).difference
    finally:
        agents.write_text(kept)
