"""Rung 3: the nodes of a pool are alike, as a gang across them must assume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from infra.domain import catalog
from ops.ready.context import Climb
from ops.ready.outcome import Check, failed, passed, skipped
from ops.ready.pod_results import Line, plain
from ops.ready.stack_facts import Pool
from ops.snapshot import counted

MODEL: Final = "model"
COMPARED: Final = (MODEL, "driver", "cuda", "nccl")


def look(climb: Climb) -> Iterator[Check]:
    """Every pool whose smoke test ran in this climb."""
    for pool in climb.pools:
        if pool.name in climb.smoke:
            yield check(pool, climb.smoke[pool.name])


def check(pool: Pool, lines: Sequence[Line]) -> Check:
    """What its nodes have in common."""
    by_node = {line.node or line.pod: line for line in lines}
    if len(by_node) < 2:
        return skipped(pool.subject, "one node was seen: there is nothing to compare it with")
    compared = [name for name in COMPARED if name != MODEL or not _mixed(pool)]
    for name in compared:
        if len(found := _values(by_node, name)) > 1:
            told = "; ".join(f"{value} on {', '.join(on)}" for value, on in sorted(found.items()))
            return failed(
                pool.subject,
                f"{name} differs: {told}",
                "replace the nodes that lag behind: drain them, and let their pool make new ones of one"
                " image; a gang across them is slow at best",
            )
    same = ", ".join(f"{name} {value}" for name in compared for value in _values(by_node, name))
    note = "; its instance types have GPUs of several models" if _mixed(pool) else ""
    return passed(
        pool.subject, f"{counted(len(by_node), 'node')} alike{f': {same}' if same else ''}{note}"
    )


def _values(by_node: Mapping[str, Line], name: str) -> dict[str, list[str]]:
    """Nodes by value of one fact."""
    found: dict[str, list[str]] = {}
    for node, line in by_node.items():
        if (value := line.facts.get(name)) not in (None, ""):
            found.setdefault(plain(value), []).append(node)
    return found


def _mixed(pool: Pool) -> bool:
    """Whether its instance types differ in their GPUs, so that its nodes may."""
    types = catalog.load().types
    models = {types[name].gpu_model for name in pool.instance_types if name in types}
    return len(models) > 1
