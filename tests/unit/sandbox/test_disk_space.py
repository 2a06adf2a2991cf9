"""A disk that is too small is found before anything long begins, and named with its remedy."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import bootstrap, cluster, paths
from sandbox.toolchain.ensure import ToolchainError, _require_disk_space
from tests.unit.snapshots import Snapshot


@pytest.fixture(autouse=True)
def a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every file system report half a GiB of free space."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**29))


def one_line(error: BaseException, folder: Path) -> list[str]:
    return [str(error).replace(str(folder), "FOLDER")]


def test_environments_are_not_begun(tmp_path: Path, texts: Snapshot) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("")
    with pytest.raises(bootstrap.BootstrapError, match=rf"^disk of {tmp_path}: ") as caught:
        bootstrap._environment(tmp_path / ".venv", requirements, 8 * 1024**3)
    texts.check("environments", one_line(caught.value, tmp_path))
    assert not (tmp_path / ".venv").exists()


def test_builds_are_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: Snapshot
) -> None:
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path))
    with pytest.raises(ToolchainError, match=rf"^disk of {tmp_path}: ") as caught:
        _require_disk_space()
    texts.check("builds", one_line(caught.value, tmp_path))


def test_the_cluster_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: Snapshot
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/bwrap")
    with pytest.raises(cluster.ClusterError, match=rf"^disk of {tmp_path}/home: ") as caught:
        cluster._check_requirements(paths.State(tmp_path / "home"))
    texts.check("cluster", one_line(caught.value, tmp_path))
