"""kube-prometheus-stack: Prometheus, Alertmanager, Grafana, kube-state-metrics and node exporters.

Its rules on what EKS keeps to itself (etcd, scheduler, controller manager, kube-proxy) are off: nobody could
scrape these, and alerts that always fire teach people to look away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.addons import controllers
from infra.addons.model import AddOn, Image, Installable
from infra.domain import naming
from infra.observability import routing, series
from infra.observability.component import DASHBOARD_LABEL
from infra.observability.routing import Receiver

NAME: Final = "kubePrometheusStack"

ADMIN_USER_KEY: Final = "admin-user"
ADMIN_PASSWORD_KEY: Final = "admin-password"
"""Keys of the Secret that Grafana's administrator comes from."""

FULL_PART: Final = 0.85
"""Of the volume: what samples may take. The write-ahead log and compaction need the rest."""

_EVERYTHING: Final[Mapping[str, Any]] = {}
"""A selector that selects all; the chart's defaults would see its own objects only."""


@dataclass(frozen=True, kw_only=True)
class Grafana:
    """Where people look."""

    url: str
    admin_secret: str


@dataclass(frozen=True, kw_only=True)
class KubePrometheusStackArgs:
    """What is kept, how long, and who is told."""

    cluster: str
    """Label `cluster` of everything that leaves this Prometheus."""
    retention_days: int
    volume_bytes: int
    storage_class: str
    """Empty: the cluster's default class."""
    scrape_seconds: int
    receivers: Sequence[Receiver]
    grafana: Grafana | None


def plan(args: KubePrometheusStackArgs) -> Installable:
    """The release and its values."""
    return Installable(
        add_on=NAME,
        values={
            "crds": {"enabled": True},
            "defaultRules": {"create": True, "rules": _OFF_RULES},
            **{part: {"enabled": False} for part in _NOT_TO_BE_SCRAPED},
            "prometheusOperator": _operator(),
            "prometheus": {
                "prometheusSpec": _prometheus(args),
                "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
            },
            "alertmanager": _alertmanager(args),
            "grafana": _grafana(args),
            "kube-state-metrics": _kube_state_metrics(),
            "prometheus-node-exporter": _node_exporter(),
        },
        # Node exporters read their host: its files, its network, its processes.
        namespace_labels={"pod-security.kubernetes.io/enforce": "privileged"},
    )


_NOT_TO_BE_SCRAPED: Final = ("kubeControllerManager", "kubeEtcd", "kubeScheduler", "kubeProxy")
_OFF_RULES: Final = dict.fromkeys(
    (
        "etcd",
        "kubeProxy",
        "kubeSchedulerAlerting",
        "kubeSchedulerRecording",
        "kubeControllerManager",
    ),
    False,
)


def _operator() -> dict[str, Any]:
    return {"resources": controllers.resources("100m", "256Mi")}


def _claim(args: KubePrometheusStackArgs, size: str) -> dict[str, Any]:
    named = {"storageClassName": args.storage_class} if args.storage_class else {}
    return {
        "volumeClaimTemplate": {
            "spec": {
                **named,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            }
        }
    }


def _prometheus(args: KubePrometheusStackArgs) -> dict[str, Any]:
    selectors = ("rule", "podMonitor", "serviceMonitor", "probe", "scrapeConfig")
    return {
        "replicas": 2,
        "podAntiAffinity": "hard",
        "externalLabels": {"cluster": args.cluster},
        "scrapeInterval": f"{args.scrape_seconds}s",
        "evaluationInterval": f"{args.scrape_seconds}s",
        "retention": f"{args.retention_days}d",
        "retentionSize": f"{int(args.volume_bytes * FULL_PART)}B",
        "walCompression": True,
        "storageSpec": _claim(args, str(args.volume_bytes)),
        "resources": controllers.resources("1", "8Gi"),
        **{f"{kind}SelectorNilUsesHelmValues": False for kind in selectors},
        **{f"{kind}Selector": dict(_EVERYTHING) for kind in selectors},
        # Nobody deletes samples over HTTP.
        "enableAdminAPI": False,
    }


def _alertmanager(args: KubePrometheusStackArgs) -> dict[str, Any]:
    return {
        "config": routing.configuration(args.receivers),
        "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
        "alertmanagerSpec": {
            "replicas": 2,
            "podAntiAffinity": "hard",
            "secrets": routing.secrets(args.receivers),
            "storage": _claim(args, "2Gi"),
            "resources": controllers.resources("50m", "128Mi"),
        },
    }


def _grafana(args: KubePrometheusStackArgs) -> dict[str, Any]:
    if args.grafana is None:
        return {"enabled": False}
    return {
        "enabled": True,
        "admin": {
            "existingSecret": args.grafana.admin_secret,
            "userKey": ADMIN_USER_KEY,
            "passwordKey": ADMIN_PASSWORD_KEY,
        },
        "grafana.ini": {
            "server": {"root_url": args.grafana.url},
            "auth.anonymous": {"enabled": False},
            "users": {"allow_sign_up": False, "viewers_can_edit": False},
            "security": {"cookie_secure": True, "strict_transport_security": True},
            "analytics": {"reporting_enabled": False, "check_for_updates": False},
        },
        "sidecar": {
            "dashboards": {
                "enabled": True,
                "label": DASHBOARD_LABEL,
                "labelValue": "1",
                # The chart's own namespace only: whoever may write a ConfigMap elsewhere draws nothing here.
                "searchNamespace": None,
                "folderAnnotation": "grafana_folder",
                "provider": {"foldersFromFilesStructure": True},
            }
        },
        "defaultDashboardsEnabled": True,
        # What people do is in the repository: dashboards come from there, and there is nothing to keep.
        "persistence": {"enabled": False},
        "resources": controllers.resources("100m", "512Mi"),
        "podDisruptionBudget": {"maxUnavailable": 1},
    }


def _kube_state_metrics() -> dict[str, Any]:
    shown = {"pods": series.POD_LABELS, "nodes": series.NODE_LABELS}
    return {
        "metricLabelsAllowlist": [f"{kind}=[{','.join(keys)}]" for kind, keys in shown.items()],
        "resources": controllers.resources("50m", "512Mi"),
    }


def _node_exporter() -> dict[str, Any]:
    return {
        # On GPU nodes, too, whatever their taints.
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "resources": controllers.resources("50m", "64Mi"),
    }


def _image(registry: str, repository: str, tag: str = "") -> Image:
    """An image of the chart, which has one value for the registry of all."""
    return Image(
        registry=registry,
        repository=repository,
        tag=tag,
        values={"global.imageRegistry": "{registry}"},
    )


_KINDS: Final = ("PodMonitor", "Probe", "PrometheusRule", "ServiceMonitor")

KUBE_PROMETHEUS_STACK: Final = AddOn(
    name=NAME,
    chart="oci://ghcr.io/prometheus-community/charts/kube-prometheus-stack",
    version="89.2.2",
    app_version="v0.93.1",
    namespace=naming.MONITORING_NAMESPACE,
    kubernetes=("1.25", ""),
    apis=dict.fromkeys(_KINDS, naming.PROMETHEUS_API),
    images=(
        _image("quay.io", "prometheus-operator/prometheus-operator", "v0.93.1"),
        _image("quay.io", "prometheus-operator/prometheus-config-reloader", "v0.93.1"),
        _image("quay.io", "prometheus/prometheus"),
        _image("quay.io", "prometheus/alertmanager"),
        _image("quay.io", "prometheus/node-exporter"),
        _image("quay.io", "kiwigrid/k8s-sidecar"),
        _image("docker.io", "grafana/grafana"),
        _image("registry.k8s.io", "kube-state-metrics/kube-state-metrics"),
        _image("ghcr.io", "jkroepke/kube-webhook-certgen"),
    ),
    settings=KubePrometheusStackArgs,
    plan=plan,
)
