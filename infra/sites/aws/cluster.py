"""The EKS cluster: control plane, who may use it, and the role of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.vpc as vpc_rules
import pulumi_eks

from infra.domain import naming
from infra.sites.aws import addresses
from infra.sites.aws.access import Access, AccessArgs
from infra.sites.aws.endpoints import HTTPS
from infra.sites.aws.node_role import NodeRole, NodeRoleArgs
from infra.sites.aws.outputs import ClusterRecord, NetworkRecord

LOG_TYPES: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""All that EKS has."""


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """A cluster of the stack's own."""

    name: str
    version: str
    """Minor version of Kubernetes, such as 1.35."""
    network: NetworkRecord
    key_arn: pulumi.Input[str]
    """KMS key that envelope-encrypts what the API server stores."""
    public_cidrs: tuple[str, ...] = ()
    """Who may reach the public endpoint; empty: there is none. The private one is always there."""
    admins: tuple[str, ...]
    """ARNs of IAM principals with all rights, without the one that creates the cluster; see `access`."""
    deployers: tuple[str, ...]
    """ARNs of IAM principals in the group trainyard:deployer."""
    viewers: tuple[str, ...] = ()
    """ARNs of IAM principals that may read everything."""
    log_retention_days: int
    """Days that control plane logs are kept; one of those that CloudWatch allows."""
    protect: bool = True
    """Whether Pulumi and EKS refuse to delete the cluster."""


class Cluster(pulumi.ComponentResource):
    """Control plane, access entries and node role; `record` is what the rest of the stack needs.

    Raises ValueError for a public endpoint that is open to everybody.
    """

    record: ClusterRecord

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsCluster"), name, None, opts)
        reject_open_cidrs(args.public_cidrs)
        child = pulumi.ResourceOptions(parent=self)
        # EKS would make this group itself, and keep its records for ever.
        logs = cloudwatch.LogGroup(
            f"{name}-logs",
            name=f"/aws/eks/{args.name}/cluster",
            retention_in_days=args.log_retention_days,
            opts=child,
        )
        made = self._control_plane(name, args, logs)
        security_group = made.eks_cluster.vpc_config.cluster_security_group_id
        # EKS lets in the group's own members, that is nodes, and no runner of updates beside them.
        vpc_rules.SecurityGroupIngressRule(
            f"{name}-api",
            description="Kubernetes API, from the VPC",
            security_group_id=security_group,
            cidr_ipv4=args.network.cidr,
            ip_protocol="tcp",
            from_port=HTTPS,
            to_port=HTTPS,
            opts=child,
        )
        role = NodeRole(f"{name}-nodes", NodeRoleArgs(cluster=args.name), child)
        access = Access(
            f"{name}-access",
            AccessArgs(
                cluster=made.eks_cluster.name,
                admins=args.admins,
                deployers=args.deployers,
                viewers=args.viewers,
                node_role_arn=role.arn,
            ),
            child,
        )
        # A node whose entry is missing is turned away, so its role is known only once it is there.
        joining = pulumi.Output.all(role.arn, access.nodes.urn).apply(lambda both: str(both[0]))
        self.record = ClusterRecord(
            name=args.name,
            version=args.version,
            endpoint=made.eks_cluster.endpoint,
            certificate_authority=made.eks_cluster.certificate_authority.data,
            security_group=security_group,
            kubeconfig=made.kubeconfig_json,
            node_role_arn=joining,
            node_role_name=role.role_name,
        )
        self.register_outputs({"name": args.name, "endpoint": self.record.endpoint})

    def _control_plane(
        self, name: str, args: ClusterArgs, logs: cloudwatch.LogGroup
    ) -> pulumi_eks.Cluster:
        """The cluster alone: nodes, add-ons and access entries are resources of our own, which
        previews and policies can read; those inside a remote component they cannot."""
        return pulumi_eks.Cluster(
            f"{name}-eks",
            name=args.name,
            version=args.version,
            vpc_id=args.network.vpc_id,
            private_subnet_ids=list(args.network.private_subnets.values()),
            kubernetes_service_ip_address_range=str(addresses.SERVICES),
            endpoint_private_access=True,
            endpoint_public_access=bool(args.public_cidrs),
            public_access_cidrs=list(args.public_cidrs) or None,
            authentication_mode=pulumi_eks.AuthenticationMode.API,
            encryption_config_key_arn=args.key_arn,
            enabled_cluster_log_types=list(LOG_TYPES),
            deletion_protection=args.protect,
            create_oidc_provider=False,
            skip_default_node_group=True,
            create_instance_role=False,
            # The group that EKS makes is enough; pulumi_eks' own would open ports to nodes it lacks.
            skip_default_security_groups=True,
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            kube_proxy_addon_options=pulumi_eks.KubeProxyAddonOptionsArgs(enabled=False),
            coredns_addon_options=pulumi_eks.CoreDnsAddonOptionsArgs(enabled=False),
            # EKS refuses, too, but only once the nodes are gone; Pulumi does before anything goes.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[logs], protect=args.protect),
        )


def reject_open_cidrs(cidrs: Sequence[str]) -> None:
    """Raises ValueError, in one line, if the public endpoint would be open to the internet."""
    for cidr in cidrs:
        network = addresses.parse(cidr)
        if network.prefixlen == 0:
            raise ValueError(
                f"{cidr} opens the cluster's endpoint to the internet; "
                "list the CIDRs of your offices and runners, or make it private"
            )
