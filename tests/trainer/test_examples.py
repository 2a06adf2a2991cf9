"""Each example on a node of two ranks: undisturbed, and interrupted with and without notice, then compared.

Short: an example of each launcher or two, with notice only; `--full`: all, with both. The examples'
environment is installed when it is missing, which takes about ten seconds with cached packages.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer.example_runs import EXAMPLES, ExampleRun
from trainyard.contract import EXIT_DONE, EXIT_PREEMPTED

pytestmark = pytest.mark.long(323)

LONG_S = 1800


@dataclass(frozen=True)
class Example:
    """A run file, and arguments for steps enough to be interrupted in; `{run}` is the run's folder."""

    run_file: str
    arguments: str = "--steps 30 --save-every 3"
    short: bool = False
    program: str = ""
    """A program of the machine that it needs."""
    package: str = ""
    """Debian's package of that program."""


EPOCHS_OF_4 = "--steps 26 --save-every 4 --samples 64"
"""A checkpoint at the end of each epoch."""
CASES = {
    "ddp": Example("ddp/run.yaml", short=True),
    "hf-trainer": Example("hf-trainer/run.yaml", "--epochs 0.5 --save-steps 3 --length 128"),
    "accelerate-fsdp2": Example("accelerate-fsdp2/run.yaml", EPOCHS_OF_4, short=True),
    "deepspeed-zero2": Example("deepspeed/zero2.yaml"),
    "deepspeed-zero3": Example("deepspeed/run.yaml", short=True),
    "mpirun": Example("mpirun/run.yaml", short=True, program="mpirun", package="openmpi-bin"),
    "lightning": Example("lightning/run.yaml", EPOCHS_OF_4),
    "torchtitan-components": Example("torchtitan/components.yaml"),
}
StartRun = Callable[[Example, str], ExampleRun]


@pytest.fixture
def start_run(environment: Path, tmp_path: Path) -> Iterator[StartRun]:
    """Start a run of an example; what still runs is killed at the end."""
    started: list[ExampleRun] = []

    def start(example: Example, name: str) -> ExampleRun:
        folder = tmp_path / name
        arguments = example.arguments.format(run=folder).split()
        python = environment / "bin" / "python"
        run = ExampleRun(python, folder, EXAMPLES / example.run_file, arguments)
        started.append(run)
        run.start()
        return run

    yield start
    for run in started:
        run.end()


@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("name", CASES)
def test_an_interrupted_example_continues_as_if_undisturbed(
    start_run: StartRun, name: str, full: bool
) -> None:
    example = CASES[name]
    if not (full or example.short):
        pytest.skip("long; run with --full")
    if example.program and shutil.which(example.program) is None:
        pytest.skip(f"{example.program}: not installed (package {example.package})")
    control = start_run(example, "undisturbed")
    assert control.wait() == EXIT_DONE, control.output()
    losses, checkpoints = control.losses(), control.checkpoints()
    control.start()  # as after a failure behind the last save: nothing is left to train
    assert control.wait() == EXIT_DONE, control.output()
    assert (control.losses(), control.checkpoints()) == (losses, checkpoints)
    run = start_run(example, "interrupted")
    assert run.interrupt(2) == EXIT_PREEMPTED, run.output()
    stopped = max(run.losses())
    assert run.checkpoints()[-1] == stopped, "the notice saved the last step"
    run.start()
    if full:
        run.lose(stopped + 2)
        run.start()
    assert run.wait() == EXIT_DONE, run.output()
    assert run.losses() == control.losses(), "not bit-equal"


@pytest.mark.timeout(LONG_S)
def test_a_script_without_trainyard_continues_from_its_own_checkpoint(
    start_run: StartRun,
) -> None:
    plain = Example("ddp/plain.yaml", "--steps 100 --save-every 3 --output {run}/output")
    control = start_run(plain, "undisturbed")
    assert control.wait() == EXIT_DONE, control.output()
    run = start_run(plain, "interrupted")
    run.await_output("step 5 ")
    assert run.give_notice() == EXIT_PREEMPTED, "it does not handle the signal"
    run.start()
    assert run.wait() == EXIT_DONE, run.output()
    (step,) = {int(found) for found in re.findall(r"resumed at step (\d+)", run.output())}
    assert 3 <= step < 100 and step % 3 == 0, "its last save"
    last = [re.findall(r"^step 100 .*", one.output(), re.MULTILINE) for one in (control, run)]
    assert len(last[0]) == 1 and last[0] == last[1]
