"""Kills, full disks and damaged files: the store always loads, the old state or the new one."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import Hook, RunFiles
from tests.trainer.runs import STEPS, Trainer, assert_same
from training.checkpoint.posix import PosixStore


def at_boundary(action: Callable[[int, str], None]) -> Hook:
    """On rank 0, tell `action` the number and name of every boundary that its store crosses."""

    def hook(rank: int) -> None:
        if rank == 0:
            from training.checkpoint import opening

            crossed = [0]

            def at(name: str) -> None:
                crossed[0] += 1
                action(crossed[0], name)

            opening.PosixStore = lambda root: PosixStore(root, at)  # type: ignore[assignment,misc]

    return hook


def test_killed_at_any_boundary_of_a_save_the_run_resumes_bit_identically(
    trainer: Trainer, control: RunFiles, chance: random.Random, full: bool
) -> None:
    names: list[str] = []
    record = trainer.root / "boundaries"

    def note(number: int, name: str) -> None:
        with record.open("a") as stream:
            stream.write(name + "\n")

    assert trainer.run("dry", hook=at_boundary(note)) == [0, 0]
    names = record.read_text().splitlines()
    assert {name.split()[0] for name in names} == {"write", "fsync", "rename", "remove"}
    numbers = range(1, len(names) + 1)
    for number in numbers if full else chance.sample(numbers, 3):

        def kill(crossed: int, _: str, number: int = number) -> None:
            if crossed == number:
                os.kill(os.getpid(), signal.SIGKILL)

        run = f"run{number}"
        codes = trainer.run(run, hook=at_boundary(kill))
        assert codes[0] == -signal.SIGKILL, names[number - 1]
        assert trainer.run(run) == [0, 0]
        assert_same(trainer.files(run), control)
        checkpoints = trainer.files(run).path / "checkpoints"
        assert not [name for name in os.listdir(checkpoints) if name.startswith(".")]


def test_a_disk_that_is_full_for_a_while_costs_checkpoints_but_not_the_run(
    trainer: Trainer, control: RunFiles
) -> None:
    def full_disk(number: int, name: str) -> None:
        if number == 2:
            raise OSError(28, "No space left on device")

    ranks = trainer.start("run", hook=at_boundary(full_disk))
    assert ranks.wait() == [0, 0]
    files = trainer.files("run")
    (failed,) = files.events("checkpoint_failed")
    assert failed["step"] == 5 and "No space left" in failed["error"]
    assert "checkpoint not written" in ranks.said()
    assert [e["step"] for e in files.events("checkpoint_commit")] == [10, 15, 20, STEPS]
    assert_same(files, control)


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
        from tests.trainer.test_interruptions import before, told_to_stop

        return before("training.trainer.loop", "learning_rate", number, 0, told_to_stop)

    assert trainer.run("stopped", hook=told(12)) == [75, 75]
    return trainer.files("stopped")


class Hostile:
    """Unpickling this makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.file),))


FILES = ["model.safetensors", "optimizer.safetensors", "rng-00001.safetensors", "progress.json"]


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
    chance: random.Random,
    full: bool,
) -> None:
    for number in range(100 if full else 1):
        files = trainer.files(f"run{number}")
        shutil.copytree(stopped.path, files.path)
        names = [*FILES, "manifest.json"] if number else FILES
        if kind == "swapped":  # random states that no step has drawn from are the same in both
            names = [name for name in names if not name.startswith("rng")]
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


def test_when_no_checkpoint_is_good_the_run_refuses_and_keeps_everything(
    trainer: Trainer, stopped: RunFiles
) -> None:
    files = trainer.files("run")
    shutil.copytree(stopped.path, files.path)
    for folder in (files.path / "checkpoints").glob("step-*"):
        (folder / "model.safetensors").write_bytes(b"rubbish")
    ranks = trainer.start("run")
    assert ranks.wait() == [1, 1]
    assert "none of the 3 checkpoints can be loaded" in ranks.said()
    assert "Traceback" not in ranks.said()
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
    old = trainer.start("run", hook=before("training.trainer.loop", "one_step", 8, 0, pause))
    pid = old.pids[0]
    os.waitpid(pid, os.WUNTRACED)
    assert trainer.run("run") == [0, 0]
    before_it_wakes = {p: p.read_bytes() for p in files.path.rglob("*") if p.is_file()}
    os.kill(pid, signal.SIGCONT)
    codes = old.wait()
    assert 0 not in codes and 75 not in codes
    assert "attempt 1 was replaced by attempt 2" in old.said()
    after = {p: p.read_bytes() for p in files.path.rglob("*") if p.is_file()}
    for file in (before_it_wakes.keys() | after.keys()) - {files.path / "events.jsonl"}:
        assert before_it_wakes.get(file) == after.get(file), file
    assert_same(files, control)
