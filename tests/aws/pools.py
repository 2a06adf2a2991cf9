"""Pools for tests, and the minimal account resources for nodes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import pulumi
from moto import mock_aws

from infra.domain.pools import (
    Capacity,
    Network,
    NodePool,
    Reservation,
    ReservationKind,
    Workload,
)
from infra.kubernetes.resources import KubernetesObject
from infra.sites.aws.node_pools import NodePools
from infra.sites.aws.outputs import ClusterRecord, NetworkRecord, Place
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Created, Deployed, deploy
from tests.unit.infra.gpu_pools import gpu_pool

CLUSTER: Final = "training"
ZONES: Final = ("us-east-1a", "us-east-1b")
TAGS: Final = {"cost-center": "research"}
BLOCK: Final = Reservation(kind=ReservationKind.CAPACITY_BLOCK, id="cr-0123456789abcdef0")
HELD: Final = Reservation(kind=ReservationKind.ON_DEMAND, id="cr-0fedcba9876543210")


SPOT: Final = gpu_pool(
    name="spot",
    capacity=Capacity.SPOT,
    instance_types=("p4d.24xlarge", "p3dn.24xlarge"),
    max=50,
    zone=ZONES[1],
    network=Network.TCP,
    extra_labels={"team": "any"},
)


def pool(**changes: object) -> NodePool:
    """A managed spot pool of two types in the second zone."""
    return dataclasses.replace(SPOT, **changes)  # type: ignore[arg-type]


ONDEMAND: Final = pool(
    name="ondemand",
    capacity=Capacity.ON_DEMAND,
    instance_types=("p5.48xlarge",),
    min=1,
    max=4,
    network=Network.EFA,
    placement_group=True,
    root_gib=500,
    max_unavailable=2,
)
RESERVED: Final = pool(
    name="block", capacity=Capacity.ON_DEMAND, instance_types=("p5.48xlarge",), reservation=BLOCK
)
IN_RESERVATION: Final = pool(
    name="held",
    capacity=Capacity.ON_DEMAND,
    instance_types=("p5.48xlarge",),
    reservation=HELD,
)
CPU: Final = pool(
    name="cpu",
    workload=Workload.CPU,
    capacity=Capacity.ON_DEMAND,
    instance_types=("m6i.4xlarge",),
    min=1,
    max=4,
    zone=ZONES[0],
)
ALL: Final = (SPOT, ONDEMAND, RESERVED, IN_RESERVATION, CPU)


def place(cloud: Cloud) -> Place:
    """A VPC with a subnet in each zone, two security groups, two roles, a key, a cluster."""
    vpc = cloud.ec2.create_vpc(CidrBlock="10.20.0.0/16")["Vpc"]["VpcId"]
    subnets = {
        zone: cloud.ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"10.20.{index}.0/24", AvailabilityZone=zone
        )["Subnet"]["SubnetId"]
        for index, zone in enumerate(ZONES)
    }
    own, efa = (
        cloud.ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
        for name in ("cluster", "efa")
    )
    service, nodes = (_role(cloud, name) for name in ("eks", "ec2"))
    made = cloud.client("eks").create_cluster(
        name=CLUSTER,
        version="1.35",
        roleArn=service,
        resourcesVpcConfig={"subnetIds": list(subnets.values())},
    )["cluster"]
    return Place(
        network=NetworkRecord(
            vpc_id=vpc,
            cidrs=("10.20.0.0/16",),
            private_subnets=subnets,
            public_subnets={},
            efa_security_group=efa,
        ),
        cluster=ClusterRecord(
            account=ACCOUNT,
            region=REGION,
            name=CLUSTER,
            version="1.35",
            endpoint=made["endpoint"],
            certificate_authority="",
            security_group=own,
            kubeconfig="",
            identity="",
            node_role_arn=nodes,
            node_role_name="ec2",
        ),
        data_key_arn=cloud.client("kms").create_key()["KeyMetadata"]["Arn"],
        tags=TAGS,
    )


def _role(cloud: Cloud, name: str) -> str:
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": {"Service": f"{name}.amazonaws.com"},
            }
        ],
    }
    made = cloud.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
    arn: str = made["Role"]["Arn"]
    return arn


def deployed_once(
    program: Callable[[Place, pulumi.ResourceOptions], Any],
) -> tuple[Place, Deployed]:
    """For a fixture that the tests of a module share: what was made, of an account that is gone."""
    with mock_aws():
        cloud = Cloud()
        where = place(cloud)
        return where, deploy(lambda opts: program(where, opts), cloud)


@cache
def managed() -> tuple[Place, Deployed]:
    """All pools as managed groups, after an object that they must wait for."""

    def program(where: Place, opts: pulumi.ResourceOptions) -> NodePools:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "addons"}}
        first = pulumi.ResourceOptions(depends_on=[KubernetesObject("addons", manifest, opts)])
        return NodePools("nodes", ALL, where, pulumi.ResourceOptions.merge(opts, first))

    return deployed_once(program)


def needs(deployed: Deployed, one: Created) -> set[str]:
    """Names of all that a resource depends on, directly or not: all that a destroy deletes later."""
    by_name = {other.name: other for other in deployed.created}
    found: set[str] = set()
    todo = list(one.depends_on)
    while todo:
        name = todo.pop()
        if name in by_name and name not in found:
            found.add(name)
            todo += by_name[name].depends_on
    return found
