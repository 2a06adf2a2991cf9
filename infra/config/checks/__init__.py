"""What one field cannot know: names that must exist or be unique, sums that must fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from infra.config.checks import (
    names,
    network,
    nodes,
    observability,
    pools,
    schedulers,
    secrets,
    sections,
    shares,
    signatures,
    storage,
    team_secrets,
    teams,
    validation,
    walls,
)
from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake

ALL: Final[tuple[Callable[[Parts], Iterator[Mistake]], ...]] = (
    sections.sections,
    sections.accounts,
    sections.system_nodes,
    network.region,
    network.zones,
    network.addresses_of_vpc,
    network.subnets,
    network.egress,
    names.unique_names,
    pools.pool_sizes,
    pools.instance_types,
    pools.reserved_labels,
    nodes.provider_has_nodes,
    nodes.options,
    nodes.placement_groups,
    nodes.reservations,
    nodes.architectures,
    nodes.autoscalers,
    nodes.managed_sizes,
    network.places,
    network.one_zone_for_efa,
    teams.queued_pools,
    teams.guaranteed_nodes,
    shares.lending,
    shares.borrowing,
    shares.on_demand,
    teams.production_guarantees,
    teams.gpu_quotas,
    schedulers.operators,
    schedulers.native,
    schedulers.team_options,
    storage.one_storage,
    storage.real_storage,
    storage.source_images,
    walls.registries,
    walls.rdma,
    signatures.one_signer,
    team_secrets.names,
    team_secrets.stores,
    observability.somebody_installs_it,
    observability.grafana_has_an_administrator,
    observability.receivers,
    validation.image,
    validation.pools,
    secrets.plaintext_secrets,
)
