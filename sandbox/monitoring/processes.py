"""The processes that watch, as the supervisor starts them."""

from __future__ import annotations

import sys
from pathlib import Path

from infra.observability import series
from sandbox import paths
from sandbox.ports import LOOPBACK
from sandbox.services import CODE_ENV, Service, Setting, digest

RETENTION = "1d"
RETENTION_SIZE = "512MB"
CONFIGURATION = "prometheus.yaml"
RULES = "rules.yaml"
TOKEN = "prometheus.token"


def services(at: Setting) -> list[Service]:
    """They may start in any order once the API server is ready."""
    return [_state_metrics(at), _gpu_exporter(at), _prometheus(at)]


def _prometheus(at: Setting) -> Service:
    files = [Path(at.config(CONFIGURATION)), Path(at.config(RULES))]
    argv = [
        at.binary("prometheus"),
        f"--config.file={files[0]}",
        f"--storage.tsdb.path={at.state.home / 'prometheus'}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--storage.tsdb.retention.size={RETENTION_SIZE}",
        f"--web.listen-address={LOOPBACK}:{at.ports['prometheus']}",
        "--log.level=warn",
    ]
    # Another digest starts it anew with the new rules; what it stored stays.
    env = {CODE_ENV: digest(files)}
    return Service("prometheus", argv, at.http("prometheus", "/-/ready"), env)


def _state_metrics(at: Setting) -> Service:
    argv = [
        at.binary("kube-state-metrics"),
        f"--kubeconfig={at.kubeconfig('kube-state-metrics')}",
        f"--host={LOOPBACK}",
        f"--port={at.ports['kube-state-metrics']}",
        f"--telemetry-host={LOOPBACK}",
        f"--telemetry-port={at.ports['kube-state-metrics-self']}",
        f"--resources={','.join(series.STATE_RESOURCES)}",
        f"--metric-labels-allowlist={series.allowlist()}",
    ]
    return Service("kube-state-metrics", argv, at.http("kube-state-metrics", "/healthz"))


def _gpu_exporter(at: Setting) -> Service:
    argv = [sys.executable, "-m", "sandbox.monitoring.exporter"]
    argv.append(f"--port={at.ports['gpu-exporter']}")
    code = [
        *(paths.PROJECT / "sandbox" / "monitoring").rglob("*.py"),
        *(paths.PROJECT / "infra" / "observability").glob("*.py"),
    ]
    env = {
        "KUBECONFIG": at.kubeconfig("gpu-exporter"),
        "SANDBOX_HOME": str(at.state.home),
        "PYTHONPATH": str(paths.PROJECT),
        "PYTHONUNBUFFERED": "1",
        CODE_ENV: digest(sorted(code)),
    }
    return Service("gpu-exporter", argv, at.http("gpu-exporter", "/healthz"), env)
