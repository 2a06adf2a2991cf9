"""Snapshots of an imaginary cohort: teams `research` and `production`, pools `spot` and `ondemand`."""

from __future__ import annotations

import datetime as dt
from typing import Any

from infra.domain import naming
from ops.logs import Line, Log
from ops.objects import Json
from ops.snapshot import Snapshot

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
RUN_ID = "hello-v1-aaaaaaaa"
NAMESPACE = "team-research"


def at(seconds_ago: float) -> str:
    """A time stamp."""
    return (NOW - dt.timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(60),
    }


def run(**changes: Any) -> Json:
    """A JobSet that waits in its queue."""
    labels = {
        naming.RUN_ID: RUN_ID,
        naming.RUN: "hello",
        naming.TEAM: "research",
        naming.LAUNCHER: "jobset",
        naming.QUEUE_NAME: "research",
    }
    return {
        "kind": "JobSet",
        "metadata": {
            "name": RUN_ID,
            "namespace": NAMESPACE,
            "uid": "run-uid",
            "creationTimestamp": at(300),
            "labels": labels,
        },
        "spec": {"suspend": True, "failurePolicy": {"maxRestarts": 3}},
        "status": {},
    } | changes


def pod_spec(pools: tuple[str, ...] = ("spot", "ondemand"), gpus: int = 8) -> Json:
    term = {"key": naming.POOL, "operator": "In", "values": list(pools)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    return {
        "containers": [
            {"name": "trainer", "resources": {"requests": {"cpu": "2", naming.GPU: str(gpus)}}}
        ],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    }


def workload(
    *conditions: Json,
    run_id: str = RUN_ID,
    uid: str = "run-uid",
    nodes: int = 2,
    spec: Json | None = None,
    namespace: str = NAMESPACE,
    priority: int = 1000,
    age_s: float = 290,
    flavor: str = "",
    active: bool = True,
    **status: Any,
) -> Json:
    """A gang's Workload; with `flavor` it holds eight GPUs a node of it."""
    queue = namespace.removeprefix("team-")
    if flavor:
        status["admission"] = _admission(namespace, flavor, nodes)
    return {
        "kind": "Workload",
        "metadata": {
            "name": f"jobset-{run_id}",
            "namespace": namespace,
            "uid": f"workload-of-{uid}",
            "creationTimestamp": at(age_s),
            "labels": {naming.RUN_ID: run_id, "kueue.x-k8s.io/job-uid": uid},
            "ownerReferences": [{"uid": uid, "name": run_id, "controller": True}],
        },
        "spec": {
            "active": active,
            "queueName": queue,
            "priority": priority,
            "podSets": [
                {"name": "worker", "count": nodes, "template": {"spec": spec or pod_spec()}}
            ],
        },
        "status": {"conditions": list(conditions), **status},
    }


def _admission(namespace: str, flavor: str, nodes: int) -> Json:
    assigned = {
        "name": "worker",
        "count": nodes,
        "flavors": {naming.GPU: flavor},
        "resourceUsage": {naming.GPU: str(8 * nodes)},
    }
    return {"clusterQueue": namespace, "podSetAssignments": [assigned]}


def waits(message: str = "insufficient unused quota") -> Json:
    return condition("QuotaReserved", "False", "Pending", message)


def runs_on(flavor: str = "spot", *more: Json, **status: Any) -> Json:
    """The run's Workload once admitted."""
    conditions = [condition("QuotaReserved"), condition("Admitted"), *more]
    return workload(*conditions, flavor=flavor, **status)


def groups(**flavors: Any) -> list[Json]:
    """A resourceGroups field: GPUs by flavor, a number or the fields of one resource."""
    return [
        {
            "coveredResources": [naming.GPU],
            "flavors": [
                {
                    "name": name,
                    "resources": [
                        {"name": naming.GPU}
                        | (given if isinstance(given, dict) else {"nominalQuota": str(given)})
                    ],
                }
                for name, given in flavors.items()
            ],
        }
    ]


def cluster_queue(
    team: str = "research", used: dict[str, int] | None = None, stop: str = "None", **quota: Any
) -> Json:
    """A queue that owns these GPUs and has used those."""
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": f"team-{team}", "labels": {naming.TEAM: team}},
        "spec": {
            "cohortName": "trainyard",
            "stopPolicy": stop,
            "resourceGroups": groups(**quota),
        },
        "status": {
            "conditions": [condition("Active", reason="Ready")],
            "flavorsReservation": [
                {"name": name, "resources": [{"name": naming.GPU, "total": str(total)}]}
                for name, total in (used or {}).items()
            ],
        },
    }


def cohort(**quota: Any) -> Json:
    return {
        "kind": "Cohort",
        "metadata": {"name": "trainyard"},
        "spec": {"resourceGroups": groups(**quota)},
    }


def local_queue(stop: str = "None") -> Json:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": "research", "namespace": NAMESPACE},
        "spec": {"clusterQueue": "team-research", "stopPolicy": stop},
        "status": {"conditions": [condition("Active", reason="Ready")]},
    }


def flavor(name: str) -> Json:
    taint = {"key": "dedicated", "value": "gpu-training", "effect": "NoSchedule"}
    return {
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": {naming.POOL: name}, "nodeTaints": [taint]},
    }


def node(name: str, pool: str = "spot", *taints: Json, **spec: Any) -> Json:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {naming.POOL: pool}},
        "spec": {"taints": list(taints), **spec},
        "status": {
            "allocatable": {"cpu": "96", naming.GPU: "8"},
            "conditions": [condition("Ready")],
        },
    }


def pod(name: str = "hello-0", phase: str = "Running", **status: Any) -> Json:
    """A pod of the run; ready when it runs, unless `status` has other conditions."""
    ready = condition("Ready", "True" if phase == "Running" else "False")
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "creationTimestamp": at(30),
            "labels": {naming.TEAM: "research", naming.RUN_ID: RUN_ID, naming.LAUNCHER: "jobset"},
        },
        "spec": pod_spec() | {"nodeName": "spot-0"},
        "status": {"phase": phase, "startTime": at(30), "conditions": [ready]} | status,
    }


def stuck(name: str = "hello-0", message: str = "0/3 nodes are available") -> Json:
    """A pod for which the scheduler finds no node."""
    why = condition("PodScheduled", "False", "Unschedulable", message)
    found = pod(name, "Pending", conditions=[why])
    found["spec"].pop("nodeName")
    return found


def log(pod: str, *lines: str, seconds_ago: float = 20, previous: bool = False) -> Log:
    """What the trainer of a pod has written, all of it at the same moment."""
    written = tuple(Line(time=at(seconds_ago), text=line) for line in lines)
    return Log(pod=pod, container="trainer", previous=previous, lines=written)


def ended(code: int, reason: str = "Error", seconds_ago: float = 10) -> Json:
    """`containerStatuses` of a container that ended."""
    state = {
        "terminated": {"exitCode": code, "reason": reason, "finishedAt": at(seconds_ago)},
    }
    return {"containerStatuses": [{"name": "trainer", "state": state}]}


def waiting(reason: str, message: str = "") -> Json:
    """`containerStatuses` of a container that has not started."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "trainer", "image": "img@sha256:1", "state": state}]}


def event(about: Json, reason: str, message: str) -> Json:
    metadata = about["metadata"]
    return {
        "kind": "Event",
        "reason": reason,
        "message": message,
        "lastTimestamp": at(5),
        "involvedObject": {
            "kind": about["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }


def snapshot(**changes: Any) -> Snapshot:
    """The run waits; 16 GPUs of spot and 8 on demand are free. Fields as given otherwise."""
    own = cluster_queue(spot=16, ondemand=0)
    other = cluster_queue("production", spot=0, ondemand=8)
    usual: dict[str, Any] = {
        "run": run(),
        "now": NOW,
        "local_queue": local_queue(),
        "cluster_queue": own,
        "cohort": cohort(spot=0, ondemand=0),
        "cluster_queues": [own, other],
        "flavors": [flavor("spot"), flavor("ondemand")],
        "nodes": [node("spot-0"), node("spot-1"), node("ondemand-0", "ondemand")],
    }
    found = usual | changes
    if (mine := found.get("workload")) is not None and "workloads" not in found:
        found["workloads"] = [mine]
    return Snapshot(**found)
