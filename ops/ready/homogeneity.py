"""Stage 3: the nodes of a pool are homogeneous, as gangs require."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from infra.domain import catalog
from ops.ready.context import Session
from ops.ready.outcome import Check, failed, proven, skipped
from ops.ready.pod_results import PodResult, format_value
from ops.ready.probes import is_proven
from ops.ready.stack_facts import Pool
from ops.snapshot import pluralize

MODEL: Final = "model"
COMPARED: Final = (MODEL, "driver", "cuda", "nccl")


def check_pools(session: Session) -> Iterator[Check]:
    """Check every pool whose smoke test ran in this session."""
    for pool in session.pools:
        if pool.name in session.smoke:
            yield check_pool(pool, session.smoke[pool.name])


def check_pool(pool: Pool, lines: Sequence[PodResult]) -> Check:
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
    """Group nodes by their value of one fact."""
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
