"""fluent-bit on every node: ships logs of runs, and counts lines that match failure patterns.

Only logs of the given namespaces are read. A record has its line, time, namespace, pod, container, node, team and
run id; no annotations, environment or other pod fields.
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
from infra.addons.isolation import API_SERVER_PORTS
from infra.addons.model import WHOLE, AddOn, Image, Installable
from infra.domain import naming
from infra.kubernetes import network_policy, pod_security
from infra.kubernetes.objects import Manifest, manifest

NAME: Final = "fluentBit"
ACCOUNT: Final = naming.LOG_SHIPPER
"""Service account of its pods; on AWS associated with the role that writes the log group."""

NAMESPACE: Final = "logging"
_LABELS: Final[Mapping[str, str]] = {"app.kubernetes.io/name": "fluent-bit"}
"""Pod labels of the chart."""


@dataclass(frozen=True, kw_only=True)
class FluentBitArgs:
    namespaces: tuple[str, ...]
    """Namespaces of teams and of the node validation."""
    destination: Destination
    tolerations: tuple[Mapping[str, str], ...] = ()
    """Tolerations of the taints of all pools: it runs wherever runs do."""
    monitored: bool = False
    """Whether the cluster has prometheus-operator."""


def plan(args: FluentBitArgs) -> Installable:
    """Return the release, its network policies and its PodMonitor."""
    return Installable(
        add_on=NAME,
        values=_values(args),
        before=(_default_deny(), _allowed(args.destination)),
        objects=(_pod_monitor(),) if args.monitored else (),
        # It mounts files of its node, which stricter levels forbid.
        namespace_labels=controllers.pod_security("privileged"),
    )


def _values(args: FluentBitArgs) -> dict[str, Any]:
    return {
        "kind": "DaemonSet",
        "testFramework": {"enabled": False},
        "serviceAccount": {"create": True, "name": ACCOUNT},
        # Pod labels come from the API server; the kubelet's API would require nodes/proxy.
        "rbac": {"create": True, "nodeAccess": False},
        "podSecurityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "securityContext": {
            # Only root can read log files. All other privileges are dropped.
            "runAsUser": 0,
            "runAsNonRoot": False,
            **pod_security.container_security(),
        },
        "resources": controllers.resources("50m", "256Mi"),
        # Logs still ship from a node that is short of memory.
        "priorityClassName": controllers.NODE_PRIORITY,
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
    """Return volumes: the node's logs, read-only, and the shipper's positions and unsent data."""
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
    """Return user and password as references to an existing Secret."""
    secret = None if isinstance(destination, CloudWatch) else destination.credentials
    if not secret:
        return []
    keys = {pipeline.USERNAME: "username", pipeline.PASSWORD: "password"}
    return [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
        for variable, key in keys.items()
    ]


def _policy(name: str, spec: dict[str, Any]) -> Manifest:
    return manifest(
        "networking.k8s.io/v1/NetworkPolicy", name, "logs", namespace=NAMESPACE, spec=spec
    )


def _default_deny() -> Manifest:
    """Return a policy that denies all traffic of other pods in the namespace."""
    return _policy("default-deny", {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})


def _allowed(destination: Destination) -> Manifest:
    """Return the policy: metrics to Prometheus; egress to DNS, the API server and the destination."""
    prometheus = _in_namespace(naming.MONITORING_NAMESPACE)
    return _policy(
        "fluent-bit",
        {
            "podSelector": {"matchLabels": dict(_LABELS)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [prometheus], "ports": [_tcp(pipeline.METRICS_PORT)]}],
            "egress": [
                network_policy.name_resolution(),
                {"ports": [_tcp(port) for port in API_SERVER_PORTS]},
                *_sending(destination),
            ],
        },
    )


def _sending(destination: Destination) -> list[dict[str, Any]]:
    if isinstance(destination, CloudWatch):
        agent = {"ipBlock": {"cidr": f"{naming.POD_IDENTITY_AGENT}/32"}}
        return [{"to": [agent], "ports": [_tcp(80)]}]
    if destination.namespace:
        # Pods may listen on another port than their Service.
        return [{"to": [_in_namespace(destination.namespace)]}]
    return [{"ports": [_tcp(destination.port)]}]


def _in_namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": network_policy.in_namespace(name)}


def _tcp(port: int) -> dict[str, Any]:
    return {"protocol": "TCP", "port": port}


def _pod_monitor() -> Manifest:
    """Return the PodMonitor; `honorLabels` keeps the labels of the line's pod, not the shipper's."""
    return manifest(
        f"{naming.PROMETHEUS_API}/PodMonitor",
        "fluent-bit",
        "logs",
        namespace=NAMESPACE,
        spec={
            "selector": {"matchLabels": dict(_LABELS)},
            "podMetricsEndpoints": [
                {"port": pipeline.METRICS_PORT_NAME, "path": "/metrics", "honorLabels": True}
            ],
        },
    )


FLUENT_BIT: Final = AddOn(
    name=NAME,
    summary="Ships logs of runs; see `logs`.",
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
    # Provides the API of its PodMonitor.
    objects_need=("kubePrometheusStack",),
    plan=plan,
)
