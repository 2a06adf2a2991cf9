"""The benchmarks of checkpoints on a small scale: what each arm has saved, it restores."""

from __future__ import annotations

import pytest

from bench.trainer import durable


@pytest.mark.long(22)
def test_a_small_run_restores_the_state_by_every_arm() -> None:
    text, good = durable.run({"megabytes": 2, "rounds": 1}, 1, lambda what, total, done: None)
    assert good, text
    assert all(title in text for title in durable.TITLES.values())
