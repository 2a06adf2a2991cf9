"""Monitoring of a sandbox: Prometheus, kube-state-metrics and a simulated DCGM exporter.

`setup.py` has command lines and the scrape configuration, `exporter/` simulates DCGM.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from sandbox import paths, process, supervisor
from sandbox.process import Process
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


NICENESS = 19
LOG = "build-monitoring.log"


def start_later(state: paths.State) -> str:
    """Build the tools of monitoring in the background; return one line for the user.

    So the first run need not wait for them. If the process is killed, the next `make up` starts it again; the
    builds continue where they stopped.
    """
    log = state.logs / LOG
    if not (known := background_process(state)) or not known.alive:
        log.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "sandbox", "monitor"]
        env = dict(os.environ) | {"SANDBOX_HOME": str(state.home), "PYTHONUNBUFFERED": "1"}
        process.save(_pid_file(state), process.spawn(argv, env, paths.PROJECT, log))
    return (
        "Monitoring: its tools are being built in the background at low priority, and it starts when"
        f" they are ready; log: {log}"
    )


def background_process(state: paths.State) -> Process | None:
    """Return the process, which may have ended; None if none was started."""
    return process.load(_pid_file(state))


def _pid_file(state: paths.State) -> Path:
    return state.home / "monitor.json"
