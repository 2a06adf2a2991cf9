"""Build one run for `loop.train` from a checked configuration and the joined world."""

from __future__ import annotations

from trainer import lineage
from trainer.checkpointing import initial_progress, make_checkpointer
from trainer.config.settings import TrainerConfig
from trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from trainer.data.sampler import Sampler, baseline_loss, evaluation_windows
from trainer.data.windows import TokenWindows
from trainer.evaluation import Evaluator, to_device
from trainer.loop import Run
from trainer.metrics import flops
from trainer.metrics.progress import ProgressDisplay
from trainer.optimizer import make_optimizer
from trainer.parallel import build
from trainer.parallel.world import World
from trainer.preflight import RunRequest
from trainer.publication import check_export
from trainer.startup import log_start
from trainyard import checkpoints, session
from trainyard.notice import Notice
from trainyard.reporting import reporter
from trainyard.run_logs import EventLog
from trainyard.tensors import random_state


def assemble(request: RunRequest, world: World, notice: Notice) -> Run:
    """Build the model, open the logs and resume from the newest checkpoint if there is one.

    Raises ConfigError, DatasetError, NoUsableCheckpoint.
    """
    config = request.config
    current = session.current()
    run = make_run(request, world, notice, current.fence.attempt, current.events)
    resumed = load(run)
    step = run.progress.step
    if world.is_leader:
        reporter.take_over()
        reporter.open(step, steps=config.steps)
    run.display = make_display(config, step, enabled=world.is_leader)
    checkpoints.prepare(run.checkpointer.tensors())
    log_start(run, request, resumed=resumed)
    _settle_gradient_buckets(run)
    if world.is_leader:
        notice.watch_run_dir()
    return run


def make_run(
    request: RunRequest,
    world: World,
    notice: Notice,
    attempt: int,
    events: EventLog,
) -> Run:
    """Build the model without weights, and what is around it without metrics and display.

    Raises ConfigError, DatasetError.
    """
    config = request.config
    order, evaluator = open_data(request)
    random_state.seed_all(config.seed)
    network = build.build_network(config, world, request.corpus.index.vocab_size)
    optimizer = make_optimizer(network.unwrapped, config.optimizer)
    progress = initial_progress(request, order)
    random_state.seed_all(config.seed + 1_000_003 * (world.rank // world.layout.tensor))
    saver = make_checkpointer(request, world, network.unwrapped, optimizer)
    if config.checkpoint.export:
        check_export(saver.attachments, progress.tokens)
    return Run(
        config=config,
        world=world,
        network=network,
        optimizer=optimizer,
        order=order,
        loader=make_loader(config, world, order),
        evaluator=evaluator,
        checkpointer=saver,
        notice=notice,
        deadline_s=lineage.checkpoint_deadline_s(request.record, config),
        flops=_model_flops(config, network, world),
        events=events,
        display=make_display(config, 0, enabled=False),
        progress=progress,
        attempt=attempt,
    )


def load(run: Run) -> bool:
    """Load the newest checkpoint, or initial weights; return whether there was one. Raises NoUsableCheckpoint."""
    initial = run.progress
    loaded = run.checkpointer.load(initial)
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


def _model_flops(config: TrainerConfig, network: build.Network, world: World) -> flops.ModelFlops:
    shape, heads = network.settings, network.settings.num_attention_heads
    tied = shape.tie_word_embeddings
    return flops.ModelFlops(
        token_flops=flops.flops_per_token(
            parameters=network.parameters,
            looked_up=0 if tied else shape.vocab_size * shape.hidden_size,
            layers=shape.num_hidden_layers,
            width=heads * (getattr(shape, "head_dim", None) or shape.hidden_size // heads),
            sequence_length=config.data.sequence_length,
        ),
        devices=world.size,
        device_flops=flops.peak_flops(world.device_name),
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


def _settle_gradient_buckets(run: Run) -> None:
    """Let DistributedDataParallel regroup its gradients before the first counted step.

    It does so after its first backward pass. The grouping changes the order of sums over more than
    two ranks, so without this the first step after a resume would differ in the last bits.
    """
    if run.world.size <= 2 or run.network.norm or not run.config.deterministic:
        return
    states = random_state.capture()
    rows = run.loader.take(0, run.config.batch.micro_samples)
    run.network.passes.forward_backward(to_device(rows, run.world.device))
    run.optimizer.zero_grad(set_to_none=True)
    random_state.restore(states)
