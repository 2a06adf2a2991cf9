"""GPU node pools: every way to make a GPU node carries the taints that keep other pods away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, elements, mapping, show
from .names import (
    ACCELERATOR_LABEL,
    ACCELERATOR_NVIDIA,
    CAPACITY_LABEL,
    CAPACITY_SPOT,
    GPU_RESOURCE,
    GPU_TAINT,
    SPOT_TAINT,
    WORKLOAD_GPU,
    WORKLOAD_LABEL,
)
from .taints import Taint, taint_schema

_GPU_FAMILY: Final = re.compile(r"(p[2-9]|g[3-9])[a-z0-9-]*\..+")
"""EC2 instance families with accelerators."""
_GPU_AMI: Final = re.compile(r"NVIDIA|_GPU")


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """One resource that makes GPU nodes."""

    spot: bool
    taints: Any
    """A list of key, value, effect; UNKNOWN if not known yet."""
    taints_path: str


def _labelled_gpu(labels: Any) -> bool:
    wanted = {WORKLOAD_LABEL: WORKLOAD_GPU, ACCELERATOR_LABEL: ACCELERATOR_NVIDIA}
    return any(dig(labels, name) == value for name, value in wanted.items())


def _node(props: Mapping[str, Any]) -> GpuPool | None:
    labels = dig(props, "metadata", "labels")
    capacity = dig(props, "status", "capacity", GPU_RESOURCE)
    if capacity in (None, UNKNOWN, 0, "0") and not _labelled_gpu(labels):
        return None
    return GpuPool(
        spot=dig(labels, CAPACITY_LABEL) == CAPACITY_SPOT,
        taints=dig(props, "spec", "taints"),
        taints_path="spec.taints",
    )


def _eks_node_group(props: Mapping[str, Any]) -> GpuPool | None:
    types = [str(name) for name in elements(props.get("instanceTypes"))]
    gpu_image = _GPU_AMI.search(str(props.get("amiType") or ""))
    if not (_labelled_gpu(props.get("labels")) or gpu_image or any(map(_gpu_type, types))):
        return None
    return GpuPool(
        spot=props.get("capacityType") == "SPOT", taints=props.get("taints"), taints_path="taints"
    )


def _gpu_type(instance_type: str) -> bool:
    return bool(_GPU_FAMILY.fullmatch(instance_type))


def _karpenter(props: Mapping[str, Any]) -> GpuPool | None:
    template = mapping(dig(props, "spec", "template"))
    wanted = {
        str(dig(entry, "key")): [str(value) for value in elements(dig(entry, "values"))]
        for entry in elements(dig(template, "spec", "requirements"))
        if dig(entry, "operator") == "In"
    }
    types = wanted.get("node.kubernetes.io/instance-type", [])
    if not (_labelled_gpu(dig(template, "metadata", "labels")) or any(map(_gpu_type, types))):
        return None
    return GpuPool(
        spot=CAPACITY_SPOT in wanted.get("karpenter.sh/capacity-type", []),
        taints=dig(template, "spec", "taints"),
        taints_path="spec.template.spec.taints",
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], GpuPool | None]]] = {
    "kubernetes:core/v1:Node": _node,
    "aws:eks/nodeGroup:NodeGroup": _eks_node_group,
    "kubernetes:karpenter.sh/v1:NodePool": _karpenter,
}


def gpu_pool(resource: Resource) -> GpuPool | None:
    """The GPU nodes that the resource makes; None if it makes none."""
    reader = _READERS.get(resource.type)
    return reader(resource.props) if reader else None


def _has(pool: GpuPool, taint: Taint) -> bool:
    if pool.taints is UNKNOWN:
        return True
    return any(e is UNKNOWN or Taint.read(e) == taint for e in elements(pool.taints))


def _missing(pool: GpuPool, taint: Taint, what: str) -> Iterator[Violation]:
    if not _has(pool, taint):
        yield Violation(
            path=pool.taints_path,
            got=show(pool.taints or []),
            allowed=f"{taint} among the taints of {what}",
            remedy="add it, or pods that need no GPU fill the node",
        )


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    pool = gpu_pool(resource)
    if pool is None:
        return
    yield from _missing(pool, Taint.parse(config["gpuTaint"]), "a GPU node")
    if pool.spot:
        yield from _missing(pool, Taint.parse(config["spotTaint"]), "a spot GPU node")


GPU_POOL_TAINTS: Final = ResourceRule(
    name="gpu-pool-taints",
    description="GPU nodes and node pools carry the taints that keep other pods away.",
    check=_check,
    schema={
        "gpuTaint": taint_schema(GPU_TAINT, "Taint of every GPU node"),
        "spotTaint": taint_schema(SPOT_TAINT, "Second taint of a GPU node that can be reclaimed"),
    },
)
