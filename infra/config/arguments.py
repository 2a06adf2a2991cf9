"""Conversion of the stack file to the arguments of the platform's components."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

from infra.addons import gpu_operator, mirror
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.config import platform_record
from infra.config.model import StackConfig
from infra.config.sections.cluster import ExistingClusterConfig, provider_args
from infra.config.sections.storage import named_storage, volume_sizes
from infra.config.sections.teams.model import TeamConfig, queue_teams
from infra.config.types import repository_of
from infra.domain.pools import Autoscaler, Workload
from infra.domain.storage import NamedStorageClass, SharedStorage
from infra.domain.tier import DEFAULT_PRIORITIES
from infra.queueing import priorities
from infra.queueing.backends import backend
from infra.queueing.quotas import QueuesArgs
from infra.sites.simulated.node_pools import SimulatedNodePoolsArgs
from infra.sites.simulated.storage import SimulatedStorageArgs
from infra.tenancy.admission import AdmissionPoliciesArgs
from infra.tenancy.limits import Quota
from infra.tenancy.restore_drill import RestoreDrill
from infra.tenancy.shared_view import SharedViewArgs
from infra.tenancy.team import TeamArgs


def existing_cluster(config: StackConfig) -> k8s.ProviderArgs:
    """Return the provider of the existing cluster."""
    assert isinstance(config.cluster, ExistingClusterConfig)
    return provider_args(config.cluster)


def named_storage_class(config: StackConfig) -> NamedStorageClass | None:
    """Return the storage class that the stack names; None where the stack creates its storage."""
    return named_storage(config.storage)


def simulated_nodes(config: StackConfig) -> SimulatedNodePoolsArgs:
    """Return the pools whose nodes the stack simulates."""
    simulated = tuple(pool for pool in config.pools if pool.nodes.simulated)
    return SimulatedNodePoolsArgs(pools=simulated)


def gpu_nodes(config: StackConfig) -> GpuNodesArgs:
    """Return the arguments of add-ons on GPU nodes."""
    return GpuNodesArgs(
        pools=config.pools,
        operator_brings_driver=config.gpus.driver == "operator",
        engine_on_nodes=config.on_aws is not None and not dcgm_address(config),
    )


def dcgm_address(config: StackConfig) -> str:
    """Where each node's DCGM engine answers, if the stack installs it with the GPU operator; else empty."""
    installed = gpu_operator.NAME in platform_record.to_install(config)
    return gpu_operator.DCGM_ADDRESS if installed else ""


def queues(config: StackConfig) -> QueuesArgs:
    """Return the GPU pools, and the teams that queue for them."""
    return QueuesArgs(
        cohort=config.cohort,
        pools=tuple(pool for pool in config.pools if pool.workload is Workload.GPU_TRAINING),
        teams=queue_teams(config.teams),
        gang_scale_up=config.autoscaler is Autoscaler.CLUSTER_AUTOSCALER,
        placeholder=_placeholder(config),
    )


def _placeholder(config: StackConfig) -> str:
    """Image of the pods by which the scheduler reserves room for a gang; empty: there are none."""
    image = backend(config.scheduler).placeholder_image
    return mirror.image(image, config.mirror or "") if image else ""


def simulated_storage(config: StackConfig) -> SimulatedStorageArgs:
    """Return the arguments of simulated storage."""
    return SimulatedStorageArgs(sizes=volume_sizes(config.storage))


def teams(
    config: StackConfig,
    images: Mapping[str, str],
    cluster_queues: Mapping[str, pulumi.Resource],
    storage: SharedStorage,
) -> dict[str, TeamArgs]:
    """Every team, by name. `images`: the stack's by name, every reference by digest."""
    scheduler, cloud = backend(config.scheduler), platform_record.cloud(config)
    return {
        team.name: TeamArgs(
            team=team.name,
            tier=team.tier,
            rdma=team.rdma,
            signed_images=config.signatures is not None,
            quota=Quota(cpu=team.quota.cpu, memory=team.quota.memory, gpus=team.quota.gpus),
            volumes=storage.volumes(team.name),
            protect_volumes=config.protected,
            egress_cidrs=config.egress_cidrs,
            node_services=cloud.node_services if cloud else (),
            secrets=tuple(secret.secret for secret in team.secrets),
            secret_store=cloud.secret_store(team.name) if cloud else None,
            restore_drill=_restore_drill(config, team, images),
            cluster_queue=cluster_queues.get(team.name),
            pod_groups=scheduler.pod_group_api,
            queue_holds_quota=scheduler.has_queues and not scheduler.holds_pods_back,
        )
        for team in config.teams
    }


def shared_view(config: StackConfig) -> SharedViewArgs:
    """Return the teams that may read the cluster and its queues."""
    return SharedViewArgs(teams=tuple(team.name for team in config.teams))


def admission(config: StackConfig) -> AdmissionPoliciesArgs:
    """What the admission policies of team namespaces need to know of the stack."""
    registries = platform_record.registries(config)
    if placeholder := _placeholder(config):
        registries = (*registries, repository_of(placeholder))
    scheduler = backend(config.scheduler)
    return AdmissionPoliciesArgs(
        taint_key=config.taint_key,
        registries=registries,
        priorities=priorities.PRIORITIES,
        ceilings=DEFAULT_PRIORITIES,
        queue_policies=tuple(scheduler.admission_policies(config.taint_key, config.cohort)),
        binders=scheduler.binders,
    )


def _restore_drill(
    config: StackConfig, team: TeamConfig, images: Mapping[str, str]
) -> RestoreDrill | None:
    section = team.restore_drill
    if not section.wanted(team.tier, has_image=section.image in images):
        return None
    pools = [pool.name for pool in config.pools if pool.workload is Workload.CPU]
    return section.drill(images.get(section.image, section.image), pools[0] if pools else None)
