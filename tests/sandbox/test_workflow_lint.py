"""The GitHub workflows are well formed: actionlint, built from its pinned module, reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from sandbox import toolchain
from sandbox.paths import PROJECT

pytestmark = pytest.mark.sandbox


def actionlint(*arguments: str) -> subprocess.CompletedProcess[str]:
    tools = toolchain.ensure(Console(force_terminal=False), "actionlint")
    return subprocess.run(
        [str(tools.binaries["actionlint"]), "-no-color", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_actionlint_finds_nothing_in_the_workflows() -> None:
    workflows = sorted(map(str, (PROJECT / ".github/workflows").glob("*.yml")))
    done = actionlint(*workflows)
    assert workflows and (done.returncode, done.stdout) == (0, "")


def test_actionlint_detects_an_invalid_expression(tmp_path: Path) -> None:
    wrong = (PROJECT / ".github/workflows/drift.yml").read_text()
    file = tmp_path / "drift.yml"
    file.write_text(wrong.replace("needs.stacks", "needs.staks"))
    done = actionlint(str(file))
    assert done.returncode == 1 and 'property "staks" is not defined' in done.stdout
