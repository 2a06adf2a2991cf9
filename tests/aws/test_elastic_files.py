"""EFS: the file system as AWS has it, and the class that claims use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from infra.domain.storage import SharedStorage
from infra.sites.aws.elastic_files import EfsStorage, file_system_policy
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deployed_on
from tests.aws.storage_site import SIZES, TEAMS, plain, site

FILE_SYSTEM = "aws:efs/fileSystem:FileSystem"
CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> dict[str, Any]:
    """Storage that is kept, and a trial's that is not."""
    found = site(cloud)
    storage: SharedStorage = EfsStorage("storage", found, SIZES, opts)
    EfsStorage("trial", found, SIZES, opts, protect=False)
    return {
        "site": found,
        "plain text": isinstance(storage.volumes("a").datasets.storage_class, str),
        "volumes": {team: plain(storage.volumes(team)) for team in TEAMS},
        "needs": [one.pulumi_resource_name for one in storage.volumes("a").datasets.needs],
    }


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_on(program)


def files(deployed: Deployed) -> dict[str, Any]:
    """The file system that is kept, as EFS describes it."""
    id_ = deployed.one(FILE_SYSTEM, "storage-files").id
    [found] = deployed.cloud.client("efs").describe_file_systems(FileSystemId=id_)["FileSystems"]
    return dict(found)


@pytest.mark.parametrize(
    ("changed", "mounts"),
    [
        ({}, True),
        ({"aws:SecureTransport": "false"}, False),
        ({"elasticfilesystem:AccessedViaMountTarget": "false"}, False),
        ({"elasticfilesystem:AccessPointArn": None}, False),
    ],
)
@pytest.mark.parametrize("action", ["ClientMount", "ClientWrite"])
def test_mount_requires_tls_a_mount_target_and_an_access_point(
    deployed: Deployed, action: str, changed: dict[str, str | None], mounts: bool
) -> None:
    made = files(deployed)
    client = deployed.cloud.client("efs")
    policy = client.describe_file_system_policy(FileSystemId=made["FileSystemId"])["Policy"]
    context = {
        "aws:SecureTransport": "true",
        "elasticfilesystem:AccessedViaMountTarget": "true",
        "elasticfilesystem:AccessPointArn": "arn:aws:elasticfilesystem:::access-point/fsap-1",
    } | changed
    asked = Request(
        action=f"elasticfilesystem:{action}",
        resource=made["FileSystemArn"],
        account=None,
        context={key: value for key, value in context.items() if value is not None},
    )
    assert allowed(asked, resource=json.loads(policy), owner=ACCOUNT) is mounts


def test_no_client_is_root_on_efs() -> None:
    arn = f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:file-system/fs-1"
    asked = Request(
        action="elasticfilesystem:ClientRootAccess",
        resource=arn,
        account=None,
        context={
            "aws:SecureTransport": "true",
            "elasticfilesystem:AccessedViaMountTarget": "true",
            "elasticfilesystem:AccessPointArn": "arn:aws:elasticfilesystem:::access-point/fsap-1",
        },
    )
    assert not allowed(asked, resource=file_system_policy(arn), owner=ACCOUNT)


@pytest.mark.parametrize(
    ("storage", "kept", "policy"), [("storage", True, "Retain"), ("trial", False, "Delete")]
)
def test_efs_and_its_claims_are_retained_together(
    deployed: Deployed, storage: str, kept: bool, policy: str
) -> None:
    made = deployed.one(FILE_SYSTEM, f"{storage}-files")
    assert (made.protect, made.retain_on_delete) == (kept, kept)
    assert deployed.one(CLASS, f"{storage}-class").inputs["reclaimPolicy"] == policy


def test_a_change_of_protection_replaces_the_class_and_no_claim(deployed: Deployed) -> None:
    made = deployed.one(CLASS, "storage-class")
    assert made.replace_on_changes == {"reclaimPolicy"} and made.delete_before_replace
    # The engine also replaces what has an output of the class among its inputs: claims have a plain text.
    assert deployed.result["plain text"]


def test_claim_depends_on_the_class_and_the_class_on_mount_resources(
    deployed: Deployed,
) -> None:
    assert deployed.result["needs"] == ["storage-class"]
    targets = {"storage-us-east-1a", "storage-us-east-1b"}
    assert (
        targets | {"storage-policy", "storage-from-nodes"}
        <= deployed.one(CLASS, "storage-class").depends_on
    )
