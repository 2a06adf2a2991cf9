"""Who may take which role, and what the role may do: pure policy documents.

A preview runs code of any branch, so it reads the state of its stack and describes resources, nothing else. A
deployment creates IAM roles, so it could give itself any right of the account: its guard is the approval of its
GitHub environment. What it must not do even so, by mistake or by a hijacked dependency, is denied: change its own
and the other roles, the trust in GitHub, or the backups of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from infra.sites.aws.policy_documents import KEY_USE, Document, Statement, document

PROJECT: Final = "trainyard"
"""`name` in the platform's Pulumi.yaml, which is in the paths of its state."""
ISSUER: Final = "token.actions.githubusercontent.com"
AUDIENCE: Final = "sts.amazonaws.com"
ROLE_PREFIX: Final = "trainyard-ci"
"""Start of the names of all roles made here, by which other roles are kept from changing them."""

KEY_ALIAS: Final = "alias/trainyard-state"
"""Name of the state's key, by which every stack decrypts its secrets."""

READ_POLICIES: Final = (
    "arn:aws:iam::aws:policy/job-function/ViewOnlyAccess",
    "arn:aws:iam::aws:policy/SecurityAudit",
)
"""AWS's own policies of describing without reading data: no objects, no secrets, no parameters.

They do show environment variables of functions and containers, and user data of instances: see `preview_limits`.
"""


@dataclass(frozen=True, kw_only=True)
class Home:
    """Where the state is, and whose it is."""

    account: str
    region: str
    """Region of the state; a stack may be in another."""
    repository: str
    """OWNER/NAME on GitHub."""
    bucket: str
    key_arn: str = ""
    """Key of the bucket and of the stacks' secrets; empty before it is there."""

    @property
    def provider_arn(self) -> str:
        """The account's OIDC provider of GitHub."""
        return f"arn:aws:iam::{self.account}:oidc-provider/{ISSUER}"

    @property
    def bucket_arn(self) -> str:
        """The bucket of the state."""
        return f"arn:aws:s3:::{self.bucket}"

    @property
    def key_alias_arn(self) -> str:
        """The alias of the key."""
        return f"arn:aws:kms:{self.region}:{self.account}:{KEY_ALIAS}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """One stack."""

    stack: str
    cluster: str
    bucket_prefix: str
    region: str


def trust(home: Home, subject: str) -> Document:
    """Return the trust policy of a role that workflows with this subject may take."""
    return document(
        {
            "Effect": "Allow",
            "Principal": {"Federated": home.provider_arn},
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": {
                "StringEquals": {
                    f"{ISSUER}:aud": AUDIENCE,
                    f"{ISSUER}:sub": f"repo:{home.repository}:{subject}",
                }
            },
        }
    )


def role_name(stack: str, purpose: str) -> str:
    """Return the name of a role."""
    return f"{ROLE_PREFIX}-{stack}-{purpose}"


def state_reader(home: Home, stack: str) -> Document:
    """Return the right to read one stack's state and to decrypt its secrets."""
    read = [*_state_paths(home, stack), f"{home.bucket_arn}/.pulumi/meta.yaml"]
    return document(
        _list_state(home),
        _allow("ReadState", "s3:GetObject", read),
        _allow("Decrypt", ["kms:Decrypt", "kms:DescribeKey"], home.key_arn),
    )


def descriptions(target: Target) -> Document:
    """Return what a refresh reads of a stack's resources, and AWS's own policies do not allow."""
    return document(
        _allow("LogGroups", ["logs:GetDataProtectionPolicy"], "*"),
        _allow("BucketTags", ["s3:ListTagsForResource"], _buckets(target)),
    )


_SERVICES: Final = (
    *("autoscaling", "ec2", "eks", "elasticfilesystem", "events", "fsx", "iam", "kms", "logs"),
    *("s3", "servicequotas", "sqs", "sts"),
)
"""Services that a stack's resources are of. None of them describes environment variables."""


def preview_limits() -> Document:
    """Return what AWS's own policies allow and a preview is denied: descriptions that may hold a secret.

    Those are environment variables of Lambda, ECS, CodeBuild, Batch and SageMaker, parameters of Glue and
    CloudFormation, and user data of instances. Code of any branch runs as this role.
    """
    return document(
        {
            "Sid": "OtherServices",
            "Effect": "Deny",
            "NotAction": [f"{service}:*" for service in _SERVICES],
            "Resource": "*",
        },
        {
            "Sid": "UserData",
            "Effect": "Deny",
            "Action": [
                *("autoscaling:DescribeLaunchConfigurations", "ec2:DescribeInstanceAttribute"),
                *("ec2:DescribeLaunchTemplateVersions", "ec2:DescribeSpotFleetRequests"),
            ],
            "Resource": "*",
        },
    )


def state_writer(home: Home, stack: str) -> Document:
    """Return the right to update one stack's state. Versions cannot be deleted: they are its backups."""
    write = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
    return document(
        _list_state(home),
        _allow("WriteState", write, _state_paths(home, stack)),
        _allow("ReadBackend", "s3:GetObject", f"{home.bucket_arn}/.pulumi/meta.yaml"),
        _allow("UseKey", list(KEY_USE), home.key_arn),
    )


def _list_state(home: Home) -> Statement:
    return _allow("ListState", ["s3:ListBucket", "s3:GetBucketLocation"], home.bucket_arn)


def _state_paths(home: Home, stack: str) -> list[str]:
    """Return what Pulumi's S3 backend keeps of a stack: state, its copy and attributes, lock, history, backups."""
    base = f"{home.bucket_arn}/.pulumi"
    return [
        # A dot follows the name: `dev` is not `dev2`.
        f"{base}/stacks/{PROJECT}/{stack}.*",
        f"{base}/locks/organization/{PROJECT}/{stack}/*",
        f"{base}/history/{PROJECT}/{stack}/*",
        f"{base}/backups/{PROJECT}/{stack}/*",
    ]


def deployment(home: Home, target: Target) -> list[Document]:
    """Return the rights to create, change and delete a stack's resources, in documents within IAM's size limit."""
    return [
        document(*_network_and_nodes(home, target), *_cluster(home, target)),
        document(*_storage(target), *_messages(target)),
        document(*_identities(home, target), *guardrails(home)),
    ]


def _in_region(target: Target) -> dict[str, dict[str, str]]:
    return {"StringEquals": {"aws:RequestedRegion": target.region}}


def _allow(
    sid: str, actions: str | list[str], resource: str | list[str], **more: object
) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resource, **more}


_NETWORK: Final = {
    "Allocate": ["Address"],
    "Release": ["Address"],
    "Associate": ["Address", "RouteTable"],
    "Disassociate": ["Address", "RouteTable"],
    "Attach": ["InternetGateway"],
    "Detach": ["InternetGateway", "NetworkInterface"],
    "Authorize": ["SecurityGroupEgress", "SecurityGroupIngress"],
    "Revoke": ["SecurityGroupEgress", "SecurityGroupIngress"],
    "Create": [
        *("FlowLogs", "InternetGateway", "LaunchTemplate", "LaunchTemplateVersion", "NatGateway"),
        *("NetworkInterface", "PlacementGroup", "Route", "RouteTable", "SecurityGroup", "Subnet"),
        *("Tags", "Vpc", "VpcEndpoint"),
    ],
    "Delete": [
        *("FlowLogs", "InternetGateway", "LaunchTemplate", "LaunchTemplateVersions", "NatGateway"),
        *("NetworkInterface", "PlacementGroup", "Route", "RouteTable", "SecurityGroup", "Subnet"),
        *("Tags", "Vpc", "VpcEndpoints"),
    ],
    "Modify": [
        *("LaunchTemplate", "NetworkInterfaceAttribute", "SecurityGroupRules", "SubnetAttribute"),
        *("VpcAttribute", "VpcEndpoint"),
    ],
    "Replace": ["Route", "RouteTableAssociation"],
    "Run": ["Instances"],
}
"""EC2's actions by verb.

RunInstances: EKS checks with the caller's rights that a launch template can be used. Network interfaces: EFS
creates, changes and deletes those of its mount targets with the caller's rights.
"""


def _network_and_nodes(home: Home, target: Target) -> list[Statement]:
    actions = [f"ec2:{verb}{thing}" for verb, things in _NETWORK.items() for thing in things]
    return [
        _allow("Network", actions, "*", Condition=_in_region(target)),
        _allow(
            "PublicParameters",
            ["ssm:GetParameter", "ssm:GetParameters"],
            f"arn:aws:ssm:{target.region}::parameter/aws/service/*",
        ),
        # EC2 asks for it with an interface endpoint that has private names; Route 53 is in no region.
        _allow(
            "EndpointNames",
            ["route53:AssociateVPCWithHostedZone"],
            ["arn:aws:route53:::hostedzone/*", f"arn:aws:ec2:{target.region}:{home.account}:vpc/*"],
        ),
        # Tags from which Cluster Autoscaler knows the nodes of an empty group. EKS names and tags the groups.
        _allow(
            "NodeGroupTags",
            ["autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags"],
            f"arn:aws:autoscaling:{target.region}:{home.account}:autoScalingGroup:*:autoScalingGroupName/eks-*",
            Condition={
                "StringEquals": {
                    f"aws:ResourceTag/k8s.io/cluster-autoscaler/{target.cluster}": "owned"
                }
            },
        ),
    ]


def _cluster(home: Home, target: Target) -> list[Statement]:
    name, base = target.cluster, f"arn:aws:eks:{target.region}:{home.account}"
    kinds = ("access-entry", "addon", "nodegroup", "podidentityassociation")
    own = [f"{base}:cluster/{name}", *(f"{base}:{kind}/{name}/*" for kind in kinds)]
    actions = [
        *("eks:AssociateAccessPolicy", "eks:AssociateEncryptionConfig", "eks:CreateAccessEntry"),
        *("eks:CreateAddon", "eks:CreateCluster", "eks:CreateNodegroup"),
        *("eks:CreatePodIdentityAssociation", "eks:DeleteAccessEntry", "eks:DeleteAddon"),
        *("eks:DeleteCluster", "eks:DeleteNodegroup", "eks:DeletePodIdentityAssociation"),
        *("eks:DescribeUpdate", "eks:DisassociateAccessPolicy", "eks:TagResource"),
        *("eks:UntagResource", "eks:UpdateAccessEntry", "eks:UpdateAddon"),
        *("eks:UpdateClusterConfig", "eks:UpdateClusterVersion", "eks:UpdateNodegroupConfig"),
        *("eks:UpdateNodegroupVersion", "eks:UpdatePodIdentityAssociation"),
    ]
    return [_allow("Cluster", actions, own)]


def _buckets(target: Target) -> str:
    return f"arn:aws:s3:::{target.bucket_prefix}-*"


def _storage(target: Target) -> list[Statement]:
    settings = [
        *("BucketLogging", "BucketOwnershipControls", "BucketPolicy", "BucketPublicAccessBlock"),
        *("BucketTagging", "BucketVersioning", "EncryptionConfiguration"),
        "LifecycleConfiguration",
    ]
    return [
        _allow(
            "Buckets",
            [
                *("s3:CreateBucket", "s3:DeleteBucket", "s3:DeleteBucketPolicy", "s3:GetBucket*"),
                *("s3:GetEncryptionConfiguration", "s3:GetLifecycleConfiguration"),
                *("s3:ListBucket", *(f"s3:Put{setting}" for setting in settings)),
                *("s3:TagResource", "s3:UntagResource"),
            ],
            _buckets(target),
        ),
        # The managed policy AmazonFSxFullAccess grants the same to roles that create file systems with logs.
        _allow(
            "FileSystemLogs",
            ["logs:CreateLogStream", "logs:PutLogEvents"],
            f"arn:aws:logs:{target.region}:*:log-group:/aws/fsx/*",
        ),
        _allow(
            "FileSystems",
            [
                *("fsx:CreateDataRepositoryAssociation", "fsx:CreateFileSystem"),
                *("fsx:DeleteDataRepositoryAssociation", "fsx:DeleteFileSystem"),
                *("fsx:ListTagsForResource", "fsx:TagResource", "fsx:UntagResource"),
                *("fsx:UpdateDataRepositoryAssociation", "fsx:UpdateFileSystem"),
                *("elasticfilesystem:CreateFileSystem", "elasticfilesystem:CreateMountTarget"),
                *("elasticfilesystem:DeleteFileSystem", "elasticfilesystem:DeleteMountTarget"),
                *("elasticfilesystem:DeleteFileSystemPolicy",),
                *("elasticfilesystem:ModifyMountTargetSecurityGroups",),
                *("elasticfilesystem:PutBackupPolicy", "elasticfilesystem:PutFileSystemPolicy"),
                *("elasticfilesystem:PutLifecycleConfiguration", "elasticfilesystem:TagResource"),
                *("elasticfilesystem:UntagResource", "elasticfilesystem:UpdateFileSystem"),
            ],
            "*",
            Condition=_in_region(target),
        ),
        _allow(
            "Keys",
            [
                *("kms:CreateAlias", "kms:CreateGrant", "kms:CreateKey", "kms:DeleteAlias"),
                *("kms:DescribeKey", "kms:DisableKeyRotation", "kms:EnableKeyRotation"),
                *("kms:PutKeyPolicy", "kms:ScheduleKeyDeletion", "kms:TagResource"),
                *("kms:UntagResource", "kms:UpdateAlias", "kms:UpdateKeyDescription"),
            ],
            "*",
            Condition=_in_region(target),
        ),
    ]


def _messages(target: Target) -> list[Statement]:
    actions = [
        *("events:DeleteRule", "events:PutRule", "events:PutTargets", "events:RemoveTargets"),
        *("events:TagResource", "events:UntagResource"),
        *("sqs:CreateQueue", "sqs:DeleteQueue", "sqs:SetQueueAttributes", "sqs:TagQueue"),
        *("sqs:UntagQueue", "sqs:GetQueueAttributes", "sqs:ListQueueTags"),
        *("logs:AssociateKmsKey", "logs:CreateLogDelivery", "logs:CreateLogGroup"),
        *("logs:DeleteDataProtectionPolicy", "logs:DeleteLogDelivery", "logs:DeleteLogGroup"),
        *("logs:DisassociateKmsKey", "logs:PutDataProtectionPolicy", "logs:PutRetentionPolicy"),
        *("logs:TagResource", "logs:UntagResource"),
    ]
    return [_allow("QueuesAndLogs", actions, "*", Condition=_in_region(target))]


_PASSED_TO: Final = (
    *("ec2.amazonaws.com", "eks.amazonaws.com", "pods.eks.amazonaws.com"),
    "vpc-flow-logs.amazonaws.com",
)
_SERVICE_LINKED: Final = (
    *("autoscaling.amazonaws.com", "eks.amazonaws.com", "eks-nodegroup.amazonaws.com"),
    *(
        "elasticfilesystem.amazonaws.com",
        "fsx.amazonaws.com",
        "s3.data-source.lustre.fsx.amazonaws.com",
    ),
    "spot.amazonaws.com",
)


def _identities(home: Home, target: Target) -> list[Statement]:
    iam = f"arn:aws:iam::{home.account}"
    # Roles without a fixed name get their resource's, `aws-...`, and a random suffix. `*` crosses slashes, so
    # service-linked roles (`aws-service-role/...`) match, too. FSx needs that: it gives the role of a linked file
    # system its bucket with the caller's rights. IAM lets nobody else change such a role.
    # https://docs.aws.amazon.com/fsx/latest/LustreGuide/setting-up.html
    names = ("aws-*", f"{target.cluster}-*")
    roles = [f"{iam}:role/{name}" for name in names]
    return [
        _allow(
            "Roles",
            [
                *("iam:AttachRolePolicy", "iam:CreateRole", "iam:DeleteRole"),
                *("iam:DeleteRolePolicy", "iam:DetachRolePolicy", "iam:PutRolePolicy"),
                *("iam:TagRole", "iam:UntagRole", "iam:UpdateAssumeRolePolicy"),
                *("iam:UpdateRole", "iam:UpdateRoleDescription"),
            ],
            roles,
        ),
        _allow(
            "InstanceProfiles",
            [
                *("iam:AddRoleToInstanceProfile", "iam:CreateInstanceProfile"),
                *("iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"),
                *("iam:TagInstanceProfile", "iam:UntagInstanceProfile"),
            ],
            [f"{iam}:instance-profile/{name}" for name in names] + roles,
        ),
        _allow(
            "PassRoles",
            ["iam:PassRole"],
            roles,
            Condition={"StringEquals": {"iam:PassedToService": list(_PASSED_TO)}},
        ),
        _allow(
            "ServiceLinkedRoles",
            ["iam:CreateServiceLinkedRole"],
            f"{iam}:role/aws-service-role/*",
            Condition={"StringEquals": {"iam:AWSServiceName": list(_SERVICE_LINKED)}},
        ),
    ]


def guardrails(home: Home) -> list[Statement]:
    """Return what a deployment is denied whatever else allows it."""
    iam = f"arn:aws:iam::{home.account}"
    return [
        {
            "Sid": "KeepTrust",
            "Effect": "Deny",
            "Action": ["iam:*"],
            "Resource": [f"{iam}:role/{ROLE_PREFIX}-*", home.provider_arn],
        },
        {
            "Sid": "KeepState",
            "Effect": "Deny",
            "Action": [
                *("s3:DeleteBucket*", "s3:DeleteObjectVersion", "s3:PutBucket*"),
                *("s3:PutEncryptionConfiguration", "s3:PutLifecycleConfiguration"),
            ],
            "Resource": [home.bucket_arn, f"{home.bucket_arn}/*"],
        },
        {
            "Sid": "KeepStateKey",
            "Effect": "Deny",
            "Action": [
                *("kms:*Alias", "kms:CreateGrant", "kms:DisableKey*", "kms:PutKeyPolicy"),
                "kms:ScheduleKeyDeletion",
            ],
            "Resource": [home.key_arn, home.key_alias_arn],
        },
    ]


def image_publisher(repository_arns: Sequence[str]) -> Document:
    """Return the right to push images and signatures to the repositories, and to read them for the scan."""
    return document(
        _allow("SignIn", ["ecr:GetAuthorizationToken"], "*"),
        _allow(
            "Push",
            [
                *("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage"),
                *("ecr:CompleteLayerUpload", "ecr:DescribeImages", "ecr:GetDownloadUrlForLayer"),
                *("ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"),
            ],
            list(repository_arns),
        ),
    )
