"""kube-prometheus-stack: Prometheus, Alertmanager, Grafana, kube-state-metrics and node exporters.

Rules on components that EKS hides (etcd, scheduler, controller manager, kube-proxy) are off: they cannot be
scraped, so their alerts would always fire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from infra.addons import controllers
from infra.addons.model import AddOn, Image, Installable, placed
from infra.domain import naming, quantity
from infra.observability import routing, series
from infra.observability.component import DASHBOARD_LABEL
from infra.sections.observability import (
    GrafanaConfig,
    ObservabilityConfig,
    ReceiverConfig,
    SignInConfig,
)

NAME: Final = "kubePrometheusStack"

ADMIN_USER_KEY: Final = "admin-user"
ADMIN_PASSWORD_KEY: Final = "admin-password"
"""Keys of the Secret with Grafana's administrator."""
CLIENT_SECRET_KEY: Final = "client-secret"
_CLIENT_SECRET: Final = "/etc/grafana-sign-in"
"""Where the Secret of the OIDC client is mounted."""

FULL_PART: Final = 0.85
"""Share of the volume for samples. The write-ahead log and compaction need the rest."""

_EVERYTHING: Final[Mapping[str, Any]] = {}
"""A selector of everything; the chart's defaults select its own objects only."""


def plan(section: ObservabilityConfig, cluster: str, default_class: str) -> Installable:
    """Return the release.

    `cluster`: value of the external label. `default_class`: of volumes, where the section names none; empty: the
    cluster's default.
    """
    storage_class, grafana = section.storage_class or default_class, section.grafana
    return Installable(
        add_on=NAME,
        values={
            "crds": {"enabled": True},
            "defaultRules": {"create": True, "rules": _OFF_RULES},
            **{part: {"enabled": False} for part in _NOT_TO_BE_SCRAPED},
            "prometheusOperator": _operator(),
            "prometheus": {
                "prometheusSpec": _prometheus(section, cluster, storage_class),
                "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
            },
            "alertmanager": _alertmanager(section.receivers, storage_class),
            "grafana": _grafana(grafana) if grafana else {"enabled": False},
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


def _claim(storage_class: str, size: str) -> dict[str, Any]:
    named = {"storageClassName": storage_class} if storage_class else {}
    return {
        "volumeClaimTemplate": {
            "spec": {
                **named,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
            }
        }
    }


def _prometheus(section: ObservabilityConfig, cluster: str, storage_class: str) -> dict[str, Any]:
    size = quantity.bytes_(section.volume)
    selectors = ("rule", "podMonitor", "serviceMonitor", "probe", "scrapeConfig")
    return {
        "replicas": 2,
        "podAntiAffinity": "hard",
        "priorityClassName": controllers.PRIORITY,
        "externalLabels": {"cluster": cluster},
        "scrapeInterval": f"{section.scrape_seconds}s",
        "evaluationInterval": f"{section.scrape_seconds}s",
        "retention": f"{section.retention_days}d",
        "retentionSize": f"{int(size * FULL_PART)}B",
        "walCompression": True,
        "storageSpec": _claim(storage_class, str(size)),
        "resources": controllers.resources("1", "8Gi"),
        **{f"{kind}SelectorNilUsesHelmValues": False for kind in selectors},
        **{f"{kind}Selector": dict(_EVERYTHING) for kind in selectors},
        # It could delete samples over HTTP.
        "enableAdminAPI": False,
    }


def _alertmanager(receivers: Sequence[ReceiverConfig], storage_class: str) -> dict[str, Any]:
    return {
        "config": routing.configuration(receivers),
        "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
        "alertmanagerSpec": {
            "replicas": 2,
            "podAntiAffinity": "hard",
            "priorityClassName": controllers.PRIORITY,
            "secrets": routing.secrets(receivers),
            "storage": _claim(storage_class, "2Gi"),
            "resources": controllers.resources("50m", "128Mi"),
        },
    }


_CONFIG_MAPS_HERE: Final[Mapping[str, Any]] = {
    "resource": "configmap",
    # ConfigMaps of other namespaces must not add dashboards.
    "searchNamespace": naming.MONITORING_NAMESPACE,
}
"""What Grafana's sidecars read; by default Secrets, too."""


def _grafana(grafana: GrafanaConfig) -> dict[str, Any]:
    if grafana.admin_secret_name is None:
        return {"enabled": False}
    return {
        "enabled": True,
        "admin": {
            "existingSecret": grafana.admin_secret_name,
            "userKey": ADMIN_USER_KEY,
            "passwordKey": ADMIN_PASSWORD_KEY,
        },
        "grafana.ini": {
            "server": {"root_url": grafana.url},
            "auth.anonymous": {"enabled": False},
            "users": {"allow_sign_up": False, "viewers_can_edit": False},
            "security": {"cookie_secure": True, "strict_transport_security": True},
            "analytics": {"reporting_enabled": False, "check_for_updates": False},
            **(_sign_in(grafana.sign_in) if grafana.sign_in else {}),
        },
        **_ways_in(grafana),
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


def _sign_in(one: SignInConfig) -> dict[str, Any]:
    """Return the parts of grafana.ini. The administrator's form is off; the sidecars use its basic auth."""
    groups = (*one.groups, *(group for group in one.admin_groups if group not in one.groups))
    admin = [f"contains({one.groups_claim}[*], '{group}') && 'Admin'" for group in one.admin_groups]
    return {
        "auth": {"disable_login_form": True},
        "auth.generic_oauth": {
            "enabled": True,
            "name": "single sign-on",
            "client_id": one.client_id,
            "client_secret": f"$__file{{{_CLIENT_SECRET}/{CLIENT_SECRET_KEY}}}",
            "scopes": "openid profile email groups",
            "auth_url": one.auth_url,
            "token_url": one.token_url,
            "api_url": one.userinfo_url,
            "use_pkce": True,
            "allow_sign_up": True,
            "groups_attribute_path": one.groups_claim,
            "allowed_groups": " ".join(groups),
            "role_attribute_path": " || ".join([*admin, "'Viewer'"]),
            "role_attribute_strict": True,
            "allow_assign_grafana_admin": False,
        },
    }


def _ways_in(grafana: GrafanaConfig) -> dict[str, Any]:
    """Return the mounted client secret and the Ingress, where there are any."""
    found: dict[str, Any] = {}
    if grafana.sign_in:
        found["extraSecretMounts"] = [
            {
                "name": "sign-in",
                "secretName": grafana.sign_in.secret_name,
                "mountPath": _CLIENT_SECRET,
                "readOnly": True,
                "defaultMode": 0o440,
            }
        ]
    if grafana.ingress:
        host = str(urlsplit(grafana.url).hostname)
        found["ingress"] = {
            "enabled": True,
            "ingressClassName": grafana.ingress.class_name,
            "annotations": dict(grafana.ingress.annotations),
            "hosts": [host],
            "path": "/",
            "pathType": "Prefix",
            "tls": [{"secretName": grafana.ingress.tls_secret_name, "hosts": [host]}],
        }
    return found


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
    placed=placed(
        "prometheusOperator",
        "prometheusOperator.admissionWebhooks.patch",
        "prometheus.prometheusSpec",
        "alertmanager.alertmanagerSpec",
        "grafana",
        "kube-state-metrics",
    ),
    plan=plan,
)
