"""Build the tools of monitoring in the background, so that the first run need not wait for them.

`make up` starts `python -m sandbox monitor` and does not wait for it. If that process is killed, the next
`make up` starts it again; the builds continue where they stopped.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandbox import paths, process
from sandbox.process import Process

NICENESS = 19
LOG = "build-monitoring.log"


def start(state: paths.State) -> str:
    """Start the process unless it runs; return one line for the user."""
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
