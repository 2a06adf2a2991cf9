"""Volcano: a Queue per team, and how its scheduler decides."""

from __future__ import annotations

from typing import Final

import pulumi

from infra.domain import naming
from infra.domain.scheduler import Scheduler
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata
from infra.queueing import shares
from infra.queueing.shares import QueueShare, SharedQueuesArgs

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

Without the action `enqueue`: it measures a gang against nodes that exist, and a pool that grows from
zero would never be asked for any. `capacity` in place of the chart's `proportion`, which knows no
share that is lent and taken back; `reclaim` takes it back.
"""


def queue(share: QueueShare, args: SharedQueuesArgs) -> Manifest:
    """A team's Queue.

    `deserved` is what the team gets back from whoever borrowed it, `capability` what it can never
    exceed. Volcano's `guarantee` would lock nodes that the team does not use, so there is none.
    """
    return {
        "apiVersion": API,
        "kind": "Queue",
        "metadata": metadata(
            Scheduler.VOLCANO.queue(share.team, args.cohort),
            labels=naming.object_labels("queues", share.team),
        ),
        "spec": {
            "reclaimable": True,
            "weight": 1,
            "capability": shares.quantities(shares.most(share, args)),
            "deserved": shares.quantities(shares.guaranteed(share, args)),
        },
    }


class VolcanoQueues(pulumi.ComponentResource):
    """Queues of all teams."""

    def __init__(self, name: str, args: SharedQueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("VolcanoQueues"), name, None, opts)
        for share in args.shares:
            KubernetesObject(
                f"{name}-{share.team}", queue(share, args), pulumi.ResourceOptions(parent=self)
            )
        self.register_outputs({"cohort": args.cohort})
