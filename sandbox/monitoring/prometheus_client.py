"""Client of a sandbox's Prometheus."""

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
    """One firing alert."""

    name: str
    severity: str
    labels: str
    """Labels other than name, severity and owner, as NAME=VALUE."""
    summary: str


def prometheus_url(state: paths.State) -> str | None:
    """Return Prometheus' base URL; None without monitoring."""
    try:
        specs = json.loads(supervisor.services_file(state).read_text())
    except (OSError, ValueError):
        return None
    for spec in specs:
        if spec["name"] == "prometheus":
            return str(spec["probe"]["url"]).removesuffix("/-/ready")
    return None


def firing_alerts(base: str) -> list[Alert]:
    """Return the firing alerts, most urgent first. Raises MonitoringError."""
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
        raise MonitoringError(f"{base}: Prometheus does not answer: {error}") from error
