"""Metrics of the steering of gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.observability import series
from ops.exposition import Sample
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, Exposure

DECLARED: Final = (series.STEERING_LOOKED, series.STEERING_MOVES, series.STEERING_LOSSES)


def samples(
    seen: Mapping[tuple[str, str, str], Exposure],
    moves: Mapping[tuple[str, str, str], int],
    priors: Mapping[tuple[str, str], float],
    now: float,
) -> list[Sample]:
    """Return all metrics.

    `moves`: by team, pool that was left, and place that was chosen, since the start.
    `priors`: by pool and instance type, as in `Settings`.
    """
    found: list[Sample] = [(series.STEERING_LOOKED, {}, now)]
    for (team, pool, place), count in sorted(moves.items()):
        found.append((series.STEERING_MOVES, {"team": team, "pool": pool, "to": place}, count))
    for (pool, kind, zone), one in sorted(seen.items()):
        labels = {"pool": pool, "type": kind, "zone": zone}
        rates = one.rates(1, priors.get((pool, kind), INTERRUPTIONS_PER_NODE_HOUR))
        found.append((series.STEERING_LOSSES, labels, rates.lost * 3600))
    return found
