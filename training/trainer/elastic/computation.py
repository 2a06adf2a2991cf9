"""One group's part of a step: gradients of its logical workers, and the update that all groups make alike."""

from __future__ import annotations

import errno
import hashlib
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from training.checkpoint import contents, rng
from training.trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from training.trainer.data.sampler import Sampler
from training.trainer.data.windows import Int64s
from training.trainer.elastic.exchange import STEP, Exchange, Note
from training.trainer.elastic.gradients import LocalGradients
from training.trainer.elastic.transfer import AppliedStep, Tensors, local_tensors
from training.trainer.evaluation import to_device
from training.trainer.flight.recorder import StepTimes
from training.trainer.flight.ring import Phase
from training.trainer.loop import Run, end_step, is_usable, not_finite, update
from training.trainer.loss_scale import scale_of
from trainyard.elastic.tree import SubtreeSums
from trainyard.run_logs import MetricsLog, StepMetrics
from trainyard.tensors.local_tensors import local_data

_RECENT: Final = 64
"""Lines of metrics that every group keeps, for the case that the leader is lost before it wrote them."""

Observer = Callable[[str, int, int, range], None]
"""Receives `summed` or `applied`, the step, the view and this group's logical workers."""


class RecentMetrics(MetricsLog):
    """The metrics of the last steps; the leader's are in the file as well. Thread-safe."""

    def __init__(self) -> None:
        super().__init__(Path(), 0, enabled=False)
        self._recent: deque[StepMetrics] = deque(maxlen=_RECENT)
        self._file: MetricsLog | None = None
        self._lock = threading.Lock()
        self._before: list[StepMetrics] = []
        """The last lines before `hold`."""
        self._later: list[StepMetrics] | None = None
        """Lines since `hold`, until the file is open."""
        self._settled = threading.Event()
        """Set once the file is open, or cannot be opened."""

    def append(self, metrics: StepMetrics) -> None:
        """Keep a line, and write it if this group leads. Raises OSError."""
        with self._lock:
            self._recent.append(metrics)
            if self._file:
                self._file.append(metrics)
            elif self._later is not None:
                self._later.append(metrics)

    def hold(self) -> None:
        """Keep all lines from now on until `write_to`, which another thread may call; or `give_up`."""
        with self._lock:
            self._before, self._later = list(self._recent), []

    def write_to(self, file: MetricsLog, step: int, attempt: int) -> None:
        """Write to this file from now on. Raises OSError.

        First the last lines up to `step` that it lacks, then those since `hold`.
        """
        with self._lock:
            lacking = [one for one in self._before if step - file.missing < one.step <= step]
            for metrics in lacking:
                file.append(replace(metrics, attempt=attempt))
            file.missing -= len(lacking)
            for metrics in self._later or ():
                file.append(metrics)
            self._file, self._later = file, None
        self._settled.set()

    def give_up(self) -> None:
        """Keep no lines: the file cannot be opened."""
        with self._lock:
            self._later = None
        self._settled.set()

    def sync(self) -> None:
        """Fsync the file, once it is open; in any thread. Raises OSError."""
        self._settled.wait()
        if self._file is None:
            raise OSError(errno.EIO, "metrics.jsonl could not be opened")
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def worker_seed(seed: int, step: int, worker: int, stream: int) -> int:
    """Return the seed of a logical worker's random numbers in one step, on the ranks of one stream."""
    words = [seed, step, worker, *([stream] if stream else [])]
    digest = hashlib.sha256("/".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@dataclass(kw_only=True)
class Computation:
    """This rank's part of a group's model, its data and its last updates."""

    run: Run
    order: Sampler
    observe: Observer | None = None
    on_applied: Callable[[AppliedStep], None] | None = None
    """Called after every update."""
    holds_state: bool = False
    """Whether the tensors are the state after the last step of `run.progress`."""
    applied: dict[int, AppliedStep] = field(default_factory=dict)
    """The last two updates by step, for groups that missed them."""

    def __post_init__(self) -> None:
        run, device = self.run, self.run.world.device
        self.gradients = LocalGradients(run.network, device)
        self.length = self.gradients.length
        """Elements of this rank's share of a sum, with the loss."""
        self._sum = torch.zeros(self.length)
        """Of the step in flight, on the host: the updates before it stay as they are until it is complete."""

    @property
    def kept(self) -> int:
        """How many updates up to the last step can be given to groups that missed them."""
        step = self.run.progress.step
        return next(count for count in itertools.count() if step - count not in self.applied)

    @property
    def tensors(self) -> Tensors:
        """This rank's part of all state of the model and the optimizer."""
        return local_tensors(contents.tensors(self.run.network.unwrapped, self.run.optimizer))

    def read_share(self, leaves: range) -> None:
        """Read the samples of these logical workers from now on."""
        config, run = self.run.config, self.run
        run.loader.close()
        plan = PrefetchPlan(
            share=self._samples(leaves),
            step_samples=config.batch.global_samples,
            end=config.steps * config.batch.global_samples,
            steps_ahead=config.data.steps_ahead(gpu=run.world.device.type == "cuda"),
        )
        run.loader = PrefetchLoader(self.order, plan, run.world.device)

    def warm_up(self) -> None:
        """Compute gradients that are dropped, so that what is compiled or allocated at first is there.

        For all ranks of a group together, before it has the state. Random numbers stay as they are.
        """
        run, evaluator = self.run, self.run.evaluator
        states = rng.capture()
        with torch.no_grad():
            for parameter in run.network.unwrapped.parameters():
                local_data(parameter).zero_()  # memory as it was allocated may hold any numbers
        chosen = np.resize(evaluator.chosen, run.config.samples_at_once(run.world.data_size))
        rows = to_device(evaluator.windows.gather(chosen), run.world.device)
        run.network.passes.forward_backward(rows)
        run.optimizer.zero_grad(set_to_none=True)
        rng.restore(states)

    def step(self, exchange: Exchange, note: Note, timeout_s: float) -> dict[str, Note]:
        """Take one step with the other groups; return all notes. Raises MemberLost, LossNotFinite."""
        begun = time.perf_counter()
        run, step, number = self.run, note.step, note.step % 2
        loaded = self._sum_leaves(exchange, step)
        computed = time.perf_counter()
        if self.observe:
            self.observe("summed", step, note.view, exchange.leaves)
        run.recorder.enter(Phase.AGREE)
        found = exchange.reduce(note, self._sum, timeout_s)
        share = self.gradients.shares[number]
        exchanged = time.perf_counter()
        run.recorder.enter(Phase.UPDATE)
        scale = 1.0 / run.config.groups.workers
        if share.device == self._sum.device:
            torch.mul(self._sum, scale, out=share)  # one pass over memory instead of two
        else:
            share.copy_(self._sum).mul_(scale)
        self.gradients.gather(number)
        loss_scale = scale_of(run.config, run.progress)
        norm = float(run.network.clip(run.config.optimizer.clip_norm, loss_scale))
        total, norms = run.world.sum([float(share[-1]) * run.world.counts, norm])
        loss, finite = total / run.world.data_size, math.isfinite(norms)
        norm = norm if finite else math.nan  # the same on all ranks
        if not is_usable(loss, loss_scale, finite=finite):
            raise not_finite(step, loss, norm)
        self.gradients.keep_share(number)
        applied = Note(kind=STEP, view=note.view, step=step, loss=loss, grad_norm=norm)
        self._update(AppliedStep(applied, share), begun, loaded, exchanged - computed)
        self._record_times(step, exchanged - begun, len(exchange.leaves))
        end_step(run)
        return found

    def apply(self, applied: AppliedStep) -> None:
        """Make an update that the other groups have made: the bits are the same."""
        begun, number = time.perf_counter(), applied.note.step % 2
        share = self.gradients.shares[number]
        share.copy_(applied.share)
        self.gradients.gather(number)
        self._update(AppliedStep(applied.note, share), begun, 0.0, 0.0)

    def evaluation_losses(self, exchange: Exchange) -> torch.Tensor:
        """Return the summed loss of each chunk of the held-out windows that is this group's, else 0.

        The data ranks of a group divide each chunk; the result has this rank's part.
        """
        run, evaluator = self.run, self.run.evaluator
        size, ranks = evaluator.micro_samples, run.world.data_size
        chunks = -(-len(evaluator.chosen) // (size * ranks))
        found = torch.zeros(chunks, dtype=torch.float64)
        module = run.network.module
        module.eval()
        try:
            with torch.no_grad():
                for chunk in range(chunks):
                    run.recorder.enter(Phase.EVALUATION)
                    if chunk % run.config.groups.workers in exchange.leaves:
                        first = (chunk * ranks + run.world.data_rank) * size
                        found[chunk] = self._evaluate(evaluator.chosen[first : first + size])
        finally:
            module.train()
            run.network.reshard()
        return found

    def _evaluate(self, wanted: Int64s) -> float:
        """Return the summed loss of these windows."""
        evaluator, run = self.run.evaluator, self.run
        filled = np.resize(wanted if len(wanted) else evaluator.chosen, evaluator.micro_samples)
        rows = to_device(evaluator.windows.gather(filled), run.world.device)
        return run.network.passes.evaluation_loss(rows, len(wanted)) * len(wanted)

    def _samples(self, leaves: range) -> range:
        """Return this rank's samples of these logical workers in each step.

        First the data ranks divide a step, then the logical workers what a data rank has.
        """
        config, world = self.run.config, self.run.world
        each = config.samples_at_once(world.data_size)
        first = world.data_share(config.batch.global_samples).start
        return range(first + leaves.start * each, first + leaves.stop * each)

    def _sum_leaves(self, exchange: Exchange, step: int) -> float:
        """Fill the rows of the exchange; return the seconds spent waiting for samples."""
        run, leaves = self.run, exchange.leaves
        samples = self._samples(leaves)
        begun = time.perf_counter()
        run.recorder.enter(Phase.LOADER, step)
        if run.clock:
            run.clock.begin()
        rows = run.loader.take(run.progress.samples + samples.start, len(samples))
        rows = to_device(rows, run.world.device)
        seconds = time.perf_counter() - begun
        run.recorder.enter(Phase.PASSES)
        if run.clock:
            run.clock.start()
        stream = run.world.rank // run.world.layout.tensor
        loss_scale = scale_of(run.config, run.progress)
        sums = SubtreeSums()
        for leaf, part in zip(leaves, torch.split(rows, len(rows) // len(leaves)), strict=True):
            rng.seed_all(worker_seed(run.config.seed, step, leaf, stream))
            losses = run.network.passes.forward_backward(part, loss_scale)
            sums.add(leaf, self.gradients.take(losses.sum().float().reshape(1).to(part.device)))
        for node, tensors in sums:
            _write_row(exchange.rows[node], tensors)
        if run.clock:
            run.clock.reduced()
            run.clock.computed()
        return seconds

    def _record_times(self, step: int, total: float, leaves: int) -> None:
        """Record this rank's part in a step, in seconds for one logical worker: groups have more or fewer."""
        run = self.run
        run.recorder.enter(Phase.BETWEEN)
        if run.clock and (own := run.clock.seconds()):
            loader, worked = own
            run.recorder.add_step(StepTimes(step, total / leaves, loader / leaves, worked / leaves))

    def _update(
        self, applied: AppliedStep, begun: float, loader_s: float, collective_s: float
    ) -> None:
        """Update the parameters, and count the step."""
        run, step = self.run, applied.note.step
        finite = math.isfinite(applied.note.grad_norm)
        lr = update(run, scale_of(run.config, run.progress), finite=finite)
        self.applied.pop(step - 2, None)
        self.applied[step] = applied
        if self.on_applied:
            self.on_applied(applied)
        run.meter.step(
            step=step,
            loss=applied.note.loss,
            lr=lr,
            grad_norm=applied.note.grad_norm if finite else None,
            step_time_s=time.perf_counter() - begun,
            loader_time_s=loader_s,
            collective_time_s=collective_s,
        )
        if self.observe:
            self.observe("applied", step, applied.note.view, range(0))


def _write_row(row: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    parts = [tensor.reshape(-1) for tensor in tensors]
    if row.device == parts[0].device:
        torch.cat(parts, out=row)
    else:
        row.copy_(torch.cat(parts))
