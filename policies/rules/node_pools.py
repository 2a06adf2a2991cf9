"""Node pools of a stack, assembled from several resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import catalog, naming
from infra.domain.catalog import InstanceType
from infra.domain.prices import PURCHASE_LABELS, Purchase

from .model import UNKNOWN, Resource, dig, elements, mapping, number, strings
from .resource_types import KARPENTER_POOL, LAUNCH_TEMPLATE, NODE, NODE_CLASS, NODE_GROUP, SUBNET

_EFA: Final = ("efa", "efa-only")


@dataclass(frozen=True, kw_only=True)
class NodePool:
    resource: Resource
    name: str
    labels: Any
    """None without any, UNKNOWN if not known yet."""
    taints: Any
    """List of key, value, effect; None without any, UNKNOWN if not known yet."""
    taints_path: str
    instance_types: tuple[str, ...] = ()
    """Empty if unknown, and for single nodes."""
    types_path: str = ""
    purchases: frozenset[Purchase] = frozenset()
    """How nodes may be bought; empty if unknown."""
    max_nodes: float | None = None
    """None: no limit (`bounded` is False) or unknown."""
    bounded: bool = True
    efa_interfaces: int = 0
    interfaces_path: str = ""
    """Path of the interfaces in the launch template or node class."""
    zones: frozenset[str] = frozenset()
    reservation: str = ""
    """Id of the one capacity reservation that it launches into; empty: none, or nodes outside of it too."""

    @property
    def known_types(self) -> list[InstanceType]:
        """Its instance types in the catalog; empty if one is not there."""
        found = [catalog.load().types.get(name) for name in self.instance_types]
        known = [one for one in found if one is not None]
        return known if len(known) == len(found) else []

    @property
    def has_gpus(self) -> bool:
        """Whether its nodes have GPUs, by label, instance type or capacity."""
        return (
            dig(self.labels, naming.WORKLOAD_TYPE) == naming.GPU_TRAINING
            or any(one.gpus for one in self.known_types)
            or bool(number(dig(self.resource.props, "status", "capacity", naming.GPU)))
        )

    def has(self, labels: Mapping[str, Any]) -> bool:
        """Whether all nodes have these labels; False for no labels."""
        return bool(labels) and labels.items() <= mapping(self.labels).items()


def _pool_name(labels: Any, other: str) -> str:
    name = dig(labels, naming.POOL)
    return name if isinstance(name, str) else other


def _referenced(resource: Resource, prop: str, resources: Sequence[Resource]) -> list[Resource]:
    urns = resource.references.get(prop, frozenset())
    return [other for other in resources if other.urn in urns]


def zones_of(resource: Resource, prop: str, resources: Sequence[Resource]) -> frozenset[str]:
    """Return the known zones of the subnets that a property refers to."""
    subnets = [r for r in _referenced(resource, prop, resources) if r.type == SUBNET]
    return frozenset(strings([subnet.props.get("availabilityZone") for subnet in subnets]))


def _efa_count(interfaces: Any) -> int:
    return sum(dig(entry, "interfaceType") in _EFA for entry in elements(interfaces))


def _only(values: tuple[str, ...]) -> str:
    return values[0] if len(values) == 1 else ""


def _node_group(resource: Resource, resources: Sequence[Resource]) -> NodePool:
    props = resource.props
    templates = _referenced(resource, "launchTemplate", resources)
    template = next((r.props for r in templates if r.type == LAUNCH_TEMPLATE), {})
    spot = props.get("capacityType") == "SPOT"
    specification = template.get("capacityReservationSpecification")
    target = dig(specification, "capacityReservationTarget", "capacityReservationId")
    return NodePool(
        resource=resource,
        name=_pool_name(props.get("labels"), resource.urn),
        labels=props.get("labels"),
        taints=props.get("taints"),
        taints_path="taints",
        instance_types=strings(props.get("instanceTypes"))
        or strings([template.get("instanceType")]),
        types_path="instanceTypes",
        purchases=frozenset({Purchase.SPOT if spot else Purchase.ON_DEMAND}),
        max_nodes=number(dig(props, "scalingConfig", "maxSize")),
        efa_interfaces=_efa_count(template.get("networkInterfaces")),
        interfaces_path="networkInterfaces of its launch template",
        zones=zones_of(resource, "subnetIds", resources),
        reservation="" if spot else _only(strings([target])),
    )


def _karpenter(resource: Resource, resources: Sequence[Resource]) -> NodePool:
    template = dig(resource.props, "spec", "template")
    labels = dig(template, "metadata", "labels")
    class_name = dig(template, "spec", "nodeClassRef", "name")
    classes = [r for r in resources if r.type == NODE_CLASS]
    node_class = next((r for r in classes if dig(r.props, "metadata", "name") == class_name), None)
    spec = dig(node_class.props, "spec") if node_class else {}
    terms = elements(dig(spec, "capacityReservationSelectorTerms"))
    limit = dig(resource.props, "spec", "limits", "nodes")
    required = dig(template, "spec", "requirements")
    bought = _required(required, naming.KARPENTER_CAPACITY)
    ways = PURCHASE_LABELS[naming.KARPENTER_CAPACITY]
    purchases = frozenset(way for name, way in ways.items() if name in bought)
    if not bought and required is not UNKNOWN:
        purchases = frozenset({Purchase.SPOT, Purchase.ON_DEMAND})
    return NodePool(
        resource=resource,
        name=_pool_name(labels, str(dig(resource.props, "metadata", "name"))),
        labels=labels,
        taints=dig(template, "spec", "taints"),
        taints_path="spec.template.spec.taints",
        instance_types=_required(required, naming.INSTANCE_TYPE),
        types_path="spec.template.spec.requirements",
        purchases=purchases,
        max_nodes=number(limit),
        bounded=limit is not None,
        efa_interfaces=_efa_count(dig(spec, "networkInterfaces")),
        interfaces_path="spec.networkInterfaces of its node class",
        zones=frozenset(_required(required, naming.ZONE))
        or (zones_of(node_class, "spec", resources) if node_class else frozenset()),
        reservation=_only(strings([dig(term, "id") for term in terms]))
        if purchases == {Purchase.RESERVED} and len(terms) == 1
        else "",
    )


def _required(requirements: Any, key: str) -> tuple[str, ...]:
    """Return the values that a Karpenter pool's requirements allow for a label."""
    for entry in elements(requirements):
        if dig(entry, "key") == key and dig(entry, "operator") == "In":
            return strings(dig(entry, "values"))
    return ()


def _node(resource: Resource, _: Sequence[Resource]) -> NodePool:
    labels = dig(resource.props, "metadata", "labels")
    bought = PURCHASE_LABELS[naming.CAPACITY].get(str(dig(labels, naming.CAPACITY)))
    return NodePool(
        resource=resource,
        name=_pool_name(labels, str(dig(resource.props, "metadata", "name"))),
        labels=labels,
        taints=dig(resource.props, "spec", "taints"),
        taints_path="spec.taints",
        purchases=frozenset({bought} if bought else ()),
    )


_READERS: Final = {NODE: _node, NODE_GROUP: _node_group, KARPENTER_POOL: _karpenter}


def pools_and_nodes(resources: Sequence[Resource]) -> Iterator[NodePool]:
    """Yield the EKS node groups, Karpenter NodePools, and single Node objects of the stack."""
    for resource in resources:
        if resource.type in _READERS:
            yield _READERS[resource.type](resource, resources)


def node_pools(resources: Sequence[Resource]) -> Iterator[NodePool]:
    """Yield the EKS node groups and Karpenter NodePools."""
    return (pool for pool in pools_and_nodes(resources) if pool.resource.type != NODE)
