"""Commands that need a cluster say so in one line where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import cli
from tests.unit.snapshots import Snapshot


@pytest.mark.parametrize("command", [["wait", "hello"], ["interrupt", "spot-0"], ["env"]])
def test_a_command_on_no_cluster_is_one_line(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    texts: Snapshot,
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path))
    assert cli.main(command) == 1
    texts.check("no cluster", capsys.readouterr().err.splitlines())
