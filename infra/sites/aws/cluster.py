"""The EKS cluster: control plane, access entries, and the role of its nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws.cloudwatch as cloudwatch
import pulumi_aws.eks as aws_eks
import pulumi_aws.iam as iam
import pulumi_aws.vpc as vpc_rules
import pulumi_eks

from infra.domain import naming
from infra.sections.cluster import EksClusterConfig
from infra.sites.aws import addresses
from infra.sites.aws.access import access
from infra.sites.aws.network import HTTPS
from infra.sites.aws.outputs import ClusterRecord, NetworkRecord, component
from infra.sites.aws.policy_documents import AWS_POLICIES, document
from infra.sites.aws.provider import ProviderArgs
from infra.sites.aws.run_log_access import control_plane_group

LOG_TYPES: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""All log types of EKS."""


NODE_POLICIES: Final = ("AmazonEKSWorkerNodeMinimalPolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Join the cluster, pull images. The network plug-in and each team have separate roles, because every pod that
reaches the metadata service has the node's permissions."""

NODE_TRUST: Final[dict[str, Any]] = document(
    {
        "Effect": "Allow",
        "Action": "sts:AssumeRole",
        "Principal": {"Service": "ec2.amazonaws.com"},
    }
)


class Cluster(pulumi.ComponentResource):
    """Control plane, access entries and node role; `record` holds their ids and names.

    Raises ValueError for a public endpoint that is open to the internet.
    """

    record: ClusterRecord

    def __init__(
        self,
        name: str,
        site: ProviderArgs,
        settings: EksClusterConfig,
        network: NetworkRecord,
        opts: pulumi.ResourceOptions,
        *,
        key_arn: pulumi.Input[str],
        log_key_arn: pulumi.Input[str] | None = None,
        members: Mapping[str, tuple[str, ...]],
        protect: bool = True,
    ) -> None:
        """Create it.

        `key_arn`: KMS key for envelope encryption of the API server's data. `log_key_arn`: of the control plane's
        log group, with `run_log_access.key_statement`; None: CloudWatch's own. `members`: Kubernetes groups by
        the ARN of an IAM principal that is a member of teams. `protect`: Pulumi and EKS refuse to delete it.
        """
        super().__init__(naming.infra_type("AwsCluster"), name, None, opts)
        reject_open_cidrs(settings.endpoint)
        self._settings, self._network = settings, network
        child = pulumi.ResourceOptions(parent=self)
        # EKS would create this group without a retention limit.
        logs = cloudwatch.LogGroup(
            f"{name}-logs",
            name=control_plane_group(settings.name),
            kms_key_id=log_key_arn,
            retention_in_days=settings.log_retention_days,
            opts=child,
        )
        made = self._control_plane(name, logs, key_arn, protect=protect)
        security_group = made.eks_cluster.vpc_config.cluster_security_group_id
        # EKS admits members of the group, which are nodes, but not the machine that runs updates.
        for number, cidr in enumerate(network.cidrs):
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
        role_arn, role_name = _node_role(f"{name}-nodes", settings.name, child)
        entry = access(f"{name}-access", made.eks_cluster.name, settings, members, role_arn, child)
        # Nodes without an access entry are rejected, so the role's ARN waits for the entry.
        joining = pulumi.Output.all(role_arn, entry.urn).apply(lambda both: str(both[0]))
        self.record = ClusterRecord(
            account=site.account,
            region=site.region,
            name=settings.name,
            version=settings.version,
            endpoint=made.eks_cluster.endpoint,
            certificate_authority=made.eks_cluster.certificate_authority.data,
            security_group=security_group,
            kubeconfig=made.kubeconfig_json,
            identity=pulumi.Output.concat(made.eks_cluster.arn, " ", made.eks_cluster.created_at),
            node_role_arn=joining,
            node_role_name=role_name,
        )
        self.register_outputs({"name": settings.name, "endpoint": self.record.endpoint})

    def _control_plane(
        self,
        name: str,
        logs: cloudwatch.LogGroup,
        key_arn: pulumi.Input[str],
        *,
        protect: bool,
    ) -> pulumi_eks.Cluster:
        """The cluster alone: previews and policies cannot read nodes, add-ons and access entries inside a
        remote component, so those are separate resources."""
        return pulumi_eks.Cluster(
            f"{name}-eks",
            name=self._settings.name,
            version=self._settings.version,
            vpc_id=self._network.vpc_id,
            private_subnet_ids=list(self._network.private_subnets.values()),
            kubernetes_service_ip_address_range=str(addresses.SERVICES),
            endpoint_private_access=True,
            endpoint_public_access=bool(self._settings.endpoint),
            public_access_cidrs=list(self._settings.endpoint) or None,
            authentication_mode=pulumi_eks.AuthenticationMode.API,
            encryption_config_key_arn=key_arn,
            enabled_cluster_log_types=list(LOG_TYPES),
            deletion_protection=protect,
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
            opts=pulumi.ResourceOptions(parent=self, depends_on=[logs], protect=protect),
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


def _node_role(
    name: str, cluster: str, opts: pulumi.ResourceOptions
) -> tuple[pulumi.Output[str], pulumi.Output[str]]:
    """Create the role of every EC2 node, managed or Karpenter's; return its ARN and its name."""
    child = pulumi.ResourceOptions(parent=component("AwsNodeRole", name, opts))
    role = iam.Role(
        f"{name}-role",
        description=f"Nodes of {cluster}",
        assume_role_policy=json.dumps(NODE_TRUST),
        opts=child,
    )
    attached = [
        iam.RolePolicyAttachment(
            f"{name}-{policy}", role=role.name, policy_arn=f"{AWS_POLICIES}/{policy}", opts=child
        )
        for policy in NODE_POLICIES
    ]
    # Resources that start nodes wait for the policies, too.
    ready = pulumi.Output.all(role.arn, *(one.id for one in attached))
    return ready.apply(lambda found: str(found[0])), role.name
