"""A rank that computes wrong values is named: the right one, and no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sandbox import paths
from tests.trainer import culprit_faults
from tests.trainer.culprit_faults import Fault
from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Ranks, RunFiles, until
from tests.trainer.runs import Trainer, assert_same
from trainyard.culprits import CORRUPT, NO_RANK, Verdicts

pytestmark = pytest.mark.long(89)

WORLD = 3
ENDLESS = (
    "steps=1000000",
    "schedule.kind=constant",
    "evaluation.every_steps=null",
    "checkpoint.every_steps=1000000",
    "batch.global_samples=6",
)
COMPARED = ("checkpoint.every_steps=2", "steps=40")
"""The run ends where no comparison finds the bit."""
RIGHT = 0.95
"""Part of the faults for which the rank and the symptom must be named first."""


def lowest_bit(trials: Trials) -> int:
    """Return the lowest bit to flip; a few trials, all of which must be right, leave out the hard ones."""
    return 0 if trials.full else 12


def start(trainer: Trainer, run: str, fault: Fault) -> Ranks:
    return trainer.start(run, *ENDLESS, *COMPARED, world=WORLD, hook=fault.hook())


def outcome(files: RunFiles) -> tuple[list[float], dict[str, str]]:
    """Every loss, and the hash of each file of the last checkpoint."""
    last = max((files.path / "checkpoints").glob("step-*"))
    manifest = json.loads((last / "manifest.json").read_text())
    return files.losses(), {name: one["hash"] for name, one in manifest["files"].items()}


@pytest.fixture
def calm(trainer: Trainer) -> Callable[[], RunFiles]:
    """The run into which bits are flipped, without a fault; made when it is first asked for."""

    @cache
    def run() -> RunFiles:
        assert trainer.run("calm", *ENDLESS, *COMPARED, world=WORLD) == [0] * WORLD
        return trainer.files("calm")

    return run


def first_verdict(ranks: Ranks, files: RunFiles) -> dict[str, Any]:
    """Wait for a rank to be named; return the event. Empty if all ranks end without one."""
    until(lambda: files.events("culprit") or ranks.all_ended(), f"a verdict: {ranks.output()}")
    return next(iter(files.events("culprit")), {})


def test_the_replica_with_the_flipped_bit_is_named(
    trainer: Trainer, calm: Callable[[], RunFiles], trials: Trials
) -> None:
    right, wrong = 0, list[tuple[Any, ...]]()
    numbers = trials.numbers(f"culprit: flip, one of {WORLD} ranks is named", 1, 45)
    names = map("run{}".format, count())
    while right + len(wrong) < len(numbers):
        fault = culprit_faults.draw(trials.chance, WORLD, lowest_bit(trials))
        run = next(names)
        ranks, files = start(trainer, run, fault), trainer.files(run)
        found = first_verdict(ranks, files)
        ranks.end()
        if not found:
            # Rounding has restored the bit: without a trace in the run, the flip does not count.
            print(f"without effect: {fault}")
            assert outcome(files) == outcome(calm()), fault
            continue
        if (found["symptom"], found["rank"]) == (CORRUPT, fault.rank):
            assert "2 of 3 replicas agree" in found["evidence"][0]
            right += 1
        else:
            wrong.append((fault, found, ranks.output()[-2000:]))
    assert right >= RIGHT * len(numbers), wrong
    trials.passed = True


REPEATED = Fault("parameter", 0, 7, bit=20, spot=0.4, again=True)


def test_two_replicas_that_differ_are_both_named_and_the_next_attempt_goes_on(
    trainer: Trainer, control: RunFiles
) -> None:
    """No checkpoint has the wrong state."""
    files = trainer.files("run")
    for _ in range(2):
        ranks = trainer.start("run", hook=REPEATED.hook())
        assert ranks.wait() == [1, 1], ranks.output()
        assert "nothing is saved" in ranks.output()
    found = files.events("culprit")
    assert [(one["symptom"], one["rank"]) for one in found] == [(CORRUPT, NO_RANK)] * 2
    assert "rank 0 on" in found[0]["what"] and "rank 1 on" in found[0]["what"]
    assert trainer.run("run") == [0, 0]
    assert_same(files, control)


PROGRAM = """
import torch, torch.distributed as dist
from trainyard.tensors import replicas

dist.init_process_group("gloo")
state = {"weight": torch.ones(100), "step": 1}
replicas.check(state, 1)
if dist.get_rank() == 1:
    state["weight"][3] = -1.0
replicas.check(state, 2)
"""


def test_a_program_compares_its_replicas_by_a_call(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3"]
    ended = subprocess.run(
        [sys.executable, *torchrun, str(program)],
        env=os.environ | {"TRAINYARD_RUN_DIR": str(tmp_path), "PYTHONPATH": str(paths.PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "step 2: rank 1 on " in ended.stderr and "nothing is saved" in ended.stderr
    (named,) = Verdicts(tmp_path).all()
    assert (ended.returncode, named.symptom, named.rank) == (1, CORRUPT, 1)


def test_a_shard_is_compared_with_its_replica_only(trainer: Trainer) -> None:
    fault = Fault("parameter", 2, 7, bit=30, spot=0.4)
    layout = ("parallel.shard=2", "parallel.replicate=2")
    settings = (*ENDLESS, *COMPARED, *layout, "batch.global_samples=8")
    ranks = trainer.start("run", *settings, world=4, hook=fault.hook())
    found = first_verdict(ranks, trainer.files("run"))
    assert ranks.wait() == [1] * 4, ranks.output()
    assert (found["symptom"], found["rank"]) == (CORRUPT, NO_RANK)
    assert "rank 0 on" in found["what"] and "rank 2 on" in found["what"]
    assert "rank 1" not in found["what"]
