"""The benchmarks of checkpoints on a small scale: what each way has saved, it restores, of both scripts."""

from __future__ import annotations

import pytest

from bench.request import Request
from bench.trainer import durable, saves


@pytest.mark.long(22)
def test_a_small_run_restores_the_state_in_every_way() -> None:
    result = durable.run(Request(sizes={"megabytes": 13, "rounds": 1}))
    assert result.good, result.text
    assert all(title in result.text for title in saves.SCRIPTS.values())
    assert all(result.text.count(saves.TITLES[arm]) == 2 for arm in durable.ARMS)
