"""Queues of whichever scheduler the stack chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from infra.domain.scheduler import Scheduler
from infra.queueing.kueue import KueueQueues, KueueQueuesArgs
from infra.queueing.shares import SharedQueuesArgs
from infra.queueing.volcano import VolcanoQueues
from infra.queueing.yunikorn import YunikornQueues


@dataclass(frozen=True, kw_only=True)
class TeamQueues:
    """What there is to queue in."""

    cluster_queues: Mapping[str, pulumi.Resource] = field(default_factory=dict)
    """Kueue's, by team: its LocalQueue, which runs name, comes after."""
    named_by_runs: tuple[pulumi.Resource, ...] = ()
    """Other schedulers' queues: runs themselves come after."""


@dataclass(frozen=True, kw_only=True)
class TeamQueuesArgs:
    """The scheduler, and its teams' shares in the form that it needs."""

    scheduler: Scheduler
    kueue: KueueQueuesArgs
    shared: SharedQueuesArgs


def deploy(name: str, args: TeamQueuesArgs, opts: pulumi.ResourceOptions) -> TeamQueues:
    """The queues of all teams; nothing where Kubernetes itself starts gangs."""
    if args.scheduler is Scheduler.KUEUE:
        return TeamQueues(cluster_queues=KueueQueues(name, args.kueue, opts).cluster_queues)
    if args.scheduler is Scheduler.VOLCANO:
        return TeamQueues(named_by_runs=(VolcanoQueues(name, args.shared, opts),))
    if args.scheduler is Scheduler.YUNIKORN:
        return TeamQueues(named_by_runs=(YunikornQueues(name, args.shared, opts),))
    return TeamQueues()
