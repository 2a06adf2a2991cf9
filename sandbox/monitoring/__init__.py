"""What watches a sandbox: Prometheus, kube-state-metrics, and an exporter of ours for simulated GPUs.

`rbac.py` says who may read what, `scrape_config.py` what Prometheus asks, `processes.py` which processes
run, `prometheus_client.py` reads what came of it; `exporter/` and `gpu_faults.py` stand in for DCGM.
"""

from __future__ import annotations

import os

MONITORING_ENV = "SANDBOX_MONITORING"
"""`off` leaves all of it out of what `sandbox up` starts: benchmarks and most tests need none of it."""


class MonitoringError(Exception):
    """What was asked for cannot be; one line for the user."""


def is_enabled() -> bool:
    """Whether a sandbox that is brought up now is watched. Raises MonitoringError for another value."""
    value = os.environ.get(MONITORING_ENV, "on")
    if value not in ("on", "off"):
        raise MonitoringError(
            f"{MONITORING_ENV}: got {value!r}; allowed on or off; unset it for on"
        )
    return value == "on"
