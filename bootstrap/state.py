"""The bucket of Pulumi's state and the key of the bucket and of the stacks' secrets."""

from __future__ import annotations

import json

import pulumi
import pulumi_aws.kms as kms

from bootstrap.permissions import KEY_ALIAS
from infra.domain import naming
from infra.sites.aws import keys
from infra.sites.aws.bucket_access import guarded_bucket
from infra.sites.aws.buckets import PrivateBucket
from infra.sites.aws.policy_documents import document

STATE_VERSION_DAYS = 365
"""Days in which a former state can be restored."""


class State(pulumi.ComponentResource):
    """A private, versioned, encrypted bucket, and its key. Both are protected from deletion."""

    def __init__(self, name: str, account: str, bucket: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsState"), name, None, opts)
        key = kms.Key(
            f"{name}-key",
            description="State and secrets of Trainyard's stacks",
            enable_key_rotation=True,
            deletion_window_in_days=keys.DELETION_DAYS,
            policy=json.dumps(document(keys.administration_statement(account))),
            opts=pulumi.ResourceOptions(parent=self, protect=True, retain_on_delete=True),
        )
        kms.Alias(
            f"{name}-key",
            name=KEY_ALIAS,
            target_key_id=key.key_id,
            opts=pulumi.ResourceOptions(parent=self, protect=True, retain_on_delete=True),
        )
        PrivateBucket(
            name,
            bucket,
            guarded_bucket(bucket, account),
            pulumi.ResourceOptions(parent=self),
            key_arn=key.arn,
            noncurrent_days=STATE_VERSION_DAYS,
        )
        self.key_arn: pulumi.Output[str] = key.arn
        self.register_outputs({"keyArn": key.arn})
