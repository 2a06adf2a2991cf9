"""Objects of a run that is submitted without Pulumi: the same that `pulumi up` creates."""

from __future__ import annotations

from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training import job, needs, preparation
from training.spec import NOT_KNOWN, Launch, RunSpec


def manifests(
    run: RunSpec, platform: Platform, git_commit: str, launch: Launch = NOT_KNOWN
) -> list[Manifest]:
    """Return every object in the order of creation; an existing one is left as it is.

    The first prepare the dataset and fetch the model, if they have sources; runs with the same data, model and
    code share them. The last is the run itself.
    """
    before = [preparation.job(need, platform) for need in needs.needs(run)]
    return [*before, *job.manifests(run, platform, git_commit, launch)]
