"""Launch template of a managed pool: all instance settings that EKS leaves open."""

from __future__ import annotations

import pulumi
import pulumi_aws.ec2 as ec2

from infra.domain.pools import Network, NodePool
from infra.sites.aws import efa, node_config
from infra.sites.aws.pool_nodes import (
    ROOT_DEVICE,
    ROOT_IOPS,
    ROOT_MIB_PER_S,
    PoolNodesArgs,
    is_capacity_block,
    own_name,
)

_TAGGED = ("instance", "volume", "network-interface")


def root_volume(
    pool: NodePool, key_arn: pulumi.Input[str]
) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
    """Return the root volume: gp3 with the stack's key, deleted with the instance."""
    return ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=ROOT_DEVICE,
        ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_type="gp3",
            volume_size=pool.root_gib,
            iops=ROOT_IOPS,
            throughput=ROOT_MIB_PER_S,
            encrypted="true",
            kms_key_id=key_arn,
            delete_on_termination="true",
        ),
    )


def network_interfaces(
    pool: NodePool, args: PoolNodesArgs
) -> list[ec2.LaunchTemplateNetworkInterfaceArgs] | None:
    """Return the interfaces of an EFA node; None without EFA, where EC2 creates the only one.

    The node group sets the subnet. EFA-only interfaces only reach each other, so they have EFA's security group
    and no other; EC2 rejects settings of public addresses for them.
    """
    if pool.network is not Network.EFA:
        return None
    return [
        ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=one.card,
            device_index=one.device,
            interface_type=one.type.value,
            delete_on_termination="true",
            associate_public_ip_address="false" if one == efa.PRIMARY else None,
            security_groups=args.security_groups(pool)
            if one == efa.PRIMARY
            else [args.network.efa_security_group],
        )
        for one in efa.interfaces(pool)
    ]


def reservation(
    pool: NodePool,
) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """Return the pool's reservation: launches fail when it is full instead of using other capacity."""
    if pool.reservation is None:
        return None
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=pool.reservation.id
        )
    )


def metadata_options(args: PoolNodesArgs) -> ec2.LaunchTemplateMetadataOptionsArgs:
    """Require session tokens (IMDSv2) with the stack's hop limit."""
    return ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=args.metadata_access.hop_limit,
        instance_metadata_tags="disabled",
    )


def template_args(
    pool: NodePool, args: PoolNodesArgs, group: ec2.PlacementGroup | None
) -> ec2.LaunchTemplateArgs:
    """Return all arguments of the template.

    A capacity block requires its market type and single instance type here; other node groups set the types
    themselves, so that a spot pool may have several.
    """
    block = is_capacity_block(pool)
    interfaces = network_interfaces(pool, args)
    name = own_name(args.cluster.name, pool)
    return ec2.LaunchTemplateArgs(
        name=name,
        description=f"Nodes of the pool {pool.name}",
        update_default_version=True,
        instance_type=pool.instance_types[0] if block else None,
        instance_market_options=ec2.LaunchTemplateInstanceMarketOptionsArgs(
            market_type="capacity-block"
        )
        if block
        else None,
        capacity_reservation_specification=reservation(pool),
        metadata_options=metadata_options(args),
        block_device_mappings=[root_volume(pool, args.data_key_arn)],
        network_interfaces=interfaces,
        vpc_security_group_ids=None if interfaces else args.security_groups(pool),
        placement=ec2.LaunchTemplatePlacementArgs(group_name=group.name) if group else None,
        monitoring=ec2.LaunchTemplateMonitoringArgs(enabled=True),
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(
                resource_type=kind, tags=args.instance_tags(pool)
            )
            for kind in _TAGGED
        ],
        user_data=node_config.user_data(pool),
        tags={**args.tags, "Name": name},
    )
