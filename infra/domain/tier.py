"""Team tiers and everything that follows from a team's tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from infra.domain.pools import Capacity, PurchaseModel

TierName = Literal["research", "production"]
"""Value of `tier` of a team in the stack file and of the label `trainyard.dev/tier`."""


@dataclass(frozen=True, kw_only=True)
class Tier:
    name: TierName
    purchase_order: tuple[PurchaseModel, ...]
    """Preferred capacity first; decides the order of a ClusterQueue's flavors."""
    fair_weight: int
    """Default weight when unguaranteed nodes are shared out. See docs/adr/04-capacity-and-quota.md."""
    default_priority: str
    """Priority class of runs that name none, and the highest class that runs may name."""
    spot_by_default: bool
    """Whether runs use spot capacity unless `allowSpot` is set."""
    preempts_for_preferred_capacity: bool
    """Whether runs preempt borrowers on preferred capacity before they try the next flavor."""
    needs_on_demand_guarantee: bool
    """Whether guaranteed nodes must not all be spot."""
    on_demand_capped: bool
    """Whether `onDemandUsdPerHour` may limit what its runs spend."""
    shares_gpus: bool
    """Whether its runs may use pools whose GPUs are shared by time-slicing or MPS."""
    restore_drill_by_default: bool
    """Whether a restore drill is scheduled unless the stack file says otherwise."""

    @property
    def capacity_order(self) -> tuple[Capacity, ...]:
        return tuple(dict.fromkeys(model.capacity for model in self.purchase_order))


RESEARCH: Final = Tier(
    name="research",
    purchase_order=(PurchaseModel.SPOT, PurchaseModel.RESERVED, PurchaseModel.HOURLY),
    fair_weight=1,
    default_priority="research-training",
    spot_by_default=True,
    preempts_for_preferred_capacity=False,
    needs_on_demand_guarantee=False,
    on_demand_capped=True,
    shares_gpus=True,
    restore_drill_by_default=False,
)
"""The default and the least privileged tier."""

PRODUCTION: Final = Tier(
    name="production",
    purchase_order=(PurchaseModel.RESERVED, PurchaseModel.HOURLY, PurchaseModel.SPOT),
    fair_weight=10,
    default_priority="production-training",
    spot_by_default=False,
    preempts_for_preferred_capacity=True,
    needs_on_demand_guarantee=True,
    on_demand_capped=False,
    shares_gpus=False,
    restore_drill_by_default=True,
)

TIERS: Final[Mapping[str, Tier]] = {tier.name: tier for tier in (PRODUCTION, RESEARCH)}
"""Every tier by name."""

DEFAULT_PRIORITIES: Final[Mapping[str, str]] = {
    tier.name: tier.default_priority for tier in TIERS.values()
}
"""Default and highest priority class by tier."""
