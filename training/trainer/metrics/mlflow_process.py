"""MLflow beside the run: a process of its own that reads the run directory.

Not a thread: MLflow takes seconds to import and milliseconds per step, and in this process each of
them would hold the interpreter while a step wants it. The trainer starts it, and at the end waits
for it a little; it never talks to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from training.trainer.config import ReportConfig

_PROJECT = Path(__file__).resolve().parents[3]
_FLUSH_TIMEOUT_S = 12.0
"""For what is not sent when the run is done; more than the process gives itself."""


class MlflowProcess:
    """The process; it ends by itself soon after this one does, however that happens."""

    def __init__(
        self, run_dir: Path, report: ReportConfig, name: str, tags: Mapping[str, str]
    ) -> None:
        """Start it. Raises OSError."""
        assert report.mlflow is not None
        named = [word for pair in tags.items() for word in ("--tag", "=".join(pair))]
        # Only found there when this program is: relative files of the URI stay the user's.
        paths = os.pathsep.join(filter(None, (str(_PROJECT), os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "training.tracking", str(run_dir), "--follow"),
                *("--uri", report.mlflow, "--experiment", report.mlflow_experiment),
                *("--name", name, *named),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def close(self, *, patient: bool) -> None:
        """The run directory is complete; wait for the rest to be sent when there is time for it."""
        assert self._process.stdin
        self._process.stdin.close()
        if patient:
            try:
                self._process.wait(_FLUSH_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return
