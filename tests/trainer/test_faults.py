"""Kills, full disks and damaged files: the store always loads, the old state or the new one."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Hook, RunFiles
from tests.trainer.runs import Trainer, assert_same
from trainyard.store.posix import PosixStore

pytestmark = pytest.mark.long(71)


def at_boundary(action: Callable[[int, str], None], of_rank: int = 0) -> Hook:
    """On one rank, call `action` with the number and name of every boundary that its store crosses."""

    def hook(rank: int) -> None:
        if rank == of_rank:
            from trainyard.store import factory

            crossed = [0]

            def at(name: str) -> None:
                crossed[0] += 1
                action(crossed[0], name)

            pytest.MonkeyPatch().setattr(factory, "PosixStore", partial(PosixStore, at_boundary=at))

    return hook


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_at_any_boundary_of_a_save_the_run_resumes_bit_identically(
    victim: int, trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    record = trainer.root / "boundaries"

    def note(number: int, name: str) -> None:
        with record.open("a") as stream:
            stream.write(name + "\n")

    assert trainer.run("dry", hook=at_boundary(note, victim)) == [0, 0]
    names = record.read_text().splitlines()
    kinds = {"write", "fsync", "rename", "remove"} if victim == 0 else {"write", "fsync"}
    assert {name.split()[0] for name in names} == kinds
    numbers = range(1, len(names) + 1)
    fault = f"SIGKILL of rank {victim} at every write, fsync, rename and remove"
    trials.numbers(fault, 2, len(numbers))
    # A leader that waits in vain for another rank's part of the last save does so for a while.
    early = numbers[: len(numbers) * 2 // 3]
    for number in numbers if trials.full else trials.chance.sample(early, trials.count):

        def kill(crossed: int, _: str, number: int = number) -> None:
            if crossed == number:
                os.kill(os.getpid(), signal.SIGKILL)

        run = f"run{number}"
        files = trainer.files(run)
        settings = "collective_timeout_s=10"
        codes = trainer.run(run, settings, hook=at_boundary(kill, victim))
        if codes == [0, 0]:  # which boundaries come last depends on when old ones are removed
            continue
        assert codes[victim] == -signal.SIGKILL, names[number - 1]
        killed_at = files.last_step()
        assert trainer.run(run) == [0, 0]
        trials.lost(killed_at - files.events("started")[-1]["step"])
        assert_same(files, control)
        checkpoints = files.path / "checkpoints"
        assert not [name for name in os.listdir(checkpoints) if name.startswith(".")]
    trials.passed = True


def test_a_run_whose_last_checkpoint_cannot_be_written_fails_and_keeps_the_last_good_one(
    trainer: Trainer,
) -> None:
    def full_disk(number: int, name: str) -> None:
        if number > 20 and name.startswith("write"):
            raise OSError(28, "No space left on device")

    assert trainer.run("run", hook=at_boundary(full_disk)) == [1, 1]
    files = trainer.files("run")
    assert files.events("finished")[-1]["reason"] == "not saved"
    store = PosixStore(files.path / "checkpoints")
    assert store.steps() and all(store.verify(step) == [] for step in store.steps())


@pytest.fixture(scope="module")
def stopped(make_trainer: Callable[[], Trainer]) -> RunFiles:
    """A run that was preempted after step 12, with checkpoints of 5, 10 and 12."""
    trainer = make_trainer()

    def told(number: int) -> Hook:
        from tests.trainer.test_interruptions import before, request_stop

        return before("trainer.loop", "learning_rate", number, 0, request_stop)

    assert trainer.run("stopped", hook=told(11)) == [75, 75]
    return trainer.files("stopped")


class Hostile:
    """Unpickling this makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.file),))


SAID = {"flipped": "with one bit flipped", "pickle": "replaced by a hostile pickle"}
FILES = ["model.safetensors", "optimizer.safetensors", "random-00001.json", "state.json"]


def damage(kind: str, file: Path, other: Path, chance: random.Random) -> None:
    whole = bytearray(file.read_bytes())
    if kind == "missing":
        file.unlink()
    elif kind == "swapped":
        shutil.copy(other, file)
    elif kind == "pickle":
        file.write_bytes(pickle.dumps(Hostile(file.parent / "executed")))
    elif kind == "truncated":
        file.write_bytes(whole[: chance.randrange(len(whole))])
    else:
        whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        file.write_bytes(whole)


@pytest.mark.parametrize("kind", ["truncated", "flipped", "missing", "swapped", "pickle"])
def test_a_damaged_checkpoint_is_found_before_the_first_step_and_the_one_before_is_used(
    kind: str,
    trainer: Trainer,
    control: RunFiles,
    stopped: RunFiles,
    trials: Trials,
) -> None:
    chance = trials.chance
    for number in trials.numbers(f"a file of the newest checkpoint {SAID.get(kind, kind)}", 1, 100):
        files = trainer.files(f"run{number}")
        shutil.copytree(stopped.path, files.path)
        names = [*FILES, "manifest.json"] if number else FILES
        if kind == "swapped":  # random states that no step has drawn from are the same in both
            names = [name for name in names if not name.startswith(("random", "state"))]
        name = chance.choice(names)
        newest, older = (files.path / "checkpoints" / f"step-{s:08d}" for s in (12, 10))
        damage(kind, newest / name, older / name, chance)
        assert trainer.run(f"run{number}") == [0, 0]
        assert files.events("resumed")[-1]["from_step"] == 10
        if not (kind == "missing" and name == "manifest.json"):  # then it is no checkpoint at all
            (corrupt,) = files.events("checkpoint_corrupt")
            assert corrupt["step"] == 12
        assert not list(files.path.rglob("executed"))
        assert_same(files, control)
        trials.lost(2)
    trials.passed = True


def test_when_no_checkpoint_is_good_the_run_refuses_and_keeps_everything(
    trainer: Trainer, stopped: RunFiles
) -> None:
    files = trainer.files("run")
    shutil.copytree(stopped.path, files.path)
    for folder in (files.path / "checkpoints").glob("step-*"):
        (folder / "model.safetensors").write_bytes(b"rubbish")
    ranks = trainer.start("run")
    assert ranks.wait() == [1, 1]
    assert "none of the 3 checkpoints can be loaded" in ranks.output()
    assert "Traceback" not in ranks.output()
    assert len(list((files.path / "checkpoints").glob("step-*"))) == 3
    assert files.metrics() == stopped.metrics()


def test_retention_keeps_the_latest_and_the_best(trainer: Trainer, control: RunFiles) -> None:
    settings = ("checkpoint.keep_latest=1", "checkpoint.every_steps=2", "schedule.kind=constant")
    assert trainer.run("run", *settings, "optimizer.learning_rate=0.3", "steps=16") == [0, 0]
    files = trainer.files("run")
    evaluations = files.evaluations()
    best = min(evaluations, key=lambda step: evaluations[step])
    kept = PosixStore(files.path / "checkpoints").steps()
    assert kept == sorted({best, 16})


def test_a_paused_attempt_that_was_replaced_publishes_nothing_and_fails(
    trainer: Trainer, control: RunFiles
) -> None:
    from tests.trainer.test_interruptions import before

    def pause() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    files = trainer.files("run")
    old = trainer.start("run", hook=before("trainer.loop", "train_step", 8, 0, pause))
    pid = old.pids[0]
    os.waitpid(pid, os.WUNTRACED)
    assert trainer.run("run") == [0, 0]
    before_it_wakes = {p: p.read_bytes() for p in files.path.rglob("*") if p.is_file()}
    os.kill(pid, signal.SIGCONT)
    codes = old.wait()
    assert 0 not in codes and 75 not in codes
    assert "attempt 1 was replaced by attempt 2" in old.output()
    after = {p: p.read_bytes() for p in files.path.rglob("*") if p.is_file()}
    for file in (before_it_wakes.keys() | after.keys()) - {files.path / "events.jsonl"}:
        assert before_it_wakes.get(file) == after.get(file), file
    assert_same(files, control)
