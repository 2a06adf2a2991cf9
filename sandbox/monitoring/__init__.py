"""Monitoring of a sandbox: Prometheus, kube-state-metrics and a simulated DCGM exporter.

`rbac.py` holds permissions, `scrape_config.py` the scrape configuration, `setup.py` command lines and files;
`exporter/` simulates DCGM.
"""

from __future__ import annotations

import json
import os

from sandbox import paths, supervisor
from sandbox.reporting import SandboxError

MONITORING_ENV = "SANDBOX_MONITORING"
"""`off` starts a sandbox without monitoring, as benchmarks and most tests do."""


def prometheus_url(state: paths.State) -> str | None:
    """Return the base URL of a sandbox's Prometheus; None without monitoring."""
    try:
        specs = json.loads(supervisor.services_file(state).read_text())
    except (OSError, ValueError):
        return None
    found = (spec["probe"]["url"] for spec in specs if spec["name"] == "prometheus")
    return next((str(url).removesuffix("/-/ready") for url in found), None)


def is_enabled() -> bool:
    """Whether monitoring is on. Raises SandboxError for a value other than on and off."""
    value = os.environ.get(MONITORING_ENV, "on")
    if value not in ("on", "off"):
        raise SandboxError(f"{MONITORING_ENV}: got {value!r}; must be on or off; unset it for on")
    return value == "on"
