"""Snapshots of the texts that `python -m ops` prints, one file per area."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ops import __main__ as front_door
from tests.unit.snapshots import Text, text_check

SNAPSHOTS = Path(__file__).parent / "snapshots"
AREAS = {"test_why": "why.yaml", "test_ready": "ready.yaml", "test_production": "ready.yaml"}
"""Snapshot file by the beginning of the test module's name."""


@pytest.fixture
def text(request: pytest.FixtureRequest) -> Text:
    module = request.path.stem
    file = next((f for start, f in AREAS.items() if module.startswith(start)), "commands.yaml")
    return text_check(SNAPSHOTS / file, request)


class Cli:
    """`trainyard` on a cluster in memory; `out` and `err` are what the last command printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.delenv("PROMETHEUS_URL", raising=False)
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.out = self.err = ""

    def __call__(self, cluster: Any, *argv: str) -> int:
        """Return the exit code."""
        self._monkeypatch.setattr(front_door, "Cluster", lambda *_: cluster)
        self._capsys.readouterr()
        code = front_door.main(list(argv))
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)
