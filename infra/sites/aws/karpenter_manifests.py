"""A pool as Karpenter objects: an EC2NodeClass (properties of a node) and a NodePool (types, limits, lifetime).

A spot pool with `fallback: on-demand` buys on-demand nodes where EC2 has no spot capacity. Such a node keeps the
pool's labels and taints, so runs admitted to the pool fit it, and costs the on-demand price; its label
`karpenter.sh/capacity-type` shows the difference. On-demand pools never use spot, and a pool with a reservation
only launches into that.
"""

from __future__ import annotations

from typing import Any, Final

import pulumi

from infra.domain import naming, prices
from infra.domain.pools import Network, NodePool, Workload
from infra.kubernetes.objects import Manifest, manifest
from infra.sites.aws import efa, machine_images, node_config
from infra.sites.aws.outputs import Place
from infra.sites.aws.pool_nodes import ROOT_DEVICE, ROOT_IOPS, ROOT_MIB_PER_S, own_labels

NODE_CLASS_API: Final = naming.KARPENTER_NODE_CLASS_API
NODE_POOL_API: Final = naming.KARPENTER_NODE_POOL_API
CAPACITY_TYPE: Final = naming.KARPENTER_CAPACITY

IMAGE: Final = f"al2023@v{machine_images.DATE}"
"""Karpenter selects the variant with NVIDIA's driver for GPU types."""

EMPTY_FOR: Final = "5m"
"""How long an empty node is kept: a restarting gang starts sooner on it than on a new one."""

BUDGETS: Final[tuple[dict[str, Any], ...]] = ({"nodes": "10%"},)
"""Disruption budgets; they do not apply to interruptions by AWS."""

GANG_BUDGETS: Final = (
    *BUDGETS,
    # A changed tag or image makes all nodes drift from their class; draining them one by one would evict the gang.
    # So only empty nodes are replaced.
    {"nodes": "0", "reasons": ["Drifted"]},
)
"""Disruption budgets of GPU pools."""

CPU_LIFETIME: Final = "720h"
"""Age at which a node without GPUs is replaced, 30 days: no work there lasts as long as a gang's."""

DRAIN: Final = "30m"
"""Bound of a node's drain, so that no pod blocks its deletion, and with it a destroy, forever. Longer than any
run's grace period."""


def capacity_types(pool: NodePool) -> list[str]:
    """Return the pool's capacity types, whose names Purchase shares; Karpenter prefers the cheapest."""
    return [purchase.value for purchase in prices.purchases(pool)]


def limits(pool: NodePool) -> dict[str, str]:
    """Return the pool's maximum in nodes and, if they have any, in GPUs."""
    found = {"nodes": str(pool.max)}
    if pool.cards_per_node:
        found[naming.GPU] = str(pool.max * pool.cards_per_node)
    return found


def _among(key: str, values: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": values}


def node_pool(pool: NodePool) -> Manifest:
    """Return the NodePool. GPU nodes never expire, since that would end runs; nodes without GPUs are replaced."""
    gangs = pool.workload is Workload.GPU_TRAINING
    return manifest(
        f"{NODE_POOL_API}/NodePool",
        pool.name,
        "nodes",
        spec={
            "template": {
                "metadata": {"labels": own_labels(pool)},
                "spec": {
                    "nodeClassRef": {
                        "group": NODE_CLASS_API.partition("/")[0],
                        "kind": "EC2NodeClass",
                        "name": pool.name,
                    },
                    "requirements": [
                        _among(naming.INSTANCE_TYPE, list(pool.instance_types)),
                        _among(CAPACITY_TYPE, capacity_types(pool)),
                        _among(naming.ZONE, [pool.zone]),
                    ],
                    "taints": [taint.manifest() for taint in pool.taints],
                    "expireAfter": "Never" if gangs else CPU_LIFETIME,
                    "terminationGracePeriod": DRAIN,
                },
            },
            "limits": limits(pool),
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": EMPTY_FOR,
                "budgets": [dict(budget) for budget in (GANG_BUDGETS if gangs else BUDGETS)],
            },
        },
    )


def node_class(pool: NodePool, place: Place, instance_profile: pulumi.Input[str]) -> Manifest:
    """Return the EC2NodeClass. It selects subnets and groups by id, so tags elsewhere have no effect."""
    spec: dict[str, Any] = {
        "amiSelectorTerms": [{"alias": IMAGE}],
        "instanceProfile": instance_profile,
        "subnetSelectorTerms": [{"id": place.subnet(pool)}],
        "securityGroupSelectorTerms": [{"id": group} for group in place.security_groups(pool)],
        "associatePublicIPAddress": False,
        "blockDeviceMappings": [_root_volume(pool, place.data_key_arn)],
        "metadataOptions": {
            "httpEndpoint": "enabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": place.metadata_access.hop_limit,
            "httpTokens": "required",
        },
        "detailedMonitoring": True,
        "tags": place.instance_tags(pool),
    }
    if pool.network is Network.EFA:
        # All nodes of the pool have them, independent of the pod that triggered the launch.
        spec["networkInterfaces"] = [
            {
                "networkCardIndex": one.card,
                "deviceIndex": one.device,
                "interfaceType": one.type.value,
            }
            for one in efa.interfaces(pool)
        ]
    # The instance store has a field of its own.
    if document := node_config.mime_document(pool, disks=False):
        spec["userData"] = document
    if pool.instance_store:
        # As node_config of managed groups; nodes report the array's size, so Karpenter counts it, too.
        spec["instanceStorePolicy"] = "RAID0"
    if pool.placement_group:
        spec["placementGroupSelector"] = {"name": place.own_name(pool)}
    if pool.reservation:
        spec["capacityReservationSelectorTerms"] = [{"id": pool.reservation.id}]
    return manifest(f"{NODE_CLASS_API}/EC2NodeClass", pool.name, "nodes", spec=spec)


def _root_volume(pool: NodePool, key_arn: pulumi.Input[str]) -> dict[str, Any]:
    return {
        "deviceName": ROOT_DEVICE,
        "ebs": {
            "volumeType": "gp3",
            "volumeSize": f"{pool.root_gib}Gi",
            "iops": ROOT_IOPS,
            "throughput": ROOT_MIB_PER_S,
            "encrypted": True,
            "kmsKeyID": key_arn,
            "deleteOnTermination": True,
        },
    }
