"""`dump` and `import` on the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any


def test_entries_go_into_a_file_and_come_back(cli: Any, tmp_path: Path) -> None:
    cli.save("Kept")
    for name in ("entries.jsonl", "entries.md"):
        file = tmp_path / name
        assert "1 entries are in" in cli.done("dump", str(file), "--everywhere").out
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert cli("dump", str(file)).code == 2
        assert "1 same" in cli.done("import", str(file)).out
        told = json.loads(cli.done("import", str(file), "--into", "global", "--json").out)
        assert told["counts"]["new"] + told["counts"]["same"] == 1
    file.write_text(file.read_text().replace("## Kept", "## Other"))
    shown = cli.done("import", str(file)).out
    assert "1 new" in shown and "Nothing was written." in shown
    fingerprint = shown.split("--apply ")[1].strip()
    refused = cli("import", str(file), "--apply", "000000000000")
    assert refused.code == 1 and fingerprint in refused.out
    assert "1 new, 0 rewritten" in cli.done("import", str(file), "--apply", fingerprint).out
    assert "Other" in cli.done("list", "--everywhere").out
    assert cli("import", str(tmp_path / "none")).code == 2
    assert cli("import", str(tmp_path)).code == 2
