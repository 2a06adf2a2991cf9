"""The launch template of a managed pool: everything about an instance that EKS does not decide."""

from __future__ import annotations

import pulumi
import pulumi_aws.ec2 as ec2

from infra.domain.pools import Network, NodePool
from infra.sites.aws import efa
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
    """gp3 under our key, sized for images and scratch data; gone with the instance."""
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
    """Interfaces of an EFA node; None without EFA, where EC2 makes the only one.

    The subnet is the node group's to say. EFA-only interfaces speak to their like alone, so they have
    EFA's security group and no other; EC2 refuses any word about public addresses for them.
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
    """Launch into the pool's reservation and fail when it is full, rather than buy elsewhere."""
    if pool.reservation is None:
        return None
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=pool.reservation.id
        )
    )


def metadata_options(args: PoolNodesArgs) -> ec2.LaunchTemplateMetadataOptionsArgs:
    """Sessions with tokens only, which travel no further than the stack allows."""
    return ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=args.metadata_access.hop_limit,
        instance_metadata_tags="disabled",
    )


def template_args(
    pool: NodePool, args: PoolNodesArgs, group: ec2.PlacementGroup | None
) -> ec2.LaunchTemplateArgs:
    """All of the template.

    A capacity block wants its market type and its one instance type here; for the rest EKS takes
    the types from the node group, so that a spot pool may have several.
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
        tags={**args.tags, "Name": name},
    )
