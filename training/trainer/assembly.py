"""Build one run for `loop.train` from a checked configuration and the joined world."""

from __future__ import annotations

from training.checkpoint import rng
from training.checkpoint.factory import claim_attempt, join_attempt, open_store
from training.spec import EVENTS_FILE, METRICS_FILE
from training.trainer import lineage
from training.trainer.config import TrainerConfig
from training.trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from training.trainer.data.sampler import Sampler, baseline_loss, evaluation_windows
from training.trainer.data.windows import TokenWindows
from training.trainer.evaluation import Evaluator, to_device
from training.trainer.export import check_export
from training.trainer.loop import Run
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.optimizer import adamw
from training.trainer.parallel import build
from training.trainer.parallel.world import World
from training.trainer.preflight import RunRequest
from training.trainer.resume import check_same_run, initial_progress, make_checkpointer
from training.trainer.startup import log_start, make_step_meter
from trainyard.notice import Notice
from trainyard.run_logs import EventLog, MetricsLog
from trainyard.store.interface import Fence
from trainyard.store.policy import SavePolicy


def assemble(request: RunRequest, world: World, notice: Notice) -> Run:
    """Build the model, open the logs and resume from the newest checkpoint if there is one.

    Raises ConfigError, DatasetError, NoUsableCheckpoint.
    """
    config = request.config
    fence = _claim(request, world)
    events = EventLog(request.run_dir / EVENTS_FILE, fence.attempt, enabled=world.is_leader)
    order, evaluator = open_data(request)
    rng.seed_all(config.seed)
    network = build.build_network(config, world, request.corpus.index.vocab_size)
    optimizer = adamw(network.unwrapped, config)
    progress = initial_progress(request, order)
    rng.seed_all(config.seed + 1_000_003 * (world.rank // world.layout.tensor))
    saver = make_checkpointer(request, world, fence, network.unwrapped, optimizer, events)
    if config.checkpoint.export:
        check_export(saver.attachments, progress.tokens)
    loaded = saver.load_newest(lambda found: check_same_run(found, progress))
    if loaded is None:
        network.init_weights()
    progress = loaded or progress
    metrics = MetricsLog(request.run_dir / METRICS_FILE, progress.step, enabled=world.is_leader)
    saver.metrics = metrics
    display = ProgressDisplay(
        config.steps,
        progress.step,
        config.report.every_seconds,
        enabled=world.is_leader,
        metric_lines_every=config.report.metric_lines_every,
    )
    saver.allocate()
    run = Run(
        config=config,
        world=world,
        network=network,
        optimizer=optimizer,
        loader=make_loader(config, world, order),
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
        meter=make_step_meter(request, world, network, metrics, display, fence.attempt),
        events=events,
        display=display,
        progress=progress,
        attempt=fence.attempt,
    )
    log_start(run, request, resumed=loaded is not None)
    _settle_gradient_buckets(run)
    if world.is_leader:
        notice.watch_run_dir()
    return run


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


def make_loader(config: TrainerConfig, world: World, order: Sampler) -> PrefetchLoader:
    """Return the loader of this rank's share of each step."""
    step_samples = config.batch.global_samples
    plan = PrefetchPlan(
        share=world.data_share(step_samples),
        step_samples=step_samples,
        end=config.steps * step_samples,
        steps_ahead=config.data.steps_ahead(gpu=world.device.type == "cuda"),
    )
    return PrefetchLoader(order, plan, world.device)


def _claim(request: RunRequest, world: World) -> Fence:
    """Claim one attempt number for all ranks and remove unfinished writes of earlier attempts."""
    run_dir, place = request.run_dir, request.config.checkpoint.store
    if world.is_leader:
        fence = claim_attempt(run_dir, place)
        open_store(run_dir, place).sweep()
        world.broadcast_from_leader(fence.attempt)
        return fence
    return join_attempt(run_dir, place, world.broadcast_from_leader(0))


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
