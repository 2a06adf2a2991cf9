"""This start of the program: its attempt number and its event log, the same for all ranks."""

from __future__ import annotations

import contextlib
import functools
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from trainyard import shared_files
from trainyard.contract import EVENTS_FILE, START_TIMEOUT_S
from trainyard.restart_budget import restarts_in_pod
from trainyard.run_info import run
from trainyard.run_logs import EventLog
from trainyard.store import factory
from trainyard.store.fence import ATTEMPTS_DIR
from trainyard.store.interface import CheckpointStore, Fence
from trainyard.watchdog import watchdog


@dataclass(frozen=True)
class Session:
    """What all ranks of this start share."""

    folder: Path
    """The run's folder; outside a run that of the checkpoints."""
    fence: Fence
    events: EventLog
    """Written by rank 0."""

    @property
    def messages(self) -> Path:
        return self.folder / ATTEMPTS_DIR / f".start-{shared_files.start_id()}"


class Durable(Protocol):
    """What is made durable before each checkpoint."""

    def sync(self) -> None:
        """Raises OSError."""


metrics: Final[list[Durable]] = []
"""So that the steps of a checkpoint are recorded."""
records_start = True
"""Whether `current` records the event `started`; False for a program that does it itself, with more details."""
_number: int | None = None
"""The number to claim; None: the next one."""


def renew(number: int) -> None:
    """Have `current` claim this attempt number, which fences out whoever claimed before. On all ranks."""
    global _number
    _number = number
    current.cache_clear()


@functools.cache
def current() -> Session:
    """Return the session; rank 0 claims the attempt number, which stops older starts from publishing.

    A call of all ranks, whenever each first needs it. Raises OSError, shared_files.RankMissing; on rank 0 of
    an elastic group StaleAttempt, before the other ranks call it.
    """
    folder = run.run_dir or run.checkpoints
    message = folder / ATTEMPTS_DIR / f".start-{shared_files.start_id()}" / "attempt"
    if run.rank == 0:
        fence = factory.claim_attempt(folder, run.checkpoint_store, _number)
        if _number is None:
            store().sweep()
            for older in (folder / ATTEMPTS_DIR).glob(".start-*"):
                shutil.rmtree(older, ignore_errors=True)
            message.parent.mkdir(parents=True, exist_ok=True)
            shared_files.write(message, fence.attempt)
        else:  # other groups wait
            threading.Thread(target=_sweep, args=(fence.attempt,), daemon=True).start()
    else:
        number = _number
        if number is None:
            number = int(shared_files.wait(message, START_TIMEOUT_S, "rank 0's attempt number"))
        fence = factory.join_attempt(folder, run.checkpoint_store, number)
    watchdog.describe(attempt=fence.attempt)
    writes = run.rank == 0 and run.run_dir is not None
    events = EventLog(folder / EVENTS_FILE, fence.attempt, enabled=writes)
    if records_start:
        events.write(
            "started",
            0,
            world_size=run.world_size,
            run_id=run.run_id,
            restart=str(run.attempt),
            restarts_in_pod=restarts_in_pod(),
        )
    return Session(folder, fence, events)


def _sweep(attempt: int) -> None:
    with contextlib.suppress(OSError):  # the next start does it
        store().sweep(attempt)


def store() -> CheckpointStore:
    return factory.open_store(run.checkpoints, run.checkpoint_store)
