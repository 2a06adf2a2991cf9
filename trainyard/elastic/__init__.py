"""Groups that leave and join a run while it trains, without changing a bit of any loss.

    run = elastic.join(model, optimizer, schedule=schedule, workers=8, seed=1, save_every=100)
    for step in run.steps(400):
        with step:                                   # taken again when a group is lost
            for worker in step.workers():            # this group's share of the logical workers
                loss = loss_of(model, *batch(step.number, worker))
                loss.backward()
                step.add(loss)
            loss = step.reduce()                     # gradients: the mean over all workers, the same in each group
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

A batch is a function of step and worker. A loss over all samples of a step, such as a contrastive one, is over
those of one worker here. `tree` fixes the order of every sum, `views` the order of memberships; `links` has the
heartbeats, `exchange` the sums, `feed` the state for newcomers, and `run` the protocol.
docs/elastic.md has the rules, and what cannot be exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from trainyard.adapters import dcp
from trainyard.elastic.feed import Stateful
from trainyard.elastic.leader import Checkpoints, Leader
from trainyard.elastic.leaves import Leaves
from trainyard.elastic.membership import Membership
from trainyard.elastic.ranks import Ranks
from trainyard.elastic.run import Groups, Options, Run, Step
from trainyard.elastic.same import describe, refuse
from trainyard.run_info import run as facts

__all__ = ["Groups", "Leader", "Run", "Step", "join"]


def join(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    workers: int,
    seed: int = 0,
    save_every: int = 0,
    checkpoints: Checkpoints | None = None,
    leader: Leader | None = None,
    groups: Groups | None = None,
    run_dir: Path | None = None,
    settings: Mapping[str, str] | None = None,
    silent_after_s: float = 2.0,
    timeout_s: float = 60.0,
    **others: Stateful,
) -> Run:
    """Take part, as one group, in the run whose folder this process is given; a call of all its ranks.

    `workers`: logical workers of a step, a power of two; with `seed` it decides the bits. `others`: what else has
    a state, such as schedules: a newcomer gets all of it. `save_every`: steps between checkpoints, 0 for none; the
    leading group saves, with `checkpoints` (by default `adapters.dcp`). `settings`: what else has to be the same
    in all groups, such as the version of the data. `leader`: for programs with logs and
    checkpoints of their own. `groups`, `run_dir`: by default those of the platform. `silent_after_s`: seconds
    without a heartbeat after which a group is lost. `timeout_s`: limit for a step's exchange. Raises ValueError.
    """
    refuse(model, workers)
    ranks = Ranks()
    if leader is None:
        if checkpoints is None and save_every:
            checkpoints = dcp.Checkpointer(model, optimizer, every=save_every, **others)
        leader = Leader(ranks, checkpoints, save_every)
    if groups is None:
        groups = Groups.of_run()
    membership = Membership(
        ranks,
        run_dir or facts.run_dir or facts.checkpoints,
        describe(model, workers, seed, ranks.count, settings or {}),
        minimum=groups.min,
        most=groups.max,
        newest_attempt=leader.newest_attempt,
        silent_after_s=silent_after_s,
        timeout_s=timeout_s,
    )
    state: dict[str, Stateful] = {"model": model, "optimizer": optimizer, **others}
    options = Options(workers, seed, groups, silent_after_s, timeout_s)
    return Run(state, Leaves(model), membership, ranks, leader, options)
