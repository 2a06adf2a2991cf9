"""NetworkPolicies of add-ons: what reaches their pods, and what they reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import network_policy
from infra.kubernetes.objects import Manifest, manifest

API_SERVER_PORTS: Final = (443, 6443)
"""Ports on EKS and elsewhere. The first is also that of registries, stores and AWS."""


def isolation(
    name: str,
    namespace: str,
    *,
    called: Sequence[int] = (),
    metrics: Sequence[int] = (),
    each_other: bool = False,
    egress: bool = True,
    to_prometheus: bool = False,
) -> Manifest:
    """Return the policy of an add-on for all pods of its namespace; it denies what it does not allow.

    `called`: ports of webhooks and APIs, which the API server calls; no selector matches it, so they are open.
    `metrics`: ports that Prometheus reaches.
    `each_other`: the pods of the namespace reach each other.
    `egress`: only DNS and the ports of the API server, which HTTPS shares; False: egress is not restricted.
    `to_prometheus`: the pods reach Prometheus, too.

    Probes of the kubelet come from the pod's node, which Kubernetes always allows.
    """
    ingress: list[dict[str, Any]] = []
    if called:
        ingress.append({"ports": _tcp(called)})
    if metrics:
        prometheus = network_policy.in_namespace(naming.MONITORING_NAMESPACE)
        ingress.append({"from": [{"namespaceSelector": prometheus}], "ports": _tcp(metrics)})
    if each_other:
        ingress.append({"from": [{"podSelector": {}}]})
    spec: dict[str, Any] = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": ingress}
    if egress:
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [network_policy.name_resolution(), {"ports": _tcp(API_SERVER_PORTS)}]
        if to_prometheus:
            servers = network_policy.in_namespace(naming.MONITORING_NAMESPACE)
            to = [{"namespaceSelector": servers}]
            spec["egress"].append({"to": to, "ports": _tcp([naming.PROMETHEUS_PORT])})
    return manifest(
        "networking.k8s.io/v1/NetworkPolicy", name, "operators", namespace=namespace, spec=spec
    )


def _tcp(ports: Sequence[int]) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port} for port in ports]
