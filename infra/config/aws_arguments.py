"""Conversion of the stack file to the AWS stack's arguments. Imports pulumi_aws: import it lazily."""

from __future__ import annotations

import pulumi

from infra.addons import fluent_bit
from infra.addons.cluster_autoscaler import AUTOSCALER_TAGS
from infra.config import add_ons, arguments, platform_record
from infra.config.model import OnAws, StackConfig
from infra.domain.pools import Nodes
from infra.sections.cluster import support_warning
from infra.sections.teams import access_groups
from infra.sites.aws.args import AwsStackArgs
from infra.sites.aws.imds_sidecar import MetadataAccess
from infra.sites.aws.provider import ProviderArgs


def foundation(config: StackConfig, on: OnAws, stack: str) -> AwsStackArgs:
    """Return the arguments of the AWS stack; warn of a version of Kubernetes that is about to leave support."""
    if warning := support_warning(on.cluster):
        pulumi.log.warn(warning)
    return AwsStackArgs(
        site=ProviderArgs(
            region=on.aws.region,
            account=on.aws.account,
            stack=stack,
            cluster=on.cluster.name,
            tags=on.aws.tags,
        ),
        network=on.network,
        cluster=on.cluster,
        members=access_groups(config.teams),
        pools=config.pools_of(Nodes.MANAGED, Nodes.KARPENTER),
        autoscaler=config.autoscaler,
        charts={
            name: add_ons.chart(config, name)
            for name in ("karpenter", "karpenterCrd", "clusterAutoscaler")
        },
        autoscaler_tag=AUTOSCALER_TAGS[on.cluster.version],
        metadata_access=(
            MetadataAccess.PODS if config.interruption.imds_sidecar else MetadataAccess.NODE
        ),
        storage=config.storage,
        buckets=on.buckets,
        teams=tuple(team.name for team in config.teams),
        remote_secrets=_remote_secrets(config),
        signatures=config.signatures,
        registries=platform_record.registries(config),
        block_volumes=arguments.needs_block_volumes(config),
        run_logs=arguments.log_group(config),
        log_shipper=(fluent_bit.NAMESPACE, fluent_bit.ACCOUNT),
        dcgm_address=arguments.dcgm_address(config),
        protect=config.protected,
    )


def _remote_secrets(config: StackConfig) -> dict[str, tuple[str, ...]]:
    found = {
        team.name: sorted({s.remote_key for s in team.secrets if s.remote_key and not s.store})
        for team in config.teams
    }
    return {team: tuple(names) for team, names in found.items() if names}
