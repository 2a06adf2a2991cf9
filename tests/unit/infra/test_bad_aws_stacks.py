"""Mistakes in stack files of a cluster on AWS: each is one issue, all are reported at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infra.config import parse
from infra.domain import catalog, prices
from infra.domain.pools import Nodes, ReservationKind
from infra.sections.cluster import EksClusterConfig
from infra.sections.storage import StorageKind
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import check_issues, codes, issues
from tests.unit.infra.example_eks import ROLE
from tests.unit.infra.example_eks import stack_values as example

Edit = Callable[[dict[str, Any]], object]

BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
TIMED = BLOCK | {"start": "2027-03-01T11:30:00Z", "end": "2027-03-03T11:30:00Z"}
VPC = {
    "vpcId": "vpc-0a1b2c3d4e5f60718",
    "cidr": "10.9.0.0/16",
    "privateSubnets": {"us-east-1a": "subnet-0a1b2c3d", "us-east-1b": "subnet-1a1b2c3d"},
}


def cluster(**changes: Any) -> Edit:
    """Change the section `cluster`."""
    return lambda s: s["cluster"].update(changes)


def member(name: str) -> Edit:
    """Add a researcher to the first team."""
    return lambda s: s["teams"][0].update(members={"researchers": [name]})


def aws(**changes: Any) -> Edit:
    """Change the section `aws`."""
    return lambda s: s["aws"].update(changes)


def network(**changes: Any) -> Edit:
    """Change the section `network`."""
    return lambda s: s["network"].update(changes)


def brought(**changes: Any) -> Edit:
    """Replace the network with an existing one."""
    return lambda s: s.update(network={"existing": VPC | changes})


def pool(index: int, **changes: Any) -> Edit:
    """Change a pool."""
    return lambda s: s["nodePools"][index].update(changes)


def storage(**changes: Any) -> Edit:
    """Change the section `storage`."""
    return lambda s: s["storage"].update(changes)


def buckets(**changes: Any) -> Edit:
    """Change the section `storage.buckets`."""
    return lambda s: s["storage"]["buckets"].update(changes)


CLUSTER: dict[str, tuple[Edit, str]] = {
    "no provider": (
        lambda s: s["cluster"].pop("provider"),
        "cluster.provider: missing",
    ),
    "misspelt provider": (
        cluster(provider="esk"),
        "cluster.provider: unknown-value",
    ),
    "key of the other provider": (
        cluster(context="mine"),
        "cluster.context: unknown-key",
    ),
    "unsupported Kubernetes": (
        cluster(version="1.29"),
        "cluster.version: unknown-value",
    ),
    "Kubernetes version without quotes": (
        cluster(version=1.35),
        "cluster.version: unknown-value",
    ),
    "endpoint for everybody": (
        cluster(endpoint=["0.0.0.0/0"]),
        "cluster.endpoint[0]: public-endpoint",
    ),
    "endpoint for half of everybody": (
        cluster(endpoint=["128.0.0.0/1"]),
        "cluster.endpoint[0]: public-endpoint",
    ),
    "endpoint for everybody by IPv6": (
        cluster(endpoint=["203.0.113.0/24", "::/0"]),
        "cluster.endpoint[1]: public-endpoint",
    ),
    "endpoint for private addresses": (
        cluster(endpoint=["10.0.0.0/8"]),
        "cluster.endpoint[0]: private-block",
    ),
    "endpoint of another word": (
        cluster(endpoint="public"),
        "cluster.endpoint: wrong-type",
    ),
    "malformed role": (
        cluster(admins=["arn:aws:iam::111122223333:user/ada"]),
        "cluster.admins[0]: role-arn",
    ),
    "role of another account": (
        cluster(deployers=["arn:aws:iam::444455556666:role/ci"]),
        "cluster.deployers[0]: role-account",
    ),
    "role that is admin and deployer": (
        cluster(deployers=[f"{ROLE}platform-admin"]),
        "cluster.deployers[0]: duplicate",
    ),
    "member of another account": (
        member("arn:aws:iam::444455556666:role/research"),
        "teams[0].members.researchers[0]: role-account",
    ),
    "member who is an account's root": (
        member("arn:aws:iam::111122223333:root"),
        "teams[0].members.researchers[0]: role-arn",
    ),
    "member who is an admin": (
        member(f"{ROLE}platform-admin"),
        "teams[0].members.researchers[0]: duplicate",
    ),
    "log retention that CloudWatch does not know": (
        cluster(logRetentionDays=100),
        "cluster.logRetentionDays: log-retention",
    ),
    "system nodes with GPUs": (
        cluster(systemNodes={"instanceTypes": ["g6.xlarge"]}),
        "cluster.systemNodes.instanceTypes[0]: system-node-type",
    ),
    "misspelt key of system nodes": (
        cluster(systemNodes={"mni": 1}),
        "cluster.systemNodes.mni: unknown-key",
    ),
    "more system nodes than there may be": (
        cluster(systemNodes={"min": 5}),
        "cluster.systemNodes.min: min-above-max",
    ),
}

PLACES: dict[str, tuple[Edit, str]] = {
    "no aws": (
        lambda s: s.pop("aws"),
        "aws: missing",
    ),
    "no region": (
        lambda s: s["aws"].pop("region"),
        "aws.region: missing",
    ),
    "unknown region": (
        aws(region="us-east-7"),
        "aws.region: unknown-name",
    ),
    "region of GovCloud": (
        aws(region="us-gov-west-1"),
        "aws.region: unsupported-partition",
    ),
    "region of China": (
        aws(region="cn-north-1"),
        "aws.region: unsupported-partition",
    ),
    "account of 11 digits": (
        aws(account="11112222333"),
        "aws.account: account-id",
    ),
    "account without quotes": (
        aws(account=111122223333),
        "aws.account: account-id",
    ),
    "tag of AWS' own": (
        aws(tags={"aws:owner": "me"}),
        "aws.tags.aws:owner: tag",
    ),
    "no network": (
        lambda s: s.pop("network"),
        "network: missing",
    ),
    "zone of another region": (
        network(zones=["us-east-1a", "us-east-1b", "us-west-2c"]),
        "network.zones[2]: zone-outside-region",
    ),
    "zone twice": (
        network(zones=["us-east-1a", "us-east-1b", "us-east-1b"]),
        "network.zones[2]: duplicate",
    ),
    "one zone": (
        lambda s: (network(zones=["us-east-1a"])(s), pool(2, zone="us-east-1a")(s)),
        "network.zones: zone-count",
    ),
    "zones as text": (
        network(zones="us-east-1a"),
        "network.zones: wrong-type",
    ),
    "public addresses": (
        network(cidr="52.0.0.0/16"),
        "network.cidr: public-cidr",
    ),
    "too few addresses": (
        network(cidr="10.20.0.0/24"),
        "network.cidr: cidr-size",
    ),
    "too many addresses": (
        network(cidr="10.0.0.0/8"),
        "network.cidr: cidr-size",
    ),
    "addresses of Kubernetes Services": (
        network(cidr="172.20.0.0/16"),
        "network.cidr: cidr-overlap",
    ),
    "no addresses": (
        network(cidr="10.20.0.0"),
        "network.cidr: cidr-size",
    ),
    "fewer addresses than nodes": (
        network(cidr="10.20.0.0/19"),
        "network.cidr: cidr-too-small",
    ),
    "addresses with host bits": (
        network(cidr="10.20.3.0/16"),
        "network.cidr: cidr",
    ),
    "IPv6 addresses": (
        network(cidr="fd00::/16"),
        "network.cidr: not-ipv4",
    ),
    "misspelt key of the network": (
        lambda s: s["network"].update(zons=s["network"].pop("zones")),
        "network.zons: unknown-key",
    ),
    "NAT of another kind": (
        network(nat="per-zones"),
        "network.nat: unknown-value",
    ),
    "network that is made and brought": (
        network(existing=VPC),
        ("network.cidr: unknown-key\nnetwork.zones: unknown-key"),
    ),
    "brought network with the addresses of Services": (
        brought(cidr="172.16.0.0/12"),
        "network.existing.cidr: cidr-overlap",
    ),
    "secondary block with the addresses of Services": (
        brought(secondaryCidrs=["100.64.0.0/16", "172.20.128.0/17"]),
        "network.existing.secondaryCidrs[1]: cidr-overlap",
    ),
    "secondary block that is listed already": (
        brought(secondaryCidrs=["10.9.0.0/20", "100.64.0.0/16", "100.64.0.0/16"]),
        (
            "network.existing.secondaryCidrs[0]: cidr-overlap\n"
            "network.existing.secondaryCidrs[2]: cidr-overlap"
        ),
    ),
    "secondary block by IPv6": (
        brought(secondaryCidrs=["fd00::/56"]),
        "network.existing.secondaryCidrs[0]: not-ipv4",
    ),
    "secondary block of a network that is made": (
        network(secondaryCidrs=["100.64.0.0/16"]),
        "network.secondaryCidrs: unknown-key",
    ),
    "malformed VPC": (
        brought(vpcId="my-vpc"),
        "network.existing.vpcId: vpc-id",
    ),
    "malformed subnet": (
        brought(privateSubnets=VPC["privateSubnets"] | {"us-east-1b": "subnet-b"}),  # type: ignore[operator]
        "network.existing.privateSubnets.us-east-1b: subnet-id",
    ),
    "one subnet for two zones": (
        brought(privateSubnets=dict.fromkeys(("us-east-1a", "us-east-1b"), "subnet-0a1b2c3d")),
        "network.existing.privateSubnets.us-east-1b: duplicate",
    ),
    "brought zone of another region": (
        brought(privateSubnets=VPC["privateSubnets"] | {"eu-west-1a": "subnet-2a1b2c3d"}),  # type: ignore[operator]
        "network.existing.privateSubnets.eu-west-1a: zone-outside-region",
    ),
    "pool outside the network": (
        pool(2, zone="us-east-1c"),
        "nodePools[2].zone: zone-outside-network",
    ),
    "pool across zones": (
        pool(0, zone=["us-east-1a", "us-east-1b"]),
        "nodePools[0].zone: wrong-type",
    ),
    "EFA away from its file system": (
        pool(0, zone="us-east-1b"),
        "nodePools[0].zone: efa-across-zones",
    ),
    "EFA in two zones": (
        lambda s: (
            storage(fsx=None, efs={})(s),
            pool(1, network="efa", zone="us-east-1b")(s),
        ),
        "nodePools[1].zone: efa-across-zones",
    ),
}

POOLS: dict[str, tuple[Edit, str]] = {
    "simulated nodes on AWS": (
        pool(2, nodes="kwok"),
        "nodePools[2].nodes: nodes-provider",
    ),
    "nodes that nobody makes": (
        lambda s: s["nodePools"][0].pop("nodes"),
        "nodePools[0].nodes: nodes-provider",
    ),
    "EFA on a type without it": (
        pool(1, network="efa", instanceTypes=["g6.xlarge"]),
        "nodePools[1].instanceTypes[0]: type-without-efa",
    ),
    "placement group without EFA": (
        pool(1, placementGroup=True),
        "nodePools[1].placementGroup: placement-group-network",
    ),
    "capacity block on spot": (
        lambda s: (
            pool(0, capacity="spot", reservation=BLOCK)(s),
            s["teams"][0].update(tier="research"),
        ),
        "nodePools[0].reservation: reservation-on-spot",
    ),
    "reservation of several types": (
        pool(0, instanceTypes=["p4d.24xlarge", "p5.48xlarge"], reservation=BLOCK),
        "nodePools[0].instanceTypes: reservation-types",
    ),
    "capacity block without its end": (
        pool(0, reservation=BLOCK | {"start": "2027-03-01T11:30:00Z"}),
        "nodePools[0].reservation: reservation-clock",
    ),
    "capacity block that ends before it starts": (
        pool(
            0,
            reservation=BLOCK | {"start": "2027-03-01T11:30:00Z", "end": "2027-02-01T11:30:00Z"},
        ),
        "nodePools[0].reservation: reservation-clock",
    ),
    "clock of another reservation": (
        pool(
            0,
            reservation=BLOCK
            | {"kind": "on-demand-capacity-reservation"}
            | {"start": "2027-03-01T11:30:00Z", "end": "2027-03-02T11:30:00Z"},
        ),
        "nodePools[0].reservation: reservation-clock",
    ),
    "timed capacity block that nothing scales": (
        pool(0, min=0, reservation=TIMED),
        "nodePools[0].nodes: timed-block-unscaled",
    ),
    "timed capacity block without an autoscaler": (
        lambda s: (
            s.update(autoscaler="none"),
            pool(0, min=0, reservation=TIMED)(s),
            pool(1, nodes="managed", min=50)(s),
        ),
        "nodePools[0].nodes: timed-block-unscaled",
    ),
    "capacity block in local time": (
        pool(
            0,
            reservation=BLOCK | {"start": "2027-03-01T11:30", "end": "2027-03-02T11:30:00Z"},
        ),
        "nodePools[0].reservation.start: instant",
    ),
    "malformed reservation": (
        pool(0, reservation=BLOCK | {"id": "cr-123"}),
        "nodePools[0].reservation.id: reservation-id",
    ),
    "reservation of another kind": (
        pool(0, reservation=BLOCK | {"kind": "odcr"}),
        "nodePools[0].reservation.kind: unknown-value",
    ),
    "two architectures": (
        pool(1, instanceTypes=["p4d.24xlarge", "p6e-gb200.36xlarge"]),
        "nodePools[1].instanceTypes: mixed-architectures",
    ),
    "update speed of a Karpenter pool": (
        pool(1, maxUnavailable=2),
        "nodePools[1].maxUnavailable: pool-option",
    ),
    "minimum of a Karpenter pool": (
        pool(1, min=1),
        "nodePools[1].min: karpenter-min",
    ),
    "root volume too small for an image": (
        pool(0, rootGiB=20),
        "nodePools[0].rootGiB: out-of-range",
    ),
    "managed pool that nobody enlarges": (
        pool(0, min=2),
        "nodePools[0].min: fixed-size-pool",
    ),
    "Karpenter's pool without Karpenter": (
        lambda s: s.update(autoscaler="none"),
        "nodePools[1].nodes: karpenter-autoscaler",
    ),
    "Karpenter without a pool": (
        pool(1, nodes="managed", min=50),
        "autoscaler: autoscaler-unused",
    ),
    "Cluster Autoscaler without a pool": (
        lambda s: (
            s.update(autoscaler="cluster-autoscaler", nodePools=[s["nodePools"][1]]),
            s["teams"][0].update(tier="research", guaranteed={}),
            s["nodePools"][0].update(nodes="karpenter"),
        ),
        ("autoscaler: autoscaler-unused\nnodePools[0].nodes: karpenter-autoscaler"),
    ),
    "misspelt autoscaler": (
        lambda s: (s.update(autoscaler="karpentr"), pool(1, nodes="managed", min=50)(s)),
        "autoscaler: unknown-value",
    ),
    "production on spot alone": (
        lambda s: s["teams"][0].update(guaranteed={"spot": 4}),
        "teams[0].guaranteed: production-on-spot",
    ),
}

STORAGE: dict[str, tuple[Edit, str]] = {
    "no storage": (
        lambda s: s["storage"].pop("fsx"),
        "storage: storage-missing",
    ),
    "two storages": (
        storage(efs={}),
        "storage: storage-backend",
    ),
    "file system outside the network": (
        storage(fsx={"zone": "us-east-1c"}),
        ("storage.fsx.zone: zone-outside-network\nnodePools[0].zone: efa-across-zones"),
    ),
    "throughput that FSx does not have": (
        storage(fsx={"zone": "us-east-1a", "throughputPerTiB": 300}),
        "storage.fsx.throughputPerTiB: unknown-value",
    ),
    "no buckets": (
        lambda s: s["storage"].pop("buckets"),
        "storage.buckets: missing",
    ),
    "bucket prefix with capitals": (
        buckets(prefix="Acme_Training"),
        "storage.buckets.prefix: bucket-prefix",
    ),
    "bucket prefix too long for its suffix": (
        buckets(prefix="a" * 52),
        "storage.buckets.prefix: bucket-prefix",
    ),
    "bucket prefix of S3's own": (
        buckets(prefix="xn--acme"),
        "storage.buckets.prefix: bucket-prefix",
    ),
    "checkout as an image": (
        lambda s: s.update(images={"trainer": "registry.example.com/trainer@source"}),
        "images.trainer: source-image",
    ),
}

BAD = CLUSTER | PLACES | POOLS | STORAGE

ONLY_AWS: dict[str, dict[str, Any]] = {
    "aws": {"region": "us-east-1", "account": "111122223333"},
    "network": {"cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
    "interruption": {"imdsSidecar": True},
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_issue(name: str) -> None:
    edit, expected = BAD[name]
    values = example()
    edit(values)
    check_issues("aws", name, values, expected)


@pytest.mark.parametrize("section", ONLY_AWS)
def test_existing_cluster_rejects_aws_sections(section: str) -> None:
    values = existing() | {section: ONLY_AWS[section]}
    check_issues("aws", f"{section} without AWS", values, f"{section}: aws-only")


def test_existing_cluster_rejects_aws_nodes_storage_and_autoscaler() -> None:
    values = existing() | {"autoscaler": "karpenter"}
    values["nodePools"][0].update(nodes="managed", rootGiB=100)
    values["nodePools"][1].update(rootGiB=100)
    values["storage"] = {"efs": {}, "buckets": {"prefix": "acme"}} | values["storage"]
    places = [code.partition(": ")[0] for code in codes(issues(values))]
    assert places == [
        "storage.buckets",
        "storage.efs",
        "autoscaler",
        "nodePools[0].nodes",
        "nodePools[1].rootGiB",
        "storage",
    ]


def test_all_invalid_values_are_reported_at_once_and_then_all_rules() -> None:
    values = example()
    values["cluster"].update(version="1.20", endpoint=["0.0.0.0/0"], admins=["ada"])
    values["aws"].update(region="mars-1", account="1")
    values["network"].update(nat="none")
    values["nodePools"][0].update(reservation={"kind": "capacity-block", "id": "x"})
    values["storage"]["buckets"].update(prefix="-")
    assert [code.partition(": ")[0] for code in codes(issues(values))] == [
        "cluster.version",
        "cluster.endpoint[0]",
        "cluster.admins[0]",
        "aws.region",
        "aws.account",
        "network.nat",
        "nodePools[0].reservation.id",
        "storage.buckets.prefix",
    ]
    values = example()
    values["network"].update(cidr="10.0.0.0/8", zones=["us-east-1a"])
    values["nodePools"][0].update(nodes="kwok")
    values["autoscaler"] = "none"
    assert [code.partition(": ")[0] for code in codes(issues(values))] == [
        "network.zones",
        "network.cidr",
        "nodePools[2].zone",
        "nodePools[0].nodes",
        "nodePools[1].nodes",
    ]


def test_defaults_are_secure() -> None:
    config = parse(example())
    cluster = config.cluster
    assert isinstance(cluster, EksClusterConfig)
    assert cluster.endpoint == ()
    assert cluster.version == "1.35"
    assert cluster.log_retention_days == 90
    assert config.protected
    assert not config.interruption.imds_sidecar
    assert not parse(existing()).protected


def test_aws_stack_has_all_sections() -> None:
    config = parse(example())
    assert config.on_aws and config.on_aws.aws.region == "us-east-1"
    assert config.on_aws.network.zone_names == ("us-east-1a", "us-east-1b")
    assert config.on_aws.buckets.prefix == "acme-training"
    assert config.storage.kind is StorageKind.FSX
    assert [p.name for p in config.pools_of(Nodes.MANAGED)] == ["ondemand", "cpu"]
    assert parse(existing()).on_aws is None


def test_endpoint_may_be_open_to_listed_cidrs() -> None:
    values = example()
    values["cluster"]["endpoint"] = ["203.0.113.0/24", "2001:db8::/32"]
    cluster = parse(values).cluster
    assert isinstance(cluster, EksClusterConfig)
    assert cluster.endpoint == ("203.0.113.0/24", "2001:db8::/32")
    values["cluster"]["endpoint"] = "private"
    assert parse(values).on_aws


def test_cidr_that_the_pools_exactly_fill_is_accepted() -> None:
    values = example()
    network(cidr="10.20.0.0/19")(values)
    pool(1, max=41)(values)
    assert parse(values).on_aws


def test_existing_network_is_accepted() -> None:
    values = example()
    brought()(values)
    config = parse(values)
    assert config.on_aws
    assert config.on_aws.network.zone_names == ("us-east-1a", "us-east-1b")
    assert config.on_aws.network.cidr == "10.9.0.0/16"


def test_pool_takes_its_reservation_and_prices_of_its_region() -> None:
    values = example()
    values["nodePools"][0].update(reservation=BLOCK, placementGroup=True, maxUnavailable=2)
    [reserved] = [p for p in parse(values).pools if p.name == "ondemand"]
    assert reserved.reservation and reserved.reservation.kind is ReservationKind.CAPACITY_BLOCK
    assert (reserved.placement_group, reserved.max_unavailable) == (True, 2)
    assert reserved.region == "us-east-1"
    assert prices.per_node(reserved) == catalog.price("p4d.24xlarge").on_demand_usd_hour


def test_capacity_block_pool_may_have_a_minimum_of_zero() -> None:
    values = example()
    values["nodePools"][0].update(min=0, reservation=BLOCK)
    assert parse(values).on_aws


def test_spot_pool_with_one_instance_type_is_accepted() -> None:
    values = example()
    values["nodePools"][1]["instanceTypes"] = ["p4d.24xlarge"]
    assert parse(values).on_aws
