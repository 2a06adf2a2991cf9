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
                code="min-above-max",
                problem=f"{pool.min} exceeds max ({pool.max})",
                valid="must be at most max",
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
                    code="unknown-instance-type",
                    problem=f"unknown instance type {shown(name)}",
                    valid=f"must be one of {one_of(known)}",
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
            code="type-without-gpu",
            problem=f"{shown(name)} has no GPU",
            valid="a gpu-training pool requires instance types with GPUs",
            action="choose a GPU type, or set workload: cpu",
        )
    elif pool.workload is Workload.CPU and instance.gpus:
        yield ConfigIssue(
            path=path,
            code="type-with-gpu",
            problem=f"{shown(name)} has {instance.gpus} {'GPU' if instance.gpus == 1 else 'GPUs'}",
            valid="a cpu pool requires instance types without GPUs",
            action="choose a CPU type, or set workload: gpu-training",
        )
    elif pool.network is Network.EFA and not instance.efa_cards:
        yield ConfigIssue(
            path=path,
            code="type-without-efa",
            problem=f"{shown(name)} does not support EFA",
            valid="network: efa requires instance types with EFA",
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
                    code="reserved-domain",
                    problem="nodes may not set labels of this domain themselves",
                    valid="must have no domain, or a domain of your own",
                    action="rename it",
                )
            if key in own:
                yield ConfigIssue(
                    path=f"nodePools[{index}].labels.{key}",
                    code="reserved-label",
                    problem="the platform sets this label",
                    valid="must be another label",
                    action="remove it",
                )
