"""MLflow tracking in a separate process that reads the run directory.

Not a thread: requests to a server would hold the interpreter lock now and then, and importing MLflow takes
seconds. The process ends soon after the one that started it, whatever the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trainyard import contract
from trainyard.tracking.sending import EXPERIMENT, FLUSH_S

PROGRAMS: Final = "trainyard.tracking"
"""Module that knows tracking servers only, and needs nothing but Python."""
_IMPORTED_FROM: Final = Path(__file__).resolve().parents[2]
"""The checkout, or the zip in a run's ConfigMap."""
_FLUSH_TIMEOUT_S: Final = FLUSH_S + 2.0
"""Timeout for sending the rest; longer than the process's own."""
EXPERIMENT_ENV: Final = "MLFLOW_EXPERIMENT_NAME"
"""MLflow's own variable."""


class TrackingProcess:
    """Sends what the run writes, until `close`."""

    def __init__(
        self,
        run_dir: Path,
        uri: str,
        name: str,
        tags: Mapping[str, str],
        *,
        module: str = PROGRAMS,
        experiment: str = EXPERIMENT,
        wait_for_metrics: bool = False,
    ) -> None:
        """Start it; see sending.py for the arguments. Raises OSError."""
        words = [word for pair in tags.items() for word in ("--tag", "=".join(pair))]
        if wait_for_metrics:
            words.append("--wait-for-metrics")
        # By PYTHONPATH and not by the working directory: relative files of the URI stay the user's.
        paths = filter(None, (str(_IMPORTED_FROM), os.environ.get("PYTHONPATH", "")))
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", module, str(run_dir), "--follow"),
                *("--uri", uri, "--experiment", experiment, "--name", name, *words),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )

    @classmethod
    def of_program(cls, environment: Mapping[str, str]) -> TrackingProcess | None:
        """Start that of a program's run; None without a tracking server, or if it cannot start.

        An MLflow run is created with the first line that `trainyard.log` writes: a program with a client of its
        own has one already.
        """
        uri = environment.get(contract.TRACKING_URI_ENV)
        run_dir = environment.get(contract.RUN_DIR_ENV)
        if not uri or not run_dir:
            return None
        run_id = environment.get(contract.RUN_ID_ENV) or Path(run_dir).name
        facts = {"run_id": run_id, "team": environment.get(contract.TEAM_ENV, "")}
        try:
            Path(run_dir).mkdir(parents=True, exist_ok=True)
            return cls(
                Path(run_dir),
                uri,
                run_id,
                {f"trainyard.{key}": value for key, value in facts.items() if value},
                experiment=environment.get(EXPERIMENT_ENV) or EXPERIMENT,
                wait_for_metrics=True,
            )
        except OSError as error:
            print(f"cannot start MLflow tracking: {error}", file=sys.stderr, flush=True)
            return None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close(self, seconds: float = _FLUSH_TIMEOUT_S) -> None:
        """End the process; wait until the rest is sent, for this long at most. 0: do not wait.

        What a killed process did not send is sent by the next attempt.
        """
        assert self._process.stdin
        self._process.stdin.close()
        if seconds > 0:
            try:
                self._process.wait(min(seconds, _FLUSH_TIMEOUT_S))
            except subprocess.TimeoutExpired:
                self._process.kill()
