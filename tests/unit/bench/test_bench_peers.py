"""How a measurement in the peers' environment is asked and answered; nothing is installed here."""

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


def test_the_answer_is_the_last_line_that_a_measurement_prints(modules: Path) -> None:
    (modules / "echo.py").write_text(ECHO)
    assert peers.measure("echo", {"tokens": 7}, 60) == {"tokens": 7}


def test_a_measurement_that_fails_is_one_line_with_its_cause(modules: Path) -> None:
    (modules / "broken.py").write_text("raise ValueError('no such shard')")
    with pytest.raises(peers.PeersError, match=r"broken: exit code 1: ValueError: no such shard"):
        peers.measure("broken", {}, 60)


def test_an_answer_that_is_no_json_is_told(modules: Path) -> None:
    (modules / "chatty.py").write_text("print('done')")
    with pytest.raises(peers.PeersError, match="answered 'done', which is not JSON"):
        peers.measure("chatty", {}, 60)


def test_every_peer_is_pinned_with_hashes() -> None:
    text = peers.REQUIREMENTS.read_text()
    assert peers.versions("accelerate", "torchdata").startswith("accelerate ")
    pins = [line for line in text.splitlines() if "==" in line]
    assert pins and all(line.endswith("\\") for line in pins)
    assert not [line for line in pins if line.startswith(("torch==", "transformers=="))]
