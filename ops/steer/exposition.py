"""Metrics of the steering of gangs, in Prometheus' text format."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, Exposure

_MOVES: Final = "trainyard_steering_moves_total"
_RATE: Final = "trainyard_steering_losses_per_node_hour"
_LOOKED: Final = "trainyard_steering_looked_timestamp_seconds"


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
    lines = [
        f"# HELP {_LOOKED} When the cluster was last looked at, in Unix seconds.",
        f"# TYPE {_LOOKED} gauge",
        f"{_LOOKED} {now!r}",
        f"# HELP {_MOVES} Runs that were moved off a pool.",
        f"# TYPE {_MOVES} counter",
    ]
    for (team, pool, place), count in sorted(moves.items()):
        lines.append(f'{_MOVES}{{team="{team}",pool="{pool}",to="{place}"}} {count}')
    lines += [
        f"# HELP {_RATE} Losses of a node in an hour, as learnt with the prior.",
        f"# TYPE {_RATE} gauge",
    ]
    for (pool, kind, zone), one in sorted(seen.items()):
        labels = f'pool="{pool}",type="{kind}",zone="{zone}"'
        rates = one.rates(1, priors.get((pool, kind), INTERRUPTIONS_PER_NODE_HOUR))
        lines.append(f"{_RATE}{{{labels}}} {rates.lost * 3600!r}")
    return "\n".join(lines) + "\n"


def stamp() -> str:
    """Return the time as the API server writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
