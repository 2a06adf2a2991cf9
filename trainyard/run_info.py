"""Facts of the run that this process belongs to, from the variables that the platform sets."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from trainyard import contract
from trainyard.exit_codes import rank_of_environment


class RunInfo:
    """Facts of the run; outside a run those of a local process. Read anew at each access."""

    def use(
        self,
        run_dir: Path,
        *,
        checkpoint_store: str | None = None,
        record: Path | None = None,
        notice_seconds: float | None = None,
    ) -> None:
        """Have this process, and those that it starts, use these in place of what the platform has set."""
        os.environ[contract.RUN_DIR_ENV] = str(run_dir)
        os.environ[contract.CHECKPOINTS_ENV] = str(run_dir / contract.CHECKPOINTS_DIR)
        os.environ[contract.CHECKPOINT_STORE_ENV] = checkpoint_store or ""
        if record is not None:
            os.environ[contract.RUN_RECORD_ENV] = str(record)
        if notice_seconds is not None:
            os.environ[contract.NOTICE_SECONDS_ENV] = str(notice_seconds)

    @property
    def in_run(self) -> bool:
        """Whether the platform started this process."""
        return bool(self.run_id)

    @property
    def run_id(self) -> str:
        """NAME-vVERSION-HASH8; empty outside a run."""
        return _value(contract.RUN_ID_ENV)

    @property
    def run_dir(self) -> Path | None:
        """Folder of the run, shared by its nodes and kept between attempts; None outside a run."""
        folder = _value(contract.RUN_DIR_ENV)
        return Path(folder) if folder else None

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints; ./checkpoints outside a run."""
        return Path(_value(contract.CHECKPOINTS_ENV) or contract.CHECKPOINTS_DIR)

    @property
    def checkpoint_store(self) -> str | None:
        """s3://BUCKET/PREFIX where `save_async` puts checkpoints in place of the folder; None without."""
        return _value(contract.CHECKPOINT_STORE_ENV) or None

    @property
    def data(self) -> Path | None:
        """Folder of the dataset; None outside a run."""
        folder = _value(contract.DATA_ENV)
        return Path(folder) if folder else None

    @property
    def scratch(self) -> Path:
        """Folder for temporary files on this node."""
        return Path(_value(contract.SCRATCH_ENV) or tempfile.gettempdir())

    @property
    def attempt(self) -> int:
        """Restarts of the whole gang, 0 in the first attempt and where they are not counted."""
        return int(_value(contract.ATTEMPT_ENV) or 0)

    @property
    def nodes(self) -> int:
        return int(_value(contract.NODES_ENV) or 1)

    @property
    def rank(self) -> int:
        """This process's rank, from 0."""
        return rank_of_environment()

    @property
    def local_rank(self) -> int:
        """Its rank on its node, from 0."""
        return int(_value("LOCAL_RANK") or _value("OMPI_COMM_WORLD_LOCAL_RANK") or 0)

    @property
    def world_size(self) -> int:
        return int(_value("WORLD_SIZE") or _value("OMPI_COMM_WORLD_SIZE") or 1)

    @property
    def notice_seconds(self) -> float:
        """Seconds from a notice to the SIGKILL of the ranks."""
        given = float(_value(contract.NOTICE_SECONDS_ENV) or contract.DEFAULT_NOTICE_S)
        return max(1.0, given - contract.LAUNCHER_EXIT_S)

    @property
    def team(self) -> str:
        """Team of the run; empty outside a run."""
        return _value(contract.TEAM_ENV)

    @property
    def capacity_type(self) -> str:
        """How the node is bought: spot, on-demand or reserved; empty if unknown."""
        return _value(contract.CAPACITY_TYPE_ENV)

    @property
    def tracking_uri(self) -> str:
        """MLflow tracking server; empty without one."""
        return _value(contract.TRACKING_URI_ENV)

    def record(self) -> dict[str, Any]:
        """Return the run's origin (run.json); empty without one or if it is unreadable."""
        try:
            values = json.loads(Path(_value(contract.RUN_RECORD_ENV)).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}


run = RunInfo()
"""Facts of the run that this process belongs to."""


def _value(name: str) -> str:
    return os.environ.get(name, "")
