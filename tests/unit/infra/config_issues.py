"""Assert the issues of a bad stack file: codes and paths in the test, texts in one snapshot file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from infra.config import ConfigError, parse
from tests.unit.snapshots import Snapshot

MESSAGES: Final = Path(__file__).parent / "snapshots" / "stack_messages.yaml"


def codes(error: ConfigError) -> list[str]:
    """Return `PATH: CODE` of every issue."""
    return [one if isinstance(one, str) else f"{one.path}: {one.code}" for one in error.issues]


def issues(values: Mapping[str, Any]) -> ConfigError:
    """Return the error of a stack file that has issues."""
    with pytest.raises(ConfigError) as caught:
        parse(values)
    return caught.value


def check_issues(group: str, case: str, values: Mapping[str, Any], expected: str) -> None:
    """Assert that the stack has these issues, `PATH: CODE` a line, with the texts on file."""
    error = issues(values)
    assert "\n".join(codes(error)) == expected
    Snapshot(MESSAGES, group).check(case, error.lines)
