"""Encryption at rest of storage, logs and cluster secrets. For buckets see storage.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .model import (
    UNKNOWN,
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
    KMS_KEY,
    LAUNCH_TEMPLATE,
    LUSTRE,
    NODE_CLASS,
)

_Props = Mapping[str, Any]
_EBS_DRIVERS: Final = ("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com")


def _disks(path: str, mappings: Any) -> Iterator[Violation]:
    if mappings is UNKNOWN:
        return
    if not elements(mappings):
        root = "the root volume with encrypted: true and volumeType: gp3"
        yield Violation(path, "no volumes", root, "add it: otherwise the AMI decides")
    for index, entry in enumerate(elements(mappings)):
        ebs = mapping(dig(entry, "ebs"))
        if not ebs:
            continue
        yield from _true(f"{path}[{index}].ebs.encrypted", ebs.get("encrypted"))
        kind = ebs.get("volumeType")
        if kind not in ("gp3", UNKNOWN):
            remedy = "set it: its throughput is independent of its size, and it costs less than gp2"
            yield Violation(f"{path}[{index}].ebs.volumeType", show(kind), '"gp3"', remedy)


def _true(path: str, value: Any) -> Iterator[Violation]:
    if not is_true(value):
        yield Violation(path, show(value), "true", "set it to true")


def _key_of(path: str, key: Any, what: str) -> Iterator[Violation]:
    if not key:
        remedy = f"set it: access to the key then controls access to {what}"
        yield Violation(path, "no key", "the ARN of a KMS key of the stack", remedy)


def _launch_template(props: _Props) -> Iterator[Violation]:
    yield from _disks("blockDeviceMappings", props.get("blockDeviceMappings"))


def _node_class(props: _Props) -> Iterator[Violation]:
    yield from _disks("spec.blockDeviceMappings", dig(props, "spec", "blockDeviceMappings"))


def _cluster(props: _Props) -> Iterator[Violation]:
    key = dig(props, "encryptionConfig", "provider", "keyArn")
    yield from _key_of("encryptionConfig.provider.keyArn", key, "the cluster's secrets")


def _component(props: _Props) -> Iterator[Violation]:
    if props:
        key = props.get("encryptionConfigKeyArn")
        yield from _key_of("encryptionConfigKeyArn", key, "the cluster's secrets")


def _lustre(props: _Props) -> Iterator[Violation]:
    yield from _key_of("kmsKeyId", props.get("kmsKeyId"), "the file system")
    logs = mapping(props.get("logConfiguration"))
    if logs and logs.get("level") != "DISABLED" and not logs.get("destination"):
        yield Violation(
            "logConfiguration.destination",
            "no log group",
            "the ARN of a log group of the stack with a KMS key",
            "set it: otherwise FSx creates a group without a key that keeps logs for ever",
        )


def _efs(props: _Props) -> Iterator[Violation]:
    yield from _true("encrypted", props.get("encrypted"))
    yield from _key_of("kmsKeyId", props.get("kmsKeyId"), "the file system")


def _log_group(props: _Props) -> Iterator[Violation]:
    """Check a log group: without a key of the stack, CloudWatch uses its own, which no policy limits."""
    yield from _key_of("kmsKeyId", props.get("kmsKeyId"), "the logs")


def _storage_class(props: _Props) -> Iterator[Violation]:
    """Check a StorageClass, whose volumes are not resources of the stack."""
    if props.get("provisioner") in _EBS_DRIVERS:
        yield from _true("parameters.encrypted", dig(props, "parameters", "encrypted"))


def _key(props: _Props) -> Iterator[Violation]:
    yield from _true("enableKeyRotation", props.get("enableKeyRotation"))


def _queue(props: _Props) -> Iterator[Violation]:
    managed = props.get("sqsManagedSseEnabled")
    if not is_true(managed) and not props.get("kmsMasterKeyId"):
        expected = "true, or a kmsMasterKeyId"
        yield Violation("sqsManagedSseEnabled", show(managed), expected, "set it to true")


ENCRYPTION_AT_REST: Final = ResourceRule(
    name="encryption-at-rest",
    description="Storage, logs and the cluster's secrets are encrypted at rest, and keys rotate.",
    check=check_by_type(
        {
            LAUNCH_TEMPLATE: _launch_template,
            NODE_CLASS: _node_class,
            "kubernetes:storage.k8s.io/v1:StorageClass": _storage_class,
            CLUSTER: _cluster,
            CLUSTER_COMPONENT: _component,
            EFS: _efs,
            LUSTRE: _lustre,
            KMS_KEY: _key,
            "aws:cloudwatch/logGroup:LogGroup": _log_group,
            "aws:sqs/queue:Queue": _queue,
        }
    ),
)
