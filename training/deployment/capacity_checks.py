"""Whether a run fits the platform: GPUs, node pools, quotas, shutdown time and cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.config.errors import ConfigIssue, one_of, shown
from infra.domain import quantity
from infra.domain.catalog import SPOT_NOTICE_S
from infra.domain.platform import Platform
from infra.domain.pools import Capacity, NodePool
from training import spec
from training.deployment import placement
from training.deployment.launchers import LAUNCHERS, pod
from training.deployment.run_schema import RunFile
from training.spec import RunSpec


def check_capacity(file: RunFile, run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Sizes, limits and sums that do not fit the platform or each other."""
    yield from _world(file, run)
    yield from _collectives(run)
    yield from _quota(run, platform)
    pools = placement.eligible_pools(run, platform)
    if not pools:
        yield _nowhere(run, platform)
        return
    yield from _variables(run, platform)
    yield from _sizes(run, platform, pools)
    yield from _grace(run, pools)
    yield from _cost(run, pools)


def _world(file: RunFile, run: RunSpec) -> Iterator[ConfigIssue]:
    product = f"nodes x gpusPerNode = {run.nodes} x {run.processes_per_node} = {run.world_size}"
    if file.world_size is not None and file.world_size != run.world_size:
        yield ConfigIssue(
            path="worldSize",
            problem=f"got {file.world_size}",
            valid=f"allowed {product}",
            action="remove or correct it",
        )
    if LAUNCHERS[run.launcher].support.single_node and run.nodes > 1:
        yield ConfigIssue(
            path="nodes",
            problem=f"got {run.nodes}",
            valid=f"allowed 1 with launcher {run.launcher}",
            action="set launcher: jobset",
        )


def _collectives(run: RunSpec) -> Iterator[ConfigIssue]:
    """A bandwidth is measured by ranks that torchrun starts, and by more than one."""
    if run.collective_gbps is None:
        return
    reason = ""
    torchrun = LAUNCHERS[run.launcher].support.torchrun
    if not torchrun:
        reason = f"with launcher {run.launcher}, whose mpirun starts ranks its own way"
    elif run.world_size == 1:
        reason = "for a run of one GPU, which has no collectives"
    if reason:
        yield ConfigIssue(
            path="require.collectiveGBps",
            problem=f"got {run.collective_gbps:g}",
            valid=f"allowed nothing {reason}",
            action="remove it" + ("" if torchrun else ", or set launcher: jobset"),
        )


def _variables(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    """Secrets do not replace what the platform says, which the API server would refuse as a double."""
    told = [*pod.environment(run, platform), *pod.metrics_environment()]
    own = {one["name"] for one in told} | {spec.ATTEMPT_ENV}
    for name in run.secrets:
        for key in sorted(own & set(platform.teams[run.team].secrets[name])):
            yield ConfigIssue(
                path="secrets",
                problem=f"got {shown(name)} with {key}, which the platform sets",
                valid="allowed variables of your own",
                action=f"rename the key in the Secret and in the secrets of team {run.team}",
            )


def _quota(run: RunSpec, platform: Platform) -> Iterator[ConfigIssue]:
    quota = platform.teams[run.team].gpu_quota
    if run.world_size > quota:
        yield ConfigIssue(
            path="nodes",
            problem=f"got {run.nodes}, {run.world_size} GPUs in all",
            valid=f"allowed at most {quota} GPUs, the quota of team {run.team}",
            action="ask for fewer, or raise the team's quota.gpus",
        )


def _nowhere(run: RunSpec, platform: Platform) -> ConfigIssue:
    """Why no pool suits the run, by the first wish that leaves none."""
    pools = platform.gpu_pools(run.team)
    bought = [p for p in pools if p.capacity.value in run.capacity_types]
    modelled = [p for p in bought if not run.gpu_model or run.gpu_model in p.gpu_models]
    whole_gpus = [p for p in modelled if not p.sharing]
    sizes = sorted({p.gpus_per_node for p in whole_gpus})
    if not bought:
        return ConfigIssue(
            path="allowSpot",
            problem=f"got false, where team {run.team} has spot pools only",
            valid="allowed true, or on-demand nodes for the team",
            action="set allowSpot: true, add a pool, or raise the team's onDemandUsdPerHour or "
            "borrowing",
        )
    if not modelled:
        return ConfigIssue(
            path="gpuModel",
            problem=f"got {shown(run.gpu_model)}, of which there is no {' or '.join(run.capacity_types)} pool",
            valid=f"allowed {one_of({model for pool in bought for model in pool.gpu_models})}",
            action="choose one, or set allowSpot",
        )
    if not whole_gpus:
        return ConfigIssue(
            path="nodes" if run.nodes > 1 else "gpusPerNode",
            problem=f"got {run.nodes if run.nodes > 1 else run.processes_per_node}",
            valid=f"allowed 1, for {_names(modelled)} offers shares of GPUs, which NCCL does not join",
            action="set it to 1, or add a pool of whole GPUs",
        )
    several = run.nodes > 1 and run.processes_per_node < sizes[-1]
    whole = ", for a run of several nodes takes whole nodes" if several else ""
    return ConfigIssue(
        path="gpusPerNode",
        problem=f"got {run.processes_per_node}",
        valid=f"allowed {', '.join(map(str, sizes))} (GPUs per node of {_names(whole_gpus)}){whole}",
        action="change gpusPerNode, or add a pool",
    )


def _names(pools: Sequence[NodePool]) -> str:
    return ", ".join(pool.name for pool in pools)


def _gang(run: RunSpec, platform: Platform, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    """A gang is in one pool, and may be as large as its team's share of it."""
    largest = max(pool.max for pool in pools)
    most = platform.teams[run.team].most_nodes
    share = max(most.get(pool.name, pool.max) for pool in pools)
    if run.nodes > largest:
        yield ConfigIssue(
            path="nodes",
            problem=f"got {run.nodes}",
            valid=f"allowed at most {largest}, the largest pool of {_names(pools)}",
            action="ask for fewer, or raise the pool's max",
        )
    elif run.nodes > share:
        yield ConfigIssue(
            path="nodes",
            problem=f"got {run.nodes}",
            valid=f"allowed at most {share}, what team {run.team} can have at once of {_names(pools)}",
            action="ask for fewer, or raise the team's guaranteed, borrowing or onDemandUsdPerHour",
        )


def _sizes(run: RunSpec, platform: Platform, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    yield from _gang(run, platform, pools)
    asked = {
        "cpu": quantity.millicores(run.resources.cpu),
        "memory": quantity.bytes_(run.resources.memory),
    }
    show = {"cpu": quantity.cpu, "memory": _gibibytes}
    for name, amount in asked.items():
        room = min(pool.node_quota[name] for pool in pools)
        if amount > room:
            yield ConfigIssue(
                path=f"resources.{name}",
                problem=f"got {getattr(run.resources, name)}",
                valid=f"allowed at most {show[name](room)}, what a node of {_names(pools)} has for runs",
                action="lower it",
            )
    if quantity.bytes_(run.resources.shm) > asked["memory"]:
        yield ConfigIssue(
            path="resources.shm",
            problem=f"got {run.resources.shm}",
            valid=f"allowed at most memory, {run.resources.memory}, of which it is a part",
            action="lower shm or raise memory",
        )


def _gibibytes(size: int) -> str:
    return f"{size / quantity.GIB:.1f}Gi"


def _grace(run: RunSpec, pools: Sequence[NodePool]) -> Iterator[ConfigIssue]:
    spot = any(pool.capacity is Capacity.SPOT for pool in pools)
    if spot and not run.grace.fits(SPOT_NOTICE_S):
        yield ConfigIssue(
            path="saveSeconds",
            problem=f"got {run.save_seconds:g}, which needs {run.grace.termination_grace_s} s to shut down",
            valid=f"allowed at most {spec.max_save_seconds(SPOT_NOTICE_S)}, for spot capacity is gone "
            f"{SPOT_NOTICE_S} s after its notice",
            action="make saves faster, or set allowSpot: false",
        )


def _cost(run: RunSpec, pools: tuple[NodePool, ...]) -> Iterator[ConfigIssue]:
    if run.cost_cap_usd is None:
        return
    if run.max_hours is None:
        yield ConfigIssue(
            path="maxHours",
            problem="got nothing",
            valid="allowed a number of hours, for costCapUsd needs one",
            action="add it",
        )
        return
    hourly = placement.usd_per_hour(run, pools)
    if hourly is None:
        names = [pool.name for pool in pools if pool.usd_per_node_hour is None]
        yield ConfigIssue(
            path="costCapUsd",
            problem=f"got a cap on pools whose price is not known: {', '.join(names)}",
            valid="allowed a cap where infra/domain/catalog.yaml has a price of every pool",
            action="run python -m infra.cli.catalog refresh, or remove the cap",
        )
    elif hourly * run.max_hours > run.cost_cap_usd:
        yield ConfigIssue(
            path="costCapUsd",
            problem=f"got {run.cost_cap_usd:g}",
            valid=f"allowed at least {hourly * run.max_hours:.2f}, {run.max_hours:g} h at {hourly:.2f} "
            f"USD/h on the dearest pool it may use",
            action="raise it, lower maxHours, or use cheaper capacity",
        )
