"""YuniKorn: one tree of queues, in the ConfigMap that its scheduler watches."""

from __future__ import annotations

from typing import Any, Final

import pulumi
import yaml

from infra.domain import naming
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata
from infra.queueing import shares
from infra.queueing.shares import Amounts, QueueShare, SharedQueuesArgs

NAMESPACE: Final = "yunikorn"
_CONFIG: Final = "yunikorn-configs"
"""The name that YuniKorn watches for; it goes before the chart's own defaults."""

PLACEHOLDER: Final = (
    "registry.k8s.io/pause@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a"
)
"""Image of YuniKorn's placeholder pods: pause 3.10, by digest like every image of a team's pods."""


def _resources(amounts: Amounts) -> dict[str, str]:
    """CPU is called vcore there."""
    found = shares.quantities(amounts)
    return {"vcore" if name == "cpu" else name: found[name] for name in sorted(found)}


def _leaf(share: QueueShare, args: SharedQueuesArgs) -> dict[str, Any]:
    """A team's queue. Gangs need `fifo`: any other order reserves parts of several at once."""
    return {
        "name": share.team,
        "properties": {"application.sort.policy": "fifo"},
        "resources": {
            "guaranteed": _resources(shares.guaranteed(share, args)),
            "max": _resources(shares.most(share, args)),
        },
    }


def queues(args: SharedQueuesArgs) -> dict[str, Any]:
    """`queues.yaml`: root, the cohort, a leaf per team; a pod gets the queue that it names, or none.

    No limits per person: the stack deploys runs and controllers make their pods, so YuniKorn never sees
    who asked. `submitacl` is open for the same reason; walls keep teams in their own queues.
    """
    cohort = {
        "name": args.cohort,
        "parent": True,
        "resources": {"max": _resources(shares.everything(args))},
        "queues": [_leaf(share, args) for share in args.shares],
    }
    return {
        "partitions": [
            {
                "name": "default",
                "placementrules": [{"name": "provided", "create": False}],
                "queues": [{"name": "root", "submitacl": "*", "queues": [cohort]}],
            }
        ]
    }


def config_map(args: SharedQueuesArgs) -> Manifest:
    """The ConfigMap; YuniKorn takes changes over while it runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(_CONFIG, namespace=NAMESPACE, labels=naming.object_labels("queues")),
        "data": {
            "queues.yaml": yaml.safe_dump(queues(args), sort_keys=False, width=100),
            "service.placeHolderImage": args.placeholder,
        },
    }


class YunikornQueues(pulumi.ComponentResource):
    """The queues of all teams."""

    def __init__(self, name: str, args: SharedQueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("YunikornQueues"), name, None, opts)
        KubernetesObject(f"{name}-config", config_map(args), pulumi.ResourceOptions(parent=self))
        self.register_outputs({"cohort": args.cohort})
