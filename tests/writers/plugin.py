"""Stands in for the npm plugin: a process that creates memory.db and writes rows in its layout.

Usage: plugin.py DATABASE COUNT GO. It creates the layout, says "ready", waits for the file GO, and
then writes COUNT rows, each in a transaction of its own.
"""

from __future__ import annotations

import sqlite3
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path


def main(database: str, count: int, go: Path) -> None:
    """Writes the rows."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # no fsync a row, for the tests' sake
        connection.executescript(Path(__file__).with_name("layout.sql").read_text("utf-8"))
        print("ready", flush=True)
        while not go.exists():
            time.sleep(0.002)
        for number in range(count):
            connection.execute(
                "INSERT INTO entries (id, scope, kind, title, body, tags, created_at, updated_at,"
                " expires_at) VALUES (?, 'global', 'fact', ?, ?, '[\"plugin\"]', ?, ?, NULL)",
                (str(uuid.uuid4()), f"theirs {number}", f"plugin row {number}", number, number),
            )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
