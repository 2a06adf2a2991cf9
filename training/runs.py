"""Deploy all runs of a stack in order of their dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pulumi
import pulumi_kubernetes as k8s

from infra.domain.platform import Platform
from training import lineage, needs, trainer_settings
from training.job import TrainingJob, TrainingJobArgs
from training.preparation import PreparationJob, PreparationJobArgs
from training.spec import RunSpec

DOCUMENT: Final = "runDocument"
"""Key of the hash of a run's document, by which the policy `run-documents` knows it."""


def deploy(
    runs: Iterable[RunSpec],
    platform: Platform,
    ready: Mapping[str, Sequence[pulumi.Resource]],
    on: k8s.Provider,
    root: Path,
) -> dict[str, TrainingJob]:
    """Return runs by id. Each dataset and model is brought once; the runs that read it wait for it themselves.

    `ready`: by team, resources on which its runs depend; `root`: the project, whose commit is recorded.
    """
    prepared: dict[needs.Need, pulumi.Resource] = {}
    jobs: dict[str, TrainingJob] = {}
    commit, launch = lineage.git_commit(root), lineage.launch(root)
    for run in runs:
        for line in trainer_settings.config_warnings(run, platform):
            pulumi.log.warn(line)
        wanted = needs.needs(run)
        for need in wanted:
            if need not in prepared:
                opts = pulumi.ResourceOptions(provider=on, depends_on=list(ready[run.team]))
                work = PreparationJobArgs(need=need, platform=platform)
                prepared[need] = PreparationJob(f"{run.team}-{need.name}", work, opts)
        after = [*ready[run.team], *(prepared[need] for need in wanted)]
        opts = pulumi.ResourceOptions(provider=on, depends_on=after)
        args = TrainingJobArgs(run=run, platform=platform, git_commit=commit, launch=launch)
        _keep_document(run)
        jobs[run.run_id] = TrainingJob(run.run_id, args, opts)
    return jobs


def _keep_document(run: RunSpec) -> None:
    """Keep the document with which a version was launched in the state: `output` stays what `input` was first.

    It lies under the version, not under the run's id, which an edit changes. The policy pack compares both.
    """
    pulumi.Stash(f"{run.name}-v{run.version}", input={DOCUMENT: run.document_hash})
