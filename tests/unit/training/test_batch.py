"""Samples per step, ranks and learning rates: the arithmetic, and the errors of invalid values."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from trainer.batch import (
    accumulation_steps,
    batch_issues,
    effective_batch,
    scaled_learning_rate,
    scaling_warnings,
)
from trainer.config import parse


def test_accumulation_and_effective_batch_undo_each_other() -> None:
    for micro, passes, ranks in itertools.product((1, 2, 24), (1, 3, 8), (1, 2, 7)):
        samples = effective_batch(micro, passes, ranks)
        assert accumulation_steps(samples, micro, ranks) == passes
        assert batch_issues(samples, micro, ranks) == []


@pytest.mark.parametrize(
    ("samples", "micro", "ranks", "remedy"),
    [
        (32, 16, 3, "use 48, or"),
        (100, 16, 2, "use 96 or 128, or"),
        (8, 16, 1, "use 16, or"),
        (0, 4, 2, "use 8, or"),
    ],
)
def test_an_indivisible_batch_is_rejected_with_the_nearest_valid_sizes(
    samples: int, micro: int, ranks: int, remedy: str
) -> None:
    (issue,) = batch_issues(samples, micro, ranks)
    assert (issue.code, issue.path) == ("out-of-range", "batch.global_samples")
    assert issue.action.startswith(remedy)


def test_the_learning_rate_grows_with_the_batch_and_only_when_asked() -> None:
    assert scaled_learning_rate(0.1, 256, 64) == pytest.approx(0.4)
    assert scaled_learning_rate(0.1, 32, 64) == pytest.approx(0.05)
    assert scaled_learning_rate(0.1, 256, None) == 0.1


@pytest.mark.parametrize(
    ("samples", "reference", "warmup", "words"),
    [
        (256, 64, 10, []),
        (16, 64, 0, []),
        (257, 64, 10, ["optimizer.scale_learning_rate"]),
        (15, 64, 10, ["optimizer.scale_learning_rate"]),
        (128, 64, 0, ["schedule.warmup_steps"]),
        (512, 64, 0, ["optimizer.scale_learning_rate", "schedule.warmup_steps"]),
        (512, None, 0, []),
    ],
)
def test_a_doubtful_scale_is_warned_about(
    samples: int, reference: int | None, warmup: int, words: list[str]
) -> None:
    lines = scaling_warnings(0.1, samples, reference, warmup)
    assert [line.partition(":")[0] for line in lines] == words


def test_a_configuration_applies_the_rule_to_its_own_batch() -> None:
    values = {
        "steps": 50,
        "data": {"path": "x"},
        "batch": {"global_samples": 64},
        "optimizer": {"learning_rate": 0.001, "scale_learning_rate": 8},
    }
    config = parse(values)
    assert config.peak_learning_rate == pytest.approx(0.008)
    assert len(config.warnings()) == 1
    plain = parse({**values, "optimizer": {"learning_rate": 0.001}})
    assert (plain.peak_learning_rate, plain.warnings()) == (0.001, [])


def test_the_arithmetic_needs_the_standard_library_only() -> None:
    program = (
        "import sys, trainer.batch; sys.exit(bool({'torch', 'yaml', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
