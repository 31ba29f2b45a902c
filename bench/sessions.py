"""The pages of OpenCode's sessions: of very many, and of a very long one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from html import unescape
from pathlib import Path

from bench import data
from bench.exporting import read_bare
from bench.measure import Row, alone, compared, in_turn, timed
from bench.place import Place
from bench.server import Server, settings_of

FEW = 100
BOX = re.compile(r'id="news"[^>]*data-poll="([^"]+)" data-tag="([^"]+)"')


def pages(place: Place) -> Iterator[Row]:
    """The list of many sessions against that of a hundred; the pages of one session among many, and of
    a long one; and what an open page asks."""
    many, few = place.sessions, place.few_sessions
    count = (
        f"{place.session_count:,} sessions, {place.session_count * data.PARTS_A_SESSION:,} parts"
    )
    with Server(many) as server, Server(few) as small:
        for what, path in (
            ("list of {}", "/sessions"), ("list of {} by project", "/sessions?order=project"),
            ("list of {}, words of a title", "/sessions?q=talk+77"),
            ("list of {}, those with errors", "/sessions?errors=1"),
            ("page of a session among {}", f"/sessions/{data.session_name(7)}"),
            ("context of a session among {}", f"/context/{data.session_name(7)}"),
        ):  # fmt: skip
            ours, theirs = in_turn(
                partial(_whole, server, path), partial(_whole, small, path), rounds=7
            )
            yield compared(f"{what.format(count)}; of {FEW}", ours, theirs)
        yield from _open(server, settings_of(many).opencode_databases()[0])
        yield Row(f"peak memory of the server on {count} (MB)", server.peak(), None, "< 150", 150)
    with Server(place.long_session) as server:
        for name in ("sessions", "context"):
            ours, bare = in_turn(
                partial(_whole, server, f"/{name}/{data.SESSION}"),
                partial(_rows, place.session), rounds=5,
            )  # fmt: skip
            yield compared(
                f"/{name} of a session of {place.parts:,} parts; its rows in bare sqlite3",
                ours,
                bare,
            )
        yield Row(
            "peak memory of the server on that session (MB)", server.peak(), None, "< 150", 150
        )


def _whole(server: Server, path: str) -> float:
    return server.get(path).whole


def _rows(db: Path) -> float:
    return timed(lambda: read_bare(db))


def _open(server: Server, db: Path) -> Iterator[Row]:
    """What an open page asks while another session is written, and while nothing is."""
    page = server.get(f"/sessions/{data.session_name(7)}").body.decode()
    found = BOX.search(page)
    if found is None:
        raise RuntimeError("the page of a session does not ask for news")
    poll, tag = unescape(found[1]), found[2]

    def changed() -> float:
        with closing(sqlite3.connect(db)) as connection, connection:
            connection.execute(
                "INSERT INTO message SELECT 'msg_z' || (SELECT max(rowid) FROM message), session_id,"
                " time_created + 1, 0, data FROM message ORDER BY rowid DESC LIMIT 1"
            )
        return server.get(poll).whole

    def same() -> float:
        return server.unchanged(poll, tag).whole

    quiet = in_turn(same, rounds=15)[0]
    busy = in_turn(changed, rounds=15)[0]
    yield alone("what an open page asks, nothing written since (304)", quiet)
    yield alone("what an open page asks, another session written to", busy)
