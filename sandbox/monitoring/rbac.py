"""Read-only permissions of the monitoring processes; none reads secrets."""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.observability import series
from sandbox.rbac import READ, Document, grant, rule

NAMESPACE: Final = naming.MONITORING_NAMESPACE
PROMETHEUS: Final = "prometheus"
"""Service account: Kueue authenticates scrapes by token, not by certificate."""
TOKEN_HOURS: Final = 24 * 365

_ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}"
STATE_METRICS: Final = f"{_ACCOUNT}:kube-state-metrics"
GPU_EXPORTER: Final = f"{_ACCOUNT}:gpu-exporter"
"""Common names of certificates: the programs' service accounts on other clusters."""

_BATCH: Final = ("cronjobs", "jobs")


def rbac_objects() -> list[Document]:
    """Return namespace, service account and the cluster-wide roles and bindings."""
    labels = naming.object_labels("monitoring")
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"name": NAMESPACE, "labels": labels | level}
    account = {"name": PROMETHEUS, "namespace": NAMESPACE, "labels": labels}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": account,
            "automountServiceAccountToken": False,
        },
        *_grant("prometheus", f"{_ACCOUNT}:{PROMETHEUS}", [_read_rule("pods"), _METRICS_RULE]),
        *_grant(
            "kube-state-metrics", STATE_METRICS, [_read_rule(r) for r in series.STATE_RESOURCES]
        ),
        *_grant("gpu-exporter", GPU_EXPORTER, [_read_rule("nodes"), _read_rule("pods")]),
    ]


_METRICS_RULE: Final = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}


def _read_rule(resource: str) -> Document:
    return rule([resource], READ, "batch" if resource in _BATCH else "")


def _grant(name: str, user: str, rules: list[Document]) -> list[Document]:
    return grant("monitoring", name, user, rules)
