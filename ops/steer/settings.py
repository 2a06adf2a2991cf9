"""Pools and rules as a file: what the stack publishes for `spot steer` in the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.domain.catalog.interruptions import Band, relative_frequency
from training.spot.decide import Place
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR
from training.spot.steer import Pool, Rules


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the stack says. `pools`: by name."""

    pools: Mapping[str, Pool]
    rules: Rules
    priors: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Losses per node and hour that are assumed before any were seen, by spot pool and instance type."""
    cordon: bool = False
    """Whether nodes are cordoned on which runs name ranks again and again."""


def parse(found: Mapping[str, Any]) -> Settings:
    """Return settings in the form of `infra.config.arguments.steering`. Raises KeyError, TypeError, ValueError."""
    pools = [
        Pool(
            name=str(one["name"]),
            place=Place(one["place"]),
            usd_per_node_hour=one["usdPerNodeHour"],
            prior=_prior(*_bands(one).values()),
            opens=float(one.get("opens", 0.0)),
            closes=float(one.get("closes", float("inf"))),
        )
        for one in found["pools"]
    ]
    rules = found["rules"]
    return Settings(
        pools={pool.name: pool for pool in pools},
        rules=Rules(
            losses=int(rules["losses"]),
            window_s=float(rules["windowSeconds"]),
            empty_s=float(rules["emptySeconds"]),
            # An older release did not publish it.
            start_s=float(rules.get("startSeconds", Rules.start_s)),
        ),
        priors={
            (str(one["name"]), kind): _prior(band)
            for one in found["pools"]
            for kind, band in _bands(one).items()
        },
        cordon=bool(found.get("cordonNamedNodes", False)),
    )


def _bands(pool: Mapping[str, Any]) -> dict[str, Band | None]:
    """Return the bands of a pool's instance types; None: not listed. Pools that are not spot have none."""
    found = dict(pool.get("interruptions", {}))
    return {str(kind): Band(label) if label else None for kind, label in found.items()}


def _prior(*bands: Band | None) -> float:
    """Return the losses per node and hour that are assumed of these bands."""
    return INTERRUPTIONS_PER_NODE_HOUR * relative_frequency(*bands)
