"""What Prometheus has: whether it gets the three kinds of metrics, and which alerts it knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.observability import dcgm, series
from ops.metrics import MetricsUnknownError, PrometheusClient

RECENT: Final = "1d"
"""A run that ended since counts as seen."""

GPU, TRAINING, KUBERNETES = "GPU", "training", "Kubernetes"
LAYER_QUERIES: Final = {
    GPU: f"count({' or '.join(dcgm.GPU_UTIL.names)})",
    TRAINING: f"count(count_over_time({series.STEPS}[{RECENT}]))",
    KUBERNETES: f"count({series.POD_INFO})",
}
"""By layer, how many series of it there are."""


@dataclass(frozen=True, kw_only=True)
class PrometheusInventory:
    """What was found. `place`: the Prometheus; `gap`: why it is not known, empty if it is."""

    place: str
    gap: str = ""
    counts: dict[str, int] | None = None
    """Series by layer."""
    alerts: Sequence[str] = ()
    """Names of the alerts that are loaded."""
    firing: Sequence[str] = ()


def read_inventory(metrics: PrometheusClient) -> PrometheusInventory:
    """Ask it."""
    try:
        counts = {
            layer: int(sum(sample.value for sample in metrics.query(expression)))
            for layer, expression in LAYER_QUERIES.items()
        }
        rules = metrics.alerts()
    except MetricsUnknownError as error:
        return PrometheusInventory(place=metrics.place, gap=str(error))
    return PrometheusInventory(
        place=metrics.place,
        counts=counts,
        alerts=sorted(rules),
        firing=sorted(name for name, state in rules.items() if state == "firing"),
    )
