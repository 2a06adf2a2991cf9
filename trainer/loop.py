"""The training loop: step, evaluate and save until the last step or a notice.

All ranks run in lockstep. Before each update one small all-reduce carries five numbers: the loss, the
gradient norm, two notice flags and whether a time-based save is due. Its result is the same on every
rank, so all ranks decide alike. Shapes: M micro-batches of a step.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

import trainyard
from trainer.checkpoint.contents import Progress
from trainer.checkpointing import Checkpointer
from trainer.config.settings import TrainerConfig
from trainer.data.prefetch import PrefetchLoader
from trainer.data.sampler import Sampler
from trainer.evaluation import Evaluator, to_device
from trainer.loss_scale import may_overflow, scale_after, scale_of
from trainer.metrics.flops import ModelFlops
from trainer.metrics.progress import ProgressDisplay
from trainer.parallel.build import Network
from trainer.parallel.world import World, limit_collectives
from trainer.schedule import learning_rate
from trainyard.contract import EXIT_DONE, EXIT_PREEMPTED
from trainyard.notice import Notice
from trainyard.run_logs import EventLog
from trainyard.store import policy
from trainyard.watchdog import DATA, EVAL, SAVE, STEP, watchdog


class LossNotFinite(Exception):
    """The loss or the gradient norm is NaN or infinite: training has diverged."""


@dataclass(kw_only=True)
class Run:
    config: TrainerConfig
    world: World
    network: Network
    optimizer: torch.optim.Optimizer
    order: Sampler
    loader: PrefetchLoader
    evaluator: Evaluator
    checkpointer: Checkpointer
    notice: Notice
    deadline_s: float
    flops: ModelFlops
    events: EventLog
    display: ProgressDisplay
    progress: Progress
    attempt: int
    starting: bool = True
    """Until the first step is done: ranks load and compile."""
    compute: Computation | None = None
    """Of an elastic run; None: `compute`."""
    saved_at: float = 0.0
    """Monotonic seconds of the last save."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a rank has done for a step, apart from its update."""

    losses: torch.Tensor
    """Parts of this rank's mean loss; on the device, so that reading them waits for the passes."""
    loaded_at: float
    """When its samples were there, by the performance counter."""
    exchanged_s: float = 0.0
    """Seconds in which gradients were exchanged with other groups."""


class Computation(Protocol):
    """Sets the gradients of the next step to the mean over all samples that this rank has to reduce."""

    def __call__(self, run: Run, loss_scale: float | None) -> Work:
        """Take the samples, and pass over them."""
        ...


@dataclass(frozen=True)
class StepAgreement:
    """Result of the all-reduce of a step; the same on every rank."""

    loss: float
    finite_gradients: bool
    """Whether the gradient norm is finite on every rank."""
    notice: str | None
    """`signal` or `file` when any rank received a notice, else None."""
    time_due: bool


def train(run: Run) -> int:
    """Train to the last step or a notice; return the exit code, the same on every rank."""
    run.saved_at = time.monotonic()
    notice = agree(run).notice
    if notice is None and evaluation_is_due(run):
        notice = evaluate(run)
    while notice is None and run.progress.step < run.config.steps:
        agreed = train_step(run)
        notice = agreed.notice
        if notice is None and evaluation_is_due(run):
            notice = evaluate(run)
        if notice is None:
            save_if_due(run, agreed.time_due)
    return finish(run) if notice is None else stop_on_notice(run, notice)


def train_step(run: Run) -> StepAgreement:
    """Run one optimizer step over the global batch and log its metrics."""
    begun = time.perf_counter()
    config, step = run.config, run.progress.step + 1
    scale = scale_of(config, run.progress)
    watchdog.enter(DATA)
    work = (run.compute or compute)(run, scale)
    grad_norm_on_device = run.network.clip(config.optimizer.clip_norm, scale)
    # Read only here: the device has all passes queued before the host waits for it.
    loss, grad_norm = float(sum(work.losses.tolist())), float(grad_norm_on_device)
    computed = time.perf_counter()
    agreed = agree(run, loss, grad_norm)
    exchanged = time.perf_counter()
    finite = agreed.finite_gradients
    if not is_usable(agreed.loss, scale, finite=finite):
        run.checkpointer.check_replicas(run.progress.step)  # one of them may be the cause
        raise not_finite(step, agreed.loss, grad_norm)
    lr = update(run, scale, finite=finite)
    report_step(
        run,
        loss=agreed.loss,
        lr=lr,
        grad_norm=grad_norm if finite else None,
        step_time_s=time.perf_counter() - begun,
        loader_time_s=work.loaded_at - begun,
        collective_time_s=exchanged - computed + work.exchanged_s,
    )
    if run.starting:
        run.starting = False
        limit_collectives(config.collective_timeout_s)
    return agreed


def report_step(run: Run, *, step_time_s: float, **measured: Any) -> None:
    """Report the step that is completed, to the terminal, too."""
    samples = run.config.batch.global_samples
    tokens = samples * run.config.data.sequence_length
    measured |= {"mfu": run.flops.utilization(tokens / step_time_s), "step_time_s": step_time_s}
    trainyard.log(step=run.progress.step, tokens=tokens, samples=samples, **measured)
    run.display.step(run.progress.step, tokens, samples, measured)


def update(run: Run, scale: float | None, *, finite: bool) -> float:
    """Update the parameters and count the step; return its learning rate.

    A step whose gradients were not `finite` counts without an update; the next one has a lower loss scale.
    """
    config, step = run.config, run.progress.step + 1
    lr = learning_rate(config.schedule, config.peak_learning_rate, step, config.steps)
    if finite:
        for group in run.optimizer.param_groups:
            group["lr"] = lr
        run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    steps = run.progress.steps_at_scale
    if scale is not None:
        scale, steps = scale_after(scale, steps, finite=finite)
    if not finite:
        run.events.write("update_skipped", step, loss_scale=scale)
    samples = run.progress.samples + config.batch.global_samples
    run.progress = replace(
        run.progress, step=step, samples=samples, loss_scale=scale, steps_at_scale=steps
    )
    return lr


def is_usable(loss: float, scale: float | None, *, finite: bool) -> bool:
    """Return whether training goes on after a step with this loss; `finite`: whether its gradients are."""
    return math.isfinite(loss) and (finite or may_overflow(scale))


def not_finite(step: int, loss: float, grad_norm: float) -> LossNotFinite:
    """Return the error about a step that is not made, so that no NaN reaches weights or checkpoints."""
    what = "gradient norm" if math.isfinite(loss) else "loss"
    value = grad_norm if math.isfinite(loss) else loss
    return LossNotFinite(f"step {step}: {what} is {value}; lower optimizer.learning_rate")


def compute(run: Run, loss_scale: float | None) -> Work:
    """Pass over this rank's share of a step; see Computation."""
    share = run.world.data_share(run.config.batch.global_samples)
    rows = run.loader.take(run.progress.samples + share.start, len(share))
    loaded_at = time.perf_counter()
    watchdog.enter(STEP)
    rows = to_device(rows, run.world.device)
    losses_M = run.network.passes.forward_backward(rows, loss_scale)
    return Work(losses=losses_M, loaded_at=loaded_at)


def agree(run: Run, loss: float = 0.0, grad_norm: float = 0.0) -> StepAgreement:
    """All-reduce the mean loss, the gradient norm, the notices and the leader's clock."""
    world, given = run.world, run.notice.is_set()
    by_signal = given and (run.notice.source or "").startswith("SIG")
    since_save = time.monotonic() - run.saved_at
    time_due = world.is_leader and run.checkpointer.policy.time_due(since_save)
    by_file = given and not by_signal
    total, norms, signals, files, clock = world.sum(
        [loss * world.counts, grad_norm, float(by_signal), float(by_file), float(time_due)]
    )
    return StepAgreement(
        loss=total / world.data_size,
        finite_gradients=math.isfinite(norms),
        notice="signal" if signals else "file" if files else None,
        time_due=bool(clock),
    )


def evaluate(run: Run) -> str | None:
    """Evaluate on the held-out windows; return a notice that ended it early."""
    begun = time.perf_counter()
    loss = run.evaluator.loss(run.network, run.world, run.notice, lambda: watchdog.enter(EVAL))
    watchdog.enter(STEP)
    if loss is None:
        return agree(run).notice
    record_evaluation(run, run.progress.step, loss, time.perf_counter() - begun)
    return None


def record_evaluation(run: Run, step: int, loss: float, seconds: float) -> None:
    run.progress = replace(run.progress, evaluated_step=step, evaluation_loss=loss)
    baseline = run.evaluator.unigram_loss
    run.events.write(
        "evaluated",
        step,
        loss=loss,
        unigram_loss=baseline,
        seconds=seconds,
    )
    run.display.evaluated(step, loss, baseline)


def save_if_due(run: Run, time_due: bool) -> None:
    """Start a checkpoint when the policy requires one; `finish` saves the last step."""
    step = run.progress.step
    reason = run.checkpointer.policy.reason(step, time_due=time_due)
    if reason is not None and step < run.config.steps:
        run.checkpointer.save(run.progress, reason, run.config.collective_timeout_s / 2)
        run.saved_at = time.monotonic()


def finish(run: Run) -> int:
    """Save the last step and wait until it is committed; return the exit code."""
    watchdog.enter(SAVE)
    begun, step = time.perf_counter(), run.progress.step
    patience = run.config.collective_timeout_s
    if run.checkpointer.saved_step != step:
        run.checkpointer.save(run.progress, policy.END, patience)
    code = run.checkpointer.conclude(step, EXIT_DONE, patience)
    reason, seconds = "done" if code == EXIT_DONE else "not saved", time.perf_counter() - begun
    run.events.write("finished", step, reason=reason, saving_s=seconds)
    return code


def stop_on_notice(run: Run, notice: str) -> int:
    """Save the current step within the deadline; return the exit code."""
    watchdog.enter(SAVE)
    begun, step = time.perf_counter(), run.progress.step
    left = run.notice.seconds_left(run.deadline_s)
    run.events.write(
        "notice",
        step,
        source=run.notice.source or f"{notice} on another rank",
        received=run.notice.received_at,
        seconds_left=left,
    )
    run.display.log(f"notice received: saving step {step}, {left:.0f} s left")
    if run.checkpointer.saved_step != step and step > 0:
        run.checkpointer.save(run.progress, policy.NOTICE, left)
    left = run.notice.seconds_left(run.deadline_s)
    code = run.checkpointer.conclude(step, EXIT_PREEMPTED, left)
    reason = "preempted" if code == EXIT_PREEMPTED else "preempted, not saved"
    seconds = time.perf_counter() - begun
    run.events.write("finished", step, reason=reason, saving_s=seconds)
    if run.world.is_leader and code == EXIT_PREEMPTED:
        run.notice.acknowledged()
    return code


def evaluation_is_due(run: Run) -> bool:
    """Return whether the current step has to be evaluated, and was not."""
    step, every = run.progress.step, run.config.evaluation.every_steps
    scheduled = step == run.config.steps or (every is not None and step > 0 and step % every == 0)
    return scheduled and run.progress.evaluated_step != step
