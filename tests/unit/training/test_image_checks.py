"""A run's image has what its nodes need, by the committed record of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import ConfigError
from infra.domain import catalog
from infra.domain.catalog import compute_capability
from tests.golden.example_runs import (
    IMAGE,
    RUN_FILE,
    platform,
    project_in,
    stack_values,
    write_runs,
)
from training import run_files
from training.image_capabilities import RECORD, ImageCapabilities

CUDA_13 = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return project_in(tmp_path)


def pools(**changes: Any) -> list[dict[str, Any]]:
    return [
        pool | (changes if "workload" not in pool else {}) for pool in stack_values()["nodePools"]
    ]


def codes_of(
    project: Path, labels: dict[str, str] | None, run: dict[str, Any] | None = None, **stack: Any
) -> list[str]:
    """Load a run whose image has these labels; None: it is not in the record."""
    entries = {} if labels is None else {IMAGE.rpartition("@")[2]: labels}
    (project / RECORD).write_text(yaml.safe_dump(entries))
    document = RUN_FILE | (run or {})
    if "program" in document:
        del document["config"]
    write_runs(project, document)
    try:
        run_files.load(["llama"], platform(**stack), {"trainer": IMAGE}, project)
    except ConfigError as error:
        return [issue.code for issue in error.issues if not isinstance(issue, str)]
    return []


@pytest.mark.parametrize("labels", [None, {}, {"mpi": "yes", "cuda": "13.2"}])
def test_efa_nodes_need_an_image_that_declares_efa(
    project: Path, labels: dict[str, str] | None
) -> None:
    assert codes_of(project, labels) == ["image-without-efa"]
    assert codes_of(project, {"efa": "aws-ofi-nccl"}) == []


def test_an_image_needs_no_efa_on_one_node_or_on_other_networks(project: Path) -> None:
    assert codes_of(project, None, {"nodes": 1}) == []
    assert codes_of(project, None, nodePools=pools(network="tcp")) == []


def test_an_mpijob_needs_an_image_that_declares_mpi(project: Path) -> None:
    mpi = {"jobKind": "mpijob"}
    assert codes_of(project, {"efa": "yes"}, mpi) == ["image-without-mpi"]
    assert codes_of(project, {"efa": "yes", "mpi": "yes"}, mpi) == []


def test_mpirun_on_one_node_needs_an_image_that_declares_mpi(project: Path) -> None:
    program = {"launcher": "mpirun", "command": ["/opt/program"]}
    alone = {"nodes": 1, "program": program}
    assert codes_of(project, {}, alone) == ["image-without-mpi"]
    assert codes_of(project, {"mpi": "yes"}, alone) == []
    torchrun = {"nodes": 1, "program": program | {"launcher": "torchrun"}}
    assert codes_of(project, {}, torchrun) == []


def test_simulated_nodes_need_nothing(project: Path) -> None:
    simulated = [pool | {"nodes": "kwok"} for pool in stack_values()["nodePools"]]
    assert codes_of(project, None, nodePools=simulated) == []


@pytest.mark.parametrize(
    ("types", "expected"),
    [(["p3.16xlarge"], ["image-without-gpu"]), (["p4d.24xlarge"], []), (["p5.48xlarge"], [])],
)
def test_gpus_without_kernels_are_refused(
    project: Path, types: list[str], expected: list[str]
) -> None:
    labels = {"architectures": CUDA_13, "cuda": "13.2"}
    small = {"resources": {"cpu": "8", "memory": "64Gi", "shm": "8Gi"}}
    tcp = pools(network="tcp", instanceTypes=types)
    assert codes_of(project, labels, small, nodePools=tcp) == expected


def test_a_gang_on_a_mixed_pool_names_its_gpus(project: Path) -> None:
    mixed = pools(network="tcp", instanceTypes=["p4d.24xlarge", "p5.48xlarge"])
    assert codes_of(project, {}, nodePools=mixed) == ["mixed-gpus"]
    assert codes_of(project, {}, {"gpuModel": "a100"}, nodePools=mixed) == []
    assert codes_of(project, {}, {"nodes": 1}, nodePools=mixed) == []


def test_kernels_run_on_later_minor_versions_only() -> None:
    image = ImageCapabilities(architectures=tuple(CUDA_13.split()))
    supported = {model for model in MODELS if image.runs_on(compute_capability(model))}
    assert supported == MODELS - {"v100"}
    assert not ImageCapabilities(architectures=("sm_90",)).runs_on((8, 9))
    assert not ImageCapabilities(architectures=("sm_89",)).runs_on((8, 6))


MODELS = {one.gpu_model for one in catalog.load().types.values() if one.gpu_model}
