"""Monitoring processes: command lines, configuration files and Prometheus' token."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any, Final

from infra.domain import catalog, naming
from infra.observability import series
from infra.observability.alerts import rule_file
from infra.observability.recording import Facts, NodePrice
from sandbox import paths
from sandbox.ports import LOOPBACK
from sandbox.services import CODE_ENV, ClusterSettings, Service, digest

Document = dict[str, Any]

SCRAPE_INTERVAL: Final = "5s"
"""Short, for interactive use; other clusters scrape every 30 s."""
APISERVER_SCRAPE_INTERVAL: Final = "15s"
"""A scrape of all its metrics takes it about 0.1 s."""
RETENTION = "1d"
RETENTION_SIZE = "512MB"
CONFIGURATION = "prometheus.yaml"
RULES = "rules.yaml"
TOKEN = "prometheus.token"
TOKEN_HOURS: Final = 24 * 365
RENEW_AFTER_S = TOKEN_HOURS * 3600 * 11 / 12


def monitoring_services(settings: ClusterSettings) -> list[Service]:
    return [_state_metrics(settings), _gpu_exporter(settings), _prometheus(settings)]


def _prometheus(settings: ClusterSettings) -> Service:
    files = [Path(settings.config(CONFIGURATION)), Path(settings.config(RULES))]
    argv = [
        settings.binary("prometheus"),
        f"--config.file={files[0]}",
        f"--storage.tsdb.path={settings.state.home / 'prometheus'}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--storage.tsdb.retention.size={RETENTION_SIZE}",
        f"--web.listen-address={LOOPBACK}:{settings.ports['prometheus']}",
        "--log.level=warn",
    ]
    # A changed digest restarts it with the new rules; stored data stays.
    env = {CODE_ENV: digest(files)}
    return Service("prometheus", argv, settings.http("prometheus", "/-/ready"), env)


def _state_metrics(settings: ClusterSettings) -> Service:
    config = settings.kubeconfig("kube-state-metrics")
    argv = [
        settings.binary("kube-state-metrics"),
        f"--kubeconfig={config}",
        f"--host={LOOPBACK}",
        f"--port={settings.ports['kube-state-metrics']}",
        f"--telemetry-host={LOOPBACK}",
        f"--telemetry-port={settings.ports['kube-state-metrics-self']}",
        f"--resources={','.join(series.STATE_RESOURCES)}",
        f"--metric-labels-allowlist={series.allowlist()}",
    ]
    env = {CODE_ENV: digest([Path(config)])}
    return Service("kube-state-metrics", argv, settings.http("kube-state-metrics", "/healthz"), env)


def _gpu_exporter(settings: ClusterSettings) -> Service:
    argv = [sys.executable, "-m", "sandbox.monitoring.exporter"]
    argv.append(f"--port={settings.ports['gpu-exporter']}")
    code = [
        *(paths.PROJECT / "sandbox" / "monitoring").rglob("*.py"),
        *(paths.PROJECT / "infra" / "observability").glob("*.py"),
    ]
    env = {
        "KUBECONFIG": settings.kubeconfig("gpu-exporter"),
        "SANDBOX_HOME": str(settings.state.home),
        "PYTHONPATH": str(paths.PROJECT),
        "PYTHONUNBUFFERED": "1",
        CODE_ENV: digest([Path(settings.kubeconfig("gpu-exporter")), *sorted(code)]),
    }
    return Service("gpu-exporter", argv, settings.http("gpu-exporter", "/healthz"), env)


def config_files(settings: ClusterSettings) -> dict[str, dict[str, Any]]:
    return {
        CONFIGURATION: prometheus_config(settings),
        RULES: _with_fast_evaluation(rule_file(rule_facts())),
    }


def _with_fast_evaluation(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules with the sandbox's evaluation interval; `for` durations stay the same."""
    groups = [group | {"interval": SCRAPE_INTERVAL} for group in rules["groups"]]
    return {"groups": groups}


def token_file(settings: ClusterSettings) -> Path:
    return settings.state.pki / TOKEN


def token_is_due(settings: ClusterSettings) -> bool:
    """Whether the token is missing or past 11/12 of its lifetime."""
    try:
        return time.time() - token_file(settings).stat().st_mtime > RENEW_AFTER_S
    except OSError:
        return True


def prometheus_config(settings: ClusterSettings) -> Document:
    return {
        "global": {
            "scrape_interval": SCRAPE_INTERVAL,
            "scrape_timeout": SCRAPE_INTERVAL,
            "evaluation_interval": SCRAPE_INTERVAL,
        },
        "rule_files": [settings.config(RULES)],
        "scrape_configs": [
            _runs(series.TRAINER_JOB, series.OWN_PREFIX, settings),
            {
                **_runs(series.CULPRITS_JOB, series.CULPRITS_PREFIX, settings),
                "metrics_path": series.CULPRITS_PATH,
                "scrape_interval": series.CULPRITS_INTERVAL,
                "scrape_timeout": series.CULPRITS_INTERVAL,
            },
            _gpus(settings),
            _logs(settings),
            _kueue(settings),
            _apiserver(settings),
            _static_job(series.STATE_JOB, settings.ports["kube-state-metrics"], honor_labels=True),
            _loop(series.COSTS_JOB, naming.COSTS_NAMESPACE, naming.COSTS_ACCOUNT, settings),
            _loop(
                series.STEERING_JOB,
                naming.STEERING_NAMESPACE,
                naming.STEERING_ACCOUNT,
                settings,
            ),
        ],
    }


def rule_facts() -> Facts:
    """Facts for rules of a sandbox: prices of all instance types, since any can be simulated."""
    region = catalog.DEFAULT_REGION
    found = []
    for name, one in sorted(catalog.load().types.items()):
        price = one.prices.get(region, catalog.Price())
        offers = {"on-demand": price.on_demand_usd_hour, "spot": price.spot_usd_hour}
        found += [
            NodePrice(instance_type=name, capacity=capacity, usd_per_hour=usd)
            for capacity, usd in offers.items()
            if usd is not None
        ]
    return Facts(prices=tuple(found))


def _runs(job: str, prefix: str, settings: ClusterSettings) -> Document:
    """Job for the first pod of every run, at its loopback address; it keeps metrics of a prefix."""
    pod = "__meta_kubernetes_pod"
    index = _pod_label(naming.JOB_INDEX)
    return {
        "job_name": job,
        "kubernetes_sd_configs": [_pods(settings, naming.RUN_ID)],
        "relabel_configs": [
            _keep(f"{pod}_container_port_name", naming.METRICS_PORT_NAME),
            _keep(f"{pod}_phase", "Running"),
            # Pods on KWOK nodes have addresses, but no processes.
            _keep(f"{pod}_ip", r"127\..+"),
            # All pods of a template declare the port; rank 0 is in the first pod.
            _keep(index, "0?"),
            _copy("__meta_kubernetes_namespace", "namespace"),
            _copy(f"{pod}_name", "pod"),
            _copy(f"{pod}_node_name", "node"),
            _copy(_pod_label(naming.RUN_ID), "run_id"),
            _copy(_pod_label(naming.TEAM), "team"),
        ],
        "sample_limit": series.SAMPLES_OF_A_RUN,
        # A run exports only its own series; run_id and team always come from the pod's labels.
        "metric_relabel_configs": [
            _keep("__name__", f"{prefix}.+"),
            {
                "source_labels": ["__name__"],
                "regex": series.NOT_OF_RUNS,
                "action": "drop",
            },
            {"action": "labeldrop", "regex": "exported_(run_id|team)"},
        ],
    }


def _pods(settings: ClusterSettings, label: str, **more: Any) -> Document:
    return {
        "role": "pod",
        "api_server": f"https://{LOOPBACK}:{settings.ports['apiserver']}",
        "selectors": [{"role": "pod", "label": label}],
        **_credentials(settings, scheme=False),
        **more,
    }


def _loop(job: str, namespace: str, name: str, settings: ClusterSettings) -> Document:
    label = f"app.kubernetes.io/name={name}"
    only = {"names": [namespace]}
    pod = "__meta_kubernetes_pod"
    return {
        "job_name": job,
        "kubernetes_sd_configs": [_pods(settings, label, namespaces=only)],
        "relabel_configs": [
            _keep(f"{pod}_container_port_name", naming.METRICS_PORT_NAME),
            _keep(f"{pod}_phase", "Running"),
            _keep(f"{pod}_ip", r"127\..+"),
        ],
    }


def _kueue(settings: ClusterSettings) -> Document:
    """Job for Kueue's pod, which authenticates clients and serves a self-signed certificate."""
    return {
        **_loop(series.KUEUE_JOB, naming.KUEUE_NAMESPACE, "kueue", settings),
        **_credentials(settings),
        "tls_config": {"insecure_skip_verify": True},
    }


def _gpus(settings: ClusterSettings) -> Document:
    """Job for the exporter of all nodes: a GPU's node is its `Hostname` label."""
    rule = _copy("Hostname", "node")
    return _static_job(
        series.DCGM_JOB,
        settings.ports["gpu-exporter"],
        honor_labels=True,
        metric_relabel_configs=[rule],
    )


def _logs(settings: ClusterSettings) -> Document:
    """Job for the counts of log patterns, from the same process."""
    return _static_job(
        "logs", settings.ports["gpu-exporter"], honor_labels=True, metrics_path="/logs"
    )


def _apiserver(settings: ClusterSettings) -> Document:
    used = sorted(name for name in series.ALL if name.startswith("apiserver_"))
    return _static_job(
        series.APISERVER_JOB,
        settings.ports["apiserver"],
        scrape_interval=APISERVER_SCRAPE_INTERVAL,
        metric_relabel_configs=[_keep("__name__", "|".join(used))],
        **_credentials(settings),
    )


def _static_job(job: str, port: int, **more: Any) -> Document:
    targets = [{"targets": [f"{LOOPBACK}:{port}"]}]
    return {"job_name": job, "static_configs": targets, **more}


def _credentials(settings: ClusterSettings, *, scheme: bool = True) -> Document:
    return {
        **({"scheme": "https"} if scheme else {}),
        "authorization": {"credentials_file": str(token_file(settings))},
        "tls_config": {"ca_file": str(settings.ca)},
    }


def _pod_label(key: str) -> str:
    return f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}"


def _keep(source: str, pattern: str) -> Document:
    return {"source_labels": [source], "regex": pattern, "action": "keep"}


def _copy(source: str, target: str) -> Document:
    return {"source_labels": [source], "target_label": target}
