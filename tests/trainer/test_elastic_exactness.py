"""Losses and weights of an elastic run are the same bits for every number of groups."""

from __future__ import annotations

import pytest

from tests.trainer.elastic_groups import final_weights, start_run
from tests.trainer.ranks import RunFiles
from tests.trainer.runs import Trainer, assert_same

pytestmark = [pytest.mark.core, pytest.mark.long(20)]


def test_losses_and_weights_do_not_depend_on_the_number_of_groups(
    trainer: Trainer, alone: RunFiles, full: bool
) -> None:
    for groups in (2, 3, 4) if full else (3,):
        # All of these groups, to the end: a busy machine does not count one as lost.
        patient = "groups.silent_after_s=120"
        run = start_run(trainer, f"run{groups}", groups, patient, minimum=groups)
        assert run.wait() == [0] * groups, run.output()
        assert_same(run.files, alone)
        assert final_weights(run.files.path) == final_weights(alone.path)


LAYOUTS = {
    "copies": (2, 4, ()),
    "shards": (2, 4, ("parallel.shard=2",)),
    "copies of shards": (4, 2, ("parallel.shard=2",)),
    "tensor": (2, 4, ("parallel.tensor=2", "model.kv_heads=2")),
    "tensor and shards": (4, 4, ("parallel.tensor=2", "parallel.shard=2", "model.kv_heads=2")),
    "pipeline": (2, 4, ("parallel.pipeline=2", "batch.micro_samples=1")),
}
"""Ranks of a group, logical workers, settings."""
_IN_CI = "shards"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_group_may_have_several_ranks(trainer: Trainer, full: bool, layout: str) -> None:
    if not full and layout != _IN_CI:
        pytest.skip("needs --full")
    ranks, workers, settings = LAYOUTS[layout]
    settings = (*settings, f"groups.workers={workers}", "groups.silent_after_s=120")
    runs = [
        start_run(trainer, f"of {groups}", groups, *settings, minimum=groups, ranks=ranks)
        for groups in (1, 2)
    ]
    for run in runs:
        assert set(run.wait()) == {0}, run.output()
    assert_same(runs[1].files, runs[0].files)
    assert final_weights(runs[1].files.path) == final_weights(runs[0].files.path)
