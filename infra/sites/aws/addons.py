"""EKS add-ons: their settings, their order, and roles of those that call AWS.

Versions are pinned by version of Kubernetes (addon_versions.yaml), so upgrading the cluster upgrades them too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulumi
import pulumi_aws.eks as aws_eks
import pulumi_aws.iam as iam

from infra.domain import naming
from infra.kubernetes import system_nodes
from infra.sites.aws import addon_versions, addresses, pod_identity
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import AWS_POLICIES

NAMESPACE: Final = "kube-system"


@dataclass(frozen=True, kw_only=True)
class AddonRole:
    """An add-on's role in AWS, through Pod Identity."""

    service_account: str
    policy: str
    """Name of an AWS managed policy, with its path if it has one."""


@dataclass(frozen=True, kw_only=True)
class Addon:
    """An EKS add-on, by its name in EKS."""

    name: str
    role: AddonRole | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of its configuration schema; empty: defaults."""


BEFORE_NODES: Final = (
    # Credentials of the network plug-in come from the agent.
    Addon(name="eks-pod-identity-agent"),
    Addon(name="kube-proxy"),
    Addon(
        name="vpc-cni",
        role=AddonRole(service_account="aws-node", policy="AmazonEKS_CNI_Policy"),
        settings={
            # Otherwise NetworkPolicies are stored but not enforced.
            "enableNetworkPolicy": "true",
            # By default a node reserves two interfaces full of addresses, 100 on a p4d: most of a /19 for 66
            # nodes with twenty pods each.
            "env": {
                "MINIMUM_IP_TARGET": str(addresses.HELD_BY_A_NODE),
                "WARM_IP_TARGET": str(addresses.HELD_IN_RESERVE),
            },
        },
    ),
)
"""DaemonSets that nodes need to become ready."""

AFTER_NODES: Final = (
    Addon(name="coredns", settings=system_nodes.PLACEMENT),
    Addon(name="metrics-server", settings=system_nodes.PLACEMENT),
)
"""Deployments, which EKS waits for and which need a node; node_health.py defines another."""

DRIVER: Final = {"controller": dict(system_nodes.PLACEMENT)}
"""Settings of a storage driver: its DaemonSet runs on all nodes."""

FSX: Final = Addon(name="aws-fsx-csi-driver", settings=DRIVER)
"""Mounts existing file systems; it needs no AWS permissions."""
EFS: Final = Addon(
    name="aws-efs-csi-driver",
    role=AddonRole(
        service_account="efs-csi-controller-sa", policy="service-role/AmazonEFSCSIDriverPolicy"
    ),
    settings=DRIVER,
)
"""Creates an access point per claim."""


class Addons(pulumi.ComponentResource):
    """`BEFORE_NODES`, or `AFTER_NODES` and those that the stack adds.

    The latter need system nodes: pass them in `depends_on`.
    """

    def __init__(
        self,
        name: str,
        cluster: ClusterRecord,
        addons: Sequence[Addon],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__(naming.infra_type("AwsAddons"), name, None, opts)
        self._name, self._cluster = name, cluster
        made = {addon.name: self._addon(addon).addon_version for addon in addons}
        self.register_outputs(made)

    def _addon(self, addon: Addon) -> aws_eks.Addon:
        return aws_eks.Addon(
            f"{self._name}-{addon.name}",
            cluster_name=self._cluster.created_name,
            addon_name=addon.name,
            addon_version=addon_versions.load()[self._cluster.version][addon.name],
            configuration_values=json.dumps(dict(addon.settings)) if addon.settings else None,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            pod_identity_associations=[self._association(addon.name, addon.role)]
            if addon.role
            else None,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _association(
        self, addon: str, wanted: AddonRole
    ) -> aws_eks.AddonPodIdentityAssociationArgs:
        child = pulumi.ResourceOptions(parent=self)
        cluster, account = self._cluster, (NAMESPACE, wanted.service_account)
        description = f"{addon} of {cluster.name}"
        role = pod_identity.role_of(f"{self._name}-{addon}", cluster, account, description, child)
        attached = iam.RolePolicyAttachment(
            f"{self._name}-{addon}",
            role=role.name,
            policy_arn=f"{AWS_POLICIES}/{wanted.policy}",
            opts=child,
        )
        ready = pulumi.Output.all(role.arn, attached.id).apply(lambda both: str(both[0]))
        return aws_eks.AddonPodIdentityAssociationArgs(
            role_arn=ready, service_account=wanted.service_account
        )
