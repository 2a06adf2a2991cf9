"""Samples per step, ranks and learning rates: the arithmetic, and the errors of invalid values."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.config import parse, world_issues
from trainer.config.rules import warnings
from trainer.config.settings import TrainerConfig


def config_of(samples: int, micro: int = 1, warmup: int = 10, **optimizer: Any) -> TrainerConfig:
    return parse(
        {
            "steps": 50,
            "data": {"path": "x"},
            "batch": {"global_samples": samples, "micro_samples": micro},
            "optimizer": optimizer,
            "schedule": {"warmup_steps": warmup},
        }
    )


@pytest.mark.parametrize(
    ("samples", "micro", "ranks", "remedy"),
    [(32, 16, 3, "use 48, or"), (96, 16, 4, "use 64 or 128, or"), (8, 4, 4, "use 16, or")],
)
def test_an_indivisible_batch_is_rejected_with_the_nearest_valid_sizes(
    samples: int, micro: int, ranks: int, remedy: str
) -> None:
    (issue,) = world_issues(config_of(samples, micro), ranks)
    assert (issue.code, issue.path) == ("out-of-range", "batch.global_samples")
    assert issue.action.startswith(remedy)


@pytest.mark.parametrize(
    ("samples", "reference", "peak"), [(256, 64, 0.4), (32, 64, 0.05), (256, None, 0.1)]
)
def test_the_learning_rate_grows_with_the_batch_and_only_when_asked(
    samples: int, reference: int | None, peak: float
) -> None:
    config = config_of(samples, learning_rate=0.1, scale_learning_rate=reference)
    assert config.peak_learning_rate == pytest.approx(peak)


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
    lines = warnings(config_of(samples, warmup=warmup, scale_learning_rate=reference))
    assert [line.partition(":")[0] for line in lines] == words
