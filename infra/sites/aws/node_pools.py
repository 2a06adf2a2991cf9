"""Managed node groups: one per `managed` pool, in the private subnet of its zone, and their launch templates.

Uses aws.eks.NodeGroup, since pulumi_eks' ManagedNodeGroup cannot enable node repair.

Interruptions: EKS watches spot capacity of its groups. On a rebalance recommendation it launches a replacement
and, once that is ready, drains the node at risk; on the two-minute notice it drains immediately. Draining evicts
the pods, so the trainer gets SIGTERM and saves. Node repair drains and replaces nodes whose GPUs, network or
kubelet the node monitoring agent reports as broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as aws_eks

from infra.domain import naming
from infra.domain.pools import Capacity, Network, NodePool
from infra.sites.aws import efa, machine_images, node_config
from infra.sites.aws.outputs import Place
from infra.sites.aws.pool_nodes import (
    ROOT_DEVICE,
    ROOT_IOPS,
    ROOT_MIB_PER_S,
    ami_type,
    group_timeouts,
    is_capacity_block,
    node_group_taints,
    own_labels,
    placement_group,
)

_TAGGED = ("instance", "volume", "network-interface")


def capacity_type(pool: NodePool) -> str:
    if is_capacity_block(pool):
        return "CAPACITY_BLOCK"
    return "SPOT" if pool.capacity is Capacity.SPOT else "ON_DEMAND"


def scaling(pool: NodePool) -> aws_eks.NodeGroupScalingConfigArgs:
    """Return bounds and initial size: zero for a capacity block, which may not have started."""
    least = 0 if is_capacity_block(pool) else pool.min
    return aws_eks.NodeGroupScalingConfigArgs(min_size=least, max_size=pool.max, desired_size=least)


class NodePools(pulumi.ComponentResource):
    """Node groups with their launch templates and placement groups.

    Pass the add-ons that make a node ready (network, Pod Identity, node monitoring) in `depends_on`. Groups are
    autonamed, so that a replacement starts the new group before it drains the old one.
    """

    groups: dict[str, aws_eks.NodeGroup]
    """Node groups by pool."""

    def __init__(
        self, name: str, pools: Sequence[NodePool], place: Place, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(naming.infra_type("AwsNodePools"), name, None, opts)
        self.groups = {pool.name: self._group(name, pool, place) for pool in pools}
        names = {pool: group.node_group_name for pool, group in self.groups.items()}
        self.register_outputs({"nodeGroups": names})

    def autoscaling_group(self, pool: str) -> pulumi.Output[str]:
        return self.groups[pool].resources.apply(_autoscaling_group)

    def _group(self, name: str, pool: NodePool, place: Place) -> aws_eks.NodeGroup:
        own = pulumi.ResourceOptions(parent=self)
        together = placement_group(name, pool, place, own)
        template = ec2.LaunchTemplate(
            f"{name}-{pool.name}-template", template_args(pool, place, together), opts=own
        )
        return aws_eks.NodeGroup(
            f"{name}-{pool.name}",
            cluster_name=place.cluster.name,
            version=place.cluster.version,
            release_version=machine_images.release(place.cluster.version),
            node_role_arn=place.cluster.node_role_arn,
            subnet_ids=[place.subnet(pool)],
            ami_type=ami_type(pool),
            capacity_type=capacity_type(pool),
            instance_types=None if is_capacity_block(pool) else list(pool.instance_types),
            scaling_config=scaling(pool),
            labels=own_labels(pool),
            taints=node_group_taints(pool.taints),
            launch_template=aws_eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            update_config=aws_eks.NodeGroupUpdateConfigArgs(max_unavailable=pool.max_unavailable),
            node_repair_config=aws_eks.NodeGroupNodeRepairConfigArgs(
                enabled=True,
                # A condition of all nodes at once is hardly a hardware fault.
                max_parallel_nodes_repaired_count=pool.max_unavailable,
            ),
            tags={**place.tags, naming.POOL: pool.name},
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=group_timeouts(pool.max, pool.max_unavailable),
                # The autoscaler owns the size, or the operator who starts a capacity block.
                ignore_changes=["scalingConfig.desiredSize"],
            ),
        )


def _autoscaling_group(resources: Any) -> str:
    name: str = resources[0].autoscaling_groups[0].name
    return name


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
    pool: NodePool, place: Place
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
            security_groups=place.security_groups(pool)
            if one == efa.PRIMARY
            else [place.network.efa_security_group],
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


def metadata_options(place: Place) -> ec2.LaunchTemplateMetadataOptionsArgs:
    """Require session tokens (IMDSv2) with the stack's hop limit."""
    return ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=place.metadata_access.hop_limit,
        instance_metadata_tags="disabled",
    )


def template_args(
    pool: NodePool, place: Place, group: ec2.PlacementGroup | None
) -> ec2.LaunchTemplateArgs:
    """Return all arguments of the template.

    A capacity block requires its market type and single instance type here; other node groups set the types
    themselves, so that a spot pool may have several.
    """
    block = is_capacity_block(pool)
    interfaces = network_interfaces(pool, place)
    name = place.own_name(pool)
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
        metadata_options=metadata_options(place),
        block_device_mappings=[root_volume(pool, place.data_key_arn)],
        network_interfaces=interfaces,
        vpc_security_group_ids=None if interfaces else place.security_groups(pool),
        placement=ec2.LaunchTemplatePlacementArgs(group_name=group.name) if group else None,
        monitoring=ec2.LaunchTemplateMonitoringArgs(enabled=True),
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(
                resource_type=kind, tags=place.instance_tags(pool)
            )
            for kind in _TAGGED
        ],
        user_data=node_config.user_data(pool),
        tags={**place.tags, "Name": name},
    )
