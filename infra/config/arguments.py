"""Conversion of the stack file to the arguments of the platform's components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pulumi
import pulumi_kubernetes as k8s

from infra.addons import fluent_bit, gpu_operator, kube_prometheus_stack, mirror
from infra.addons.fluent_bit import CloudWatch, FluentBitArgs
from infra.addons.gpu_nodes import GpuNodesArgs, tolerations
from infra.config import platform_record
from infra.config.model import StackConfig
from infra.domain import naming, prices, published_record
from infra.domain.platform import Platform
from infra.domain.pools import (
    Autoscaler,
    Capacity,
    NodePool,
    Nodes,
    PurchaseModel,
    Workload,
)
from infra.domain.storage import SharedStorage
from infra.domain.tier import DEFAULT_PRIORITIES
from infra.observability.component import ObservabilityArgs
from infra.observability.monitors import GPU_EXPORTERS
from infra.observability.recording import Facts, NodePrice
from infra.queueing import priorities
from infra.queueing.backends import backend
from infra.queueing.quotas import QueuesArgs
from infra.sections.cluster import ExistingClusterConfig
from infra.sections.logs import CloudWatchConfig
from infra.sections.observability import ObservabilityConfig
from infra.sections.storage import StorageKind
from infra.sections.teams import TeamConfig
from infra.sections.types import repository_of
from infra.sites.aws import run_log_access
from infra.sites.aws.bucket_access import team_buckets
from infra.tenancy.admission import AdmissionPoliciesArgs, caps
from infra.tenancy.team import TeamArgs
from infra.validation.component import ValidationArgs


def existing_cluster(config: StackConfig) -> k8s.ProviderArgs:
    assert isinstance(config.cluster, ExistingClusterConfig)
    return k8s.ProviderArgs(
        # Without a path, KUBECONFIG names it.
        kubeconfig=config.cluster.kubeconfig_path,
        context=config.cluster.context,
        cluster_identifier=config.cluster.name,
        enable_server_side_apply=True,
    )


def kubeconfig(config: StackConfig) -> tuple[str | None, str | None]:
    """Return the path and the context of the existing cluster's kubeconfig, as far as they are configured."""
    cluster = config.cluster
    if isinstance(cluster, ExistingClusterConfig):
        return cluster.kubeconfig_path, cluster.context
    return None, None


def gpu_nodes(config: StackConfig) -> GpuNodesArgs:
    return GpuNodesArgs(
        pools=config.pools,
        operator_brings_driver=config.gpus.driver == "operator",
        engine_on_nodes=config.on_aws is not None and not dcgm_address(config),
    )


def dcgm_address(config: StackConfig) -> str:
    """Return the address of each node's DCGM engine; empty unless the stack installs the GPU operator."""
    installed = gpu_operator.NAME in platform_record.to_install(config)
    return gpu_operator.DCGM_ADDRESS if installed else ""


def block_storage_class(config: StackConfig) -> str:
    """Return the class of volumes that one node writes; empty: the cluster's default class."""
    return naming.BLOCK_STORAGE_CLASS if config.on_aws else ""


def needs_block_volumes(config: StackConfig) -> bool:
    """Return whether an add-on needs a class for block volumes, which EKS does not have by default."""
    installed = platform_record.to_install(config)
    prometheus = kube_prometheus_stack.NAME in installed
    costs = config.costs is not None and not config.costs.storage_class
    return costs or (prometheus and not _observability(config).storage_class)


def observability(config: StackConfig) -> ObservabilityArgs | None:
    """Return rules, monitors and dashboards; None without a Prometheus."""
    present = platform_record.present_operators(config)
    if not platform_record.has_prometheus(config):
        return None
    # Rules load every alert: only an update needs them.
    from infra.observability import dashboards
    from infra.observability.alerts import rule_file

    section = _observability(config)
    budgets = {team.name: team.on_demand_usd_per_hour for team in config.teams}
    facts = Facts(
        prices=tuple(
            NodePrice(
                instance_type=price.instance_type,
                capacity=price.purchase.value,
                usd_per_hour=price.usd_per_hour,
            )
            for price in prices.price_list(config.pools)
        ),
        purchase_labels=prices.PURCHASE_LABELS,
        reserved_pools=tuple(pool.name for pool in config.pools if pool.reservation),
        team_budgets={team: float(usd) for team, usd in budgets.items() if usd is not None},
        costs=config.costs is not None,
        steering=config.steering is not None,
    )
    return ObservabilityArgs(
        groups=rule_file(facts, section.runbooks or "")["groups"],
        dashboards=dashboards.texts(),
        scrape_seconds=section.scrape_seconds,
        gpu_exporter=next((name for name in GPU_EXPORTERS if name in present), ""),
        kueue="kueue" in present,
        costs=config.costs is not None,
        steering=config.steering is not None,
        prometheus_clients=_prometheus_clients(config),
        isolated=kube_prometheus_stack.NAME in platform_record.to_install(config),
    )


def _prometheus_clients(config: StackConfig) -> list[str]:
    """Return the namespaces of the programs that get Prometheus' address."""
    programs = {
        naming.COSTS_NAMESPACE: config.costs,
        naming.RUN_PAGE_NAMESPACE: config.run_page,
        naming.STEERING_NAMESPACE: config.steering,
    }
    return [namespace for namespace, section in programs.items() if section]


def _observability(config: StackConfig) -> ObservabilityConfig:
    return config.observability or ObservabilityConfig()


def log_shipper(config: StackConfig) -> FluentBitArgs:
    namespaces = [naming.namespace(team.name) for team in config.teams]
    if config.validation:
        namespaces.append(naming.VALIDATION_NAMESPACE)
    cloudwatch = None
    if config.on_aws and log_group(config):
        name = run_log_access.group_name(config.cluster.name)
        cloudwatch = CloudWatch(region=config.on_aws.aws.region, group=name)
    destination = cloudwatch or (config.logs and config.logs.loki)
    assert destination
    return FluentBitArgs(
        namespaces=tuple(namespaces),
        destination=destination,
        tolerations=tuple(tolerations(config.pools)),
        monitored=platform_record.has_prometheus(config),
    )


def budgets(config: StackConfig) -> list[dict[str, Any]]:
    """Return the budgets of the teams that have one, and which of their runs a drain stops, as JSON."""
    spot = [pool.name for pool in config.pools if pool.capacity is Capacity.SPOT]
    return [
        {
            "team": team.name,
            "usdPerMonth": team.budget.usd_per_month,
            "gpuHoursPerMonth": team.budget.gpu_hours_per_month,
            "warnAt": team.budget.warn_at,
            "action": team.budget.action,
            "spotFlavors": spot,
            "usualPriority": priorities.PRIORITIES[DEFAULT_PRIORITIES[team.tier]],
        }
        for team in config.teams
        if team.budget
    ]


def steering(config: StackConfig) -> dict[str, Any]:
    """Return the pools that runs queue for, and the rules by which they are steered, as JSON."""
    assert config.steering
    pools = [pool for pool in config.pools if pool.workload is Workload.GPU_TRAINING]
    return {
        "pools": [
            {
                "name": pool.name,
                "place": _PLACES[pool.purchase_model],
                "usdPerNodeHour": prices.per_node(pool),
                **({"interruptions": pool.interruptions} if pool.capacity is Capacity.SPOT else {}),
                **_clock(pool),
            }
            for pool in pools
        ],
        "rules": config.steering.rules()
        | {"startSeconds": float(config.gang_timeouts.start_seconds)},
        "cordonNamedNodes": config.steering.cordon_named_nodes,
    }


_PLACES: Final = {
    PurchaseModel.SPOT: "spot",
    PurchaseModel.HOURLY: "on-demand",
    PurchaseModel.RESERVED: "reservation",
}
"""Values of training.spot.decide.Place."""


_TAKEN_BEFORE_S: Final[Mapping[Nodes, float]] = {Nodes.MANAGED: 1800.0, Nodes.KARPENTER: 2400.0}
"""How long before its end the nodes of a capacity block are taken. EC2 ends them 30 minutes before
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-capacity-blocks.html); Karpenter deletes its own ten
minutes earlier (karpenter-provider-aws 1.15.0, pkg/controllers/capacityreservation/expiration)."""


def _clock(pool: NodePool) -> dict[str, float]:
    """Return when runs may be on the nodes of a capacity block, in Unix seconds."""
    reserved = pool.reservation
    if reserved is None or reserved.start is None or reserved.end is None:
        return {}
    return {
        "opens": reserved.start.timestamp(),
        "closes": reserved.end.timestamp() - _TAKEN_BEFORE_S[pool.nodes],
    }


def log_group(config: StackConfig) -> CloudWatchConfig | None:
    """Return the log group that the stack creates on AWS; None where logs go elsewhere."""
    if config.on_aws is None or fluent_bit.NAME not in platform_record.to_install(config):
        return None
    return config.logs.cloudwatch if config.logs else CloudWatchConfig()


def validation(
    config: StackConfig, platform: Platform, images: Mapping[str, str]
) -> ValidationArgs | None:
    """Return the node checks; None without the section. `images`: the stack's by name, by digest."""
    section = config.validation
    if section is None:
        return None
    return ValidationArgs(
        platform=platform,
        operators=tuple(sorted(platform_record.present_operators(config))),
        image=images.get(section.image, section.image),
        signed_images=config.signatures is not None,
        weekly=section.weekly,
        min_gbps=section.min_gbps,
    )


def queues(config: StackConfig) -> QueuesArgs:
    return QueuesArgs(
        cohort=config.cohort,
        pools=tuple(pool for pool in config.pools if pool.workload is Workload.GPU_TRAINING),
        teams=config.teams,
        gang_scale_up=config.autoscaler is Autoscaler.CLUSTER_AUTOSCALER,
        placeholder=_placeholder(config),
    )


def _placeholder(config: StackConfig) -> str:
    """Return the image of the pods with which the scheduler reserves nodes for a gang; empty for none."""
    image = backend(config.scheduler).placeholder_image
    return mirror.image(image, config.mirror or "") if image else ""


def teams(
    config: StackConfig,
    platform: Platform,
    images: Mapping[str, str],
    cluster_queues: Mapping[str, pulumi.Resource],
    storage: SharedStorage,
) -> dict[str, TeamArgs]:
    """Return the arguments of every team by name. `images`: the stack's by name, by digest."""
    scheduler, cloud = backend(config.scheduler), platform_record.cloud(config)
    return {
        team.name: TeamArgs(
            team=team,
            signed_images=config.signatures is not None,
            caps=_caps(team, platform),
            run_page=config.run_page is not None,
            costs=config.costs is not None,
            steering=config.steering is not None,
            elastic_runs=config.elastic_runs is not None,
            volumes=storage.volumes(team.name),
            protect_volumes=config.protected,
            egress_cidrs=config.egress_cidrs,
            node_services=cloud.node_services if cloud else (),
            secret_store=cloud.secret_store(team.name) if cloud else None,
            drill_image=_drill_image(team, images),
            results_image=_results_image(config, team, images),
            results_store=_results_store(config, team),
            cpu_pool=platform.cpu_pool.name if platform.cpu_pool else None,
            local_queue=bool(scheduler.cluster_queue(team.name)),
            cluster_queue=cluster_queues.get(team.name),
            pod_groups=scheduler.pod_group_api,
            queue_holds_quota=config.scheduler.has_queues and not scheduler.holds_pods_back,
            record=published_record.to_text(platform, team.name, images),
        )
        for team in config.teams
    }


def _caps(team: TeamConfig, platform: Platform) -> dict[str, str]:
    gpus = max((pool.gpus_per_node for pool in platform.gpu_pools(team.name)), default=0)
    return caps.cap_annotations(team.caps, gpus)


def admission(config: StackConfig) -> AdmissionPoliciesArgs:
    registries = platform_record.registries(config)
    if placeholder := _placeholder(config):
        registries = (*registries, repository_of(placeholder))
    scheduler = backend(config.scheduler)
    return AdmissionPoliciesArgs(
        gpu_taint=config.gpu_taint,
        registries=registries,
        priorities=priorities.PRIORITIES,
        ceilings=DEFAULT_PRIORITIES,
        queue_policies=tuple(scheduler.admission_policies(config.taint_key, config.cohort)),
        binders=scheduler.binders,
    )


def _drill_image(team: TeamConfig, images: Mapping[str, str]) -> str:
    drill = team.restore_drill
    wanted = drill.wanted(team.tier, has_image=drill.image in images)
    return images.get(drill.image, drill.image) if wanted else ""


def _results_image(config: StackConfig, team: TeamConfig, images: Mapping[str, str]) -> str:
    results = team.results
    wanted = results.wanted(
        exported=config.storage.kind is StorageKind.FSX,
        own_bucket=config.eks is not None,
        has_image=results.image in images,
    )
    return images.get(results.image, results.image) if wanted else ""


def _results_store(config: StackConfig, team: TeamConfig) -> str:
    on = config.on_aws
    return f"s3://{team_buckets(on.buckets.prefix).checkpoints}/{team.name}" if on else ""
