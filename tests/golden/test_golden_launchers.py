"""Each launcher's manifests for the example runs."""

from __future__ import annotations

import pytest

from tests.golden.conftest import Compare
from tests.golden.example_runs import LAUNCHERS, platform, run_of
from training.deployment.job import manifests

_COMMIT = "c" * 40


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_each_launcher_renders_its_committed_manifests(launcher: str, golden: Compare) -> None:
    rendered = manifests(run_of(launcher), platform(), _COMMIT)
    golden(f"launchers/{launcher}.yaml", rendered)
