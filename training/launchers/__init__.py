"""Launchers: each a pure function from a run and the platform to Kubernetes manifests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from infra.domain import launcher_support
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from training.launchers import indexed_job, job, jobset, mpijob, pytorchjob, trainjob
from training.spec import RunSpec

Render = Callable[[RunSpec, Platform], list[Manifest]]


@dataclass(frozen=True)
class Launcher:
    """One way to run a gang."""

    render: Render
    """Manifests in the order in which they are created; the last one is the run itself."""
    support: launcher_support.Support


_RENDERERS: Final[Mapping[str, Render]] = {
    "job": job.render,
    "indexed-job": indexed_job.render,
    "jobset": jobset.render,
    "trainjob": trainjob.render,
    "pytorchjob": pytorchjob.render,
    "mpijob": mpijob.render,
}

LAUNCHERS: Final[Mapping[str, Launcher]] = {
    name: Launcher(_RENDERERS[name], support)
    for name, support in launcher_support.LAUNCHERS.items()
}
"""By the name that run files use."""
