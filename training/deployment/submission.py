"""Objects of a run that is submitted without Pulumi: the same that `pulumi up` creates."""

from __future__ import annotations

from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment import job, preparation
from training.deployment.dataset import Preparation
from training.spec import NOT_KNOWN, Launch, RunSpec


def manifests(
    run: RunSpec, platform: Platform, git_commit: str, launch: Launch = NOT_KNOWN
) -> list[Manifest]:
    """Return every object in the order of creation; an existing one is left as it is.

    The first prepares the dataset, if it has a source; runs with the same data and code share it. The last is
    the run itself.
    """
    needed = Preparation.for_run(run)
    before = [preparation.job(needed, platform)] if needed else []
    return [*before, *job.manifests(run, platform, git_commit, launch)]
