"""MLflow's REST API, in the few calls that are needed."""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainyard.tracking.mlflow_sync import Point

TIMEOUT_S: Final = 10.0
"""For each request; a server that does not answer is known to be away within this time."""
_PARAMETERS_PER_REQUEST: Final = 100
_API: Final = "api/2.0/mlflow"
_ENDED: Final = ("FINISHED", "FAILED")


class RestError(OSError):
    """The server refused a request. `code`: MLflow's name of the reason, such as RESOURCE_DOES_NOT_EXIST."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class RestServer:
    """Implements `mlflow_sync.TrackingServer` for http:// and https://.

    Credentials are those of MLflow's own variables: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and
    MLFLOW_TRACKING_PASSWORD; MLFLOW_TRACKING_SERVER_CERT_PATH names another CA.
    """

    def __init__(self, uri: str) -> None:
        self._base = uri.rstrip("/")

    def has_run(self, run_id: str) -> bool:
        """Whether the run is there and not deleted."""
        try:
            found = self._call("GET", "runs/get", {"run_id": run_id})
        except RestError as error:
            if error.code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        return bool(found["run"]["info"]["lifecycle_stage"] == "active")

    def create_run(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        """A new run; the experiment is made when missing."""
        values = {
            "experiment_id": self._experiment(experiment),
            "run_name": name,
            "start_time": _now_ms(),
            "tags": _pairs(tags),
        }
        return str(self._call("POST", "runs/create", values)["run"]["info"]["run_id"])

    def log_params(self, run_id: str, parameters: Mapping[str, str]) -> None:
        """Parameters; MLflow takes a hundred at once."""
        named = _pairs(parameters)
        for first in range(0, len(named), _PARAMETERS_PER_REQUEST):
            batch = named[first : first + _PARAMETERS_PER_REQUEST]
            self._call("POST", "runs/log-batch", {"run_id": run_id, "params": batch})

    def log_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Numbers, each with the time it was measured."""
        metrics = [
            {"key": p.key, "value": _number(p.value), "timestamp": p.unix_ms, "step": p.step}
            for p in points
        ]
        self._call("POST", "runs/log-batch", {"run_id": run_id, "metrics": metrics})

    def set_status(self, run_id: str, status: str) -> None:
        """RUNNING and SCHEDULED go on; FINISHED and FAILED have an end."""
        end = {"end_time": _now_ms()} if status in _ENDED else {}
        self._call("POST", "runs/update", {"run_id": run_id, "status": status, **end})
        tags = _pairs({"trainyard.status": status})
        self._call("POST", "runs/log-batch", {"run_id": run_id, "tags": tags})

    def _experiment(self, name: str) -> str:
        try:
            found = self._call("GET", "experiments/get-by-name", {"experiment_name": name})
        except RestError as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return str(self._call("POST", "experiments/create", {"name": name})["experiment_id"])
        return str(found["experiment"]["experiment_id"])

    def _call(self, method: str, path: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer. Raises RestError if the server refuses, OSError if it is away."""
        url, body = f"{self._base}/{_API}/{path}", None
        if method == "GET":
            url += f"?{urllib.parse.urlencode(values)}"
        else:
            body = json.dumps(values).encode()
        if not url.startswith(("http://", "https://")):
            raise RestError(f"{self._base}: must begin with http:// or https://", "INVALID")
        headers = {"Content-Type": "application/json", **_authorization()}
        request = urllib.request.Request(url, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=_context()) as answer:
                found = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise _refusal(path, error) from None
        return found if isinstance(found, dict) else {}


def _refusal(path: str, error: urllib.error.HTTPError) -> RestError:
    try:
        said = json.loads(error.read())
        code, text = str(said["error_code"]), str(said.get("message", ""))
    except (OSError, ValueError, KeyError, TypeError):
        code, text = "", str(error.reason)
    return RestError(f"{path}: HTTP {error.code} {code} {text}".rstrip(), code)


def _authorization() -> dict[str, str]:
    if token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    user = os.environ.get("MLFLOW_TRACKING_USERNAME")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD")
    if not user or password is None:
        return {}
    words = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {words}"}


def _context() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _number(value: float) -> float | str:
    """Return a number, or the word that JSON has for none: MLflow's API refuses bare NaN and Infinity."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _now_ms() -> int:
    return int(time.time() * 1000)
