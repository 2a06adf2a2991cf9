"""Build one replica group from a checked configuration, and run it to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from training.checkpoint import rng
from training.spec import EVENTS_FILE, EXIT_DONE
from training.trainer import export, lineage
from training.trainer.assembly import make_loader, open_data
from training.trainer.elastic.computation import Computation, Observer, RecentMetrics
from training.trainer.elastic.group import Group
from training.trainer.elastic.leader import Leadership
from training.trainer.elastic.links import Listener
from training.trainer.elastic.membership import Excluded
from training.trainer.elastic.views import ViewLog
from training.trainer.loop import Run
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.optimizer import adamw
from training.trainer.parallel.build import build_network
from training.trainer.parallel.world import World
from training.trainer.preflight import RunRequest
from training.trainer.resume import initial_progress, make_checkpointer
from training.trainer.startup import make_step_meter
from trainyard.contract import POD_IP_ENV
from trainyard.notice import Notice
from trainyard.run_logs import EventLog
from trainyard.store.fence import PosixFence
from trainyard.store.policy import SavePolicy


def run_group(
    request: RunRequest,
    world: World,
    notice: Notice,
    *,
    describe: Callable[[Exception], str | None],
    leave: Callable[[int], NoReturn],
    observe: Observer | None = None,
) -> int:
    """Take part in the run until it ends or this group leaves; return the exit code.

    `describe` returns one line for an expected error; `leave` ends the process with an exit code.
    Raises ConfigError, DatasetError, NoUsableCheckpoint, LossNotFinite.
    """
    log = ViewLog(request.run_dir)
    host = os.environ.get(POD_IP_ENV) or "127.0.0.1"
    listener = Listener(log, host, request.config.groups.silent_after_s)
    try:
        while True:
            group = _assemble(request, world, notice, log, listener, observe)
            try:
                with group.leadership.reporting(group.run, describe):
                    code = group.take_part()
                    if code == EXIT_DONE and request.config.checkpoint.export and group.leads:
                        export.write_export(group.run, request.run_dir, leave)
                    return code
            except Excluded as error:
                print(f"this group joins again: {error}", file=sys.stderr, flush=True)
                listener.renew_id()
            finally:
                group.close()
    finally:
        listener.close()


def _assemble(
    request: RunRequest,
    world: World,
    notice: Notice,
    log: ViewLog,
    listener: Listener,
    observe: Observer | None,
) -> Group:
    """Build the model and everything around it, without weights and without logs."""
    config = request.config
    order, evaluator = open_data(request)
    rng.seed_all(config.seed)
    network = build_network(config, world, request.corpus.index.vocab_size)
    optimizer = adamw(network.unwrapped, config)
    recent = RecentMetrics()
    display = ProgressDisplay(config.steps, 0, config.report.every_seconds, enabled=False)
    events = EventLog(request.run_dir / EVENTS_FILE, 0, enabled=False)
    run = Run(
        config=config,
        world=world,
        network=network,
        optimizer=optimizer,
        loader=make_loader(config, world, order),
        evaluator=evaluator,
        # Replaced by the leader's, which has claimed an attempt: this one never saves.
        checkpointer=make_checkpointer(
            request, world, PosixFence(request.run_dir, 0), network.unwrapped, optimizer, events
        ),
        save_policy=SavePolicy(
            every_steps=config.checkpoint.every_steps,
            every_seconds=config.checkpoint.every_seconds,
            milestone_every_steps=config.checkpoint.milestone_every_steps,
        ),
        notice=notice,
        deadline_s=lineage.checkpoint_deadline_s(request.record, config),
        metrics=recent,
        meter=make_step_meter(request, world, network, recent, display, 0),
        events=events,
        display=display,
        progress=initial_progress(request, order),
        attempt=0,
    )
    return Group(
        computation=Computation(run=run, order=order, observe=observe),
        log=log,
        listener=listener,
        leadership=Leadership(request=request, listener=listener, recent=recent),
    )
