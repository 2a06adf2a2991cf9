"""Node pools of a whole stack: what a rule must gather from several resources to know one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .model import UNKNOWN, Resource, dig, elements, mapping, number
from .names import BOUGHT_BY_EKS, BOUGHT_BY_KARPENTER, CAPACITY_SPOT, POOL_LABEL
from .tokens import KARPENTER_POOL, LAUNCH_TEMPLATE, NODE_CLASS, NODE_GROUP, SUBNET

_NODE: Final = "kubernetes:core/v1:Node"
_ON_DEMAND: Final = "on-demand"
_EFA: Final = ("efa", "efa-only")


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes that are made alike."""

    resource: Resource
    name: str
    labels: Any
    """Of its nodes, stated or for what they are; None if there are none, UNKNOWN if not known yet."""
    taints: Any
    """A list of key, value, effect; None if it states none, UNKNOWN if not known yet."""
    instance_types: tuple[str, ...] = ()
    """Empty if not known, and for single nodes."""
    capacity_types: frozenset[str] = frozenset()
    """How nodes may be bought: spot, on-demand. Empty: as Karpenter chooses. A capacity block counts
    as on-demand."""
    max_nodes: float | None = None
    """None: without a limit, or not known; `bounded` tells which."""
    bounded: bool = True
    efa_interfaces: int = 0
    """How many each node is given."""
    interfaces_path: str = ""
    """Where the interfaces are listed, in the launch template or node class."""
    zones: frozenset[str] = frozenset()
    """Zones that its nodes may be in, as far as they are known."""

    def has(self, labels: Mapping[str, Any]) -> bool:
        """Whether all nodes have these labels; there must be some."""
        return bool(labels) and labels.items() <= mapping(self.labels).items()


def _named(labels: Any, other: str) -> str:
    name = dig(labels, POOL_LABEL)
    return name if isinstance(name, str) else other


def _referred(resource: Resource, prop: str, resources: Sequence[Resource]) -> list[Resource]:
    urns = resource.refers.get(prop, frozenset())
    return [other for other in resources if other.urn in urns]


def zones_of(resource: Resource, prop: str, resources: Sequence[Resource]) -> frozenset[str]:
    """Zones of the subnets that a property refers to, as far as they are known."""
    found = (
        subnet.props.get("availabilityZone")
        for subnet in _referred(resource, prop, resources)
        if subnet.type == SUBNET
    )
    return frozenset(zone for zone in found if isinstance(zone, str))


def _efa(interfaces: Any) -> int:
    return sum(dig(entry, "interfaceType") in _EFA for entry in elements(interfaces))


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(value for value in elements(values) if isinstance(value, str))


def _node_group(resource: Resource, resources: Sequence[Resource]) -> NodePool:
    props = resource.props
    templates = [
        r for r in _referred(resource, "launchTemplate", resources) if r.type == LAUNCH_TEMPLATE
    ]
    template = templates[0].props if templates else {}
    own = _texts(props.get("instanceTypes"))
    return NodePool(
        resource=resource,
        name=_named(props.get("labels"), resource.urn),
        labels=_labels(
            props.get("labels"), {BOUGHT_BY_EKS: props.get("capacityType") or "ON_DEMAND"}
        ),
        taints=props.get("taints"),
        instance_types=own or _texts([template.get("instanceType")]),
        capacity_types=frozenset(
            {CAPACITY_SPOT if props.get("capacityType") == "SPOT" else _ON_DEMAND}
        ),
        max_nodes=number(dig(props, "scalingConfig", "maxSize")),
        efa_interfaces=_efa(template.get("networkInterfaces")),
        interfaces_path="networkInterfaces of its launch template",
        zones=zones_of(resource, "subnetIds", resources),
    )


def _among(template: Any, key: str) -> tuple[str, ...]:
    """Values that a Karpenter pool's requirements allow for a label."""
    for entry in elements(dig(template, "spec", "requirements")):
        if dig(entry, "key") == key and dig(entry, "operator") == "In":
            return _texts(dig(entry, "values"))
    return ()


def _labels(own: Any, more: Mapping[str, Any]) -> Any:
    """Labels that a pool states, and those that its nodes get for what it is."""
    if own is UNKNOWN:
        return UNKNOWN
    return {key: value for key, value in more.items() if value} | dict(mapping(own))


def _required(template: Any) -> dict[str, str]:
    """Labels of all nodes of a Karpenter pool because its requirements leave one value."""
    keys = {str(dig(entry, "key")) for entry in elements(dig(template, "spec", "requirements"))}
    found = {key: _among(template, key) for key in keys}
    return {key: values[0] for key, values in found.items() if len(values) == 1}


def _node_class(name: Any, resources: Sequence[Resource]) -> Resource | None:
    for resource in resources:
        if resource.type == NODE_CLASS and dig(resource.props, "metadata", "name") == name:
            return resource
    return None


def _karpenter(resource: Resource, resources: Sequence[Resource]) -> NodePool:
    template = dig(resource.props, "spec", "template")
    labels = dig(template, "metadata", "labels")
    own_class = _node_class(dig(template, "spec", "nodeClassRef", "name"), resources)
    zones = frozenset(_among(template, "topology.kubernetes.io/zone"))
    limit = dig(resource.props, "spec", "limits", "nodes")
    name = str(dig(resource.props, "metadata", "name"))
    return NodePool(
        resource=resource,
        name=_named(labels, name),
        labels=_labels(labels, {"karpenter.sh/nodepool": name} | _required(template)),
        taints=dig(template, "spec", "taints"),
        instance_types=_among(template, "node.kubernetes.io/instance-type"),
        capacity_types=frozenset(_among(template, BOUGHT_BY_KARPENTER)),
        max_nodes=number(limit),
        bounded=limit is not None,
        efa_interfaces=_efa(dig(own_class.props, "spec", "networkInterfaces")) if own_class else 0,
        interfaces_path="spec.networkInterfaces of its node class",
        zones=zones or (zones_of(own_class, "spec", resources) if own_class else frozenset()),
    )


def _node(resource: Resource) -> NodePool:
    labels = dig(resource.props, "metadata", "labels")
    return NodePool(
        resource=resource,
        name=_named(labels, str(dig(resource.props, "metadata", "name"))),
        labels=labels,
        taints=dig(resource.props, "spec", "taints"),
    )


def node_pools(resources: Sequence[Resource]) -> Iterator[NodePool]:
    """Pools that make nodes: EKS node groups and Karpenter's NodePools."""
    for resource in resources:
        if resource.type == NODE_GROUP:
            yield _node_group(resource, resources)
        elif resource.type == KARPENTER_POOL:
            yield _karpenter(resource, resources)


def pools_and_nodes(resources: Sequence[Resource]) -> Iterator[NodePool]:
    """Pools that make nodes, and the nodes that the stack makes one by one."""
    yield from node_pools(resources)
    yield from (_node(resource) for resource in resources if resource.type == _NODE)
