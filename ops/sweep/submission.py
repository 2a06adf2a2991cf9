"""Read a sweep's run file, for a stack file or for the platform that a stack has published to the team."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.domain import naming
from infra.domain.platform import Platform
from infra.domain.published_record import PublishedRecord
from infra.sections.errors import ConfigError as ConfigError
from infra.sections.errors import shown
from infra.sections.yaml_files import read_yaml
from ops.objects import Json
from ops.submission.create import as_user
from ops.submission.render import root_of
from ops.sweep import files as sweep_files
from ops.sweep.files import Sweep
from ops.sweep.space import Asha
from ops.sweep.state import SweepState
from training import job, lineage
from training.spec import Launch


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A sweep that can be submitted."""

    state: SweepState
    namespace: str
    asha: Asha | None
    manifests: Callable[[str], list[Json]]
    """Objects of a run by its id."""
    user: str = ""
    """Member of the team who submits it; empty: CI, by a stack file."""


def load(file: Path, stack: str, root: Path | None = None) -> Submission:
    """Return the sweep of a run file on a stack of the project at `root`. Raises ConfigError."""
    root = root or root_of(file.resolve(), Path.cwd())
    # A stack file is read with Pulumi, which the installed command does without.
    from infra.config import stack_values
    from training import plan

    values = {**stack_values(root / f"Pulumi.{stack}.yaml"), "runs": []}
    planned = plan.make(values, stack, root, preview=False)
    sweep = sweep_files.load(file.resolve(), planned.platform, planned.images, root)
    return _submission(sweep, planned.platform, root, lineage.launch(root))


def team_of(file: Path) -> str:
    """Return the team of a run file. Raises ConfigError."""
    documents = [one for one in read_yaml(file, str(file)) if isinstance(one, dict)]
    team = documents[0].get("team") if documents else None
    if not isinstance(team, str) or not team:
        text = f"{file}: team: got {shown(team)}; must be a team of the stack; add it"
        raise ConfigError([text])
    return team


def load_published(
    file: Path, published: PublishedRecord, user: str, root: Path | None = None
) -> Submission:
    """Return the sweep of a run file that a member of its team submits. Raises ConfigError."""
    root = root or root_of(file.resolve(), Path.cwd())
    sweep = sweep_files.load(file.resolve(), published.platform, published.images, root)
    launch = Launch(dirty=lineage.launch(root).dirty, by=user)
    return _submission(sweep, published.platform, root, launch, user)


def _submission(
    sweep: Sweep, platform: Platform, root: Path, launch: Launch, user: str = ""
) -> Submission:
    commit = lineage.origin(next(iter(sweep.runs.values())), root)

    def manifests(run_id: str) -> list[Json]:
        found = job.submitted(sweep.runs[run_id], platform, commit, launch)
        return [as_user(one, user) for one in found] if user else found

    return Submission(
        state=sweep.state,
        namespace=naming.namespace(sweep.state.team),
        asha=sweep.asha,
        manifests=manifests,
        user=user,
    )
