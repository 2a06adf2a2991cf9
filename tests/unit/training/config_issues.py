"""Assert the issues of bad run files: codes and paths in the test, texts in one snapshot file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from infra.config import ConfigError
from tests.unit.infra.config_issues import codes
from tests.unit.snapshots import Snapshot

MESSAGES: Final = Path(__file__).parent / "snapshots" / "run_messages.yaml"
_FILE: Final = "training/runs/llama.yaml: "


def check_issues(group: str, case: str, error: ConfigError, expected: str) -> None:
    """Assert that the error has these issues, `PATH: CODE` a line, with the texts on file.

    Paths are without the name of the example's file.
    """
    assert "\n".join(one.removeprefix(_FILE) for one in codes(error)) == expected
    Snapshot(MESSAGES, group).check(case, error.lines)
