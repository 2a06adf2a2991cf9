"""What Prometheus contains: series of GPUs, training and Kubernetes, and loaded alerts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability import dcgm, series
from ops.metrics import MetricsUnknownError, PrometheusClient

RECENT: Final = "1d"
"""Lookback for series of ended runs."""

GPU, TRAINING, KUBERNETES = "GPU", "training", "Kubernetes"
LAYER_QUERIES: Final = {
    GPU: f"count({' or '.join(dcgm.GPU_UTIL.names)})",
    TRAINING: f"count(count_over_time({series.STEPS}[{RECENT}]))",
    KUBERNETES: f"count({series.POD_INFO})",
}
"""Query for the number of series, by layer."""
_SINCE: Final = f"min(min_over_time(timestamp({series.UP})[{RECENT}:1m]))"


@dataclass(frozen=True, kw_only=True)
class PrometheusInventory:
    """Contents of a Prometheus. `place`: its name; `gap`: why nothing is known, else empty."""

    place: str
    gap: str = ""
    counts: dict[str, int] | None = None
    """Series by layer."""
    alerts: Sequence[str] = ()
    """Names of the loaded alerts."""
    firing: Sequence[str] = ()
    since: float | None = None
    """Unix seconds of its oldest scrape within RECENT; None: it has none."""


def read_inventory(metrics: PrometheusClient) -> PrometheusInventory:
    """Query the number of series and the alerts."""
    try:
        counts = {
            layer: int(sum(sample.value for sample in metrics.query(expression)))
            for layer, expression in LAYER_QUERIES.items()
        }
        rules = metrics.alerts()
        since = [sample.value for sample in metrics.query(_SINCE)]
    except MetricsUnknownError as error:
        return PrometheusInventory(place=metrics.place, gap=str(error))
    return PrometheusInventory(
        place=metrics.place,
        counts=counts,
        alerts=sorted(rules),
        firing=sorted(name for name, state in rules.items() if state == "firing"),
        since=min(since, default=None),
    )
