"""Storage: buckets are encrypted and closed, each by a separate resource, and state is protected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .model import (
    UNKNOWN,
    Config,
    Resource,
    ResourceRule,
    StackRule,
    Violation,
    dig,
    elements,
    is_true,
    show,
)
from .resource_types import BUCKET, EFS, FSX, KMS_KEY, PUBLIC_ACCESS_BLOCK

_ENCRYPTION: Final = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
    "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
)
_ALGORITHMS: Final = ("aws:kms", "aws:kms:dsse", "AES256")
_FLAGS: Final = (
    "blockPublicAcls",
    "blockPublicPolicy",
    "ignorePublicAcls",
    "restrictPublicBuckets",
)
_VOLUMES: Final = (
    "kubernetes:core/v1:PersistentVolume",
    "kubernetes:core/v1:PersistentVolumeClaim",
    "aws:ebs/volume:Volume",
)
_STATE: Final = frozenset({*BUCKET, *FSX, *_VOLUMES, EFS, KMS_KEY})


def _settings_of(bucket: Resource, settings: Iterable[Resource]) -> list[Resource]:
    """Return the settings that refer to the bucket, by output or by name."""
    name = bucket.props.get("bucket")
    return [
        setting
        for setting in settings
        if bucket.urn in setting.references.get("bucket", ())
        or (isinstance(name, str) and setting.props.get("bucket") == name)
    ]


def _missing_setting(bucket: Resource, what: str, remedy: str) -> Violation:
    return Violation(
        path="bucket",
        got=f"no {what}",
        expected="one for every bucket",
        remedy=remedy,
        urn=bucket.urn,
    )


def _check_encryption(resource: Resource) -> Iterator[Violation]:
    rules = resource.props.get("rules")
    algorithms: list[Any] = [
        dig(rule, "applyServerSideEncryptionByDefault", "sseAlgorithm") for rule in elements(rules)
    ]
    if rules is UNKNOWN or any(found in (*_ALGORITHMS, UNKNOWN) for found in algorithms):
        return
    yield Violation(
        path="rules[0].applyServerSideEncryptionByDefault.sseAlgorithm",
        got=show(algorithms),
        expected=", ".join(_ALGORITHMS),
        remedy="set it to aws:kms, with the key of the stack",
        urn=resource.urn,
    )


def _check_access_block(resource: Resource) -> Iterator[Violation]:
    for flag in _FLAGS:
        if not is_true(resource.props.get(flag)):
            yield Violation(
                path=flag,
                got=show(resource.props.get(flag)),
                expected="true",
                remedy="set it to true: all four flags are required to block public access",
                urn=resource.urn,
            )


def _check_buckets(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    encryptions = [resource for resource in resources if resource.type in _ENCRYPTION]
    blocks = [resource for resource in resources if resource.type == PUBLIC_ACCESS_BLOCK]
    for setting in encryptions:
        yield from _check_encryption(setting)
    for block in blocks:
        yield from _check_access_block(block)
    for bucket in resources:
        if bucket.type not in BUCKET:
            continue
        if not _settings_of(bucket, encryptions):
            yield _missing_setting(
                bucket,
                "BucketServerSideEncryptionConfiguration",
                "add one with sseAlgorithm aws:kms",
            )
        if not _settings_of(bucket, blocks):
            yield _missing_setting(
                bucket, "BucketPublicAccessBlock", f"add one with {', '.join(_FLAGS)}"
            )


def _check_protection(resource: Resource, config: Config) -> Iterable[Violation]:
    if config["required"] and resource.type in _STATE and not resource.protected:
        yield Violation(
            path="the resource option protect",
            got="false",
            expected="true on buckets, keys, file systems and volumes",
            remedy="set trainyard:storage.protect to true",
        )


BUCKET_SETTINGS: Final = StackRule(
    name="bucket-settings",
    description="Every bucket is encrypted and blocks public access by all four flags.",
    check=_check_buckets,
)

PROTECTED_STATE: Final = ResourceRule(
    name="protected-state",
    description="Storage and keys are protected from deletion, in stacks that require it.",
    check=_check_protection,
    schema={
        "required": {
            "type": "boolean",
            "default": False,
            "description": "Whether storage and keys must be protected",
        }
    },
)
