"""Restarts by exit code for operators that treat all exit codes alike: see trainyard/restarts.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from training.spec import RunSpec

STATE_FILE: Final = "restarts.json"
"""File of the run's directory with the count of failures."""


def counted(run: RunSpec, command: Sequence[str], *, leader: bool = False) -> list[str]:
    """Return the command under its parent process; the leader's pod is the one that counts failures.

    Pods of an indexed-job know by their index which of them leads.
    """
    return [
        *("python3", "-m", "trainyard.restarts"),
        f"--job-kind={run.job_kind}",
        f"--max-restarts={run.max_restarts}",
        f"--state={run.run_dir}/{STATE_FILE}",
        *(["--leader"] if leader else []),
        *([f"--port={naming.MPI_SSH_PORT}"] if run.job_kind == "mpijob" else []),
        "--",
        *command,
    ]
