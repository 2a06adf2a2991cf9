"""Start the Prometheus endpoint and MLflow tracking of a run; failures never stop the run."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from trainer.config.settings import ReportConfig
from trainer.loop import Run
from trainer.preflight import RunRequest
from trainyard import contract, tracking
from trainyard.watchdog import watchdog


class Reports:
    """Reporters of one attempt; none on ranks other than the leader."""

    def __init__(self, run: Run, request: RunRequest) -> None:
        self._tracker: subprocess.Popen[bytes] | None = None
        self._close_endpoint: Callable[[], None] | None = None
        report = run.config.report
        if run.world.is_leader and (port := metrics_port(report)):
            self._close_endpoint = _endpoint(run, request, port)
        if not self._close_endpoint:
            run.events.listen(None)
        if run.world.is_leader and report.mlflow is not None:
            self._tracker = _tracker(run, request)

    def close(self, *, patient: bool) -> None:
        """Close all reporters; `patient` waits for MLflow to receive the rest."""
        if self._close_endpoint:
            self._close_endpoint()
        if self._tracker:
            tracking.close(self._tracker, tracking.CLOSE_S if patient else 0)


def labels(record: dict[str, object], run_dir: Path) -> dict[str, str]:
    """Return run id and team from the run record; the folder's name without one."""
    run_id = record.get("run_id") or run_dir.resolve().name
    return {"run_id": str(run_id), "team": str(record.get("team") or "")}


def metrics_port(report: ReportConfig) -> int | None:
    """Return the port to serve metrics on: the platform's, else the configured one; None for none."""
    configured = os.environ.get(contract.METRICS_PORT_ENV)
    return int(configured) if configured else report.prometheus_port


def metrics_address(report: ReportConfig) -> str:
    """Return the address to listen on. Raises OSError when the host name does not resolve."""
    if contract.METRICS_PORT_ENV not in os.environ:
        return report.prometheus_address
    configured = os.environ.get(contract.METRICS_ADDRESS_ENV)
    return configured or socket.gethostbyname(socket.gethostname())


def _endpoint(run: Run, request: RunRequest, port: int) -> Callable[[], None] | None:
    from trainyard.prometheus import RunCollector, start_server

    collector = RunCollector(
        run.meter.totals,
        labels(request.record, request.run_dir),
        folder=request.run_dir,
        attempt=run.attempt,
        steps=run.config.steps,
        groups=run.config.groups.max,
        record=request.record,
    )
    address = metrics_address(run.config.report)
    try:
        close = start_server(collector, address, port)
    except OSError as error:
        why = error.strerror or error
        run.display.log(f"cannot serve Prometheus metrics at {address}:{port}: {why}")
        return None
    run.events.listen(collector.observe)
    watchdog.on_culprit(collector.add_culprit)
    return close


def _tracker(run: Run, request: RunRequest) -> subprocess.Popen[bytes] | None:
    report, named = run.config.report, labels(request.record, request.run_dir)
    assert report.mlflow is not None
    own = {
        contract.TRACKING_URI_ENV: report.mlflow,
        contract.RUN_DIR_ENV: str(request.run_dir),
        contract.RUN_ID_ENV: named["run_id"],
        contract.TEAM_ENV: named["team"],
        tracking.EXPERIMENT_ENV: report.mlflow_experiment,
    }
    return tracking.start(os.environ | own)
