"""GPU node pools: every GPU node has the taints that keep other pods away."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    KARPENTER_CAPACITY_LABEL,
    SPOT_TAINT,
    WORKLOAD_GPU,
    WORKLOAD_LABEL,
)
from .taints import Taint, taint_schema

_GPU_FAMILY: Final = re.compile(r"(p[2-9]|gr?[3-9])[a-z0-9-]*\..+")
"""EC2 instance families with accelerators."""
_GPU_CATEGORIES: Final = frozenset({"p", "g", "gr"})
_KARPENTER_GPU: Final = "karpenter.k8s.aws/instance-gpu-"
"""Prefix of Karpenter's labels of GPU nodes: count, name and others."""
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_ABSENCE_OPERATORS: Final = ("NotIn", "DoesNotExist", "Lt")
"""Operators that nodes without the label may satisfy."""
_GPU_AMI: Final = re.compile(r"NVIDIA|_GPU")


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """One resource that creates GPU nodes."""

    spot: bool
    taints: Any
    """A list of key, value, effect; UNKNOWN if not known yet."""
    taints_path: str
    types: tuple[str, ...] = ()
    """Instance types by name; empty: not chosen by name, or not known yet."""
    types_path: str = ""


def _is_labelled_gpu(labels: Any) -> bool:
    wanted = {WORKLOAD_LABEL: WORKLOAD_GPU, ACCELERATOR_LABEL: ACCELERATOR_NVIDIA}
    return any(dig(labels, name) == value for name, value in wanted.items())


def _node(props: Mapping[str, Any]) -> GpuPool | None:
    labels = dig(props, "metadata", "labels")
    capacity = dig(props, "status", "capacity", GPU_RESOURCE)
    if capacity in (None, UNKNOWN, 0, "0") and not _is_labelled_gpu(labels):
        return None
    return GpuPool(
        spot=dig(labels, CAPACITY_LABEL) == CAPACITY_SPOT,
        taints=dig(props, "spec", "taints"),
        taints_path="spec.taints",
    )


def _eks_node_group(props: Mapping[str, Any]) -> GpuPool | None:
    types = [str(name) for name in elements(props.get("instanceTypes"))]
    gpu_image = _GPU_AMI.search(str(props.get("amiType") or ""))
    if not (_is_labelled_gpu(props.get("labels")) or gpu_image or any(map(_is_gpu_type, types))):
        return None
    return GpuPool(
        spot=props.get("capacityType") == "SPOT",
        taints=props.get("taints"),
        taints_path="taints",
        types=_known(props.get("instanceTypes")),
        types_path="instanceTypes",
    )


def _is_gpu_type(instance_type: str) -> bool:
    return bool(_GPU_FAMILY.fullmatch(instance_type))


def _admits_gpu_types(requirements: Sequence[Any]) -> bool:
    """Whether a Karpenter pool's requirements allow GPU types, by name, family or category."""
    wanted = {
        str(dig(entry, "key")): [str(value) for value in elements(dig(entry, "values"))]
        for entry in requirements
        if dig(entry, "operator") == "In"
    }
    if types := wanted.get(_INSTANCE_TYPE):
        return any(map(_is_gpu_type, types))
    if families := wanted.get("karpenter.k8s.aws/instance-family"):
        return any(_is_gpu_type(f"{family}.any") for family in families)
    if _GPU_CATEGORIES & {*wanted.get("karpenter.k8s.aws/instance-category", [])}:
        return True
    return any(
        str(dig(entry, "key")).startswith(_KARPENTER_GPU)
        and dig(entry, "operator") not in _ABSENCE_OPERATORS
        for entry in requirements
    )


def _may_be_spot(requirements: Any) -> bool:
    """Whether no requirement excludes spot, which Karpenter then prefers."""
    entries = elements(requirements)
    if requirements is UNKNOWN or UNKNOWN in entries:
        return False
    for entry in entries:
        operator, values = dig(entry, "operator"), dig(entry, "values")
        if dig(entry, "key") != KARPENTER_CAPACITY_LABEL:
            continue
        if operator == "In" and CAPACITY_SPOT not in elements(values):
            return False
        if operator == "NotIn" and CAPACITY_SPOT in elements(values):
            return False
    return True


def _karpenter(props: Mapping[str, Any]) -> GpuPool | None:
    template = mapping(dig(props, "spec", "template"))
    requirements = dig(template, "spec", "requirements")
    labelled = _is_labelled_gpu(dig(template, "metadata", "labels"))
    if not labelled and not _admits_gpu_types(elements(requirements)):
        return None
    return GpuPool(
        spot=_may_be_spot(requirements),
        taints=dig(template, "spec", "taints"),
        taints_path="spec.template.spec.taints",
        types=_types_by_name(elements(requirements)),
        types_path="spec.template.spec.requirements",
    )


def _types_by_name(requirements: Sequence[Any]) -> tuple[str, ...]:
    for entry in requirements:
        if dig(entry, "key") == _INSTANCE_TYPE and dig(entry, "operator") == "In":
            return _known(dig(entry, "values"))
    return ()


def _known(values: Any) -> tuple[str, ...]:
    """Return a list of texts; empty if one is not known yet."""
    found = elements(values)
    return () if UNKNOWN in found else tuple(str(value) for value in found)


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], GpuPool | None]]] = {
    "kubernetes:core/v1:Node": _node,
    "aws:eks/nodeGroup:NodeGroup": _eks_node_group,
    "kubernetes:karpenter.sh/v1:NodePool": _karpenter,
}


def gpu_pool(resource: Resource) -> GpuPool | None:
    """Return the GPU nodes that the resource creates; None if it creates none."""
    reader = _READERS.get(resource.type)
    return reader(resource.props) if reader else None


def _has_taint(pool: GpuPool, taint: Taint) -> bool:
    if pool.taints is UNKNOWN:
        return True
    return any(e is UNKNOWN or Taint.read(e) == taint for e in elements(pool.taints))


def _missing(pool: GpuPool, taint: Taint, what: str) -> Iterator[Violation]:
    if not _has_taint(pool, taint):
        yield Violation(
            path=pool.taints_path,
            got=show(pool.taints or []),
            expected=f"{taint} among the taints of {what}",
            remedy="add it: otherwise pods without GPUs can fill the node",
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
    description="GPU nodes and node pools have the taints that keep other pods away.",
    check=_check,
    schema={
        "gpuTaint": taint_schema(GPU_TAINT, "Taint of every GPU node"),
        "spotTaint": taint_schema(SPOT_TAINT, "Second taint of a GPU node that can be reclaimed"),
    },
)


def _check_types(resource: Resource, config: Config) -> Iterable[Violation]:
    pool = gpu_pool(resource)
    if pool is None or not pool.spot or not pool.types:
        return
    if len({*pool.types}) < config["atLeast"]:
        yield Violation(
            path=pool.types_path,
            got=", ".join(pool.types),
            expected=f"at least {config['atLeast']} instance types in a spot pool",
            remedy=(
                "add a type that its images run on, such as p4de.24xlarge next to p4d.24xlarge; where none "
                "fits, set atLeast to 1 for the stack"
            ),
        )


SPOT_INSTANCE_TYPES: Final = ResourceRule(
    name="spot-instance-types",
    description="Spot GPU pools name several instance types, so that the shortage of one stops no run.",
    check=_check_types,
    schema={
        "atLeast": {
            "type": "integer",
            "minimum": 1,
            "default": 2,
            "description": "Least number of instance types of a spot GPU pool",
        }
    },
)
