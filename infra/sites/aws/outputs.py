"""Records that parts of the AWS stack pass to each other: ids and names, never resources; and their components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from infra.domain import naming
from infra.domain.pools import Network, NodePool
from infra.sites.aws.imds_sidecar import MetadataAccess


def component(kind: str, name: str, opts: pulumi.ResourceOptions) -> pulumi.ComponentResource:
    """Return the component of a part that has nothing but its resources; its type is in their URNs."""
    made = pulumi.ComponentResource(naming.infra_type(kind), name, None, opts)
    made.register_outputs({})
    return made


@dataclass(frozen=True, kw_only=True)
class NetworkRecord:
    vpc_id: pulumi.Input[str]
    cidrs: tuple[str, ...]
    """CIDR blocks of the VPC, the primary one first."""
    private_subnets: Mapping[str, pulumi.Input[str]]
    """By availability zone; nodes, file systems and interface endpoints live in them."""
    public_subnets: Mapping[str, pulumi.Input[str]]
    """By availability zone, for load balancers and NAT; empty in an existing VPC."""
    efa_security_group: pulumi.Input[str]
    """Lets its members reach each other by any protocol, which EFA requires."""


@dataclass(frozen=True, kw_only=True)
class ClusterRecord:
    """An EKS cluster. Its ARN, name and version are plain: policies and other names are built from them."""

    account: str
    """12 digits."""
    region: str
    name: str
    version: str
    endpoint: pulumi.Input[str]
    certificate_authority: pulumi.Input[str]
    """Base64, as EKS returns it."""
    security_group: pulumi.Input[str]
    """The group that EKS creates: control plane and nodes reach each other in it."""
    kubeconfig: pulumi.Input[str]
    identity: pulumi.Input[str]
    """ARN and time of creation: kept by a changed endpoint or certificate, not by another cluster of the name."""
    node_role_arn: pulumi.Input[str]
    node_role_name: pulumi.Input[str]

    @property
    def arn(self) -> str:
        return f"arn:aws:eks:{self.region}:{self.account}:cluster/{self.name}"

    @property
    def created_name(self) -> pulumi.Output[str]:
        """The name once the cluster exists, so that resources in it wait for it."""
        return pulumi.Output.from_input(self.endpoint).apply(lambda _: self.name)


@dataclass(frozen=True, kw_only=True)
class BucketRecord:
    """A bucket. The name is plain: policies and URIs are built from it."""

    name: str
    arn: pulumi.Input[str]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where nodes and file systems are."""

    network: NetworkRecord
    cluster: ClusterRecord
    data_key_arn: pulumi.Input[str]
    """KMS key of root volumes, file systems and buckets."""
    metadata_access: MetadataAccess = MetadataAccess.NODE
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of instances and volumes: the provider's default tags do not apply to those that EC2 launches later."""

    def subnet(self, pool: NodePool) -> pulumi.Input[str]:
        """Return the private subnet of the pool's zone. Raises KeyError for a zone without one."""
        return self.network.private_subnets[pool.zone]

    def security_groups(self, pool: NodePool) -> list[pulumi.Input[str]]:
        """Return the cluster's group, which EKS omits where a template names any, and EFA's."""
        groups = [self.cluster.security_group]
        if pool.network is Network.EFA:
            groups.append(self.network.efa_security_group)
        return groups

    def own_name(self, pool: NodePool) -> str:
        """Return the name of a pool's launch template and placement group."""
        return f"{self.cluster.name}-{pool.name}"

    def instance_tags(self, pool: NodePool) -> dict[str, str]:
        return {**self.tags, "Name": self.own_name(pool), naming.POOL: pool.name}
