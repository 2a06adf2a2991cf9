"""Encryption at rest of storage, logs and cluster secrets. For buckets see storage.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .model import (
    UNKNOWN,
    PropertyChecks,
    ResourceRule,
    Violation,
    check_by_type,
    dig,
    elements,
    is_true,
    mapping,
    show,
)
from .resource_types import (
    CLUSTER,
    CLUSTER_COMPONENT,
    EFS,
    FSX,
    KMS_KEY,
    LAUNCH_TEMPLATE,
    LOG_GROUP,
    NODE_CLASS,
)

_Props = Mapping[str, Any]
_SYMMETRIC: Final = (None, "SYMMETRIC_DEFAULT", UNKNOWN)
_EBS_DRIVERS: Final = ("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com", "kubernetes.io/aws-ebs")
_FSX_DRIVER: Final = "fsx.csi.aws.com"


def _check_disks(path: str, mappings: Any) -> Iterator[Violation]:
    if mappings is UNKNOWN:
        return
    if not elements(mappings):
        yield Violation(
            path=path,
            got="no volumes",
            expected="the root volume with encrypted: true and volumeType: gp3",
            remedy="add it: otherwise the AMI decides",
        )
    for index, entry in enumerate(elements(mappings)):
        ebs = mapping(dig(entry, "ebs"))
        if not ebs:
            continue
        if not is_true(ebs.get("encrypted")):
            yield _unencrypted(f"{path}[{index}].ebs.encrypted", ebs.get("encrypted"))
        if ebs.get("volumeType") not in ("gp3", UNKNOWN):
            yield Violation(
                path=f"{path}[{index}].ebs.volumeType",
                got=show(ebs.get("volumeType")),
                expected='"gp3"',
                remedy="set it: its throughput is independent of its size, and it costs less than gp2",
            )


def _unencrypted(path: str, value: Any) -> Violation:
    return Violation(path=path, got=show(value), expected="true", remedy="set it to true")


def _missing_key(path: str, what: str) -> Violation:
    return Violation(
        path=path,
        got="no key",
        expected="the ARN of a KMS key of the stack",
        remedy=f"set it: access to the key then controls access to {what}",
    )


def _launch_template(props: _Props) -> Iterator[Violation]:
    yield from _check_disks("blockDeviceMappings", props.get("blockDeviceMappings"))


def _node_class(props: _Props) -> Iterator[Violation]:
    yield from _check_disks("spec.blockDeviceMappings", dig(props, "spec", "blockDeviceMappings"))


def _volume(props: _Props) -> Iterator[Violation]:
    if not is_true(props.get("encrypted")):
        yield _unencrypted("encrypted", props.get("encrypted"))


def _cluster(props: _Props) -> Iterator[Violation]:
    if not dig(props, "encryptionConfig", "provider", "keyArn"):
        yield _missing_key("encryptionConfig.provider.keyArn", "the cluster's secrets")


def _component(props: _Props) -> Iterator[Violation]:
    if props and not props.get("encryptionConfigKeyArn"):
        yield _missing_key("encryptionConfigKeyArn", "the cluster's secrets")


def _fsx(props: _Props) -> Iterator[Violation]:
    if not props.get("kmsKeyId"):
        yield _missing_key("kmsKeyId", "the file system")


def _lustre(props: _Props) -> Iterator[Violation]:
    yield from _fsx(props)
    logs = mapping(props.get("logConfiguration"))
    if logs and logs.get("level") != "DISABLED" and not logs.get("destination"):
        yield Violation(
            path="logConfiguration.destination",
            got="no log group",
            expected="the ARN of a log group of the stack with a KMS key",
            remedy="set it: otherwise FSx creates a group without a key that keeps logs for ever",
        )


def _efs(props: _Props) -> Iterator[Violation]:
    yield from _volume(props)
    yield from _fsx(props)


def _log_group(props: _Props) -> Iterator[Violation]:
    """Check a log group: without a key of the stack, CloudWatch uses its own, which no policy limits."""
    if not props.get("kmsKeyId"):
        yield _missing_key("kmsKeyId", "the logs")


def _storage_class(props: _Props) -> Iterator[Violation]:
    """Check a StorageClass, whose volumes are not resources of the stack."""
    driver, parameters = props.get("provisioner"), props.get("parameters")
    encrypted = dig(parameters, "encrypted")
    if driver in _EBS_DRIVERS and not is_true(encrypted):
        yield _unencrypted("parameters.encrypted", encrypted)
    if driver == _FSX_DRIVER and not dig(parameters, "kmsKeyId"):
        yield _missing_key("parameters.kmsKeyId", "the file systems")


def _database(props: _Props) -> Iterator[Violation]:
    if not is_true(props.get("storageEncrypted")):
        yield _unencrypted("storageEncrypted", props.get("storageEncrypted"))


def _key(props: _Props) -> Iterator[Violation]:
    rotates = props.get("customerMasterKeySpec") in _SYMMETRIC
    if rotates and not is_true(props.get("enableKeyRotation")):
        yield _unencrypted("enableKeyRotation", props.get("enableKeyRotation"))


def _queue(props: _Props) -> Iterator[Violation]:
    if not is_true(props.get("sqsManagedSseEnabled")) and not props.get("kmsMasterKeyId"):
        yield Violation(
            path="sqsManagedSseEnabled",
            got=show(props.get("sqsManagedSseEnabled")),
            expected="true, or a kmsMasterKeyId",
            remedy="set it to true",
        )


_CHECKS: Final[PropertyChecks] = {
    LAUNCH_TEMPLATE: _launch_template,
    NODE_CLASS: _node_class,
    "aws:ebs/volume:Volume": _volume,
    "kubernetes:storage.k8s.io/v1:StorageClass": _storage_class,
    "aws:rds/instance:Instance": _database,
    "aws:rds/cluster:Cluster": _database,
    CLUSTER: _cluster,
    CLUSTER_COMPONENT: _component,
    EFS: _efs,
    **dict.fromkeys(FSX, _lustre),
    KMS_KEY: _key,
    LOG_GROUP: _log_group,
    "aws:sqs/queue:Queue": _queue,
}


ENCRYPTION_AT_REST: Final = ResourceRule(
    name="encryption-at-rest",
    description="Storage, logs and the cluster's secrets are encrypted at rest, and keys rotate.",
    check=check_by_type(_CHECKS),
)
