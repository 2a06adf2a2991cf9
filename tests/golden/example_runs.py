"""A platform and runs that tests share: small, complete, and independent of the committed stacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.config import parse, platform_record
from infra.domain import launcher_support
from infra.domain.platform import Platform
from infra.domain.scheduler import Scheduler
from infra.queueing.backends import backend
from training import image_capabilities
from training.spec import Dataset, Resources, RunSpec

IMAGE = "registry.example.com/trainer@sha256:" + "5" * 64

LAUNCHERS = tuple(launcher_support.LAUNCHERS)


RUN_FILE: dict[str, Any] = {
    "name": "llama",
    "version": 1,
    "team": "research",
    "nodes": 2,
    "gpusPerNode": 8,
    "image": "trainer",
    "config": "base",
    "dataset": {"name": "stdlib", "source": "stdlib"},
    "resources": {"cpu": "80", "memory": "900Gi", "shm": "64Gi"},
}

TRAINER_CONFIG: dict[str, Any] = {
    "steps": 1000,
    "seed": 5,
    "batch": {"global_samples": 256, "micro_samples": 16},
    "schedule": {"warmup_steps": 10},
    "checkpoint": {"every_steps": 50},
}


def project_in(folder: Path) -> Path:
    """A project with the trainer configuration `base`, a recorded IMAGE, and no runs yet."""
    record = folder / image_capabilities.RECORD
    record.parent.mkdir(parents=True)
    record.write_text(yaml.safe_dump({IMAGE.rpartition("@")[2]: {"efa": "yes", "mpi": "yes"}}))
    (folder / "training/configs").mkdir(parents=True)
    (folder / "training/runs").mkdir()
    (folder / "training/configs/base.yaml").write_text(yaml.safe_dump(TRAINER_CONFIG))
    return folder


def write_runs(project: Path, *documents: Mapping[str, Any], name: str = "llama") -> None:
    """Write a run file with one version per document."""
    path = project / f"training/runs/{name}.yaml"
    path.write_text(yaml.safe_dump_all([dict(d) for d in documents]))


def stack_values() -> dict[str, Any]:
    """A stack file's values: two teams, EFA pools of both capacities, a CPU pool, every operator."""
    big = {"instanceTypes": ["p4d.24xlarge"], "zone": "us-east-1a", "network": "efa"}
    return {
        "cluster": {"provider": "existing", "name": "example"},
        "taintKey": "dedicated",
        "cohort": "trainyard",
        "nodePools": [
            {"name": "ondemand", "capacity": "on-demand", "min": 0, "max": 4, **big},
            {"name": "spot", "capacity": "spot", "min": 0, "max": 50, **big},
            {
                "name": "cpu",
                "workload": "cpu",
                "capacity": "on-demand",
                "instanceTypes": ["m6i.4xlarge"],
                "max": 2,
                "zone": "us-east-1a",
            },
        ],
        "storage": {"storageClass": "shared", "checkpoints": "5Ti", "datasets": "2Ti"},
        "operators": {
            name: {"provided": True}
            for name in ("kueue", "jobset", "kubeflowTrainer", "trainingOperator", "mpiOperator")
        },
        "teams": [
            {
                "name": "research",
                "tier": "research",
                "guaranteed": {"spot": 4},
                "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
            },
            {
                "name": "production",
                "tier": "production",
                "guaranteed": {"ondemand": 2},
                "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
            },
        ],
        "images": {"trainer": IMAGE},
    }


def platform(**changes: Any) -> Platform:
    """The Platform record of `stack_values`, with top-level keys replaced."""
    return platform_record.platform(parse(stack_values() | changes), "example")


PREPARED = Dataset(name="stdlib")
"""A dataset that is on the team's volume: pods of the run do not wait for its preparation."""


def run(**changes: Any) -> RunSpec:
    """Two whole p4d nodes of team research."""
    base = RunSpec(
        name="llama",
        version=3,
        team="research",
        tier="research",
        job_kind="jobset",
        nodes=2,
        processes_per_node=8,
        image=IMAGE,
        config={"steps": 1000, "threads": 4, "batch": {"global_samples": 256}},
        dataset=Dataset(name="stdlib", source="stdlib"),
        resources=Resources(cpu="88", memory="1000Gi", shm="64Gi"),
        seed=7,
        save_seconds=45.0,
        max_hours=12.0,
    )
    return dataclasses.replace(base, **changes)


def run_of(launcher: str, **changes: Any) -> RunSpec:
    """The example run with a launcher; on one node if the launcher supports only one."""
    return run(job_kind=launcher, nodes=1 if launcher == "job" else 2, **changes)


def scheduler_values(scheduler: Scheduler) -> dict[str, Any]:
    """The same stack with another scheduler, without options that it does not support."""
    values = stack_values()
    operators = {name: one for name, one in values["operators"].items() if name != "kueue"}
    operator = backend(scheduler).operator
    if operator:
        operators[operator] = {"provided": True}
    values |= {"scheduler": scheduler.value, "operators": operators}
    if apis := backend(scheduler).gang_apis:
        values["cluster"] = {**values["cluster"], "version": max(apis)}
    if not scheduler.has_queues:
        values["teams"] = [{**team, "guaranteed": {}} for team in values["teams"]]
    return values


def platform_of(scheduler: Scheduler, **changes: Any) -> Platform:
    """The Platform record of `scheduler_values`, with top-level keys replaced."""
    return platform_record.platform(parse(scheduler_values(scheduler) | changes), "example")
