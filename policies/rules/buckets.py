"""Buckets require encryption and a public access block, which are separate resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, is_true, show
from .resource_types import BUCKET, PUBLIC_ACCESS_BLOCK

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


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
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


BUCKET_SETTINGS: Final = StackRule(
    name="bucket-settings",
    description="Every bucket is encrypted and blocks public access by all four flags.",
    check=_check,
)
