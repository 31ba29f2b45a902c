"""Search of a large store over HTTP against the same query in bare `sqlite3`; the first start on a
store of the plugin."""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from bench import data
from bench.measure import Row, Times, alone, compared, in_turn, timed
from bench.place import Place
from bench.server import FRAGMENT, Server, settings_of
from webapp.memory.query import SearchQuery
from webapp.memory.search import search as find
from webapp.memory.similar import similar
from webapp.store import Store

RANKED = (
    "SELECT e.* FROM webapp_words w JOIN entries e ON e.rowid = w.rowid"
    " WHERE webapp_words MATCH ? ORDER BY w.rank LIMIT 30"
)
# Two characters make no trigram and unspaced scripts no words, so there is no FTS5 query for them.
LIKE = (
    "SELECT * FROM entries WHERE title LIKE ?1 OR body LIKE ?1 OR tags LIKE ?1"
    " ORDER BY title LIKE ?1 DESC, updated_at DESC LIMIT 30"
)
NEWEST = "SELECT * FROM entries ORDER BY updated_at DESC LIMIT 30"

KINDS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("a rare word", data.RARE, RANKED, (f'"{data.RARE}"',)),
    ("a common word", data.COMMON, RANKED, (f'"{data.COMMON}"',)),
    ("two common words", f"{data.COMMON} {data.ALSO_COMMON}", RANKED,
     (f'"{data.COMMON}" AND "{data.ALSO_COMMON}"',)),
    ("two words, seldom together (OR)", f"{data.RARE} {data.COMMON}", RANKED,
     (f'"{data.RARE}" OR "{data.COMMON}"',)),
    ("a prefix as typed", data.OFTEN[:5], RANKED, (f'"{data.OFTEN[:5]}" *',)),
    ("two CJK characters (LIKE)", data.CJK, LIKE, (f"%{data.CJK}%",)),
    ("no words", "", NEWEST, ()),
)  # fmt: skip

PATIENCE_MS = 5000
"""The plugin's busy_timeout."""


def _asked(server: Server, text: str, fragment: bool) -> float:
    args = {"q": text} if text else {}
    return server.get("/", FRAGMENT if fragment else None, **args).whole


def _both(
    server: Server, small: Server, what: str, text: str,
    query: tuple[sqlite3.Connection, str, Sequence[str]],
) -> list[Row]:  # fmt: skip
    db, sql, params = query
    fragment_cost, whole_cost, fragment, whole, bare = in_turn(
        lambda: _asked(small, "", True),
        lambda: _asked(small, "", False),
        lambda: _asked(server, text, True),
        lambda: _asked(server, text, False),
        lambda: timed(lambda: db.execute(sql, params).fetchall()),
        rounds=15, warm=3,
    )  # fmt: skip
    return [
        compared(f"search, {what}: fragment", fragment, bare, 3, fragment_cost.ms),
        compared(f"search, {what}: whole page", whole, bare, 3, whole_cost.ms),
    ]


def search(place: Place) -> Iterator[Row]:
    """Several kinds of queries, as the fragment that htmx asks for and as the whole page."""
    few = place.home("few")
    data.make_store(settings_of(few).db, 30)
    with Server(few) as small, Server(place.home("empty")) as empty, Server(place.full) as server:
        yield from _page_costs(small, empty)
        with closing(sqlite3.connect(settings_of(place.full).db)) as db:
            for what, text, sql, params in KINDS:
                yield from _both(server, small, what, text, (db, sql, params))
            what, text, sql, params = KINDS[1]
            with _agent(settings_of(place.full).db, pause=0.1):
                what = f"{what}, 10 entries written a second"
                yield from _both(server, small, what, text, (db, sql, params))
    yield _close_entries(settings_of(place.full).db)


def _close_entries(path: Path) -> Row:
    """What is close to a draft, against a search of a common word, both without a page."""
    with Store(path).session() as store:
        ((scope, title, body),) = store.rows(
            "SELECT scope, title, body FROM entries WHERE length(body) > 400 LIMIT 1"
        )
        ours, search = in_turn(
            lambda: timed(lambda: similar(store, scope, f"{title} again", f"{body} And more.")),
            lambda: timed(lambda: find(store, SearchQuery(data.COMMON))),
            rounds=15, warm=3,
        )  # fmt: skip
    return compared("close entries of a draft; a search of a common word", ours, search, 1)


def _page_costs(small: Server, empty: Server) -> list[Row]:
    names = ("30 hits, fragment", "30 hits, whole page", "no entries, whole page")
    found = in_turn(
        lambda: _asked(small, "", True), lambda: _asked(small, "", False),
        lambda: _asked(empty, "", False), rounds=21, warm=5,
    )  # fmt: skip
    return [alone(f"page cost: {name}", times) for name, times in zip(names, found, strict=True)]


@contextmanager
def _agent(path: Path, pause: float) -> Iterator[tuple[Times, list[str]]]:
    """Another program that writes entries the way the plugin does, and waits as long. Yields how
    long its writes took, and the errors that they met."""
    stop = threading.Event()
    times, errors = Times(), []

    def work() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
            while not stop.wait(pause):
                start = time.perf_counter()
                at = int(time.time() * 1000)
                try:
                    db.execute(
                        "INSERT INTO entries (id, scope, kind, title, body, created_at, updated_at)"
                        " VALUES (?, 'global', 'fact', ?, 'written meanwhile', ?, ?)",
                        (str(uuid.uuid4()), f"note {at}", at, at),
                    )
                except sqlite3.OperationalError as error:
                    errors.append(str(error))
                times.seconds.append(time.perf_counter() - start)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield times, errors
    finally:
        stop.set()
        thread.join()


def migration(place: Place) -> Iterator[Row]:
    """The first start on a store of the plugin, which goes on writing meanwhile."""
    home = place.home("migration")
    path = place.copy_store(home)
    with _agent(path, pause=0.02) as (times, errors), Server(home) as server:
        server.get("/")
        started = time.perf_counter() - server.started
    refused = f", {len(errors)} of its writes refused" if errors else ""
    yield Row(
        f"first start on {place.entries:,} entries of the plugin, to the first page", started * 1000
    )
    yield Row(
        f"longest wait of the plugin meanwhile{refused}", max(times.seconds) * 1000,
        aim=f"< {PATIENCE_MS:,}", limit=PATIENCE_MS, spread=times.spread,
    )  # fmt: skip
