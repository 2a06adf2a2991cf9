"""Node pools of a whole stack, for tests: groups of EKS, pools of Karpenter, what they refer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policies.rules.model import UNKNOWN, Resource

GPU = {"key": "dedicated", "value": "gpu-training", "effect": "NoSchedule"}
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "gpu-training"}


def interfaces(efa: int) -> list[dict[str, Any]]:
    """One interface for the network, and `efa` more."""
    return [{"interfaceType": "interface"}, *({"interfaceType": "efa-only"} for _ in range(efa))]


def subnet(zone: str) -> Resource:
    return Resource(
        type="aws:ec2/subnet:Subnet", props={"availabilityZone": zone}, urn=f"urn:subnet-{zone}"
    )


def template(name: str, efa: int = 0, instance_type: Any = None) -> Resource:
    return Resource(
        type="aws:ec2/launchTemplate:LaunchTemplate",
        props={"instanceType": instance_type, "networkInterfaces": interfaces(efa)},
        urn=f"urn:{name}-template",
    )


def node_group(name: str, *types: str, zones: tuple[str, ...] = (), **props: Any) -> Resource:
    """A group as a preview shows it: what it refers to is known, the ids are not."""
    labels = {"trainyard.dev/pool": name, "workload-type": "gpu-training"}
    given = {
        "labels": labels,
        "taints": [GPU | {"effect": "NO_SCHEDULE"}],
        "instanceTypes": list(types) or None,
        "launchTemplate": {"id": UNKNOWN},
        "subnetIds": UNKNOWN,
    }
    return Resource(
        type="aws:eks/nodeGroup:NodeGroup",
        props=given | props,
        urn=f"urn:{name}",
        references={
            "launchTemplate": frozenset({f"urn:{name}-template"}),
            "subnetIds": frozenset(f"urn:subnet-{zone}" for zone in zones),
        },
    )


def _among(key: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def karpenter_pool(
    name: str,
    *types: str,
    capacity: tuple[str, ...] = ("on-demand",),
    zones: tuple[str, ...] = (),
    limits: Any = None,
    taints: Any = None,
    labels: Mapping[str, str] | None = None,
) -> Resource:
    requirements = [
        _among("node.kubernetes.io/instance-type", types),
        _among("karpenter.sh/capacity-type", capacity),
    ]
    if zones:
        requirements.append(_among("topology.kubernetes.io/zone", zones))
    spec = {
        "requirements": requirements,
        "nodeClassRef": {"name": name},
        "taints": [GPU] if taints is None else taints,
    }
    own = {"trainyard.dev/pool": name, "workload-type": "gpu-training", **(labels or {})}
    return Resource(
        type="kubernetes:karpenter.sh/v1:NodePool",
        props={
            "metadata": {"name": name},
            "spec": {"limits": limits, "template": {"metadata": {"labels": own}, "spec": spec}},
        },
        urn=f"urn:{name}",
    )


def node_class(name: str, efa: int = 0, zones: tuple[str, ...] = ()) -> Resource:
    return Resource(
        type="kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
        props={"metadata": {"name": name}, "spec": {"networkInterfaces": interfaces(efa)}},
        urn=f"urn:{name}-class",
        references={"spec": frozenset(f"urn:subnet-{zone}" for zone in zones)},
    )


def kueue(kind: str, name: str, spec: Any, namespace: str = "") -> Resource:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return Resource(
        type=f"kubernetes:kueue.x-k8s.io/v1beta2:{kind}",
        props={"metadata": metadata, "spec": spec},
        urn=f"urn:{kind}-{name}",
    )


def flavor(name: str, tolerations: Any, taints: Any = None) -> Resource:
    """The flavor of the pool of the same name."""
    spec = {"nodeLabels": {"trainyard.dev/pool": name}, "tolerations": tolerations}
    return kueue("ResourceFlavor", name, spec | ({"nodeTaints": taints} if taints else {}))


def cluster_queue(team: str, *flavors: str) -> Resource:
    entries = [{"name": name, "resources": []} for name in flavors]
    return kueue("ClusterQueue", f"team-{team}", {"resourceGroups": [{"flavors": entries}]})


def namespace(name: str, tier: str) -> Resource:
    metadata = {"name": name, "labels": {"trainyard.dev/tier": tier}}
    return Resource(type="kubernetes:core/v1:Namespace", props={"metadata": metadata})
