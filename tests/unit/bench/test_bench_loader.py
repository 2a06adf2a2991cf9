"""What the benchmark of the loader concludes, and that the trainer reads the files that it writes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from bench.trainer import loader

SIZES = {"tokens": 300_000, "length": 64, "batch": 8, "rounds": 2, "ms": 10}


def test_the_section_names_each_goal_and_the_distance_to_it() -> None:
    depths = {depth: [0.0015] * 8 for depth in loader.DEPTHS}

    def text(gather: float, *, exact: bool = True) -> str:
        speeds = {"trainer": [900.0] * 8, "gather": [gather] * 8}
        return loader.section(speeds, depths, SIZES, 1, exact=exact)

    assert "1,000: 0.90 (0.90 to 0.90) of it; goal at least 0.9: met." in text(1000)
    assert "0.45 (0.45 to 0.45) of it; goal at least 0.9: missed by 50%." in text(2000)
    assert "1.50 ms (goal <= 2: met); exponent of depth " in text(1000)
    assert "| 10^9 | 1.50 (1.50 to 1.50) |" in text(1000)
    assert "NOT the same" in text(1000, exact=False) and "NOT" not in text(1000)


def test_the_exponent_is_the_slope_of_the_logarithms() -> None:
    flat = {depth: [0.001, 0.002, 0.0015] for depth in loader.DEPTHS}
    assert loader.depth_exponent(flat) == pytest.approx(0, abs=1e-9)
    root = {depth: [depth**0.5] for depth in loader.DEPTHS}
    assert loader.depth_exponent(root) == pytest.approx(0.5)


def test_the_trainer_reads_what_the_benchmark_writes_at_any_depth(tmp_path: Path) -> None:
    tokens = loader.write_tokens(tmp_path, SIZES["tokens"], seed=1)
    version = loader.write_dataset(tmp_path, tokens)
    steps = [8 * 64] * 3
    assert list(islice(loader.trainer(version, SIZES, 1), 3)) == steps
    assert list(islice(loader.gather(tokens, SIZES, 1), 3)) == steps
    assert loader.identical_across_world_sizes(version, SIZES, seed=1)
    taken = loader.resume_seconds(loader.write_sparse(tmp_path), SIZES, seed=1)
    assert set(taken) == set(loader.DEPTHS) and all(len(times) == 4 for times in taken.values())
