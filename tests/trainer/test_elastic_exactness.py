"""Losses and weights of an elastic run are the same bits for every number of groups."""

from __future__ import annotations

from tests.trainer.elastic_groups import final_weights, start_run
from tests.trainer.ranks import RunFiles
from tests.trainer.runs import Trainer, assert_same


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
        summed = [
            line.split() for line in run.observed.read_text().splitlines() if "summed" in line
        ]
        assert len({pid for pid, *_ in summed}) == groups
