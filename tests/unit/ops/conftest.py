"""Snapshots of the texts that `python -m ops` prints, one file per area."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.texts import Text
from tests.unit.snapshots import Snapshot

SNAPSHOTS = Path(__file__).parent / "snapshots"
AREAS = {"test_why": "why.yaml", "test_ready": "ready.yaml", "test_checklist": "ready.yaml"}
"""Snapshot file by the beginning of the test module's name."""


@pytest.fixture
def text(request: pytest.FixtureRequest) -> Text:
    module = request.path.stem
    file = next((f for start, f in AREAS.items() if module.startswith(start)), "commands.yaml")
    snapshot, numbers = Snapshot(SNAPSHOTS / file, module), count(1)

    def check(value: Any) -> None:
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        lines = items.splitlines() if isinstance(items, str) else [str(line) for line in items]
        number = next(numbers)
        snapshot.check(request.node.name + (f" ({number})" if number > 1 else ""), lines)

    return check
