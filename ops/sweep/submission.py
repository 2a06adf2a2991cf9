"""Read a sweep's run file and the stack that it is for. The only module of ops that renders runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.config import ConfigError, stack_values
from infra.domain import naming
from ops.objects import Json
from training.deployment import lineage, plan, submission, sweep_files
from training.sweep.asha import Asha
from training.sweep.state import SweepState

ROOT = Path(__file__).resolve().parents[2]


class SweepFileError(Exception):
    """A stack file or a run file has issues; the text has one line for each."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A sweep that can be submitted."""

    state: SweepState
    namespace: str
    asha: Asha | None
    manifests: Callable[[str], list[Json]]
    """Objects of a run by its id."""


def load(file: Path, stack: str, root: Path = ROOT) -> Submission:
    """Return the sweep of a run file on a stack of the project at `root`. Raises SweepFileError."""
    try:
        values = {**stack_values(root / f"Pulumi.{stack}.yaml"), "runs": []}
        planned = plan.make(values, stack, root, preview=False)
        sweep = sweep_files.load(file.resolve(), planned.platform, planned.images, root)
    except ConfigError as error:
        raise SweepFileError(str(error)) from None
    commit, launch = lineage.git_commit(root), lineage.launch(root)
    return Submission(
        state=sweep.state,
        namespace=naming.namespace(sweep.state.team),
        asha=sweep.asha,
        manifests=lambda run_id: submission.manifests(
            sweep.runs[run_id], planned.platform, commit, launch
        ),
    )
