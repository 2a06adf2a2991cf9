"""Snapshot files have no case of a test that was renamed or deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.snapshots import stale_cases

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("area", ["unit/ops", "policy"])
def test_every_snapshot_belongs_to_a_test(area: str) -> None:
    folder = TESTS / area
    files = sorted((folder / "snapshots").glob("*.yaml"))
    assert files
    assert [case for file in files for case in stale_cases(file, folder)] == []


def test_snapshots_of_deleted_tests_are_found(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one() -> None: ...\n")
    file = tmp_path / "texts.yaml"
    file.write_text('test_a: {"test_one[x] (2)": [], test_two: []}\ntest_b: {test_one: []}\n')
    assert stale_cases(file, tmp_path) == ["test_a: test_two", "test_b: test_one"]
