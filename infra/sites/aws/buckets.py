"""The stack's buckets: datasets, checkpoints, artifacts and access logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pulumi
from pulumi_aws import s3

from infra.domain import naming
from infra.sections.storage import BucketsConfig
from infra.sites.aws.bucket import PrivateBucket, PrivateBucketArgs
from infra.sites.aws.bucket_access import guarded_bucket, log_delivery, team_buckets
from infra.sites.aws.outputs import BucketRecord

LOG_DAYS: Final = 365
"""Retention of access logs, in days."""

LOGS: Final = "logs"


@dataclass(frozen=True, kw_only=True)
class BucketsArgs:
    settings: BucketsConfig
    account: str
    key_arn: pulumi.Input[str]
    """KMS key of all buckets except the logs."""
    protect: bool = True
    """Refuse to delete the buckets, and keep them when they are dropped from the program."""


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

    def __init__(self, name: str, args: BucketsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsBuckets"), name, None, opts)
        self.names = team_buckets(args.settings.prefix)
        logs = self._logs(name, args)
        self.logs = logs.record
        # S3 checks that it may deliver logs, so the log bucket and its policy come first.
        self._after_logs = pulumi.ResourceOptions(parent=self, depends_on=[logs])
        self.datasets = self._shared(name, args, self.names.datasets)
        self.checkpoints = self._shared(
            name,
            args,
            self.names.checkpoints,
            checkpoint_transition_rule(args.settings.old_checkpoint_days),
        )
        self.artifacts = self._shared(name, args, self.names.artifacts)
        records = (self.datasets, self.checkpoints, self.artifacts, self.logs)
        self.register_outputs({"names": [record.name for record in records]})

    def _logs(self, name: str, args: BucketsArgs) -> PrivateBucket:
        own = f"{args.settings.prefix}-{LOGS}"
        sources = (self.names.datasets, self.names.checkpoints, self.names.artifacts)
        deliveries = [log_delivery(own, args.account, source) for source in sources]
        bucket = PrivateBucketArgs(
            bucket=own,
            policy=guarded_bucket(own, args.account, *deliveries),
            # S3 cannot deliver access logs to a bucket with a customer-managed key.
            key_arn=None,
            rules=(log_expiration_rule(),),
            protect=args.protect,
        )
        return PrivateBucket(f"{name}-{LOGS}", bucket, pulumi.ResourceOptions(parent=self))

    def _shared(
        self,
        name: str,
        args: BucketsArgs,
        own: str,
        *rules: s3.BucketLifecycleConfigurationRuleArgs,
    ) -> BucketRecord:
        role = own.removeprefix(f"{args.settings.prefix}-")
        bucket = PrivateBucketArgs(
            bucket=own,
            policy=guarded_bucket(own, args.account),
            key_arn=args.key_arn,
            rules=rules,
            logs=self.logs.name,
            protect=args.protect,
        )
        return PrivateBucket(f"{name}-{role}", bucket, self._after_logs).record
