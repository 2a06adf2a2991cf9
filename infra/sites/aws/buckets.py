"""The stack's buckets: datasets, checkpoints, artifacts and access logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pulumi
from pulumi_aws import s3

from infra.domain import naming
from infra.sections.storage import BucketsConfig
from infra.sites.aws.bucket_access import guarded_bucket, log_delivery, log_prefix, team_buckets
from infra.sites.aws.outputs import BucketRecord
from infra.sites.aws.policy_documents import Document

LOG_DAYS: Final = 365
"""Retention of access logs, in days."""

LOGS: Final = "logs"

ABANDONED_UPLOAD_DAYS: Final = 7
"""Parts of abandoned uploads cost as much as objects and appear in no listing."""
NONCURRENT_DAYS: Final = 30
"""Default of the days in which an overwritten or deleted object can be restored."""


def checkpoint_transition_rule(days: int) -> s3.BucketLifecycleConfigurationRuleArgs:
    """Return the rule that moves old checkpoints to instant-retrieval storage at a sixth of the price.

    Age never deletes one: lifecycle rules cannot exclude milestones, since they only select by tags and FSx
    exports objects without tags. The trainer's retention deletes checkpoints.
    """
    return s3.BucketLifecycleConfigurationRuleArgs(
        id="old-checkpoints",
        status="Enabled",
        filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        transitions=[
            s3.BucketLifecycleConfigurationRuleTransitionArgs(days=days, storage_class="GLACIER_IR")
        ],
    )


def log_expiration_rule() -> s3.BucketLifecycleConfigurationRuleArgs:
    return s3.BucketLifecycleConfigurationRuleArgs(
        id="old-logs",
        status="Enabled",
        filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        expiration=s3.BucketLifecycleConfigurationRuleExpirationArgs(days=LOG_DAYS),
    )


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
    """A bucket with recoverable objects, its access controls and its lifecycle. One that outlives the stack keeps
    them.
    """

    def __init__(
        self,
        name: str,
        bucket: str,
        policy: Document,
        opts: pulumi.ResourceOptions,
        *,
        key_arn: pulumi.Input[str] | None,
        rules: Sequence[s3.BucketLifecycleConfigurationRuleArgs] = (),
        logs: str | None = None,
        protect: bool = True,
        noncurrent_days: int = NONCURRENT_DAYS,
    ) -> None:
        """Create it. `bucket`: a plain name: policies and URIs are built from it.

        `key_arn`: KMS key of the objects; None: S3-managed keys. `rules`: of its lifecycle, in addition to
        `housekeeping_rule`. `logs`: name of the bucket for access logs; None: no access logs.
        """
        super().__init__(naming.infra_type("AwsPrivateBucket"), name, None, opts)

        def kept(*needs: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(
                parent=self, depends_on=list(needs), protect=protect, retain_on_delete=protect
            )

        made = s3.Bucket(f"{name}-bucket", bucket=bucket, force_destroy=False, opts=kept())
        s3.BucketServerSideEncryptionConfiguration(
            f"{name}-encryption", bucket=made.id, rules=[encryption_rule(key_arn)], opts=kept()
        )
        s3.BucketOwnershipControls(
            f"{name}-ownership",
            bucket=made.id,
            rule=s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
            opts=kept(),
        )
        private = s3.BucketPublicAccessBlock(
            f"{name}-private",
            bucket=made.id,
            block_public_acls=True,
            block_public_policy=True,
            ignore_public_acls=True,
            restrict_public_buckets=True,
            opts=kept(),
        )
        # S3 rejects concurrent changes of a bucket's access.
        s3.BucketPolicy(
            f"{name}-policy", bucket=made.id, policy=json.dumps(policy), opts=kept(private)
        )
        enabled = s3.BucketVersioningVersioningConfigurationArgs(status="Enabled")
        versioning = s3.BucketVersioning(
            f"{name}-versioning", bucket=made.id, versioning_configuration=enabled, opts=kept()
        )
        s3.BucketLifecycleConfiguration(
            f"{name}-lifecycle",
            bucket=made.id,
            rules=[housekeeping_rule(noncurrent_days), *rules],
            opts=kept(versioning),
        )
        if logs is not None:
            s3.BucketLogging(
                f"{name}-logging",
                bucket=made.id,
                target_bucket=logs,
                target_prefix=log_prefix(bucket),
                opts=kept(),
            )
        self.record = BucketRecord(name=bucket, arn=made.arn)
        self.register_outputs({"name": bucket, "arn": made.arn})


class Buckets(pulumi.ComponentResource):
    """Three buckets that teams share by prefix, and one with their access logs."""

    def __init__(
        self,
        name: str,
        settings: BucketsConfig,
        account: str,
        key_arn: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
        *,
        protect: bool = True,
    ) -> None:
        """Create them.

        `key_arn`: KMS key of all buckets except the logs. `protect`: refuse to delete them, and keep them when
        they are dropped from the program.
        """
        super().__init__(naming.infra_type("AwsBuckets"), name, None, opts)
        prefix, names = settings.prefix, team_buckets(settings.prefix)
        shared = (names.datasets, names.checkpoints, names.artifacts)
        own = f"{prefix}-{LOGS}"
        deliveries = [log_delivery(own, account, source) for source in shared]
        logs = PrivateBucket(
            f"{name}-{LOGS}",
            own,
            guarded_bucket(own, account, *deliveries),
            pulumi.ResourceOptions(parent=self),
            # S3 cannot deliver access logs to a bucket with a customer-managed key.
            key_arn=None,
            rules=[log_expiration_rule()],
            protect=protect,
        )
        # S3 checks that it may deliver logs, so the log bucket and its policy come first.
        after_logs = pulumi.ResourceOptions(parent=self, depends_on=[logs])
        old = checkpoint_transition_rule(settings.old_checkpoint_days)
        made = {
            bucket: PrivateBucket(
                f"{name}-{bucket.removeprefix(f'{prefix}-')}",
                bucket,
                guarded_bucket(bucket, account),
                after_logs,
                key_arn=key_arn,
                rules=[old] if bucket == names.checkpoints else (),
                logs=own,
                protect=protect,
            ).record
            for bucket in shared
        }
        self.names, self.logs = names, logs.record
        self.datasets, self.checkpoints, self.artifacts = (made[bucket] for bucket in shared)
        self.register_outputs({"names": [*made, own]})
