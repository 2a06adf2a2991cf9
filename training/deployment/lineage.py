"""Git commit of a deployment."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_UNKNOWN: Final = "unknown"


def git_commit(root: Path) -> str:
    """Return the checkout's commit: 40 hexadecimal digits, or `unknown` outside of git."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return _UNKNOWN
    return done.stdout.strip()
