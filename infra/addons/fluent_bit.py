"""fluent-bit on every node: ships what pods of runs print, and counts the lines that tell of trouble.

Only logs of the namespaces that it is told of are read. A record keeps its line, its time, and whose it is:
namespace, pod, container, node, team and run id; no annotation, no environment, nothing else of the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.addons import controllers
from infra.addons import fluent_bit_pipeline as pipeline
from infra.addons.fluent_bit_pipeline import STATE
from infra.addons.fluent_bit_pipeline import CloudWatch as CloudWatch
from infra.addons.fluent_bit_pipeline import Destination as Destination
from infra.addons.fluent_bit_pipeline import Endpoint as Endpoint
from infra.addons.fluent_bit_pipeline import Http as Http
from infra.addons.fluent_bit_pipeline import Loki as Loki
from infra.addons.model import WHOLE, AddOn, Image, Installable
from infra.domain import naming
from infra.kubernetes import network_policy
from infra.kubernetes.objects import Manifest, metadata

NAME: Final = "fluentBit"
ACCOUNT: Final = naming.LOG_SHIPPER
"""Service account of its pods: on AWS the role that writes the log group is handed to it."""

NAMESPACE: Final = "logging"
_LABELS: Final[Mapping[str, str]] = {"app.kubernetes.io/name": "fluent-bit"}
"""The chart's own, of its pods."""
_API_SERVER: Final = (443, 6443)
"""EKS' and others'. CloudWatch is reached by the first, too."""


@dataclass(frozen=True, kw_only=True)
class FluentBitArgs:
    """Whose logs go where."""

    namespaces: tuple[str, ...]
    """Of teams, and of what validates nodes."""
    destination: Destination
    tolerations: tuple[Mapping[str, str], ...] = ()
    """Of the taints of all pools: it runs wherever runs do."""
    monitored: bool = False
    """Whether the cluster has the operator whose PodMonitors are scraped."""


def plan(args: FluentBitArgs) -> Installable:
    """The release, the walls around it, and who scrapes its counts."""
    return Installable(
        add_on=NAME,
        values=_values(args),
        before=(_default_deny(), _allowed(args.destination)),
        objects=(_pod_monitor(),) if args.monitored else (),
        # It reads files of its node, which no stricter level lets a pod mount.
        namespace_labels=controllers.pod_security("privileged"),
    )


def _values(args: FluentBitArgs) -> dict[str, Any]:
    return {
        "kind": "DaemonSet",
        "testFramework": {"enabled": False},
        "serviceAccount": {"create": True, "name": ACCOUNT},
        # Labels of a pod come from the API server; kubelets' own API would need nodes/proxy.
        "rbac": {"create": True, "nodeAccess": False},
        "podSecurityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "securityContext": {
            # Log files belong to root, and nobody else may read them. It has no right beyond that.
            "runAsUser": 0,
            "runAsNonRoot": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": controllers.resources("50m", "256Mi"),
        # A node that is short of memory still tells what happened on it.
        "priorityClassName": "system-node-critical",
        "tolerations": [dict(toleration) for toleration in args.tolerations],
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
        "terminationGracePeriodSeconds": 30,
        "metricsPort": pipeline.HEALTH_PORT,
        "extraPorts": [
            {
                "name": pipeline.METRICS_PORT_NAME,
                "port": pipeline.METRICS_PORT,
                "containerPort": pipeline.METRICS_PORT,
                "protocol": "TCP",
            }
        ],
        "env": _credentials(args.destination),
        "config": pipeline.config(args.namespaces, args.destination),
        **_volumes(),
    }


def _volumes() -> dict[str, Any]:
    """Logs of the node, read-only; its own place in them, and what could not be sent yet."""
    return {
        "daemonSetVolumes": [
            {"name": "logs", "hostPath": {"path": "/var/log"}},
            {"name": "state", "hostPath": {"path": STATE, "type": "DirectoryOrCreate"}},
        ],
        "daemonSetVolumeMounts": [
            {"name": "logs", "mountPath": "/var/log", "readOnly": True},
            {"name": "state", "mountPath": STATE},
        ],
    }


def _credentials(destination: Destination) -> list[dict[str, Any]]:
    """User and password from a Secret that exists; the values never pass through here."""
    secret = "" if isinstance(destination, CloudWatch) else destination.endpoint.credentials
    if not secret:
        return []
    keys = {pipeline.USERNAME: "username", pipeline.PASSWORD: "password"}
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, key in keys.items()
    ]


def _policy(name: str, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name, namespace=NAMESPACE, labels=naming.object_labels("logs")),
        "spec": spec,
    }


def _default_deny() -> Manifest:
    """Whatever else is put here has no network."""
    return _policy("default-deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


def _allowed(destination: Destination) -> Manifest:
    """Prometheus reads its counts; it asks names and the API server, and sends to one place."""
    prometheus = _in_namespace(naming.MONITORING_NAMESPACE)
    return _policy(
        "fluent-bit",
        {
            "podSelector": {"matchLabels": dict(_LABELS)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [prometheus], "ports": [_tcp(pipeline.METRICS_PORT)]}],
            "egress": [
                network_policy.name_resolution(),
                {"ports": [_tcp(port) for port in _API_SERVER]},
                *_sending(destination),
            ],
        },
    )


def _sending(destination: Destination) -> list[dict[str, Any]]:
    if isinstance(destination, CloudWatch):
        agent = {"ipBlock": {"cidr": f"{naming.POD_IDENTITY_AGENT}/32"}}
        return [{"to": [agent], "ports": [_tcp(80)]}]
    endpoint = destination.endpoint
    if endpoint.namespace:
        # Its pods may listen on another port than its service.
        return [{"to": [_in_namespace(endpoint.namespace)]}]
    return [{"ports": [_tcp(endpoint.port)]}]


def _in_namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": network_policy.in_namespace(name)}


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


def _pod_monitor() -> Manifest:
    """Counts say themselves whose they are: labels of the line's pod, not of the shipper's."""
    return {
        "apiVersion": naming.PROMETHEUS_API,
        "kind": "PodMonitor",
        "metadata": metadata(
            "fluent-bit", namespace=NAMESPACE, labels=naming.object_labels("logs")
        ),
        "spec": {
            "selector": {"matchLabels": dict(_LABELS)},
            "podMetricsEndpoints": [
                {"port": pipeline.METRICS_PORT_NAME, "path": "/metrics", "honorLabels": True}
            ],
        },
    }


FLUENT_BIT: Final = AddOn(
    name=NAME,
    chart="fluent-bit",
    repository="https://fluent.github.io/helm-charts",
    version="0.57.6",
    app_version="5.0.6",
    namespace=NAMESPACE,
    kubernetes=("1.24", ""),
    images=(
        Image(
            registry="cr.fluentbit.io",
            repository="fluent/fluent-bit",
            tag="5.0.6",
            values={"image.repository": WHOLE},
        ),
    ),
    # For the API of its PodMonitor.
    needs=("kubePrometheusStack",),
    settings=FluentBitArgs,
    plan=plan,
)
