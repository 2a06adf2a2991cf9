"""Random changes of the membership of the trainer: no loss differs in any bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.trainer.elastic_changes import plan_changes, play_changes
from tests.trainer.fault_table import Trials

pytestmark = pytest.mark.long(17)


def test_changes_of_the_membership_change_no_bit(
    trials: Trials, dataset: Path, tmp_path: Path
) -> None:
    count = len(trials.numbers("elastic groups leave, die, fall silent and join", 4, 200))
    plan = plan_changes(count, trials.seed)
    found = play_changes(tmp_path / "run", dataset, plan, trials.seed, lambda *_: None)
    assert found.count == count
    assert found.different_losses == 0
    assert found.missing_steps == []
    trials.passed = True
