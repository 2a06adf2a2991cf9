"""What a changed resource costs before and after, by the one price model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming, prices
from infra.domain.pools import (
    Capacity,
    Fallback,
    Network,
    NodePool,
    Nodes,
    Reservation,
    ReservationKind,
    Workload,
)
from infra.domain.prices import Purchase, services
from ops.review.steps import UNKNOWN, Preview, Step

NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
NODE_POOL: Final = f"kubernetes:{naming.KARPENTER_NODE_POOL_API}:NodePool"

Inputs = Mapping[str, Any]

_GROUP_PURCHASE: Final = naming.EKS_CAPACITY
_POOL_PURCHASE: Final = naming.KARPENTER_CAPACITY


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What belongs to node pools on one side of a change."""

    templates: Mapping[str, Inputs] = field(default_factory=dict)
    """Launch templates by pool."""
    usd_paid: Mapping[str, float | None] = field(default_factory=dict)
    """USD per hour that was paid for a reserved node, by pool; None: the stack file does not say."""


_ALONE: Final = Surroundings()


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A node pool, as its resource gives it."""

    name: str
    types: tuple[str, ...]
    """Instance types; empty: not known."""
    bought: tuple[Purchase, ...]
    min: int
    max: int | None
    """None: not limited by a number of nodes."""
    usd_paid: float | None = None
    """USD per hour that was paid for a reserved node; None: the on-demand price."""

    def __str__(self) -> str:
        types = ", ".join(self.types) or "type not known"
        how = " or ".join(self.bought)
        paid = "" if self.usd_paid is None else f" at {self.usd_paid:.2f} USD"
        return f"{self.min} to {'any' if self.max is None else self.max} {types}, {how}{paid}"

    @property
    def reserved(self) -> bool:
        """Whether its nodes belong to a capacity block or another reservation."""
        return self.bought == (Purchase.RESERVED,)

    def priced(self, region: str) -> NodePool | None:
        """Return the pool as the price model takes it; None: its types or purchase are not known."""
        if not self.types or not self.bought:
            return None
        reserved = Reservation(
            kind=ReservationKind.ON_DEMAND, id="", usd_per_node_hour=self.usd_paid
        )
        both = {Purchase.SPOT, Purchase.ON_DEMAND} <= {*self.bought}
        return NodePool(
            name=self.name,
            workload=Workload.GPU_TRAINING,
            capacity=Capacity.SPOT if Purchase.SPOT in self.bought else Capacity.ON_DEMAND,
            instance_types=self.types,
            min=self.min,
            max=self.min if self.max is None else self.max,
            zone="",
            nodes=Nodes.EXISTING,
            network=Network.TCP,
            taint_key="",
            region=region,
            reservation=reserved if self.reserved else None,
            fallback=Fallback.ON_DEMAND if both else Fallback.NONE,
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """USD per hour; None: not known."""

    idle: float | None = 0.0
    at_max: float | None = 0.0


def pools(preview: Preview) -> dict[str, tuple[Pool | None, Pool | None]]:
    """Return the node pools that the steps are before and after the change, by URN."""
    before, after = before_and_after(preview)
    each = {
        step.urn: (pool(step.kind, step.old, before), pool(step.kind, step.new, after))
        for step in preview.steps
    }
    return {urn: found for urn, found in each.items() if found != (None, None)}


def pool(kind: str, inputs: Inputs, around: Surroundings = _ALONE) -> Pool | None:
    """Return the node pool that a resource is; None: none, or that of the cluster's own controllers.

    `around`: for its launch template, and what was paid.
    """
    if not inputs:
        return None
    if kind == NODE_GROUP:
        return _group(inputs, around)
    return _karpenter(inputs, around) if kind == NODE_POOL else None


def _group(inputs: Inputs, around: Surroundings) -> Pool | None:
    labels = inputs.get("labels") or {}
    name = str(labels.get(naming.POOL) or "")
    if not name or labels.get("node-type") == "system":
        return None
    template = around.templates.get(name) or {}
    own = template.get("instanceType")
    bought = prices.PURCHASE_LABELS[_GROUP_PURCHASE].get(inputs.get("capacityType") or "ON_DEMAND")
    if template.get("capacityReservationSpecification"):
        bought = Purchase.RESERVED
    scaling = inputs.get("scalingConfig") or {}
    return Pool(
        name=name,
        types=tuple(inputs.get("instanceTypes") or ([own] if own else ())),
        bought=(bought,) if bought else (),
        min=int(scaling.get("minSize") or 0),
        max=int(scaling.get("maxSize") or 0),
        usd_paid=around.usd_paid.get(name) if bought is Purchase.RESERVED else None,
    )


def _karpenter(inputs: Inputs, around: Surroundings) -> Pool | None:
    spec = inputs.get("spec") or {}
    nodes = (spec.get("template") or {}).get("spec") or {}
    allowed = {one["key"]: one.get("values") or [] for one in nodes.get("requirements") or ()}
    limit = (spec.get("limits") or {}).get("nodes")
    names = prices.PURCHASE_LABELS[_POOL_PURCHASE]
    name = str((inputs.get("metadata") or {}).get("name") or "")
    bought = tuple(names[one] for one in allowed.get(_POOL_PURCHASE, ()) if one in names)
    return Pool(
        name=name,
        types=tuple(allowed.get(naming.INSTANCE_TYPE, ())),
        bought=bought,
        min=int(spec.get("replicas") or 0),
        max=None if limit is None else int(limit),
        usd_paid=around.usd_paid.get(name) if bought == (Purchase.RESERVED,) else None,
    )


def difference(step: Step, nodes: tuple[Pool | None, Pool | None] | None, region: str) -> Cost:
    """Return what a step adds to the cost; None where the price before or after is not known.

    `nodes`: the pools that the resource is before and after; None: it is none.
    """
    if nodes is None:
        old, new = _cost(step.kind, step.old, region), _cost(step.kind, step.new, region)
    elif nodes[0] == nodes[1]:
        return Cost()
    else:
        old, new = _pool_cost(nodes[0], region), _pool_cost(nodes[1], region)
    return Cost(idle=_minus(new.idle, old.idle), at_max=_minus(new.at_max, old.at_max))


def _cost(kind: str, inputs: Inputs, region: str) -> Cost:
    """Return the cost of a resource that is no pool; nothing for one that is not there."""
    if not inputs:
        return Cost()
    if inputs.get("subnetIds") == UNKNOWN:
        return Cost(idle=None, at_max=None)  # Endpoints are priced by their number of subnets.
    found = services.of_resource(kind, inputs, region)
    return Cost(idle=found.usd_per_hour, at_max=found.usd_per_hour) if found else Cost()


def _pool_cost(nodes: Pool | None, region: str) -> Cost:
    if nodes is None:
        return Cost()
    priced = nodes.priced(region)
    if priced is None:
        return Cost(idle=None, at_max=None)
    hourly = prices.hourly(priced)
    return Cost(idle=hourly.idle, at_max=None if nodes.max is None else hourly.at_max)


def preferred_usd_per_hour(nodes: Pool, region: str) -> float | None:
    """Return the price of a node as the pool prefers to buy it; None: not known."""
    priced = nodes.priced(region)
    return prices.per_node(priced, prices.purchases(priced)[0]) if priced else None


def _minus(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old


TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"


def before_and_after(preview: Preview) -> tuple[Surroundings, Surroundings]:
    """Return what surrounds the pools before and after a change.

    What was paid for a reservation is in the stack's configuration, of which a preview has the new one, and in the
    record that each team may read, of which it has both. Without a record, the price did not change.
    """
    old = [(step.kind, step.old) for step in preview.steps if step.old]
    new = [(step.kind, step.new) for step in preview.steps if step.new]
    after = _recorded(new) | _configured(preview.node_pools)
    return (
        Surroundings(templates=_templates(old), usd_paid=after | _recorded(old)),
        Surroundings(templates=_templates(new), usd_paid=after),
    )


def tagged_pool(template: Inputs) -> str:
    """Return the pool whose nodes a launch template makes, by the tags of its instances; empty for others."""
    tags: dict[str, str] = {}
    for one in template.get("tagSpecifications") or ():
        tags |= one.get("tags") or {}
    return str(tags.get(naming.POOL) or "")


def _templates(resources: Iterable[tuple[str, Inputs]]) -> dict[str, Inputs]:
    return {tagged_pool(inputs): inputs for kind, inputs in resources if kind == TEMPLATE}


def _configured(pools: str) -> dict[str, float | None]:
    """Return what the stack file says was paid; nothing for text that is not valid."""
    try:
        return _paid(json.loads(pools or "[]"), "usdPerNodeHour")
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _recorded(resources: Iterable[tuple[str, Inputs]]) -> dict[str, float | None]:
    """Return what the records of teams say was paid; nothing for text that is not valid."""
    found: dict[str, float | None] = {}
    for kind, inputs in resources:
        if kind != "kubernetes:core/v1:ConfigMap":
            continue
        try:
            text = (inputs.get("data") or {}).get(naming.PLATFORM_RECORD_KEY) or "{}"
            pools = (json.loads(text).get("platform") or {}).get("pools") or []
            found |= _paid(pools, "usd_per_node_hour")
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found


def _paid(pools: Iterable[Mapping[str, Any]], key: str) -> dict[str, float | None]:
    reserved = {str(one["name"]): one["reservation"] for one in pools if one.get("reservation")}
    return {
        name: None if one.get(key) is None else float(one[key]) for name, one in reserved.items()
    }
