"""Save checkpoints in the background and resume from the newest good one.

Each rank writes the tensor shards of which it is the lowest holder; the leader also writes the shared
files and publishes. A step waits for one copy into staging memory; background threads do the rest.
The store decides where bytes go, the policy when to save and what to keep.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
import torch

from trainer.checkpoint import contents, rng
from trainer.checkpoint.contents import PROGRESS_FILE, Progress, parse_safetensors
from trainer.config_errors import ConfigError
from trainer.parallel.world import World
from trainyard.contract import EXIT_PREEMPTED
from trainyard.run_logs import EventLog, MetricsLog
from trainyard.store.interface import (
    CheckpointStore,
    Chunk,
    Fence,
    StaleAttempt,
    Upload,
    folder_name,
)
from trainyard.store.manifest import CorruptCheckpoint, FileRecord, Manifest, UnknownFormat
from trainyard.store.policy import apply_retention
from trainyard.tensors import staging
from trainyard.tensors.coordination import SaveCoordinator
from trainyard.tensors.layout import LAYOUT_FILE, layout_from_json, layout_to_json
from trainyard.tensors.loading import check_fit, load_tensors
from trainyard.tensors.local_tensors import Groups, local_shards
from trainyard.tensors.plan import (
    Plan,
    PlannedFile,
    make_plan,
    shards_from_bytes,
    shards_to_bytes,
)
from trainyard.tensors.rank_save import RankSave
from trainyard.tensors.replicas import Replica, require_same
from trainyard.tensors.staging import Staging
from trainyard.tensors.writer import BackgroundWriter

_OUTCOME_SLACK_S = 15.0
"""Extra time that other ranks wait for the leader's outcome."""
_WAIT_SLICE_S = 0.05
"""Poll interval of a wait for the writer."""
_PAUSES_SHARE = 1 / 40
"""Most pauses of a save, as a share of the time since the last one: so much later a checkpoint is complete."""

_SHARING = ("tensor", "pipeline")
"""Dimensions whose ranks share samples: their random states depend on their position."""


class NoUsableCheckpoint(Exception):
    """None of the existing checkpoints can be loaded."""


@dataclass(kw_only=True)
class Checkpointer:
    """Saves and loads one run; all ranks call the same methods in the same order."""

    world: World
    run_dir: Path
    """Where verdicts are recorded."""
    store: CheckpointStore
    fence: Fence
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    describe: Callable[[Progress, str], Manifest]
    """Returns the manifest, without files, for a progress and a reason."""
    attachments: Mapping[str, bytes]
    """Small files in every checkpoint: model configuration and tokenizer."""
    keep_latest: int
    events: EventLog
    metrics: MetricsLog | None = None
    """Fsynced before each checkpoint; set once the step to resume from is known."""
    loaded: Manifest | None = None
    """Manifest of the checkpoint that this attempt resumed from."""
    saved_step: int | None = None
    """Step of the newest checkpoint loaded or started."""
    save_started: float = field(default_factory=time.monotonic)
    """When the last save started, or this attempt did; monotonic clock."""
    _writer: BackgroundWriter = field(default_factory=BackgroundWriter)
    _coordinator: SaveCoordinator = field(init=False)
    _plan: Plan = field(init=False)
    _memory: Future[torch.Tensor] = field(init=False)
    """Of the staging buffers."""
    _staging: Staging | None = None
    _layout: bytes = field(init=False)
    _saves: int = 0
    """Saves started by this attempt; equal on every rank."""
    _concluded: int = 0
    """Calls of `conclude`; equal on every rank."""
    _committed_step: int = 0
    """On the leader, step of the newest checkpoint that this attempt has loaded or committed; 0 for none."""
    _error: BaseException | None = None
    """Why the last save failed."""

    def __post_init__(self) -> None:
        """Plan with the other ranks which rank writes what. Raises UnevenLayout."""
        self._coordinator = SaveCoordinator(self.world.store, self.world.rank, self.world.size)
        gathered = self.world.gather_bytes(shards_to_bytes(local_shards(self.tensors())))
        self._plan = make_plan([shards_from_bytes(content) for content in gathered])

    def allocate(self, *, in_background: bool = False) -> None:
        """Allocate and touch the staging memory before the first step.

        `in_background`: training goes on meanwhile, and the first save waits for it.
        """
        self._layout = layout_to_json(self._plan.layout)
        pool = ThreadPoolExecutor(1, "staging")
        self._memory = pool.submit(staging.allocate, self._own_files, self.world.device)
        pool.shutdown(wait=False)
        if not in_background:
            self._staging_memory()

    def _staging_memory(self) -> Staging:
        """Return the staging memory, once it is allocated."""
        if self._staging is None:
            device = self.world.device
            made = Staging(self._own_files, self.tensors(), device, self._memory.result())
            if device.type == "cuda":
                self.optimizer.register_step_pre_hook(lambda *_: made.before_change())
            self._staging = made
        return self._staging

    def save(self, progress: Progress, reason: str, give_up: Callable[[float], bool]) -> None:
        """Start a checkpoint of this step; return once the state is copied.

        Waits for a save in flight and records that as an event. `give_up`, called with the seconds
        waited, may end the wait: then no rank writes this checkpoint. Raises ReplicasDiffer on every rank.
        """
        self.check_replicas(progress.step)
        small = self._small_files(progress)
        waited = self._wait_for_writer(progress.step, give_up)
        if self.world.sum([float(self.writing)])[0]:
            error = "the previous checkpoint is still being written"
            self.events.write("checkpoint_failed", progress.step, seconds=waited, error=error)
            return
        self.saved_step = progress.step
        self.raise_if_replaced()
        staged = self._staging_memory()
        staged.stage(self.tensors())
        files: dict[str, Sequence[Chunk]] = {name: [small[name]] for name in small}
        files |= {name: staged.chunks(name) for name in staged.files}
        begun = time.monotonic()
        pauses_s = _PAUSES_SHARE * (begun - self.save_started)
        attempt = self.fence.attempt
        save = RankSave(self.store, progress.step, attempt, files, staged.wait, pauses_s=pauses_s)
        self.save_started = begun
        self._error = None
        self._saves += 1
        commit = functools.partial(self._commit, save, self.describe(progress, reason))
        self._writer.start(commit, save.work)

    def check_replicas(self, step: int) -> None:
        """Check that ranks with the same part of the model agree in its state. Raises ReplicasDiffer on all."""
        sets = self.world.layout.replicas()
        if all(len(ranks) == 1 for ranks in sets):
            return
        own = Replica.of(self.tensors(), self.world.rank)
        found = [Replica.from_json(one) for one in self.world.gather_bytes(own.to_json())]
        for ranks in sets:
            require_same([found[rank] for rank in ranks], step, self.run_dir, self.fence.attempt)

    @property
    def _own_files(self) -> Sequence[PlannedFile]:
        """The files with the tensors that this rank writes."""
        return self._plan.files[self.world.rank]

    def tensors(self) -> Groups:
        """Return all stored tensors of this rank."""
        return contents.tensors(self.model, self.optimizer)

    def _small_files(self, progress: Progress) -> dict[str, bytes]:
        """Return the other files that this rank writes, as of now: random states, the leader's also the rest."""
        found = {contents.rng_file(self.world.rank): safetensors.torch.save(rng.capture())}
        if self.world.is_leader:
            found[PROGRESS_FILE] = progress.to_json()
            found[LAYOUT_FILE] = self._layout
            found |= self.attachments
        return found

    @property
    def writing(self) -> bool:
        """Whether a save is in flight, and its staging memory in use."""
        return self._writer.busy

    def is_replaced(self) -> bool:
        """Return whether a background save found a newer attempt; print other errors."""
        error = self._writer.take_error()
        self._error = error or self._error
        if error is not None and not isinstance(error, StaleAttempt):
            print(
                f"checkpoint not written: {error}; training continues", file=sys.stderr, flush=True
            )
        return isinstance(self._error, StaleAttempt)

    def raise_if_replaced(self) -> None:
        """Raise StaleAttempt if a background save found a newer attempt; print other errors."""
        if self.is_replaced() and self._error:
            raise self._error

    def conclude(self, step: int, intended_code: int, timeout_s: float) -> int:
        """Wait for the save in flight; return the exit code for all ranks.

        It is `intended_code` if this step is saved; step 0 need not be. A preemption whose save missed its
        deadline still ends with 75 if an older good checkpoint exists; anything else is a failure, also in
        a later call for the same step.
        """
        code = None
        self._concluded += 1
        self._writer.help()
        if self.world.is_leader:
            finished = self._writer.wait(timeout_s)
            self._error = error = self._writer.take_error() or self._error
            code = 1
            if error is not None:
                print(f"checkpoint not written: {error}", file=sys.stderr, flush=True)
            elif finished and self._committed_step == step:
                code = intended_code
            elif intended_code == EXIT_PREEMPTED and self._committed_step:
                code = EXIT_PREEMPTED
            if not finished:
                late = f"not written within {timeout_s:.0f} s"
                self.events.write("checkpoint_failed", step, error=late)
        name = f"exit-code-{self._concluded}"
        return self.world.receive_from_leader(name, code, timeout_s + _OUTCOME_SLACK_S)

    def load_newest(self, check: Callable[[Progress], None]) -> Progress | None:
        """Load the newest good checkpoint on every rank; return None if there is no checkpoint.

        `check` raises when a good checkpoint does not match this run's configuration. Corrupt ones
        are recorded as events and set aside once an older good one is loaded. Raises
        NoUsableCheckpoint when none is good, ConfigError for one that cannot be read here.
        """
        candidates = self.store.steps() if self.world.is_leader else []
        bad: list[int] = []
        while (
            step := self.world.broadcast_from_leader(candidates.pop() if candidates else -1)
        ) >= 0:
            progress, mistake = self._try_load(step, check)
            mistakes = self._mistakes_of_all_ranks(mistake)
            if progress is not None and not mistakes:
                self._loaded(step, bad)
                return progress
            bad.append(step)
            self._report_corrupt(step, mistakes)
        if bad:
            raise NoUsableCheckpoint(
                f"{self.store.place}: none of the {len(bad)} checkpoints can be loaded; "
                "move the folder away to restart from step 0"
            )
        return None

    def _mistakes_of_all_ranks(self, mistake: str | None) -> list[str]:
        """Return what is wrong with a checkpoint, one text per rank that found something."""
        texts = self.world.gather_bytes(f"{mistake or ''}\n".encode())  # never empty
        found = [text.decode().strip() for text in texts]
        return [f"{text} (rank {rank})" for rank, text in enumerate(found) if text]

    def _report_corrupt(self, step: int, mistakes: Sequence[str]) -> None:
        more = f"; {len(mistakes) - 1} other ranks found errors" if len(mistakes) > 1 else ""
        if self.world.is_leader:
            print(
                f"checkpoint {folder_name(step)} skipped: {mistakes[0]}{more}",
                file=sys.stderr,
                flush=True,
            )
        self.events.write("checkpoint_corrupt", step, error=mistakes[0] + more)

    def _try_load(
        self, step: int, check: Callable[[Progress], None]
    ) -> tuple[Progress | None, str | None]:
        store = self.store
        try:
            manifest = store.manifest(step)
            progress = Progress.from_json(store.read(step, PROGRESS_FILE))
            check(progress)
            layout = layout_from_json(store.read(step, LAYOUT_FILE))
            check_fit(layout, self._plan.layout)
            states = self._random_states(manifest, progress)
            self._verify_unread_files(manifest)
            load_tensors(store, manifest, layout, self.tensors())
            if states is None:
                draws = self.world.rank // self.world.layout.tensor
                rng.seed_all(progress.seed + 1_000_003 * (step + 1) + draws)
            else:
                rng.restore(states)
        except UnknownFormat as error:
            place = f"{store.place}/{folder_name(step)}"
            raise ConfigError(
                [f"resume: {place}: {error}; use the run's image, or another --run-dir"]
            ) from None
        except CorruptCheckpoint as error:
            return None, str(error)
        self.loaded = manifest
        return progress, None

    def _random_states(
        self, manifest: Manifest, progress: Progress
    ) -> dict[str, torch.Tensor] | None:
        """Return this rank's states; None if it did not exist or had another position when saved."""
        if self.world.rank >= self._ranks_with_states(manifest):
            return None
        name = contents.rng_file(self.world.rank)
        return parse_safetensors(name, self.store.read(progress.step, name))

    def _ranks_with_states(self, manifest: Manifest) -> int:
        """Return how many ranks restore the random states saved under their number."""
        own = self.world.layout.dimensions()
        changed = any(manifest.parallelism.get(d, 1) != own.get(d, 1) for d in _SHARING)
        return 0 if changed else min(self.world.size, manifest.world_size)

    def _verify_unread_files(self, manifest: Manifest) -> None:
        """Verify the files that no rank loads. Raises CorruptCheckpoint."""
        if self.world.is_leader:
            ranks = range(self._ranks_with_states(manifest), manifest.world_size)
            small = {name for name in manifest.files if not name.endswith(".safetensors")}
            unread = small - {PROGRESS_FILE, LAYOUT_FILE}
            for name in sorted(unread | {contents.rng_file(rank) for rank in ranks}):
                self.store.read(manifest.step, name)

    def _loaded(self, step: int, bad: Sequence[int]) -> None:
        self.saved_step = self._committed_step = step
        if self.world.is_leader:
            for other in bad:
                self.store.set_aside(other)
            self.store.mark_known_good(step)

    def _wait_for_writer(self, step: int, give_up: Callable[[float], bool]) -> float:
        """Wait until staging memory is free or `give_up`; return the seconds waited."""
        if not self.writing:
            return 0.0
        begun = time.monotonic()
        self._writer.help()
        while not self._writer.wait(_WAIT_SLICE_S) and not give_up(time.monotonic() - begun):
            pass
        seconds = time.monotonic() - begun
        self.events.write("checkpoint_waited", step, seconds=seconds)
        return seconds

    def _commit(self, save: RankSave, manifest: Manifest) -> None:
        """Write this rank's files in the background; the leader also publishes."""
        if not self.world.is_leader:
            save.follow(self._coordinator, self._saves)
            return
        begun = time.monotonic()
        announce = functools.partial(self._announce, manifest)
        publish = functools.partial(self._publish, manifest, begun)
        try:
            save.lead(self._coordinator, self._saves, announce, publish)
        except (OSError, StaleAttempt, RuntimeError) as error:
            seconds = time.monotonic() - begun
            self.events.write("checkpoint_failed", manifest.step, seconds=seconds, error=str(error))
            raise
        try:
            apply_retention(self.store, self.keep_latest)
        except OSError as error:  # the new checkpoint is committed already
            print(f"old checkpoints not removed: {error}", file=sys.stderr, flush=True)

    def _announce(self, manifest: Manifest) -> None:
        self.events.write("checkpoint_begin", manifest.step, reason=manifest.reason)
        if self.metrics is not None:
            self.metrics.sync()

    def _publish(
        self,
        manifest: Manifest,
        begun: float,
        upload: Upload,
        files: dict[str, FileRecord],
        paused_s: float,
    ) -> None:
        written = upload.commit(manifest.with_files(files), self.fence.check)
        self._committed_step = manifest.step
        self.events.write(
            "checkpoint_commit",
            manifest.step,
            seconds=time.monotonic() - begun - paused_s,
            path=f"{self.store.place}/{folder_name(manifest.step)}",
            bytes=written.bytes,
            reason=manifest.reason,
        )
