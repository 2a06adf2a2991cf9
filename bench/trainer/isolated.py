"""A process of its own for a measurement, with one trainer's rank and the arms that are compared."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.trainer.checkpoint_backends import CheckpointBackend, create_backends
from bench.trainer.state import State, make_state


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """State and arms of the measuring process."""

    state: State
    arms: dict[str, CheckpointBackend]


_STATES: list[WorkerState] = []
_OPEN = ExitStack()


@contextmanager
def worker_process(
    folder: Path, names: Mapping[str, str], megabytes: int, seed: int
) -> Iterator[ProcessPoolExecutor]:
    """One worker, which has set up; what is submitted finds it by `here`."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        pool.submit(_set_up, folder, names, megabytes, seed).result()
        yield pool


def worker_state() -> WorkerState:
    """In the worker."""
    return _STATES[0]


def _set_up(folder: Path, names: Mapping[str, str], megabytes: int, seed: int) -> None:
    log = os.open(folder / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)  # output of libraries; errors are raised as exceptions
    import torch

    from training.trainer import config
    from training.trainer.parallel.world import join_world

    torch.set_num_threads(1)
    settings = config.parse({"steps": 100, "device": "cpu", "data": {"path": "none"}})
    world = _OPEN.enter_context(join_world(settings))
    made = make_state(megabytes, seed)
    _STATES.append(WorkerState(state=made, arms=create_backends(folder, made, world, names)))
