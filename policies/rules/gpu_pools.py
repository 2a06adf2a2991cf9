"""GPU pools: the taints that keep other pods away, and several instance types on spot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from infra.domain import naming
from infra.domain.pools import Taint
from infra.domain.prices import Purchase

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, elements, show
from .node_pools import NodePool, pools_and_nodes

SPOT_TAINT: Final = Taint(key=naming.SPOT_TAINT, value="true")
_EFFECT: Final = "NoSchedule"
_EFFECTS: Final = (_EFFECT, "NO_SCHEDULE")
"""As in Kubernetes and in the EKS API."""


def _has(taints: Any, taint: Taint) -> bool:
    wanted = [(taint.key, taint.value, effect) for effect in _EFFECTS]
    return taints is UNKNOWN or any(
        entry is UNKNOWN or tuple(dig(entry, key) for key in ("key", "value", "effect")) in wanted
        for entry in elements(taints)
    )


def _gpu_pools(resource: Resource) -> Iterable[NodePool]:
    return (pool for pool in pools_and_nodes([resource]) if pool.has_gpus)


def _check_taints(resource: Resource, config: Config) -> Iterable[Violation]:
    key, _, value = config["gpuTaint"].removesuffix(f":{_EFFECT}").partition("=")
    for pool in _gpu_pools(resource):
        wanted = {"a GPU node": Taint(key=key, value=value)}
        if Purchase.SPOT in pool.purchases:
            wanted["a spot GPU node"] = SPOT_TAINT
        for what, taint in wanted.items():
            if not _has(pool.taints, taint):
                yield Violation(
                    pool.taints_path,
                    show(pool.taints or []),
                    f"{taint.key}={taint.value}:{_EFFECT} among the taints of {what}",
                    "add it: otherwise pods without GPUs can fill the node",
                )


GPU_POOL_TAINTS: Final = ResourceRule(
    name="gpu-pool-taints",
    description="GPU nodes and node pools have the taints that keep other pods away.",
    check=_check_taints,
    schema={
        "gpuTaint": {
            "type": "string",
            "pattern": rf"^[^=:\s]+=[^=:\s]*:{_EFFECT}$",
            "default": f"dedicated={naming.GPU_TRAINING}:{_EFFECT}",
            "description": "Taint of every GPU node, as KEY=VALUE:NoSchedule",
        }
    },
)


def _check_types(resource: Resource, config: Config) -> Iterable[Violation]:
    for pool in _gpu_pools(resource):
        if Purchase.SPOT in pool.purchases and 0 < len({*pool.instance_types}) < config["atLeast"]:
            yield Violation(
                pool.types_path,
                ", ".join(pool.instance_types),
                f"at least {config['atLeast']} instance types in a spot pool",
                "add a type that its images run on, such as p4de.24xlarge next to p4d.24xlarge; where none "
                "fits, set atLeast to 1 for the stack",
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
