"""What Prometheus scrapes, as objects of prometheus-operator: runs, GPUs, Kueue.

Every series of a run's pod has the labels namespace, pod, node, run_id and team, and job says what was asked:
rules, dashboards and `python -m ops` rely on these names (infra/observability).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata
from infra.observability import series

NAMESPACE: Final = naming.MONITORING_NAMESPACE
_LABELS: Final = naming.object_labels("observability")

GPU_EXPORTERS: Final[Mapping[str, tuple[Mapping[str, str], str]]] = {
    "gpuOperator": ({"app": "nvidia-dcgm-exporter"}, "metrics"),
    "dcgmExporter": ({"app.kubernetes.io/name": "dcgm-exporter"}, "metrics"),
}
"""Labels of the exporter's pods and the name of its port, by the add-on that runs it."""

_KUEUE_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def monitor(kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    """A PodMonitor or ServiceMonitor of ours."""
    return {
        "apiVersion": naming.PROMETHEUS_API,
        "kind": kind,
        "metadata": metadata(name, namespace=NAMESPACE, labels=_LABELS),
        "spec": dict(spec),
    }


def _meta(label: str) -> str:
    """Prometheus' name of a pod's label."""
    return f"__meta_kubernetes_pod_label_{''.join(c if c.isalnum() else '_' for c in label)}"


def _copied(source: str, target: str) -> dict[str, Any]:
    return {"sourceLabels": [source], "targetLabel": target}


def _dropped_labels(names: str) -> dict[str, Any]:
    return {"action": "labeldrop", "regex": names}


def _job(name: str) -> dict[str, Any]:
    return {"targetLabel": "job", "replacement": name}


def runs(scrape_seconds: int) -> Manifest:
    """The leading pod of every run, in whichever team's namespace.

    Pods of one template all name the port; only the first one of a gang answers on it.
    """
    index = _meta("batch.kubernetes.io/job-completion-index")
    return monitor(
        "PodMonitor",
        series.TRAINER_JOB,
        {
            "namespaceSelector": {"any": True},
            "selector": {"matchExpressions": [{"key": naming.RUN_ID, "operator": "Exists"}]},
            # Prometheus is everybody's: no run fills its memory.
            "sampleLimit": series.SAMPLES_OF_A_RUN,
            "podMetricsEndpoints": [
                {
                    "port": naming.METRICS_PORT_NAME,
                    "interval": f"{scrape_seconds}s",
                    "relabelings": [
                        {"sourceLabels": [index], "regex": "0?", "action": "keep"},
                        _job(series.TRAINER_JOB),
                        _copied("__meta_kubernetes_pod_node_name", "node"),
                        _copied(_meta(naming.RUN_ID), "run_id"),
                        _copied(_meta(naming.TEAM), "team"),
                    ],
                    # A run tells of itself only. Its id and team are its pod's labels, whatever it says.
                    "metricRelabelings": [
                        {
                            "sourceLabels": ["__name__"],
                            "regex": f"{series.OWN_PREFIX}.+",
                            "action": "keep",
                        },
                        _dropped_labels("exported_(run_id|team)"),
                    ],
                }
            ],
        },
    )


def gpus(exporter: str, scrape_seconds: int) -> Manifest:
    """DCGM's exporters. They say themselves which pod holds a GPU: `honorLabels` believes them."""
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
                        # prometheus-operator names the exporter's own pod, and a GPU that nobody holds would
                        # take that for its holder.
                        _dropped_labels("namespace|pod|container"),
                    ],
                }
            ],
        },
    )


def kueue(scrape_seconds: int) -> Manifest:
    """Kueue's controller, which asks who is there and has a certificate of its own making."""
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
                    "relabelings": [_job(series.KUEUE_JOB)],
                    # From 0.16 on each manager tells of the queues that it knows: a sum would count them twice.
                    "metricRelabelings": [
                        {"sourceLabels": ["replica_role"], "regex": "follower", "action": "drop"}
                    ],
                }
            ],
        },
    )
