"""Ways around queue, quota and admission policies, each with its closest allowed variant."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from infra.addons import mpi_operator
from infra.domain import launcher_support, naming
from infra.kubernetes import controller_accounts
from infra.kubernetes.pod_templates import PODSET
from tests.sandbox.escape_kit import Ask, create, delete, patch
from tests.sandbox.escape_objects import (
    GPU_TAINT,
    IMAGE,
    PRODUCTION,
    RESEARCH,
    Json,
    controller,
    job,
    jobset,
    metadata,
    other_run,
    pod,
    queued,
    template,
)

KUEUE, JOBSET, JOB = (
    controller_accounts.KUEUE[0],
    launcher_support.JOBSET.controllers[0],
    launcher_support.JOB.controllers[0],
)
MASTERS = "system:masters"
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


@dataclass(frozen=True)
class Attempt:
    """`denied` is rejected by each of `policies` until all are removed; `allowed` passes."""

    name: str
    policies: tuple[str, ...]
    denied: Ask
    allowed: Ask


def owned_by(kind: str, version: str, **labels: str) -> Json:
    owner = {
        "apiVersion": version,
        "kind": kind,
        # Kueue searches for an owner of a kind that it manages.
        "name": "standing-set",
        "uid": "00000000-0000-0000-0000-000000000001",
        "controller": True,
    }
    return {"ownerReferences": [owner], "labels": labels}


def main(**changes: Any) -> list[Json]:
    """The container of a pod without GPUs, changed."""
    found: list[Json] = copy.deepcopy(template()["spec"]["containers"])
    found[0] |= changes
    return found


def asking(**amounts: str) -> list[Json]:
    return main(resources={"requests": amounts, "limits": amounts})


def first(**resource: str) -> list[Json]:
    """An init container that asks for more than cpu and memory."""
    amounts = {"cpu": "1", "memory": "1Gi", **resource}
    return [
        one | {"name": "first", "resources": {"requests": amounts, "limits": amounts}}
        for one in main()
    ]


STANDING_RUN = job(gpu=True, meta=queued(**{naming.MAX_EXEC_SECONDS: "60"}) | {"name": "standing"})
STANDING_SET = jobset(gpu=True, meta=queued() | {"name": "standing-set"})
STANDING_SERVER = controller("Deployment", gpu=False)
STANDING_SERVER["metadata"]["name"] = "standing"
STANDING_SERVER["spec"]["replicas"] = 0
STANDING_POD = pod(meta={"name": "standing"})
STANDING_WORKLOAD: Json = {
    "apiVersion": naming.KUEUE_API,
    "kind": "Workload",
    "metadata": metadata(RESEARCH) | {"name": "standing"},
    "spec": {
        "queueName": RESEARCH,
        "podSets": [{"name": "main", "count": 1, "template": template()}],
    },
}
"""Existing objects that attempts try to change."""


def past_the_queue() -> Iterator[Attempt]:
    """GPUs for pods that were not admitted."""
    only = ("queue",)
    yield Attempt("a GPU for a pod by itself", only, create(pod(gpu=True)), create(pod()))
    labelled = pod(gpu=True, meta=queued(**{PODSET: "main"}))
    yield Attempt("a GPU for a pod with a queue's name", only, create(labelled), create(pod()))
    yield Attempt(
        "a GPU for an init container",
        only,
        create(pod(initContainers=first(**{naming.GPU: "1"}))),
        create(pod(initContainers=first())),
    )
    yield Attempt(
        "a place on a GPU node without a GPU",
        only,
        create(pod(tolerations=[{"operator": "Equal", **GPU_TAINT}])),
        create(pod(tolerations=[])),
    )
    of_job = pod(gpu=True, meta=owned_by("Job", "batch/v1", **{PODSET: "main"}))
    yield Attempt(
        "a pod that claims to belong to a run",
        ("queue", "live-pods"),
        create(of_job),
        create(of_job).by(JOB),
    )
    yield Attempt(
        "a pod of a run that Kueue did not admit",
        only,
        create(pod(gpu=True, meta=owned_by("Job", "batch/v1"))).by(JOB),
        create(of_job).by(JOB),
    )
    yield Attempt(
        "a pod that a controller creates for an object that is not a run",
        only,
        create(pod(gpu=True, meta=owned_by("TFJob", "kubeflow.org/v1", **{PODSET: "main"}))).by(
            JOB
        ),
        create(of_job).by(JOB),
    )


def by_non_runs() -> Iterator[Attempt]:
    """GPUs for objects that Kueue does not queue."""
    only = ("queue",)
    for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "CronJob"):
        yield Attempt(
            f"GPUs for a {kind}",
            only,
            create(controller(kind, gpu=True)),
            create(controller(kind, gpu=False)),
        )
    yield Attempt(
        "GPUs for a ReplicationController",
        only,
        create(controller("ReplicationController", gpu=True)),
        create(controller("ReplicationController", gpu=False)),
    )


def by_runs() -> Iterator[Attempt]:
    """Runs that bypass their team's queue."""
    only = ("queue",)
    for make in (job, jobset):
        name = make.__name__
        good = create(make(gpu=True))
        yield Attempt(f"a {name} without a queue", only, create(make(gpu=True, meta={})), good)
        foreign = create(make(gpu=True, meta=queued(PRODUCTION)))
        yield Attempt(f"a {name} in another team's queue", only, foreign, good)
    yield Attempt(
        "a job without GPUs in another team's queue",
        only,
        create(job(meta=queued(PRODUCTION))),
        create(job(meta=queued())),
    )
    for kind in ("TrainJob", "PyTorchJob", "MPIJob"):
        good = create(other_run(kind, gpu=True, meta=queued()))
        missing = create(other_run(kind, gpu=True, meta={}))
        yield Attempt(f"a {kind} without a queue", only, missing, good)
        running = create(other_run(kind, gpu=True, meta=queued(), suspend=False))
        yield Attempt(f"a {kind} that is not suspended", only, running, good)
    marked = template()
    marked["metadata"]["labels"][PODSET] = "main"
    yield Attempt(
        "pods that claim to be admitted", only, create(job(template=marked)), create(job())
    )
    yield Attempt(
        "a prebuilt Workload for a run",
        only,
        create(job(gpu=True, meta=queued(**{PREBUILT: "mine"}))),
        create(job(gpu=True)),
    )


def by_changes() -> Iterator[Attempt]:
    """Changes of a run, its pods and its Workload."""
    only = ("changes",)
    note = patch(STANDING_RUN, {"metadata": {"annotations": {"note": "mine"}}})
    start = patch(STANDING_RUN, {"spec": {"suspend": False}})
    yield Attempt("a manually unsuspended run", only, start, start.by(KUEUE, MASTERS))
    wider = patch(STANDING_RUN, {"spec": {"parallelism": 0}})
    yield Attempt("a run made wider", only, wider, note)
    for label, value, policies in (
        (naming.QUEUE_NAME, PRODUCTION, ("changes", "queue")),
        (naming.QUEUE_NAME, None, ("changes", "queue")),
        (naming.WORKLOAD_PRIORITY, "production-training", ("changes", "priority")),
        (naming.MAX_EXEC_SECONDS, "86400", only),
    ):
        change = patch(STANDING_RUN, {"metadata": {"labels": {label: value}}})
        other = patch(STANDING_RUN, {"metadata": {"labels": {"note": value}}})
        yield Attempt(f"a run with {label} {value}", policies, change, other)
    owned = patch(STANDING_RUN, {"metadata": owned_by("JobSet", "jobset.x-k8s.io/v1alpha2")})
    yield Attempt("a run that becomes part of another", only, owned, owned.by(JOBSET, MASTERS))
    child = job(meta=owned_by("JobSet", "jobset.x-k8s.io/v1alpha2"))
    yield Attempt(
        "a run made as part of another", only, create(child), create(child).by(JOBSET, MASTERS)
    )
    hidden = job(gpu=True, meta=owned_by("JobSet", "jobset.x-k8s.io/v1alpha2"), suspend=False)
    yield Attempt(
        "a run on GPUs that starts as part of another",
        ("changes", "queue"),
        create(hidden),
        create(hidden).by(JOBSET, MASTERS),
    )
    orphan = patch(STANDING_RUN, {"metadata": {"finalizers": ["orphan"]}})
    yield Attempt("a run that will leave its pods", only, orphan, note)
    wanting = patch(STANDING_SERVER, {"spec": controller("Deployment", gpu=True)["spec"]})
    scaled = patch(STANDING_SERVER, {"spec": {"replicas": 1}})
    yield Attempt("a Deployment changed to request GPUs", ("queue",), wanting, scaled)
    ended = patch(STANDING_RUN, {"status": {"active": 3}}, "status")
    yield Attempt("a run with a forged status", ("status",), ended, ended.by(JOB, MASTERS))
    background = delete(STANDING_RUN, propagationPolicy="Background")
    for name, asked in (
        ("a run deleted without its pods", delete(STANDING_RUN, propagationPolicy="Orphan")),
        ("a run deleted with orphanDependents", delete(STANDING_RUN, orphanDependents=True)),
        ("a run deleted without a propagation policy", delete(STANDING_RUN)),
    ):
        yield Attempt(name, ("deletion",), asked, background)


def by_live_pods() -> Iterator[Attempt]:
    """Admitted pods that are changed or bound afterwards."""
    only = ("live-pods",)
    note = patch(STANDING_POD, {"metadata": {"annotations": {"note": "mine"}}})
    joining = {
        **{k: v for k, v in main()[0].items() if k not in ("resources", "ports")},
        "name": "joining",
    }
    join = patch(STANDING_POD, {"spec": {"ephemeralContainers": [joining]}}, "ephemeralcontainers")
    yield Attempt("a container that joins a pod", only, join, note)
    tolerations = {"tolerations": [{"operator": "Equal", **GPU_TAINT}]}
    for name, spec in (
        ("a pod that tolerates more", tolerations),
        ("a pod with another image", {"containers": main(image=IMAGE.replace("0", "1"))}),
    ):
        yield Attempt(name, only, patch(STANDING_POD, {"spec": spec}), note)
    labels = patch(STANDING_POD, {"metadata": {"labels": {"app": "other"}}})
    yield Attempt("a pod taken from its run", only, labels, labels.by(JOB, MASTERS))
    bigger = patch(STANDING_POD, {"spec": {"containers": asking(cpu="2", memory="1Gi")}}, "resize")
    yield Attempt("a resized pod", only, bigger, note)
    namespace = naming.namespace(RESEARCH)
    binding: Json = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "standing", "namespace": namespace},
        "target": {"kind": "Node", "name": "some-node"},
    }
    for path in ("pods/standing/binding", "bindings"):
        bind = Ask("POST", f"/api/v1/namespaces/{namespace}/{path}", binding)
        yield Attempt(
            f"a pod placed by {path}", ("binding",), bind, bind.by("system:kube-scheduler")
        )


def by_workloads() -> Iterator[Attempt]:
    """Admission by other users than Kueue."""
    only = ("workloads",)
    stop = patch(STANDING_WORKLOAD, {"spec": {"active": False}})
    more = {"spec": {"priority": 100_000}}
    free = {"metadata": {"finalizers": ["example.com/mine"]}}
    for name, change in (("priority", more), ("finalizers", free)):
        yield Attempt(
            f"a Workload with another {name}", only, patch(STANDING_WORKLOAD, change), stop
        )
    new = copy.deepcopy(STANDING_WORKLOAD)
    new["metadata"]["name"] = "new"
    account = f"system:serviceaccount:mpi-operator:{mpi_operator.REQUEUE}"
    mark = {"metadata": {"annotations": {mpi_operator.REQUEUED: "true"}}, "spec": {"active": False}}
    label = patch(STANDING_WORKLOAD, {"metadata": {"labels": {mpi_operator.REQUEUED: "true"}}})
    yield Attempt(
        "a label of a Workload",
        only,
        label,
        patch(STANDING_WORKLOAD, mark).by(account, MASTERS),
    )
    yield Attempt("a manually created Workload", only, create(new), create(new).by(KUEUE, MASTERS))
    condition = {
        "type": "Admitted",
        "status": "True",
        "reason": "Manual",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    admitted = patch(STANDING_WORKLOAD, {"status": {"conditions": [condition]}}, "status")
    yield Attempt("a manually admitted Workload", only, admitted, stop)


def by_services() -> Iterator[Attempt]:
    """Traffic of others. Load balancers and node ports also have a quota of 0."""
    service: Json = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(RESEARCH) | {"name": "found"},
        "spec": {"clusterIP": "None", "ports": [{"port": 29400}], "selector": {"app": "any"}},
    }

    def changed(**spec: Any) -> Ask:
        return create(service | {"spec": service["spec"] | spec})

    takes = changed(clusterIP="", externalIPs=["203.0.113.7"])
    alias = changed(clusterIP="", type="ExternalName", externalName="example.com")
    for name, attempt in (("an address of others", takes), ("a name of others", alias)):
        yield Attempt(f"a Service with {name}", ("services",), attempt, create(service))


def every() -> list[Attempt]:
    queue = [*past_the_queue(), *by_non_runs(), *by_runs()]
    return [*queue, *by_changes(), *by_live_pods(), *by_workloads(), *by_services()]
