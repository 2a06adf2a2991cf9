"""Snapshot of a run and its surroundings, read at one moment, and the verdict on it."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from infra.domain import naming
from ops import groups, objects
from ops.logs import Log
from ops.metrics import Vitals
from ops.objects import Json
from ops.runs import states
from ops.runs.states import Ending
from trainyard import contract


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A Job that prepares a run's dataset or fetches its model."""

    container: str
    """Init container of the run that waits for it."""
    name: str
    job: Json | None = None
    """None: it does not exist, or may not be read."""
    pods: Sequence[Json] = ()
    """The newest first; none once the Job is complete."""
    logs: Sequence[Log] = ()


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One run and its surroundings, which some readers leave out. Objects carry their `kind`."""

    run: Json
    now: dt.datetime
    workload: Json | None = None
    local_queue: Json | None = None
    cluster_queue: Json | None = None
    cohort: Json | None = None
    cluster_queues: Sequence[Json] = ()
    """All queues of the cohort, including the run's own."""
    workloads: Sequence[Json] = ()
    """Of all teams that the caller may read."""
    flavors: Sequence[Json] = ()
    jobs: Sequence[Json] = ()
    """Jobs that belong to the run."""
    pods: Sequence[Json] = ()
    events: Sequence[Json] = ()
    """Of the namespace; see `events_of`."""
    nodes: Sequence[Json] = ()
    provisioning: Sequence[Json] = ()
    """ProvisioningRequests of the namespace."""
    others_pods: Sequence[Json] = ()
    """Pods of all readable runs; read only if the run has unschedulable pods."""
    gpu_pods: Sequence[Json] = ()
    """Pods of the GPU Operator's namespace; read only if a GPU node has no allocatable GPU."""
    preparations: Sequence[Preparation] = ()
    """Jobs that the run's pods wait for, in order."""
    results_pod: Json | None = None
    """Newest finished pod that copied the team's results to its bucket."""
    logs: Sequence[Log] = ()
    vitals: Vitals | None = None
    """None: no Prometheus, or no answer."""
    gaps: Sequence[str] = ()
    """What else could not be read, and why."""
    hidden: frozenset[str] = field(default_factory=frozenset)
    """Plurals that the caller may not read: their objects may exist unseen."""

    @property
    def run_id(self) -> str:
        return objects.run_id_of(self.run)

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it goes on."""
        return states.ending_of(self.run, self.workload)

    @property
    def parts(self) -> list[Snapshot]:
        """What is queued by itself, each with its own objects: the run's groups, or the run."""
        if not groups.has_groups(self.run):
            return [self]
        return [self._part(gang) for gang in groups.gangs(self.run)]

    def _part(self, gang: Json) -> Snapshot:
        number = groups.number_of(gang)
        pods = [pod for pod in self.pods if groups.number_of(pod) == number]
        names = {objects.name(pod) for pod in pods}
        return dataclasses.replace(
            self,
            run=gang,
            workload=objects.workload_of(gang, self.workloads),
            jobs=[job for job in self.jobs if groups.number_of(job) == number],
            pods=pods,
            logs=[log for log in self.logs if log.pod in names],
        )

    @property
    def live_pods(self) -> list[Json]:
        """The pods that have not ended and are not being deleted."""
        return states.live_pods(self.pods)

    @property
    def expected_size(self) -> int:
        """The requested number of pods, which may exceed the existing ones; 0 if unknown."""
        planned = states.planned_pods(self.workload)
        return planned or sum(int(job["spec"].get("parallelism") or 1) for job in self.jobs)

    @property
    def is_training(self) -> bool:
        """Whether all of its pods exist and are ready."""
        pods = self.live_pods
        ready = [pod for pod in pods if objects.condition_is_true(pod, "Ready")]
        return bool(pods) and len(ready) == len(pods) and len(pods) >= self.expected_size

    @property
    def training_part(self) -> Snapshot:
        """The snapshot without groups that do not take part; as it is if the run has none."""
        if not groups.has_groups(self.run):
            return self
        there = [part for part in self.parts if part.is_training]
        return dataclasses.replace(
            self,
            pods=[pod for part in there for pod in part.pods],
            jobs=[job for part in there for job in part.jobs],
        )

    @property
    def team(self) -> str:
        return objects.label(self.run, naming.TEAM)

    @property
    def namespace(self) -> str:
        return str(objects.meta(self.run)["namespace"])

    @property
    def queue_name(self) -> str:
        """Name of the run's LocalQueue; empty without one."""
        return objects.label(self.run, naming.QUEUE_NAME)

    @property
    def admitted(self) -> bool:
        """Whether its pods may run; always true for runs that Kueue does not queue."""
        return not self.queue_name or objects.condition_is_true(self.workload, "Admitted")

    @property
    def other_scheduler(self) -> str:
        """Scheduler of its gang other than Kueue: `volcano`, `yunikorn`, `the cluster`; empty: none."""
        specs = [pod["spec"] for pod in self.pods] + list(pod_specs(self.run))
        names = [str(spec.get("schedulerName") or "") for spec in specs]
        other = [name for name in names if name not in ("", "default-scheduler")]
        grouped = any("schedulingGroup" in spec for spec in specs)
        return other[0] if other else "the cluster" if grouped else ""

    @property
    def preparation_names(self) -> dict[str, str]:
        """Names of the Jobs that its pods wait for, by the container that waits."""
        found = {}
        for container in self._containers("initContainers"):
            for variable in container.get("env") or []:
                if variable["name"] == naming.PREPARATION_ENV:
                    found[str(container["name"])] = str(variable.get("value", ""))
        return found

    @property
    def has_program(self) -> bool:
        """Whether it runs the user's `program:`, not the built-in trainer."""
        variables = (v for one in self._containers("containers") for v in one.get("env") or [])
        return any(v["name"] == contract.RUN_ID_ENV for v in variables)

    def _containers(self, field: str) -> Iterator[Json]:
        """Yield these containers of its pods and of the run itself."""
        for one in [*(pod["spec"] for pod in self.pods), *pod_specs(self.run)]:
            yield from one.get(field) or []

    def events_of(self, *items: Json) -> list[Json]:
        """Return the events of these objects, newest last."""
        uids = {objects.meta(item).get("uid") for item in items}
        mine = [e for e in self.events if (e.get("involvedObject") or {}).get("uid") in uids]
        return sorted(mine, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))

    def ago(self, text: str | None) -> str:
        """Return the age of a time stamp: `40 s`, `12 min`, `3 h`, `2 days`."""
        then = objects.time(text)
        return format_duration((self.now - then).total_seconds()) if then else "some time"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of one symptom check."""

    symptom: str
    """Stable identifier for scripts."""
    headline: str
    """One sentence without the run's name."""
    evidence: tuple[str, ...] = ()
    """`OBJECT: observation`, strongest evidence first."""
    remedy: tuple[str, ...] = ()
    """What to do, one step per line; empty if there is nothing to do."""


Symptom = Callable[[Snapshot], Verdict | None]
"""Check for one symptom; None if it does not match. Pure."""
Note = Callable[[Snapshot], list[str]]
"""Lines about the run's past."""


def pod_specs(value: object) -> Iterator[Json]:
    """Yield the pod specs anywhere inside an object of any kind."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        else:
            for inner in value.values():
                yield from pod_specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pod_specs(inner)


def format_duration(seconds: float) -> str:
    """Format a duration in the largest unit that gives at least 2."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def pluralize(number: int, noun: str) -> str:
    """Return `1 pod`, `2 pods`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
