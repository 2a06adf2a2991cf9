"""FSx for Lustre: the file systems as AWS has them, and what of them Kubernetes sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pulumi
import pytest

from infra.domain.storage import SharedStorage, VolumeSizes
from infra.sites.aws.lustre import capacity_gib, volume_name
from infra.tenancy import volumes
from tests.aws.moto_cloud import Cloud, Deployed, deployed_on
from tests.aws.moto_cloud.deploying import Created
from tests.aws.storage_site import (
    TEAMS,
    VOLUME,
    lustre,
    plain,
    site,
)

FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> dict[str, Any]:
    """Storage that is kept, and a trial's that is not."""
    found = site(cloud)
    storage: SharedStorage = lustre("storage", found, opts)
    trial = replace(found, cluster=replace(found.cluster, name="trial"))
    lustre("trial", trial, opts, teams=("trial",), protect=False)
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


def test_no_two_volumes_have_the_same_name_or_handle(deployed: Deployed) -> None:
    manifests = [one.inputs for one in made(deployed, VOLUME)]
    assert len({one["metadata"]["name"] for one in manifests}) == len(manifests) == 4
    assert len({one["spec"]["csi"]["volumeHandle"] for one in manifests}) == 4
    assert volume_name("a", "datasets") != volume_name("a2", "datasets")


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
