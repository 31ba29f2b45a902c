"""`python -m bench`: measures, and prints one table of ratios.

Every row is of this run: ours and its yardstick are run in turn, and their medians compared, so that
a slow or busy machine slows both. It takes minutes and 15 gigabytes of the temporary folder.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from bench import agents, exporting, library, process, reading, searching, sessions
from bench.measure import Row, table
from bench.place import Place

MEASURES: dict[str, Callable[[Place], Iterator[Row]]] = {
    "start": process.start,
    "migration": searching.migration,
    "search": searching.search,
    "window": reading.window,
    "grep": reading.search,
    "list": library.listing,
    "library": library.search,
    "crowd": library.starve,
    "export": exporting.export,
    "sessions": sessions.pages,
    "tools": agents.tools,
    "compaction": agents.compaction,
    "memory": process.memory,
}


def main() -> int:
    """Runs what was asked for. The exit code is 1 if a measurement broke off; it says nothing about
    the aims."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Prints ratios of times.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes")
    parser.add_argument(
        "--only", metavar="NAME", action="append", choices=MEASURES, help=", ".join(MEASURES)
    )
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="work in this new folder and leave it there"
    )
    args = parser.parse_args()
    if args.keep and args.keep.exists():
        parser.error(f"{args.keep} exists already")
    # So that the servers are stopped and the folder is removed then, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    rows: list[Row] = []
    failed = ""
    with ExitStack() as stack:
        if args.keep:
            args.keep.mkdir(parents=True)
            folder = args.keep.resolve()
        else:
            made = tempfile.TemporaryDirectory(prefix="opencode-memory-bench-")
            folder = Path(stack.enter_context(made))
        place = Place(folder, args.quick)
        for name in args.only or MEASURES:
            print(f"{time.monotonic() - begun:4.0f} s  {name} ...", file=sys.stderr, flush=True)
            try:
                rows.extend(MEASURES[name](place))
            except (RuntimeError, OSError) as error:
                failed += f"\n{name} broke off: {error}"
    print(table(rows))
    missed = sum(row.missed for row in rows)
    print(
        f"\n{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python"
        f" {platform.python_version()}, SQLite {sqlite3.sqlite_version};"
        f" {time.monotonic() - begun:.0f} s; aims missed: {missed}{failed}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
