"""kube-prometheus-stack: Prometheus, Alertmanager, Grafana, kube-state-metrics and node exporters.

Rules on components that EKS hides (etcd, scheduler, controller manager, kube-proxy) are off: they cannot be
scraped, so their alerts would always fire.
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
"""Keys of the Secret with Grafana's administrator."""

FULL_PART: Final = 0.85
"""Share of the volume for samples. The write-ahead log and compaction need the rest."""

_EVERYTHING: Final[Mapping[str, Any]] = {}
"""A selector of everything; the chart's defaults select its own objects only."""


@dataclass(frozen=True, kw_only=True)
class Grafana:
    """Grafana's URL and administrator."""

    url: str
    admin_secret: str


@dataclass(frozen=True, kw_only=True)
class KubePrometheusStackArgs:
    """Retention, storage, scraping and alert receivers."""

    cluster: str
    """Value of the external label `cluster`."""
    retention_days: int
    volume_bytes: int
    storage_class: str
    """Empty: the cluster's default class."""
    scrape_seconds: int
    receivers: Sequence[Receiver]
    grafana: Grafana | None


def plan(args: KubePrometheusStackArgs) -> Installable:
    """Return the release."""
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
        # Node exporters access their host's files, network and processes.
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
    return {
        "resources": controllers.resources("100m", "256Mi"),
        "priorityClassName": controllers.PRIORITY,
        # Jobs of the chart's hooks: a release waits for them.
        "admissionWebhooks": {"patch": {"priorityClassName": controllers.PRIORITY}},
    }


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
        "priorityClassName": controllers.PRIORITY,
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
        # It could delete samples over HTTP.
        "enableAdminAPI": False,
    }


def _alertmanager(args: KubePrometheusStackArgs) -> dict[str, Any]:
    return {
        "config": routing.configuration(args.receivers),
        "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
        "alertmanagerSpec": {
            "replicas": 2,
            "podAntiAffinity": "hard",
            "priorityClassName": controllers.PRIORITY,
            "secrets": routing.secrets(args.receivers),
            "storage": _claim(args, "2Gi"),
            "resources": controllers.resources("50m", "128Mi"),
        },
    }


_CONFIG_MAPS_HERE: Final[Mapping[str, Any]] = {
    "resource": "configmap",
    # ConfigMaps of other namespaces must not add dashboards.
    "searchNamespace": naming.MONITORING_NAMESPACE,
}
"""What Grafana's sidecars read; by default Secrets, too."""


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
                **_CONFIG_MAPS_HERE,
                "folderAnnotation": "grafana_folder",
                "provider": {"foldersFromFilesStructure": True},
            },
            "datasources": dict(_CONFIG_MAPS_HERE),
        },
        # By default its account reads the Secrets of every namespace.
        "rbac": {"namespaced": True},
        "defaultDashboardsEnabled": True,
        # Dashboards come from the repository, so Grafana has no state to keep.
        "persistence": {"enabled": False},
        "resources": controllers.resources("100m", "512Mi"),
        "priorityClassName": controllers.PRIORITY,
        "podDisruptionBudget": {"maxUnavailable": 1},
    }


def _kube_state_metrics() -> dict[str, Any]:
    shown = {"pods": series.POD_LABELS, "nodes": series.NODE_LABELS}
    return {
        "metricLabelsAllowlist": [f"{kind}=[{','.join(keys)}]" for kind, keys in shown.items()],
        "resources": controllers.resources("50m", "512Mi"),
        "priorityClassName": controllers.PRIORITY,
    }


def _node_exporter() -> dict[str, Any]:
    return {
        # Runs on all nodes, whatever their taints.
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "resources": controllers.resources("50m", "64Mi"),
        "priorityClassName": controllers.NODE_PRIORITY,
    }


def _image(registry: str, repository: str, tag: str = "") -> Image:
    """Return an image of the chart, which has one value for the registry of all images."""
    return Image(
        registry=registry,
        repository=repository,
        tag=tag,
        values={"global.imageRegistry": "{registry}"},
    )


_KINDS: Final = ("PodMonitor", "Probe", "PrometheusRule", "ServiceMonitor")

KUBE_PROMETHEUS_STACK: Final = AddOn(
    name=NAME,
    summary="Prometheus, Alertmanager and Grafana; see `observability`.",
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
    # Its hooks are Jobs, which Kueue's webhook must be there to admit.
    needs=("kueue",),
    settings=KubePrometheusStackArgs,
    plan=plan,
)
