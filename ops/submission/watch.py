"""Follow a run until it has ended. Everything is in the cluster, so the command may be interrupted at any time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError, UnreachableError
from ops.collect import PODS
from ops.objects import Json
from ops.runs.one_run import current_run
from ops.submission.stopping import has_ended

POLL_S: Final = 2.0
UNREACHABLE_S: Final = 300.0
"""Give up on an API server after this time without an answer."""


def until_ended(
    cluster: Cluster,
    run: Json,
    report: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
) -> Json:
    """Report each change of a run's pods; return the run when it has ended.

    Raises ClusterError if it was deleted or the API server does not answer for minutes.
    """
    namespace, run_id = str(objects.meta(run)["namespace"]), objects.name(run)
    answered, said = time.monotonic(), ""
    while True:
        try:
            found = current_run(cluster, run)
            pods = cluster.items(PODS, namespace, f"{naming.RUN_ID}={run_id}")
            answered = time.monotonic()
        except UnreachableError:
            if time.monotonic() > answered + UNREACHABLE_S:
                raise
            sleep(POLL_S)
            continue
        if found is None:
            raise ClusterError(
                f"run {run_id}: was stopped or deleted; trainyard run resume {run_id} continues a stopped one"
            )
        if (line := _line(found, pods)) != said:
            report(f"{run_id}: {line}")
            said = line
        if has_ended(found):
            return found
        sleep(POLL_S)


def _line(run: Json, pods: Sequence[Json]) -> str:
    for name in ("Failed", "Complete", "Completed", "Succeeded"):
        if objects.condition_is_true(run, name):
            why = str(objects.condition(run, name).get("message", ""))
            return f"failed: {why}" if name == "Failed" else "done"
    if not pods:
        return "queued"
    phases = [str(objects.status(pod).get("phase", "Pending")) for pod in pods]
    return ", ".join(f"{phases.count(one)} pods {one}" for one in sorted(set(phases)))
