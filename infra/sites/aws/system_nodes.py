"""CPU nodes for cluster services: DNS, metrics, controllers, queues. Pods of teams do not tolerate their taint."""

from __future__ import annotations

from typing import Final

import pulumi
import pulumi_aws.ec2 as ec2
import pulumi_aws.eks as aws_eks

from infra.domain import naming
from infra.kubernetes import system_nodes as placement
from infra.sections.cluster import SystemNodesConfig
from infra.sites.aws import machine_images
from infra.sites.aws.outputs import Place, component
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


def system_nodes(
    name: str, settings: SystemNodesConfig, place: Place, opts: pulumi.ResourceOptions
) -> pulumi.Resource:
    """Create an on-demand managed node group over all private subnets, tainted against pods of teams.

    Pass the add-ons that make a node ready in `depends_on`.
    """
    made = component("AwsSystemNodes", name, opts)
    child = pulumi.ResourceOptions(parent=made)
    template = ec2.LaunchTemplate(f"{name}-template", template_args(place), opts=child)
    aws_eks.NodeGroup(
        f"{name}-group",
        cluster_name=place.cluster.name,
        version=place.cluster.version,
        release_version=machine_images.release(place.cluster.version),
        node_role_arn=place.cluster.node_role_arn,
        subnet_ids=list(place.network.private_subnets.values()),
        ami_type=AMI_TYPE,
        capacity_type="ON_DEMAND",
        instance_types=list(settings.instance_types),
        scaling_config=aws_eks.NodeGroupScalingConfigArgs(
            min_size=settings.min,
            max_size=settings.max,
            desired_size=settings.min,
        ),
        labels={naming.POOL: SYSTEM, **placement.LABELS},
        taints=node_group_taints([placement.TAINT]),
        launch_template=aws_eks.NodeGroupLaunchTemplateArgs(
            id=template.id, version=template.latest_version.apply(str)
        ),
        update_config=aws_eks.NodeGroupUpdateConfigArgs(max_unavailable=UPDATED_AT_ONCE),
        node_repair_config=aws_eks.NodeGroupNodeRepairConfigArgs(enabled=True),
        tags={naming.POOL: SYSTEM},
        opts=pulumi.ResourceOptions(
            parent=made,
            custom_timeouts=group_timeouts(settings.max, UPDATED_AT_ONCE),
            # The autoscaler, if any, owns the size.
            ignore_changes=["scalingConfig.desiredSize"],
        ),
    )
    return made


def template_args(place: Place) -> ec2.LaunchTemplateArgs:
    """Return the template: IMDSv2 out of pods' reach, and an encrypted root volume."""
    return ec2.LaunchTemplateArgs(
        description=f"System nodes of {place.cluster.name}",
        update_default_version=True,
        vpc_security_group_ids=[place.cluster.security_group],
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
                    kms_key_id=place.data_key_arn,
                    delete_on_termination="true",
                ),
            )
        ],
        tag_specifications=[
            ec2.LaunchTemplateTagSpecificationArgs(
                resource_type=kind,
                tags={**place.tags, "Name": f"{place.cluster.name}-{SYSTEM}", naming.POOL: SYSTEM},
            )
            for kind in ("instance", "volume")
        ],
    )
