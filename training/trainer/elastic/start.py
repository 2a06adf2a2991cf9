"""Build one rank of a replica group from a checked configuration, and run it to its end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

import torch

from training.checkpoint import rng
from training.config_errors import ConfigError
from training.prepare.dataset import DatasetError
from training.spec import EVENTS_FILE, EXIT_DONE
from training.trainer import lineage, results
from training.trainer.assembly import make_loader, open_data
from training.trainer.checkpointing import NoUsableCheckpoint
from training.trainer.data.sampler import Sampler
from training.trainer.elastic.computation import Computation, Observer, RecentMetrics
from training.trainer.elastic.donors import Donors
from training.trainer.elastic.entrance import Entrance
from training.trainer.elastic.group import Group
from training.trainer.elastic.leader import Leadership
from training.trainer.elastic.links import HUNG, Listener
from training.trainer.elastic.membership import Excluded
from training.trainer.elastic.ranks import GroupRanks
from training.trainer.elastic.settings import describe_settings
from training.trainer.elastic.view_changes import ViewChanges
from training.trainer.elastic.views import ViewLog
from training.trainer.elastic.watch import connect_ranks
from training.trainer.flight.recording import Recording
from training.trainer.flight.work_clock import WorkClock, make_clock
from training.trainer.loop import LossNotFinite, Run
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.optimizer import adamw
from training.trainer.parallel.build import Network, build_network
from training.trainer.parallel.world import World
from training.trainer.preflight import RunRequest
from training.trainer.replicas.comparison import ReplicasDiffer
from training.trainer.resume import initial_progress, make_checkpointer
from training.trainer.startup import make_step_meter
from trainyard.contract import POD_IP_ENV
from trainyard.notice import Notice
from trainyard.profiling import StepProfiler
from trainyard.run_logs import EventLog
from trainyard.silence import signs_of_life
from trainyard.store.fence import PosixFence
from trainyard.store.policy import SavePolicy

_NAMING_S: Final = 2.0
"""As long as this rank waits until it is known why it ends."""


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
    Raises ConfigError, DatasetError, NoUsableCheckpoint, LossNotFinite, RankLost.
    """
    log = ViewLog(request.run_dir, request.config.collective_timeout_s)
    host = os.environ.get(POD_IP_ENV) or "127.0.0.1"
    silent_after_s = request.config.groups.silent_after_s
    listener = Listener(log, host, silent_after_s, world.rank)

    flight = Recording(request.config, request.run_dir, world)

    def fail(reason: str, silent: int | None) -> None:
        print(f"rank {world.rank}: {reason}: the group ends", file=sys.stderr, flush=True)
        _name_in_time(flight, silent)
        leave(1)

    ranks, watch = connect_ranks(world, log.token(), host, silent_after_s, fail)
    flight.follow_groups(Membership(log, listener, lambda reason: fail(reason, None)))
    try:
        with signs_of_life(request.config.collective_timeout_s):
            code = _take_part(
                request, world, notice, listener, ranks, flight, describe, leave, observe
            )
    except (ConfigError, DatasetError, NoUsableCheckpoint, LossNotFinite, ReplicasDiffer):
        watch.end()  # the other ranks find the same
        raise
    finally:
        listener.close()
    flight.close()  # after an error, its marks stay where the other ranks of the node read them
    watch.end()
    return code


def _name_in_time(flight: Recording, silent: int | None) -> None:
    """Make known which rank of this group has to be blamed, unless the file system does not answer."""

    def name() -> None:
        with contextlib.suppress(OSError):
            flight.name_neighbour(silent)

    thread = threading.Thread(target=name, name="verdict", daemon=True)
    thread.start()
    thread.join(_NAMING_S)


@dataclass(frozen=True)
class Membership:
    """What the watchdog of this rank knows of the membership, and does."""

    log: ViewLog
    listener: Listener
    end: Callable[[str], None]

    def lose(self, group: str) -> None:
        """See Groups."""
        self.listener.report_lost(group, HUNG)

    def newer_view(self) -> bool | None:
        """See Groups."""
        if not self.listener.superseded():
            return None
        newest = self.log.newest()
        return newest is not None and newest.position(self.listener.member.id) is not None


def _take_part(
    request: RunRequest,
    world: World,
    notice: Notice,
    listener: Listener,
    ranks: GroupRanks,
    flight: Recording,
    describe: Callable[[Exception], str | None],
    leave: Callable[[int], NoReturn],
    observe: Observer | None,
) -> int:
    """Take part as one member after another, until the run ends or this group leaves."""
    addresses = ranks.agree(listener.address, tuple)
    about = describe_settings(request.config, request.corpus.version, world.device)
    model = _build_model(request, world, flight)
    while True:
        run, order = _make_run(request, world, notice, model)
        computation = Computation(run=run, order=order, observe=observe)
        assert isinstance(run.metrics, RecentMetrics)
        donors = Donors(listener, about)
        group = Group(
            computation=computation,
            changes=ViewChanges(
                computation=computation,
                log=listener.log,
                listener=listener,
                ranks=ranks,
                donors=donors,
            ),
            entrance=Entrance(
                log=listener.log,
                listener=listener,
                ranks=ranks,
                computation=computation,
                notice=notice,
                about=about,
                addresses=tuple((host, port) for host, port in addresses),
            ),
            donors=donors,
            leadership=Leadership(request=request, recent=run.metrics),
        )
        try:
            with group.leadership.reporting(run, describe):
                code = group.take_part()
                if code == EXIT_DONE and group.leads and world.is_leader:
                    run.metrics.sync()
                    results.publish(run, request, leave)
                return code
        except Excluded as error:
            if world.is_leader:
                print(f"this group joins again: {error}", file=sys.stderr, flush=True)
        finally:
            flight.watch_none()
            group.close()


@dataclass(frozen=True)
class _Model:
    network: Network
    optimizer: torch.optim.Optimizer
    flight: Recording
    clock: WorkClock


def _build_model(request: RunRequest, world: World, flight: Recording) -> _Model:
    """Build this rank's part of the model, without weights."""
    rng.seed_all(request.config.seed)
    network = build_network(request.config, world, request.corpus.index.vocab_size)
    flight.count_collectives()
    clock = make_clock(network, world.device, waits_inside=world.size > 1)
    return _Model(network, adamw(network.unwrapped, request.config), flight, clock)


def _make_run(
    request: RunRequest, world: World, notice: Notice, model: _Model
) -> tuple[Run, Sampler]:
    """Build everything around the model, without logs."""
    config = request.config
    order, evaluator = open_data(request)
    recent = RecentMetrics()
    display = ProgressDisplay(config.steps, 0, config.report.every_seconds, enabled=False)
    events = EventLog(request.run_dir / EVENTS_FILE, 0, enabled=False)
    run = Run(
        config=config,
        world=world,
        network=model.network,
        optimizer=model.optimizer,
        loader=make_loader(config, world, order),
        evaluator=evaluator,
        # Replaced by the leader's, which has claimed an attempt: this one never saves.
        checkpointer=make_checkpointer(
            request,
            world,
            PosixFence(request.run_dir, 0),
            model.network.unwrapped,
            model.optimizer,
            events,
        ),
        save_policy=SavePolicy(
            every_steps=config.checkpoint.every_steps,
            every_seconds=config.checkpoint.interval_s,
            milestone_every_steps=config.checkpoint.milestone_every_steps,
        ),
        notice=notice,
        deadline_s=lineage.checkpoint_deadline_s(request.record, config),
        metrics=recent,
        meter=make_step_meter(request, world, model.network, recent, display, 0),
        events=events,
        display=display,
        progress=initial_progress(request, order),
        attempt=0,
        flight=model.flight,
        recorder=model.flight.recorder,
        clock=model.clock,
        profiler=StepProfiler(request.run_dir) if world.is_leader else None,
    )
    return run, order
