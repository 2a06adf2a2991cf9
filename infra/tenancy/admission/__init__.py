"""Walls: what no object in a team's namespace may do, whoever creates it. See docs/security.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.domain import naming
from infra.domain.scheduler import Scheduler
from infra.kubernetes.objects import KubernetesObject, Manifest
from infra.tenancy.admission import (
    amounts,
    audit,
    changes,
    images,
    labels,
    placement,
    pod_security,
    priorities,
    queues,
    scheduler_queues,
    services,
    volumes,
)
from infra.tenancy.admission.controllers import BINDERS
from infra.tenancy.admission.policy import binding


@dataclass(frozen=True, kw_only=True)
class AdmissionWallsArgs:
    """Facts of the whole stack; those of a team are labels of its namespace."""

    taint_key: str
    """Key of the taint on GPU nodes."""
    registries: tuple[str, ...]
    """Registries or repositories that images may come from; none: no pod is admitted."""
    priorities: Mapping[str, int]
    """Priority classes and their values."""
    ceilings: Mapping[str, str]
    """The highest class of each tier."""
    scheduler: Scheduler = Scheduler.KUEUE
    """What queues runs. Only Kueue can prove that it admitted one; see docs/security.md."""
    queue_prefix: str = ""
    """With a scheduler that names queues after teams: what comes before the team's name."""


def _queue(args: AdmissionWallsArgs) -> list[Manifest]:
    if args.scheduler.holds_pods_back:
        return [queues.through_the_queue(args.taint_key), changes.admission_is_kueues()]
    own = args.scheduler.pod_scheduler
    if not own:
        return []
    return [
        queues.by_the_scheduler(args.taint_key, own),
        scheduler_queues.own_queue(args.scheduler, args.queue_prefix, args.taint_key),
    ]


def policies(args: AdmissionWallsArgs) -> list[Manifest]:
    """Every policy, in the order of their names' meaning: queue first, notes last."""
    return [
        *_queue(args),
        changes.runs_stay(),
        changes.pods_stay(),
        changes.status_is_told(),
        changes.no_orphans(),
        placement.where_they_belong(args.taint_key),
        placement.bound_by(BINDERS[args.scheduler]),
        amounts.said_and_counted(),
        amounts.no_claims(),
        volumes.of_the_platform(),
        images.by_digest(args.registries),
        priorities.not_above_the_tier(args.priorities, args.ceilings),
        pod_security.restricted_but_for_rdma(),
        services.inside_only(),
        labels.of_the_own_team(),
        audit.launches(),
    ]


class AdmissionWalls(pulumi.ComponentResource):
    """All policies, each with its binding. Teams come after them, so that no namespace is ever without."""

    def __init__(self, name: str, args: AdmissionWallsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AdmissionWalls"), name, None, opts)
        found = policies(args)
        for manifest in found:
            own = manifest["metadata"]["name"].removeprefix(f"{naming.PROJECT}-")
            wall = KubernetesObject(f"{name}-{own}", manifest, pulumi.ResourceOptions(parent=self))
            KubernetesObject(
                f"{name}-{own}-binding",
                binding(manifest),
                pulumi.ResourceOptions(parent=self, depends_on=[wall]),
            )
        self.register_outputs({"policies": [manifest["metadata"]["name"] for manifest in found]})
