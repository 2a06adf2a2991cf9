"""Stage 1: the expected nodes exist, are ready and have the expected GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.domain import naming
from ops import objects
from ops.objects import Json
from ops.ready.context import Session, is_schedulable
from ops.ready.outcome import Check, failed, passed, skipped
from ops.ready.stack_facts import Pool
from ops.snapshot import pluralize


def check_pools(session: Session) -> Iterator[Check]:
    for pool in session.pools:
        yield check_pool(pool, session.nodes(pool))


def check_pool(pool: Pool, nodes: Sequence[Json]) -> Check:
    """Compare the pool's nodes with the stack file."""
    found = f"{pluralize(len(nodes), 'node')}, {_expected_range(pool)} expected"
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
    """Return the allocatable amount of an extended resource of a node."""
    return int((objects.status(node).get("allocatable") or {}).get(resource, 0))


def _expected_range(pool: Pool) -> str:
    return str(pool.max) if pool.min == pool.max else f"{pool.min} to {pool.max}"


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
