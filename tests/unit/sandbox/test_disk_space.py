"""A disk that is too small is found before anything long begins, and named with its remedy."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import bootstrap, cluster, paths
from sandbox.toolchain.ensure import ToolchainError, _require_disk_space


@pytest.fixture(autouse=True)
def a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a GiB is free, wherever one looks."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**29))


def test_environments_are_not_begun(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("")
    with pytest.raises(bootstrap.BootstrapError, match=r"0\.5 GiB free, .* need 8 GiB; make room"):
        bootstrap._environment(tmp_path / ".venv", requirements)
    assert not (tmp_path / ".venv").exists()


def test_builds_are_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"0\.5 GiB free, .* need 13 GiB; .* TRAINYARD_CACHE"):
        _require_disk_space()


def test_the_cluster_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/bwrap")
    with pytest.raises(cluster.ClusterError, match=r"512 MiB free, .* 1024 MiB; .* SANDBOX_HOME"):
        cluster._check_requirements(paths.State(tmp_path / "home"))
