"""What the benchmark of the loader concludes, and that the trainer reads the files that it writes."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from bench.trainer import loader

SIZES = {"tokens": 300_000, "length": 64, "batch": 8, "rounds": 2, "ms": 10}


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
