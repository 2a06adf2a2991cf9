"""FSx for Lustre: the file systems as AWS has them, and what of them Kubernetes sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulumi
import pytest

from infra.domain.storage import SharedStorage, VolumeSizes
from infra.sites.aws import run_log_access
from infra.sites.aws.lustre import LustreStorage
from infra.sites.aws.lustre_volumes import capacity_gib, volume_name
from infra.tenancy import volumes
from tests.aws.moto_cloud import Cloud, Deployed, deployed_on
from tests.aws.moto_cloud.deploying import Created
from tests.aws.storage_site import (
    SIZES,
    TEAMS,
    VOLUME,
    lustre_arguments,
    permissions,
    plain,
    site,
)

FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOGS = "/aws/fsx/training"
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> dict[str, Any]:
    """Storage that is kept, and a trial's that is not."""
    found = site(cloud)
    args = lustre_arguments(found)
    storage: SharedStorage = LustreStorage("storage", args, opts)
    LustreStorage("trial", replace(args, cluster="trial", teams=("trial",), protect=False), opts)
    team = storage.volumes("a")
    claim = volumes.claim("a", "datasets", team.datasets)
    return {
        "site": found,
        "volumes": {team: plain(storage.volumes(team)) for team in TEAMS},
        "claim": claim,
        "needs": [one.pulumi_resource_name for one in team.datasets.needs],
    }


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_on(program)


def made(deployed: Deployed, type_: str, storage: str = "storage") -> list[Created]:
    return [one for one in deployed.all(type_) if one.name.startswith(f"{storage}-")]


@pytest.mark.parametrize(
    ("checkpoints", "datasets", "sold"),
    [
        ("1Gi", "1Gi", 1200),
        ("1000Gi", "200Gi", 1200),
        ("1000Gi", "201Gi", 2400),
        ("1Ti", "1Ti", 2400),
        ("2399Gi", "1Gi", 2400),
        ("2400Gi", "1Mi", 4800),
        ("5Ti", "2Ti", 7200),
        ("100Ti", "20Ti", 124800),
    ],
)
def test_file_system_has_the_smallest_sufficient_capacity(
    checkpoints: str, datasets: str, sold: int
) -> None:
    assert capacity_gib(VolumeSizes(checkpoints=checkpoints, datasets=datasets)) == sold


def test_each_team_has_a_file_system_in_the_zone_of_its_pools(
    deployed: Deployed,
) -> None:
    ids = [one.id for one in made(deployed, FILE_SYSTEM)]
    found = deployed.cloud.client("fsx").describe_file_systems(FileSystemIds=ids)["FileSystems"]
    assert len(found) == len(TEAMS)
    for one in found:
        assert one["SubnetIds"] == [deployed.result["site"]["subnets"]["us-east-1b"]]
        assert one["StorageCapacity"] == 7200
        assert one["KmsKeyId"] == deployed.result["site"]["key"]
        assert one["LustreConfiguration"]["DeploymentType"] == "PERSISTENT_2"
        assert one["LustreConfiguration"]["PerUnitStorageThroughput"] == 250
        assert one["LustreConfiguration"]["DataCompressionType"] == "LZ4"
        assert one["LustreConfiguration"]["MetadataConfiguration"] == {"Mode": "AUTOMATIC"}
        tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        assert tags["Name"] == f"training-team-{tags['trainyard.dev/team']}"
    teams = {tag["Value"] for one in found for tag in one["Tags"] if tag["Key"].endswith("/team")}
    assert teams == set(TEAMS)


def test_failed_exports_are_logged_in_an_encrypted_group_for_a_while(deployed: Deployed) -> None:
    logs = deployed.cloud.client("logs")
    [found] = logs.describe_log_groups(logGroupNamePrefix=LOGS)["logGroups"]
    assert found["kmsKeyId"] == deployed.result["site"]["key"]
    assert found["retentionInDays"] == 90
    for one in made(deployed, FILE_SYSTEM):
        where = one.inputs["logConfiguration"]
        assert where == {"level": "WARN_ERROR", "destination": found["arn"].removesuffix(":*")}
    [may] = run_log_access.key_statement("1", "r", "training")["Condition"].values()
    assert any(arn.endswith(f":{LOGS}") for arn in may["kms:EncryptionContext:aws:logs:arn"])


def test_only_cluster_nodes_reach_the_servers_on_lustre_ports(
    deployed: Deployed,
) -> None:
    servers = deployed.one("aws:ec2/securityGroup:SecurityGroup", "storage-servers").id
    nodes = deployed.result["site"]["nodes"]
    ports = ((988, 988), (1018, 1023))
    both = {(*pair, peer) for pair in ports for peer in (servers, nodes)}
    assert permissions(deployed.cloud, servers, "IpPermissions") == both
    assert permissions(deployed.cloud, servers, "IpPermissionsEgress") == both
    from_servers = {(*pair, servers) for pair in ports}
    assert from_servers <= permissions(deployed.cloud, nodes, "IpPermissions")


def links(deployed: Deployed) -> dict[tuple[str, str], Created]:
    """By team and path."""
    team_of = {
        one.id: one.inputs["tags"]["trainyard.dev/team"] for one in made(deployed, FILE_SYSTEM)
    }
    return {
        (team_of[one.inputs["fileSystemId"]], one.inputs["fileSystemPath"]): one
        for one in made(deployed, LINK)
    }


@pytest.mark.parametrize("team", TEAMS)
def test_datasets_are_synchronized_with_the_team_prefix(deployed: Deployed, team: str) -> None:
    link = links(deployed)[team, "/datasets"].inputs
    assert link["dataRepositoryPath"] == f"s3://acme-datasets/{team}/"
    everything = {"events": ["NEW", "CHANGED", "DELETED"]}
    assert link["s3"] == {"autoImportPolicy": everything, "autoExportPolicy": everything}


@pytest.mark.parametrize("team", TEAMS)
def test_checkpoints_are_exported_to_the_team_prefix_and_never_imported(
    deployed: Deployed, team: str
) -> None:
    link = links(deployed)[team, "/checkpoints"].inputs
    assert link["dataRepositoryPath"] == f"s3://acme-checkpoints/{team}/"
    assert link["s3"] == {"autoExportPolicy": {"events": ["NEW", "CHANGED", "DELETED"]}}


def test_recreated_file_system_imports_the_bucket_metadata(
    deployed: Deployed,
) -> None:
    for link in made(deployed, LINK):
        assert link.inputs["batchImportMetaDataOnCreate"] is True
        assert link.inputs["deleteDataInFilesystem"] is False


def test_linked_file_system_has_no_backups(deployed: Deployed) -> None:
    for one in made(deployed, FILE_SYSTEM):
        assert one.inputs["automaticBackupRetentionDays"] == 0


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("claim", ["checkpoints", "datasets"])
def test_claim_is_bound_to_the_team_directory_only(
    deployed: Deployed, team: str, claim: str
) -> None:
    [files] = [
        one
        for one in made(deployed, FILE_SYSTEM)
        if one.inputs["tags"]["Name"].endswith(f"-{team}")
    ]
    volume = deployed.result["volumes"][team][claim]
    [manifest] = [
        one.inputs
        for one in made(deployed, VOLUME)
        if one.inputs["metadata"]["name"] == volume["name"]
    ]
    spec = manifest["spec"]
    assert (spec["claimRef"]["namespace"], spec["claimRef"]["name"]) == (f"team-{team}", claim)
    assert spec["csi"]["driver"] == "fsx.csi.aws.com"
    assert spec["csi"]["volumeAttributes"] == {
        "dnsname": files.outputs["dnsName"],
        "mountname": f"{files.outputs['mountName']}/{claim}",
    }
    assert spec["storageClassName"] == volume["storage_class"] == ""
    assert spec["capacity"]["storage"] == volume["size"] == getattr(SIZES, claim)
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"


def test_no_two_volumes_have_the_same_name_or_handle(deployed: Deployed) -> None:
    manifests = [one.inputs for one in made(deployed, VOLUME)]
    assert len({one["metadata"]["name"] for one in manifests}) == len(manifests) == 4
    assert len({one["spec"]["csi"]["volumeHandle"] for one in manifests}) == 4
    assert volume_name("a", "datasets") != volume_name("a2", "datasets")


def test_kubelet_sets_directory_ownership_for_training_pods(deployed: Deployed) -> None:
    for one in made(deployed, VOLUME):
        spec = one.inputs["spec"]
        # The driver takes the first mode; the kubelet looks for ReadWriteOnce among them all.
        assert spec["accessModes"] == ["ReadWriteMany", "ReadWriteOnce"]
        assert spec["csi"]["fsType"] == "lustre"


def test_volumes_wait_for_links_and_nodes_and_file_systems_for_their_servers_only(
    deployed: Deployed,
) -> None:
    rules = {one.name for one in made(deployed, INGRESS)}
    of_nodes = {name for name in rules if "nodes" in name}
    assert of_nodes and rules - of_nodes
    for volume in made(deployed, VOLUME):
        assert {volume.name.replace("-volume", "-link"), *of_nodes} <= volume.depends_on
    for files in made(deployed, FILE_SYSTEM):
        assert rules - of_nodes <= files.depends_on
        assert not of_nodes & files.depends_on, "waits for the control plane"


def test_claim_refers_to_its_volume_and_depends_on_it(deployed: Deployed) -> None:
    spec = deployed.result["claim"]["spec"]
    assert spec["volumeName"] == volume_name("a", "datasets")
    assert spec["storageClassName"] == ""
    assert deployed.result["needs"] == ["storage-a-datasets-volume"]


@pytest.mark.parametrize(("storage", "kept"), [("storage", True), ("trial", False)])
def test_stateful_resources_are_protected_and_retained(
    deployed: Deployed, storage: str, kept: bool
) -> None:
    holding = [*made(deployed, FILE_SYSTEM, storage), *made(deployed, VOLUME, storage)]
    assert holding
    for one in holding:
        assert (one.protect, one.retain_on_delete) == (kept, kept)
