"""One group's part of a step: gradients of its logical workers, and the update that all groups make alike."""

from __future__ import annotations

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from training.checkpoint import contents, rng
from training.trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from training.trainer.data.sampler import Sampler
from training.trainer.elastic.exchange import STEP, Exchange, Note
from training.trainer.elastic.reduction import SubtreeSums
from training.trainer.elastic.transfer import AppliedStep, Donor, Tensors
from training.trainer.evaluation import to_device
from training.trainer.loop import LossNotFinite, Run
from training.trainer.schedule import learning_rate
from trainyard.run_logs import MetricsLog, StepMetrics

_RECENT: Final = 64
"""Lines of metrics that every group keeps, for the case that the leader is lost before it wrote them."""

Observer = Callable[[str, int, int, range], None]
"""Receives `summed` or `applied`, the step, the view and this group's logical workers."""


class RecentMetrics(MetricsLog):
    """The metrics of the last steps; the leader's are in the file as well."""

    def __init__(self) -> None:
        super().__init__(Path(), 0, enabled=False)
        self._recent: deque[StepMetrics] = deque(maxlen=_RECENT)
        self._file: MetricsLog | None = None

    def append(self, metrics: StepMetrics) -> None:
        """Keep a line, and write it if this group leads."""
        self._recent.append(metrics)
        if self._file:
            self._file.append(metrics)

    def write_to(self, file: MetricsLog, step: int, attempt: int) -> None:
        """Write to this file from now on, and first the last lines up to `step` that it lacks."""
        self._file = file
        lacking = [
            metrics for metrics in self._recent if step - file.missing < metrics.step <= step
        ]
        for metrics in lacking:
            file.append(replace(metrics, attempt=attempt))
        file.missing -= len(lacking)

    def sync(self) -> None:
        """Fsync the file."""
        if self._file:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


def worker_seed(seed: int, step: int, worker: int) -> int:
    """Return the seed of a logical worker's random numbers in one step."""
    digest = hashlib.sha256(f"{seed}/{step}/{worker}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@dataclass(kw_only=True)
class Computation:
    """The model, its data and the last update of one group."""

    run: Run
    order: Sampler
    observe: Observer | None = None
    donor: Donor | None = None
    """Gets every update while another group joins."""
    last: AppliedStep | None = None
    """The last update, for groups that missed it: kept until every group has applied it."""
    _flats: list[torch.Tensor] = field(default_factory=list)
    """Gradients of two steps in turn, on the model's device, followed by the loss."""
    _views: list[list[torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parameters = [p for p in self.run.network.unwrapped.parameters() if p.requires_grad]
        self.length = sum(p.numel() for p in self._parameters) + 1
        device = self.run.world.device
        for _ in range(2):
            flat = torch.zeros(self.length, device=device)
            parts = torch.split(flat[:-1], [p.numel() for p in self._parameters])
            self._flats.append(flat)
            pairs = zip(parts, self._parameters, strict=True)
            self._views.append([part.view_as(p) for part, p in pairs])
        self._host = self._flats[0] if device.type == "cpu" else torch.zeros(self.length)

    @property
    def tensors(self) -> Tensors:
        """All state of the model and the optimizer."""
        return contents.tensors(self.run.network.unwrapped, self.run.optimizer)

    def read_share(self, leaves: range) -> None:
        """Read the samples of these logical workers from now on."""
        config, run = self.run.config, self.run
        samples = config.batch.global_samples
        each = samples // config.groups.workers
        run.loader.close()
        plan = PrefetchPlan(
            share=range(leaves.start * each, leaves.stop * each),
            step_samples=samples,
            end=config.steps * samples,
            steps_ahead=config.data.steps_ahead(gpu=run.world.device.type == "cuda"),
        )
        run.loader = PrefetchLoader(self.order, plan, run.world.device)

    def step(self, exchange: Exchange, note: Note, timeout_s: float) -> dict[str, Note]:
        """Take one step with the other groups; return all notes. Raises MemberLost, LossNotFinite."""
        begun = time.perf_counter()
        run, step = self.run, note.step
        loaded = self._sum_leaves(exchange, step)
        computed = time.perf_counter()
        if self.observe:
            self.observe("summed", step, note.view, exchange.leaves)
        flat, number = self._flats[step % 2], step % 2
        host = flat if flat.device.type == "cpu" else self._host
        found = exchange.reduce(note, host, timeout_s)
        if host is not flat:
            flat.copy_(host)
        exchanged = time.perf_counter()
        flat.mul_(1.0 / run.config.groups.workers)
        loss = float(flat[-1])
        if not math.isfinite(loss):
            raise LossNotFinite(f"step {step}: loss is {loss}; lower optimizer.learning_rate")
        self._set_gradients(number)
        norm = float(run.network.clip(run.config.optimizer.clip_norm))
        applied = Note(kind=STEP, view=note.view, step=step, loss=loss, grad_norm=norm)
        self._update(AppliedStep(applied, flat), begun, loaded, exchanged - computed)
        return found

    def apply(self, applied: AppliedStep) -> None:
        """Make an update that the other groups have made: the bits are the same."""
        begun, number = time.perf_counter(), applied.note.step % 2
        self._flats[number].copy_(applied.flat)
        self._set_gradients(number)
        self._update(AppliedStep(applied.note, self._flats[number]), begun, 0.0, 0.0)

    def evaluation_losses(self, exchange: Exchange) -> torch.Tensor:
        """Return the summed loss of each chunk of the held-out windows that is this group's, else 0."""
        run, evaluator = self.run, self.run.evaluator
        size, count = evaluator.micro_samples, len(evaluator.chosen)
        chunks, workers = -(-count // size), run.config.groups.workers
        found = torch.zeros(chunks, dtype=torch.float64)
        module = run.network.module
        module.eval()
        try:
            with torch.no_grad():
                for chunk in range(chunks):
                    if chunk % workers in exchange.leaves:
                        wanted = evaluator.chosen[chunk * size : (chunk + 1) * size]
                        filled = np.resize(wanted, size)
                        rows = to_device(evaluator.windows.gather(filled), run.world.device)
                        loss = run.network.passes.evaluation_loss(rows, len(wanted))
                        found[chunk] = loss * len(wanted)
        finally:
            module.train()
        return found

    def _sum_leaves(self, exchange: Exchange, step: int) -> float:
        """Fill the rows of the exchange; return the seconds spent waiting for samples."""
        run, leaves = self.run, exchange.leaves
        each = run.config.batch.global_samples // run.config.groups.workers
        begun = time.perf_counter()
        first = run.progress.samples + leaves.start * each
        rows = to_device(run.loader.take(first, len(leaves) * each), run.world.device)
        seconds = time.perf_counter() - begun
        sums = SubtreeSums()
        for leaf, samples in zip(leaves, torch.split(rows, each), strict=True):
            rng.seed_all(worker_seed(run.config.seed, step, leaf))
            losses = run.network.passes.forward_backward(samples)
            gradients = [
                p.grad if p.grad is not None else p.new_zeros(p.shape) for p in self._parameters
            ]
            sums.add(leaf, [*gradients, losses.sum().float().reshape(1)])
            for parameter in self._parameters:
                parameter.grad = None
        for node, tensors in sums:
            parts, row = [tensor.reshape(-1) for tensor in tensors], exchange.rows[node]
            if row.device == parts[0].device:
                torch.cat(parts, out=row)
            else:
                row.copy_(torch.cat(parts))
        return seconds

    def _set_gradients(self, number: int) -> None:
        for parameter, view in zip(self._parameters, self._views[number], strict=True):
            parameter.grad = view

    def _update(
        self, applied: AppliedStep, begun: float, loader_s: float, collective_s: float
    ) -> None:
        """Update the parameters, and count the step."""
        run, step = self.run, applied.note.step
        config = run.config
        lr = learning_rate(config.schedule, config.peak_learning_rate, step, config.steps)
        for group in run.optimizer.param_groups:
            group["lr"] = lr
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        self.last = applied
        if self.donor:
            self.donor.offer(applied)
        samples = run.progress.samples + config.batch.global_samples
        run.progress = replace(run.progress, step=step, samples=samples)
        run.meter.step(
            step=step,
            loss=applied.note.loss,
            lr=lr,
            grad_norm=applied.note.grad_norm,
            step_time_s=time.perf_counter() - begun,
            loader_time_s=loader_s,
            collective_time_s=collective_s,
        )
        if self.observe:
            self.observe("applied", step, applied.note.view, range(0))
