"""Check the network settings of a run against the networks of its pools."""

from __future__ import annotations

from collections.abc import Iterator

from infra.domain import fabric
from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, issue, shown
from training import placement
from training.spec import RunSpec


def check_network(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Yield issues of an interface that pods do not have, and of an MTU that it does not have."""
    pools = placement.eligible_pools(run, platform)
    names = {fabric.expected_interface(pool) for pool in pools} - {""}
    if run.network.interface and names and run.network.interface not in names:
        yield issue(
            "unknown-interface",
            "network.interface",
            f"pods of the run's pools have no interface {shown(run.network.interface)}",
            f"must be {' or '.join(sorted(names))}",
            "remove it: the platform sets it",
        )
    if run.network.mtu is None:
        return
    for pool in pools:
        mtu = fabric.expected_mtu(pool)
        if mtu is None:
            yield issue(
                "unknown-mtu",
                "network.mtu",
                f"the MTU of pool {pool.name} is not known",
                "requires fabric.mtu of the pool in the stack file",
                "set it there, where the node validation measures it, or remove network.mtu",
            )
        elif mtu < run.network.mtu:
            yield issue(
                "mtu-too-large",
                "network.mtu",
                f"{run.network.mtu} is more than {mtu}, the MTU of pool {pool.name}",
                f"must be at most {mtu}",
                "lower it, or exclude the pool by gpuModel or allowSpot",
            )
