"""MLflow tracking in a separate process that reads the run directory.

Not a thread: MLflow takes seconds to import and milliseconds per step, during which it would hold the
interpreter lock. The trainer starts the process and waits for it briefly at the end.
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
"""Timeout for sending the rest; longer than the process's own."""


class MlflowProcess:
    """The tracking process; it ends soon after this one, whatever the reason."""

    def __init__(
        self, run_dir: Path, report: ReportConfig, name: str, tags: Mapping[str, str]
    ) -> None:
        """Start it. Raises OSError."""
        assert report.mlflow is not None
        named = [word for pair in tags.items() for word in ("--tag", "=".join(pair))]
        # By PYTHONPATH and not by the working directory: relative files of the URI stay the user's.
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
        """End the process; with `patient`, wait until the rest is sent."""
        assert self._process.stdin
        self._process.stdin.close()
        if patient:
            try:
                self._process.wait(_FLUSH_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return
