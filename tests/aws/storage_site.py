"""Prerequisites of storage: a network, a cluster's security group, a key, two buckets."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pulumi

from infra.domain.storage import TeamVolumes, VolumeSizes
from infra.sections.storage import FsxConfig, StorageConfig
from infra.sites.aws import bucket_access, policy_documents
from infra.sites.aws.lustre import LustreStorage
from infra.sites.aws.outputs import BucketRecord, NetworkRecord, Place
from tests.aws.clusters import bare_cluster
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud

SIZES = VolumeSizes(checkpoints="5Ti", datasets="2Ti")
TEAMS = ("a", "a2")

VOLUME = "kubernetes:core/v1:PersistentVolume"


def site(cloud: Cloud) -> Place:
    """Makes network, group and key, and buckets acme-datasets and acme-checkpoints."""
    vpc = cloud.ec2.create_vpc(CidrBlock="10.20.0.0/16")["Vpc"]["VpcId"]
    subnets = {}
    for zone, cidr in (("us-east-1a", "10.20.0.0/20"), ("us-east-1b", "10.20.16.0/20")):
        made = cloud.ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)
        subnets[zone] = made["Subnet"]["SubnetId"]
    group = cloud.ec2.create_security_group(GroupName="eks", Description="eks", VpcId=vpc)
    buckets = ("acme-datasets", "acme-checkpoints")
    key = cloud.client("kms").create_key(Policy=key_policy(*buckets))["KeyMetadata"]["Arn"]
    for bucket in buckets:
        encrypted_bucket(bucket, key, cloud)
    network = NetworkRecord(
        vpc_id=vpc,
        cidrs=("10.20.0.0/16",),
        private_subnets=subnets,
        public_subnets={},
        efa_security_group="",
    )
    cluster = replace(bare_cluster(cloud), security_group=group["GroupId"])
    return Place(network=network, cluster=cluster, data_key_arn=key)


def key_policy(*buckets: str) -> str:
    """Of a key that FSx may use for these buckets."""
    linked = bucket_access.lustre_key_statement(ACCOUNT, REGION, buckets)
    return json.dumps(policy_documents.document(linked))


def encrypted_bucket(bucket: str, key: str, cloud: Cloud) -> None:
    """Makes a bucket whose objects the key encrypts."""
    cloud.client("s3").create_bucket(Bucket=bucket)
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    cloud.client("s3").put_bucket_encryption(
        Bucket=bucket,
        ServerSideEncryptionConfiguration={
            "Rules": [{"ApplyServerSideEncryptionByDefault": default}]
        },
    )


def plain(team: TeamVolumes) -> dict[str, Any]:
    """A team's volumes without the resources that they need."""
    return {
        "checkpoints": replace(team.checkpoints, needs=()),
        "datasets": replace(team.datasets, needs=()),
    }


def permissions(cloud: Cloud, group: str, direction: str) -> set[tuple[int, int, str]]:
    """First port, last port and peer of every rule; fails if a rule is not TCP between groups."""
    [found] = cloud.security_groups([group])
    assert all(rule["IpProtocol"] == "tcp" for rule in found[direction])
    assert not any(rule["IpRanges"] or rule["Ipv6Ranges"] for rule in found[direction])
    return {
        (rule["FromPort"], rule["ToPort"], pair["GroupId"])
        for rule in found[direction]
        for pair in rule["UserIdGroupPairs"]
    }


def lustre(
    name: str,
    place: Place,
    opts: pulumi.ResourceOptions,
    datasets: str = "acme-datasets",
    **more: Any,
) -> LustreStorage:
    """Storage for both teams, in the second zone."""
    storage = StorageConfig(
        fsx=FsxConfig(zone="us-east-1b", throughputPerTiB=250),
        checkpoints=SIZES.checkpoints,
        datasets=SIZES.datasets,
    )
    linked: Any = SimpleNamespace(
        datasets=BucketRecord(name=datasets, arn=f"arn:aws:s3:::{datasets}"),
        checkpoints=BucketRecord(name="acme-checkpoints", arn="arn:aws:s3:::acme-checkpoints"),
    )
    teams = more.pop("teams", TEAMS)
    return LustreStorage(name, place, storage, teams, linked, opts, **more)
