"""Storage: buckets are encrypted and closed, each by a separate resource, and state is protected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
from .resource_types import BUCKET, EFS, KMS_KEY, LUSTRE

_ENCRYPTION: Final = (
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
)
_ACCESS_BLOCK: Final = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
_ALGORITHMS: Final = ("aws:kms", "aws:kms:dsse", "AES256")
_FLAGS: Final = (
    "blockPublicAcls",
    "blockPublicPolicy",
    "ignorePublicAcls",
    "restrictPublicBuckets",
)
_SETTINGS: Final = {
    _ENCRYPTION: "add one with sseAlgorithm aws:kms",
    _ACCESS_BLOCK: f"add one with {', '.join(_FLAGS)}",
}
"""Settings of every bucket, and what to do where one is missing."""
_STATE: Final = (
    *(BUCKET, EFS, LUSTRE, KMS_KEY),
    "kubernetes:core/v1:PersistentVolume",
    "kubernetes:core/v1:PersistentVolumeClaim",
)


def _has_setting(bucket: Resource, settings: Iterable[Resource]) -> bool:
    name = bucket.props.get("bucket")
    return any(
        bucket.urn in setting.references.get("bucket", ())
        or (isinstance(name, str) and setting.props.get("bucket") == name)
        for setting in settings
    )


def _check_encryption(resource: Resource) -> Iterator[Violation]:
    rules, applied = resource.props.get("rules"), "applyServerSideEncryptionByDefault"
    algorithms = [dig(rule, applied, "sseAlgorithm") for rule in elements(rules)]
    if rules is not UNKNOWN and not any(a in (*_ALGORITHMS, UNKNOWN) for a in algorithms):
        yield Violation(
            f"rules[0].{applied}.sseAlgorithm",
            show(algorithms),
            ", ".join(_ALGORITHMS),
            "set it to aws:kms, with the key of the stack",
            resource.urn,
        )


def _check_access_block(resource: Resource) -> Iterator[Violation]:
    remedy = "set it to true: all four flags are required to block public access"
    for flag in _FLAGS:
        value = resource.props.get(flag)
        if not is_true(value):
            yield Violation(flag, show(value), "true", remedy, resource.urn)


def _check_buckets(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    for resource in resources:
        if resource.type == _ENCRYPTION:
            yield from _check_encryption(resource)
        elif resource.type == _ACCESS_BLOCK:
            yield from _check_access_block(resource)
    for bucket in resources:
        for kind, remedy in _SETTINGS.items() if bucket.type == BUCKET else ():
            if not _has_setting(bucket, (r for r in resources if r.type == kind)):
                missing = f"no {kind.rpartition(':')[2]}"
                yield Violation("bucket", missing, "one for every bucket", remedy, bucket.urn)


BUCKET_SETTINGS: Final = StackRule(
    name="bucket-settings",
    description="Every bucket is encrypted and blocks public access by all four flags.",
    check=_check_buckets,
)


def _check_protection(resource: Resource, config: Config) -> Iterable[Violation]:
    if config["required"] and resource.type in _STATE and not resource.protected:
        yield Violation(
            "the resource option protect",
            "false",
            "true on buckets, keys, file systems and volumes",
            "set trainyard:storage.protect to true",
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
