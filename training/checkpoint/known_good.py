"""The mark on the newest checkpoint that a start of the run has loaded whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

_FILE = "last-known-good.json"


def mark_known_good(root: Path, step: int) -> None:
    """Remember `step` in the checkpoints folder `root`; a reader sees the old mark or this one."""
    fresh = root / f".{_FILE}-{os.getpid()}"
    fresh.write_text(json.dumps({"step": step}) + "\n", encoding="utf-8")
    fresh.replace(root / _FILE)


def last_known_good(root: Path) -> int | None:
    """The marked step; None when nothing was ever loaded from here."""
    try:
        step = json.loads((root / _FILE).read_text(encoding="utf-8"))["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None
