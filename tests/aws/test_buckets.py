"""The buckets as S3 has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from infra.sections.storage import BucketsConfig
from infra.sites.aws.buckets import Buckets, BucketsArgs
from tests.aws.moto_cloud import ACCOUNT, Cloud, Deployed, deployed_on

ROLES = ("datasets", "checkpoints", "artifacts", "logs")
SHARED = ("datasets", "checkpoints", "artifacts")


def bucket(role: str) -> str:
    return f"acme-training-{role}"


def buckets(prefix: str, key: str, opts: pulumi.ResourceOptions, *, protect: bool) -> Buckets:
    args = BucketsArgs(
        settings=BucketsConfig(prefix=prefix), account=ACCOUNT, key_arn=key, protect=protect
    )
    return Buckets(prefix, args, opts)


def program(cloud: Cloud, opts: pulumi.ResourceOptions) -> dict[str, Any]:
    key = cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
    buckets("acme-trial", key, opts, protect=False)
    return {"key": key, "buckets": buckets("acme-training", key, opts, protect=True)}


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    """One stack that protects its buckets, and one that does not; the tests only look at them."""
    yield from deployed_on(program)


def test_four_buckets_are_created_and_exported_by_name_and_arn(deployed: Deployed) -> None:
    found = {one["Name"] for one in deployed.cloud.client("s3").list_buckets()["Buckets"]}
    assert {name for name in found if "trial" not in name} == {bucket(role) for role in ROLES}
    for role in ROLES:
        record = deployed.result["buckets"][role]
        assert record == {"name": bucket(role), "arn": f"arn:aws:s3:::{bucket(role)}"}


@pytest.mark.parametrize("role", ROLES)
def test_every_bucket_is_private_versioned_and_without_acls(deployed: Deployed, role: str) -> None:
    s3 = deployed.cloud.client("s3")
    name = bucket(role)
    blocked = s3.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    assert len(blocked) == 4
    assert s3.get_bucket_versioning(Bucket=name)["Status"] == "Enabled"
    [rule] = s3.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]["Rules"]
    assert rule["ObjectOwnership"] == "BucketOwnerEnforced"


def encryption(deployed: Deployed, role: str) -> dict[str, Any]:
    s3 = deployed.cloud.client("s3")
    found = s3.get_bucket_encryption(Bucket=bucket(role))
    [rule] = found["ServerSideEncryptionConfiguration"]["Rules"]
    return dict(rule)


@pytest.mark.parametrize("role", SHARED)
def test_objects_are_encrypted_with_the_stack_key_and_bucket_keys(
    deployed: Deployed, role: str
) -> None:
    assert encryption(deployed, role) == {
        "ApplyServerSideEncryptionByDefault": {
            "SSEAlgorithm": "aws:kms",
            "KMSMasterKeyID": deployed.result["key"],
        },
        "BucketKeyEnabled": True,
    }


def test_access_log_bucket_uses_sse_s3(
    deployed: Deployed,
) -> None:
    default = encryption(deployed, "logs")["ApplyServerSideEncryptionByDefault"]
    assert default == {"SSEAlgorithm": "AES256"}


@pytest.mark.parametrize("role", SHARED)
def test_access_to_every_shared_bucket_is_logged_under_its_name(
    deployed: Deployed, role: str
) -> None:
    found = deployed.cloud.client("s3").get_bucket_logging(Bucket=bucket(role))["LoggingEnabled"]
    assert found["TargetBucket"] == bucket("logs")
    assert found["TargetPrefix"] == f"s3/{bucket(role)}/"


def rules(deployed: Deployed, role: str) -> dict[str, dict[str, Any]]:
    found = deployed.cloud.client("s3").get_bucket_lifecycle_configuration(Bucket=bucket(role))
    return {rule["ID"]: rule for rule in found["Rules"]}


@pytest.mark.parametrize("role", ROLES)
def test_incomplete_uploads_expire_after_a_week_and_old_versions_after_a_month(
    deployed: Deployed, role: str
) -> None:
    rule = rules(deployed, role)["housekeeping"]
    assert rule["Status"] == "Enabled"
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert rule["Expiration"] == {"ExpiredObjectDeleteMarker": True}


def test_old_checkpoints_move_to_a_cheaper_class_with_immediate_access(deployed: Deployed) -> None:
    rule = rules(deployed, "checkpoints")["old-checkpoints"]
    assert rule["Status"] == "Enabled"
    assert rule["Transitions"] == [{"Days": 90, "StorageClass": "GLACIER_IR"}]


@pytest.mark.parametrize("role", SHARED)
def test_no_current_object_of_a_team_is_ever_deleted_by_age(deployed: Deployed, role: str) -> None:
    for rule in rules(deployed, role).values():
        assert "Days" not in rule.get("Expiration", {})


def test_access_logs_expire_after_a_year(deployed: Deployed) -> None:
    assert rules(deployed, "logs")["old-logs"]["Expiration"] == {"Days": 365}


@pytest.mark.parametrize(("prefix", "kept"), [("acme-training", True), ("acme-trial", False)])
def test_bucket_and_its_settings_are_protected_and_retained_together(
    deployed: Deployed, prefix: str, kept: bool
) -> None:
    made = [
        one
        for one in deployed.created
        if one.type.startswith("aws:s3/") and one.inputs["bucket"].startswith(prefix)
    ]
    assert len({one.type for one in made}) == 8
    for one in made:
        assert (one.protect, one.retain_on_delete) == (kept, kept), one.name


def test_force_destroy_is_off_for_every_bucket(deployed: Deployed) -> None:
    for one in deployed.all("aws:s3/bucket:Bucket"):
        assert one.inputs["forceDestroy"] is False


def test_every_resource_has_the_stack_tags(deployed: Deployed) -> None:
    for role in ROLES:
        tags = deployed.cloud.client("s3").get_bucket_tagging(Bucket=bucket(role))["TagSet"]
        assert {"Key": "trainyard.dev/stack", "Value": "test"} in tags
