"""Rules, monitors and dashboards of the platform, wherever prometheus-operator runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from infra.domain import naming
from infra.kubernetes.objects import KubernetesObject, Manifest, metadata
from infra.observability import monitors

NAMESPACE: Final = monitors.NAMESPACE
FOLDER: Final = "Trainyard"
"""Of the dashboards in Grafana."""
DASHBOARD_LABEL: Final = "grafana_dashboard"
"""On ConfigMaps that Grafana's sidecar loads; the chart's own name for it."""
_LABELS: Final = naming.object_labels("observability")
_FROM_HERE: Final[list[dict[str, Any]]] = [{"podSelector": {}}]


@dataclass(frozen=True, kw_only=True)
class ObservabilityArgs:
    """What there is to watch in this stack."""

    groups: Sequence[Mapping[str, Any]]
    """Groups of rules, as in a rules file of Prometheus."""
    dashboards: Mapping[str, str]
    """JSON of each dashboard by its name, a DNS label."""
    scrape_seconds: int
    gpu_exporter: str = ""
    """The add-on that runs DCGM's exporter; empty: none."""
    kueue: bool = True
    """Whether Kueue queues here."""
    walls: bool = True
    """Whether the namespace is the stack's, to close it to others."""


def rules(groups: Sequence[Mapping[str, Any]]) -> list[Manifest]:
    """One PrometheusRule per group: an object of all of them outgrows what one can read."""
    return [
        {
            "apiVersion": naming.PROMETHEUS_API,
            "kind": "PrometheusRule",
            "metadata": metadata(str(group["name"]), namespace=NAMESPACE, labels=_LABELS),
            "spec": {"groups": [dict(group)]},
        }
        for group in groups
    ]


def dashboards(found: Mapping[str, str]) -> list[Manifest]:
    """One ConfigMap per dashboard, which Grafana's sidecar loads."""
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


def walls() -> list[Manifest]:
    """Nobody outside of the namespace reaches what has no password of its own.

    Grafana is open to the cluster, for an ingress has to reach it and it asks who is there. The operator's
    webhook is called by the API server, which no selector can name. `kubectl port-forward` passes.
    """

    def policy(name: str, pods: dict[str, Any], ingress: list[dict[str, Any]]) -> Manifest:
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(name, namespace=NAMESPACE, labels=_LABELS),
            "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": ingress},
        }

    return [
        policy("default-deny", {}, [{"from": _FROM_HERE}]),
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
    """Every object."""
    found = [*rules(args.groups), *dashboards(args.dashboards)]
    found.append(monitors.runs(args.scrape_seconds))
    if args.gpu_exporter:
        found.append(monitors.gpus(args.gpu_exporter, args.scrape_seconds))
    if args.kueue:
        found.append(monitors.kueue(args.scrape_seconds))
    return [*found, *(walls() if args.walls else [])]


class Observability(pulumi.ComponentResource):
    """These objects; they come after prometheus-operator, whose kinds they are."""

    def __init__(self, name: str, args: ObservabilityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("Observability"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        for manifest in manifests(args):
            kind = manifest["kind"].lower()
            KubernetesObject(f"{name}-{kind}-{manifest['metadata']['name']}", manifest, own)
        self.register_outputs({"namespace": NAMESPACE})
