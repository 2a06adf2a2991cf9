"""Puts one run together: from a configuration and a joined world to something `loop.train` runs."""

from __future__ import annotations

from training.checkpoint import rng
from training.checkpoint.factory import claim_attempt, join_attempt, open_store
from training.checkpoint.policy import SavePolicy
from training.checkpoint.store import Fence
from training.spec import EVENTS_FILE, METRICS_FILE
from training.trainer import lineage
from training.trainer.evaluation import to_device
from training.trainer.loop import Run
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.metrics.run_logs import EventLog, MetricsLog
from training.trainer.optimizer import adamw
from training.trainer.parallel import build
from training.trainer.parallel.world import World
from training.trainer.preflight import Request
from training.trainer.processes.interruption import Notice
from training.trainer.reading import feed_of, open_data
from training.trainer.resume import beginning, checkpointer, refuse_other_run
from training.trainer.startup import announce, meter_of


def assemble(request: Request, world: World, notice: Notice) -> Run:
    """Build the model, open the logs, resume if there is something to resume from.

    Raises ConfigError, DatasetError, NoUsableCheckpoint.
    """
    config = request.config
    fence = _claim(request, world)
    events = EventLog(request.run_dir / EVENTS_FILE, fence.attempt, enabled=world.leads)
    order, evaluator = open_data(request)
    rng.seed_all(config.seed)
    network = build.build(config, world, request.corpus.index.vocab_size)
    optimizer = adamw(network.bare, config)
    progress = beginning(request, order)
    rng.seed_all(config.seed + 1_000_003 * (world.rank // world.layout.tensor))
    saver = checkpointer(request, world, fence, network.bare, optimizer, events)
    loaded = saver.load_newest(lambda found: refuse_other_run(found, progress))
    if loaded is None:
        network.begin()
    progress = loaded or progress
    metrics = MetricsLog(request.run_dir / METRICS_FILE, progress.step, enabled=world.leads)
    saver.metrics = metrics
    display = ProgressDisplay(
        config.steps, progress.step, config.report.every_seconds, enabled=world.leads
    )
    saver.allocate()
    run = Run(
        config=config,
        world=world,
        network=network,
        optimizer=optimizer,
        feed=feed_of(config, world, order),
        evaluator=evaluator,
        checkpointer=saver,
        save_policy=SavePolicy(
            every_steps=config.checkpoint.every_steps,
            every_seconds=config.checkpoint.every_seconds,
            milestone_every_steps=config.checkpoint.milestone_every_steps,
        ),
        notice=notice,
        deadline_s=lineage.checkpoint_deadline_s(request.record, config),
        metrics=metrics,
        meter=meter_of(request, world, network, metrics, display, fence.attempt),
        events=events,
        display=display,
        progress=progress,
        attempt=fence.attempt,
    )
    announce(run, request, resumed=loaded is not None)
    _settle_gradient_buckets(run)
    if world.leads:
        notice.watch_run_dir()
    return run


def _claim(request: Request, world: World) -> Fence:
    """One number for all ranks of this attempt; unfinished writes of older ones are removed."""
    run_dir, place = request.run_dir, request.config.checkpoint.store
    if world.leads:
        fence = claim_attempt(run_dir, place)
        open_store(run_dir, place).sweep()
        world.from_leader(fence.attempt)
        return fence
    return join_attempt(run_dir, place, world.from_leader(0))


def _settle_gradient_buckets(run: Run) -> None:
    """Let DistributedDataParallel regroup its gradients before the first counted step.

    It does so after its first backward pass. The grouping changes the order of sums over more than
    two ranks, so without this the first step after a resume would differ in the last bits.
    """
    if run.world.size <= 2 or run.network.norm or not run.config.deterministic:
        return
    states = rng.capture()
    rows = run.feed.take(0, run.config.batch.micro_samples)
    run.network.passes.forward_backward(to_device(rows, run.world.device))
    run.optimizer.zero_grad(set_to_none=True)
    rng.restore(states)
