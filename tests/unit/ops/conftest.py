"""Snapshots of the texts that `python -m ops` prints, one file per area."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ops import github_server
from tests.unit.snapshots import Text, text_check

SNAPSHOTS = Path(__file__).parent / "snapshots"
AREAS = {"test_why": "why.yaml", "test_ready": "ready.yaml", "test_production": "ready.yaml"}
"""Snapshot file by the beginning of the test module's name."""


@pytest.fixture
def text(request: pytest.FixtureRequest) -> Text:
    module = request.path.stem
    file = next((f for start, f in AREAS.items() if module.startswith(start)), "commands.yaml")
    return text_check(SNAPSHOTS / file, request)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[github_server.Server]:
    """GitHub's API, as a workflow's variables name it."""
    with github_server.serving() as state:
        monkeypatch.setenv("GITHUB_API_URL", state.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", "acme/trainyard")
        monkeypatch.setenv("GITHUB_TOKEN", github_server.TOKEN)
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        yield state
