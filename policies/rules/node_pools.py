"""Node pools of a stack, assembled from several resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .model import UNKNOWN, Resource, dig, elements, mapping, number
from .names import CAPACITY_SPOT, EKS_CAPACITY_LABEL, KARPENTER_CAPACITY_LABEL, POOL_LABEL
from .resource_types import KARPENTER_POOL, LAUNCH_TEMPLATE, NODE_CLASS, NODE_GROUP, SUBNET

_NODE: Final = "kubernetes:core/v1:Node"
_ON_DEMAND: Final = "on-demand"
_RESERVED: Final = "reserved"
_EFA: Final = ("efa", "efa-only")
_SELECTED: Final = "capacityReservationSelectorTerms"


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """A group of identical nodes."""

    resource: Resource
    name: str
    labels: Any
    """Node labels, configured or set by EKS and Karpenter; None without any, UNKNOWN if not known yet."""
    taints: Any
    """List of key, value, effect; None without any, UNKNOWN if not known yet."""
    instance_types: tuple[str, ...] = ()
    """Empty if unknown, and for single nodes."""
    capacity_types: frozenset[str] = frozenset()
    """Possible capacity types: spot, on-demand; reserved for Karpenter only. Empty: Karpenter chooses."""
    max_nodes: float | None = None
    """None: no limit (`bounded` is False) or unknown."""
    bounded: bool = True
    efa_interfaces: int = 0
    """EFA interfaces per node."""
    interfaces_path: str = ""
    """Path of the interfaces in the launch template or node class."""
    zones: frozenset[str] = frozenset()
    """Known zones of its nodes."""
    reservation: str = ""
    """Id of the one capacity reservation that it launches into; empty: none, or nodes outside of it too."""

    def has(self, labels: Mapping[str, Any]) -> bool:
        """Whether all nodes have these labels; False for no labels."""
        return bool(labels) and labels.items() <= mapping(self.labels).items()


def _pool_name(labels: Any, other: str) -> str:
    name = dig(labels, POOL_LABEL)
    return name if isinstance(name, str) else other


def _referenced(resource: Resource, prop: str, resources: Sequence[Resource]) -> list[Resource]:
    urns = resource.references.get(prop, frozenset())
    return [other for other in resources if other.urn in urns]


def zones_of(resource: Resource, prop: str, resources: Sequence[Resource]) -> frozenset[str]:
    """Return the known zones of the subnets that a property refers to."""
    found = (
        subnet.props.get("availabilityZone")
        for subnet in _referenced(resource, prop, resources)
        if subnet.type == SUBNET
    )
    return frozenset(zone for zone in found if isinstance(zone, str))


def _efa_count(interfaces: Any) -> int:
    return sum(dig(entry, "interfaceType") in _EFA for entry in elements(interfaces))


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(value for value in elements(values) if isinstance(value, str))


def _target(template: Mapping[str, Any]) -> str:
    """Return the id of the reservation that a launch template targets."""
    path = ("capacityReservationTarget", "capacityReservationId")
    found = dig(template.get("capacityReservationSpecification"), *path)
    return found if isinstance(found, str) else ""


def _selected(node_class: Resource | None) -> str:
    """Return the id of the reservation that a node class selects; empty if it may select several."""
    terms = elements(dig(node_class.props, "spec", _SELECTED)) if node_class else ()
    found = [dig(term, "id") for term in terms]
    return found[0] if len(found) == 1 and isinstance(found[0], str) else ""


def _node_group(resource: Resource, resources: Sequence[Resource]) -> NodePool:
    props = resource.props
    templates = [
        r for r in _referenced(resource, "launchTemplate", resources) if r.type == LAUNCH_TEMPLATE
    ]
    template = templates[0].props if templates else {}
    own = _strings(props.get("instanceTypes"))
    spot = props.get("capacityType") == "SPOT"
    return NodePool(
        resource=resource,
        name=_pool_name(props.get("labels"), resource.urn),
        labels=_labels(
            props.get("labels"), {EKS_CAPACITY_LABEL: props.get("capacityType") or "ON_DEMAND"}
        ),
        taints=props.get("taints"),
        instance_types=own or _strings([template.get("instanceType")]),
        capacity_types=frozenset({CAPACITY_SPOT if spot else _ON_DEMAND}),
        max_nodes=number(dig(props, "scalingConfig", "maxSize")),
        efa_interfaces=_efa_count(template.get("networkInterfaces")),
        interfaces_path="networkInterfaces of its launch template",
        zones=zones_of(resource, "subnetIds", resources),
        reservation="" if spot else _target(template),
    )


def _required_values(template: Any, key: str) -> tuple[str, ...]:
    """Return the values that a Karpenter pool's requirements allow for a label."""
    for entry in elements(dig(template, "spec", "requirements")):
        if dig(entry, "key") == key and dig(entry, "operator") == "In":
            return _strings(dig(entry, "values"))
    return ()


def _labels(own: Any, more: Mapping[str, Any]) -> Any:
    """Merge a pool's configured labels with those that its provider sets."""
    if own is UNKNOWN:
        return UNKNOWN
    return {key: value for key, value in more.items() if value} | dict(mapping(own))


def _required_labels(template: Any) -> dict[str, str]:
    """Return the labels for which a Karpenter pool's requirements allow exactly one value."""
    keys = {str(dig(entry, "key")) for entry in elements(dig(template, "spec", "requirements"))}
    found = {key: _required_values(template, key) for key in keys}
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
    zones = frozenset(_required_values(template, "topology.kubernetes.io/zone"))
    limit = dig(resource.props, "spec", "limits", "nodes")
    name = str(dig(resource.props, "metadata", "name"))
    capacity_types = frozenset(_required_values(template, KARPENTER_CAPACITY_LABEL))
    return NodePool(
        resource=resource,
        name=_pool_name(labels, name),
        labels=_labels(labels, {"karpenter.sh/nodepool": name} | _required_labels(template)),
        taints=dig(template, "spec", "taints"),
        instance_types=_required_values(template, "node.kubernetes.io/instance-type"),
        capacity_types=capacity_types,
        max_nodes=number(limit),
        bounded=limit is not None,
        efa_interfaces=_efa_count(dig(own_class.props, "spec", "networkInterfaces"))
        if own_class
        else 0,
        interfaces_path="spec.networkInterfaces of its node class",
        zones=zones or (zones_of(own_class, "spec", resources) if own_class else frozenset()),
        reservation=_selected(own_class) if capacity_types == {_RESERVED} else "",
    )


def _node(resource: Resource) -> NodePool:
    labels = dig(resource.props, "metadata", "labels")
    return NodePool(
        resource=resource,
        name=_pool_name(labels, str(dig(resource.props, "metadata", "name"))),
        labels=labels,
        taints=dig(resource.props, "spec", "taints"),
    )


def node_pools(resources: Sequence[Resource]) -> Iterator[NodePool]:
    """Yield the EKS node groups and Karpenter NodePools."""
    for resource in resources:
        if resource.type == NODE_GROUP:
            yield _node_group(resource, resources)
        elif resource.type == KARPENTER_POOL:
            yield _karpenter(resource, resources)


def pools_and_nodes(resources: Sequence[Resource]) -> Iterator[NodePool]:
    """Yield the node pools, and single Node objects of the stack."""
    yield from node_pools(resources)
    yield from (_node(resource) for resource in resources if resource.type == _NODE)
