"""PodMonitors and ServiceMonitors for runs, GPUs, Kueue and costs.

Every series of a run's pod has the labels namespace, pod, node, run_id and team; `job` names the scrape job.
Rules, dashboards and `python -m ops` rely on these names (series.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, manifest
from infra.observability import series

NAMESPACE: Final = naming.MONITORING_NAMESPACE

GPU_EXPORTERS: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    "gpuOperator": ({"app": "nvidia-dcgm-exporter"}, "metrics"),
    "dcgmExporter": ({"app.kubernetes.io/name": "dcgm-exporter"}, "metrics"),
}
"""Pod labels and port name of the exporter, by the add-on that installs it."""

_KUEUE_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def monitor(kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    api = f"{naming.PROMETHEUS_API}/{kind}"
    return manifest(api, name, "observability", namespace=NAMESPACE, spec=dict(spec))


def _meta(label: str) -> str:
    """Return the name of a pod label in Prometheus' service discovery."""
    return f"__meta_kubernetes_pod_label_{''.join(c if c.isalnum() else '_' for c in label)}"


def _copied(source: str, target: str) -> dict[str, Any]:
    return {"sourceLabels": [source], "targetLabel": target}


def _dropped_labels(names: str) -> dict[str, Any]:
    return {"action": "labeldrop", "regex": names}


def _job(name: str) -> dict[str, Any]:
    return {"targetLabel": "job", "replacement": name}


def runs(scrape_seconds: int) -> Manifest:
    """Scrape the leading pod of every run in all team namespaces, and more often the ranks that it has named.

    All pods of a template declare the port; only the first pod of a gang serves it.
    """
    all_series = {"interval": f"{scrape_seconds}s"}
    culprits = {"interval": series.CULPRITS_INTERVAL, "path": series.CULPRITS_PATH}
    return monitor(
        "PodMonitor",
        series.TRAINER_JOB,
        {
            "namespaceSelector": {"any": True},
            "selector": {"matchExpressions": [{"key": naming.RUN_ID, "operator": "Exists"}]},
            # All teams share Prometheus: limit the memory that one run can use.
            "sampleLimit": series.SAMPLES_OF_A_RUN,
            "podMetricsEndpoints": [
                all_series | _of_run(series.TRAINER_JOB, series.OWN_PREFIX),
                culprits | _of_run(series.CULPRITS_JOB, series.CULPRITS_PREFIX),
            ],
        },
    )


def _of_run(job: str, prefix: str) -> dict[str, Any]:
    """Return port and rules of a scrape of a run; it keeps metrics of a prefix."""
    return {
        "port": naming.METRICS_PORT_NAME,
        "relabelings": [
            {"sourceLabels": [_meta(naming.JOB_INDEX)], "regex": "0?", "action": "keep"},
            _job(job),
            _copied("__meta_kubernetes_pod_node_name", "node"),
            _copied(_meta(naming.RUN_ID), "run_id"),
            _copied(_meta(naming.TEAM), "team"),
        ],
        # A run exports its own metrics only; its ID and team come from the pod's labels.
        "metricRelabelings": [
            {"sourceLabels": ["__name__"], "regex": f"{prefix}.+", "action": "keep"},
            # Alerts rely on these, which are not a run's to export.
            {"sourceLabels": ["__name__"], "regex": series.NOT_OF_RUNS, "action": "drop"},
            _dropped_labels("exported_(run_id|team)"),
        ],
    }


def gpus(exporter: str, scrape_seconds: int) -> Manifest:
    """Scrape the DCGM exporters; `honorLabels` keeps their labels of the pod that holds a GPU."""
    labels, port = GPU_EXPORTERS[exporter]
    return monitor(
        "PodMonitor",
        series.DCGM_JOB,
        {
            "namespaceSelector": {"matchNames": [naming.GPU_OPERATOR_NAMESPACE]},
            "selector": {"matchLabels": dict(labels)},
            "podMetricsEndpoints": [
                {
                    "port": port,
                    "interval": f"{scrape_seconds}s",
                    "honorLabels": True,
                    "relabelings": [
                        _job(series.DCGM_JOB),
                        _copied("__meta_kubernetes_pod_node_name", "node"),
                        # prometheus-operator adds the exporter's own pod, which would appear as the holder of
                        # an unused GPU.
                        _dropped_labels("namespace|pod|container"),
                    ],
                }
            ],
        },
    )


def kueue(scrape_seconds: int) -> Manifest:
    """Scrape Kueue's controller, which authenticates clients and serves a self-signed certificate."""
    return monitor(
        "ServiceMonitor",
        series.KUEUE_JOB,
        {
            "namespaceSelector": {"matchNames": [naming.KUEUE_NAMESPACE]},
            "selector": {"matchLabels": {"control-plane": "controller-manager"}},
            "endpoints": [
                {
                    "port": "https",
                    "path": "/metrics",
                    "scheme": "https",
                    "interval": f"{scrape_seconds}s",
                    "bearerTokenFile": _KUEUE_TOKEN,
                    "tlsConfig": {"insecureSkipVerify": True},
                    "relabelings": [
                        # The Services of webhook and visibility server have the same labels.
                        {
                            "sourceLabels": ["__meta_kubernetes_service_name"],
                            "regex": ".*-metrics-service",
                            "action": "keep",
                        },
                        _job(series.KUEUE_JOB),
                    ],
                    # From 0.16 on, followers export queue metrics too: a sum would count each queue twice.
                    "metricRelabelings": [
                        {"sourceLabels": ["replica_role"], "regex": "follower", "action": "drop"}
                    ],
                }
            ],
        },
    )


def costs(scrape_seconds: int) -> Manifest:
    """Scrape what records costs and enforces budgets; its `team` labels are its own, not a pod's."""
    return _loop(series.COSTS_JOB, naming.COSTS_NAMESPACE, naming.COSTS_ACCOUNT, scrape_seconds)


def steering(scrape_seconds: int) -> Manifest:
    """Scrape what moves runs; its `team` and `pool` labels are its own."""
    space, name = naming.STEERING_NAMESPACE, naming.STEERING_ACCOUNT
    return _loop(series.STEERING_JOB, space, name, scrape_seconds)


def _loop(job: str, namespace: str, name: str, scrape_seconds: int) -> Manifest:
    return monitor(
        "PodMonitor",
        job,
        {
            "namespaceSelector": {"matchNames": [namespace]},
            "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
            "podMetricsEndpoints": [
                {
                    "port": naming.METRICS_PORT_NAME,
                    "interval": f"{scrape_seconds}s",
                    "relabelings": [_job(job)],
                }
            ],
        },
    )
