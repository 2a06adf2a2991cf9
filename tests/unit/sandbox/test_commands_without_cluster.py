"""Commands that need a cluster report its absence in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sandbox import cli, paths
from tests.unit.snapshots import Snapshot


@pytest.mark.parametrize("command", [["interrupt", "spot-0"], ["env"]])
def test_command_without_a_cluster_reports_one_line(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    texts: Snapshot,
) -> None:
    monkeypatch.setenv("SANDBOX_HOME", str(tmp_path))
    assert cli.main(command) == 1
    texts.check("no cluster", capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("file", sorted(paths.PROJECT.glob("Pulumi*.yaml")), ids=lambda f: f.name)
def test_the_engine_can_read_the_project_and_stack_files(file: Path) -> None:
    assert isinstance(yaml.safe_load(file.read_text()), dict)
