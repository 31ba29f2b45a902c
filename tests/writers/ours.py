"""A second process of our own: for each line `DATABASE TITLE` on its input it opens the store anew
and saves an entry, then answers "ok"."""

from __future__ import annotations

import sys
from pathlib import Path

from webapp.memory import entries
from webapp.store import Store

print("ready", flush=True)
for line in sys.stdin:
    database, title = line.rstrip("\n").split("\t")
    with Store(Path(database)).session() as store:
        draft = entries.draft(scope="global", kind="fact", title=title, body="saved at once")
        entries.save(store, draft, "ours")
    print("ok", flush=True)
