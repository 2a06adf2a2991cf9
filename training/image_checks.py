"""Whether a run's image has what the run and its nodes need, by the record of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from infra.domain import naming
from infra.domain.catalog import compute_capability
from infra.domain.platform import Platform
from infra.domain.pools import NodePool
from infra.sections.errors import ConfigIssue, issue
from training import placement
from training.image_capabilities import LABEL, RECORD, UNDECLARED, ImageCapabilities, capabilities
from training.spec import RunSpec

_MPI_KIND: Final = "mpijob"


def check_image(run: RunSpec, platform: Platform, root: Path) -> Iterator[ConfigIssue]:
    """Reject an image without EFA's plugin on EFA nodes, without MPI in an mpijob, or without kernels for a GPU.

    Simulated nodes need none of it.
    """
    pools = [p for p in placement.eligible_pools(run, platform) if not p.nodes.simulated]
    if not pools:
        return
    declared = capabilities(run.image, root, platform.image_labels)
    found = declared or UNDECLARED
    if naming.EFA in placement.network_devices(run, tuple(pools)) and not found.efa:
        names = ", ".join(pool.name for pool in pools)
        yield _undeclared("efa", f"nodes of pool {names} have network: efa", declared)
    if run.job_kind == _MPI_KIND and not found.mpi:
        yield _undeclared("mpi", f"jobKind: {_MPI_KIND} needs mpirun and sshd", declared)
    elif run.program and run.program.launcher == "mpirun" and not found.mpi:
        yield _undeclared("mpi", "program.launcher: mpirun needs mpirun", declared)
    yield from _architectures(found, pools)


def _undeclared(key: str, need: str, declared: ImageCapabilities | None) -> ConfigIssue:
    missing = f"declares no {LABEL}{key}" if declared else f"is not in {RECORD}"
    return issue(
        f"image-without-{key}",
        "image",
        f"{need}, and the image {missing}",
        f"must be an image with the label {LABEL}{key}",
        "use the image of training/image/Dockerfile, or add its labels with python -m tools.record_image",
    )


def _architectures(found: ImageCapabilities, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    models = sorted({model for pool in pools for model in pool.gpu_models})
    unsupported = [model for model in models if not found.runs_on(compute_capability(model))]
    if unsupported:
        names = ", ".join(p.name for p in pools if set(unsupported) & set(p.gpu_models))
        yield issue(
            "image-without-gpu",
            "image",
            f"has no kernels for {', '.join(unsupported)} of pool {names} (CUDA {found.cuda}: "
            f"{' '.join(found.architectures)})",
            "must support the GPUs of every eligible pool",
            "set gpuModel to another GPU, remove the pool's older types, or use another image",
        )
