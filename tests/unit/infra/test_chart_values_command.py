"""`python -m infra.cli.chart_values` reports errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.cli.chart_values import main


def test_unknown_add_on_is_rejected_with_the_valid_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["kueue", "karpenterr"])
    assert ended.value.code == 2
    assert "got karpenterr; allowed kueue, volcano, " in capsys.readouterr().err


@pytest.mark.parametrize("stderr", ["no matching versions\n\tfor query", ""])
def test_module_download_failure_is_reported_in_one_line(
    stderr: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if stderr:
        go = tmp_path / "go"
        go.write_text(f"#!/bin/sh\nprintf '%s' '{stderr}' >&2\nexit 1\n")
        go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["jobset"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: sigs.k8s.io/jobset@v") and error.count("\n") == 1
    assert "no matching versions for query" in error if stderr else "`go` is not on PATH" in error
