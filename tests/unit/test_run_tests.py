"""A test that fails beside others has a second chance, alone; a test that is broken fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import run_tests

PASSES = "def test_passes():\n    pass\n"
BROKEN = "def test_broken():\n    assert False\n"
LATE = """
from pathlib import Path

def test_late():
    before = Path("before").exists()
    Path("before").touch()
    assert before
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_passes.py").write_text(PASSES)
    return tmp_path


def run(folder: Path, strict: bool = False) -> int:
    return run_tests.run([str(folder)], folder / "cache", strict)


MEND = "Tests to mend, failed with others and passed alone:"


def test_a_test_that_passes_alone_is_named_with_its_seed(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_TEST_SEED", "17")
    (folder / "test_late.py").write_text(LATE)
    assert run(folder) == 0
    named = "\n  TRAINYARD_TEST_SEED=17 python -m pytest test_late.py::test_late"
    assert f"{MEND}{named}" in capfd.readouterr().out


def test_it_fails_the_nightly_run(folder: Path) -> None:
    (folder / "test_late.py").write_text(LATE)
    assert run(folder, strict=True) == 1


def test_a_broken_test_fails_twice(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "test_late.py").write_text(LATE)
    (folder / "test_broken.py").write_text(BROKEN)
    assert run(folder) == 1
    printed = capfd.readouterr().out
    assert "test_broken.py::test_broken: failed twice" in printed
    assert "python -m pytest test_late.py::test_late" in printed.partition(MEND)[2]


def test_what_fails_in_many_places_is_not_tried_again(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(run_tests.AGAIN + 1):
        (folder / f"test_broken_{number}.py").write_text(BROKEN)
    assert run(folder) == 1
    assert "once more" not in capfd.readouterr().out


def test_tests_that_cannot_be_read_are_not_tried_again(folder: Path) -> None:
    (folder / "test_wrong.py").write_text("import nothing_of_this_name\n")
    assert run(folder) == 2
