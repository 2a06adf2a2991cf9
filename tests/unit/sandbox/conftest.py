"""Exact texts of the sandbox's messages, one group per test module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.snapshots import Snapshot


@pytest.fixture
def texts(request: pytest.FixtureRequest) -> Snapshot:
    """The messages of the requesting test module."""
    file = Path(__file__).parent / "snapshots" / "messages.yaml"
    return Snapshot(file, request.module.__name__.rpartition(".")[2])
