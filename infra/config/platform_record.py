"""The Platform record of a stack file, derived before anything is created."""

from __future__ import annotations

from infra.addons import kube_prometheus_stack
from infra.addons.registry import ADD_ONS
from infra.config.model import StackConfig
from infra.domain import launcher_support, naming
from infra.domain.cloud import Cloud
from infra.domain.platform import Platform, TeamOutputs
from infra.domain.pools import Autoscaler, Nodes, Workload
from infra.domain.tier import DEFAULT_PRIORITIES
from infra.queueing import priorities, quotas
from infra.queueing.backends import backend
from infra.sections.types import repository_of
from infra.sites.aws.bucket_access import team_buckets
from infra.sites.aws.cloud import Aws


def present_operators(config: StackConfig) -> frozenset[str]:
    return frozenset(config.operators.present())


def to_install(config: StackConfig) -> tuple[str, ...]:
    """Return the operators that the stack installs, in the registry's order."""
    return tuple(name for name, one in config.operators.present().items() if not one.provided)


def has_prometheus(config: StackConfig) -> bool:
    return kube_prometheus_stack.NAME in config.operators.present()


def installed(config: StackConfig) -> tuple[str, ...]:
    """Return the names of all add-ons that the stack installs, those that create nodes included."""
    sections = {
        "policyController": config.signatures,
        "runPage": config.run_page,
        "costs": config.costs,
        "steering": config.steering,
        "elasticRuns": config.elastic_runs,
    }
    wanted = {*to_install(config), *(name for name, section in sections.items() if section)}
    if config.eks:
        wanted |= of_autoscaler(config.autoscaler, config.pools_of(Nodes.KARPENTER) != ())
    return tuple(name for name in ADD_ONS if name in wanted)


def of_autoscaler(autoscaler: Autoscaler, karpenter: bool) -> set[str]:
    """Return the names of the add-ons that create nodes or resize their groups."""
    found = {"karpenter", "karpenterCrd"} if karpenter else set()
    return found | ({"clusterAutoscaler"} if autoscaler is Autoscaler.CLUSTER_AUTOSCALER else set())


def gang_api(config: StackConfig) -> str:
    """Return the API version of Kubernetes' own PodGroup; empty where the scheduler does not need it."""
    apis = backend(config.scheduler).gang_apis
    return apis[config.cluster.version or ""] if apis else ""


def registries(config: StackConfig) -> tuple[str, ...]:
    """Return the allowed registries: those of the stack file, else those of its images."""
    if config.registries is not None:
        return config.registries
    return tuple(sorted({repository_of(image) for image in config.images.values()}))


def grafana_url(config: StackConfig) -> str:
    """Return the URL of Grafana; empty without one."""
    section = config.observability
    return section.grafana.url if section and section.grafana else ""


def buckets(config: StackConfig, *, writable: bool = False) -> tuple[str, ...]:
    """Return the buckets in which each team has its prefix, or those of them that it writes to.

    None on an existing cluster.
    """
    if config.on_aws is None:
        return ()
    names = team_buckets(config.on_aws.buckets.prefix)
    written = (names.checkpoints, names.artifacts)
    return written if writable else (names.datasets, *written)


def cloud(config: StackConfig) -> Cloud | None:
    """Return the cloud that the stack's cluster is created in; None for an existing cluster."""
    if config.on_aws is None:
        return None
    return Aws(
        region=config.on_aws.aws.region,
        account=config.on_aws.aws.account,
        cluster=config.cluster.name,
        notice_sidecar=config.interruption.imds_sidecar,
    )


def platform(config: StackConfig, stack: str) -> Platform:
    gpu_pools = [pool for pool in config.pools if pool.workload is Workload.GPU_TRAINING]
    scheduler = backend(config.scheduler)
    teams = {
        team.name: TeamOutputs(
            name=team.name,
            tier=team.tier,
            namespace=naming.namespace(team.name),
            local_queue=scheduler.queue(team.name, config.cohort),
            cluster_queue=scheduler.cluster_queue(team.name),
            gpu_quota=team.quota.gpus,
            flavors=tuple(pool.name for pool in quotas.usable(team, gpu_pools)),
            secrets={secret.name: secret.env for secret in team.secrets},
            most_nodes=quotas.most_nodes(team, gpu_pools, config.teams),
        )
        for team in config.teams
    }
    return Platform(
        stack=stack,
        cluster=config.cluster.name,
        cohort=config.cohort,
        pools=config.pools,
        teams=teams,
        launchers=launcher_support.launchers(
            present_operators(config), config.scheduler.unsupported_launchers
        ),
        scheduler=config.scheduler,
        gang_api=gang_api(config),
        priorities=priorities.PRIORITIES,
        default_priority=DEFAULT_PRIORITIES,
        storage_class=config.storage.claim_class,
        buckets=buckets(config),
        writable_buckets=buckets(config, writable=True),
        registries=registries(config),
        egress_cidrs=config.egress_cidrs,
        grafana=grafana_url(config),
        releases_groups=config.elastic_runs is not None,
        pod_additions=on.pod_additions if (on := cloud(config)) else {},
    )
