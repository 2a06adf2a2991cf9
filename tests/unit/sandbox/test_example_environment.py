"""The layer of the examples' packages: what it installs, and what its folder depends on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sandbox import example_environment, paths
from sandbox.example_environment import ensure, folder, is_used, layer
from sandbox.reporting import SandboxError
from training.source import digest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with pins, and an empty cache."""
    monkeypatch.setenv("TRAINYARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "examples").mkdir()
    (tmp_path / "requirements.txt").write_text("a==1 \\\n    --hash=sha256:00\n")
    (tmp_path / "examples" / "requirements.txt").write_text("b==2 \\\n    --hash=sha256:11\n")
    return tmp_path


def test_a_layer_has_the_pins_that_the_project_lacks_with_their_hashes() -> None:
    base = "a==1 \\\n    --hash=sha256:00\n    # via x\nb==2 \\\n    --hash=sha256:11\n"
    wanted = "a==1 \\\n    --hash=sha256:00\nb==3 \\\n    --hash=sha256:22\n    # via y\n"
    assert layer(wanted, base) == "b==3 \\\n    --hash=sha256:22\n"


def test_the_committed_layer_shares_pytorch_with_the_project() -> None:
    wanted = (paths.PROJECT / example_environment.REQUIREMENTS).read_text()
    added = layer(wanted, (paths.PROJECT / "requirements.txt").read_text())
    names = {line.partition("==")[0] for line in added.splitlines() if "==" in line}
    assert {"deepspeed", "lightning", "peft", "torchtitan"} <= names
    assert not names & {"torch", "triton", "transformers", "numpy", "safetensors"}
    assert not [name for name in names if name.startswith("nvidia-")]


@pytest.mark.parametrize("file", ["requirements.txt", "examples/requirements.txt"])
def test_changed_pins_name_another_folder(project: Path, file: str) -> None:
    before = folder(project)
    (project / file).write_text("c==3 \\\n    --hash=sha256:22\n")
    assert folder(project) != before


def test_it_is_installed_for_stacks_whose_runs_use_the_image(project: Path) -> None:
    (project / "training" / "runs").mkdir(parents=True)
    (project / "training" / "runs" / "hello.yaml").write_text("name: hello\nimage: trainer\n")
    (project / "examples" / "run.yaml").write_text("name: tuning\nimage: examples\n")
    assert not is_used(["hello", "missing"], project)
    assert is_used(["hello", "examples/run.yaml"], project)


def test_the_reason_of_a_failed_installation_is_reported_and_not_the_hint(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "error: no answer\n  cause: UnknownIssuer\n\nhint: use --system-certs\n"
    failed = subprocess.CompletedProcess([], 1, "", lines)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SandboxError, match=r"not installed: cause: UnknownIssuer; "):
        ensure(lambda _: None, project)


def test_a_failed_installation_is_one_line_and_is_tried_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for _ in range(2):
        with pytest.raises(SandboxError, match=r"^examples/requirements.txt: not ins.*$"):
            ensure(lambda _: None, project)


def test_only_the_image_of_the_examples_follows_their_pins(project: Path) -> None:
    before = digest(project, "trainer"), digest(project, "examples")
    (project / "examples" / "requirements.txt").write_text("b==3 \\\n    --hash=sha256:22\n")
    assert digest(project, "trainer") == before[0]
    assert digest(project, "examples") != before[1]
