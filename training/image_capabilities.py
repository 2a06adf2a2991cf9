"""What images declare by their labels, read from a committed record: training/image/images.yaml.

The record has one entry per digest, so that a preview needs no registry and a mirror changes nothing. `python -m
tools.record_image` writes it. An image without an entry declares nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

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


def load_record(file: Path) -> Mapping[str, ImageCapabilities]:
    """Return capabilities by digest; none without the file."""
    return {digest: _capabilities(labels) for digest, labels in _entries(file).items()}


def labels_of(references: Collection[str], root: Path) -> dict[str, Mapping[str, str]]:
    """Return the entries of the images of these references by digest, for clients that have no checkout."""
    digests = {one.rpartition("@")[2] for one in references}
    return {key: one for key, one in _entries(root / RECORD).items() if key in digests}


def _entries(file: Path) -> dict[str, dict[str, str]]:
    return (yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.is_file() else {}


def _capabilities(labels: Mapping[str, str]) -> ImageCapabilities:
    texts: dict[str, Any] = dict(labels)
    return ImageCapabilities(
        **texts | {"architectures": tuple(labels.get("architectures", "").split())}
    )


def capabilities(
    reference: str, root: Path, published: Mapping[str, Mapping[str, str]]
) -> ImageCapabilities | None:
    """Return what the image of a reference by digest declares; None: it is not in the record.

    `published`: entries that the stack has published; they count before those of the checkout.
    """
    digest = reference.rpartition("@")[2]
    labels = published.get(digest, _entries(root / RECORD).get(digest))
    return None if labels is None else _capabilities(labels)
