"""Puts one run together: from a configuration and a joined world to something `loop.train` runs."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path

import torch

from training.checkpoint import contents, rng
from training.checkpoint.contents import Progress
from training.checkpoint.fence import Fence
from training.checkpoint.manifest import Manifest
from training.checkpoint.policy import SavePolicy
from training.checkpoint.posix import PosixStore
from training.spec import ATTEMPT_ENV, CHECKPOINTS_DIR, EVENTS_FILE, METRICS_FILE
from training.trainer import lineage, model, parallel
from training.trainer.checkpointing import Checkpointer
from training.trainer.config import TrainerConfig
from training.trainer.data import TokenWindows, TrainingOrder
from training.trainer.evaluation import Evaluator, to_device
from training.trainer.interruption import Notice
from training.trainer.loop import Run
from training.trainer.metrics import EventLog, MetricsLog
from training.trainer.parallel import World
from training.trainer.progress import ProgressDisplay
from training.trainer.request import Request
from training.trainer.strict import ConfigError


def assemble(request: Request, world: World, notice: Notice) -> Run:
    """Build the model, open the logs, resume if there is something to resume from.

    Raises ConfigError, DatasetError, NoUsableCheckpoint.
    """
    config = request.config
    fence = _claim(request.run_dir, world)
    events = EventLog(request.run_dir / EVENTS_FILE, fence.attempt, enabled=world.leads)
    order, evaluator = _data(request)
    rng.seed_all(config.seed)
    network = parallel.replicate(model.build(config.model, config.data.sequence_length), world)
    optimizer = _optimizer(network, config)
    progress = _beginning(request, order)
    rng.seed_all(config.seed + 1_000_003 * world.rank)
    checkpointer = _checkpointer(request, world, fence, network, optimizer, events)
    loaded = checkpointer.load_newest(lambda found: _refuse_other_run(found, progress))
    progress = loaded or progress
    metrics = MetricsLog(request.run_dir / METRICS_FILE, progress.step, enabled=world.leads)
    checkpointer.metrics = metrics
    checkpointer.allocate()
    run = Run(
        config=config,
        world=world,
        model=network,
        optimizer=optimizer,
        order=order,
        evaluator=evaluator,
        checkpointer=checkpointer,
        save_policy=SavePolicy(
            every_steps=config.checkpoint.every_steps,
            every_seconds=config.checkpoint.every_seconds,
            milestone_every_steps=config.checkpoint.milestone_every_steps,
        ),
        notice=notice,
        deadline_s=lineage.checkpoint_deadline_s(request.record, config),
        metrics=metrics,
        events=events,
        display=ProgressDisplay(
            config.steps, progress.step, config.report.every_seconds, enabled=world.leads
        ),
        progress=progress,
        attempt=fence.attempt,
    )
    _announce(run, request, resumed=loaded is not None)
    _settle_gradient_buckets(run)
    if world.leads:
        notice.watch_run_dir()
    return run


def _claim(run_dir: Path, world: World) -> Fence:
    """One number for all ranks of this attempt; unfinished writes of older ones are removed."""
    if world.leads:
        fence = Fence.claim(run_dir)
        PosixStore(run_dir / CHECKPOINTS_DIR).sweep()
        world.from_leader(fence.attempt)
        return fence
    return Fence(run_dir, world.from_leader(0))


def _data(request: Request) -> tuple[TrainingOrder, Evaluator]:
    config, folder, index = request.config, request.data_folder, request.index
    length = config.data.sequence_length
    order = TrainingOrder(TokenWindows(folder, index, "train", length), config.seed)
    evaluator = Evaluator.over(
        TokenWindows(folder, index, "eval", length),
        index,
        config.evaluation.samples,
        config.batch.micro_samples,
    )
    return order, evaluator


def _optimizer(network: torch.nn.Module, config: TrainerConfig) -> torch.optim.Optimizer:
    settings = config.optimizer
    matrices = [p for p in network.parameters() if p.ndim >= 2]
    others = [p for p in network.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        fused=True,
    )
    contents.prepare_optimizer(network, optimizer)
    return optimizer


def _beginning(request: Request, order: TrainingOrder) -> Progress:
    config = request.config
    cursor = order.cursor(0)
    return Progress(
        step=0,
        samples=cursor.samples,
        windows=cursor.windows,
        seed=cursor.seed,
        evaluated_step=0,
        evaluation_loss=None,
        dataset_version=request.index.version,
        model={**asdict(config.model), "sequence_length": config.data.sequence_length},
        tokens={"kind": "bytes", "boundary": request.index.boundary},
    )


def _refuse_other_run(found: Progress, wanted: Progress) -> None:
    """Raises ConfigError when a checkpoint cannot be continued with this configuration."""
    mistakes = []
    for name in ("seed", "dataset_version", "windows"):
        if getattr(found, name) != getattr(wanted, name):
            pair = f"{getattr(found, name)}, now {getattr(wanted, name)}"
            mistakes.append(f"resume: {name}: the checkpoint has {pair}")
    for key in sorted(found.model.keys() | wanted.model.keys()):
        if found.model.get(key) != wanted.model.get(key):
            pair = f"{found.model.get(key)}, now {wanted.model.get(key)}"
            mistakes.append(f"resume: model.{key}: the checkpoint has {pair}")
    if mistakes:
        raise ConfigError([f"{line}; use another --run-dir or the old value" for line in mistakes])


def _checkpointer(
    request: Request,
    world: World,
    fence: Fence,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    events: EventLog,
) -> Checkpointer:
    config, root = request.config, request.run_dir / CHECKPOINTS_DIR
    made_by = lineage.describe(config, request.record, request.index.version)
    milestone = config.checkpoint.milestone_every_steps

    def describe(progress: Progress, reason: str) -> Manifest:
        evaluated = progress.evaluated_step == progress.step
        return Manifest(
            step=progress.step,
            reason=reason,
            milestone=milestone is not None and progress.step % milestone == 0,
            evaluation_loss=progress.evaluation_loss if evaluated else None,
            attempt=fence.attempt,
            saved_at=time.time(),
            world_size=world.size,
            parallelism={"data": world.size},
            data_cursor={
                "dataset": config.data.path,
                "version": progress.dataset_version,
                "samples": progress.samples,
                "windows": progress.windows,
                "seed": progress.seed,
            },
            run=request.record,
            trainer=made_by,
        )

    return Checkpointer(
        world=world,
        store=PosixStore(root),
        root=root,
        fence=fence,
        model=parallel.bare(network),
        optimizer=optimizer,
        describe=describe,
        keep_latest=config.checkpoint.keep_latest,
        events=events,
    )


def _announce(run: Run, request: Request, *, resumed: bool) -> None:
    parameters = model.parameter_count(run.model)
    run.events.write(
        "started",
        run.progress.step,
        total_steps=run.config.steps,
        parameters=parameters,
        world_size=run.world.size,
        device=run.world.device.type,
        dataset_version=request.index.version,
        tokens_per_step=run.config.batch.global_samples * run.config.data.sequence_length,
        unigram_loss=run.evaluator.unigram_loss,
        run_id=request.record.get("run_id"),
        restart=os.environ.get(ATTEMPT_ENV),
    )
    if resumed:
        run.events.write("resumed", run.progress.step, from_step=run.progress.step)
    run.display.say(
        f"{parameters:,} parameters on {run.world.size} x {run.world.device.type}, "
        f"attempt {run.attempt}, "
        + (f"resumed from step {run.progress.step}" if resumed else "from the beginning")
        + f", {run.config.steps} steps"
    )


def _settle_gradient_buckets(run: Run) -> None:
    """Let DistributedDataParallel regroup its gradients before the first counted step.

    It does so after its first backward pass. The grouping changes the order of sums over more than
    two ranks, so without this the first step after a resume would differ in the last bits.
    """
    if run.world.size <= 2 or not run.config.deterministic:
        return
    states = rng.capture()
    rows = run.order.take(0, run.config.batch.micro_samples)
    model.mean_loss(run.model, to_device(rows, run.world.device)).backward()  # type: ignore[no-untyped-call]
    run.optimizer.zero_grad(set_to_none=True)
    rng.restore(states)
