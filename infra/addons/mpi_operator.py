"""MPI Operator: MPIJobs, for runs started by mpirun; and the program that requeues those that have lost a node."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers, manifests
from infra.addons.isolation import isolation
from infra.addons.manifests import READ, WRITE, rule
from infra.addons.model import AddOn, Image, Installable
from infra.domain import naming
from infra.kubernetes.admission_policy import (
    ACTIVATION,
    account_policy,
    binding,
    only,
    resources,
)
from infra.kubernetes.crds import crd
from infra.kubernetes.objects import Manifest

NAME: Final = "mpi-operator"
"""Name of its objects; admission policies identify its service account by it."""

CRD: Final = "mpijobs.kubeflow.org"

REQUEUE: Final = "mpi-requeue"
"""Name of the objects of trainer/requeue.py."""

_HEALTH_PORT: Final = 8080
_GROUP: Final = "kubeflow.org"
_VERSION: Final = "v2beta1"
_NAMESPACE: Final = "mpi-operator"

_EVERYWHERE: Final = (
    rule("kubeflow.org", ["mpijobs"], [*READ, "update"]),
    rule("kubeflow.org", ["mpijobs/status", "mpijobs/finalizers"], ["get", "patch", "update"]),
    rule("", ["pods"], WRITE),
    # Host file and SSH keys of each run, and the Service for its pods' DNS names.
    rule("", ["configmaps", "secrets", "services"], ["create", "list", "watch", "update"]),
    rule("batch", ["jobs"], ["create", "list", "watch", "update"]),
    rule("batch", ["jobs/status"], ["update"]),
    # Used for gangs of other schedulers only, but it exits without this right.
    rule("scheduling.k8s.io", ["priorityclasses"], READ),
    rule("", ["events"], ["create", "patch"]),
)

_KUEUE: Final = "kueue.x-k8s.io"
_REQUEUES: Final = (
    rule("", ["pods", "nodes"], ["list"]),
    rule(_KUEUE, ["workloads"], ["list", "patch"]),
)
REQUEUED: Final = f"{naming.DOMAIN}/requeued"
"""Annotation of a Workload that waits to be activated again, written by trainer/requeue.py."""


def plan(image: str, trainer: str = "") -> Installable:
    """Return the CRD, two controllers, one leading, and their rights; and the program that requeues.

    `image`: the operator's, by digest. `trainer`: that of the program; empty where Kueue does not queue.
    """
    container = {
        "image": image,
        "args": [f"--lock-namespace={_NAMESPACE}"],
        "ports": [{"name": "health", "containerPort": _HEALTH_PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}},
        "resources": controllers.resources("100m", "256Mi"),
    }
    return Installable(
        add_on="mpiOperator",
        before=(
            isolation(NAME, _NAMESPACE),
            crd(CRD, naming.object_labels("operators")),
            *manifests.access(NAME, _NAMESPACE, _EVERYWHERE, [manifests.LEADING]),
            *(requeue_access() if trainer else ()),
        ),
        objects=(
            *manifests.operator(NAME, _NAMESPACE, container),
            *(_requeue(trainer) if trainer else ()),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


def requeue_access() -> tuple[Manifest, ...]:
    """Return the policy of the program that requeues, its service account and its rights, in this order."""
    walls = _writes_admitted()
    return (walls, binding(walls), *manifests.access(REQUEUE, _NAMESPACE, _REQUEUES, []))


def _writes_admitted() -> Manifest:
    """Admit from the service account only: deactivating and activating a run, with the annotation that says so."""
    found = account_policy(
        REQUEUE,
        resources(_KUEUE, "workloads", operations=("UPDATE",), scope="*"),
        ("requeue", only(_NAMESPACE, REQUEUE)),
        [ACTIVATION],
        notes=[REQUEUED],
        otherwise=f"this account may change the annotation {REQUEUED} only",
    )
    # Its rights are those of the whole cluster, not of namespaces of teams only.
    del found["spec"]["matchConstraints"]["namespaceSelector"]
    return found


def _requeue(image: str) -> tuple[Manifest, ...]:
    """Return its Deployment. Two replicas do the same twice, which changes nothing; a hanging one ends itself."""
    container = {
        "image": image,
        "command": ["python", "-m", "trainer.requeue"],
        "workingDir": "/workspace",
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
        ],
        "resources": controllers.resources("20m", "128Mi"),
    }
    return manifests.operator(REQUEUE, _NAMESPACE, container)


MPI_OPERATOR: Final = AddOn(
    name="mpiOperator",
    summary="Launcher `mpijob`.",
    version="0.8.2",
    app_version="0.8.2",
    namespace=_NAMESPACE,
    kubernetes=("1.32", ""),
    apis={"MPIJob": f"{_GROUP}/{_VERSION}"},
    images=(Image(registry="docker.io", repository="mpioperator/mpi-operator", tag="0.8.2"),),
    toolchain="0.8.2",
    plan=plan,
)
