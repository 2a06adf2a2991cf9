"""The load: gangs of several sizes as Jobs and JobSets, equal for every queue configuration."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench import fleet
from bench.api import Json
from bench.embedded import RUN_DURATION
from infra.domain import naming
from infra.domain.platform import Platform
from training.launchers import LAUNCHERS
from training.spec import Dataset, Resources, RunSpec

SIZES: Final = (1, 1, 1, 2, 2, 4, 8)
"""Nodes of a gang, each as likely as the others."""
JOBSET_EVERY: Final = 4
"""Every fourth gang is a JobSet, the others are Jobs."""


@dataclass(frozen=True, kw_only=True)
class Gang:
    """One run of the load."""

    name: str
    team: str
    size: int
    jobset: bool
    seconds: float = 0.0
    """How long its pods run; less than a second here, where only the queue is looked at."""
    priority: str = ""
    """Empty: the team's default."""


def fitting_sizes(platform: Platform) -> tuple[int, ...]:
    """Return sizes that fit: a gang is admitted to one pool."""
    smallest = min(pool.max for pool in platform.pools)
    return tuple(size for size in SIZES if size <= smallest)


def generate_gangs(
    count: int, seed: int, prefix: str, fitting: Sequence[int] = SIZES
) -> Iterator[Gang]:
    """So many gangs, dealt out to the teams in turn; the same for the same seed."""
    dice = random.Random(seed)
    names = [team for team, _ in fleet.TEAMS]
    for index in range(count):
        yield Gang(
            name=f"{prefix}-{index}",
            team=names[index % len(names)],
            size=dice.choice(fitting),
            jobset=dice.randrange(JOBSET_EVERY) == 0,
        )


def render_gang(gang: Gang, platform: Platform) -> Json:
    """Return the launcher's Job or JobSet without volumes, which simulated nodes lack."""
    tier = dict(fleet.TEAMS)[gang.team]
    job_kind = "jobset" if gang.jobset else "job" if gang.size == 1 else "indexed-job"
    run = RunSpec(
        name=gang.name,
        version=1,
        team=gang.team,
        tier=tier,
        job_kind=job_kind,
        nodes=gang.size,
        processes_per_node=fleet.GPUS_PER_NODE,
        image=fleet.IMAGE,
        config={},
        dataset=Dataset(name="none"),
        resources=Resources(cpu="80", memory="900Gi", shm="1Gi"),
        priority=gang.priority,
    )
    made: Json = LAUNCHERS[job_kind].render(run, platform)[-1]
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"] if gang.jobset else made["spec"]
    template = spec["template"]
    annotations = dict(template["metadata"].get("annotations") or {})
    template["metadata"]["annotations"] = annotations | {RUN_DURATION: f"{gang.seconds:g}s"}
    template["spec"]["volumes"] = []
    for container in template["spec"]["containers"]:
        container["volumeMounts"] = []
    return made


def for_minimal(made: Json) -> Json:
    """Adapt a gang to the minimal configuration: no priority."""
    labels = made["metadata"]["labels"]
    labels[naming.QUEUE_NAME] = fleet.MINIMAL
    labels.pop(naming.WORKLOAD_PRIORITY, None)
    made["metadata"]["namespace"] = fleet.MINIMAL
    return made
