"""Assert the issues of bad run files: codes and paths in the test, texts in one snapshot file."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from infra.config import ConfigError
from tests.unit.infra.config_issues import codes
from tests.unit.snapshots import Snapshot

MESSAGES: Final = Path(__file__).parent / "snapshots" / "run_messages.yaml"
_FILE: Final = "training/runs/llama.yaml: "


def edited(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which each `outer.inner` key has its value; `...` removes the key."""
    found: dict[str, Any] = copy.deepcopy(dict(document))
    for path, value in changes.items():
        *outer, last = path.split(".")
        place = found
        for key in outer:
            place = place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return found


def check_issues(group: str, case: str, error: ConfigError, expected: str) -> None:
    """Assert that the error has these issues, `PATH: CODE` a line, with the texts on file.

    Paths are without the name of the example's file.
    """
    assert "\n".join(one.removeprefix(_FILE) for one in codes(error)) == expected
    Snapshot(MESSAGES, group).check(case, error.lines)
