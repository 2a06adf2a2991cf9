"""What the AWS provider calls for a resource, by type: rights that an account requires and moto does not ask for.

Reads follow each creation and make up a refresh; writes create, update, tag and delete. Listed is what the
resources of this project's stacks use. Sources: `internal/service/SERVICE` of hashicorp/terraform-provider-aws,
which Pulumi's provider wraps, and the dependent actions in AWS's Service Authorization Reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Actions by IAM's names, such as `ec2:CreateVpc`."""

    reads: frozenset[str]
    writes: frozenset[str]


def _calls(service: str, reads: str, writes: str, *more: str) -> Calls:
    """Split names of a service's actions; `more` are writes in other services."""
    named = (frozenset(f"{service}:{name}" for name in part.split()) for part in (reads, writes))
    read, written = named
    return Calls(reads=read, writes=written | frozenset(more))


_EC2_TAGS: Final = "CreateTags DeleteTags"
_EKS_TAGS: Final = "TagResource UntagResource"
_RULE: Final = f"ModifySecurityGroupRules {_EC2_TAGS}"

PROVIDER_CALLS: Final[Mapping[str, Calls]] = {
    "aws:autoscaling/tag:Tag": _calls(
        "autoscaling", "DescribeTags", "CreateOrUpdateTags DeleteTags"
    ),
    "aws:cloudwatch/eventRule:EventRule": _calls(
        "events",
        "DescribeRule ListTagsForResource",
        "PutRule DeleteRule TagResource UntagResource",
    ),
    "aws:cloudwatch/eventTarget:EventTarget": _calls(
        "events", "ListTargetsByRule", "PutTargets RemoveTargets"
    ),
    "aws:cloudwatch/logDataProtectionPolicy:LogDataProtectionPolicy": _calls(
        "logs", "GetDataProtectionPolicy", "PutDataProtectionPolicy DeleteDataProtectionPolicy"
    ),
    "aws:cloudwatch/logGroup:LogGroup": _calls(
        "logs",
        "DescribeLogGroups ListTagsForResource",
        "CreateLogGroup PutRetentionPolicy AssociateKmsKey DisassociateKmsKey DeleteLogGroup "
        "TagResource UntagResource",
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _calls(
        "ec2",
        "DescribeSecurityGroups",
        "AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress RevokeSecurityGroupEgress "
        f"RevokeSecurityGroupIngress {_EC2_TAGS}",
    ),
    "aws:ec2/eip:Eip": _calls(
        "ec2",
        "DescribeAddresses DescribeAddressesAttribute",
        f"AllocateAddress AssociateAddress DisassociateAddress ReleaseAddress {_EC2_TAGS}",
    ),
    "aws:ec2/flowLog:FlowLog": _calls(
        "ec2",
        "DescribeFlowLogs",
        f"CreateFlowLogs DeleteFlowLogs {_EC2_TAGS}",
        *("iam:PassRole", "logs:CreateLogDelivery", "logs:DeleteLogDelivery"),
    ),
    "aws:ec2/internetGateway:InternetGateway": _calls(
        "ec2",
        "DescribeInternetGateways",
        "CreateInternetGateway AttachInternetGateway DetachInternetGateway DeleteInternetGateway "
        f"{_EC2_TAGS}",
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": _calls(
        "ec2",
        "DescribeLaunchTemplates DescribeLaunchTemplateVersions",
        "CreateLaunchTemplate CreateLaunchTemplateVersion ModifyLaunchTemplate "
        f"DeleteLaunchTemplate {_EC2_TAGS}",
    ),
    "aws:ec2/natGateway:NatGateway": _calls(
        "ec2", "DescribeNatGateways", f"CreateNatGateway DeleteNatGateway {_EC2_TAGS}"
    ),
    "aws:ec2/placementGroup:PlacementGroup": _calls(
        "ec2", "DescribePlacementGroups", f"CreatePlacementGroup DeletePlacementGroup {_EC2_TAGS}"
    ),
    "aws:ec2/route:Route": _calls(
        "ec2", "DescribeRouteTables", "CreateRoute ReplaceRoute DeleteRoute"
    ),
    "aws:ec2/routeTable:RouteTable": _calls(
        "ec2",
        "DescribeRouteTables",
        f"CreateRouteTable DisassociateRouteTable DeleteRouteTable {_EC2_TAGS}",
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _calls(
        "ec2",
        "DescribeRouteTables",
        "AssociateRouteTable ReplaceRouteTableAssociation DisassociateRouteTable",
    ),
    "aws:ec2/securityGroup:SecurityGroup": _calls(
        "ec2",
        # A group is deleted once no interface is left that a service forgot.
        "DescribeSecurityGroups DescribeNetworkInterfaces",
        "CreateSecurityGroup AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress "
        "RevokeSecurityGroupEgress RevokeSecurityGroupIngress DeleteSecurityGroup "
        f"DetachNetworkInterface DeleteNetworkInterface {_EC2_TAGS}",
    ),
    "aws:ec2/subnet:Subnet": _calls(
        "ec2",
        "DescribeSubnets DescribeNetworkInterfaces",
        "CreateSubnet ModifySubnetAttribute DeleteSubnet DetachNetworkInterface "
        f"DeleteNetworkInterface {_EC2_TAGS}",
    ),
    "aws:ec2/vpc:Vpc": _calls(
        "ec2",
        "DescribeVpcs DescribeVpcAttribute DescribeNetworkAcls DescribeRouteTables "
        "DescribeSecurityGroups",
        f"CreateVpc ModifyVpcAttribute DeleteVpc {_EC2_TAGS}",
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": _calls(
        "ec2",
        "DescribeVpcEndpoints DescribePrefixLists",
        f"CreateVpcEndpoint ModifyVpcEndpoint DeleteVpcEndpoints {_EC2_TAGS}",
        "route53:AssociateVPCWithHostedZone",
    ),
    "aws:efs/backupPolicy:BackupPolicy": _calls(
        "elasticfilesystem", "DescribeBackupPolicy", "PutBackupPolicy"
    ),
    "aws:efs/fileSystem:FileSystem": _calls(
        "elasticfilesystem",
        "DescribeFileSystems DescribeLifecycleConfiguration",
        "CreateFileSystem UpdateFileSystem PutLifecycleConfiguration DeleteFileSystem TagResource "
        "UntagResource",
        *("iam:CreateServiceLinkedRole", "kms:CreateGrant", "kms:DescribeKey"),
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": _calls(
        "elasticfilesystem",
        "DescribeFileSystemPolicy",
        "PutFileSystemPolicy DeleteFileSystemPolicy",
    ),
    "aws:efs/mountTarget:MountTarget": _calls(
        "elasticfilesystem",
        "DescribeMountTargets DescribeMountTargetSecurityGroups",
        "CreateMountTarget ModifyMountTargetSecurityGroups DeleteMountTarget",
        # https://docs.aws.amazon.com/efs/latest/ug/API_CreateMountTarget.html
        *("ec2:DescribeSubnets", "ec2:DescribeNetworkInterfaces", "ec2:CreateNetworkInterface"),
        *("ec2:ModifyNetworkInterfaceAttribute", "ec2:DeleteNetworkInterface"),
    ),
    "aws:eks/accessEntry:AccessEntry": _calls(
        "eks",
        "DescribeAccessEntry",
        f"CreateAccessEntry UpdateAccessEntry DeleteAccessEntry {_EKS_TAGS}",
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _calls(
        "eks",
        "ListAssociatedAccessPolicies",
        "AssociateAccessPolicy DisassociateAccessPolicy",
    ),
    "aws:eks/addon:Addon": _calls(
        "eks",
        "DescribeAddon DescribeUpdate",
        f"CreateAddon UpdateAddon DeleteAddon {_EKS_TAGS} CreatePodIdentityAssociation "
        "UpdatePodIdentityAssociation DeletePodIdentityAssociation",
        "iam:PassRole",
    ),
    # The remote component creates a role and the cluster.
    "eks:index:Cluster": _calls(
        "eks",
        "DescribeCluster DescribeUpdate",
        f"CreateCluster UpdateClusterConfig UpdateClusterVersion DeleteCluster {_EKS_TAGS} "
        "AssociateEncryptionConfig",
        *("iam:AttachRolePolicy", "iam:CreateRole", "iam:CreateServiceLinkedRole"),
        *("iam:DeleteRole", "iam:DetachRolePolicy", "iam:PassRole"),
        *("kms:CreateGrant", "kms:DescribeKey"),
    ),
    "aws:eks/nodeGroup:NodeGroup": _calls(
        "eks",
        "DescribeNodegroup DescribeUpdate",
        f"CreateNodegroup UpdateNodegroupConfig UpdateNodegroupVersion DeleteNodegroup {_EKS_TAGS}",
        *("ec2:RunInstances", "iam:CreateServiceLinkedRole", "iam:PassRole"),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _calls(
        "eks",
        "DescribePodIdentityAssociation",
        "CreatePodIdentityAssociation UpdatePodIdentityAssociation DeletePodIdentityAssociation "
        f"{_EKS_TAGS}",
        "iam:PassRole",
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": _calls(
        "fsx",
        "DescribeDataRepositoryAssociations ListTagsForResource",
        "CreateDataRepositoryAssociation UpdateDataRepositoryAssociation "
        "DeleteDataRepositoryAssociation TagResource UntagResource",
        # https://docs.aws.amazon.com/fsx/latest/LustreGuide/setting-up.html
        *("iam:AttachRolePolicy", "iam:CreateServiceLinkedRole", "iam:PutRolePolicy"),
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": _calls(
        "fsx",
        "DescribeFileSystems ListTagsForResource",
        "CreateFileSystem UpdateFileSystem DeleteFileSystem TagResource UntagResource",
        *("iam:CreateServiceLinkedRole", "kms:CreateGrant", "kms:DescribeKey"),
        # https://docs.aws.amazon.com/aws-managed-policy/latest/reference/AmazonFSxFullAccess.html
        *("logs:CreateLogStream", "logs:PutLogEvents"),
    ),
    "aws:iam/instanceProfile:InstanceProfile": _calls(
        "iam",
        "GetInstanceProfile",
        "CreateInstanceProfile AddRoleToInstanceProfile RemoveRoleFromInstanceProfile "
        "DeleteInstanceProfile TagInstanceProfile UntagInstanceProfile PassRole",
    ),
    "aws:iam/role:Role": _calls(
        "iam",
        "GetRole ListRolePolicies ListAttachedRolePolicies ListInstanceProfilesForRole",
        "CreateRole UpdateAssumeRolePolicy UpdateRole UpdateRoleDescription DeleteRole TagRole "
        "UntagRole",
    ),
    "aws:iam/rolePolicy:RolePolicy": _calls(
        "iam", "GetRolePolicy", "PutRolePolicy DeleteRolePolicy"
    ),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _calls(
        "iam", "ListAttachedRolePolicies", "AttachRolePolicy DetachRolePolicy"
    ),
    "aws:kms/alias:Alias": _calls("kms", "ListAliases", "CreateAlias UpdateAlias DeleteAlias"),
    "aws:kms/key:Key": _calls(
        "kms",
        "DescribeKey GetKeyPolicy GetKeyRotationStatus ListResourceTags",
        "CreateKey EnableKeyRotation DisableKeyRotation PutKeyPolicy UpdateKeyDescription "
        "ScheduleKeyDeletion TagResource UntagResource",
    ),
    "aws:s3/bucket:Bucket": _calls(
        "s3",
        "ListBucket GetBucketAcl GetBucketCORS GetBucketLocation GetBucketLogging "
        "GetBucketObjectLockConfiguration GetBucketPolicy GetBucketRequestPayment "
        "GetBucketTagging GetBucketVersioning GetBucketWebsite GetAccelerateConfiguration "
        "GetEncryptionConfiguration GetLifecycleConfiguration GetReplicationConfiguration "
        "ListTagsForResource",
        "CreateBucket DeleteBucket PutBucketTagging TagResource UntagResource",
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _calls(
        "s3", "GetLifecycleConfiguration", "PutLifecycleConfiguration"
    ),
    "aws:s3/bucketLogging:BucketLogging": _calls("s3", "GetBucketLogging", "PutBucketLogging"),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _calls(
        "s3", "GetBucketOwnershipControls", "PutBucketOwnershipControls"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": _calls(
        "s3", "GetBucketPolicy", "PutBucketPolicy DeleteBucketPolicy"
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _calls(
        "s3", "GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _calls(
        "s3", "GetEncryptionConfiguration", "PutEncryptionConfiguration"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _calls(
        "s3", "GetBucketVersioning", "PutBucketVersioning"
    ),
    "aws:sqs/queue:Queue": _calls(
        "sqs",
        "GetQueueAttributes ListQueueTags",
        "CreateQueue SetQueueAttributes DeleteQueue TagQueue UntagQueue",
    ),
    "aws:sqs/queuePolicy:QueuePolicy": _calls("sqs", "GetQueueAttributes", "SetQueueAttributes"),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _calls(
        "ec2",
        "DescribeSecurityGroupRules",
        f"AuthorizeSecurityGroupEgress RevokeSecurityGroupEgress {_RULE}",
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _calls(
        "ec2",
        "DescribeSecurityGroupRules",
        f"AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress {_RULE}",
    ),
}
"""By type token, of every type that a committed stack contains."""
