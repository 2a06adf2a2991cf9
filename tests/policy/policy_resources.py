"""Resources for tables of what the rules accept and refuse."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.domain import naming
from policies.rules.model import UNKNOWN, Resource

DIGEST = "sha256:" + "0123456789abcdef" * 4
IMAGE = f"sandbox.trainyard.dev/trainer@{DIGEST}"
GPU = {"key": "dedicated", "value": "gpu-training", "effect": "NoSchedule"}
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
GPU_LABEL = {naming.WORKLOAD_TYPE: naming.GPU_TRAINING}


def aws(kind: str, urn: str = "urn:demo", **props: Any) -> Resource:
    """A resource of AWS; `kind` is MODULE/Type."""
    module, name = kind.split("/")
    return Resource(type=f"aws:{module}/{name[0].lower()}{name[1:]}:{name}", props=props, urn=urn)


def kubernetes(kind: str, spec: Any = None, urn: str = "urn:demo", **props: Any) -> Resource:
    """An object in the namespace of the team `research`; `kind` is GROUP/VERSION:KIND."""
    metadata = {"name": "demo", "namespace": "team-research"} | props.pop("metadata", {})
    found = {"metadata": metadata, **({} if spec is None else {"spec": spec}), **props}
    return Resource(type=f"kubernetes:{kind}", props=found, urn=urn)


def config_map(name: str, data: Mapping[str, Any], namespace: str = "team-research") -> Resource:
    metadata = {"name": name, "namespace": namespace}
    return kubernetes("core/v1:ConfigMap", urn=f"urn:{name}", metadata=metadata, data=data)


def pod(image: Any = IMAGE, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": image}]} | spec


def job(spec: Any, **labels: str) -> Resource:
    return kubernetes("batch/v1:Job", {"template": {"spec": spec}}, metadata={"labels": labels})


def interfaces(efa: int) -> list[dict[str, Any]]:
    """One interface for the network, and `efa` more."""
    return [{"interfaceType": "interface"}, *({"interfaceType": "efa-only"} for _ in range(efa))]


def subnet(zone: str) -> Resource:
    return aws("ec2/Subnet", f"urn:subnet-{zone}", availabilityZone=zone)


def template(name: str = "a", efa: int = 0, **props: Any) -> Resource:
    given = {"networkInterfaces": interfaces(efa)} | props
    return aws("ec2/LaunchTemplate", f"urn:{name}-template", **given)


def node_group(name: str, *types: str, zones: tuple[str, ...] = (), **props: Any) -> Resource:
    """A group as a preview shows it: what it refers to is known, the ids are not."""
    given = {
        "labels": {naming.POOL: name, **GPU_LABEL},
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


def karpenter_pool(
    name: str,
    *types: str,
    capacity: tuple[str, ...] = ("on-demand",),
    zones: tuple[str, ...] = (),
    limits: Any = None,
    taints: Any = (GPU,),
    labels: Mapping[str, str] = GPU_LABEL,
) -> Resource:
    required = {
        naming.INSTANCE_TYPE: types,
        naming.KARPENTER_CAPACITY: capacity,
        naming.ZONE: zones,
    }
    spec = {
        "requirements": [
            {"key": key, "operator": "In", "values": list(values)}
            for key, values in required.items()
            if values
        ],
        "nodeClassRef": {"name": name},
        "taints": taints,
    }
    own = {naming.POOL: name, **labels}
    made = {"limits": limits, "template": {"metadata": {"labels": own}, "spec": spec}}
    return kubernetes("karpenter.sh/v1:NodePool", made, f"urn:{name}", metadata={"name": name})


def node_class(name: str = "a", zones: tuple[str, ...] = (), **spec: Any) -> Resource:
    return Resource(
        type="kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
        props={"metadata": {"name": name}, "spec": spec},
        urn=f"urn:{name}-class",
        references={"spec": frozenset(f"urn:subnet-{zone}" for zone in zones)},
    )


def node(pool: str, taints: Any, gpus: Any = None, **labels: str) -> Resource:
    metadata = {"labels": {naming.POOL: pool} | labels}
    status: Any = {} if gpus is None else {"status": {"capacity": {"cpu": "96", naming.GPU: gpus}}}
    return kubernetes("core/v1:Node", {"taints": taints}, metadata=metadata, **status)


def kueue(kind: str, name: str, spec: Any, namespace: str = "") -> Resource:
    metadata = {"name": name, "namespace": namespace}
    return kubernetes(f"{naming.KUEUE_API}:{kind}", spec, f"urn:{kind}-{name}", metadata=metadata)


def flavor(name: str, *taints: Mapping[str, str]) -> Resource:
    """The flavor of the pool of the same name."""
    tolerations = [{"operator": "Equal", **taint} for taint in taints]
    spec = {"nodeLabels": {naming.POOL: name}, "tolerations": tolerations}
    return kueue("ResourceFlavor", name, spec)


def cluster_queue(
    team: str, *flavors: str, gpus: Any = None, kind: str = "ClusterQueue"
) -> Resource:
    quota = [] if gpus is None else [{"name": naming.GPU, "nominalQuota": gpus}]
    entries = [{"name": name, "resources": quota} for name in flavors]
    return kueue(kind, f"team-{team}", {"resourceGroups": [{"flavors": entries}]})


def local_queue(team: str, queue: str = "") -> Resource:
    """The LocalQueue by which a team's namespace uses a ClusterQueue, by default its own."""
    namespace = team if team.startswith("trainyard") else f"team-{team}"
    return kueue("LocalQueue", team, {"clusterQueue": f"team-{queue or team}"}, namespace)


def namespace(team: str, tier: str) -> Resource:
    metadata = {"name": f"team-{team}", "labels": {naming.TIER: tier}}
    return kubernetes("core/v1:Namespace", metadata=metadata)


def platform_record(*reserved: tuple[str, Any], team: str = "research") -> Resource:
    """The Platform record of a team; `reserved`: ids with what was paid, None: the stack file does not say."""
    pools = [
        {"reservation": {"id": name} | ({} if usd is None else {"usd_per_node_hour": usd})}
        for name, usd in reserved
    ]
    text = json.dumps({"format": 1, "platform": {"pools": [{"name": "spot"}, *pools]}})
    return config_map(naming.PLATFORM_RECORD, {naming.PLATFORM_RECORD_KEY: text}, f"team-{team}")
