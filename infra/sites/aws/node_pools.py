"""Managed node groups: one per `managed` pool, in the private subnet of its zone.

Uses aws.eks.NodeGroup, since pulumi_eks' ManagedNodeGroup cannot enable node repair.

Interruptions: EKS watches spot capacity of its groups. On a rebalance recommendation it launches a replacement
and, once that is ready, drains the node at risk; on the two-minute notice it drains immediately. Draining evicts
the pods, so the trainer gets SIGTERM and saves. Node repair drains and replaces nodes whose GPUs, network or
kubelet the node monitoring agent reports as broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as aws_eks

from infra.domain import naming
from infra.domain.pools import Capacity, NodePool
from infra.sites.aws import machine_images
from infra.sites.aws.launch_template import template_args
from infra.sites.aws.pool_nodes import (
    PoolNodesArgs,
    ami_type,
    group_timeouts,
    is_capacity_block,
    node_group_taints,
    own_labels,
    placement_group,
)


@dataclass(frozen=True, kw_only=True)
class NodePoolsArgs(PoolNodesArgs):
    """Pools with `managed` nodes."""


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

    def __init__(self, name: str, args: NodePoolsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsNodePools"), name, None, opts)
        self.groups = {pool.name: self._group(name, pool, args) for pool in args.pools}
        names = {pool: group.node_group_name for pool, group in self.groups.items()}
        self.register_outputs({"nodeGroups": names})

    def autoscaling_group(self, pool: str) -> pulumi.Output[str]:
        return self.groups[pool].resources.apply(_autoscaling_group)

    def _group(self, name: str, pool: NodePool, args: NodePoolsArgs) -> aws_eks.NodeGroup:
        own = pulumi.ResourceOptions(parent=self)
        together = placement_group(name, pool, args, own)
        template = ec2.LaunchTemplate(
            f"{name}-{pool.name}-template", template_args(pool, args, together), opts=own
        )
        return aws_eks.NodeGroup(
            f"{name}-{pool.name}",
            cluster_name=args.cluster.name,
            version=args.cluster.version,
            release_version=machine_images.release(args.cluster.version),
            node_role_arn=args.cluster.node_role_arn,
            subnet_ids=[args.subnet(pool)],
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
            tags={**args.tags, naming.POOL: pool.name},
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
