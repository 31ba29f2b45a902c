"""Where a run happens: its folders, the data in them, and how large they are."""

from __future__ import annotations

import functools
import os
import shutil
from pathlib import Path

from bench import data
from bench.server import settings_of
from webapp.settings import Settings


class Place:
    """A run in `folder`, at full size or a tenth of it. Data is made when first asked for."""

    def __init__(self, folder: Path, quick: bool) -> None:
        self.folder = folder
        self.entries = 10_000 if quick else 100_000
        self.bytes = 100_000_000 if quick else 1_000_000_000
        self.line = 100_000 if quick else 1_000_000
        self.size = f"{self.bytes / 1e9:g} GB"
        self.library_bytes = 1_000_000_000 if quick else 10_000_000_000
        self.files = 2_000 if quick else 20_000
        self.parts = 5_000 if quick else 50_000
        self.session_count = 5_000 if quick else 50_000

    def home(self, name: str) -> Path:
        """A home folder, empty at first."""
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    @functools.cached_property
    def public_store(self) -> Path:
        """The large store as the plugin leaves it. Copy it; it stays as it is."""
        path = self.folder / "public.db"
        data.make_store(path, self.entries)
        return path

    def copy_store(self, home: Path) -> Path:
        """Puts a copy of the large store where the program looks for one in that home."""
        target = settings_of(home).db
        target.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        shutil.copyfile(self.public_store, target)
        return target

    @functools.cached_property
    def full(self) -> Path:
        """A home with the large store."""
        home = self.home("full")
        self.copy_store(home)
        return home

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of a home with a large transcript in a small store."""
        return settings_of(self.home("record"))

    @functools.cached_property
    def transcript(self) -> data.Text:
        """The large transcript."""
        return data.make_transcript(self.settings, self.bytes)

    @property
    def record(self) -> Path:
        """A home with the large transcript."""
        assert self.transcript.size
        return self.home("record")

    @functools.cached_property
    def foreign(self) -> Path:
        """A home where the large transcript is a file that another program wrote: no index row, no
        marks."""
        home = self.home("foreign")
        path = settings_of(home).transcripts_dir / "project" / f"{data.SESSION}.md"
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        os.link(self.transcript.path, path)
        return home

    @functools.cached_property
    def library(self) -> Path:
        """A home with a large library."""
        home = self.home("library")
        free = shutil.disk_usage(home).free
        if free < 1.3 * self.library_bytes:
            raise RuntimeError(
                f"the library takes {1.3 * self.library_bytes / 1e9:.0f} GB and {free / 1e9:.0f} are"
                " free; name another folder with --keep or TMPDIR, or use --quick"
            )
        data.make_library(settings_of(home), self.library_bytes, self.files)
        return home

    @functools.cached_property
    def session(self) -> Path:
        """A database of OpenCode's with one long session."""
        path = self.folder / "long.db"
        data.make_session(path, self.parts)
        return path

    @functools.cached_property
    def long_session(self) -> Path:
        """A home whose OpenCode has that session alone."""
        return self._opencode("long-session", self.session)

    @functools.cached_property
    def sessions(self) -> Path:
        """A home whose OpenCode has very many sessions."""
        path = self.folder / "sessions.db"
        data.make_sessions(path, self.session_count)
        return self._opencode("sessions", path)

    @functools.cached_property
    def few_sessions(self) -> Path:
        """A home whose OpenCode has a hundred sessions of the same kind."""
        path = self.folder / "few-sessions.db"
        data.make_sessions(path, 100)
        return self._opencode("few-sessions", path)

    def _opencode(self, name: str, database: Path) -> Path:
        home = self.home(name)
        target = settings_of(home).opencode_dir / "opencode.db"
        target.parent.mkdir(parents=True)
        os.link(database, target)
        return home
