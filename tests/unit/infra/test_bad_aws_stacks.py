"""Mistakes in stack files of a cluster on AWS: each is one exact line, and all come at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infra.config import ConfigError, parse
from infra.config.aws_model import EksClusterConfig
from infra.config.model import StorageKind
from infra.domain import catalog
from infra.domain.pools import Nodes, ReservationKind
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.example_eks import ROLE
from tests.unit.infra.example_eks import stack_values as example

Edit = Callable[[dict[str, Any]], object]

BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
VPC = {
    "vpcId": "vpc-0a1b2c3d4e5f60718",
    "cidr": "10.9.0.0/16",
    "privateSubnets": {"us-east-1a": "subnet-0a1b2c3d", "us-east-1b": "subnet-1a1b2c3d"},
}


def cluster(**changes: Any) -> Edit:
    """Changes the section `cluster`."""
    return lambda s: s["cluster"].update(changes)


def aws(**changes: Any) -> Edit:
    """Changes the section `aws`."""
    return lambda s: s["aws"].update(changes)


def network(**changes: Any) -> Edit:
    """Changes the section `network`."""
    return lambda s: s["network"].update(changes)


def brought(**changes: Any) -> Edit:
    """Replaces the network by one that exists."""
    return lambda s: s.update(network={"existing": VPC | changes})


def pool(index: int, **changes: Any) -> Edit:
    """Changes a pool."""
    return lambda s: s["nodePools"][index].update(changes)


def storage(**changes: Any) -> Edit:
    """Changes the section `storage`."""
    return lambda s: s["storage"].update(changes)


def buckets(**changes: Any) -> Edit:
    """Changes the section `storage.buckets`."""
    return lambda s: s["storage"]["buckets"].update(changes)


CLUSTER: dict[str, tuple[Edit, str]] = {
    "no provider": (
        lambda s: s["cluster"].pop("provider"),
        "cluster.provider: got nothing; allowed eks, existing; add it",
    ),
    "misspelt provider": (
        cluster(provider="esk"),
        "cluster.provider: got 'esk'; allowed eks, existing; did you mean eks?",
    ),
    "key of the other provider": (
        cluster(context="mine"),
        "cluster.context: got an unknown key; allowed admins, deployers, endpoint, "
        "logRetentionDays, name, provider, systemNodes, version, viewers; remove it",
    ),
    "unsupported Kubernetes": (
        cluster(version="1.29"),
        "cluster.version: got '1.29'; allowed '1.33', '1.34' or '1.35'; choose one of them",
    ),
    "Kubernetes version without quotes": (
        cluster(version=1.35),
        "cluster.version: got 1.35; allowed '1.33', '1.34' or '1.35'; put it in quotes",
    ),
    "endpoint for everybody": (
        cluster(endpoint=["0.0.0.0/0"]),
        "cluster.endpoint[0]: got '0.0.0.0/0'; allowed blocks of your own networks, /8 or smaller "
        "(IPv6: /32); name them, or set endpoint: private",
    ),
    "endpoint for half of everybody": (
        cluster(endpoint=["128.0.0.0/1"]),
        "cluster.endpoint[0]: got '128.0.0.0/1'; allowed blocks of your own networks, /8 or "
        "smaller (IPv6: /32); name them, or set endpoint: private",
    ),
    "endpoint for everybody by IPv6": (
        cluster(endpoint=["203.0.113.0/24", "::/0"]),
        "cluster.endpoint[1]: got '::/0'; allowed blocks of your own networks, /8 or smaller "
        "(IPv6: /32); name them, or set endpoint: private",
    ),
    "endpoint for private addresses": (
        cluster(endpoint=["10.0.0.0/8"]),
        "cluster.endpoint[0]: got '10.0.0.0/8'; allowed public addresses, for the VPC reaches the "
        "API by its private endpoint anyway; name the public addresses that people come from, or "
        "remove it",
    ),
    "endpoint of another word": (
        cluster(endpoint="public"),
        "cluster.endpoint: got 'public'; allowed private, or a list of CIDR blocks that may reach "
        "it; correct it",
    ),
    "malformed role": (
        cluster(admins=["arn:aws:iam::111122223333:user/ada"]),
        "cluster.admins[0]: got 'arn:aws:iam::111122223333:user/ada'; allowed the ARN of a role, "
        "such as arn:aws:iam::111122223333:role/platform-admin; correct it",
    ),
    "role of another account": (
        cluster(deployers=["arn:aws:iam::444455556666:role/ci"]),
        "cluster.deployers[0]: got a role of account 444455556666; allowed roles of account "
        "111122223333, which aws.account names; name a role of that account, which people of "
        "others may assume",
    ),
    "role that is admin and deployer": (
        cluster(deployers=[f"{ROLE}platform-admin"]),
        "cluster.deployers[0]: got a role that cluster.admins[0] has, too; allowed each role once, "
        "for a cluster has one access entry for it; remove one of them",
    ),
    "log retention that CloudWatch does not know": (
        cluster(logRetentionDays=100),
        "cluster.logRetentionDays: got 100; allowed a number of days that CloudWatch knows: 1, 3, "
        "5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827; choose one",
    ),
    "system nodes with GPUs": (
        cluster(systemNodes={"instanceTypes": ["g6.xlarge"]}),
        "cluster.systemNodes.instanceTypes[0]: got 'g6.xlarge' with GPUs; allowed m6i.4xlarge, "
        "m6i.xlarge; did you mean m6i.xlarge?",
    ),
    "misspelt key of system nodes": (
        cluster(systemNodes={"mni": 1}),
        "cluster.systemNodes.mni: got an unknown key; allowed instanceTypes, max, min; did you mean "
        "min?",
    ),
    "more system nodes than there may be": (
        cluster(systemNodes={"min": 5}),
        "cluster.systemNodes.min: got 5; allowed at most max, 4; lower min or raise max",
    ),
}

PLACES: dict[str, tuple[Edit, str]] = {
    "no aws": (
        lambda s: s.pop("aws"),
        "aws: got nothing; allowed region and account; add it",
    ),
    "no region": (
        lambda s: s["aws"].pop("region"),
        "aws.region: got nothing; allowed an AWS region such as us-east-1; add it",
    ),
    "unknown region": (
        aws(region="us-east-7"),
        "aws.region: got 'us-east-7'; allowed a region of AWS that has EKS, such as us-east-1; did "
        "you mean us-east-2?",
    ),
    "account of 11 digits": (
        aws(account="11112222333"),
        "aws.account: got '11112222333'; allowed 12 digits in quotes; correct it",
    ),
    "account without quotes": (
        aws(account=111122223333),
        "aws.account: got 111122223333; allowed text (put it in quotes if it looks like a number); "
        "change it",
    ),
    "tag of AWS' own": (
        aws(tags={"aws:owner": "me"}),
        "aws.tags.aws:owner: got 'aws:owner'; allowed tags of your own, not aws:..., at most 128 "
        "characters; rename it",
    ),
    "no network": (
        lambda s: s.pop("network"),
        "network: got nothing; allowed cidr and zones, or existing; add it",
    ),
    "zone of another region": (
        network(zones=["us-east-1a", "us-east-1b", "us-west-2c"]),
        "network.zones[2]: got 'us-west-2c'; allowed zones of us-east-1, which aws.region names, "
        "such as us-east-1a; correct one of them",
    ),
    "zone twice": (
        network(zones=["us-east-1a", "us-east-1b", "us-east-1b"]),
        "network.zones[2]: got 'us-east-1b'; allowed each zone once; remove it",
    ),
    "one zone": (
        lambda s: (network(zones=["us-east-1a"])(s), pool(2, zone="us-east-1a")(s)),
        "network.zones: got 1 zone; allowed 2 to 6, for the control plane of EKS is in two; add a "
        "zone of the region",
    ),
    "zones as text": (
        network(zones="us-east-1a"),
        "network.zones: got 'us-east-1a'; allowed a list; change it",
    ),
    "public addresses": (
        network(cidr="52.0.0.0/16"),
        "network.cidr: got 52.0.0.0/16, which is public; allowed a part of 10.0.0.0/8, "
        "172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10; take one that no network you connect to has",
    ),
    "too few addresses": (
        network(cidr="10.20.0.0/24"),
        "network.cidr: got 10.20.0.0/24, a /24; allowed /16 to /19; take a larger block",
    ),
    "too many addresses": (
        network(cidr="10.0.0.0/8"),
        "network.cidr: got 10.0.0.0/8, a /8; allowed /16 to /19; take a smaller block",
    ),
    "addresses of Kubernetes Services": (
        network(cidr="172.20.0.0/16"),
        "network.cidr: got 172.20.0.0/16, which overlaps 172.20.0.0/16; allowed any block but "
        "172.20.0.0/16, which Kubernetes Services have; take one from 10.0.0.0/8",
    ),
    "no addresses": (
        network(cidr="10.20.0.0"),
        "network.cidr: got 10.20.0.0/32, a /32; allowed /16 to /19; take a larger block",
    ),
    "fewer addresses than nodes": (
        network(cidr="10.20.0.0/19"),
        "network.cidr: got 10.20.0.0/19, whose subnet in us-east-1a has addresses for 45 nodes; "
        "allowed one with room for 54, the maxima of its pools together; take a larger block, or "
        "lower max of ondemand, spot",
    ),
    "addresses with host bits": (
        network(cidr="10.20.3.0/16"),
        "network.cidr: got '10.20.3.0/16'; allowed a CIDR block such as 10.0.0.0/16; correct it",
    ),
    "IPv6 addresses": (
        network(cidr="fd00::/16"),
        "network.cidr: got 'fd00::/16'; allowed an IPv4 block such as 10.20.0.0/16; take one from "
        "10.0.0.0/8",
    ),
    "misspelt key of the network": (
        lambda s: s["network"].update(zons=s["network"].pop("zones")),
        "network.zons: got an unknown key; allowed cidr, flowLogDays, nat, zones; did you mean "
        "zones?",
    ),
    "NAT of another kind": (
        network(nat="per-zones"),
        "network.nat: got 'per-zones'; allowed 'single' or 'per-zone'; did you mean per-zone?",
    ),
    "network that is made and brought": (
        network(existing=VPC),
        "network.cidr: got an unknown key; allowed existing; remove it\n"
        "network.zones: got an unknown key; allowed existing; remove it",
    ),
    "brought network with the addresses of Services": (
        brought(cidr="172.16.0.0/12"),
        "network.existing.cidr: got 172.16.0.0/12, which overlaps 172.20.0.0/16; allowed any block "
        "but 172.20.0.0/16, which Kubernetes Services have; take one from 10.0.0.0/8",
    ),
    "malformed VPC": (
        brought(vpcId="my-vpc"),
        "network.existing.vpcId: got 'my-vpc'; allowed an id such as vpc-0a1b2c3d; correct it",
    ),
    "malformed subnet": (
        brought(privateSubnets=VPC["privateSubnets"] | {"us-east-1b": "subnet-b"}),  # type: ignore[operator]
        "network.existing.privateSubnets.us-east-1b: got 'subnet-b'; allowed an id such as "
        "subnet-0a1b2c3d; correct it",
    ),
    "one subnet for two zones": (
        brought(privateSubnets=dict.fromkeys(("us-east-1a", "us-east-1b"), "subnet-0a1b2c3d")),
        "network.existing.privateSubnets.us-east-1b: got subnet-0a1b2c3d, which us-east-1a has, "
        "too; allowed a subnet of its own for each zone; name a subnet of that zone",
    ),
    "brought zone of another region": (
        brought(privateSubnets=VPC["privateSubnets"] | {"eu-west-1a": "subnet-2a1b2c3d"}),  # type: ignore[operator]
        "network.existing.privateSubnets.eu-west-1a: got 'eu-west-1a'; allowed zones of us-east-1, "
        "which aws.region names, such as us-east-1a; correct one of them",
    ),
    "pool outside the network": (
        pool(2, zone="us-east-1c"),
        "nodePools[2].zone: got 'us-east-1c'; allowed us-east-1a, us-east-1b; choose a zone of the "
        "network, or add it there",
    ),
    "pool across zones": (
        pool(0, zone=["us-east-1a", "us-east-1b"]),
        "nodePools[0].zone: got a list of 2; allowed text (put it in quotes if it looks like a "
        "number); change it",
    ),
    "EFA away from its file system": (
        pool(0, zone="us-east-1b"),
        "nodePools[0].zone: got 'us-east-1b'; allowed us-east-1a, the zone of storage.fsx, for a "
        "pool of network efa; put both in one zone: EFA does not leave it, and reads between zones "
        "are slow and cost money",
    ),
    "EFA in two zones": (
        lambda s: (
            storage(fsx=None, efs={})(s),
            pool(1, network="efa", zone="us-east-1b")(s),
        ),
        "nodePools[1].zone: got 'us-east-1b'; allowed us-east-1a, the zone of nodePools[0], for a "
        "pool of network efa; put both in one zone: EFA does not leave it, and reads between zones "
        "are slow and cost money",
    ),
}

POOLS: dict[str, tuple[Edit, str]] = {
    "simulated nodes on AWS": (
        pool(2, nodes="kwok"),
        "nodePools[2].nodes: got 'kwok'; allowed managed or karpenter where cluster.provider is "
        "eks; choose one of them",
    ),
    "nodes that nobody makes": (
        lambda s: s["nodePools"][0].pop("nodes"),
        "nodePools[0].nodes: got 'existing'; allowed managed or karpenter where cluster.provider "
        "is eks; choose one of them",
    ),
    "EFA on a type without it": (
        pool(1, network="efa", instanceTypes=["g6.xlarge"]),
        "nodePools[1].instanceTypes[0]: got 'g6.xlarge', which has no EFA; allowed instance types "
        "with EFA in a pool of network efa; choose another type, or set network: tcp",
    ),
    "placement group without EFA": (
        pool(1, placementGroup=True),
        "nodePools[1].placementGroup: got true in a pool of network tcp; allowed it with network: "
        "efa, for it costs capacity and only EFA gains; remove it, or set network: efa",
    ),
    "capacity block on spot": (
        lambda s: (
            pool(0, capacity="spot", reservation=BLOCK)(s),
            s["teams"][0].update(tier="research"),
        ),
        "nodePools[0].reservation: got a capacity-block in a spot pool; allowed reservations in "
        "on-demand pools; set capacity: on-demand, or remove it",
    ),
    "reservation of several types": (
        pool(0, instanceTypes=["p4d.24xlarge", "p5.48xlarge"], reservation=BLOCK),
        "nodePools[0].instanceTypes: got 2 types with a reservation; allowed the one type that was "
        "reserved; remove the others",
    ),
    "malformed reservation": (
        pool(0, reservation=BLOCK | {"id": "cr-123"}),
        "nodePools[0].reservation.id: got 'cr-123'; allowed cr- and 17 hexadecimal digits; copy it "
        "from EC2's console",
    ),
    "reservation of another kind": (
        pool(0, reservation=BLOCK | {"kind": "odcr"}),
        "nodePools[0].reservation.kind: got 'odcr'; allowed 'capacity-block' or "
        "'on-demand-capacity-reservation'; choose one of them",
    ),
    "two architectures": (
        pool(1, instanceTypes=["p4d.24xlarge", "p6e-gb200.36xlarge"]),
        "nodePools[1].instanceTypes: got types of amd64 and arm64; allowed types of one "
        "architecture, for a run has one image; make two pools of them",
    ),
    "update speed of a Karpenter pool": (
        pool(1, maxUnavailable=2),
        "nodePools[1].maxUnavailable: got an option of a pool whose nodes are karpenter; allowed "
        "it where nodes are managed; remove it, or change nodes",
    ),
    "minimum of a Karpenter pool": (
        pool(1, min=1),
        "nodePools[1].min: got 1; allowed 0 where nodes are karpenter, which come when pods wait "
        "for them; set it to 0, or set nodes: managed",
    ),
    "root volume too small for an image": (
        pool(0, rootGiB=20),
        "nodePools[0].rootGiB: got 20; allowed at least 50; change it",
    ),
    "managed pool that nobody enlarges": (
        pool(0, min=2),
        "nodePools[0].min: got 2 with max 4 and autoscaler: karpenter; allowed max in a managed "
        "pool that nothing adds nodes to, for queues count on them; set autoscaler: "
        "cluster-autoscaler, nodes: karpenter, or min to max",
    ),
    "Karpenter's pool without Karpenter": (
        lambda s: s.update(autoscaler="none"),
        "nodePools[1].nodes: got 'karpenter' with autoscaler: none; allowed karpenter with "
        "autoscaler: karpenter; set autoscaler: karpenter, or nodes: managed",
    ),
    "Karpenter without a pool": (
        pool(1, nodes="managed", min=50),
        "autoscaler: got 'karpenter' without a pool for it; allowed it with a pool whose nodes are "
        "karpenter; set nodes: karpenter on a pool, or autoscaler: none",
    ),
    "Cluster Autoscaler without a pool": (
        lambda s: (
            s.update(autoscaler="cluster-autoscaler", nodePools=[s["nodePools"][1]]),
            s["teams"][0].update(tier="research", guaranteed={}),
            s["nodePools"][0].update(nodes="karpenter"),
        ),
        "autoscaler: got 'cluster-autoscaler' without a pool for it; allowed it with a pool whose "
        "nodes are managed; set nodes: managed on a pool, or autoscaler: none\n"
        "nodePools[0].nodes: got 'karpenter' with autoscaler: cluster-autoscaler; allowed "
        "karpenter with autoscaler: karpenter; set autoscaler: karpenter, or nodes: managed",
    ),
    "misspelt autoscaler": (
        lambda s: (s.update(autoscaler="karpentr"), pool(1, nodes="managed", min=50)(s)),
        "autoscaler: got 'karpentr'; allowed 'karpenter', 'cluster-autoscaler' or 'none'; did you "
        "mean karpenter?",
    ),
    "production on spot alone": (
        lambda s: s["teams"][0].update(guaranteed={"spot": 4}),
        "teams[0].guaranteed: got spot pools only; allowed nodes of an on-demand pool for a team "
        "of tier production; guarantee it on-demand nodes, too, or set tier: research",
    ),
}

STORAGE: dict[str, tuple[Edit, str]] = {
    "no storage": (
        lambda s: s["storage"].pop("fsx"),
        "storage: got nothing that keeps volumes; allowed fsx, efs or storageClass; add fsx: "
        "{zone: ...} for training, or efs: {}",
    ),
    "two storages": (
        storage(efs={}),
        "storage: got fsx and efs; allowed at most one of storageClass, fsx, efs; remove the "
        "others",
    ),
    "file system outside the network": (
        storage(fsx={"zone": "us-east-1c"}),
        "storage.fsx.zone: got 'us-east-1c'; allowed us-east-1a, us-east-1b; choose a zone of the "
        "network, or add it there\n"
        "nodePools[0].zone: got 'us-east-1a'; allowed us-east-1c, the zone of storage.fsx, for a "
        "pool of network efa; put both in one zone: EFA does not leave it, and reads between zones "
        "are slow and cost money",
    ),
    "throughput that FSx does not have": (
        storage(fsx={"zone": "us-east-1a", "throughputPerTiB": 300}),
        "storage.fsx.throughputPerTiB: got 300; allowed 125, 250, 500 or 1000; choose one of them",
    ),
    "no buckets": (
        lambda s: s["storage"].pop("buckets"),
        "storage.buckets: got nothing; allowed the buckets' prefix; add it",
    ),
    "bucket prefix with capitals": (
        buckets(prefix="Acme_Training"),
        "storage.buckets.prefix: got 'Acme_Training'; allowed lower-case letters, digits and "
        "hyphens, starting and ending with a letter or digit, 2 to 51 of them; rename it",
    ),
    "bucket prefix too long for its suffix": (
        buckets(prefix="a" * 52),
        f"storage.buckets.prefix: got '{'a' * 52}'; allowed lower-case letters, digits and "
        "hyphens, starting and ending with a letter or digit, 2 to 51 of them; rename it",
    ),
    "bucket prefix of S3's own": (
        buckets(prefix="xn--acme"),
        "storage.buckets.prefix: got 'xn--acme'; allowed a prefix that S3 does not keep for "
        "itself; rename it",
    ),
    "checkout as an image": (
        lambda s: s.update(images={"trainer": "registry.example.com/trainer@source"}),
        "images.trainer: got 'registry.example.com/trainer@source'; allowed "
        "REPOSITORY@sha256:DIGEST where nodes are real; push the image and pin the digest that "
        "the registry shows",
    ),
}

BAD = CLUSTER | PLACES | POOLS | STORAGE

ONLY_AWS: dict[str, dict[str, Any]] = {
    "aws": {"region": "us-east-1", "account": "111122223333"},
    "network": {"cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
    "interruption": {"imdsSidecar": True},
}


def mistakes(values: dict[str, Any]) -> tuple[str, ...]:
    """The lines that a stack file gets."""
    with pytest.raises(ConfigError) as caught:
        parse(values)
    return caught.value.lines


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_one_exact_line(name: str) -> None:
    edit, expected = BAD[name]
    values = example()
    edit(values)
    assert mistakes(values) == tuple(expected.splitlines())


@pytest.mark.parametrize("section", ONLY_AWS)
def test_a_cluster_that_exists_has_no_section_of_aws(section: str) -> None:
    assert mistakes(existing() | {section: ONLY_AWS[section]}) == (
        f"{section}: got what only a cluster on AWS has; allowed it where cluster.provider is eks; "
        "remove it, or change the provider",
    )


def test_a_cluster_that_exists_has_no_nodes_storage_or_autoscaler_of_aws() -> None:
    values = existing() | {"autoscaler": "karpenter"}
    values["nodePools"][0].update(nodes="managed", rootGiB=100)
    values["nodePools"][1].update(rootGiB=100)
    values["storage"] = {"efs": {}, "buckets": {"prefix": "acme"}} | values["storage"]
    places = [line.partition(": ")[0] for line in mistakes(values)]
    assert places == [
        "storage.buckets",
        "storage.efs",
        "autoscaler",
        "nodePools[0].nodes",
        "nodePools[1].rootGiB",
        "storage",
    ]


def test_all_mistakes_come_at_once() -> None:
    values = example()
    values["cluster"].update(version="1.20", endpoint=["0.0.0.0/0"], admins=["ada"])
    values["aws"].update(region="mars-1", account="1")
    values["network"].update(cidr="10.0.0.0/8", zones=["us-east-1a"], nat="none")
    values["nodePools"][0].update(nodes="kwok", reservation={"kind": "capacity-block", "id": "x"})
    values["storage"]["buckets"].update(prefix="-")
    values["autoscaler"] = "none"
    places = [line.partition(": ")[0] for line in mistakes(values)]
    assert places == [
        "cluster.version",
        "cluster.endpoint[0]",
        "cluster.admins[0]",
        "aws.account",
        "network.nat",
        "nodePools[0].reservation.id",
        "storage.buckets.prefix",
        "aws.region",
        "network.zones",
        "network.cidr",
        "nodePools[0].nodes",
        "nodePools[1].nodes",
        "nodePools[2].zone",
    ]


def test_defaults_are_the_secure_ones() -> None:
    config = parse(example())
    cluster = config.cluster
    assert isinstance(cluster, EksClusterConfig)
    assert cluster.endpoint == ()
    assert cluster.version == "1.35"
    assert cluster.log_retention_days == 90
    assert config.protected
    assert not config.interruption.imds_sidecar
    assert not parse(existing()).protected


def test_a_stack_on_aws_has_all_its_parts() -> None:
    config = parse(example())
    assert config.on_aws and config.on_aws.aws.region == "us-east-1"
    assert config.on_aws.network.zone_names == ("us-east-1a", "us-east-1b")
    assert config.on_aws.buckets.prefix == "acme-training"
    assert config.storage.kind is StorageKind.FSX
    assert [p.name for p in config.pools_of(Nodes.MANAGED)] == ["ondemand", "cpu"]
    assert parse(existing()).on_aws is None


def test_an_endpoint_may_be_open_to_named_networks() -> None:
    values = example()
    values["cluster"]["endpoint"] = ["203.0.113.0/24", "2001:db8::/32"]
    cluster = parse(values).cluster
    assert isinstance(cluster, EksClusterConfig)
    assert cluster.endpoint == ("203.0.113.0/24", "2001:db8::/32")
    values["cluster"]["endpoint"] = "private"
    assert parse(values).on_aws


def test_a_block_that_its_pools_just_fill_is_allowed() -> None:
    values = example()
    network(cidr="10.20.0.0/19")(values)
    pool(1, max=41)(values)
    assert parse(values).on_aws


def test_a_network_may_be_brought() -> None:
    values = example()
    brought()(values)
    config = parse(values)
    assert config.on_aws
    assert config.on_aws.network.zone_names == ("us-east-1a", "us-east-1b")
    assert config.on_aws.network.cidr == "10.9.0.0/16"


def test_a_pool_takes_its_reservation_and_its_regions_prices() -> None:
    values = example()
    values["nodePools"][0].update(reservation=BLOCK, placementGroup=True, maxUnavailable=2)
    [reserved] = [p for p in parse(values).pools if p.name == "ondemand"]
    assert reserved.reservation and reserved.reservation.kind is ReservationKind.CAPACITY_BLOCK
    assert (reserved.placement_group, reserved.max_unavailable) == (True, 2)
    assert reserved.region == "us-east-1"
    assert reserved.usd_per_node_hour == catalog.price("p4d.24xlarge").on_demand_usd_hour


def test_a_capacity_block_begins_without_nodes() -> None:
    values = example()
    values["nodePools"][0].update(min=0, reservation=BLOCK)
    assert parse(values).on_aws


def test_a_spot_pool_of_one_type_is_allowed() -> None:
    values = example()
    values["nodePools"][1]["instanceTypes"] = ["p4d.24xlarge"]
    assert parse(values).on_aws
