"""What the cluster's objects and logs say about the runs of a sweep. Pure but for reading logs."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from infra.domain import naming
from ops import concurrent, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import PODS
from ops.objects import Json
from ops.runs import states as run_states
from ops.sweep import state as states
from ops.sweep.state import Trial
from trainyard.contract import METRIC_LINE

LOG_LINES: Final = 3000
LOG_BYTES: Final = 1024 * 1024
DEADLINE_S: Final = 20.0
"""Of all logs of one round together, in seconds."""
_STATES: Final = {
    run_states.FINISHED: states.DONE,
    run_states.FAILED: states.FAILED,
    run_states.STOPPED: states.STOPPED,
}


def observe(
    trial: Trial, run: Json | None, workload: Json | None, now: dt.datetime, max_hours: float | None
) -> Trial:
    """Return a run's state, times and cost by its object and its Workload (None: absent)."""
    if trial.state in states.ENDED:
        return trial
    if run is None:
        if trial.state == states.WAITING:
            return trial
        return _ended(trial, states.DELETED, "its object was deleted", _stamp(now), now, max_hours)
    admitted = trial.admitted or _admitted(run, workload)
    trial = dataclasses.replace(trial, admitted=admitted)
    if ending := run_states.ending_of(run, workload):
        state = _STATES[ending.state]
        why = "" if state == states.DONE else ending.message
        return _ended(trial, state, why, ending.at, now, max_hours)
    running = admitted and (workload is None or objects.condition_is_true(workload, "Admitted"))
    state = states.RUNNING if running else states.QUEUED
    hours = _hours(admitted, now, max_hours)
    return dataclasses.replace(trial, state=state, hours=hours)


def ended_now(trial: Trial, reason: str, now: dt.datetime, max_hours: float | None) -> Trial:
    """Return a run as stopped for a reason."""
    return _ended(trial, states.STOPPED, reason, _stamp(now), now, max_hours)


def _ended(
    trial: Trial, state: str, reason: str, ended: str, now: dt.datetime, max_hours: float | None
) -> Trial:
    until = objects.time(ended) or now
    hours = _hours(trial.admitted, until, max_hours)
    return dataclasses.replace(trial, state=state, reason=reason, ended=ended, hours=hours)


def _hours(admitted: str | None, until: dt.datetime, max_hours: float | None) -> float:
    """Hours since the first admission; Kueue ends a run after `max_hours` of admitted time."""
    since = objects.time(admitted)
    if since is None:
        return 0.0
    hours = max(0.0, (until - since).total_seconds() / 3600)
    return hours if max_hours is None else min(hours, max_hours)


def _admitted(run: Json, workload: Json | None) -> str | None:
    """When the run was admitted first; without a queue, when it was created."""
    if not objects.label(run, naming.QUEUE_NAME):
        return str(objects.meta(run).get("creationTimestamp"))
    if workload is None or not objects.condition_is_true(workload, "Admitted"):
        return None
    return _since(workload, "Admitted")


def _since(item: Json, condition: str) -> str:
    return str(objects.condition(item, condition).get("lastTransitionTime", ""))


def _stamp(now: dt.datetime) -> str:
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


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
        first = {
            objects.label(pod, naming.RUN_ID): objects.name(pod)
            for pod in reversed(objects.newest_first(pods))
            if objects.label(pod, naming.RUN_ID) in wanted
            and objects.label(pod, naming.JOB_INDEX) in ("", "0")
            and objects.status(pod).get("phase") in ("Running", "Succeeded", "Failed")
        }
        query = [("tailLines", str(LOG_LINES)), ("limitBytes", str(LOG_BYTES))]

        def request(pod: str) -> Callable[[], str]:
            path = f"{PODS.path(namespace, pod)}/log"
            return lambda: cluster.text(path, query, DEADLINE_S) or ""

        came = concurrent.gather_with_deadline(
            {run_id: request(pod) for run_id, pod in first.items()}, DEADLINE_S
        )
        return {
            run_id: parse_values(text, metric)
            for run_id, text in came.items()
            if not isinstance(text, ClusterError)
        }

    return read


def with_values(trial: Trial, values: Mapping[int, float]) -> Trial:
    """Return a run with newly read values; NaN and infinities stay, so that a diverged run is seen as such."""
    merged = {**trial.values, **values}
    return dataclasses.replace(trial, values=states.thinned(merged)) if values else trial
