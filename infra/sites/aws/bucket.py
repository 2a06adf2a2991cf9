"""One private bucket with recoverable objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

import pulumi
from pulumi_aws import s3

from infra.domain import naming
from infra.sites.aws.bucket_access import log_prefix
from infra.sites.aws.outputs import BucketRecord
from infra.sites.aws.policy_documents import Document

ABANDONED_UPLOAD_DAYS: Final = 7
"""Parts of abandoned uploads cost as much as objects and appear in no listing."""
NONCURRENT_DAYS: Final = 30
"""Default of `PrivateBucketArgs.noncurrent_days`."""


@dataclass(frozen=True, kw_only=True)
class PrivateBucketArgs:
    """One bucket. Its name is plain: policies and URIs are built from it."""

    bucket: str
    policy: Document
    key_arn: pulumi.Input[str] | None
    """KMS key of the objects; None: S3-managed keys."""
    rules: tuple[s3.BucketLifecycleConfigurationRuleArgs, ...] = ()
    """Lifecycle rules in addition to `housekeeping_rule`."""
    logs: str | None = None
    """Name of the bucket for access logs; None: no access logs."""
    protect: bool = True
    noncurrent_days: int = NONCURRENT_DAYS
    """Days in which an overwritten or deleted object can be restored."""


def housekeeping_rule(noncurrent_days: int) -> s3.BucketLifecycleConfigurationRuleArgs:
    """Return the rule that removes abandoned uploads, old versions and orphaned delete markers."""
    return s3.BucketLifecycleConfigurationRuleArgs(
        id="housekeeping",
        status="Enabled",
        filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        abort_incomplete_multipart_upload=(
            s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                days_after_initiation=ABANDONED_UPLOAD_DAYS
            )
        ),
        noncurrent_version_expiration=(
            s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
                noncurrent_days=noncurrent_days
            )
        ),
        expiration=s3.BucketLifecycleConfigurationRuleExpirationArgs(
            expired_object_delete_marker=True
        ),
    )


def encryption_rule(
    key_arn: pulumi.Input[str] | None,
) -> s3.BucketServerSideEncryptionConfigurationRuleArgs:
    """Return the default encryption; a bucket key avoids a KMS call per object."""
    default = s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
        sse_algorithm="AES256" if key_arn is None else "aws:kms", kms_master_key_id=key_arn
    )
    return s3.BucketServerSideEncryptionConfigurationRuleArgs(
        apply_server_side_encryption_by_default=default, bucket_key_enabled=key_arn is not None
    )


class PrivateBucket(pulumi.ComponentResource):
    """The bucket, its access controls and its lifecycle. A bucket that outlives the stack keeps them."""

    def __init__(self, name: str, args: PrivateBucketArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsPrivateBucket"), name, None, opts)
        bucket = s3.Bucket(
            f"{name}-bucket", bucket=args.bucket, force_destroy=False, opts=self._kept(args)
        )
        self._guard(name, args, bucket)
        s3.BucketLifecycleConfiguration(
            f"{name}-lifecycle",
            bucket=bucket.id,
            rules=[housekeeping_rule(args.noncurrent_days), *args.rules],
            opts=self._kept(args, self._versioning(name, args, bucket)),
        )
        if args.logs is not None:
            s3.BucketLogging(
                f"{name}-logging",
                bucket=bucket.id,
                target_bucket=args.logs,
                target_prefix=log_prefix(args.bucket),
                opts=self._kept(args),
            )
        self.record = BucketRecord(name=args.bucket, arn=bucket.arn)
        self.register_outputs({"name": args.bucket, "arn": bucket.arn})

    def _kept(self, args: PrivateBucketArgs, *needs: pulumi.Resource) -> pulumi.ResourceOptions:
        keep: dict[str, Any] = {"protect": args.protect, "retain_on_delete": args.protect}
        return pulumi.ResourceOptions(parent=self, depends_on=list(needs), **keep)

    def _versioning(
        self, name: str, args: PrivateBucketArgs, bucket: s3.Bucket
    ) -> s3.BucketVersioning:
        return s3.BucketVersioning(
            f"{name}-versioning",
            bucket=bucket.id,
            versioning_configuration=s3.BucketVersioningVersioningConfigurationArgs(
                status="Enabled"
            ),
            opts=self._kept(args),
        )

    def _guard(self, name: str, args: PrivateBucketArgs, bucket: s3.Bucket) -> None:
        s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption",
            bucket=bucket.id,
            rules=[encryption_rule(args.key_arn)],
            opts=self._kept(args),
        )
        s3.BucketOwnershipControls(
            f"{name}-ownership",
            bucket=bucket.id,
            rule=s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=self._kept(args),
        )
        private = s3.BucketPublicAccessBlock(
            f"{name}-private",
            bucket=bucket.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=self._kept(args),
        )
        s3.BucketPolicy(
            f"{name}-policy",
            bucket=bucket.id,
            policy=json.dumps(args.policy),
            # S3 rejects concurrent changes of a bucket's access.
            opts=self._kept(args, private),
        )
