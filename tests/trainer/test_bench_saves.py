"""The benchmarks of checkpoints on a small scale: what each arm has saved, it restores."""

from __future__ import annotations

import pytest

from bench.request import Request
from bench.trainer import durable


@pytest.mark.long(22)
def test_a_small_run_restores_the_state_by_every_arm() -> None:
    result = durable.run(Request(sizes={"megabytes": 2, "rounds": 1}))
    assert result.good, result.text
    assert all(title in result.text for title in durable.TITLES.values())
