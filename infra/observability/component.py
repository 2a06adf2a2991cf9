"""Rules, monitors and dashboards, as objects of prometheus-operator and Grafana."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from infra.domain import naming
from infra.kubernetes import network_policy
from infra.kubernetes.objects import Manifest, manifest, metadata
from infra.kubernetes.resources import KubernetesObject
from infra.observability import monitors

NAMESPACE: Final = monitors.NAMESPACE
FOLDER: Final = "Trainyard"
"""Grafana folder of the dashboards."""
DASHBOARD_LABEL: Final = "grafana_dashboard"
"""Label of ConfigMaps that Grafana's sidecar loads, as the chart names it."""
_LABELS: Final = naming.object_labels("observability")
_FROM_HERE: Final[list[dict[str, Any]]] = [{"podSelector": {}}]


@dataclass(frozen=True, kw_only=True)
class ObservabilityArgs:
    groups: Sequence[Mapping[str, Any]]
    """Rule groups, as in a Prometheus rule file."""
    dashboards: Mapping[str, str]
    """JSON of each dashboard by its name, a DNS label."""
    scrape_seconds: int
    gpu_exporter: str = ""
    """Add-on that runs dcgm-exporter; empty: none."""
    kueue: bool = True
    """Whether Kueue queues here."""
    costs: bool = False
    """Whether the stack has the add-on `costs`."""
    steering: bool = False
    """Whether the stack has the add-on `steering`."""
    prometheus_clients: Sequence[str] = ()
    """Namespaces of the stack's programs that query Prometheus."""
    isolated: bool = True
    """Whether the stack owns the namespace and restricts its ingress."""


def rules(groups: Sequence[Mapping[str, Any]]) -> list[Manifest]:
    """Return one PrometheusRule per group, which keeps each object readable."""
    return [
        monitors.monitor("PrometheusRule", str(group["name"]), {"groups": [dict(group)]})
        for group in groups
    ]


def dashboards(found: Mapping[str, str]) -> list[Manifest]:
    """Return one ConfigMap per dashboard, for Grafana's sidecar."""
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(
                f"dashboard-{name}",
                namespace=NAMESPACE,
                labels={**_LABELS, DASHBOARD_LABEL: "1"},
                annotations={"grafana_folder": FOLDER},
            ),
            "data": {f"{name}.json": text},
        }
        for name, text in found.items()
    ]


def network_policies(prometheus_clients: Sequence[str]) -> list[Manifest]:
    """Restrict ingress to what authenticates its clients, and to the stack's own programs.

    `prometheus_clients`: namespaces whose programs query Prometheus. Grafana is open to the cluster, because an
    ingress must reach it and it requires a login. The operator's webhook is called by the API server, which no
    selector can match. `kubectl port-forward` is not restricted.
    """

    def policy(name: str, pods: dict[str, Any], ingress: list[dict[str, Any]]) -> Manifest:
        spec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress}
        kind = "networking.k8s.io/v1/NetworkPolicy"
        return manifest(kind, name, "observability", namespace=NAMESPACE, spec=spec)

    clients = [
        {"namespaceSelector": network_policy.in_namespace(name)} for name in prometheus_clients
    ]
    port = {"protocol": "TCP", "port": naming.PROMETHEUS_PORT}
    prometheus = {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
    from_programs = [policy("allow-programs", prometheus, [{"from": clients, "ports": [port]}])]
    return [
        policy("default-deny", {}, [{"from": _FROM_HERE}]),
        *(from_programs if clients else ()),
        policy(
            "allow-grafana",
            {"matchLabels": {"app.kubernetes.io/name": "grafana"}},
            [{"ports": [{"protocol": "TCP", "port": 3000}]}],
        ),
        policy(
            "allow-operator-webhook",
            {"matchLabels": {"app": "kube-prometheus-stack-operator"}},
            [{"ports": [{"protocol": "TCP", "port": 10250}]}],
        ),
    ]


def manifests(args: ObservabilityArgs) -> list[Manifest]:
    found = [*rules(args.groups), *dashboards(args.dashboards)]
    found.append(monitors.runs(args.scrape_seconds))
    if args.gpu_exporter:
        found.append(monitors.gpus(args.gpu_exporter, args.scrape_seconds))
    if args.kueue:
        found.append(monitors.kueue(args.scrape_seconds))
    if args.costs:
        found.append(monitors.costs(args.scrape_seconds))
    if args.steering:
        found.append(monitors.steering(args.scrape_seconds))
    return [*found, *(network_policies(args.prometheus_clients) if args.isolated else [])]


class Observability(pulumi.ComponentResource):
    """The monitoring objects; they depend on prometheus-operator, which defines their kinds."""

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Observability"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        for one in manifests(args):
            kind = one["kind"].lower()
            KubernetesObject(f"{name}-{kind}-{one['metadata']['name']}", one, own)
        self.register_outputs({"namespace": NAMESPACE})
