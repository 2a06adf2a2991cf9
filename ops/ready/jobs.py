"""Jobs made from the platform's templates: started, awaited, read, and gone in the end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError, ForbiddenError, Kind, UnreachableError, WebhookError
from ops.collect import EVENTS, JOBS, PODS, WORKLOADS
from ops.objects import Json
from ops.ready import job_diagnosis, pod_results
from ops.ready.pod_results import Line
from ops.ready.polling import Pace

CRON_JOBS: Final = Kind("batch/v1", "cronjobs", "CronJob")
CLIMB: Final = f"{naming.DOMAIN}/ready"
"""Label of every Job that a climb makes; its value is the climb's own."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""The Job controller's label on pods."""
NODES_ENV: Final = "TRAINYARD_NODES"
"""Tells each pod of a template how many there are; changes with them."""
TAIL_LINES: Final = 200
"""Read of each log: the line that counts is the last."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Started:
    """A Job of this climb."""

    namespace: str
    name: str

    @property
    def reference(self) -> str:
        return f"job/{self.name} -n {self.namespace}"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a Job ended, as far as it did in time."""

    completed: bool
    lines: tuple[Line, ...] = ()
    """One per pod that said something, by node."""
    log: str = ""
    """The end of one pod's log, for programs that print more than a line."""
    cause: str = ""
    """Why it did not complete, where no line of its own says so."""
    remedy: str = ""
    yielded: bool = False
    """It was preempted, and did not get its place back in time: nothing was found out."""


def job_of(template: Json, name: str, climb: str) -> Json:
    """A Job as its CronJob would make it, marked as this climb's.

    It has no owner: a CronJob deletes finished Jobs that it owns, perhaps before anybody read them.
    """
    made: Mapping[str, Any] = template["spec"]["jobTemplate"]
    metadata = made.get("metadata") or {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": objects.meta(template)["namespace"],
            "labels": {**(metadata.get("labels") or {}), CLIMB: climb},
            "annotations": {
                **(metadata.get("annotations") or {}),
                "cronjob.kubernetes.io/instantiate": "manual",
            },
        },
        "spec": made["spec"],
    }


def on_nodes(template: Json, nodes: int) -> Json:
    """The template of an indexed Job, for so many nodes."""
    changed = copy.deepcopy(template)
    spec = changed["spec"]["jobTemplate"]["spec"]
    spec["parallelism"] = spec["completions"] = nodes
    for container in spec["template"]["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == NODES_ENV:
                variable["value"] = str(nodes)
    return changed


def pods_of(template: Json) -> int:
    """Pods that a Job of this template has at once."""
    return int(template["spec"]["jobTemplate"]["spec"].get("parallelism") or 1)


def over(job: Json) -> str:
    """`Complete` or `Failed`; empty while it goes on."""
    return next((kind for kind in ("Complete", "Failed") if objects.holds(job, kind)), "")


def preempted(workload: Json | None) -> str:
    """By what right a workload lost its place to another, in Kueue's word; empty: it did not."""
    for entry in (objects.status(workload).get("schedulingStats") or {}).get("evictions") or []:
        if entry.get("reason") == "Preempted":
            return str(entry.get("underlyingCause") or entry["reason"])
    return ""


REFUSED: Final = (ForbiddenError, WebhookError)
"""Why a Job is not made, though the API server answers."""


def refusal(error: ClusterError) -> tuple[str, str]:
    """Cause and remedy of a Job that was not made."""
    if isinstance(error, WebhookError):
        return f"the Job cannot be made: {error}", "once it answers, climb again"
    return (
        f"the Job is refused: {error}",
        "the message names the policy, or the right that you lack",
    )


class Jobs:
    """Jobs of one climb."""

    def __init__(self, cluster: Cluster, climb: str, pace: Pace, say: Say) -> None:
        self._cluster = cluster
        self._climb = climb
        self._say = say
        self._made: list[Started] = []
        self.pace = pace

    def start(self, template: Json) -> Started:
        """A Job of this template. Raises one of REFUSED where it is not made."""
        started = Started(
            namespace=str(objects.meta(template)["namespace"]),
            name=f"{objects.name(template)}-{self._climb}",
        )
        # Noted before it exists: whatever interrupts us, it will be deleted.
        self._made.append(started)
        try:
            self._cluster.create(JOBS, job_of(template, started.name, self._climb))
        except REFUSED:
            self._made.remove(started)
            raise
        return started

    def run(self, template: Json) -> Ended:
        """Start it, wait for its end, read it, delete it."""
        try:
            job = self.start(template)
        except REFUSED as error:
            cause, remedy = refusal(error)
            return Ended(completed=False, cause=cause, remedy=remedy)
        try:
            return self.finish(job)
        finally:
            self.delete(job)

    def finish(self, job: Started) -> Ended:
        """Wait for its end and read it."""
        told = ""

        def ended() -> Json | None:
            nonlocal told
            found = self.read(job)
            pods = self.pods(job)
            if (now := job_diagnosis.state(found, pods)) != told:
                told = now
                self._say(f"{job.name}: {now}")
            if found is None or over(found) or job_diagnosis.hopeless(pods):
                return found or {}
            return None

        found = self.pace.until(ended)
        return self._reading(job, self.read(job) if found is None else found, found is None)

    def read(self, job: Started) -> Json | None:
        return self._cluster.get(JOBS, job.name, job.namespace)

    def pods(self, job: Started) -> list[Json]:
        return self._cluster.items(PODS, job.namespace, f"{JOB_NAME}={job.name}")

    def workload(self, job: Started) -> Json | None:
        """What Kueue makes of the Job."""
        found = self._cluster.items(WORKLOADS, job.namespace)
        return next((w for w in found if objects.owner(w) == job.name), None)

    def delete(self, job: Started) -> None:
        """Delete a Job and its pods; that it is gone already is as good."""
        self._cluster.delete(JOBS, job.name, job.namespace)
        self._made.remove(job)

    def clear(self) -> None:
        """Delete what is left of this climb."""
        for job in list(self._made):
            self.delete(job)

    def _reading(self, job: Started, found: Json | None, in_vain: bool) -> Ended:
        if not found:
            cause = "somebody deleted it while it ran"
            return Ended(completed=False, cause=cause, remedy="try again")
        pods = self.pods(job)
        completed = over(found) == "Complete"
        phase = "Succeeded" if completed else "Failed"
        ended = [pod for pod in pods if objects.status(pod).get("phase") == phase]
        logs = {objects.name(pod): self._log(pod) for pod in (ended or pods)}
        known = [line for pod, log in logs.items() if (line := pod_results.last(log, pod))]
        cause, remedy, workload = "", "", None
        if not completed:
            workload = self.workload(job)
            limit = self.pace.limit_s if in_vain else None
            events = self._cluster.items(EVENTS, job.namespace)
            cause, remedy = job_diagnosis.explain(found, pods, events, workload, limit)
        return Ended(
            completed=completed,
            lines=tuple(sorted(known, key=lambda line: (line.node, line.pod))),
            log=next(iter(logs.values()), ""),
            cause=cause,
            remedy=remedy,
            yielded=in_vain and bool(preempted(workload)),
        )

    def _log(self, pod: Json) -> str:
        """The end of a pod's log; empty where it has none."""
        container = str(pod["spec"]["containers"][0]["name"])
        if not job_diagnosis.began(pod, container):
            return ""
        path = f"{PODS.path(str(objects.meta(pod)['namespace']), objects.name(pod))}/log"
        query = [("container", container), ("tailLines", str(TAIL_LINES))]
        try:
            return self._cluster.text(path, query) or ""
        except UnreachableError:
            # The node took the log with it. The last line is in the pod's status, too.
            return job_diagnosis.message(pod, container)


def leftovers(cluster: Cluster) -> list[Started]:
    """Jobs of any climb that are still there."""
    return [
        Started(namespace=str(objects.meta(job)["namespace"]), name=objects.name(job))
        for job in cluster.items(JOBS, selector=CLIMB)
    ]
