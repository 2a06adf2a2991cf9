"""Build one run for `loop.train` from a checked configuration and the joined world."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from trainer import lineage
from trainer.checkpoint import rng
from trainer.config.settings import TrainerConfig
from trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from trainer.data.sampler import Sampler, baseline_loss, evaluation_windows
from trainer.data.windows import TokenWindows
from trainer.evaluation import Evaluator, to_device
from trainer.export import check_export
from trainer.loop import Run
from trainer.metrics.progress import ProgressDisplay
from trainer.optimizer import adamw
from trainer.parallel import build
from trainer.parallel.world import World
from trainer.preflight import RunRequest
from trainer.resume import check_same_run, initial_progress, make_checkpointer
from trainer.startup import log_start, make_step_meter
from trainyard.contract import EVENTS_FILE, METRICS_FILE
from trainyard.notice import Notice
from trainyard.profiling import StepProfiler
from trainyard.run_logs import EventLog, MetricsLog
from trainyard.store.factory import claim_attempt, join_attempt
from trainyard.store.interface import Fence, StaleAttempt
from trainyard.store.policy import SavePolicy
from trainyard.watchdog import watchdog

_REPLACED: Final = -1
"""Broadcast instead of an attempt number."""


def assemble(request: RunRequest, world: World, notice: Notice) -> Run:
    """Build the model, open the logs and resume from the newest checkpoint if there is one.

    Raises ConfigError, DatasetError, NoUsableCheckpoint.
    """
    config = request.config
    fence = claim_for_all(request, world)
    watchdog.describe(attempt=fence.attempt)
    events = EventLog(request.run_dir / EVENTS_FILE, fence.attempt, enabled=world.is_leader)
    run = make_run(request, world, notice, fence, events)
    resumed = load(run)
    saver = run.checkpointer
    step = run.progress.step
    run.metrics = saver.metrics = run.meter.log = MetricsLog(
        request.run_dir / METRICS_FILE, step, enabled=world.is_leader
    )
    run.display = run.meter.display = make_display(config, step, enabled=world.is_leader)
    saver.allocate()
    log_start(run, request, resumed_from=saver.store.place if resumed else None)
    _settle_gradient_buckets(run)
    if world.is_leader:
        notice.watch_run_dir()
    return run


def make_run(
    request: RunRequest,
    world: World,
    notice: Notice,
    fence: Fence,
    events: EventLog,
) -> Run:
    """Build the model without weights, and what is around it without metrics and display.

    Raises ConfigError, DatasetError.
    """
    config = request.config
    order, evaluator = open_data(request)
    rng.seed_all(config.seed)
    network = build.build_network(config, world, request.corpus.index.vocab_size)
    optimizer = adamw(network.unwrapped, config)
    progress = initial_progress(request, order)
    rng.seed_all(config.seed + 1_000_003 * (world.rank // world.layout.tensor))
    saver = make_checkpointer(request, world, fence, network.unwrapped, optimizer, events)
    if config.checkpoint.export:
        check_export(saver.attachments, progress.tokens)
    metrics = MetricsLog(Path(), 0, enabled=False)
    display = make_display(config, 0, enabled=False)
    return Run(
        config=config,
        world=world,
        network=network,
        optimizer=optimizer,
        order=order,
        loader=make_loader(config, world, order),
        evaluator=evaluator,
        checkpointer=saver,
        save_policy=SavePolicy(
            every_steps=config.checkpoint.every_steps,
            every_seconds=config.checkpoint.interval_s,
            milestone_every_steps=config.checkpoint.milestone_every_steps,
        ),
        notice=notice,
        deadline_s=lineage.checkpoint_deadline_s(request.record, config),
        metrics=metrics,
        meter=make_step_meter(request, world, network, metrics, display, fence.attempt),
        events=events,
        display=display,
        progress=progress,
        attempt=fence.attempt,
        profiler=StepProfiler(request.run_dir) if world.is_leader else None,
    )


def load(run: Run) -> bool:
    """Load the newest checkpoint, or initial weights; return whether there was one. Raises NoUsableCheckpoint."""
    saver, initial = run.checkpointer, run.progress
    if run.world.is_leader:
        saver.store.sweep()
    loaded = saver.load_newest(lambda found: check_same_run(found, initial))
    if loaded is None:
        run.network.init_weights()
    run.progress = loaded or initial
    return loaded is not None


def make_display(config: TrainerConfig, step: int, *, enabled: bool) -> ProgressDisplay:
    """Return the display of a run that goes on after this step."""
    every = config.report.metric_lines_every
    return ProgressDisplay(
        config.steps, step, config.report.every_seconds, enabled=enabled, metric_lines_every=every
    )


def open_data(request: RunRequest) -> tuple[Sampler, Evaluator]:
    """Return the sampler and the evaluator. Raises DatasetError."""
    config, corpus = request.config, request.corpus
    length, documents = config.data.sequence_length, config.data.documents
    train = TokenWindows(corpus.opened, "train", length, documents)
    order = Sampler(train, config.seed, corpus.weights)
    windows = TokenWindows(corpus.opened, "eval", length, documents)
    chosen = evaluation_windows(windows, config.evaluation.samples, corpus.weights)
    counts = [dataset.index.unigram_counts for dataset in corpus.opened]
    evaluator = Evaluator(
        windows=windows,
        chosen=chosen,
        unigram_loss=baseline_loss(counts, windows.gather(chosen)[:, 1:], corpus.weights),
        micro_samples=config.batch.micro_samples,
    )
    return order, evaluator


def make_loader(
    config: TrainerConfig, world: World, order: Sampler, share: range | None = None
) -> PrefetchLoader:
    """Return the loader of this rank's share of each step; by default that of a gang."""
    step_samples = config.batch.global_samples
    plan = PrefetchPlan(
        share=world.data_share(step_samples) if share is None else share,
        step_samples=step_samples,
        end=config.steps * step_samples,
        steps_ahead=config.data.steps_ahead(gpu=world.device.type == "cuda"),
    )
    return PrefetchLoader(order, plan, world.device)


def claim_for_all(request: RunRequest, world: World, number: int | None = None) -> Fence:
    """Claim one attempt number for all ranks.

    None: the next one. Raises StaleAttempt on all ranks for a `number` that is claimed, or not the highest.
    """
    run_dir, place = request.run_dir, request.config.checkpoint.store
    if not world.is_leader:
        attempt = world.broadcast_from_leader(0)
        if attempt < 0:
            raise StaleAttempt(f"attempt {number} was replaced; nothing is written")
        return join_attempt(run_dir, place, attempt)
    try:
        fence = claim_attempt(run_dir, place, number)
    except StaleAttempt:
        world.broadcast_from_leader(_REPLACED)
        raise
    world.broadcast_from_leader(fence.attempt)
    return fence


def _settle_gradient_buckets(run: Run) -> None:
    """Let DistributedDataParallel regroup its gradients before the first counted step.

    It does so after its first backward pass. The grouping changes the order of sums over more than
    two ranks, so without this the first step after a resume would differ in the last bits.
    """
    if run.world.size <= 2 or run.network.norm or not run.config.deterministic:
        return
    states = rng.capture()
    rows = run.loader.take(0, run.config.batch.micro_samples)
    run.network.passes.forward_backward(to_device(rows, run.world.device))
    run.optimizer.zero_grad(set_to_none=True)
    rng.restore(states)
