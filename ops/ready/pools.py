"""Stages 1 and 3: the expected nodes of a pool are there with their GPUs, and are homogeneous."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from infra.domain import catalog, naming
from ops import objects
from ops.objects import Json
from ops.ready.job_diagnosis import PodResult, format_value
from ops.ready.jobs import Session, is_schedulable
from ops.ready.probes import is_proven
from ops.ready.results import Check, failed, passed, proven, skipped
from ops.ready.stack_facts import Pool
from ops.snapshot import pluralize


def check_pools(session: Session) -> Iterator[Check]:
    for pool in session.pools:
        yield check_pool(pool, session.nodes(pool))


def check_pool(pool: Pool, nodes: Sequence[Json]) -> Check:
    """Compare the pool's nodes with the stack file."""
    expected = pool.max if pool.min == pool.max else f"{pool.min} to {pool.max}"
    found = f"{pluralize(len(nodes), 'node')}, {expected} expected"
    if not nodes and pool.min == 0:
        return skipped(pool.subject, f"scaled to zero, which its min allows: {found}")
    usable = [node for node in nodes if is_schedulable(node)]
    away = [objects.name(node) for node in nodes if not is_schedulable(node)]
    facts = {"nodes": len(nodes), "ready": len(usable), "gpus": sum(map(gpu_count, usable))}
    if len(nodes) > pool.max:
        cause = f"{found}: more than its max"
        remedy = f"find what else creates nodes with the label {naming.POOL}={pool.name}"
        return failed(pool.subject, cause, remedy, **facts)
    if len(usable) < max(pool.min, 1):
        lost = f", not ready or cordoned: {', '.join(away)}" if away else ""
        return failed(
            pool.subject,
            f"{found}, {len(usable)} ready{lost}",
            _missing_nodes_remedy(pool),
            **facts,
        )
    for resource, number in pool.allocatable.items():
        if poor := [node for node in usable if allocatable_count(node, resource) < number]:
            cause = (
                f"{resource} is {allocatable_count(poor[0], resource)} instead of {number} on "
                f"{', '.join(objects.name(node) for node in poor)}"
            )
            return failed(pool.subject, cause, _device_plugin_remedy(poor[0]), **facts)
    note = f"; not ready or cordoned: {', '.join(away)}" if away else ""
    each = "".join(f", {number} {resource}" for resource, number in pool.allocatable.items())
    each += " each" if each else ""
    return passed(pool.subject, f"{found}, {len(usable)} ready{each}{note}", **facts)


def gpu_count(node: Json) -> int:
    return allocatable_count(node, naming.GPU)


def allocatable_count(node: Json, resource: str) -> int:
    return int((objects.status(node).get("allocatable") or {}).get(resource, 0))


def _device_plugin_remedy(node: Json) -> str:
    return (
        "check that the device plugin runs there: kubectl get pods -A -o wide --field-selector"
        f" spec.nodeName={objects.name(node)}; failed devices are not counted"
    )


def _missing_nodes_remedy(pool: Pool) -> str:
    if pool.nodes == "karpenter":
        return f"kubectl describe nodepools {pool.name}; kubectl get nodeclaims"
    if pool.nodes == "managed":
        return (
            "see the node group's health issues, often capacity or an account quota:"
            " aws eks describe-nodegroup"
        )
    return f"kubectl get nodes -l {naming.POOL}={pool.name}; uncordon or repair them"


MODEL: Final = "model"
COMPARED: Final = (MODEL, "driver", "cuda", "nccl")


def compare_nodes(session: Session) -> Iterator[Check]:
    """Check every pool whose smoke test ran in this session."""
    for pool in session.pools:
        if pool.name in session.smoke:
            yield compare_pool(pool, session.smoke[pool.name])


def compare_pool(pool: Pool, lines: Sequence[PodResult]) -> Check:
    """Compare GPU model, driver, CUDA and NCCL versions across the pool's nodes."""
    by_node = {line.node or line.pod: line for line in lines}
    if len(by_node) < 2:
        return skipped(pool.subject, "only one node reported: nothing to compare")
    compared = [name for name in COMPARED if name != MODEL or not _has_mixed_models(pool)]
    for name in compared:
        if len(found := _nodes_by_value(by_node, name)) > 1:
            values = "; ".join(f"{value} on {', '.join(on)}" for value, on in sorted(found.items()))
            return failed(
                pool.subject,
                f"{name} differs: {values}",
                "drain and replace the outdated nodes, so that all nodes use one image; a gang across"
                " different nodes is slow or fails",
            )
    same = ", ".join(
        f"{name} {value}" for name in compared for value in _nodes_by_value(by_node, name)
    )
    note = "; its instance types have different GPU models" if _has_mixed_models(pool) else ""
    return proven(
        pool.subject,
        f"{pluralize(len(by_node), 'node')} homogeneous{f': {same}' if same else ''}{note}",
        hardware=is_proven(pool, lines),
    )


def _nodes_by_value(by_node: Mapping[str, PodResult], name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node, line in by_node.items():
        if (value := line.facts.get(name)) not in (None, ""):
            found.setdefault(format_value(value), []).append(node)
    return found


def _has_mixed_models(pool: Pool) -> bool:
    """Whether its instance types, and so its nodes, may have different GPU models."""
    types = catalog.load().types
    models = {types[name].gpu_model for name in pool.instance_types if name in types}
    return len(models) > 1
