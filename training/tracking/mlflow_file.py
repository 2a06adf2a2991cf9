"""MLflow's own store in an sqlite file, behind the few calls that are needed; importing it takes seconds."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

from trainyard.tracking.mlflow_sync import Point

# Before the import: nothing is reported to anyone else.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException

_PARAMETERS_PER_REQUEST = 100


class MlflowFile:
    """Implements `mlflow_sync.TrackingServer` for sqlite:///FILE."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @functools.cached_property
    def _client(self) -> MlflowClient:
        return MlflowClient(tracking_uri=self._uri)

    def has_run(self, run_id: str) -> bool:
        """Whether the run is there and not deleted."""
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def create_run(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        """A new run; the experiment is made when missing."""
        found = self._client.get_experiment_by_name(experiment)
        number = found.experiment_id if found else self._client.create_experiment(experiment)
        run = self._client.create_run(number, run_name=name, tags=dict(tags))
        return str(run.info.run_id)

    def log_params(self, run_id: str, parameters: Mapping[str, str]) -> None:
        """Parameters; MLflow takes a hundred at once."""
        named = [Param(key, value) for key, value in parameters.items()]
        for first in range(0, len(named), _PARAMETERS_PER_REQUEST):
            batch = named[first : first + _PARAMETERS_PER_REQUEST]
            self._client.log_batch(run_id, params=batch)

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Numbers, each with the time it was measured."""
        metrics = [Metric(p.key, p.value, p.unix_ms, p.step) for p in points]
        self._client.log_batch(run_id, metrics=metrics)

    def set_status(self, run_id: str, status: str) -> None:
        """RUNNING and SCHEDULED go on; FINISHED and FAILED have an end."""
        if status in ("FINISHED", "FAILED"):
            self._client.set_terminated(run_id, status)
        else:
            self._client.update_run(run_id, status=status)
        self._client.log_batch(run_id, tags=[RunTag("trainyard.status", status)])
