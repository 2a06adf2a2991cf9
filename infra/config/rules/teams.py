"""Teams: shares of pools, cost limits, members and secrets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from infra.config.model import StackConfig
from infra.config.rules.aws import check_role_account
from infra.config.rules.cluster import access_roles
from infra.domain import catalog, fabric, prices
from infra.domain.pools import Capacity, NodePool, Workload
from infra.domain.tier import TIERS
from infra.queueing import quotas
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown
from infra.sections.teams import TeamConfig, is_role

_BY_POOL: Final = ("guaranteed", "borrowing", "lending")
"""Options of a team with nodes by pool."""


def _teams(stack: StackConfig) -> Iterator[tuple[str, TeamConfig]]:
    for index, team in enumerate(stack.teams):
        yield f"teams[{index}]", team


def _gpu_pools(stack: StackConfig) -> dict[str, NodePool]:
    return {pool.name: pool for pool in stack.pools if pool.workload is Workload.GPU_TRAINING}


def check_queued_pools(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require GPU pools in guarantees, borrowing and lending."""
    queued, names = _gpu_pools(stack), [pool.name for pool in stack.node_pools]
    for place, team in _teams(stack):
        for path, name in [
            (f"{place}.{key}.{name}", name) for key in _BY_POOL for name in getattr(team, key)
        ]:
            if name not in names:
                yield issue(
                    "unknown-name",
                    path,
                    f"unknown pool {shown(name)}",
                    f"must be one of {one_of(names)}",
                    did_you_mean(name, names, "name a pool of nodePools"),
                )
            elif name not in queued:
                yield issue(
                    "cpu-pool",
                    path,
                    f"{shown(name)} is a cpu pool",
                    "must be a gpu-training pool (only GPU nodes are queued)",
                    "remove it",
                )


def check_guarantees(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require guarantees whose sum fits into the pool, and not all on spot for production."""
    queued, names = _gpu_pools(stack), [pool.name for pool in stack.node_pools]
    promised: dict[str, int] = {}
    for place, team in _teams(stack):
        for name, nodes in team.guaranteed.items():
            if name not in queued:
                continue
            most, before = queued[name].max, promised.get(name, 0)
            promised[name] = before + nodes
            if promised[name] > most:
                yield issue(
                    "guarantees-above-pool",
                    f"{place}.guaranteed.{name}",
                    f"{nodes} makes {promised[name]} with the teams above",
                    f"must be at most {most - before}: the pool has at most {most} nodes",
                    f"lower it, or raise nodePools[{names.index(name)}].max",
                )
        own = [queued.get(name) for name, nodes in team.guaranteed.items() if nodes]
        if TIERS[team.tier].needs_on_demand_guarantee and {one and one.capacity for one in own} == {
            Capacity.SPOT
        }:
            yield issue(
                "production-on-spot",
                f"{place}.guaranteed",
                "all guaranteed pools are spot",
                "tier: production requires nodes of an on-demand pool",
                "guarantee on-demand nodes, too, or set tier: research",
            )


def check_gpu_quotas(stack: StackConfig) -> Iterator[ConfigIssue]:
    total = sum(pool.max * pool.cards_per_node for pool in stack.pools)
    for place, team in _teams(stack):
        if team.quota.gpus > total:
            yield issue(
                "quota-above-pools",
                f"{place}.quota.gpus",
                f"{team.quota.gpus} exceeds the GPUs of all pools",
                f"must be at most {total}",
                "lower it, or enlarge a pool",
            )


def check_lending(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Reject lending above the guarantee, and borrowing above what the pool has besides it."""
    queued = _gpu_pools(stack)
    for place, team in _teams(stack):
        for name, nodes in team.lending.items():
            own = team.guaranteed.get(name, 0)
            if name in queued and nodes > own:
                yield issue(
                    "lending-above-guarantee",
                    f"{place}.lending.{name}",
                    f"{nodes} exceeds the team's guarantee",
                    f"must be at most {own}, the nodes of {name} that the team is guaranteed",
                    "lower it, or remove it to lend all",
                )
        for name, nodes in team.borrowing.items():
            own = team.guaranteed.get(name, 0)
            if name in queued and own <= queued[name].max < own + nodes:
                yield issue(
                    "borrowing-above-pool",
                    f"{place}.borrowing.{name}",
                    f"{nodes} exceeds what the pool can lend",
                    f"must be at most {queued[name].max - own}, what {name} has besides the "
                    "team's own nodes",
                    "lower it, or remove it to borrow without a limit",
                )


def check_costs(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Allow on-demand caps for research only, above the guarantee's cost; require a limit in every budget."""
    pools = [pool for pool in _gpu_pools(stack).values() if prices.paid_on_demand(pool)]
    for place, team in _teams(stack):
        path, cap, budget = f"{place}.onDemandUsdPerHour", team.on_demand_usd_per_hour, team.budget
        if cap is not None and not TIERS[team.tier].on_demand_capped:
            yield issue(
                "cost-cap-tier",
                path,
                f"{cap:g} for a team of tier production",
                "requires tier: research (production depends on on-demand nodes)",
                "remove it, and limit production with borrowing",
            )
        elif cap is not None:
            yield from _check_cost_cap(path, cap, team, pools)
        if budget and budget.usd_per_month is None and budget.gpu_hours_per_month is None:
            yield issue(
                "budget-without-limit",
                f"{place}.budget",
                "no limit is set",
                "requires usdPerMonth, gpuHoursPerMonth or both",
                "add one, or remove budget",
            )


def _check_cost_cap(
    path: str, cap: float, team: TeamConfig, pools: Sequence[NodePool]
) -> Iterator[ConfigIssue]:
    unknown = [pool.name for pool in pools if prices.per_node(pool) is None]
    if unknown:
        yield issue(
            "price-unknown",
            path,
            f"the price of {', '.join(unknown)} is unknown",
            f"requires a price in {catalog.DATA.name} for every on-demand pool",
            "run python -m infra.cli.catalog refresh, or set borrowing instead",
        )
        return
    own = _cents(quotas.guaranteed_usd_per_hour(team, pools))
    cheapest = _cents(min((prices.per_node(pool) or 0.0 for pool in pools), default=0.0))
    if cap < own:
        yield issue(
            "cost-cap-below-guarantee",
            path,
            f"{cap:g} is below the cost of the team's guaranteed on-demand nodes",
            f"must be at least {own:.2f}",
            "raise it, or guarantee fewer nodes",
        )
    elif 0 < cap < cheapest:
        yield issue(
            "cost-cap-below-node",
            path,
            f"{cap:g} is below the price of one node",
            f"must be 0 (never on demand), or at least {cheapest:.2f}",
            "raise it, or set 0",
        )


def _cents(usd: float) -> float:
    """Round up to cents, so that the value in a message is enough."""
    return math.ceil(round(usd * 100, 4)) / 100


def check_members(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require each member of a team once, and IAM roles of the account that nothing else names, on EKS only."""
    taken = {arn: path for path, arn in reversed(list(access_roles(stack.eks)))}
    for place, team in _teams(stack):
        first: dict[str, str] = {}
        lists = {"researchers": team.members.researchers, "leads": team.members.leads}
        listed = [
            (f"{place}.members.{k}[{i}]", m)
            for k, named in lists.items()
            for i, m in enumerate(named)
        ]
        for path, member in listed:
            if first.setdefault(member, path) != path:
                yield issue(
                    "duplicate",
                    path,
                    f"already listed as {first[member]}",
                    "a member of a team must be listed once: a lead may do all that a researcher "
                    "may",
                    "remove one of them",
                )
            elif member in taken:
                yield issue(
                    "duplicate",
                    path,
                    f"already listed as {taken[member]}",
                    "a cluster has one access entry per role",
                    "remove one of them, or use another role",
                )
            if is_role(member) and not stack.eks:
                yield issue(
                    "role-without-eks",
                    path,
                    "an IAM role, on a cluster that the stack does not create",
                    "must be a group of the cluster's identity provider",
                    "name a group, and map the role to it in the cluster's own access "
                    "configuration",
                )
            elif is_role(member):
                yield from check_role_account(stack, path, member)


def check_secrets(stack: StackConfig) -> Iterator[ConfigIssue]:
    """Require unique names and variables, a store for remote keys, and no variables of the pool's network."""
    for place, team in _teams(stack):
        first: dict[tuple[str, str], str] = {}
        for number, secret in enumerate(team.secrets):
            at = f"{place}.secrets[{number}]"
            given = [("name", secret.name, f"{at}.name")]
            given += [("env", key, f"{at}.env[{i}]") for i, key in enumerate(secret.env)]
            for kind, name, path in given:
                if first.setdefault((kind, name), path) != path:
                    yield issue(
                        "duplicate",
                        path,
                        f"{shown(name)} is already used by {first[kind, name]}",
                        "names and variables of a team's secrets must be unique",
                        "rename one of them",
                    )
                if kind == "env" and fabric.owns_variable(name):
                    yield issue(
                        "reserved-variable",
                        path,
                        f"{shown(name)} is set by the platform",
                        "network variables follow from the pool and cannot come from a secret",
                        "remove it, and describe the network in the pool's fabric",
                    )
            if secret.store and not secret.remote_key:
                yield issue(
                    "store-without-key",
                    f"{at}.store",
                    f"{shown(secret.store)} is set without remoteKey",
                    "a store requires remoteKey",
                    "add remoteKey, or remove store",
                )
            if secret.remote_key and not secret.store and not stack.eks:
                yield issue(
                    "missing",
                    f"{at}.store",
                    "missing",
                    "remoteKey requires a ClusterSecretStore of the cluster (only EKS has a "
                    "default)",
                    "add it, or create the Secret manually and remove remoteKey",
                )
            if secret.remote_key and "externalSecrets" not in stack.operators.present():
                yield issue(
                    "operator-required",
                    f"{at}.remoteKey",
                    "operators.externalSecrets is missing",
                    "remoteKey requires operators.externalSecrets",
                    "add externalSecrets: {provided: false} to operators",
                )
