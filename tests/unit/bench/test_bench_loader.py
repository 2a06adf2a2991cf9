"""What the benchmark of the loader concludes from its measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.trainer import loader_files
from bench.trainer.loader import (
    DEPTHS,
    RESUMABLE,
    RESUME_POINTS,
    TITLES,
    depth_exponent,
    identical_across_world_sizes,
    resume_times_by_depth,
    table,
)

SIZES = {"tokens": 300_000, "length": 64, "batch": 8, "rounds": 2, "ms": 10}


def section(gather: float, *, exact: bool = True) -> str:
    speeds = {arm: [10.0] * 8 for arm in TITLES} | {"gather": [gather] * 8, "ours": [900.0] * 8}
    resumes = {(arm, part): [(0.001, 30)] * 8 for arm in RESUMABLE for part in RESUME_POINTS}
    depths = {depth: [0.0015] * 8 for depth in DEPTHS}
    return table(speeds, resumes, depths, SIZES, 1, exact=exact)


def test_a_ratio_is_reported_with_its_goal_and_distance() -> None:
    assert "| numpy gather (limit) | 1,000 | 0.90 (0.90 to 0.90) | >= 0.9 | met |" in section(1000)
    assert "| 2,000 | 0.45 (0.45 to 0.45) | >= 0.9 | missed by 50 % |" in section(2000)
    assert "| torchdata StatefulDataLoader | 10 | 90 (90 to 90) | >= 8 | met |" in section(1000)
    assert "| mosaicml-streaming | 10 | 90 (90 to 90) | >= 200 | missed by 55 % |" in section(1000)


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    flat = {depth: [0.001, 0.002, 0.0015] for depth in DEPTHS}
    assert depth_exponent(flat) == pytest.approx(0, abs=1e-9)
    assert depth_exponent({depth: [depth**0.5] for depth in DEPTHS}) == pytest.approx(0.5)


def test_different_samples_for_another_world_size_are_reported() -> None:
    assert section(1000).endswith("1, 2 and 4 ranks read the same samples for a step.")
    assert "NOT the same" in section(1000, exact=False)


def test_the_trainer_reads_what_the_benchmark_writes_at_any_depth(tmp_path: Path) -> None:
    loader_files.write_tokens(tmp_path, SIZES["tokens"], seed=1)
    assert identical_across_world_sizes(tmp_path, SIZES, seed=1)
    loader_files.write_sparse(tmp_path, 10**9 + 1000)
    taken = resume_times_by_depth(tmp_path / "sparse", SIZES, seed=1)
    assert set(taken) == set(DEPTHS) and all(len(times) == 4 for times in taken.values())
