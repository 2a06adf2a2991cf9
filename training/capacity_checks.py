"""Whether a run fits the platform: GPUs, node pools, quotas, shutdown time and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.domain import prices, quantity
from infra.domain.catalog import SPOT_NOTICE_S
from infra.domain.platform import Platform
from infra.domain.pools import Capacity, NodePool
from infra.domain.scheduler import MAX_GRACE_S
from infra.sections.errors import ConfigIssue, issue, one_of, shown
from training import placement, spec
from training.launchers import LAUNCHERS, group, pod
from training.spec import RunSpec
from trainyard import contract


def check_capacity(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Sizes, limits and sums that do not fit the platform or each other."""
    yield from _single_node(run)
    yield from _collectives(run)
    yield from _quota(run, platform)
    pools = placement.eligible_pools(run, platform)
    if not pools:
        yield _nowhere(run, platform)
        return
    yield from _variables(run, platform)
    yield from _mixed(run, pools)
    yield from _sizes(run, platform, pools)
    yield from _grace(run, pools)
    yield from _cost(run, pools)


def _single_node(run: RunSpec) -> Iterator[ConfigIssue]:
    if LAUNCHERS[run.job_kind].support.single_node and run.nodes > 1:
        yield issue(
            "single-node-kind",
            "nodes",
            f"{run.nodes} nodes with jobKind {run.job_kind}",
            f"must be 1 with jobKind {run.job_kind}",
            "set jobKind: jobset",
        )


def _collectives(run: RunSpec) -> Iterator[ConfigIssue]:
    """The bandwidth is measured between several ranks, which torchrun starts."""
    if run.collective_gbps is None:
        return
    if not LAUNCHERS[run.job_kind].support.torchrun:
        yield issue(
            "kind-without-torchrun",
            "require.collectiveGBps",
            f"jobKind {run.job_kind} starts ranks without torchrun, which measures bandwidth",
            "requires a jobKind that starts ranks with torchrun",
            "remove it, or set jobKind: jobset",
        )
    elif run.world_size == 1:
        yield issue(
            "single-rank",
            "require.collectiveGBps",
            "a run of one GPU has no collectives",
            "requires at least two GPUs",
            "remove it",
        )


def _variables(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Secrets do not set variables of the platform: the API server rejects duplicates."""
    variables = [
        *pod.environment(run, platform),
        *group.environment(run),
        *pod.metrics_environment(),
    ]
    own = {one["name"] for one in variables} | {contract.ATTEMPT_ENV}
    for name in run.secrets:
        for key in sorted(own & set(platform.teams[run.team].secrets[name])):
            yield issue(
                "reserved-variable",
                "secrets",
                f"{shown(name)} sets {key}, a variable of the platform",
                "must not set variables of the platform",
                f"rename the key in the Secret and in the secrets of team {run.team}",
            )


def _quota(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    quota = platform.teams[run.team].gpu_quota
    groups = run.groups.count if run.groups else 1
    gpus = groups * run.world_size
    if gpus > quota:
        of_groups = f"{groups} x " if run.groups else ""
        yield issue(
            "quota-exceeded",
            "groups.max" if groups > 1 and run.world_size <= quota else "nodes",
            f"{of_groups}{run.nodes} nodes with {gpus} GPUs exceed the quota of team {run.team}",
            f"must need at most {quota} GPUs",
            "request fewer, or raise the team's quota.gpus",
        )


def _nowhere(run: RunSpec, platform: Platform) -> ConfigIssue:
    """Why no pool matches the run: the first requirement that leaves none."""
    pools = platform.gpu_pools(run.team)
    bought = [p for p in pools if p.capacity.value in run.capacity_types]
    modelled = [p for p in bought if not run.gpu_model or run.gpu_model in p.gpu_models]
    whole_gpus = [p for p in modelled if not p.sharing]
    sizes = sorted({p.gpus_per_node for p in whole_gpus})
    if not bought:
        return issue(
            "no-on-demand-pool",
            "allowSpot",
            f"false, but team {run.team} has spot pools only",
            "requires on-demand nodes for the team",
            "set allowSpot: true, add a pool, or raise the team's onDemandUsdPerHour or borrowing",
        )
    if not modelled:
        return issue(
            "no-such-pool",
            "gpuModel",
            f"{shown(run.gpu_model)} is in no {' or '.join(run.capacity_types)} pool of the team",
            f"must be one of {one_of({model for pool in bought for model in pool.gpu_models})}",
            "choose one, or set allowSpot",
        )
    if not whole_gpus:
        return issue(
            "shared-gpus",
            "nodes" if run.nodes > 1 else "gpusPerNode",
            f"{run.nodes if run.nodes > 1 else run.processes_per_node} is not possible with "
            f"shared GPUs, which NCCL cannot join ({_names(modelled)})",
            "must be 1",
            "set it to 1, or add a pool of whole GPUs",
        )
    several = run.nodes > 1 and run.processes_per_node < sizes[-1]
    whole = ": a run of several nodes takes whole nodes" if several else ""
    return issue(
        "no-such-pool",
        "gpusPerNode",
        f"no pool of the team has nodes for {run.processes_per_node} GPUs per node",
        f"must be {', '.join(map(str, sizes))} ({_names(whole_gpus)}){whole}",
        "change gpusPerNode, or add a pool",
    )


def _mixed(run: RunSpec, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    """A gang of several nodes on different GPUs runs at the pace of the slowest, or not at all."""
    mixed = [pool for pool in pools if len(pool.gpu_models) > 1]
    if run.nodes > 1 and not run.gpu_model and mixed:
        models = sorted({model for pool in mixed for model in pool.gpu_models})
        yield issue(
            "mixed-gpus",
            "gpuModel",
            f"missing, and nodes of pool {_names(mixed)} have different GPUs",
            f"must be one of {one_of(models)} for a run of several nodes",
            "set it, or give the pool instance types with one GPU",
        )


def _names(pools: Sequence[NodePool]) -> str:
    return ", ".join(pool.name for pool in pools)


def _gang(run: RunSpec, platform: Platform, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    """A gang is in one pool, and at most as large as the pool and its team's share of it.

    Groups are checked together: group_checks.
    """
    if run.groups:
        return
    largest = max(pool.max for pool in pools)
    most = platform.teams[run.team].most_nodes
    share = max(most.get(pool.name, pool.max) for pool in pools)
    if run.nodes > largest:
        yield issue(
            "pool-too-small",
            "nodes",
            f"{run.nodes} is more than any matching pool has ({_names(pools)})",
            f"must be at most {largest}",
            "request fewer, or raise the pool's max",
        )
    elif run.nodes > share:
        yield issue(
            "share-too-small",
            "nodes",
            f"{run.nodes} is more than team {run.team} can have at once ({_names(pools)})",
            f"must be at most {share}",
            "request fewer, or raise the team's guaranteed, borrowing or onDemandUsdPerHour",
        )


def _sizes(run: RunSpec, platform: Platform, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    yield from _gang(run, platform, pools)
    sizes = placement.pod_resources(run, pools)
    asked = {"cpu": quantity.millicores(sizes.cpu), "memory": quantity.bytes_(sizes.memory)}
    show = {"cpu": quantity.cpu, "memory": _gibibytes}
    for name, amount in asked.items():
        room = min(pool.node_quota[name] for pool in pools)
        if amount > room:
            yield issue(
                "node-too-small",
                f"resources.{name}",
                f"{getattr(sizes, name)} is more than a node has ({_names(pools)})",
                f"must be at most {show[name](room)}",
                "lower it",
            )
    if quantity.bytes_(sizes.shm) > asked["memory"]:
        yield issue(
            "shm-above-memory",
            "resources.shm",
            f"{sizes.shm} is more than resources.memory, of which it is a part",
            f"must be at most {sizes.memory}",
            "lower shm or raise memory",
        )


def _gibibytes(size: int) -> str:
    return f"{size / quantity.GIB:.1f}Gi"


def _grace(run: RunSpec, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    spot = any(pool.capacity is Capacity.SPOT for pool in pools)
    if spot and not run.grace.fits(SPOT_NOTICE_S):
        yield issue(
            "save-exceeds-notice",
            "saveSeconds",
            f"{run.save_seconds:g} needs {run.grace.termination_grace_s} s to shut down, and "
            f"spot nodes are reclaimed {SPOT_NOTICE_S} s after the notice",
            f"must be at most {spec.max_save_seconds(SPOT_NOTICE_S)} on spot capacity",
            "make saves faster, or set allowSpot: false",
        )
    elif not run.grace.fits(MAX_GRACE_S):
        yield issue(
            "save-exceeds-grace",
            "saveSeconds",
            f"{run.save_seconds:g} needs {run.grace.termination_grace_s} s to shut down, and an "
            f"evicted run has {MAX_GRACE_S} s",
            f"must be at most {spec.max_save_seconds(MAX_GRACE_S)}",
            "make saves faster: more nodes write at once, or faster storage",
        )


def _cost(run: RunSpec, pools: tuple[NodePool, ...]) -> Iterator[ConfigIssue]:
    if run.cost_cap_usd is None:
        return
    if run.max_hours is None:
        yield issue(
            "missing", "maxHours", "missing", "must be a number of hours with costCapUsd", "add it"
        )
        return
    hourly = placement.usd_per_hour(run, pools)
    if hourly is None:
        names = [pool.name for pool in pools if prices.per_node(pool) is None]
        yield issue(
            "price-unknown",
            "costCapUsd",
            f"infra/domain/catalog.yaml has no price for pools: {', '.join(names)}",
            "requires a price for every matching pool",
            "run python -m infra.cli.catalog refresh, or remove the cap",
        )
    elif hourly * run.max_hours > run.cost_cap_usd:
        yield issue(
            "above-cost-cap",
            "costCapUsd",
            f"{run.cost_cap_usd:g} is less than {run.max_hours:g} h at {hourly:.2f} USD/h, the "
            "highest price of a matching pool",
            f"must be at least {hourly * run.max_hours:.2f}",
            "raise it, lower maxHours, or use cheaper capacity",
        )
