"""Requests and results of measurements in the peers' environment; nothing is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.trainer import peers

ECHO = "import json, sys; print('noise'); print(json.dumps(json.load(sys.stdin)))"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules can be measured, by this very interpreter."""
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "python", lambda: Path(sys.executable))
    return tmp_path


def test_the_result_is_the_last_printed_line(modules: Path) -> None:
    (modules / "echo.py").write_text(ECHO)
    assert peers.measure("echo", {"tokens": 7}, 60) == {"tokens": 7}


def test_a_failed_measurement_is_reported_in_one_line(modules: Path) -> None:
    (modules / "broken.py").write_text("raise ValueError('no such shard')")
    with pytest.raises(peers.PeersError, match=r"broken: exit code 1: ValueError: no such shard"):
        peers.measure("broken", {}, 60)


def test_a_result_that_is_not_json_is_reported(modules: Path) -> None:
    (modules / "chatty.py").write_text("print('done')")
    with pytest.raises(peers.PeersError, match="answered 'done', which is not JSON"):
        peers.measure("chatty", {}, 60)


def test_every_peer_is_pinned_with_hashes() -> None:
    text = peers.REQUIREMENTS.read_text()
    assert peers.versions("accelerate", "torchdata").startswith("accelerate ")
    pins = [line for line in text.splitlines() if "==" in line]
    assert pins and all(line.endswith("\\") for line in pins)
    assert not [line for line in pins if line.startswith(("torch==", "transformers=="))]
