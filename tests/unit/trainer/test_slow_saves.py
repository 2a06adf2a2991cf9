"""Saves that storage delays or refuses: what becomes of the run, and of the rank that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from tests.unit.trainer.checkpoints import draft, progress_of
from tests.waiting import until
from trainer import loop
from trainer.checkpoint.contents import prepare_optimizer
from trainer.checkpointing import Checkpointer
from trainer.parallel.layout import Layout
from trainer.parallel.world import World
from trainyard.contract import EXIT_DONE, EXIT_PREEMPTED
from trainyard.run_logs import EventLog
from trainyard.store.fence import PosixFence
from trainyard.store.posix import PosixStore
from trainyard.watchdog import SAVE, watchdog

DEADLINE_S = 60.0


class _Alone(World):
    """A rank without a process group."""

    def gather_bytes(self, content: bytes) -> list[bytes]:
        return [content]


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
def disk() -> Iterator[Disk]:
    """The disk of one test; nothing waits for it afterwards."""
    made = Disk()
    yield made
    made.free.set()


@pytest.fixture
def saver(tmp_path: Path, disk: Disk) -> Checkpointer:
    """Saves a small model to `disk`."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    prepare_optimizer(model, optimizer)
    made = Checkpointer(
        world=_Alone(
            rank=0,
            size=1,
            layout=Layout(pipeline=1, replicate=1, shard=1, tensor=1),
            device=torch.device("cpu"),
            store=HashStore(),
        ),
        run_dir=tmp_path,
        store=PosixStore(tmp_path / "checkpoints", disk.at),
        fence=PosixFence.claim(tmp_path),
        model=model,
        optimizer=optimizer,
        describe=lambda progress, _: draft(progress.step),
        attachments={},
        keep_latest=3,
        events=EventLog(tmp_path / "events.jsonl", 1, enabled=True),
    )
    made.allocate()
    return made


def save(saver: Checkpointer, step: int) -> None:
    """Start a save, without patience for the one before."""
    saver.save(progress_of(step), "test", lambda _: True)


def test_a_step_that_is_saved_ends_the_run_as_intended(saver: Checkpointer) -> None:
    save(saver, 1)
    assert saver.conclude(1, EXIT_DONE, DEADLINE_S) == EXIT_DONE
    assert saver.conclude(1, EXIT_PREEMPTED, DEADLINE_S) == EXIT_PREEMPTED


def test_a_failed_last_save_is_not_forgotten(saver: Checkpointer, disk: Disk) -> None:
    """Groups of an elastic run conclude again when a member is lost meanwhile."""
    disk.full = True
    save(saver, 1)
    assert saver.conclude(1, EXIT_DONE, DEADLINE_S) == 1
    assert saver.conclude(1, EXIT_DONE, DEADLINE_S) == 1


@pytest.mark.parametrize("code", [EXIT_DONE, EXIT_PREEMPTED])
def test_a_failure_that_training_has_seen_is_not_forgotten(
    saver: Checkpointer, disk: Disk, code: int
) -> None:
    save(saver, 1)
    until(lambda: not saver.writing, "an older checkpoint", DEADLINE_S)
    disk.full = True
    save(saver, 2)
    until(lambda: not saver.writing, "the failure", DEADLINE_S)
    assert not saver.is_replaced()
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
    assert saver.store.steps() == [1]
    assert saver.saved_step == 1
    save(saver, 2)  # by a later call of `finish`
    assert saver.conclude(2, intended, DEADLINE_S) == intended


def test_a_rank_that_waits_for_the_save_before_makes_progress(
    saver: Checkpointer, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[str] = []
    monkeypatch.setattr(watchdog, "still_working", lambda: marks.append(watchdog.phase))
    run: Any = SimpleNamespace(
        config=SimpleNamespace(steps=10, collective_timeout_s=4 * DEADLINE_S),
        progress=progress_of(2),
        save_policy=SimpleNamespace(reason=lambda step, *, time_due: "test"),
        notice=threading.Event(),
        checkpointer=saver,
        meter=SimpleNamespace(add_stall=lambda seconds: None),
    )
    disk.free.clear()
    save(saver, 1)
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(loop.save_if_due, run, False)
        try:
            until(lambda: marks[:3] == [SAVE] * 3, "marks", DEADLINE_S)
        finally:
            disk.free.set()
        saved.result(DEADLINE_S)
    assert saver.conclude(2, EXIT_DONE, DEADLINE_S) == EXIT_DONE
