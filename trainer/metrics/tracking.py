"""Send what a run logs to its MLflow server: `report.mlflow`. A failure never stops the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainer.preflight import RunRequest
from trainyard import contract, tracking


@contextmanager
def sent_to_mlflow(request: RunRequest, patient: Callable[[], bool]) -> Iterator[None]:
    """Run a process that sends it; `patient`: whether to wait at the end until the server has the rest."""
    report, record = request.config.report, request.record
    if report.mlflow is None:
        yield
        return
    own = {
        contract.TRACKING_URI_ENV: report.mlflow,
        contract.RUN_DIR_ENV: str(request.run_dir),
        contract.RUN_ID_ENV: str(record.get("run_id") or request.run_dir.resolve().name),
        contract.TEAM_ENV: str(record.get("team") or ""),
        tracking.EXPERIMENT_ENV: report.mlflow_experiment,
    }
    process = tracking.start(os.environ | own)
    try:
        yield
    finally:
        if process:
            tracking.close(process, tracking.CLOSE_S if patient() else 0)
