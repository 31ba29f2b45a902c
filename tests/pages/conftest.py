"""What the page tests share: the app on invented data, and answers that can be read like a page.

`site` is the app with a test client. `site.get(path)` returns an `Answer`, whose `doc` is the parsed
HTML; `site.submit(answer, form, ...)` sends a form of it the way a browser without script does.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from jinja2.bccache import Bucket, BytecodeCache
from werkzeug.test import TestResponse

from webapp import create_app
from webapp.memory import entries
from webapp.settings import Settings
from webapp.store import Store
from webapp.web import current

SHOP = "/home/demo/shop"
VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr")
)
ACTIVE = ("img", "iframe", "object", "embed", "svg", "style", "base", "applet", "frame", "math")
LINKS = ("href", "src", "action", "formaction", "hx-get", "hx-post", "data", "poster", "srcset")

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)><iframe src=//evil.example>"
QUOTES = "\"><svg onload=alert(3)> ' onfocus=alert(4) autofocus='\x1b[31m\u202e{{ 7*7 }}"


class _Compiled(BytecodeCache):
    """Templates that an earlier test has compiled; compiling is most of the time of a first page."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._kept:
            bucket.bytecode_from_string(self._kept[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._kept[bucket.key] = bucket.bytecode_to_string()


COMPILED = _Compiled()


class Node:
    """An element: its tag, attributes and children. Text is a child that is a str."""

    def __init__(self, tag: str, attrs: dict[str, str], parent: Node | None) -> None:
        self.tag = tag
        self.attrs = attrs
        self.parent = parent
        self.children: list[Node | str] = []

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, tag: str | None = None, **attrs: str) -> list[Node]:
        """Elements inside, by tag and attributes: `class_="hit"` is one of the classes, a name's
        `_` stands for `-`."""
        return [
            node
            for node in self.walk()
            if node is not self and tag in (None, node.tag) and node._has(attrs)
        ]

    def _has(self, attrs: dict[str, str]) -> bool:
        for name, value in attrs.items():
            if name == "class_":
                if value not in self.attrs.get("class", "").split():
                    return False
            elif self.attrs.get(name.rstrip("_").replace("_", "-")) != value:
                return False
        return True

    def one(self, tag: str | None = None, **attrs: str) -> Node:
        """The only such element."""
        found = self.all(tag, **attrs)
        assert len(found) == 1, f"{len(found)} x <{tag} {attrs}> in {self.text[:500]}"
        return found[0]

    @property
    def raw(self) -> str:
        """All text inside, as it is."""
        return "".join(c if isinstance(c, str) else c.raw for c in self.children)

    @property
    def text(self) -> str:
        """All text inside, with single spaces."""
        return " ".join(self.raw.split())


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("#document", {}, None)
        self._open = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self._open)
        self._open.children.append(node)
        if tag not in VOID:
            self._open = node

    def handle_endtag(self, tag: str) -> None:
        node: Node | None = self._open
        while node is not None and node.tag != tag:
            node = node.parent
        if node is not None and node.parent is not None:
            self._open = node.parent

    def handle_data(self, data: str) -> None:
        self._open.children.append(data)


def parse(html: str) -> Node:
    builder = _Builder()
    builder.feed(html)
    builder.close()
    return builder.root


class Answer:
    """An answer of the app; `path` is where it came from."""

    def __init__(self, path: str, response: TestResponse) -> None:
        self.path = path
        self.status = response.status_code
        self.headers = response.headers
        self.body = response.get_data()
        self.html = self.body.decode("utf-8", "replace")
        self.doc = parse(self.html) if "html" in (response.content_type or "") else parse("")
        response.close()

    @property
    def text(self) -> str:
        """What a person reads on the page."""
        return self.doc.text

    @property
    def main(self) -> Node:
        return self.doc.one("main")

    @property
    def is_page(self) -> bool:
        """Whether this is a whole page and no fragment."""
        return "<!doctype html>" in self.html and "</html>" in self.html

    @property
    def location(self) -> str:
        assert self.status in (301, 302, 303, 307, 308), (self.status, self.text)
        return self.headers["Location"]

    @property
    def toasts(self) -> list[str]:
        return [node.all("span")[0].text for node in self.doc.all(class_="toast")]

    @property
    def facts(self) -> dict[str, str]:
        """The terms and values of the lists of facts on the page."""
        found: dict[str, str] = {}
        for node in self.main.all("dl"):
            found |= zip(
                [n.text for n in node.all("dt")], [n.text for n in node.all("dd")], strict=True
            )
        return found

    def form(self, action: str, **attrs: str) -> Node:
        """The only form with that path as its action."""
        found = [
            form
            for form in self.doc.all("form", **attrs)
            if urlsplit(form.attrs.get("action", "")).path == action
        ]
        assert len(found) == 1, f"{len(found)} forms go to {action} on {self.path}"
        return found[0]

    def has_form(self, action: str) -> bool:
        return any(form.attrs.get("action") == action for form in self.doc.all("form"))

    def fields(self, form: Node) -> list[tuple[str, str]]:
        """What a browser would send of a form, without any button."""
        mine = [
            node
            for node in self.doc.walk()
            if node.tag in ("input", "textarea", "select")
            and ("form" in node.attrs or node in list(form.walk()))
            and node.attrs.get("form", form.attrs.get("id")) == form.attrs.get("id")
        ]
        sent: list[tuple[str, str]] = []
        for node in mine:
            name = node.attrs.get("name", "")
            if not name:
                continue
            if node.tag == "textarea":
                sent.append((name, node.raw.removeprefix("\n")))
            elif node.tag == "select":
                options = node.all("option")
                chosen = [o for o in options if "selected" in o.attrs] or options[:1]
                sent += [(name, o.attrs.get("value", o.text)) for o in chosen[-1:]]
            elif node.attrs.get("type") in ("checkbox", "radio"):
                if "checked" in node.attrs:
                    sent.append((name, node.attrs.get("value", "on")))
            else:
                sent.append((name, node.attrs.get("value", "")))
        return sent

    def assert_inert(self) -> None:
        """No data became markup that runs, loads or frames anything."""
        for node in self.doc.walk():
            is_meter = node.tag == "svg" and node.attrs.get("class") == "meter"
            assert node.tag not in ACTIVE or is_meter, f"<{node.tag}> on {self.path}: {node.attrs}"
            if is_meter:
                assert {inner.tag for inner in node.all()} == {"rect"}, node.raw
            if node.tag == "script":
                assert urlsplit(node.attrs["src"]).path.startswith("/static/"), node.attrs
                assert not node.raw.strip()
            for name, value in node.attrs.items():
                assert re.fullmatch(r"[a-z][a-z0-9-]*", name), f"{name} on <{node.tag}>"
                assert not name.startswith("on"), f"{name} on <{node.tag}> of {self.path}"
                assert name != "style", f"style on <{node.tag}> of {self.path}"
                if name in LINKS:
                    assert_own_link(value, self.path, node.tag)


def assert_own_link(value: str, path: str, tag: str) -> None:
    """A link leads to this site; an `<a>` may also lead to the web."""
    parts = urlsplit(urljoin("http://localhost" + path, value))
    assert parts.scheme in ("http", "https", "mailto"), f"{value} on {path}"
    if tag != "a":
        assert parts.netloc == "localhost", f"{value} on {path}"


class Site:
    """The app under test with a client, and shortcuts to fill its store."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = create_app(settings)
        self.app.jinja_env.bytecode_cache = COMPILED
        self.client = self.app.test_client()
        self._store = Store(settings.db)
        self.jobs = self.app.extensions[current.KEY].jobs
        self.searches = self.app.extensions[current.KEY].searches

    def get(self, path: str, **kwargs: Any) -> Answer:
        return Answer(path, self.client.get(path, **kwargs))

    def post(self, path: str, data: Any = None, **kwargs: Any) -> Answer:
        return Answer(path, self.client.post(path, data=data, **kwargs))

    def fragment(self, path: str, target: str, **headers: str) -> Answer:
        """What htmx gets when it asks for an element."""
        return self.get(path, headers={"HX-Request": "true", "HX-Target": target, **headers})

    def submit(
        self, answer: Answer, form: Node, button: str | None = None, **values: Any
    ) -> Answer:
        """Sends a form as a browser without script does, with some fields filled in. `button` is
        the text of the button that is pressed."""
        sent = [(k, v) for k, v in answer.fields(form) if k not in values]
        for name, value in values.items():
            sent += [(name, one) for one in (value if isinstance(value, list) else [value])]
        action = form.attrs.get("action", answer.path)
        if button is not None:
            pressed = form.one("button", **{}) if button == "" else _button(form, button)
            action = pressed.attrs.get("formaction", action)
            if "name" in pressed.attrs:
                sent.append((pressed.attrs["name"], pressed.attrs.get("value", "")))
        if form.attrs.get("method", "get").lower() == "post":
            data: dict[str, list[str]] = {}
            for name, value in sent:
                data.setdefault(name, []).append(value)
            return self.post(action, data)
        return self.get(f"{action}?{urlencode(sent)}")

    def follow(self, answer: Answer) -> Answer:
        """The page that an answer leads to."""
        return self.get(answer.location)

    def store(self) -> Any:
        """The store on a connection of its own, as a context manager. Saves inside share it."""
        return self._store.session()

    def save(self, title: str, body: str = "A body.", **more: Any) -> entries.Entry:
        """Saves an entry; `kind`, `scope`, `tags`, `source`, `now` may be given."""
        source, now = more.pop("source", "tester"), more.pop("now", None)
        values = {"scope": "global", "kind": "fact", "tags": (), **more}
        with self.store() as store:
            draft = entries.draft(title=title, body=body, now=now, **values)
            return entries.save(store, draft, source, now).entry

    def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Runs plain SQL on memory.db, as another program would."""
        with closing(sqlite3.connect(self.settings.db)) as connection, connection:
            return connection.execute(sql, params).fetchall()

    def foreign_entry(self, entry_id: str, **values: Any) -> None:
        """An entry that another program wrote, past all our checks."""
        row = {
            "id": entry_id, "scope": "global", "kind": "fact", "title": entry_id, "body": "b",
            "tags": "[]", "created_at": 1_790_000_000_000, "updated_at": 1_790_000_000_000,
            "expires_at": None, **values,
        }  # fmt: skip
        self.rows(
            f"INSERT INTO entries ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
            *row.values(),
        )

    def foreign_transcript(self, name: str, text: str, folder: str = "notes") -> Path:
        """A transcript that another program wrote."""
        path = self.settings.transcripts_dir / folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="")
        return path

    def export_all(self) -> Answer:
        """Exports every session through the page and waits for the job's end."""
        return self.finished(self.post("/transcripts/export"))

    def finished(self, answer: Answer) -> Answer:
        """The page of a job once it is over."""
        address = answer.location
        assert re.fullmatch(r"/jobs/[0-9a-f]+", address), address
        deadline = time.monotonic() + 20
        while self.jobs.get(address.rsplit("/", 1)[1]).running:
            assert time.monotonic() < deadline, "the job did not end"
            time.sleep(0.005)
        return self.get(address)


def _button(form: Node, text: str) -> Node:
    found = [b for b in form.all("button") if b.text == text]
    assert len(found) == 1, f"{len(found)} buttons “{text}” in {form.text}"
    return found[0]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is over before its page is shown, however slow the machine."""
    for name in ("FIRST_LOOK_S", "FIRST_HITS_S"):
        monkeypatch.setattr(f"webapp.web.searches.{name}", 30.0)


@pytest.fixture
def make_site() -> Iterator[Callable[[Settings], Site]]:
    """Builds the app on given settings; its jobs end with the test."""
    made: list[Site] = []

    def make(settings: Settings) -> Site:
        made.append(Site(settings))
        return made[-1]

    yield make
    for one in made:
        one.jobs.finish()


@pytest.fixture
def site(settings: Settings, newest_db: Path, make_site: Callable[[Settings], Site]) -> Site:
    """The app on an empty store and the newest OpenCode database; nothing is exported yet."""
    return make_site(replace(settings, opencode_db=newest_db))


@pytest.fixture
def app(site: Site) -> Any:
    """The Flask application of `site`."""
    return site.app


@pytest.fixture
def client(site: Site) -> Any:
    """The test client of `site`."""
    return site.client


@pytest.fixture
def hostile(site: Site, newest_db: Path) -> Site:
    """`site` with markup wherever a program or a person can put text: entries, the trash, receipts,
    session titles, transcripts of ours and of other programs."""
    site.save("An entry of ours")
    for number in range(3):
        site.foreign_entry(
            f"hostile-{number}",
            title=f"{MARKUP} {QUOTES} title {number}",
            body=f"{MARKUP}\n\n{QUOTES}\n\n[link](javascript:alert(5)) ![pic](http://evil.example/p.png)"
            f"\n\n<details open ontoggle=alert(6)>\n\n[data](data:text/html,{MARKUP})\n\n"
            f"`{MARKUP}`\n\n```\n{MARKUP}\n```",
            tags=json.dumps([MARKUP, QUOTES, "</select><script>alert(7)</script>"]),
            scope=f"/home/{QUOTES}/{MARKUP}",
            kind=f"{MARKUP}{QUOTES}",
            source=f"{QUOTES}{MARKUP}",
        )
    with site.store() as store:
        entries.forget(store, ["hostile-2"], f"{QUOTES}{MARKUP}")
    title = f"{MARKUP} {QUOTES} session"
    with closing(sqlite3.connect(newest_db)) as connection, connection:
        (first,) = connection.execute(
            "SELECT id FROM session WHERE title LIKE '%alert%title%'"
        ).fetchone()
        connection.execute("UPDATE session SET title = ? WHERE id = ?", (title, first))
    site.export_all()
    site.foreign_transcript(
        "hostile", f"# {title} foreign\nscope: /home/{QUOTES}{MARKUP}\n{MARKUP}\n{QUOTES}\n"
    )
    return site
