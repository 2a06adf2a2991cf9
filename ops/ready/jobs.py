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
from ops.ready.pod_results import PodResult
from ops.ready.polling import Poller

CRON_JOBS: Final = Kind("batch/v1", "cronjobs", "CronJob")
SESSION_LABEL: Final = f"{naming.DOMAIN}/ready"
"""Label of every Job that a climb makes; its value is the climb's own."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""The Job controller's label on pods."""
NODES_ENV: Final = "TRAINYARD_NODES"
"""Tells each pod of a template how many there are; changes with them."""
TAIL_LINES: Final = 200
"""Read of each log: the line that counts is the last."""

Print = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    """A Job of this climb."""

    namespace: str
    name: str

    @property
    def reference(self) -> str:
        return f"job/{self.name} -n {self.namespace}"


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How a Job ended, as far as it did in time."""

    completed: bool
    lines: tuple[PodResult, ...] = ()
    """One per pod that said something, by node."""
    log: str = ""
    """The end of one pod's log, for programs that print more than a line."""
    cause: str = ""
    """Why it did not complete, where no line of its own says so."""
    remedy: str = ""
    preempted: bool = False
    """It was preempted, and did not get its place back in time: nothing was found out."""


def render_job(template: Json, name: str, session_id: str) -> Json:
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
            "labels": {**(metadata.get("labels") or {}), SESSION_LABEL: session_id},
            "annotations": {
                **(metadata.get("annotations") or {}),
                "cronjob.kubernetes.io/instantiate": "manual",
            },
        },
        "spec": made["spec"],
    }


def with_parallelism(template: Json, nodes: int) -> Json:
    """The template of an indexed Job, for so many nodes."""
    changed = copy.deepcopy(template)
    spec = changed["spec"]["jobTemplate"]["spec"]
    spec["parallelism"] = spec["completions"] = nodes
    for container in spec["template"]["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == NODES_ENV:
                variable["value"] = str(nodes)
    return changed


def parallelism(template: Json) -> int:
    """Pods that a Job of this template has at once."""
    return int(template["spec"]["jobTemplate"]["spec"].get("parallelism") or 1)


def terminal_condition(job: Json) -> str:
    """`Complete` or `Failed`; empty while it goes on."""
    return next(
        (kind for kind in ("Complete", "Failed") if objects.condition_is_true(job, kind)), ""
    )


def preemption_reason(workload: Json | None) -> str:
    """By what right a workload lost its place to another, in Kueue's word; empty: it did not."""
    for entry in (objects.status(workload).get("schedulingStats") or {}).get("evictions") or []:
        if entry.get("reason") == "Preempted":
            return str(entry.get("underlyingCause") or entry["reason"])
    return ""


CREATE_ERRORS: Final = (ForbiddenError, WebhookError)
"""Why a Job is not made, though the API server answers."""


def describe_create_error(error: ClusterError) -> tuple[str, str]:
    """Cause and remedy of a Job that was not made."""
    if isinstance(error, WebhookError):
        return f"the Job cannot be made: {error}", "once it answers, climb again"
    return (
        f"the Job is refused: {error}",
        "the message names the policy, or the right that you lack",
    )


class Jobs:
    """Jobs of one climb."""

    def __init__(self, cluster: Cluster, session_id: str, poller: Poller, log: Print) -> None:
        self._cluster = cluster
        self._session_id = session_id
        self._say = log
        self._made: list[StartedJob] = []
        self.poller = poller

    def start(self, template: Json) -> StartedJob:
        """A Job of this template. Raises one of REFUSED where it is not made."""
        started = StartedJob(
            namespace=str(objects.meta(template)["namespace"]),
            name=f"{objects.name(template)}-{self._session_id}",
        )
        # Noted before it exists: whatever interrupts us, it will be deleted.
        self._made.append(started)
        try:
            self._cluster.create(JOBS, render_job(template, started.name, self._session_id))
        except CREATE_ERRORS:
            self._made.remove(started)
            raise
        return started

    def run(self, template: Json) -> JobResult:
        """Start it, wait for its end, read it, delete it."""
        try:
            job = self.start(template)
        except CREATE_ERRORS as error:
            cause, remedy = describe_create_error(error)
            return JobResult(completed=False, cause=cause, remedy=remedy)
        try:
            return self.finish(job)
        finally:
            self.delete(job)

    def finish(self, job: StartedJob) -> JobResult:
        """Wait for its end and read it."""
        last = ""

        def ended() -> Json | None:
            nonlocal last
            found = self.read(job)
            pods = self.pods(job)
            if (now := job_diagnosis.progress(found, pods)) != last:
                last = now
                self._say(f"{job.name}: {now}")
            if found is None or terminal_condition(found) or job_diagnosis.cannot_start(pods):
                return found or {}
            return None

        found = self.poller.wait_for(ended)
        return self._reading(job, self.read(job) if found is None else found, found is None)

    def read(self, job: StartedJob) -> Json | None:
        return self._cluster.get(JOBS, job.name, job.namespace)

    def pods(self, job: StartedJob) -> list[Json]:
        return self._cluster.items(PODS, job.namespace, f"{JOB_NAME}={job.name}")

    def workload(self, job: StartedJob) -> Json | None:
        """What Kueue makes of the Job."""
        found = self._cluster.items(WORKLOADS, job.namespace)
        return next((w for w in found if objects.owner(w) == job.name), None)

    def delete(self, job: StartedJob) -> None:
        """Delete a Job and its pods; that it is gone already is as good."""
        self._cluster.delete(JOBS, job.name, job.namespace)
        self._made.remove(job)

    def clear(self) -> None:
        """Delete what is left of this climb."""
        for job in list(self._made):
            self.delete(job)

    def _reading(self, job: StartedJob, found: Json | None, in_vain: bool) -> JobResult:
        if not found:
            cause = "somebody deleted it while it ran"
            return JobResult(completed=False, cause=cause, remedy="try again")
        pods = self.pods(job)
        completed = terminal_condition(found) == "Complete"
        phase = "Succeeded" if completed else "Failed"
        ended = [pod for pod in pods if objects.status(pod).get("phase") == phase]
        logs = {objects.name(pod): self._log(pod) for pod in (ended or pods)}
        known = [line for pod, log in logs.items() if (line := pod_results.parse_log(log, pod))]
        cause, remedy, workload = "", "", None
        if not completed:
            workload = self.workload(job)
            limit = self.poller.limit_s if in_vain else None
            events = self._cluster.items(EVENTS, job.namespace)
            cause, remedy = job_diagnosis.diagnose(found, pods, events, workload, limit)
        return JobResult(
            completed=completed,
            lines=tuple(sorted(known, key=lambda line: (line.node, line.pod))),
            log=next(iter(logs.values()), ""),
            cause=cause,
            remedy=remedy,
            preempted=in_vain and bool(preemption_reason(workload)),
        )

    def _log(self, pod: Json) -> str:
        """The end of a pod's log; empty where it has none."""
        container = str(pod["spec"]["containers"][0]["name"])
        if not job_diagnosis.has_started(pod, container):
            return ""
        path = f"{PODS.path(str(objects.meta(pod)['namespace']), objects.name(pod))}/log"
        query = [("container", container), ("tailLines", str(TAIL_LINES))]
        try:
            return self._cluster.text(path, query) or ""
        except UnreachableError:
            # The node took the log with it. The last line is in the pod's status, too.
            return job_diagnosis.termination_message(pod, container)


def leftover_jobs(cluster: Cluster) -> list[StartedJob]:
    """Jobs of any climb that are still there."""
    return [
        StartedJob(namespace=str(objects.meta(job)["namespace"]), name=objects.name(job))
        for job in cluster.items(JOBS, selector=SESSION_LABEL)
    ]
