"""The rules that what keeps bytes is encrypted, and buckets closed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.rules.encryption import ENCRYPTION_AT_REST
from policies.rules.model import UNKNOWN, Resource
from policies.rules.storage import BUCKET_SETTINGS
from tests.policy.policy_examples import paths, stack_violations, violations
from tests.unit.snapshots import Text

DISK = {"encrypted": True, "volumeType": "gp3", "kmsKeyId": UNKNOWN}
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
CLUSTER = "aws:eks/cluster:Cluster"
COMPONENT = "eks:index:Cluster"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
EFS = "aws:efs/fileSystem:FileSystem"
KEY = "aws:kms/key:Key"
QUEUE = "aws:sqs/queue:Queue"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
VOLUME = "aws:ebs/volume:Volume"
CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
DATABASE = "aws:rds/instance:Instance"
LOGGED = {"level": "WARN_ERROR"}
EBS = "ebs.csi.aws.com"


def storage_class(driver: str, parameters: Any = None) -> dict[str, Any]:
    return {"provisioner": driver, "parameters": parameters}


def disks(**changes: Any) -> list[dict[str, Any]]:
    return [{"deviceName": "/dev/xvda", "ebs": DISK | changes}]


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        (TEMPLATE, {"blockDeviceMappings": disks()}),
        (TEMPLATE, {"blockDeviceMappings": disks(encrypted="true")}),
        (TEMPLATE, {"blockDeviceMappings": [*disks(), {"virtualName": "ephemeral0"}]}),
        (TEMPLATE, {"blockDeviceMappings": UNKNOWN}),
        (NODE_CLASS, {"spec": {"blockDeviceMappings": disks()}}),
        (CLUSTER, {"encryptionConfig": {"provider": {"keyArn": UNKNOWN}}}),
        (COMPONENT, {"encryptionConfigKeyArn": UNKNOWN, "version": "1.35"}),
        (COMPONENT, {}),
        (LUSTRE, {"kmsKeyId": UNKNOWN}),
        (LUSTRE, {"kmsKeyId": "arn", "logConfiguration": {"level": "DISABLED"}}),
        (LUSTRE, {"kmsKeyId": "arn", "logConfiguration": LOGGED | {"destination": UNKNOWN}}),
        (EFS, {"encrypted": True, "kmsKeyId": "arn"}),
        (KEY, {"enableKeyRotation": True}),
        (KEY, {"customerMasterKeySpec": "RSA_2048"}),
        (QUEUE, {"sqsManagedSseEnabled": True}),
        (QUEUE, {"kmsMasterKeyId": UNKNOWN}),
        (LOGS, {"kmsKeyId": UNKNOWN, "retentionInDays": 14}),
        (VOLUME, {"encrypted": True}),
        (CLASS, storage_class(EBS, {"encrypted": "true"})),
        (CLASS, storage_class(EBS, UNKNOWN)),
        (CLASS, storage_class("fsx.csi.aws.com", {"kmsKeyId": UNKNOWN})),
        (CLASS, storage_class("efs.csi.aws.com", {"fileSystemId": "fs-1"})),
        (CLASS, storage_class("process.trainyard.dev")),
        (DATABASE, {"storageEncrypted": True}),
    ],
)
def test_encrypted_resources_pass(kind: str, props: dict[str, Any]) -> None:
    assert violations(ENCRYPTION_AT_REST, Resource(type=kind, props=props)) == []


@pytest.mark.parametrize(
    ("kind", "props", "where"),
    [
        (TEMPLATE, {}, ["blockDeviceMappings"]),
        (
            TEMPLATE,
            {"blockDeviceMappings": disks(encrypted="false")},
            ["blockDeviceMappings[0].ebs.encrypted"],
        ),
        (
            TEMPLATE,
            {"blockDeviceMappings": [*disks(), *disks(encrypted=None)]},
            ["blockDeviceMappings[1].ebs.encrypted"],
        ),
        (
            TEMPLATE,
            {"blockDeviceMappings": disks(volumeType="gp2")},
            ["blockDeviceMappings[0].ebs.volumeType"],
        ),
        (
            NODE_CLASS,
            {"spec": {"blockDeviceMappings": disks(encrypted=False)}},
            ["spec.blockDeviceMappings[0].ebs.encrypted"],
        ),
        (NODE_CLASS, {"spec": {}}, ["spec.blockDeviceMappings"]),
        (CLUSTER, {"version": "1.35"}, ["encryptionConfig.provider.keyArn"]),
        (COMPONENT, {"version": "1.35"}, ["encryptionConfigKeyArn"]),
        (LUSTRE, {}, ["kmsKeyId"]),
        (LUSTRE, {"kmsKeyId": "a", "logConfiguration": LOGGED}, ["logConfiguration.destination"]),
        (EFS, {"encrypted": True}, ["kmsKeyId"]),
        (EFS, {"kmsKeyId": "arn"}, ["encrypted"]),
        (KEY, {}, ["enableKeyRotation"]),
        (KEY, {"enableKeyRotation": False}, ["enableKeyRotation"]),
        (QUEUE, {}, ["sqsManagedSseEnabled"]),
        (LOGS, {"retentionInDays": 14}, ["kmsKeyId"]),
        (VOLUME, {}, ["encrypted"]),
        (CLASS, storage_class(EBS), ["parameters.encrypted"]),
        (CLASS, storage_class(EBS, {"encrypted": "false"}), ["parameters.encrypted"]),
        (CLASS, storage_class("kubernetes.io/aws-ebs", {"type": "gp3"}), ["parameters.encrypted"]),
        (CLASS, storage_class("fsx.csi.aws.com", {}), ["parameters.kmsKeyId"]),
        (DATABASE, {}, ["storageEncrypted"]),
        ("aws:rds/cluster:Cluster", {"storageEncrypted": False}, ["storageEncrypted"]),
    ],
)
def test_unencrypted_resources_are_rejected(
    kind: str, props: dict[str, Any], where: list[str]
) -> None:
    assert paths(violations(ENCRYPTION_AT_REST, Resource(type=kind, props=props))) == where


def test_the_message_names_the_disk(text: Text) -> None:
    template = Resource(type=TEMPLATE, props={"blockDeviceMappings": disks(encrypted="false")})
    (found,) = violations(ENCRYPTION_AT_REST, template)
    text(str(found))


BUCKET = Resource(type="aws:s3/bucket:Bucket", props={"bucket": "b"}, urn="urn:b")
FLAGS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


def encryption(algorithm: Any = "aws:kms", references: str = "urn:b") -> Resource:
    rules = [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": algorithm}}]
    return Resource(
        type="aws:s3/bucketServerSideEncryptionConfiguration"
        ":BucketServerSideEncryptionConfiguration",
        props={"bucket": UNKNOWN, "rules": rules},
        urn="urn:encryption",
        references={"bucket": frozenset({references})},
    )


def block(**flags: Any) -> Resource:
    """It names its bucket by name, as one that another stack made is named."""
    return Resource(
        type="aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        props=dict.fromkeys(FLAGS, True) | {"bucket": "b"} | flags,
        urn="urn:block",
    )


@pytest.mark.parametrize("algorithm", ["aws:kms", "aws:kms:dsse", "AES256", UNKNOWN])
def test_an_encrypted_and_closed_bucket_passes(algorithm: Any) -> None:
    assert stack_violations(BUCKET_SETTINGS, [BUCKET, encryption(algorithm), block()]) == []


def test_unknown_encryption_rules_are_checked_on_update() -> None:
    later = replace(encryption(), props={"bucket": UNKNOWN, "rules": UNKNOWN})
    assert stack_violations(BUCKET_SETTINGS, [BUCKET, later, block()]) == []


def test_settings_read_from_aws_are_not_inputs() -> None:
    unknown = replace(BUCKET, props={"bucket": "b", "serverSideEncryptionConfiguration": UNKNOWN})
    assert paths(stack_violations(BUCKET_SETTINGS, [unknown, block()])) == ["bucket"]


def test_unknown_names_do_not_match() -> None:
    unnamed = replace(BUCKET, props={"bucket": UNKNOWN})
    found = stack_violations(BUCKET_SETTINGS, [unnamed, encryption(), block(bucket=UNKNOWN)])
    assert paths(found) == ["bucket"]


@pytest.mark.parametrize(
    ("others", "found"),
    [
        ([block()], [("bucket", "urn:b")]),
        ([encryption()], [("bucket", "urn:b")]),
        ([encryption(references="urn:other"), block()], [("bucket", "urn:b")]),
        ([encryption(), block(bucket="other")], [("bucket", "urn:b")]),
        (
            [encryption(None), block()],
            [("rules[0].applyServerSideEncryptionByDefault.sseAlgorithm", "urn:encryption")],
        ),
        *([[encryption(), block(**{flag: False})], [(flag, "urn:block")]] for flag in FLAGS),
        ([encryption(), block(blockPublicAcls=None)], [("blockPublicAcls", "urn:block")]),
    ],
)
def test_a_bucket_without_a_required_setting_is_rejected(
    others: list[Resource], found: list[tuple[str, str]]
) -> None:
    violations_found = stack_violations(BUCKET_SETTINGS, [BUCKET, *others])
    assert [(violation.path, violation.urn) for violation in violations_found] == found


def test_the_message_names_the_missing_bucket_setting(text: Text) -> None:
    (found,) = stack_violations(BUCKET_SETTINGS, [BUCKET, encryption()])
    text(str(found))
