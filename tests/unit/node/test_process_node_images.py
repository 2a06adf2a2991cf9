"""Images that are folders: snapshots of the trainer's sources by digest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sandbox import paths
from sandbox.node.images import ImageError, python_roots, resolve_image, snapshot
from training.source import digest


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "trainer").mkdir(parents=True)
    (folder / "training").mkdir()
    (folder / "trainer" / "__init__.py").write_text("")
    (folder / "trainer" / "__main__.py").write_text("print('v1')\n")
    (folder / "trainer" / "start.bash").write_text("exec true")
    (folder / "training" / "notes.txt").write_text("not part of the image")
    (folder / "requirements.txt").write_text("torch==0\n")
    shutil.copy(paths.PROJECT / "training" / "source.py", folder / "training" / "source.py")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> paths.State:
    return paths.State(tmp_path / "state")


def test_snapshot_contains_the_files_of_the_digest(project: Path, state: paths.State) -> None:
    wanted = digest(project)
    folder = snapshot(wanted, state, project)
    assert folder == state.images / f"sha256-{wanted}"
    assert digest(folder) == wanted
    assert (folder / "trainer" / "start.bash").is_file()
    assert not list(folder.rglob("notes.txt"))


def test_a_snapshot_stays_as_it_was_when_the_sources_change(
    project: Path, state: paths.State
) -> None:
    wanted = digest(project)
    snapshot(wanted, state, project)
    (project / "trainer" / "__main__.py").write_text("print('v2')\n")
    folder = snapshot(wanted, state, project)
    assert "v1" in (folder / "trainer" / "__main__.py").read_text()


def test_sources_with_another_digest_are_rejected_without_leftovers(
    project: Path, state: paths.State
) -> None:
    with pytest.raises(ImageError, match=f"working tree's digest is sha256:{digest(project)[:12]}"):
        snapshot("0" * 64, state, project)
    assert list(state.images.iterdir()) == []


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("sandbox.trainyard.dev/host", "not pinned"),
        ("sandbox.trainyard.dev/host@sha256:12", "not pinned"),
        ("nvcr.io/nvidia/pytorch@sha256:" + "0" * 64, "process nodes pull nothing"),
        ("sandbox.trainyard.dev/other@sha256:" + "0" * 64, "process nodes pull nothing"),
        ("registry.k8s.io/kueue/kueue:v0.1.0", r"valid: v0\.\d+\.\d+; use it"),
    ],
)
def test_unsupported_images_are_rejected_by_name(
    state: paths.State, reference: str, message: str
) -> None:
    with pytest.raises(ImageError, match=message):
        resolve_image(reference, state)


def test_the_interpreter_is_followed_through_its_links(tmp_path: Path) -> None:
    real = tmp_path / "pythons" / "3.11.9"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "python").touch()
    (tmp_path / "pythons" / "3.11").symlink_to(real)
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(tmp_path / "pythons" / "3.11" / "bin" / "python")
    roots = python_roots([venv], tmp_path / "home")
    assert roots == [venv, tmp_path / "pythons" / "3.11", real]


def test_a_python_whose_folder_is_the_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    with pytest.raises(ImageError, match="which containers must not see"):
        python_roots([tmp_path], tmp_path)
