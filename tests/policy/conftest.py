"""Snapshots of the messages of the policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.snapshots import Text, text_check


@pytest.fixture
def text(request: pytest.FixtureRequest) -> Text:
    return text_check(Path(__file__).parent / "snapshots" / "messages.yaml", request)
