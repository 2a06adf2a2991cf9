"""Type tokens used by several rules."""

from __future__ import annotations

from typing import Final

AWS_PROVIDER: Final = "pulumi:providers:aws"
CLUSTER: Final = "aws:eks/cluster:Cluster"
CLUSTER_COMPONENT: Final = "eks:index:Cluster"
"""The official component. Its children are checked, too, because its inputs are not always visible."""
NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS: Final = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
KARPENTER_POOL: Final = "kubernetes:karpenter.sh/v1:NodePool"
SUBNET: Final = "aws:ec2/subnet:Subnet"
KMS_KEY: Final = "aws:kms/key:Key"
LOG_GROUP: Final = "aws:cloudwatch/logGroup:LogGroup"
HELM_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
EFS: Final = "aws:efs/fileSystem:FileSystem"
FSX: Final = (
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:fsx/ontapFileSystem:OntapFileSystem",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem",
    "aws:fsx/windowsFileSystem:WindowsFileSystem",
)
BUCKET: Final = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2")
PUBLIC_ACCESS_BLOCK: Final = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
