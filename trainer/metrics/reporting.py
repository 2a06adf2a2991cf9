"""Start the Prometheus endpoint and MLflow tracking of a run; failures never stop the run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from trainer.config.settings import ReportConfig
from trainer.loop import Run
from trainer.preflight import RunRequest
from trainyard import contract, tracking
from trainyard.prometheus import RunCollector
from trainyard.reporting import serve


class Reports:
    """Reporters of one attempt; none on ranks other than the leader."""

    def __init__(self, run: Run, request: RunRequest) -> None:
        self._tracker: subprocess.Popen[bytes] | None = None
        self._close_endpoint: Callable[[], None] | None = None
        report = run.config.report
        if run.world.is_leader:
            self._close_endpoint = _endpoint(run, request)
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


def metrics_place(report: ReportConfig) -> tuple[int | None, str | None]:
    """Return port and address to serve metrics on: the platform's, else the configured ones.

    No port: metrics are not served. No address: the pod's.
    """
    if port := os.environ.get(contract.METRICS_PORT_ENV):
        return int(port), None
    return report.prometheus_port, report.prometheus_address


def _endpoint(run: Run, request: RunRequest) -> Callable[[], None] | None:
    port, address = metrics_place(run.config.report)
    if not port:
        return None
    collector = RunCollector(
        run.meter.totals,
        labels(request.record, request.run_dir),
        folder=request.run_dir,
        attempt=run.attempt,
        steps=run.config.steps,
        groups=run.config.groups.max,
        record=request.record,
    )
    return serve(collector, run.events, port, address)


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
