"""The export of a long session against the same rows read with bare `sqlite3`."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench import data
from bench.measure import Row, compared, in_turn, timed
from bench.place import Place
from bench.server import ROOT, settings_of
from webapp.opencode import find_session
from webapp.settings import Settings
from webapp.store import Store
from webapp.transcripts.export import export as export_session

PEAK = (
    "import resource, sys; from pathlib import Path; from bench import exporting;"
    " exporting.once(Path(sys.argv[1]), Path(sys.argv[2]));"
    " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def export(place: Place) -> Iterator[Row]:
    """The first export, and one after which a message was added."""
    db = place.session
    what = f"{place.parts:,} parts"
    home = place.home("exporting")

    def first() -> float:
        shutil.rmtree(home)
        home.mkdir()
        return once(db, home)

    def again() -> float:
        with closing(sqlite3.connect(db)) as connection, connection:
            connection.execute(
                "INSERT INTO message SELECT 'msg_z' || (SELECT count(*) FROM message), session_id,"
                " (SELECT max(time_created) + 1 FROM message), 0, data FROM message LIMIT 1"
            )
        return once(db, home)

    anew, grown, bare = in_turn(first, again, lambda: timed(lambda: read_bare(db)), rounds=5)
    yield compared(f"export of {what}; the rows in bare sqlite3", anew, bare, 3)
    yield compared(f"export of one message more, {what}; the rows in bare sqlite3", grown, bare, 3)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(db), str(place.home("exporting-peak"))],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    unit = 1 if sys.platform == "darwin" else 1024
    peak = int(done.stdout) * unit / 1e6
    yield Row(f"peak memory of an export of {what} (MB)", peak, None, "< 150", 150)


def once(db: Path, home: Path) -> float:
    """Seconds that an export into a data folder of its own takes."""
    settings: Settings = replace(
        settings_of(home), data_dir=home, db=home / "memory.db", opencode_db=db
    )
    session, _ = find_session([db], data.SESSION)
    assert session is not None
    with Store(settings.db).session() as store:
        return timed(lambda: export_session(store, settings, session))


def read_bare(db: Path) -> int:
    """The same rows in the same order, and nothing else."""
    size = 0
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        for message, text in connection.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id",
            (data.SESSION,),
        ):
            size += len(text)
            for (part,) in connection.execute(
                "SELECT data FROM part WHERE message_id = ? ORDER BY id", (message,)
            ):
                size += len(part)
    return size
