"""Tests with the marker `standin` are skipped where an official plugin of the Kubernetes provider is on PATH."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox import paths, plugins
from tests.sandbox.conftest import skip_on_the_official_plugin


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.State:
    """A sandbox with the stand-in, on a machine without plugins."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    made = paths.State(tmp_path / "home")
    place = plugins.KUBERNETES.place(made)
    place.mkdir(parents=True)
    plugins.write_launcher(place / plugins.KUBERNETES.binary, *plugins.KUBERNETES.standin)
    return made


@pytest.fixture
def official_on_path(state: paths.State, tmp_path: Path) -> None:
    binary = tmp_path / "path" / plugins.KUBERNETES.binary
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)


def request_of(state: paths.State, *markers: str, cluster: bool = True) -> Any:
    """The request of a test with these markers."""
    return SimpleNamespace(
        node=SimpleNamespace(get_closest_marker=lambda name: name in markers or None),
        fixturenames=["cluster"] if cluster else [],
        getfixturevalue=lambda _: SimpleNamespace(state=state),
    )


@pytest.mark.usefixtures("official_on_path")
def test_a_marked_test_is_skipped_with_the_official_plugin(state: paths.State) -> None:
    with pytest.raises(pytest.skip.Exception, match="stand-in"):
        skip_on_the_official_plugin(request_of(state, "standin"))


@pytest.mark.usefixtures("official_on_path")
def test_other_tests_run_with_the_official_plugin(state: paths.State) -> None:
    skip_on_the_official_plugin(request_of(state, "full_only"))
    skip_on_the_official_plugin(request_of(state, "standin", cluster=False))


def test_a_marked_test_runs_on_the_stand_in(state: paths.State) -> None:
    skip_on_the_official_plugin(request_of(state, "standin"))
