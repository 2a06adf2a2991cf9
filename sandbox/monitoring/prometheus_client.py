"""Where a sandbox's Prometheus is, and what it says."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from sandbox import paths, supervisor
from sandbox.monitoring import MonitoringError

TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One alert that fires."""

    name: str
    severity: str
    labels: str
    """Its other labels, as NAME=VALUE."""
    summary: str


def prometheus_url(state: paths.State) -> str | None:
    """Prometheus' address; None where a sandbox is not watched."""
    try:
        specs = json.loads(supervisor.services_file(state).read_text())
    except (OSError, ValueError):
        return None
    for spec in specs:
        if spec["name"] == "prometheus":
            return str(spec["probe"]["url"]).removesuffix("/-/ready")
    return None


def firing_alerts(base: str) -> list[Alert]:
    """What fires now, most urgent first. Raises MonitoringError."""
    found = [
        _alert(one["labels"], one.get("annotations") or {})
        for one in _get_alerts(base)
        if one["state"] == "firing"
    ]
    return sorted(found, key=lambda alert: (alert.severity != "page", alert.name, alert.labels))


def _alert(labels: dict[str, str], annotations: dict[str, str]) -> Alert:
    known = ("alertname", "severity", "owner")
    return Alert(
        name=labels["alertname"],
        severity=labels.get("severity", ""),
        labels=" ".join(f"{k}={v}" for k, v in sorted(labels.items()) if k not in known),
        summary=annotations.get("summary", ""),
    )


def _get_alerts(base: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{base}/api/v1/alerts", timeout=TIMEOUT_S) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
            return found
    except (OSError, ValueError, KeyError) as error:
        raise MonitoringError(f"Prometheus at {base} does not answer: {error}") from error
