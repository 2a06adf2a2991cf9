"""MPI Operator: MPIJobs, for runs started by mpirun."""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers, manifests
from infra.addons.isolation import isolation
from infra.addons.manifests import READ, WRITE, Kind, rule
from infra.addons.model import AddOn, ControllerImage, Image, Installable

NAME: Final = "mpi-operator"
"""Name of its objects; admission policies identify its service account by it."""

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

_DEFAULTS: Final[dict[str, tuple[str, Any]]] = {
    "slotsPerWorker": ("integer", 1),
    "runLauncherAsWorker": ("boolean", False),
    "sshAuthMountPath": ("string", "/root/.ssh"),
    "launcherCreationPolicy": ("string", "AtStartup"),
    "mpiImplementation": ("string", "OpenMPI"),
}
"""Defaults of its API."""


def plan(image: ControllerImage) -> Installable:
    """Return the CRD, two controllers, one leading, and their rights.

    `image`: the controller's, by digest.
    """
    kind = Kind(
        group=_GROUP,
        version=_VERSION,
        kind="MPIJob",
        plural="mpijobs",
        spec={
            "required": ["mpiReplicaSpecs"],
            "properties": {
                key: {"type": type_, "default": value} for key, (type_, value) in _DEFAULTS.items()
            },
        },
    )
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
            manifests.crd(kind),
            *manifests.access(NAME, _NAMESPACE, _EVERYWHERE, [manifests.LEADING]),
        ),
        objects=manifests.deployment(NAME, _NAMESPACE, container),
        namespace_labels=controllers.pod_security("restricted"),
    )


MPI_OPERATOR: Final = AddOn(
    name="mpiOperator",
    summary="Launcher `mpijob`.",
    version="0.8.2",
    app_version="0.8.2",
    namespace=_NAMESPACE,
    kubernetes=("1.32", ""),
    apis={"MPIJob": f"{_GROUP}/{_VERSION}"},
    images=(Image(registry="docker.io", repository="mpioperator/mpi-operator", tag="0.8.2"),),
    settings=ControllerImage,
    toolchain="0.8.2",
    plan=plan,
)
