"""The session of a readiness check: its stack, and the Jobs that it makes from templates and reads."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError, ForbiddenError, Kind, UnreachableError, WebhookError
from ops.collect import EVENTS, JOBS, NODES, PODS, WORKLOADS
from ops.objects import Json
from ops.ready import job_diagnosis
from ops.ready.job_diagnosis import PodResult
from ops.ready.stack_facts import NAMESPACE, Pool, Stack, Team

CRON_JOBS: Final = Kind("batch/v1", "cronjobs", "CronJob")
SESSION_LABEL: Final = f"{naming.DOMAIN}/ready"
"""Label of every Job that a session creates; its value is the session id."""
NODES_ENV: Final = "TRAINYARD_NODES"
"""Environment variable with the number of pods of a template."""
TAIL_LINES: Final = 200
"""Lines read of each log: the result is the last line."""

Print = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class StartedJob:
    namespace: str
    name: str


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """Result of a Job, which may have ended or timed out."""

    completed: bool
    lines: tuple[PodResult, ...] = ()
    """One per pod that printed a result, sorted by node."""
    log: str = ""
    """The end of one pod's log."""
    cause: str = ""
    """Why it did not complete, from the objects around it."""
    remedy: str = ""
    preempted: bool = False
    """It was preempted and not readmitted in time, so there is no result."""


def render_job(template: Json, name: str, session_id: str) -> Json:
    """Render the Job of a CronJob, labeled with the session id.

    It has no owner: a CronJob may delete its finished Jobs before they are read.
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
    """Return a copy of an indexed Job's template for this number of nodes."""
    changed = copy.deepcopy(template)
    spec = changed["spec"]["jobTemplate"]["spec"]
    spec["parallelism"] = spec["completions"] = nodes
    for container in spec["template"]["spec"]["containers"]:
        for variable in container.get("env") or []:
            if variable["name"] == NODES_ENV:
                variable["value"] = str(nodes)
    return changed


def parallelism(template: Json) -> int:
    return int(template["spec"]["jobTemplate"]["spec"].get("parallelism") or 1)


def terminal_condition(job: Json) -> str:
    """Return `Complete` or `Failed`; empty while the Job is active."""
    return next(
        (kind for kind in ("Complete", "Failed") if objects.condition_is_true(job, kind)), ""
    )


def preemption_reason(workload: Json | None) -> str:
    """Return Kueue's reason for preempting a workload; empty if it was not preempted."""
    for entry in (objects.status(workload).get("schedulingStats") or {}).get("evictions") or []:
        if entry.get("reason") == "Preempted":
            return str(entry.get("underlyingCause") or entry["reason"])
    return ""


CREATE_ERRORS: Final = (ForbiddenError, WebhookError)
"""Errors for which a Job is not created although the API server answers."""


def describe_create_error(error: ClusterError) -> tuple[str, str]:
    if isinstance(error, WebhookError):
        return f"the Job was not created: {error}", "run the check again when the webhook answers"
    return (
        f"the Job was rejected: {error}",
        "the message names the admission policy or the missing permission",
    )


class Jobs:
    def __init__(self, cluster: Cluster, session_id: str, poller: Poller, log: Print) -> None:
        self._cluster = cluster
        self._session_id = session_id
        self._say = log
        self._made: list[StartedJob] = []
        self.poller = poller

    def start(self, template: Json) -> StartedJob:
        """Create a Job of this template. Raises one of CREATE_ERRORS."""
        started = StartedJob(
            namespace=str(objects.meta(template)["namespace"]),
            name=f"{objects.name(template)}-{self._session_id}",
        )
        # Recorded before it exists, so that it is deleted after any interruption.
        self._made.append(started)
        try:
            self._cluster.create(JOBS, render_job(template, started.name, self._session_id))
        except CREATE_ERRORS:
            self._made.remove(started)
            raise
        return started

    def run(self, template: Json) -> JobResult:
        """Create a Job, wait for its end, read its result and delete it."""
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
        """Wait for the end of a Job and read its result."""
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
        return self._cluster.items(PODS, job.namespace, f"{naming.JOB_NAME}={job.name}")

    def workload(self, job: StartedJob) -> Json | None:
        """Return the Job's Workload; None if there is none."""
        found = self._cluster.items(WORKLOADS, job.namespace)
        return next((w for w in found if objects.owner(w) == job.name), None)

    def delete(self, job: StartedJob) -> None:
        """Delete a Job and its pods; no error if it does not exist."""
        self._cluster.delete(JOBS, job.name, job.namespace)
        self._made.remove(job)

    def clear(self) -> None:
        for job in list(self._made):
            self.delete(job)

    def _reading(self, job: StartedJob, found: Json | None, in_vain: bool) -> JobResult:
        if not found:
            cause = "the Job was deleted while it ran"
            return JobResult(completed=False, cause=cause, remedy="try again")
        pods = self.pods(job)
        completed = terminal_condition(found) == "Complete"
        phase = "Succeeded" if completed else "Failed"
        ended = [pod for pod in pods if objects.status(pod).get("phase") == phase]
        logs = {objects.name(pod): self._log(pod) for pod in (ended or pods)}
        known = [line for pod, log in logs.items() if (line := job_diagnosis.parse_log(log, pod))]
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
        """Return the end of a pod's log; empty if it has none."""
        container = str(pod["spec"]["containers"][0]["name"])
        if not job_diagnosis.has_started(pod, container):
            return ""
        path = f"{PODS.path(str(objects.meta(pod)['namespace']), objects.name(pod))}/log"
        query = [("container", container), ("tailLines", str(TAIL_LINES))]
        try:
            return self._cluster.text(path, query) or ""
        except UnreachableError:
            # The log is lost with its node. The pod's status also contains the last line.
            return job_diagnosis.termination_message(pod, container)


POLL_S: Final = 1.0
UNREACHABLE_S: Final = 60.0
"""Give up on an API server after this time without an answer; an update or failover is shorter."""
T = TypeVar("T")


def sleep() -> None:
    time.sleep(POLL_S)


@dataclass(frozen=True, kw_only=True)
class Poller:
    """Time limit of a wait, and what to do between polls."""

    limit_s: float
    pause: Callable[[], None] = sleep
    """Called between polls."""
    clock: Callable[[], float] = time.monotonic
    """Monotonic clock in seconds."""

    def wait_for(self, found: Callable[[], T | None]) -> T | None:
        """Return the first result that is not None, or None at the time limit.

        Raises UnreachableError if the cluster does not answer for UNREACHABLE_S, or at the limit.
        """
        end = self.clock() + self.limit_s
        answered = self.clock()
        while True:
            value = None
            try:
                value = found()
                answered = self.clock()
            except UnreachableError:
                if self.clock() >= min(end, answered + UNREACHABLE_S):
                    raise
            if value is not None or self.clock() >= end:
                return value
            with contextlib.suppress(UnreachableError):
                self.pause()


@dataclass(frozen=True, kw_only=True)
class Session:
    """One readiness check."""

    cluster: Cluster
    stack: Stack
    jobs: Jobs
    pools: tuple[Pool, ...]
    """Pools to check."""
    allow_scale_up: bool = False
    """Whether Jobs may be started that make the autoscaler add nodes (pools named with --pool)."""
    team: Team | None = None
    """Team whose restore drill is run; None: every team that requires drills."""
    smoke: dict[str, tuple[PodResult, ...]] = field(default_factory=dict)
    """Results of this session's smoke test, by pool."""

    def nodes(self, pool: Pool) -> list[Json]:
        """Return the nodes of a pool, sorted by name."""
        found = self.cluster.items(NODES, selector=f"{naming.POOL}={pool.name}")
        return sorted(found, key=objects.name)

    def free(self, pool: Pool) -> list[str]:
        """Return the names of schedulable nodes on which no pod holds a GPU."""
        busy = {
            str(pod["spec"].get("nodeName", ""))
            for pod in self.cluster.items(PODS)
            if objects.status(pod).get("phase") in ("Pending", "Running")
            and objects.requests(pod["spec"]).get(naming.GPU)
        }
        names = [objects.name(node) for node in self.nodes(pool) if is_schedulable(node)]
        return [name for name in names if name not in busy]

    def template(self, kind: str, pool: Pool | None = None) -> Json | None:
        """Return the CronJob template of this kind, for a pool if given; None if there is none."""
        label = f"{naming.VALIDATION}={kind}"
        of_pool = f",{naming.POOL}={pool.name}" if pool else ""
        return next(iter(self.cluster.items(CRON_JOBS, NAMESPACE, label + of_pool)), None)


def is_schedulable(node: Json) -> bool:
    """Whether it is Ready and not cordoned."""
    return objects.condition_is_true(node, "Ready") and not (node.get("spec") or {}).get(
        "unschedulable"
    )
