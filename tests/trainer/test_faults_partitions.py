"""Ranks that cannot reach each other: all end in time, and the old attempt writes nothing more."""

from __future__ import annotations

import signal
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.trainer.fault_table import Trials
from tests.trainer.ranks import RunFiles, held_before, until
from tests.trainer.runs import STEPS, Trainer, assert_same

pytestmark = pytest.mark.long(25)

OLD_ATTEMPTS_OWN = ".writing-step-*-attempt-00000001"


def contents_of(files: RunFiles) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in files.path.rglob("*") if p.is_file()}


def test_cut_off_from_each_other_all_ranks_end_and_the_old_attempt_is_fenced_out(
    trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    """A rank that is stopped answers nobody, as one that nobody can reach; then it comes back."""
    for number in trials.numbers("partition: a rank reaches nobody, and comes back", 1, 50):
        run, files = f"run{number}", trainer.files(f"run{number}")
        step, lost = trials.chance.randrange(1, STEPS - 6), trials.chance.randrange(2)
        acted = trainer.root / f"{run}.acted"
        # Long enough for ranks that only wait for a processor, or for the test.
        settings = "collective_timeout_s=6"
        old = trainer.start(run, settings, hook=held_before(STEPS - 1, acted))
        files.until_step(step)
        old.signal(signal.SIGSTOP, lost)
        acted.touch()
        until(lambda o=old, r=1 - lost: o.all_ended() or r in o.codes, "the other to end")  # type: ignore[misc]
        assert old.codes[1 - lost] == 1, old.output()
        stopped = files.last_step()
        assert trainer.run(run) == [0, 0]
        trials.lost(stopped - files.events("started")[-1]["step"])
        before = contents_of(files)
        old.signal(signal.SIGCONT, lost)
        assert 0 not in old.wait() and 75 not in old.codes.values(), old.output()
        after = contents_of(files)
        changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
        # A stopped writer goes on in the folder of its own attempt, which nobody reads or commits.
        changed = {p for p in changed if not fnmatch(p.parent.name, OLD_ATTEMPTS_OWN)}
        assert changed <= {files.path / "events.jsonl"}
        assert_same(files, control)
    trials.passed = True
