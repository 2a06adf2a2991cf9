"""Cluster Autoscaler: sizes of managed node groups follow the queue.

Tags describe the nodes of an empty group; without them a group at zero never grows. As with Karpenter's pools,
only empty nodes are removed: removing a node of a run would restart the whole gang.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws.autoscaling as autoscaling
import pulumi_aws.eks as aws_eks
import pulumi_aws.iam as iam

from infra.domain import naming
from infra.domain.pools import NodePool
from infra.kubernetes import helm, objects, system_nodes
from infra.kubernetes.crds import crd
from infra.kubernetes.helm import Chart
from infra.kubernetes.objects import Manifest
from infra.kubernetes.resources import KubernetesObject
from infra.sites.aws import pod_identity
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import document
from infra.sites.aws.pool_nodes import own_labels

NAMESPACE: Final = "kube-system"
SERVICE_ACCOUNT: Final = "cluster-autoscaler"

_TAG: Final = "k8s.io/cluster-autoscaler/node-template"
_EMPTY: Final = "0.01"
"""Utilization below which a node is removed: only nodes without requests."""

GROUP: Final = "autoscaling.x-k8s.io"
_PLURAL: Final = "provisioningrequests"
ROLE: Final = "cluster-autoscaler-provisioning"
"""Of the ProvisioningRequest API, which Cluster Autoscaler serves but its chart does not contain."""


def template_tags(pool: NodePool) -> dict[str, str]:
    """Return tags that describe a node of the pool: labels, taints, devices."""
    tags = {f"{_TAG}/label/{key}": value for key, value in own_labels(pool).items()}
    tags |= {f"{_TAG}/taint/{taint.key}": f"{taint.value}:NoSchedule" for taint in pool.taints}
    devices = {naming.GPU: pool.gpus_per_node, naming.EFA: pool.efa_per_node}
    return tags | {f"{_TAG}/resources/{key}": str(n) for key, n in devices.items() if n}


def values(cluster: ClusterRecord, image_tag: str) -> dict[str, Any]:
    return {
        "cloudProvider": "aws",
        "awsRegion": cluster.region,
        "autoDiscovery": {"clusterName": cluster.name},
        "image": {"tag": image_tag},
        "rbac": {"serviceAccount": {"name": SERVICE_ACCOUNT}},
        "priorityClassName": "system-cluster-critical",
        **system_nodes.PLACEMENT,
        "resources": {
            "requests": {"cpu": "100m", "memory": "600Mi"},
            "limits": {"memory": "600Mi"},
        },
        "extraArgs": {
            "enable-provisioning-requests": True,
            # Its client cannot write a ProvisioningRequest's status in protobuf.
            "kube-api-content-type": "application/json",
            "expander": "least-waste",
            "scale-down-unneeded-time": "5m",
            "ignore-daemonsets-utilization": True,
            "scale-down-utilization-threshold": _EMPTY,
            "scale-down-gpu-utilization-threshold": _EMPTY,
        },
    }


class ClusterAutoscaler(pulumi.ComponentResource):
    """Tags of the groups, permissions, the ProvisioningRequest API and the release.

    Precedes Kueue, which looks for ProvisioningRequests only at startup.
    """

    def __init__(
        self,
        name: str,
        pools: Sequence[NodePool],
        groups: Mapping[str, pulumi.Input[str]],
        cluster: ClusterRecord,
        chart: Chart,
        image_tag: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Create them.

        `groups`: name of the Auto Scaling group by pool, of those with `managed` nodes. `image_tag`: of the
        autoscaler that simulates the scheduler of the cluster's version.
        """
        super().__init__(naming.infra_type("AwsClusterAutoscaler"), name, None, opts)
        for pool in pools:
            self._tags(name, pool, groups[pool.name])
        permissions = self._permissions(name, cluster)
        api = self._object(f"{name}-api", definition())
        role = self._object(f"{name}-cluster-role", cluster_role())
        binding = self._object(
            f"{name}-cluster-role-binding",
            cluster_role_binding(NAMESPACE, SERVICE_ACCOUNT),
            role,
        )
        helm.release(
            f"{name}-controller",
            chart,
            release_name="cluster-autoscaler",
            namespace=NAMESPACE,
            values=values(cluster, image_tag),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[api, binding, *permissions]),
        )
        self.register_outputs({"pools": [pool.name for pool in pools]})

    def _object(self, name: str, manifest: Manifest, *needs: pulumi.Resource) -> KubernetesObject:
        opts = pulumi.ResourceOptions(parent=self, depends_on=list(needs))
        return KubernetesObject(name, manifest, opts)

    def _tags(self, name: str, pool: NodePool, group: pulumi.Input[str]) -> None:
        for key, value in template_tags(pool).items():
            what = key.removeprefix(f"{_TAG}/").replace("/", "-")
            autoscaling.Tag(
                f"{name}-{pool.name}-{what}",
                autoscaling_group_name=group,
                tag=autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=False),
                opts=pulumi.ResourceOptions(parent=self),
            )

    def _permissions(self, name: str, cluster: ClusterRecord) -> list[pulumi.Resource]:
        own = pulumi.ResourceOptions(parent=self)
        account = (NAMESPACE, SERVICE_ACCOUNT)
        description = f"Cluster Autoscaler of {cluster.name}"
        role = pod_identity.role_of(f"{name}-role", cluster, account, description, own)
        policy = iam.RolePolicy(
            f"{name}-policy",
            role=role.name,
            policy=json.dumps(autoscaler_policy(cluster.account, cluster.region, cluster.name)),
            opts=own,
        )
        association = aws_eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=cluster.name,
            namespace=NAMESPACE,
            service_account=SERVICE_ACCOUNT,
            role_arn=role.arn,
            opts=own,
        )
        return [policy, association]


_READS: Final = (
    "autoscaling:DescribeAutoScalingGroups",
    "autoscaling:DescribeAutoScalingInstances",
    "autoscaling:DescribeLaunchConfigurations",
    "autoscaling:DescribeScalingActivities",
    "autoscaling:DescribeTags",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:GetInstanceTypesFromInstanceRequirements",
)


def autoscaler_policy(account: str, region: str, cluster: str) -> dict[str, Any]:
    """Return the autoscaler's permissions: read all groups, resize those that EKS tagged as the cluster's."""
    groups = f"arn:aws:autoscaling:{region}:{account}:autoScalingGroup:*"
    return document(
        {
            "Sid": "SeeGroupsAndTypes",
            "Effect": "Allow",
            "Action": list(_READS),
            "Resource": "*",
            "Condition": {"StringEquals": {"aws:RequestedRegion": region}},
        },
        {
            "Sid": "SeeNodeGroups",
            "Effect": "Allow",
            "Action": "eks:DescribeNodegroup",
            "Resource": f"arn:aws:eks:{region}:{account}:nodegroup/{cluster}/*",
        },
        {
            "Sid": "ResizeOwnGroups",
            "Effect": "Allow",
            "Action": [
                "autoscaling:SetDesiredCapacity",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            "Resource": groups,
            "Condition": {
                "StringEquals": {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}
            },
        },
    )


def definition() -> Manifest:
    """Return the CRD. Kueue looks for it at startup, so it must precede Kueue."""
    return crd(
        f"{_PLURAL}.{GROUP}",
        naming.object_labels("autoscaler"),
        # The API server rejects CRDs of *.x-k8s.io without an approval annotation.
        {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
    )


def cluster_role() -> Manifest:
    """Return the autoscaler's rights on the API, which its chart's role lacks."""
    rules = [
        {
            "apiGroups": [GROUP],
            "resources": [_PLURAL, f"{_PLURAL}/status"],
            "verbs": ["get", "list", "watch", "update", "patch"],
        },
        {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["get", "list", "watch"]},
    ]
    return objects.role(ROLE, "autoscaler", rules)


def cluster_role_binding(namespace: str, service_account: str) -> Manifest:
    account = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    return objects.role_binding(ROLE, "autoscaler", account)
