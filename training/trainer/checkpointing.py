"""A run's checkpoints: saving in the background, resuming from the newest good one.

Replicated state is written by rank 0; the other ranks only hand it their random states. A step
waits for one copy into staging memory; the rest happens in the writer's thread. Where the bytes go
is the store's business, when and what is kept is the policy's.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import safetensors.torch
import torch

from training.checkpoint import contents, policy, rng
from training.checkpoint.contents import MODEL_FILE, OPTIMIZER_FILE, PROGRESS_FILE, Progress
from training.checkpoint.manifest import CorruptCheckpoint, Manifest
from training.checkpoint.store import CheckpointStore, Chunk, Fence, StaleAttempt, folder_name
from training.checkpoint.tensorfile import StagedFile, parse
from training.checkpoint.writer import BackgroundWriter
from training.spec import EXIT_PREEMPTED
from training.trainer.metrics import EventLog, MetricsLog
from training.trainer.parallel import World

_OUTCOME_SLACK_S = 15.0
"""The other ranks wait this much longer for the leader's outcome than the leader may take."""


_WAIT_SLICE_S = 0.05
"""How often a wait for the writer looks whether it still makes sense."""


class NoUsableCheckpoint(Exception):
    """There are checkpoints, and not one can be loaded; one line."""


@dataclass(kw_only=True)
class Checkpointer:
    """Saves and loads one run; every rank has one and calls the same methods in the same order."""

    world: World
    store: CheckpointStore
    fence: Fence
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    describe: Callable[[Progress, str], Manifest]
    """The manifest, without its files, of a checkpoint for a progress and a reason."""
    keep_latest: int
    events: EventLog
    metrics: MetricsLog | None = None
    """Made durable before each checkpoint; opened once the step to resume from is known."""
    saved_step: int | None = None
    """Of the newest checkpoint loaded or begun."""
    _writer: BackgroundWriter = field(default_factory=BackgroundWriter)
    _staged: dict[str, StagedFile] = field(default_factory=dict)
    _committed: bool = False
    """Whether this attempt has loaded or committed one."""

    def allocate(self) -> None:
        """Touch the staging memory once, before the first step."""
        if self.world.leads:
            pinned = self.world.device.type == "cuda"
            for name, tensors in self._tensors().items():
                self._staged[name] = StagedFile(tensors, pinned=pinned)

    def save(self, progress: Progress, reason: str, give_up: Callable[[float], bool]) -> None:
        """Begin a checkpoint of this step; returns once the state is copied.

        When the one before is still being written, waits for it, and an event says so; `give_up`,
        given the seconds waited so far, may end the wait: then this one is not written.
        """
        states = self.world.gather_bytes(safetensors.torch.save(rng.capture()))
        self.saved_step = progress.step
        if not self.world.leads:
            return
        if not self._wait_for_writer(progress.step, give_up):
            return
        for name, tensors in self._tensors().items():
            self._staged[name].stage(tensors)
        payloads: dict[str, Sequence[Chunk]] = {
            **{name: file.chunks() for name, file in self._staged.items()},
            **{contents.rng_file(rank): [state] for rank, state in enumerate(states)},
            PROGRESS_FILE: [progress.to_json()],
        }
        manifest = self.describe(progress, reason)
        self._writer.start(functools.partial(self._commit, manifest, payloads))

    def raise_if_replaced(self) -> None:
        """Raises StaleAttempt when a background save found out; other errors are only told."""
        error = self._writer.take_error()
        if isinstance(error, StaleAttempt):
            raise error
        if error is not None:
            print(f"checkpoint not written: {error}; training goes on", file=sys.stderr, flush=True)

    def conclude(self, intended_code: int, timeout_s: float) -> int:
        """Wait for the save in flight; the exit code that all ranks end with.

        It is `intended_code` when the state is safe. A preemption whose save did not make it in
        time still ends with 75 if an older good checkpoint exists; anything else is a failure.
        """
        code = None
        if self.world.leads:
            finished = self._writer.wait(timeout_s)
            error = self._writer.take_error()
            code = intended_code if finished and error is None else 1
            if not finished:
                self.events.write(
                    "checkpoint_failed",
                    self.saved_step or 0,
                    error=f"not written within {timeout_s:.0f} s",
                )
                if intended_code == EXIT_PREEMPTED and self._committed:
                    code = EXIT_PREEMPTED
            elif error is not None:
                print(f"checkpoint not written: {error}", file=sys.stderr, flush=True)
        return self.world.told_by_leader("exit-code", code, timeout_s + _OUTCOME_SLACK_S)

    def load_newest(self, check: Callable[[Progress], None]) -> Progress | None:
        """Load the newest good checkpoint on every rank; None when there is none at all.

        `check` raises when a checkpoint, though good, is not of this run's configuration. Bad
        ones are named in events and set aside once an older good one is loaded. Raises
        NoUsableCheckpoint when none is good.
        """
        candidates = self.store.steps() if self.world.leads else []
        bad: list[int] = []
        while (step := self.world.from_leader(candidates.pop() if candidates else -1)) >= 0:
            progress, mistake = self._try_load(step, check)
            failures = self.world.sum([float(progress is None)])[0]
            if progress is not None and not failures:
                self._loaded(step, bad)
                return progress
            bad.append(step)
            self.events.write(
                "checkpoint_corrupt", step, error=mistake or "unreadable on another rank"
            )
        if bad:
            raise NoUsableCheckpoint(
                f"{self.store.place}: none of the {len(bad)} checkpoints can be loaded; "
                "move the folder away to begin again from step 0"
            )
        return None

    def _try_load(
        self, step: int, check: Callable[[Progress], None]
    ) -> tuple[Progress | None, str | None]:
        try:
            manifest = self.store.manifest(step)
            progress = Progress.from_json(self.store.read(step, PROGRESS_FILE))
            check(progress)
            tensors = {
                name: parse(name, self.store.read(step, name))
                for name in (MODEL_FILE, OPTIMIZER_FILE)
            }
            states = self._random_states(manifest, progress)
            contents.load_model(self.model, tensors[MODEL_FILE])
            contents.load_optimizer(self.model, self.optimizer, tensors[OPTIMIZER_FILE])
            if states is None:
                rng.seed_all(progress.seed + 1_000_003 * (step + 1) + self.world.rank)
            else:
                rng.restore(states)
        except CorruptCheckpoint as error:
            return None, str(error)
        return progress, None

    def _random_states(
        self, manifest: Manifest, progress: Progress
    ) -> dict[str, torch.Tensor] | None:
        """This rank's states; None for a rank that did not exist when it was saved."""
        if self.world.rank >= manifest.world_size:
            return None
        name = contents.rng_file(self.world.rank)
        return parse(name, self.store.read(progress.step, name))

    def _loaded(self, step: int, bad: Sequence[int]) -> None:
        self.saved_step = step
        self._committed = True
        if self.world.leads:
            for other in bad:
                self.store.set_aside(other)
            self.store.mark_known_good(step)

    def _wait_for_writer(self, step: int, give_up: Callable[[float], bool]) -> bool:
        """Whether staging memory is free, after waiting as long as it makes sense."""
        if self._writer.busy:
            begun = time.monotonic()
            while not self._writer.wait(_WAIT_SLICE_S) and not give_up(time.monotonic() - begun):
                pass
            seconds = time.monotonic() - begun
            self.events.write("checkpoint_waited", step, seconds=seconds)
            if self._writer.busy:
                error = "the checkpoint before is still being written"
                self.events.write("checkpoint_failed", step, seconds=seconds, error=error)
                return False
        self.raise_if_replaced()
        return True

    def _commit(self, manifest: Manifest, payloads: dict[str, Sequence[Chunk]]) -> None:
        begun = time.monotonic()
        self.events.write("checkpoint_begin", manifest.step, reason=manifest.reason)
        try:
            if self.metrics is not None:
                self.metrics.sync()
            written = self._write(manifest, payloads)
        except (OSError, StaleAttempt) as error:
            seconds = time.monotonic() - begun
            self.events.write("checkpoint_failed", manifest.step, seconds=seconds, error=str(error))
            raise
        self._committed = True
        self.events.write(
            "checkpoint_commit",
            manifest.step,
            seconds=time.monotonic() - begun,
            path=f"{self.store.place}/{folder_name(manifest.step)}",
            bytes=written.bytes,
            reason=manifest.reason,
        )
        self._retain()

    def _write(self, manifest: Manifest, payloads: dict[str, Sequence[Chunk]]) -> Manifest:
        upload = self.store.begin(manifest.step, self.fence.attempt)
        try:
            files = {name: upload.put(name, chunks) for name, chunks in payloads.items()}
            return upload.commit(manifest.with_files(files), self.fence.check)
        except BaseException:
            upload.abort()
            raise

    def _retain(self) -> None:
        manifests = []
        for step in self.store.steps():
            try:
                manifests.append(self.store.manifest(step))
            except CorruptCheckpoint:
                continue
        for step in policy.to_delete(
            manifests, keep_latest=self.keep_latest, last_known_good=self.store.last_known_good()
        ):
            self.store.delete(step)

    def _tensors(self) -> dict[str, dict[str, torch.Tensor]]:
        return {
            MODEL_FILE: contents.model_tensors(self.model),
            OPTIMIZER_FILE: contents.optimizer_tensors(self.model, self.optimizer),
        }
