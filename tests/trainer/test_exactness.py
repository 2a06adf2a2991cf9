"""The same configuration gives the same bits, interrupted or not."""

from __future__ import annotations

import random
import signal

import numpy as np
import pytest
import torch

from tests.trainer.ranks import RunFiles, noting_samples, until
from tests.trainer.runs import STEPS, Trainer, assert_same

pytestmark = [pytest.mark.core, pytest.mark.long(26)]


def test_two_uninterrupted_runs_are_bit_identical(trainer: Trainer, control: RunFiles) -> None:
    assert trainer.run("again") == [0, 0]
    assert_same(trainer.files("again"), control)
    assert len(control.losses()) == STEPS


def test_the_runs_really_learn_and_really_depend_on_the_seed(
    trainer: Trainer, control: RunFiles
) -> None:
    losses = control.losses()
    assert losses[-1] < losses[0] - 0.5
    assert trainer.run("other", "seed=12") == [0, 0]
    assert trainer.files("other").losses() != losses


def test_sigterm_at_any_step_loses_no_step_and_no_bit(
    trainer: Trainer, control: RunFiles, chance: random.Random, full: bool
) -> None:
    for number in range(60 if full else 2):
        run, step, rank = f"run{number}", chance.randrange(1, STEPS - 2), chance.randrange(2)
        files = trainer.files(run)
        assert trainer.stop(run, step, to=[rank]).wait() == [75, 75]
        stopped = files.last_step()
        assert files.events("checkpoint_commit")[-1]["step"] == stopped
        assert trainer.run(run) == [0, 0]
        assert files.events("resumed")[-1]["from_step"] == stopped
        assert_same(files, control)


def test_kill_after_kill_the_run_still_ends_as_if_nothing_had_happened(
    trainer: Trainer, control: RunFiles, chance: random.Random
) -> None:
    files = trainer.files("run")
    codes = [1, 1]
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
        ranks = trainer.start("run")
        attempt = len(files.events("started")) + 1
        until(lambda a=attempt: len(files.events("started")) >= a, "the start")  # type: ignore[misc]
        goal = files.events("started")[-1]["step"] + chance.randrange(1, 6)
        until(lambda g=goal, r=ranks: files.last_step() >= g or r.all_ended(), "a step")  # type: ignore[misc]
        ranks.signal(number)
        codes = ranks.wait()
    if codes != [0, 0]:
        assert trainer.run("run") == [0, 0]
    assert_same(files, control)


def with_noise(_: int) -> None:
    """Make the loss depend on every random generator, as dropout would."""
    from trainer.parallel import passes
    from trainer.parallel.passes import mean_loss

    def noisy(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(()) + random.random() + np.random.random()
        return mean_loss(model, tokens) * (1 + 0.1 * noise)

    pytest.MonkeyPatch().setattr(passes, "mean_loss", noisy)


def test_random_states_of_every_rank_are_part_of_a_checkpoint(
    trainer: Trainer, control: RunFiles
) -> None:
    assert trainer.run("whole", hook=with_noise) == [0, 0]
    files = trainer.files("cut")
    assert trainer.stop("cut", 7, to=[0], hook=with_noise).wait() == [75, 75]
    assert trainer.run("cut", hook=with_noise) == [0, 0]
    assert_same(files, trainer.files("whole"))
    assert files.losses() != control.losses()


def test_four_ranks_resume_bit_identically_too(trainer: Trainer) -> None:
    """More than two ranks: the order of sums matters, and so the grouping of gradients."""
    assert trainer.run("whole", world=4) == [0] * 4
    files = trainer.files("cut")
    ranks = trainer.start("cut", world=4)
    until(lambda: files.last_step() >= 6 and files.events("checkpoint_commit"), "step 6")
    ranks.signal(signal.SIGKILL, 3)
    ranks.wait()
    assert trainer.run("cut", world=4) == [0] * 4
    assert files.events("resumed")
    assert_same(files, trainer.files("whole"))


def test_the_number_of_ranks_may_change_between_attempts(
    trainer: Trainer, control: RunFiles
) -> None:
    files = trainer.files("run")
    for world in (2, 1, 4):
        ranks = trainer.stop("run", files.last_step() + 4, world=world)
        assert ranks.wait() == [75] * world
    assert trainer.run("run", world=2) == [0, 0]
    # The same samples in the same steps; only the order of sums differs.
    assert files.losses() == pytest.approx(control.losses(), rel=1e-4)
    assert [e["world_size"] for e in files.events("started")] == [2, 1, 4, 2]
    # The leader alone is as good as with others.
    assert {line["tokens"] for line in files.metrics()} == {8 * 16}


def test_each_sample_is_used_once_across_interruptions_and_numbers_of_ranks(
    trainer: Trainer,
) -> None:
    used = trainer.root / "used"

    files = trainer.files("run")
    for world in (2, 1):
        hook = noting_samples(used, world)
        ranks = trainer.stop("run", files.last_step() + 5, world=world, hook=hook)
        assert ranks.wait() == [75] * world
    assert trainer.run("run", world=2, hook=noting_samples(used, 2)) == [0, 0]
    ranges = [tuple(map(int, line.split()))[1:] for line in used.read_text().splitlines()]
    samples = sorted(k for first, count in ranges for k in range(first, first + count))
    assert samples == list(range(STEPS * 8))


def test_a_finished_run_continued_equals_one_that_was_as_long_from_the_start(
    trainer: Trainer,
) -> None:
    constant = "schedule.kind=constant"
    assert trainer.run("whole", constant) == [0, 0]
    assert trainer.run("first", constant, "steps=13") == [0, 0]
    begun = trainer.files("first")
    kept = sorted(one.name for one in (begun.path / "checkpoints").glob("step-*"))

    longer = trainer.files("longer")
    assert trainer.run("longer", constant, after="first") == [0, 0]

    further = [line["loss"] for line in longer.metrics()]
    assert [line["step"] for line in longer.metrics()] == list(range(14, STEPS + 1))
    assert begun.losses() + further == trainer.files("whole").losses()
    assert longer.events("resumed")[0]["from_step"] == 13
    assert sorted(one.name for one in (begun.path / "checkpoints").glob("step-*")) == kept


def test_a_run_cannot_continue_one_that_has_no_checkpoint(trainer: Trainer) -> None:
    ranks = trainer.start("longer", after="never")
    assert ranks.wait() == [78, 78]
    assert "--continue-from" in ranks.output() and "has no checkpoint" in ranks.output()
