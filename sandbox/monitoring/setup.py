"""Monitoring processes: command lines, configuration files and Prometheus' token."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from infra.observability import series
from infra.observability.alerts import rule_file
from sandbox import paths
from sandbox.monitoring import rbac, scrape_config
from sandbox.ports import LOOPBACK
from sandbox.services import CODE_ENV, ClusterSettings, Service, digest

RETENTION = "1d"
RETENTION_SIZE = "512MB"
CONFIGURATION = "prometheus.yaml"
RULES = "rules.yaml"
TOKEN = "prometheus.token"
RENEW_AFTER_S = rbac.TOKEN_HOURS * 3600 * 11 / 12


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
    read = scrape_config.Files(
        ca=settings.ca, token=token_file(settings), rules=Path(settings.config(RULES))
    )
    return {
        CONFIGURATION: scrape_config.prometheus_config(settings.ports, read),
        RULES: _with_fast_evaluation(rule_file(scrape_config.rule_facts())),
    }


def _with_fast_evaluation(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules with the sandbox's evaluation interval; `for` durations stay the same."""
    groups = [group | {"interval": scrape_config.SCRAPE_INTERVAL} for group in rules["groups"]]
    return {"groups": groups}


def token_file(settings: ClusterSettings) -> Path:
    return settings.state.pki / TOKEN


def token_is_due(settings: ClusterSettings) -> bool:
    """Whether the token is missing or past 11/12 of its lifetime."""
    try:
        return time.time() - token_file(settings).stat().st_mtime > RENEW_AFTER_S
    except OSError:
        return True
