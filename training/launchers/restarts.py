"""Restarts of ranks in their pods, by exit code: see trainyard/restarts.py and restart_budget.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from training.spec import RunSpec

STATE_FILE: Final = "restarts.json"
"""File of the run's directory with the count of failures."""


def state_file(run: RunSpec) -> str:
    return f"{run.run_dir}/{STATE_FILE}"


def has_one_pod(run: RunSpec) -> bool:
    """Return whether the run is one pod, which starts its ranks again itself.

    The pod of a replica group does not: the other groups train on, and it joins again as a new one.
    """
    return run.nodes == 1 and run.groups is None and run.job_kind in ("job", "jobset")


def counted(run: RunSpec, command: Sequence[str], *, leader: bool = False) -> list[str]:
    """Return the command under its parent process; the leader's pod is the one that counts failures.

    Pods of an indexed-job know by their index which of them leads.
    """
    return [
        *("python3", "-m", "trainyard.restarts"),
        f"--job-kind={run.job_kind}",
        f"--max-restarts={run.max_restarts}",
        f"--state={state_file(run)}",
        *(["--leader"] if leader else []),
        *([f"--port={naming.MPI_SSH_PORT}"] if run.job_kind == "mpijob" else []),
        "--",
        *command,
    ]
