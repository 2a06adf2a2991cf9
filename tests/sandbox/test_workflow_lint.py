"""The GitHub workflows are well formed: actionlint, built from its pinned module, reads them."""

from __future__ import annotations

import subprocess

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
