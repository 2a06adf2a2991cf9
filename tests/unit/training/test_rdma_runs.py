"""Memory is locked only where RDMA needs it and the team was let."""

from __future__ import annotations

from typing import Any

from tests.golden.example_runs import platform, run, stack_values
from training.deployment.launchers import pod


def _capabilities(rdma: bool, **changes: Any) -> dict[str, Any]:
    teams = [team | {"rdma": rdma} for team in stack_values()["teams"]]
    found = pod.container(run(**changes), platform(teams=teams), ["true"])
    capabilities: dict[str, Any] = found["securityContext"]["capabilities"]
    return capabilities


def test_a_gang_over_efa_of_a_team_with_rdma_may_lock_memory() -> None:
    assert _capabilities(True) == {"drop": ["ALL"], "add": ["IPC_LOCK"]}


def test_without_the_teams_option_nothing_is_added() -> None:
    assert _capabilities(False) == {"drop": ["ALL"]}


def test_a_run_of_one_node_needs_no_rdma() -> None:
    assert _capabilities(True, nodes=1) == {"drop": ["ALL"]}
