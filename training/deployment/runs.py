"""Deploy all runs of a stack in order of their dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from infra.domain.platform import Platform
from training.deployment import lineage, trainer_settings
from training.deployment.dataset import Preparation
from training.deployment.job import TrainingJob, TrainingJobArgs
from training.deployment.preparation import DatasetPreparation, DatasetPreparationArgs
from training.spec import RunSpec


def deploy(
    runs: Iterable[RunSpec],
    platform: Platform,
    ready: Mapping[str, Sequence[pulumi.Resource]],
    on: k8s.Provider,
    root: Path,
) -> dict[str, TrainingJob]:
    """Return runs by id. Each dataset is prepared once; the runs that read it wait for it themselves.

    `ready`: by team, resources on which its runs depend; `root`: the project, whose commit is recorded.
    """
    prepared: dict[Preparation | None, list[pulumi.Resource]] = {None: []}
    jobs: dict[str, TrainingJob] = {}
    commit, launch = lineage.git_commit(root), lineage.launch(root)
    for run in runs:
        for line in trainer_settings.config_warnings(run):
            pulumi.log.warn(line)
        need = Preparation.for_run(run)
        if need and need not in prepared:
            opts = pulumi.ResourceOptions(provider=on, depends_on=list(ready[run.team]))
            work = DatasetPreparationArgs(preparation=need, platform=platform)
            prepared[need] = [DatasetPreparation(f"{run.team}-{need.name}", work, opts)]
        opts = pulumi.ResourceOptions(provider=on, depends_on=[*ready[run.team], *prepared[need]])
        args = TrainingJobArgs(run=run, platform=platform, git_commit=commit, launch=launch)
        jobs[run.run_id] = TrainingJob(run.run_id, args, opts)
    return jobs
