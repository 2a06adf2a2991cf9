"""Progress of runs by the last lines of their logs, where no metrics are found.

A team's role may read the logs of its runs, but not the cluster's Prometheus.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from infra.domain import naming
from ops import concurrent, objects
from ops.cluster import Cluster
from ops.objects import Json
from ops.runs import progress
from ops.runs.log_reader import LogReader, pod_of_group
from ops.runs.progress import NO_PROGRESS, Progress

RUNS_MAX: Final = 16
"""Runs whose logs one listing reads, which bounds its requests: running ones before ended ones, newest first."""
_LINES: Final = 60
_ENDED: Final = ("Succeeded", "Failed")
DEADLINE_S: Final = 5.0


def read_progress(cluster: Cluster, pods: Iterable[Json]) -> dict[str, Progress]:
    """Return the progress by run id, of at most RUNS_MAX runs with a started pod of rank 0 among `pods`."""
    found = sorted(objects.newest_first(leading_pods(pods).values()), key=_has_ended)[:RUNS_MAX]
    questions = {objects.run_id_of(pod): functools.partial(_read, cluster, pod) for pod in found}
    came = concurrent.gather_with_deadline(questions, DEADLINE_S)
    return {
        run_id: found
        for run_id, found in came.items()
        if isinstance(found, Progress) and found != NO_PROGRESS
    }


def is_limited(pods: Iterable[Json]) -> bool:
    """Whether there are more runs than `read_progress` reads."""
    return len(leading_pods(pods)) > RUNS_MAX


def leading_pods(pods: Iterable[Json]) -> dict[str, Json]:
    """Return the pod of rank 0 that runs, else the newest one that ended, by run id.

    Of a run with groups it is that of the group that most likely leads.
    """
    found: dict[str, list[Json]] = defaultdict(list)
    for pod in sorted(objects.newest_first(pods), key=_has_ended):
        started = objects.status(pod).get("phase") in ("Running", *_ENDED)
        if started and objects.label(pod, naming.JOB_INDEX) in ("", "0"):
            found[objects.run_id_of(pod)].append(pod)
    return {run_id: pod_of_group(each, 0, None) or each[0] for run_id, each in found.items()}


def _has_ended(pod: Json) -> bool:
    return objects.status(pod).get("phase") in _ENDED


def _read(cluster: Cluster, pod: Json) -> Progress:
    return progress.from_log(LogReader.of(cluster, pod, _LINES).read() or [])
