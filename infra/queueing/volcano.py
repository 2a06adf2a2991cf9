"""Volcano: a Queue per team, and the scheduler's configuration."""

from __future__ import annotations

from typing import Final

import pulumi

from infra.domain import naming
from infra.domain.launcher_support import account
from infra.domain.scheduler import Scheduler
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, text
from infra.kubernetes.controller_accounts import KUBE_SCHEDULER
from infra.kubernetes.objects import Manifest, manifest
from infra.kubernetes.resources import KubernetesObject
from infra.queueing import shares
from infra.queueing.admission import require_scheduler
from infra.queueing.backends import SchedulerBackend, TeamQueues
from infra.queueing.quotas import QueuesArgs
from infra.sections.teams import TeamConfig

_GROUP: Final = "scheduling.volcano.sh"
API: Final = "scheduling.volcano.sh/v1beta1"

SCHEDULER_CONFIG: Final = """\
actions: "allocate, preempt, reclaim, backfill"
tiers:
  - plugins:
      - name: priority
      - name: gang
        enablePreemptable: false
      - name: conformance
  - plugins:
      - name: drf
        enablePreemptable: false
      - name: predicates
      - name: capacity
      - name: nodeorder
      - name: binpack
"""
"""`volcano-scheduler.conf`.

Without the action `enqueue`, which compares a gang with existing nodes and so would never scale a pool up from
zero. With `capacity` instead of the chart's `proportion`, which cannot lend and reclaim shares; `reclaim` takes
lent nodes back.
"""


def queue(team: TeamConfig, args: QueuesArgs) -> Manifest:
    """Return a team's Queue.

    `deserved` is reclaimed from borrowers, `capability` is the maximum. Volcano's `guarantee` would lock idle
    nodes, so it is not set.
    """
    return manifest(
        f"{API}/Queue",
        naming.cluster_queue(team.name),
        "queues",
        team=team.name,
        spec={
            "reclaimable": True,
            "weight": 1,
            "capability": shares.quantities(shares.most(team, args)),
            "deserved": shares.quantities(shares.guaranteed(team, args)),
        },
    )


def require_own_queue(prefix: str) -> Manifest:
    """Require PodGroups to name their team's queue, which is called `prefix` and then like the team.

    Volcano creates a PodGroup for a pod that has none, in the queue that the pod names or in `default`;
    that group must pass as well.
    """
    return policy(
        "queue-name",
        matches=[resources(_GROUP, "podgroups")],
        conditions={
            "queues": "request.operation == 'CREATE' || object.spec != oldObject.spec",
        },
        variables=pod_templates.TEAM,
        rules=[
            Rule(
                holds=(f"dyn(object).spec.?queue.orValue('') == {text(prefix)} + variables.team"),
                message=f"this is not the team's queue; PodGroups must name {prefix}TEAM; set spec.queue",
            )
        ],
    )


class VolcanoQueues(pulumi.ComponentResource):
    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("VolcanoQueues"), name, None, opts)
        for team in args.teams:
            KubernetesObject(
                f"{name}-{team.name}", queue(team, args), pulumi.ResourceOptions(parent=self)
            )
        self.register_outputs({"cohort": args.cohort})


class VolcanoBackend(SchedulerBackend):
    scheduler = Scheduler.VOLCANO
    operator = "volcano"
    pod_scheduler = "volcano"
    pod_group_api = _GROUP
    # Volcano takes lent nodes back only for pods whose class lets them preempt.
    preemption_policy = "PreemptLowerPriority"
    binders = (KUBE_SCHEDULER, account("volcano-system", "volcano-scheduler"))

    def queue(self, team: str, cohort: str) -> str:
        del cohort
        return naming.cluster_queue(team)

    def deploy(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> TeamQueues:
        return TeamQueues(named_by_runs=(VolcanoQueues(name, args, opts),))

    def admission_policies(self, taint_key: str, cohort: str) -> list[Manifest]:
        return [
            require_scheduler(taint_key, self.pod_scheduler),
            require_own_queue(self.queue("", cohort)),
        ]


BACKEND: Final = VolcanoBackend()
