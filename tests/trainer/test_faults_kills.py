"""Ranks and nodes that are killed or get SIGTERM at random moments."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Hook, RunFiles, held_before, noting_samples, until
from tests.trainer.runs import INTERVAL, STEPS, Trainer, assert_same

pytestmark = pytest.mark.long(25)

SAMPLES = 8
"""Of one step; as in the configuration of these runs."""
NOTICE_S = 120 / 6
"""From a notice to the hard kill. A slow save is scaled down more, so that the order of save, deadline and
kill is as on spot while each is seconds from the next on a busy machine."""
SAVE_SCALE = 20


def assert_each_sample_counted_once(noted: Path, files: RunFiles) -> None:
    """Of the samples of each attempt those count that no later attempt took back."""
    starts = {e["attempt"]: e["step"] * SAMPLES for e in files.events("started")}
    taken: list[int] = []
    for line in noted.read_text().splitlines():
        attempt, first, count = map(int, line.split())
        later = [start for number, start in starts.items() if number > attempt]
        # A step of which any sample is taken back was not counted.
        taken += [k for k in range(first, first + count) if k < min(later, default=10**9)]
    assert sorted(k for k in taken if k < STEPS * SAMPLES) == list(range(STEPS * SAMPLES))


@pytest.mark.parametrize("victims", [1, 2])
def test_killed_at_any_step_a_run_loses_an_interval_at_most_and_no_bit(
    victims: int, trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    fault = "SIGKILL of a rank" if victims == 1 else "SIGKILL of all ranks of a node"
    for number in trials.numbers(f"{fault} at a random step", 1, 150):
        run, step = f"run{number}", trials.chance.randrange(1, STEPS - 2)
        files, noted = trainer.files(run), trainer.root / f"{run}.samples"
        acted = trainer.root / f"{run}.acted"
        hook = held_before(STEPS - 1, acted, noting_samples(noted, 1))
        ranks = trainer.start(run, hook=hook)
        files.until_step(step)
        ranks.signal(signal.SIGKILL, *trials.chance.sample((0, 1), victims))
        acted.touch()
        codes = ranks.wait()
        assert 0 not in codes and 75 not in codes
        killed_at = files.last_step()
        assert trainer.run(run, hook=noting_samples(noted, 2)) == [0, 0]
        from_step = files.events("started")[-1]["step"]
        trials.lost(killed_at - from_step)
        # A save in flight does not count until it is complete; the next one is due an interval
        # later and waits for it, so the step after which it is due is the last one at risk.
        assert killed_at - from_step <= 2 * INTERVAL
        assert_each_sample_counted_once(noted, files)
        assert_same(files, control)
    trials.passed = True


def slow_once(flag: Path, seconds: float) -> Hook:
    """Rank 0's next file takes so long to write, once the flag is there."""

    def hook(rank: int) -> None:
        if rank == 0:
            from trainyard.store import factory
            from trainyard.store.posix import PosixStore

            waited = [False]

            def at(name: str) -> None:
                if name.startswith("write") and flag.exists() and not waited[0]:
                    waited[0] = True
                    time.sleep(seconds)

            pytest.MonkeyPatch().setattr(factory, "PosixStore", partial(PosixStore, at_boundary=at))

    return hook


@pytest.mark.parametrize("save_s", [5, 45, 90])
def test_sigterm_during_a_slow_save_loses_no_step_before_sigkill(
    save_s: int, trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    fault = f"SIGTERM, hard kill after 120 s, a save takes {save_s} s (scaled)"
    for number in trials.numbers(
        fault, int(save_s != 45), 20
    ):  # the two extremes are the most informative
        run, step = f"run{number}", trials.chance.randrange(1, STEPS - 6)
        files, flag = trainer.files(run), trainer.root / f"{run}.slow"
        deadline = f"checkpoint.deadline_s={NOTICE_S * 110 / 120}"
        acted = trainer.root / f"{run}.acted"
        hook = held_before(STEPS - 1, acted, slow_once(flag, save_s / SAVE_SCALE), (0, 1))
        ranks = trainer.start(run, deadline, hook=hook)
        files.until_step(step)
        flag.touch()
        codes = told_and_killed(ranks, acted)
        stopped = files.last_step()
        assert codes == [75, 75], ranks.output()
        assert trainer.run(run) == [0, 0]
        trials.lost(stopped - files.events("resumed")[-1]["from_step"])
        assert trials.most_lost == 0
        assert_same(files, control)
    trials.passed = True


def test_a_save_longer_than_the_notice_leaves_the_checkpoint_before_it_intact(
    trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    for number in trials.numbers(
        "SIGTERM, hard kill after 120 s, a save takes 130 s (scaled)", 1, 10
    ):
        run, step = f"run{number}", trials.chance.randrange(INTERVAL + 2, STEPS - 6)
        files, flag = trainer.files(run), trainer.root / f"{run}.slow"
        deadline = f"checkpoint.deadline_s={NOTICE_S * 30 / 120}"
        acted = trainer.root / f"{run}.acted"
        slow = slow_once(flag, NOTICE_S * 130 / 120)
        ranks = trainer.start(run, deadline, hook=held_before(STEPS - 1, acted, slow, (0, 1)))
        files.until_step(step)
        # On a slow machine the first save may still be under way, which the notice would then cut off.
        until(lambda files=files: files.events("checkpoint_commit"), "a checkpoint")  # type: ignore[misc]
        flag.touch()
        codes = told_and_killed(ranks, acted)
        stopped = files.last_step()
        assert codes == [75, 75], ranks.output()  # an older good one is there
        assert trainer.run(run) == [0, 0]
        trials.lost(stopped - files.events("resumed")[-1]["from_step"])
        # Two intervals, as above, and the step in which the ranks agree on a notice that came while the
        # next save waited for the slow one.
        assert 0 < (trials.most_lost or 0) <= 2 * INTERVAL + 1
        assert_same(files, control)
    trials.passed = True


def told_and_killed(ranks: Any, acted: Path) -> list[int]:
    """SIGTERM, then SIGKILL to what is left after the notice; the exit codes."""
    ranks.signal(signal.SIGTERM)
    acted.touch()
    limit = time.monotonic() + NOTICE_S
    until(lambda: ranks.all_ended() or time.monotonic() > limit, "the end")
    ranks.signal(signal.SIGKILL)
    codes: list[int] = ranks.wait()
    return codes


def test_with_a_wrong_clock_the_newest_checkpoint_is_still_the_one_of_the_last_step(
    trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    for number in trials.numbers("clock off by 10 minutes, either way", 1, 20):
        run, files = f"run{number}", trainer.files(f"run{number}")
        for attempt, offset in enumerate((0.0, *trials.chance.sample((-600.0, 600.0), 2)), start=1):

            def wrong_clock(_: int, offset: float = offset) -> None:
                plain = time.time
                time.time = lambda: plain() + offset

            goal = attempt * 5 + trials.chance.randrange(3)
            ranks = trainer.stop(run, goal, hook=wrong_clock)
            assert ranks.wait() == [75, 75], ranks.output()
            for place, folder in enumerate(sorted(files.path.glob("checkpoints/step-*"))):
                os.utime(folder, (1e9 - place, 1e9 - place))  # the newest looks oldest
            stopped = files.last_step()
        assert trainer.run(run) == [0, 0]
        trials.lost(stopped - files.events("resumed")[-1]["from_step"])
        assert trials.most_lost == 0
        assert_same(files, control)
    trials.passed = True
