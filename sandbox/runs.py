"""State of a run, read from the cluster's objects and the trainer's files. Times are seconds."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.domain import naming
from ops import groups
from sandbox import paths
from sandbox.node.api import ApiError, Client, Json, object_path
from training import spec

_KINDS = (("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"), ("/apis/batch/v1", "jobs"))
_WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2"


class RunNotFoundError(Exception):
    """The cluster has no such run; the text lists those it has."""


@dataclass(frozen=True)
class Run:
    """Identity of a run and of the object that it runs as."""

    run_id: str
    name: str
    namespace: str
    kind_path: str
    plural: str
    created: str
    groups: int = 0
    """Replica groups, each an object of its own; 0: the run is one object."""


@dataclass(frozen=True)
class Progress:
    """Metrics and events that the trainer has written, oldest first."""

    metrics: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole run; None before it has started, and of a program, which does not tell."""
        totals = [e["total_steps"] for e in self.events if "total_steps" in e]
        return int(totals[-1]) if totals else None

    @property
    def step(self) -> int:
        """Completed steps."""
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    @property
    def tokens_per_second(self) -> float:
        """Throughput over the last 20 steps."""
        recent = self.metrics[-20:]
        spent = sum(line["step_time_s"] for line in recent)
        return sum(line["tokens"] for line in recent) / spent if spent else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the last 20 steps; None before the first step."""
        recent = self.metrics[-20:]
        if not recent or self.total_steps is None:
            return None
        pace = sum(line["step_time_s"] for line in recent) / len(recent)
        return float(max(0, self.total_steps - self.step) * pace)


@dataclass(frozen=True)
class RunStatus:
    """Status of a run at one moment. `outcome`: empty while it runs, else Completed or Failed."""

    run: Run
    queue: str
    flavors: tuple[str, ...]
    admitted_after_s: float | None
    evictions: tuple[str, ...]
    pods: dict[str, int]
    restarts: int
    outcome: str
    message: str
    progress: Progress
    ready: int = 0
    """Replica groups that take part."""


class RunReader:
    """Reads runs from one cluster."""

    def __init__(self, state: paths.State) -> None:
        self._state = state
        self._client = Client(state.kubeconfig)

    def runs(self) -> list[Run]:
        """Return all runs in the cluster, oldest first."""
        found = []
        for prefix, plural in _KINDS:
            mine = [
                item
                for item in self._list(prefix, plural, None, naming.RUN_ID)
                if naming.RUN in item["metadata"]["labels"]
                and not any(
                    o.get("controller") for o in item["metadata"].get("ownerReferences", [])
                )
            ]
            found += [_run_from(item, prefix, plural) for item in groups.merged(mine)]
        return sorted(found, key=lambda run: (run.created, run.run_id))

    def find(self, wanted: str) -> Run:
        """Return the run with this id, or the newest version of this name.

        Raises:
            RunNotFoundError: neither exists.
        """
        runs = self.runs()
        matching = [run for run in runs if wanted in (run.run_id, run.name)]
        if not matching:
            known = ", ".join(run.run_id for run in runs) or "none"
            raise RunNotFoundError(f"run {wanted!r} does not exist; runs: {known}")
        return matching[-1]

    def snapshot(self, run: Run) -> RunStatus:
        """Return the current status of the run.

        Raises:
            RunNotFoundError: its object was deleted.
        """
        owner = self._owner(run)
        if owner is None:
            raise RunNotFoundError(f"run {run.run_id} was deleted")
        uids = [one["metadata"]["uid"] for one in groups.gangs(owner)]
        workloads = self._list(_WORKLOADS, "workloads", run.namespace)
        pods = self._list("/api/v1", "pods", run.namespace, f"{naming.RUN_ID}={run.run_id}")
        mine = [w for uid in uids for w in workloads if _owned_by(w, uid)]
        return build_status(run, owner, mine, pods, self.progress(run))

    def _owner(self, run: Run) -> Json | None:
        """Return the run's object; of a run with groups that of all of them; None: it was deleted."""
        if run.groups:
            selector = f"{naming.RUN_ID}={run.run_id}"
            items = self._list(run.kind_path, run.plural, run.namespace, selector)
            return next(iter(groups.merged(items)), None)
        try:
            return self._client.get(
                object_path(run.kind_path, run.namespace, run.plural, run.run_id)
            )
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def pods(self, run: Run) -> list[Json]:
        """Return the run's pods."""
        return self._list("/api/v1", "pods", run.namespace, f"{naming.RUN_ID}={run.run_id}")

    def progress(self, run: Run) -> Progress:
        """Read the trainer's metrics and events, as far as they are written."""
        folder = run_dir(self._state, run)
        return Progress(
            metrics=read_lines(folder / spec.METRICS_FILE),
            events=read_lines(folder / spec.EVENTS_FILE),
        )

    def _list(
        self, prefix: str, plural: str, namespace: str | None, selector: str = ""
    ) -> list[Json]:
        query = {"labelSelector": selector} if selector else {}
        try:
            answer = self._client.get(object_path(prefix, namespace, plural), **query)
        except ApiError as error:
            if error.not_found:
                return []
            raise
        items: list[Json] = answer["items"]
        return items


def run_dir(state: paths.State, run: Run) -> Path:
    """Return the run's folder on this machine, in its team's checkpoint volume."""
    return state.volumes / run.namespace / "checkpoints" / run.run_id


def read_lines(path: Path) -> list[Json]:
    """Read the complete lines of a JSON Lines file; a partial last line is skipped."""
    try:
        text = path.read_text()
    except OSError:
        return []
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines() if line]


def build_status(
    run: Run, owner: Json, workloads: Sequence[Json], pods: Iterable[Json], progress: Progress
) -> RunStatus:
    """Build the status of a run from its objects; pure. `workloads`: those of its groups, or its own."""
    outcome, message = _outcome(owner)
    phases: dict[str, int] = {}
    for pod in pods:
        phase = pod.get("status", {}).get("phase", "Unknown")
        phases[phase] = phases.get(phase, 0) + 1
    sets = [
        one
        for workload in workloads
        for one in (workload.get("status", {}).get("admission") or {}).get("podSetAssignments", [])
    ]
    flavors = {flavor for s in sets for flavor in s.get("flavors", {}).values()}
    waited = [seconds for one in workloads if (seconds := _admitted_after(one)) is not None]
    return RunStatus(
        run=run,
        queue=next((one.get("spec", {}).get("queueName", "") for one in workloads), ""),
        flavors=tuple(sorted(flavors)),
        admitted_after_s=min(waited, default=None),
        evictions=tuple(reason for one in workloads for reason in _evictions(one)),
        pods=phases,
        restarts=int(owner.get("status", {}).get("restarts", 0)),
        outcome=outcome,
        message=message,
        progress=progress,
        ready=sum("PodsReady" in _conditions(one) for one in workloads) if run.groups else 0,
    )


def _run_from(item: Json, prefix: str, plural: str) -> Run:
    metadata = item["metadata"]
    return Run(
        run_id=metadata["labels"][naming.RUN_ID],
        name=metadata["labels"][naming.RUN],
        namespace=metadata["namespace"],
        kind_path=prefix,
        plural=plural,
        created=metadata["creationTimestamp"],
        groups=groups.total(item) if groups.has_groups(item) else 0,
    )


def _owned_by(workload: Json, uid: str) -> bool:
    return any(o["uid"] == uid for o in workload["metadata"].get("ownerReferences", []))


def _conditions(item: Json | None) -> dict[str, Json]:
    conditions = (item or {}).get("status", {}).get("conditions", [])
    return {c["type"]: c for c in conditions if c["status"] == "True"}


def _outcome(owner: Json) -> tuple[str, str]:
    """Return (outcome, message); the condition is Completed on a JobSet, Complete on a Job."""
    true = _conditions(owner)
    for name, outcome in (
        ("Completed", "Completed"),
        ("Complete", "Completed"),
        ("Failed", "Failed"),
    ):
        if name in true:
            return outcome, str(true[name].get("message", ""))
    return "", ""


def _admitted_after(workload: Json | None) -> float | None:
    """Seconds from the last time that the workload was queued to its admission."""
    true = _conditions(workload)
    if workload is None or "Admitted" not in true:
        return None
    queued = workload["metadata"]["creationTimestamp"]
    if "Requeued" in true:
        queued = true["Requeued"]["lastTransitionTime"]
    return max(0.0, _seconds(true["Admitted"]["lastTransitionTime"]) - _seconds(queued))


def _evictions(workload: Json | None) -> tuple[str, ...]:
    """Reasons of Kueue's evictions of the workload."""
    stats = (workload or {}).get("status", {}).get("schedulingStats", {}).get("evictions", [])
    return tuple(str(entry["reason"]) for entry in stats for _ in range(entry.get("count", 1)))


def _seconds(timestamp: str) -> float:
    return dt.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def exit_code(reader: RunReader, run: Run, outcome: str) -> int:
    """Return 0 for a completed run, else the exit code of the first failed container, else 1."""
    if outcome == "Completed":
        return spec.EXIT_DONE
    codes: list[int] = []
    for pod in reader.pods(run):
        status = pod.get("status", {})
        for container in [
            *status.get("initContainerStatuses", []),
            *status.get("containerStatuses", []),
        ]:
            ended: dict[str, Any] = container.get("state", {}).get("terminated") or {}
            if ended.get("exitCode"):
                codes.append(int(ended["exitCode"]))
    return codes[0] if codes else 1
