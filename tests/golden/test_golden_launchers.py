"""Each launcher's manifests for the example runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.conftest import as_text, assert_same, read_folder, write_folder
from tests.golden.example_runs import LAUNCHERS, platform, run_of
from tests.golden.manifest_files import expanded, folded
from training.deployment.job import manifests

_COMMIT = "c" * 40


def _rendered() -> dict[str, tuple[str, list[dict[str, Any]]]]:
    runs = {launcher: run_of(launcher) for launcher in LAUNCHERS}
    return {name: (run.run_id, manifests(run, platform(), _COMMIT)) for name, run in runs.items()}


@pytest.fixture(scope="module")
def committed(request: pytest.FixtureRequest) -> dict[str, list[dict[str, Any]]]:
    if request.config.getoption("--update-golden"):
        files = folded(_rendered())
        write_folder("launchers", {name: as_text(docs) for name, docs in files.items()})
    return read_folder("launchers")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_launcher_renders_its_committed_manifests(
    launcher: str, committed: dict[str, list[dict[str, Any]]]
) -> None:
    assert_same(launcher, expanded(committed)[launcher], _rendered()[launcher][1])


def test_committed_files_are_what_a_refresh_writes(
    committed: dict[str, list[dict[str, Any]]],
) -> None:
    assert committed == folded(_rendered())
