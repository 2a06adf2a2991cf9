"""Peer memory in the training loop: snapshots after steps, and the start from the newest one."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from training.checkpoint.contents import RECENT_STEPS_FILE, Progress
from training.peer_memory import inventory, snapshots
from training.peer_memory.flush import MANIFEST_BASE, REASON
from training.peer_memory.inventory import Part
from training.peer_memory.recovery import MemoryStore
from training.peer_memory.slots import Stamp
from training.peer_memory.snapshots import Snapshots
from training.trainer.checkpointing import Checkpointer
from training.trainer.parallel.world import World
from training.trainer.preflight import RunRequest
from trainyard.run_logs import EventLog, MetricsLog, StepMetrics
from trainyard.shared_files import shared_token

_RECENT = 64
"""Steps whose metrics a snapshot contains."""


class RecentSteps(MetricsLog):
    """Metrics of steps with a copy of the last ones, which every snapshot contains.

    With `hold` a step is written down once two nodes have the state after it: it is never done again.
    """

    def __init__(self, file: MetricsLog, recent: bytes, step: int, *, hold: bool) -> None:
        """`recent`: of the state that was loaded, which is of this step, from `to_json`."""
        self._file, self._hold = file, hold
        self._waiting: list[StepMetrics] = []
        known = (metrics for metrics in _steps_of(recent) if metrics.step <= step)
        self._recent: deque[StepMetrics] = deque(known, maxlen=_RECENT)
        self.dropped, self.missing = file.dropped, file.missing

    def append(self, metrics: StepMetrics) -> None:
        """Write a line, or keep it until `held`."""
        self._recent.append(metrics)
        self._waiting.append(metrics)
        if not self._hold:
            self.held()

    def held(self) -> None:
        """Write what waits."""
        for metrics in self._waiting:
            self._file.append(metrics)
        self._waiting.clear()

    def sync(self) -> None:
        """Write what waits, and fsync: a checkpoint of these steps follows."""
        self.held()
        self._file.sync()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.held()
        self._file.close()

    def to_json(self) -> bytes:
        """Return the last steps."""
        return json.dumps([vars(metrics) for metrics in self._recent]).encode()


def add_missing_steps(file: MetricsLog, content: bytes, step: int) -> None:
    """Append to a log the steps before `step` that it lacks, from those that a snapshot contained."""
    if not file.missing:
        return
    lacking = [m for m in _steps_of(content) if step - file.missing < m.step <= step]
    for metrics in lacking:
        file.append(metrics)
    file.missing -= len(lacking)


def _steps_of(content: bytes) -> list[StepMetrics]:
    return [StepMetrics(**values) for values in json.loads(content or b"[]")]


@dataclass(kw_only=True)
class PeerMemory:
    """The snapshots of a run on this rank; all ranks call the same methods in the same order."""

    world: World
    run_dir: Path
    saver: Checkpointer
    events: EventLog
    every_steps: int
    timeout_s: float
    attempt: int
    metrics: RecentSteps
    loaded: Stamp | None
    """The snapshot that this start of the gang has loaded; None: a checkpoint, or nothing."""
    _snapshots: Snapshots = field(init=False)
    _pending: bool = False
    _failing: bool = False

    def open(self) -> None:
        """Map the keeper's memory. Raises OSError."""
        connection = snapshots.connect()
        if connection is None:
            raise OSError("the keeper of this node is gone")
        self._snapshots = Snapshots(
            connection,
            self.saver.own_files,
            self.saver.tensors(),
            rank=self.world.rank,
            world=self.world.size,
            attempt=self.attempt,
            loaded=self.loaded,
            small_bytes=sum(map(len, self.saver.small_files(_EMPTY).values())),
            device=self.world.device,
        )
        if self.world.device.type == "cuda":
            self.saver.optimizer.register_step_pre_hook(self._snapshots.before_change)

    def wait_held(self, step: int) -> float:
        """Wait, before the exchange that ends a step, until two nodes have the snapshot before it.

        So a snapshot begins only when all parts of the one before are safe. Returns the seconds waited.
        """
        if not self._pending:
            return 0.0
        begun = time.perf_counter()
        problem = self._snapshots.wait_held(self.timeout_s)
        self._pending = False
        if problem and not self._failing:
            text = f"the state is on one node only from step {step - 1} on: {problem}"
            print(f"peer memory: {text}", file=sys.stderr, flush=True)
            self.events.write("peer_memory_failed", step - 1, error=problem)
        self._failing = bool(problem)
        return time.perf_counter() - begun

    def all_held(self) -> None:
        """Note, after that exchange, that every rank has waited: steps before this one are safe."""
        self.metrics.held()

    def distrust(self, after_step: int) -> None:
        """Have nobody use snapshots of later steps: the state is not what it should be."""
        if self.world.is_leader:
            inventory.distrust(self.run_dir, self.attempt, after_step)

    def take_loaded(self, progress: Progress) -> float:
        """Start a snapshot of the state that was loaded; return the seconds that the copy took.

        After the loss of a node, two parts of the state are on one node only until it has been sent.
        """
        return self._take(progress) if progress.step else 0.0

    def take_if_due(self, progress: Progress) -> float:
        """Start a snapshot after a step; return the seconds that the copy took."""
        return 0.0 if progress.step % self.every_steps else self._take(progress)

    def _take(self, progress: Progress) -> float:
        begun = time.perf_counter()
        small = self.saver.small_files(progress)
        if self.world.is_leader:
            base = self.saver.describe(progress, REASON)
            small[MANIFEST_BASE] = base.to_json().encode()
            small[RECENT_STEPS_FILE] = self.metrics.to_json()
        stamp = Stamp(step=progress.step, attempt=self.attempt, world=self.world.size)
        self._snapshots.take(stamp, self.saver.tensors(), small)
        self._pending = True
        return time.perf_counter() - begun


_EMPTY = Progress(
    step=0,
    samples=0,
    windows=0,
    seed=0,
    evaluated_step=0,
    evaluation_loss=None,
    dataset_version="",
    model={},
    tokens={},
)


def usable(world: World, request: RunRequest) -> bool:
    """Return whether every rank's node has a keeper; print why not where the run wants one."""
    if not request.config.peer_memory.enabled:
        return False
    connection = snapshots.connect()
    missing = int(world.sum([float(connection is None)])[0])
    if connection:
        connection.close()
    if missing and world.is_leader:
        text = f"{missing} of {world.size} ranks have no keeper on their node; training goes on without"
        print(f"peer memory: {text}", file=sys.stderr, flush=True)
    return not missing


def load_newest(
    world: World,
    request: RunRequest,
    saver: Checkpointer,
    check: Callable[[Progress], None],
) -> tuple[Progress, Stamp] | None:
    """Load the newest complete snapshot, unless storage has as new a checkpoint; None for neither."""
    parts = _parts(world, request)
    found = inventory.newest_complete(parts)
    stored = world.broadcast_from_leader(_newest_stored(saver) if world.is_leader else 0)
    if not found or found[0].stamp.step <= stored:
        return None
    token = shared_token(request.run_dir / "peer-memory" / "token")
    store = MemoryStore(found, token)
    progress = saver.load_from(store, store.step, check)
    return (progress, found[0].stamp) if progress else None


def _newest_stored(saver: Checkpointer) -> int:
    return max(saver.store.steps(), default=-1)


def _parts(world: World, request: RunRequest) -> list[Part]:
    """Return what the keepers of all nodes have; equal on every rank."""
    own: list[Part] = []
    if world.is_leader:
        token = shared_token(request.run_dir / "peer-memory" / "token")
        for address in inventory.keepers(request.run_dir):
            try:
                own += inventory.ask(address, token)
            except (OSError, ValueError, KeyError):
                continue  # of a node that is gone
    own = inventory.trusted(request.run_dir, own)
    content = json.dumps([part.to_json() for part in own]).encode()
    return [Part.from_json(one) for one in json.loads(world.gather_bytes(content)[0])]
