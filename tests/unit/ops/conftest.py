"""Snapshots of the texts that `python -m ops` prints, one file per area."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.snapshots import Text, text_check

SNAPSHOTS = Path(__file__).parent / "snapshots"
AREAS = {"test_why": "why.yaml", "test_ready": "ready.yaml", "test_production": "ready.yaml"}
"""Snapshot file by the beginning of the test module's name."""


@pytest.fixture
def text(request: pytest.FixtureRequest) -> Text:
    module = request.path.stem
    file = next((f for start, f in AREAS.items() if module.startswith(start)), "commands.yaml")
    return text_check(SNAPSHOTS / file, request)
