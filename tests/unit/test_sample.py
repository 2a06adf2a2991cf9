"""`--sample`: some of the long files run, the same in each worker; over many seeds, all do."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import sample

FILES = [Path(f"test_{name}.py") for name in "abcdefghijklmn"]


def test_a_tenth_is_drawn_whatever_the_order() -> None:
    assert len(sample(FILES, 1)) == 2
    assert sample(FILES, 1) == sample(reversed(FILES), 1)
    assert sample([], 1) == set()


def test_every_file_is_drawn_by_some_seed() -> None:
    assert set().union(*(sample(FILES, seed) for seed in range(50))) == set(FILES)
