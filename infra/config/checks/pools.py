"""Pools by themselves: sizes, types that fit, labels."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.config.model import PoolConfig
from infra.domain import catalog, naming
from infra.domain.pools import Network, Nodes, Workload


def check_pool_sizes(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require min <= max."""
    for index, pool in parts.pools:
        if pool.min > pool.max:
            yield ConfigIssue(
                path=f"nodePools[{index}].min",
                problem=f"got {pool.min}",
                valid=f"allowed at most max, {pool.max}",
                action="lower min or raise max",
            )


def check_instance_types(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require known instance types that match the pool's workload and network."""
    known = catalog.load().types
    for index, pool in parts.pools:
        for place, name in enumerate(pool.instance_types):
            path = f"nodePools[{index}].instanceTypes[{place}]"
            if name not in known and _is_named(parts, index, place):
                yield ConfigIssue(
                    path=path,
                    problem=f"got {shown(name)}",
                    valid=f"allowed {one_of(known)}",
                    action=did_you_mean(
                        name, known, "choose one, or add it to infra/domain/catalog.yaml"
                    ),
                )
            elif name in known:
                yield from _fits_pool(path, pool, name)


def _is_named(parts: PartialStack, index: int, place: int) -> bool:
    """Whether the file itself names a type there; a neutral one is nobody's mistake."""
    named = parts.raw["nodePools"][index].get("instanceTypes")
    return isinstance(named, list) and place < len(named) and isinstance(named[place], str)


def _fits_pool(path: str, pool: PoolConfig, name: str) -> Iterator[ConfigIssue]:
    instance = catalog.load().types[name]
    if pool.workload is Workload.GPU_TRAINING and not instance.gpus:
        yield ConfigIssue(
            path=path,
            problem=f"got {shown(name)}, which has no GPU",
            valid="allowed instance types with GPUs in a gpu-training pool",
            action="choose a GPU type, or set workload: cpu",
        )
    elif pool.workload is Workload.CPU and instance.gpus:
        yield ConfigIssue(
            path=path,
            problem=f"got {shown(name)}, which has {instance.gpus} GPUs",
            valid="allowed instance types without GPUs in a cpu pool",
            action="choose a CPU type, or set workload: gpu-training",
        )
    elif pool.network is Network.EFA and not instance.efa_cards:
        yield ConfigIssue(
            path=path,
            problem=f"got {shown(name)}, which has no EFA",
            valid="allowed instance types with EFA in a pool of network efa",
            action="choose another type, or set network: tcp",
        )


def check_labels(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject extra labels that the platform or Kubernetes reserves."""
    for index, pool in parts.pools:
        if any(name not in catalog.load().types for name in pool.instance_types):
            continue
        bare = pool.model_copy(update={"labels": {}}).pool("x")
        own = {*bare.labels(), naming.GPU_MODEL, naming.INSTANCE_TYPE, naming.HOSTNAME}
        made = pool.nodes in (Nodes.MANAGED, Nodes.KARPENTER)
        for key in pool.labels:
            if made and key not in own and naming.is_reserved_domain(key.rpartition("/")[0]):
                yield ConfigIssue(
                    path=f"nodePools[{index}].labels.{key}",
                    problem="got a label of a domain that is not yours",
                    valid="allowed labels without a domain or of your own, for nodes refuse the others",
                    action="rename it",
                )
            if key in own:
                yield ConfigIssue(
                    path=f"nodePools[{index}].labels.{key}",
                    problem="got a label that follows from the pool",
                    valid="allowed other labels",
                    action="remove it",
                )
