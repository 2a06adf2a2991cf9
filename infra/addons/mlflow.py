"""MLflow's tracking server: what runs log, in a SQLite file on a volume, with their artifacts.

It has no login: who reaches its port reads, changes and deletes what every team logged. Network policies admit the
pods of teams, and it reaches nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from infra.addons import controllers, manifests
from infra.addons.model import AddOn, Image, Installable
from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

NAME: Final = "mlflow"

_DATA: Final = "/data"
_TEMPORARY: Final = "/tmp"
_VOLUME: Final = "20Gi"
_HEALTH: Final = {"httpGet": {"path": "/health", "port": "http"}}
_LABELS: Final = naming.object_labels("operators")
_POD: Final = {"app.kubernetes.io/name": NAME}


@dataclass(frozen=True, kw_only=True)
class MlflowArgs:
    """What a stack decides about the server."""

    image: str
    """By digest."""
    storage_class: str = ""
    """Of a volume that one node writes; empty: the cluster's default class."""


def command(port: int, data: str) -> list[str]:
    """Return the server's command line; `data`: the folder that it keeps.

    One worker, since SQLite has one writer. The names are those by which the platform's runs call it: it rejects
    requests with another Host header, of a web page that reaches it by way of a user's browser.
    """
    hosts = [f"{naming.MLFLOW_HOST}:{port}", f"{naming.MLFLOW_HOST}.cluster.local:{port}"]
    return [
        *("mlflow", "server", "--host=0.0.0.0", f"--port={port}", "--workers=1"),
        f"--backend-store-uri=sqlite:///{data}/mlflow.db",
        *("--serve-artifacts", f"--artifacts-destination={data}/artifacts"),
        # For the kubelet's probes by address, and `kubectl port-forward`.
        f"--allowed-hosts={','.join([*hosts, 'localhost:*', '127.0.0.1:*', *_PRIVATE])}",
    ]


_PRIVATE: Final = ("10.*", "192.168.*", *(f"172.{number}.*" for number in range(16, 32)))


def plan(args: MlflowArgs) -> Installable:
    """Return the server, its volume, its Service, and who reaches it."""
    named = {"storageClassName": args.storage_class} if args.storage_class else {}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        # The volume may wait for the pod that needs it.
        "metadata": _metadata(annotations={"pulumi.com/skipAwait": "true"}),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": _VOLUME}},
            **named,
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(),
        "spec": {
            "selector": _POD,
            "ports": [{"name": "http", "port": naming.MLFLOW_PORT, "targetPort": "http"}],
        },
    }
    return Installable(
        add_on=NAME,
        before=(_network_policy(), claim),
        objects=(_deployment(args.image), service),
        namespace_labels=controllers.pod_security("restricted"),
    )


def _metadata(annotations: dict[str, str] | None = None) -> dict[str, Any]:
    return metadata(
        NAME, namespace=naming.MLFLOW_NAMESPACE, labels=_LABELS, annotations=annotations
    )


def _network_policy() -> Manifest:
    teams = {"matchExpressions": [{"key": naming.TEAM, "operator": "Exists"}]}
    port = {"protocol": "TCP", "port": naming.MLFLOW_PORT}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(),
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"namespaceSelector": teams}], "ports": [port]}],
            "egress": [],
        },
    }


def _deployment(image: str) -> Manifest:
    container = {
        "name": NAME,
        "image": image,
        "command": command(naming.MLFLOW_PORT, _DATA),
        "env": [
            {"name": "HOME", "value": _TEMPORARY},
            {"name": "MLFLOW_DISABLE_TELEMETRY", "value": "true"},
        ],
        "workingDir": _TEMPORARY,
        "ports": [{"name": "http", "containerPort": naming.MLFLOW_PORT}],
        # The first start creates the database, a new version changes it.
        "startupProbe": {**_HEALTH, "periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": {**_HEALTH, "periodSeconds": 30},
        "resources": controllers.resources("250m", "1Gi"),
        "volumeMounts": [
            {"name": "data", "mountPath": _DATA},
            {"name": "temporary", "mountPath": _TEMPORARY},
        ],
        "securityContext": manifests.RESTRICTED_CONTAINER,
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": controllers.PRIORITY,
        "tolerations": list(controllers.TOLERATIONS),
        "securityContext": {**manifests.RESTRICTED_POD, "fsGroup": manifests.USER},
        "containers": [container],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": NAME}},
            {"name": "temporary", "emptyDir": {}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(),
        "spec": {
            "replicas": 1,
            # The old pod ends before the new one opens the file.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _POD},
            "template": {"metadata": {"labels": _LABELS | _POD}, "spec": pod},
        },
    }


MLFLOW: Final = AddOn(
    name=NAME,
    summary="MLflow's tracking server for all teams, without a login.",
    version="3.17.2",
    app_version="3.17.2",
    namespace=naming.MLFLOW_NAMESPACE,
    kubernetes=("1.27", ""),
    images=(Image(registry="ghcr.io", repository="mlflow/mlflow", tag="v3.17.2"),),
    settings=MlflowArgs,
    plan=plan,
)
