"""Launchers: each a pure function from a run and the platform to Kubernetes manifests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.deployment.launchers import indexed_job, job, jobset, mpijob, pytorchjob, trainjob
from training.spec import RunSpec

Render = Callable[[RunSpec, Platform], list[Manifest]]


@dataclass(frozen=True)
class Launcher:
    """One way to run a gang."""

    render: Render
    """Manifests in the order in which they are created; the last one is the run itself."""
    single_node: bool = False
    """Whether it can only run on one node."""


LAUNCHERS: Final[Mapping[str, Launcher]] = {
    "job": Launcher(job.render, single_node=True),
    "indexed-job": Launcher(indexed_job.render),
    "jobset": Launcher(jobset.render),
    "trainjob": Launcher(trainjob.render),
    "pytorchjob": Launcher(pytorchjob.render),
    "mpijob": Launcher(mpijob.render),
}
"""By the name that run files use."""
