"""Flavors: the tolerations that Kueue adds match the taints of the flavor's nodes exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from .model import Config, Resource, StackRule, Violation, dig, elements, mapping, show
from .node_pools import NodePool, pools_and_nodes
from .stack import RESOURCE_FLAVOR, Stack
from .taints import Taint, read_taints, tolerations_known

_BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")
_TEMPORARY_TAINTS: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
)
"""Taints that controllers put on a node for a while: not ready, unschedulable, about to go."""


def _own_taints(pool: NodePool) -> frozenset[Taint] | None:
    """Return the taints that the pool's nodes are created with; None if not known yet."""
    taints = read_taints(pool.taints)
    if taints is None:
        return None
    return frozenset(taint for taint in taints if not taint.key.startswith(_TEMPORARY_TAINTS))


def _join(taints: Iterable[Taint]) -> str:
    return ", ".join(sorted(map(str, taints))) or "none"


def _check_tolerations(
    flavor: Resource, pool: NodePool, taints: frozenset[Taint]
) -> Iterator[Violation]:
    given = [mapping(entry) for entry in elements(dig(flavor.props, "spec", "tolerations"))]
    for taint in sorted(taints, key=str):
        if taint.effect in _BLOCKING_EFFECTS and not any(
            taint.tolerated_by(entry) for entry in given
        ):
            yield Violation(
                path="spec.tolerations",
                got=f"no toleration of {taint}",
                expected=f"the taints of the pool {pool.name}: {_join(taints)}",
                remedy="add it: otherwise runs admitted to this flavor are unschedulable",
                urn=flavor.urn,
            )
    for index, entry in enumerate(given):
        exact = entry.get("key") and any(taint.tolerated_by(entry) for taint in taints)
        if not exact:
            yield Violation(
                path=f"spec.tolerations[{index}]",
                got=show(entry),
                expected=f"the taints of the pool {pool.name}: {_join(taints)}",
                remedy="remove it: runs would tolerate taints meant for other pods",
                urn=flavor.urn,
            )


def _check_node_taints(
    flavor: Resource, pool: NodePool, taints: frozenset[Taint]
) -> Iterator[Violation]:
    stated = dig(flavor.props, "spec", "nodeTaints")
    stated_taints = read_taints(stated)
    if stated is not None and stated_taints is not None and stated_taints != taints:
        yield Violation(
            path="spec.nodeTaints",
            got=_join(stated_taints),
            expected=f"the taints of the pool {pool.name}: {_join(taints)}",
            remedy="copy the taints of the pool",
            urn=flavor.urn,
        )


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    pools = list(pools_and_nodes(resources))
    for flavor in Stack(resources).kueue(RESOURCE_FLAVOR):
        spec = mapping(flavor.props.get("spec"))
        alike: dict[tuple[str, frozenset[Taint]], NodePool] = {}
        for pool in pools:
            taints = _own_taints(pool)
            if taints is not None and pool.has(mapping(spec.get("nodeLabels"))):
                alike.setdefault((pool.name, taints), pool)
        for (_name, taints), pool in alike.items():
            found = [*_check_node_taints(flavor, pool, taints)]
            if tolerations_known(spec):
                found += _check_tolerations(flavor, pool, taints)
            yield from found


FLAVOR_TAINTS: Final = StackRule(
    name="flavor-taints",
    description="A ResourceFlavor tolerates exactly the taints of its nodes.",
    check=_check,
)
