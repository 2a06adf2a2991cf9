"""Deploy all runs of a stack in order of their dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_kubernetes as k8s

from infra.config.deployment import STACK, Owner
from infra.domain import naming
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from infra.kubernetes.resources import KubernetesObject
from training import job, kubeflow, needs, preparation, trainer_settings
from training.spec import NOT_KNOWN, Launch, RunSpec
from training.weights import WeightsFetch
from trainyard import contract

_IMMUTABLE: Final = ["metadata", "spec", "data", "immutable"]
"""A run stays as it was launched: a newer launcher, a newer commit or a changed platform does not update it.
A change of its spec creates a new run."""


DOCUMENT: Final = "runDocument"
"""Key of the hash of a run's document, by which the policy `run-documents` knows it."""


def deploy(
    runs: Iterable[RunSpec],
    platform: Platform,
    ready: Mapping[str, Sequence[pulumi.Resource]],
    on: k8s.Provider,
    git_commit: str,
    launch: Launch,
    owner: Owner = STACK,
) -> dict[str, TrainingJob]:
    """Return runs by id. Each dataset and model is brought once; the runs that read it wait for it themselves.

    `ready`: by team, resources on which its runs depend; `git_commit`, `launch`: what is recorded.
    """
    prepared: dict[needs.Need, pulumi.Resource] = {}
    jobs: dict[str, TrainingJob] = {}
    for run in runs:
        for line in trainer_settings.config_warnings(run, platform):
            pulumi.log.warn(line)
        wanted = needs.needs(run)
        for need in wanted:
            if need not in prepared:
                opts = pulumi.ResourceOptions(
                    parent=owner.parent, provider=on, depends_on=list(ready[run.team])
                )
                name = f"{owner.prefix}{run.team}-{need.name}"
                prepared[need] = PreparationJob(name, need, platform, opts)
        after = [*ready[run.team], *(prepared[need] for need in wanted)]
        opts = pulumi.ResourceOptions(parent=owner.parent, provider=on, depends_on=after)
        args = TrainingJobArgs(run=run, platform=platform, git_commit=git_commit, launch=launch)
        _keep_document(run, owner)
        jobs[run.run_id] = TrainingJob(run.run_id, args, opts)
    return jobs


def _keep_document(run: RunSpec, owner: Owner) -> None:
    """Keep the document with which a version was launched in the state: `output` stays what `input` was first.

    It lies under the version, not under the run's id, which an edit changes. The policy pack compares both.
    """
    pulumi.Stash(
        f"{run.name}-v{run.version}",
        input={DOCUMENT: run.document_hash},
        opts=pulumi.ResourceOptions(parent=owner.parent),
    )


def _immutable(manifest: Manifest) -> list[str]:
    return [*_IMMUTABLE, *(["binaryData"] if "binaryData" in manifest else [])]


@dataclass(frozen=True, kw_only=True)
class TrainingJobArgs:
    """A run, where it goes, and the commit that launches it, by whom."""

    run: RunSpec
    platform: Platform
    git_commit: str
    launch: Launch = NOT_KNOWN


class TrainingJob(pulumi.ComponentResource):
    """The objects of one run. They are created once and deleted; never updated."""

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.training_type("TrainingJob"), name, None, opts)
        created: list[pulumi.Resource] = []
        rendered = job.manifests(args.run, args.platform, args.git_commit, args.launch)
        for manifest in rendered:
            part = manifest["metadata"]["name"].removeprefix(args.run.run_id)
            created.append(
                KubernetesObject(
                    f"{name}{part}-{manifest['kind'].lower()}",
                    manifest,
                    pulumi.ResourceOptions(
                        parent=self, depends_on=list(created), ignore_changes=_immutable(manifest)
                    ),
                )
            )
        self.outputs = job.outputs(args.run, args.platform, rendered[-1])
        self.register_outputs(self.outputs)


class PreparationJob(pulumi.ComponentResource):
    """One Job. Runs that depend on it are created after it, and wait for its end themselves."""

    def __init__(
        self, name: str, need: needs.Need, platform: Platform, opts: pulumi.ResourceOptions
    ) -> None:
        fetches = isinstance(need, WeightsFetch)
        kind = "WeightsFetch" if fetches else "DatasetPreparation"
        super().__init__(naming.training_type(kind), name, None, opts)
        self.job = KubernetesObject(
            f"{name}-job",
            preparation.job(need, platform),
            pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({"path": need.path})


def deploy_runtime(
    name: str,
    team: str,
    platform: Platform,
    images: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Create a team's runtime for Kubeflow's SDK, on a cluster with its Trainer, if the stack has the image."""
    if "trainjob" not in platform.launchers or kubeflow.IMAGE not in images:
        return
    if manifest := kubeflow.runtime(team, platform, images[kubeflow.IMAGE]):
        KubernetesObject(f"{name}-{contract.SDK_RUNTIME}", manifest, opts)
