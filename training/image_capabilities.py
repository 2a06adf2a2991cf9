"""What images declare by their labels, read from a committed record: training/image/images.yaml.

The record has one entry per digest, so that a preview needs no registry and a mirror changes nothing. `python -m
tools.record_image` writes it. An image without an entry declares nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from infra.domain import naming
from infra.domain.catalog import compute_capability
from infra.domain.platform import Platform
from infra.domain.pools import NodePool
from infra.sections.errors import ConfigIssue, issue
from training import placement
from training.spec import RunSpec

RECORD: Final = "training/image/images.yaml"
LABEL: Final = "dev.trainyard.image."
"""Prefix of an image's labels; the rest is a key of the record."""


@dataclass(frozen=True, kw_only=True)
class ImageCapabilities:
    """The labels of one image; empty: not declared."""

    commit: str = ""
    """Commit that it was built from."""
    cuda: str = ""
    """CUDA version of its libraries, such as 13.2."""
    architectures: tuple[str, ...] = ()
    """GPU architectures that its kernels are compiled for, such as sm_90."""
    efa: str = ""
    """What lets NCCL use EFA."""
    mpi: str = ""
    """MPI with mpirun and sshd."""
    compiler: str = ""
    """C compiler, which Triton needs."""

    def runs_on(self, compute_capability: tuple[int, int]) -> bool:
        """Whether its kernels run on a GPU: binaries run on later minor versions of their major version.

        True when it declares no architectures.
        """
        major, minor = compute_capability
        compiled = [divmod(int(name.removeprefix("sm_")), 10) for name in self.architectures]
        return not compiled or any(own == major and low <= minor for own, low in compiled)


UNDECLARED: Final = ImageCapabilities()


def labels_of(references: Collection[str], root: Path) -> dict[str, Mapping[str, str]]:
    """Return the entries of the images of these references by digest, for clients that have no checkout."""
    digests = {one.rpartition("@")[2] for one in references}
    return {key: one for key, one in _entries(root).items() if key in digests}


def _entries(root: Path) -> dict[str, dict[str, str]]:
    file = root / RECORD
    return (yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.is_file() else {}


def capabilities(
    reference: str, root: Path, published: Mapping[str, Mapping[str, str]]
) -> ImageCapabilities | None:
    """Return what the image of a reference by digest declares; None: it is not in the record.

    `published`: entries that the stack has published; they count before those of the checkout.
    """
    digest = reference.rpartition("@")[2]
    labels: Mapping[str, Any] | None = published.get(digest, _entries(root).get(digest))
    if labels is None:
        return None
    compiled = tuple(labels.get("architectures", "").split())
    return ImageCapabilities(**{**labels, "architectures": compiled})


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
