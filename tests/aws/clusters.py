"""A whole cluster for tests, composed as a stack composes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pulumi

from infra.sections.cluster import EksClusterConfig, SystemNodesConfig
from infra.sites.aws import addons, node_health
from infra.sites.aws.addons import Addons
from infra.sites.aws.cluster import Cluster
from infra.sites.aws.keys import Keys
from infra.sites.aws.network import existing_network
from infra.sites.aws.outputs import ClusterRecord, NetworkRecord, Place
from infra.sites.aws.system_nodes import system_nodes
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed
from tests.aws.networks import SITE, existing_vpc, network

ADMIN: Final = f"arn:aws:iam::{ACCOUNT}:role/platform-admin"
VIEWER: Final = f"arn:aws:iam::{ACCOUNT}:role/ci/trainyard-preview"
DRIFT: Final = f"arn:aws:iam::{ACCOUNT}:role/ci/trainyard-drift"
MEMBER: Final = f"arn:aws:iam::{ACCOUNT}:role/research"
DEPLOYER: Final = f"arn:aws:iam::{ACCOUNT}:role/ci/trainyard-deployer"


@dataclass(frozen=True, kw_only=True)
class Base:
    """What the parts of a cluster are made on."""

    network: NetworkRecord
    keys: Keys


def policy_of_pods(deployed: Deployed) -> dict[str, Any]:
    """The only policy of the role that the only Pod Identity association gives to pods."""
    made = deployed.one("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    role = str(made.inputs["roleArn"]).rpartition("/")[2]
    iam = deployed.cloud.iam
    [name] = iam.list_role_policies(RoleName=role)["PolicyNames"]
    found: dict[str, Any] = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    return found


def bare_cluster(cloud: Cloud, name: str = "training") -> ClusterRecord:
    """A cluster that is there and has nothing but its name, for what only refers to one."""
    role = f"arn:aws:iam::{ACCOUNT}:role/eks"
    cloud.client("eks").create_cluster(name=name, roleArn=role, resourcesVpcConfig={})
    return ClusterRecord(
        account=ACCOUNT,
        region=REGION,
        name=name,
        version="1.35",
        endpoint="https://eks",
        certificate_authority="",
        security_group="",
        kubeconfig="",
        identity="",
        node_role_arn="",
        node_role_name="",
    )


def base(opts: pulumi.ResourceOptions) -> Base:
    """Network and keys."""
    return Base(network=network(opts).record, keys=Keys("keys", SITE, opts))


def existing_base(opts: pulumi.ResourceOptions, cloud: Cloud) -> Base:
    """A network that was there before, and keys: a tenth of the work."""
    record, _ = existing_network("network", "training", existing_vpc(cloud), opts)
    return Base(network=record, keys=Keys("keys", SITE, opts))


def private_cluster(
    on: Base,
    opts: pulumi.ResourceOptions,
    settings: Mapping[str, Any] | None = None,
    **others: Any,
) -> Cluster:
    """A private cluster with one admin and one deployer, and these changes."""
    usual = EksClusterConfig.model_construct(
        name="training",
        endpoint=(),
        admins=(ADMIN,),
        deployers=(DEPLOYER,),
        viewers=(VIEWER,),
        drift_detectors=(DRIFT,),
    )
    more: dict[str, Any] = {
        "key_arn": on.keys.cluster_key_arn,
        "members": {MEMBER: ("trainyard:research:researcher", "trainyard:vision:lead")},
    }
    changed = usual.model_copy(update=settings or {})
    return Cluster("cluster", SITE, changed, on.network, opts, **more | others)


def program(opts: pulumi.ResourceOptions) -> Cluster:
    """Network, keys, cluster, add-ons, system nodes, and the rest of the add-ons."""

    def after(*resources: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions.merge(
            opts, pulumi.ResourceOptions(depends_on=list(resources))
        )

    on = base(opts)
    cluster = private_cluster(on, opts)
    first = Addons("networking", cluster.record, addons.BEFORE_NODES, opts)
    place = Place(
        network=on.network,
        cluster=cluster.record,
        data_key_arn=on.keys.data_key_arn,
        tags={"cost-center": "research"},
    )
    nodes = system_nodes("system", SystemNodesConfig(), place, after(first))
    agent = node_health.monitoring_agent((), "")
    rest = (*addons.AFTER_NODES, agent, addons.FSX, addons.EFS)
    Addons("addons", cluster.record, rest, after(nodes))
    return cluster
