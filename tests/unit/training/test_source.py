"""The digest that stands for an image: it follows the trainer's source and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from training import source


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with a trainer, a launcher, a run and a config."""
    for name, text in {
        "requirements.txt": "torch==2.15.0\n",
        "training/spec.py": "A = 1\n",
        "trainyard/notice.py": "A = 2\n",
        "trainer/loop.py": "B = 2\n",
        "training/launchers/job.py": "C = 3\n",
        "training/plan.py": "C = 3\n",
        "training/job.py": "D = 4\n",
        "training/runs/hello.yaml": "name: hello\n",
        "training/configs/hello.yaml": "steps: 1\n",
        "trainer/__pycache__/loop.py": "stale\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    ["trainer/loop.py", "trainyard/notice.py", "requirements.txt"],
)
def test_an_edit_of_the_trainer_makes_a_new_image(project: Path, name: str) -> None:
    before = source.digest(project)
    (project / name).write_text("changed\n")
    assert source.digest(project) != before


@pytest.mark.parametrize(
    "name",
    [
        "training/launchers/job.py",
        "training/plan.py",
        "training/job.py",
        "training/runs/hello.yaml",
        "training/configs/hello.yaml",
        "trainer/__pycache__/loop.py",
        "README.md",
    ],
)
def test_an_edit_of_anything_else_does_not(project: Path, name: str) -> None:
    before = source.digest(project)
    (project / name).write_text("changed\n")
    assert source.digest(project) == before


def test_content_that_moves_between_files_makes_a_new_image(project: Path) -> None:
    (project / "trainer/a.py").write_text("xy")
    (project / "trainer/b.py").write_text("")
    before = source.digest(project)
    (project / "trainer/a.py").write_text("x")
    (project / "trainer/b.py").write_text("y")
    assert source.digest(project) != before


def test_a_digest_is_64_hexadecimal_digits_wherever_the_project_lies(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("elsewhere") / "project"
    before = source.digest(project)
    project.rename(copy)
    assert source.digest(copy) == before
    assert len(before) == 64 and int(before, 16) >= 0
