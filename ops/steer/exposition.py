"""Metrics of the steering of gangs, in Prometheus' text format."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from infra.observability import series
from infra.observability.series import Series
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, Exposure


def text(
    seen: Mapping[tuple[str, str, str], Exposure],
    moves: Mapping[tuple[str, str, str], int],
    priors: Mapping[tuple[str, str], float],
    now: float,
) -> str:
    """Return all metrics.

    `moves`: by team, pool that was left, and place that was chosen, since the start.
    `priors`: by pool and instance type, as in `Settings`.
    """
    lines = [*_head(series.STEERING_LOOKED, "gauge"), f"{series.STEERING_LOOKED} {now!r}"]
    lines += _head(series.STEERING_MOVES, "counter")
    for (team, pool, place), count in sorted(moves.items()):
        labels = f'team="{team}",pool="{pool}",to="{place}"'
        lines.append(f"{series.STEERING_MOVES}{{{labels}}} {count}")
    lines += _head(series.STEERING_LOSSES, "gauge")
    for (pool, kind, zone), one in sorted(seen.items()):
        labels = f'pool="{pool}",type="{kind}",zone="{zone}"'
        rates = one.rates(1, priors.get((pool, kind), INTERRUPTIONS_PER_NODE_HOUR))
        lines.append(f"{series.STEERING_LOSSES}{{{labels}}} {rates.lost * 3600!r}")
    return "\n".join(lines) + "\n"


def _head(one: Series, kind: str) -> list[str]:
    return [f"# HELP {one} {one.help}", f"# TYPE {one} {kind}"]


def stamp() -> str:
    """Return the time as the API server writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
