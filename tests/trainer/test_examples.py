"""Each example with two real ranks: undisturbed, and interrupted with and without notice, then compared.

Short: with notice only; `--full`: with both, and the script that knows nothing of Trainyard. The examples'
environment is installed when it is missing, which takes about ten seconds with cached packages.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sandbox import example_environment
from sandbox.example_environment import ExampleEnvironmentError
from tests.trainer.example_runs import EXAMPLES, ExampleRun

PREEMPTED = [75, 75]
LONG_S = 1800


@dataclass(frozen=True)
class Example:
    """A script with arguments for 10 steps and a checkpoint every 3; `{run}` is the run's folder."""

    script: str
    arguments: str
    tolerance: float = 0.0
    """Largest difference of a loss from the undisturbed run; 0: bit-equal."""


STEPS = "--steps 10 --save-every 3"
CASES = {
    "ddp": Example("ddp/train.py", STEPS),
    "hf-trainer": Example(
        "hf-trainer/train.py",
        "--epochs 0.5 --save-steps 3 --length 128 --output {run}/hf-trainer",
    ),
}
StartRun = Callable[[Example, str], ExampleRun]


@pytest.fixture(scope="session")
def environment(full: bool) -> Path:
    """The examples' environment. Offline without it, tests are skipped, but neither in CI nor with --full."""
    try:
        return example_environment.ensure(print)
    except ExampleEnvironmentError as error:
        if full or "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture
def start_run(environment: Path, tmp_path: Path) -> Iterator[StartRun]:
    """Start a run of an example; what still runs is killed at the end."""
    started: list[ExampleRun] = []

    def start(example: Example, name: str) -> ExampleRun:
        folder = tmp_path / name
        arguments = example.arguments.format(run=folder).split()
        python = environment / "bin" / "python"
        run = ExampleRun(python, folder, EXAMPLES / example.script, arguments)
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
    control = start_run(example, "undisturbed")
    assert control.wait() == [0, 0], control.output()
    run = start_run(example, "interrupted")
    assert run.interrupt(2, signal.SIGTERM) == PREEMPTED, run.output()
    stopped = max(run.losses())
    assert run.checkpoints()[-1] == stopped, "the notice saved the last step"
    run.start()
    if full:
        assert run.interrupt(stopped + 2, signal.SIGKILL) == [-9, -9], run.output()
        run.start()
    assert run.wait() == [0, 0], run.output()
    expected, got = control.losses(), run.losses()
    assert got.keys() == expected.keys()
    assert {s: got[s] for s in got if abs(got[s] - expected[s]) > example.tolerance} == {}


@pytest.mark.timeout(LONG_S)
def test_a_script_without_trainyard_continues_from_its_own_checkpoint(
    start_run: StartRun, full: bool
) -> None:
    if not full:
        pytest.skip("long; run with --full")
    plain = Example("ddp/plain.py", STEPS + " --output {run}/output")
    control = start_run(plain, "undisturbed")
    assert control.wait() == [0, 0], control.output()
    run = start_run(plain, "interrupted")
    run.await_output("step 5 ")
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    assert run.wait() == [-15, -15], "it does not handle the signal: the platform counts that as 75"
    run.start()
    assert run.wait() == [0, 0], run.output()
    assert "resumed at step 3" in run.output()
    assert control.output().splitlines()[-1] == run.output().splitlines()[-1]
