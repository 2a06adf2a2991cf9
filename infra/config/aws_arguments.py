"""Conversion of the stack file to the AWS stack's arguments. Imports pulumi_aws: import it lazily."""

from __future__ import annotations

from infra.addons import fluent_bit, mirror
from infra.addons.cluster_autoscaler import AUTOSCALER_TAGS
from infra.config import arguments, logs_arguments, observability_arguments
from infra.config.model import OnAws, StackConfig
from infra.config.sections.cluster import cluster_choice
from infra.config.sections.network import MadeNetworkConfig
from infra.config.sections.storage import named_storage, volume_sizes
from infra.domain.pools import Nodes
from infra.domain.storage import NamedStorageClass
from infra.sites.aws.args import (
    AwsStackArgs,
    EfsChoice,
    LustreChoice,
    RunLogsChoice,
    SignatureChoice,
)
from infra.sites.aws.existing_network import ExistingNetworkArgs
from infra.sites.aws.imds_sidecar import MetadataAccess
from infra.sites.aws.network import Nat, NetworkArgs
from infra.sites.aws.provider import ProviderArgs


def foundation(config: StackConfig, on: OnAws, stack: str) -> AwsStackArgs:
    """Return the arguments of the AWS stack."""
    return AwsStackArgs(
        site=ProviderArgs(
            region=on.aws.region,
            account=on.aws.account,
            stack=stack,
            cluster=on.cluster.name,
            tags=on.aws.tags,
        ),
        network=_network(on),
        cluster=cluster_choice(on.cluster),
        pools=config.pools_of(Nodes.MANAGED, Nodes.KARPENTER),
        autoscaler=config.autoscaler,
        charts={
            name: mirror.chart(name, config.mirror or "")
            for name in ("karpenter", "karpenterCrd", "clusterAutoscaler")
        },
        autoscaler_tag=AUTOSCALER_TAGS[on.cluster.version],
        metadata_access=(
            MetadataAccess.PODS if config.interruption.imds_sidecar else MetadataAccess.NODE
        ),
        storage=_storage(config),
        sizes=volume_sizes(config.storage),
        bucket_prefix=on.buckets.prefix,
        old_checkpoint_days=on.buckets.old_checkpoint_days,
        teams=tuple(team.name for team in config.teams),
        remote_secrets=_remote_secrets(config),
        signatures=(
            SignatureChoice(kms_key_arn=config.signatures.kms_key) if config.signatures else None
        ),
        block_volumes=observability_arguments.needs_block_volumes(config),
        run_logs=_run_logs(config),
        dcgm_address=arguments.dcgm_address(config),
        protect=config.protected,
    )


def _run_logs(config: StackConfig) -> RunLogsChoice | None:
    group = logs_arguments.log_group(config)
    if group is None:
        return None
    shipper = (fluent_bit.NAMESPACE, fluent_bit.ACCOUNT)
    return RunLogsChoice(shipper=shipper, retention_days=group.retention_days)


def _remote_secrets(config: StackConfig) -> dict[str, tuple[str, ...]]:
    """Names in Secrets Manager by team, each once."""
    found = {
        team.name: sorted({s.remote_key for s in team.secrets if s.remote_key and not s.store})
        for team in config.teams
    }
    return {team: tuple(names) for team, names in found.items() if names}


def _network(on: OnAws) -> NetworkArgs | ExistingNetworkArgs:
    if isinstance(on.network, MadeNetworkConfig):
        return NetworkArgs(
            cluster=on.cluster.name,
            region=on.aws.region,
            cidr=on.network.cidr,
            zones=on.network.zones,
            nat=Nat(on.network.nat),
            flow_log_days=on.network.flow_log_days,
        )
    return ExistingNetworkArgs(
        cluster=on.cluster.name,
        vpc_id=on.network.existing.vpc_id,
        cidr=on.network.existing.cidr,
        private_subnets=on.network.existing.private_subnets,
    )


def _storage(config: StackConfig) -> LustreChoice | EfsChoice | NamedStorageClass:
    storage = config.storage
    if storage.fsx:
        return LustreChoice(
            zone=storage.fsx.zone, throughput_per_tib=storage.fsx.throughput_per_tib
        )
    named = named_storage(config.storage)
    return named or EfsChoice()
