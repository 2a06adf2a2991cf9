"""The EKS cluster: control plane, access entries, and the role of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.eks as aws_eks
import pulumi_aws.vpc as vpc_rules
import pulumi_eks

from infra.domain import naming
from infra.sections.cluster import EksClusterConfig
from infra.sites.aws import addresses
from infra.sites.aws.access import Access, AccessArgs
from infra.sites.aws.endpoints import HTTPS
from infra.sites.aws.node_role import NodeRole, NodeRoleArgs
from infra.sites.aws.outputs import ClusterRecord, NetworkRecord
from infra.sites.aws.run_log_access import control_plane_group

LOG_TYPES: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""All log types of EKS."""


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    settings: EksClusterConfig
    account: str
    region: str
    network: NetworkRecord
    key_arn: pulumi.Input[str]
    """KMS key for envelope encryption of the API server's data."""
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Kubernetes groups by the ARN of an IAM principal that is a member of teams."""
    log_key_arn: pulumi.Input[str] | None = None
    """KMS key of the control plane's log group, with `run_log_access.key_statement`. None: CloudWatch's own."""
    protect: bool = True
    """Whether Pulumi and EKS refuse to delete the cluster."""


class Cluster(pulumi.ComponentResource):
    """Control plane, access entries and node role; `record` holds their ids and names.

    Raises ValueError for a public endpoint that is open to the internet.
    """

    record: ClusterRecord

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsCluster"), name, None, opts)
        reject_open_cidrs(args.settings.endpoint)
        child = pulumi.ResourceOptions(parent=self)
        # EKS would create this group without a retention limit.
        logs = cloudwatch.LogGroup(
            f"{name}-logs",
            name=control_plane_group(args.settings.name),
            kms_key_id=args.log_key_arn,
            retention_in_days=args.settings.log_retention_days,
            opts=child,
        )
        made = self._control_plane(name, args, logs)
        security_group = made.eks_cluster.vpc_config.cluster_security_group_id
        # EKS admits members of the group, which are nodes, but not the machine that runs updates.
        for number, cidr in enumerate(args.network.cidrs):
            vpc_rules.SecurityGroupIngressRule(
                f"{name}-api-{cidr.replace('/', '-')}" if number else f"{name}-api",
                description="Kubernetes API, from the VPC",
                security_group_id=security_group,
                cidr_ipv4=cidr,
                ip_protocol="tcp",
                from_port=HTTPS,
                to_port=HTTPS,
                opts=child,
            )
        role = NodeRole(f"{name}-nodes", NodeRoleArgs(cluster=args.settings.name), child)
        access = Access(
            f"{name}-access",
            AccessArgs(
                cluster=made.eks_cluster.name,
                admins=args.settings.admins,
                deployers=args.settings.deployers,
                viewers=args.settings.viewers,
                drift_detectors=args.settings.drift_detectors,
                members=args.members,
                node_role_arn=role.arn,
            ),
            child,
        )
        # Nodes without an access entry are rejected, so the role's ARN waits for the entry.
        joining = pulumi.Output.all(role.arn, access.nodes.urn).apply(lambda both: str(both[0]))
        self.record = ClusterRecord(
            account=args.account,
            region=args.region,
            name=args.settings.name,
            version=args.settings.version,
            endpoint=made.eks_cluster.endpoint,
            certificate_authority=made.eks_cluster.certificate_authority.data,
            security_group=security_group,
            kubeconfig=made.kubeconfig_json,
            identity=pulumi.Output.concat(made.eks_cluster.arn, " ", made.eks_cluster.created_at),
            node_role_arn=joining,
            node_role_name=role.role_name,
        )
        self.register_outputs({"name": args.settings.name, "endpoint": self.record.endpoint})

    def _control_plane(
        self, name: str, args: ClusterArgs, logs: cloudwatch.LogGroup
    ) -> pulumi_eks.Cluster:
        """The cluster alone: previews and policies cannot read nodes, add-ons and access entries inside a
        remote component, so those are separate resources."""
        return pulumi_eks.Cluster(
            f"{name}-eks",
            name=args.settings.name,
            version=args.settings.version,
            vpc_id=args.network.vpc_id,
            private_subnet_ids=list(args.network.private_subnets.values()),
            kubernetes_service_ip_address_range=str(addresses.SERVICES),
            endpoint_private_access=True,
            endpoint_public_access=bool(args.settings.endpoint),
            public_access_cidrs=list(args.settings.endpoint) or None,
            authentication_mode=pulumi_eks.AuthenticationMode.API,
            encryption_config_key_arn=args.key_arn,
            enabled_cluster_log_types=list(LOG_TYPES),
            deletion_protection=args.protect,
            # At the end of standard support EKS upgrades the cluster; extended support costs six times as much.
            upgrade_policy=aws_eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            create_oidc_provider=False,
            skip_default_node_group=True,
            create_instance_role=False,
            # The group that EKS creates suffices; pulumi_eks' own would open unneeded ports.
            skip_default_security_groups=True,
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            kube_proxy_addon_options=pulumi_eks.KubeProxyAddonOptionsArgs(enabled=False),
            coredns_addon_options=pulumi_eks.CoreDnsAddonOptionsArgs(enabled=False),
            # EKS refuses only after the nodes are deleted; Pulumi refuses before any deletion.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[logs], protect=args.protect),
        )


def reject_open_cidrs(cidrs: Sequence[str]) -> None:
    """Raise ValueError if the public endpoint would be open to the internet."""
    for cidr in cidrs:
        network = addresses.parse(cidr)
        if network.prefixlen == 0:
            raise ValueError(
                f"{cidr} opens the cluster's endpoint to the internet; "
                "list the CIDRs of your offices and runners, or use the private endpoint only"
            )
