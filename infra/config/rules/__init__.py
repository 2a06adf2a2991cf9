"""Rules of a stack file whose values are valid by themselves: a module for each group of sections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from infra.config.model import StackConfig
from infra.config.rules import (
    aws,
    cluster,
    gpus,
    images,
    jobs,
    network,
    node_pools,
    observability,
    operators,
    storage,
    teams,
)
from infra.sections.errors import ConfigIssue

RULES: Final[tuple[Callable[[StackConfig], Iterator[ConfigIssue]], ...]] = (
    aws.check_aws_sections,
    cluster.check_access_roles,
    cluster.check_system_nodes,
    network.check_zones,
    network.check_vpc_addresses,
    network.check_existing_subnets,
    network.check_subnet_capacity,
    network.check_zones_have_subnets,
    network.check_efa_zone,
    node_pools.check_unique_names,
    node_pools.check_pool_sizes,
    node_pools.check_instance_types,
    node_pools.check_cpu_pool,
    node_pools.check_labels,
    node_pools.check_node_source,
    node_pools.check_reservations,
    node_pools.check_autoscaler,
    node_pools.check_fabric,
    storage.check_storage_backend,
    teams.check_members,
    teams.check_queued_pools,
    teams.check_guarantees,
    teams.check_gpu_quotas,
    teams.check_lending,
    teams.check_costs,
    teams.check_secrets,
    jobs.check_restore_drills,
    jobs.check_results,
    operators.check_scheduler_operator,
    operators.check_native_version,
    operators.check_team_options,
    operators.check_addon_versions,
    operators.check_addon_images,
    operators.check_charts,
    operators.check_gpu_operators,
    operators.check_required_operators,
    gpus.check_gpu_driver,
    gpus.check_gpu_sharing,
    images.check_source_images,
    images.check_registries,
    images.check_egress,
    images.check_signer,
    observability.check_logs,
    observability.check_grafana,
    observability.check_receivers,
    jobs.check_validation,
)
"""In the order in which their issues are reported."""


def check(stack: StackConfig) -> list[ConfigIssue]:
    return [issue for rule in RULES for issue in rule(stack)]
