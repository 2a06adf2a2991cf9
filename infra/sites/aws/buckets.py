"""The stack's buckets: datasets, checkpoints, artifacts and access logs."""

from __future__ import annotations

from typing import Final

import pulumi
from pulumi_aws import s3

from infra.domain import naming
from infra.sections.storage import BucketsConfig
from infra.sites.aws.bucket import PrivateBucket, PrivateBucketArgs
from infra.sites.aws.bucket_access import guarded_bucket, log_delivery, team_buckets

LOG_DAYS: Final = 365
"""Retention of access logs, in days."""

LOGS: Final = "logs"


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
        log_bucket = PrivateBucketArgs(
            bucket=own,
            policy=guarded_bucket(own, account, *deliveries),
            # S3 cannot deliver access logs to a bucket with a customer-managed key.
            key_arn=None,
            rules=(log_expiration_rule(),),
            protect=protect,
        )
        logs = PrivateBucket(f"{name}-{LOGS}", log_bucket, pulumi.ResourceOptions(parent=self))
        # S3 checks that it may deliver logs, so the log bucket and its policy come first.
        after_logs = pulumi.ResourceOptions(parent=self, depends_on=[logs])
        old = checkpoint_transition_rule(settings.old_checkpoint_days)
        made = {
            bucket: PrivateBucket(
                f"{name}-{bucket.removeprefix(f'{prefix}-')}",
                PrivateBucketArgs(
                    bucket=bucket,
                    policy=guarded_bucket(bucket, account),
                    key_arn=key_arn,
                    rules=(old,) if bucket == names.checkpoints else (),
                    logs=own,
                    protect=protect,
                ),
                after_logs,
            ).record
            for bucket in shared
        }
        self.names, self.logs = names, logs.record
        self.datasets, self.checkpoints, self.artifacts = (made[bucket] for bucket in shared)
        self.register_outputs({"names": [*made, own]})
