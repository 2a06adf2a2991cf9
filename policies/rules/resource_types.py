"""Type tokens used by several rules."""

from __future__ import annotations

from typing import Final

from infra.domain import naming

AWS_PROVIDER: Final = "pulumi:providers:aws"
CLUSTER: Final = "aws:eks/cluster:Cluster"
CLUSTER_COMPONENT: Final = "eks:index:Cluster"
"""The official component. Its children are checked, too, because its inputs are not always visible."""
NODE: Final = "kubernetes:core/v1:Node"
NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
LAUNCH_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS: Final = f"kubernetes:{naming.KARPENTER_NODE_CLASS_API}:EC2NodeClass"
KARPENTER_POOL: Final = f"kubernetes:{naming.KARPENTER_NODE_POOL_API}:NodePool"
SUBNET: Final = "aws:ec2/subnet:Subnet"
KMS_KEY: Final = "aws:kms/key:Key"
HELM_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
CONFIG_MAP: Final = "kubernetes:core/v1:ConfigMap"
EFS: Final = "aws:efs/fileSystem:FileSystem"
LUSTRE: Final = "aws:fsx/lustreFileSystem:LustreFileSystem"
BUCKET: Final = "aws:s3/bucket:Bucket"
