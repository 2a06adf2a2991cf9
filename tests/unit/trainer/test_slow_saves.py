"""Saves that storage delays or refuses: what becomes of the run, and of the rank that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.checkpoints import progress_of
from tests.waiting import until
from trainer.checkpointing import Checkpointer
from trainer.optimizer import create_state
from trainyard import checkpoints, notice, session
from trainyard.contract import EXIT_DONE, EXIT_PREEMPTED
from trainyard.run_info import run
from trainyard.store import factory
from trainyard.store.policy import SavePolicy
from trainyard.store.posix import PosixStore
from trainyard.watchdog import SAVE, watchdog

DEADLINE_S = 60.0


class Disk:
    """What happens at each step of a write."""

    def __init__(self) -> None:
        self.full = False
        self.free = threading.Event()
        self.free.set()

    def at(self, _: str) -> None:
        assert self.free.wait(DEADLINE_S)
        if self.full:
            raise OSError(28, "No space left on device")


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of one test and its run; nothing waits for it afterwards."""
    made = Disk()
    for name in ("RUN_DIR", "CHECKPOINTS", "CHECKPOINT_STORE"):
        monkeypatch.setenv(f"TRAINYARD_{name}", "")
    monkeypatch.setattr(notice, "_given", [notice.Notice(tmp_path)])
    run.use(tmp_path)
    monkeypatch.setattr(factory, "PosixStore", lambda root: PosixStore(root, made.at))
    yield made
    made.free.set()
    checkpoints.settle()
    checkpoints._saver.cache_clear()
    session.current.cache_clear()


@pytest.fixture
def saver(disk: Disk) -> Checkpointer:
    """Saves a small model to `disk`."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    create_state(optimizer)
    return Checkpointer(
        model=model,
        optimizer=optimizer,
        lineage={"parallelism": {"data": 1}},
        attachments={},
        policy=SavePolicy(every_steps=1, every_seconds=None, milestone_every_steps=None),
        keep_latest=3,
        stream=0,
    )


def save(saver: Checkpointer, step: int) -> None:
    """Start a save, without patience for the one before."""
    saver.save(progress_of(step), "test", 0.0)


def test_a_step_that_is_saved_ends_the_run_as_intended(saver: Checkpointer) -> None:
    save(saver, 1)
    assert saver.conclude(1, EXIT_DONE, DEADLINE_S) == EXIT_DONE
    assert saver.conclude(1, EXIT_PREEMPTED, DEADLINE_S) == EXIT_PREEMPTED


@pytest.mark.parametrize("code", [EXIT_DONE, EXIT_PREEMPTED])
def test_a_failed_last_save_is_not_forgotten(saver: Checkpointer, disk: Disk, code: int) -> None:
    """Groups of an elastic run conclude again when a member is lost meanwhile."""
    save(saver, 1)
    assert saver.conclude(1, code, DEADLINE_S) == code
    disk.full = True
    save(saver, 2)
    assert saver.conclude(2, code, DEADLINE_S) == 1
    assert saver.conclude(2, code, DEADLINE_S) == 1


@pytest.mark.parametrize(("intended", "code"), [(EXIT_DONE, 1), (EXIT_PREEMPTED, EXIT_PREEMPTED)])
def test_a_checkpoint_of_an_earlier_step_does_not_make_a_run_done(
    saver: Checkpointer, disk: Disk, intended: int, code: int
) -> None:
    disk.free.clear()
    save(saver, 1)
    save(saver, 2)
    disk.free.set()
    assert saver.conclude(2, intended, DEADLINE_S) == code
    assert session.store().steps() == [1]
    assert saver.saved_step == 1
    save(saver, 2)  # by a later call of `finish`
    assert saver.conclude(2, intended, DEADLINE_S) == intended


def test_a_rank_that_waits_for_the_save_before_makes_progress(
    saver: Checkpointer, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    monkeypatch.setattr(watchdog, "still_working", lambda: marks.append(watchdog.phase))
    disk.free.clear()
    save(saver, 1)
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(saver.save, progress_of(2), "test", DEADLINE_S)
        try:
            until(lambda: marks[:3] == [SAVE] * 3, "marks", DEADLINE_S)
        finally:
            disk.free.set()
        saved.result(DEADLINE_S)
    assert saver.conclude(2, EXIT_DONE, DEADLINE_S) == EXIT_DONE
