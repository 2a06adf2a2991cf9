"""What a changed resource costs before and after, by the one price model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming, prices
from infra.domain.prices import HOURS_PER_MONTH, Purchase, services
from ops.review.steps import UNKNOWN, Step

NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
NODE_POOL: Final = f"kubernetes:{naming.KARPENTER_NODE_POOL_API}:NodePool"

Inputs = Mapping[str, Any]

_GROUP_PURCHASE: Final = naming.EKS_CAPACITY
_POOL_PURCHASE: Final = naming.KARPENTER_CAPACITY
_REQUIRED_TYPES: Final = "node.kubernetes.io/instance-type"


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A node pool, as its resource gives it."""

    name: str
    types: tuple[str, ...]
    """Instance types; empty if only the launch template names them."""
    bought: tuple[Purchase, ...]
    min: int
    max: int | None
    """None: not limited by a number of nodes."""

    def __str__(self) -> str:
        types = ", ".join(self.types) or "type of its launch template"
        how = " or ".join(self.bought)
        return f"{self.min} to {'any' if self.max is None else self.max} {types}, {how}"

    @property
    def reserved(self) -> bool:
        """Whether its nodes are paid for elsewhere, such as a capacity block."""
        return self.bought == (Purchase.RESERVED,)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """USD per hour; None: not known."""

    idle: float | None = 0.0
    at_max: float | None = 0.0


def pool(kind: str, inputs: Inputs) -> Pool | None:
    """Return the node pool that a resource is; None: none, or that of the cluster's own controllers."""
    if not inputs:
        return None
    if kind == NODE_GROUP:
        return _group(inputs)
    return _karpenter(inputs) if kind == NODE_POOL else None


def _group(inputs: Inputs) -> Pool | None:
    labels = inputs.get("labels") or {}
    name = labels.get(naming.POOL)
    if not name or labels.get("node-type") == "system":
        return None
    bought = prices.PURCHASE_LABELS[_GROUP_PURCHASE].get(inputs.get("capacityType") or "ON_DEMAND")
    scaling = inputs.get("scalingConfig") or {}
    return Pool(
        name=str(name),
        types=tuple(inputs.get("instanceTypes") or ()),
        bought=(bought,) if bought else (),
        min=int(scaling.get("minSize") or 0),
        max=int(scaling.get("maxSize") or 0),
    )


def _karpenter(inputs: Inputs) -> Pool | None:
    spec = inputs.get("spec") or {}
    nodes = (spec.get("template") or {}).get("spec") or {}
    allowed = {one["key"]: one.get("values") or [] for one in nodes.get("requirements") or ()}
    limit = (spec.get("limits") or {}).get("nodes")
    names = prices.PURCHASE_LABELS[_POOL_PURCHASE]
    return Pool(
        name=str((inputs.get("metadata") or {}).get("name") or ""),
        types=tuple(allowed.get(_REQUIRED_TYPES, ())),
        bought=tuple(names[one] for one in allowed.get(_POOL_PURCHASE, ()) if one in names),
        min=int(spec.get("replicas") or 0),
        max=None if limit is None else int(limit),
    )


def difference(step: Step, region: str) -> Cost:
    """Return what a step adds to the cost; None where the price before or after is not known."""
    before, after = pool(step.kind, step.old), pool(step.kind, step.new)
    if before == after and before is not None:
        return Cost()
    old, new = _cost(step.kind, step.old, region), _cost(step.kind, step.new, region)
    return Cost(idle=_minus(new.idle, old.idle), at_max=_minus(new.at_max, old.at_max))


def _cost(kind: str, inputs: Inputs, region: str) -> Cost:
    """Return the cost of a resource; nothing for one that is not there."""
    if not inputs:
        return Cost()
    nodes = pool(kind, inputs)
    if nodes is not None:
        return _pool_cost(nodes, region)
    if inputs.get("subnetIds") == UNKNOWN:
        return Cost(idle=None, at_max=None)  # Endpoints are priced by their number of subnets.
    found = services.of_resource(kind, inputs, region)
    return Cost(idle=found.usd_per_hour, at_max=found.usd_per_hour) if found else Cost()


def _pool_cost(nodes: Pool, region: str) -> Cost:
    """Price a pool as `prices.hourly` does: idle as it prefers to buy, at maximum as it may buy at worst."""
    if nodes.reserved or not nodes.types or not nodes.bought:
        return Cost(idle=None, at_max=None)
    each = preferred_usd_per_hour(nodes, region)
    worst = _most(nodes.types, nodes.bought, region)
    return Cost(idle=_times(nodes.min, each), at_max=_times(nodes.max, worst))


def preferred_usd_per_hour(nodes: Pool, region: str) -> float | None:
    """Return the price of a node as the pool prefers to buy it; None: not known, or paid for elsewhere."""
    if nodes.reserved or not nodes.types or not nodes.bought:
        return None
    preferred = min(nodes.bought, key=lambda one: one is not Purchase.SPOT)
    return _most(nodes.types, (preferred,), region)


def _most(types: tuple[str, ...], bought: tuple[Purchase, ...], region: str) -> float | None:
    found = [prices.usd_per_hour(name, how, region) for name in types for how in bought]
    known = [usd for usd in found if usd is not None]
    return max(known) if known and len(known) == len(found) else None


def _times(nodes: int | None, usd: float | None) -> float | None:
    if nodes == 0:
        return 0.0
    return None if nodes is None or usd is None else nodes * usd


def _minus(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old


def per_month(usd_per_hour: float | None) -> float | None:
    """Return USD per month."""
    return None if usd_per_hour is None else usd_per_hour * HOURS_PER_MONTH
