"""CPU nodes for cluster services: DNS, metrics, controllers, queues. Pods of teams do not tolerate their taint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as aws_eks

from infra.domain import naming
from infra.kubernetes import system_nodes
from infra.sections.cluster import SystemNodesConfig
from infra.sites.aws import machine_images
from infra.sites.aws.outputs import ClusterRecord, NetworkRecord
from infra.sites.aws.pool_nodes import group_timeouts, node_group_taints

AMI_TYPE: Final = "AL2023_x86_64_STANDARD"
ROOT_DEVICE: Final = "/dev/xvda"
"""Root volume of Amazon Linux 2023."""
ROOT_GIB: Final = 80
"""Holds images of all controllers, twice during an upgrade."""
UPDATED_AT_ONCE: Final = 1
"""Nodes that an update replaces concurrently."""
SYSTEM: Final = naming.SYSTEM_NODES
"""Value of the label for the pool."""


@dataclass(frozen=True, kw_only=True)
class SystemNodesArgs:
    cluster: ClusterRecord
    network: NetworkRecord
    data_key_arn: pulumi.Input[str]
    """KMS key of root volumes."""
    settings: SystemNodesConfig
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of instances and volumes: the provider's default tags do not apply to those that EC2 launches later."""


class SystemNodes(pulumi.ComponentResource):
    """An on-demand managed node group over all private subnets, tainted against pods of teams.

    Pass the add-ons that make a node ready in `depends_on`.
    """

    group: aws_eks.NodeGroup

    def __init__(self, name: str, args: SystemNodesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsSystemNodes"), name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        template = ec2.LaunchTemplate(f"{name}-template", template_args(args), opts=child)
        self.group = aws_eks.NodeGroup(
            f"{name}-group",
            cluster_name=args.cluster.name,
            version=args.cluster.version,
            release_version=machine_images.release(args.cluster.version),
            node_role_arn=args.cluster.node_role_arn,
            subnet_ids=list(args.network.private_subnets.values()),
            ami_type=AMI_TYPE,
            capacity_type="ON_DEMAND",
            instance_types=list(args.settings.instance_types),
            scaling_config=aws_eks.NodeGroupScalingConfigArgs(
                min_size=args.settings.min,
                max_size=args.settings.max,
                desired_size=args.settings.min,
            ),
            labels={naming.POOL: SYSTEM, **system_nodes.LABELS},
            taints=node_group_taints([system_nodes.TAINT]),
            launch_template=aws_eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            update_config=aws_eks.NodeGroupUpdateConfigArgs(max_unavailable=UPDATED_AT_ONCE),
            node_repair_config=aws_eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            tags={naming.POOL: SYSTEM},
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=group_timeouts(args.settings.max, UPDATED_AT_ONCE),
                # The autoscaler, if any, owns the size.
                ignore_changes=["scalingConfig.desiredSize"],
            ),
        )
        self.register_outputs({"nodeGroup": self.group.node_group_name})


def template_args(args: SystemNodesArgs) -> ec2.LaunchTemplateArgs:
    """Return the template: IMDSv2 out of pods' reach, and an encrypted root volume."""
    return ec2.LaunchTemplateArgs(
        description=f"System nodes of {args.cluster.name}",
        update_default_version=True,
        vpc_security_group_ids=[args.cluster.security_group],
        metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
            http_endpoint="enabled",
            http_tokens="required",
            http_put_response_hop_limit=1,
            instance_metadata_tags="disabled",
        ),
        block_device_mappings=[
            ec2.LaunchTemplateBlockDeviceMappingArgs(
                device_name=ROOT_DEVICE,
                ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                    volume_type="gp3",
                    volume_size=ROOT_GIB,
                    encrypted="true",
                    kms_key_id=args.data_key_arn,
                    delete_on_termination="true",
                ),
            )
        ],
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(
                resource_type=kind,
                tags={**args.tags, "Name": f"{args.cluster.name}-{SYSTEM}", naming.POOL: SYSTEM},
            )
            for kind in ("instance", "volume")
        ],
    )
