"""`python -m infra.cli.chart_values` says in one line why it read nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.cli.chart_values import main


def test_a_name_without_a_known_chart_is_refused_with_those_that_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["kueue", "karpenterr"])
    assert ended.value.code == 2
    assert "got karpenterr; allowed kueue, volcano, " in capsys.readouterr().err


@pytest.mark.parametrize("said", ["no matching versions\n\tfor query", ""])
def test_a_module_that_cannot_be_had_is_one_line(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if said:
        go = tmp_path / "go"
        go.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nexit 1\n")
        go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["jobset"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: sigs.k8s.io/jobset@v") and error.count("\n") == 1
    assert "no matching versions for query" in error if said else "`go` is not on PATH" in error
