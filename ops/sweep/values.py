"""Values of a sweep's metric, from the logs of its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ops import concurrent, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import PODS
from ops.objects import Json
from ops.runs import log_progress
from ops.sweep.state import Trial
from trainyard.contract import METRIC_LINE

LOG_LINES: Final = 3000
LOG_BYTES: Final = 1024 * 1024
DEADLINE_S: Final = 20.0
"""Of all logs of one round together, in seconds."""


def parse_values(text: str, metric: str) -> dict[int, float]:
    """Return a metric by step from the metric lines of a log; other lines and malformed ones are skipped."""
    found: dict[int, float] = {}
    for line in text.splitlines():
        _, marker, rest = line.partition(METRIC_LINE)
        if not marker:
            continue
        try:
            values = json.loads(rest)
            step, value = values["step"], values[metric]
        except (ValueError, TypeError, KeyError):
            continue
        if isinstance(step, int) and isinstance(value, int | float) and step >= 0:
            found[step] = float(value)
    return found


ReadValues = Callable[[Sequence[Trial], Sequence[Json]], Mapping[str, Mapping[int, float]]]
"""From runs and all pods of the sweep to the metric by step, by run id."""


def log_reader(cluster: Cluster, namespace: str, metric: str) -> ReadValues:
    """Return a reader of metric lines in the logs of first pods. Logs that cannot be read are left out."""

    def read(trials: Sequence[Trial], pods: Sequence[Json]) -> dict[str, dict[int, float]]:
        wanted = {one.run_id for one in trials}
        first = log_progress.leading_pods(pods)
        query = [("tailLines", str(LOG_LINES)), ("limitBytes", str(LOG_BYTES))]

        def request(pod: str) -> Callable[[], str]:
            path = f"{PODS.path(namespace, pod)}/log"
            return lambda: cluster.text(path, query, DEADLINE_S) or ""

        came = concurrent.gather_with_deadline(
            {run: request(objects.name(pod)) for run, pod in first.items() if run in wanted},
            DEADLINE_S,
        )
        return {
            run_id: parse_values(text, metric)
            for run_id, text in came.items()
            if not isinstance(text, ClusterError)
        }

    return read
