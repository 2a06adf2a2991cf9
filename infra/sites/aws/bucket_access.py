"""IAM and bucket policies of the stack's buckets, as plain data.

Bucket names are plain, so a preview shows each document in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.sites.aws.policy_documents import KEY_USE, Document, Statement, document

LOG_DELIVERY: Final = "logging.s3.amazonaws.com"
"""The service that writes S3's access logs."""

_READ: Final = ("s3:GetObject",)
_WRITE: Final = (
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)
"""Without DeleteObjectVersion: deleted objects can be restored until their versions expire."""


@dataclass(frozen=True, kw_only=True)
class TeamBuckets:
    """Names of the buckets that teams share, each team below its own prefix."""

    datasets: str
    checkpoints: str
    artifacts: str


def team_buckets(prefix: str) -> TeamBuckets:
    return TeamBuckets(
        datasets=f"{prefix}-datasets",
        checkpoints=f"{prefix}-checkpoints",
        artifacts=f"{prefix}-artifacts",
    )


def bucket_arn(bucket: str) -> str:
    return f"arn:aws:s3:::{bucket}"


def team_prefix(team: str) -> str:
    """Return the prefix of a team's keys. The trailing slash keeps team `a` out of team `a2`."""
    return f"{team}/"


def team_access(team: str, buckets: TeamBuckets) -> Document:
    """Return a team's policy: read datasets, read and write checkpoints and artifacts.

    The preparation Job writes datasets through the team's volume, which exports them, so a training pod cannot
    change the data of other runs.
    """
    prefix = team_prefix(team)

    def objects(*names: str) -> list[str]:
        return [f"{bucket_arn(name)}/{prefix}*" for name in names]

    everything = (buckets.datasets, buckets.checkpoints, buckets.artifacts)
    return document(
        {
            "Sid": "ReadOwnObjects",
            "Effect": "Allow",
            "Action": list(_READ),
            "Resource": objects(*everything),
        },
        {
            "Sid": "WriteOwnObjects",
            "Effect": "Allow",
            "Action": list(_WRITE),
            "Resource": objects(buckets.checkpoints, buckets.artifacts),
        },
        {
            "Sid": "ListOwnPrefix",
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": [bucket_arn(name) for name in everything],
            # A list request without a prefix lacks this key and is denied, too.
            "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*"]}},
        },
    )


def key_use(key_arn: str, region: str, buckets: Sequence[str]) -> Document:
    """Return the policy to use the buckets' key, only through S3 and for objects of these buckets."""
    return document(
        {
            "Sid": "UseKeyThroughS3",
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": [key_arn],
            "Condition": _through_s3(region, buckets),
        }
    )


def lustre_key_statement(account: str, region: str, buckets: Sequence[str]) -> Statement:
    """Return the key's statement for FSx, which reads and writes the buckets linked to its file systems.

    It uses a service-linked role per file system, whose policy cannot be extended:
    https://docs.aws.amazon.com/fsx/latest/LustreGuide/s3-server-side-encryption-support.html
    """
    roles = (
        f"arn:aws:iam::{account}:role/aws-service-role/"
        "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_fs-*"
    )
    condition = _through_s3(region, buckets)
    condition["StringEquals"]["kms:CallerAccount"] = account
    condition["ArnLike"] = {"aws:PrincipalArn": roles}
    return {
        "Sid": "LinkedFileSystems",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": list(KEY_USE),
        "Resource": "*",
        "Condition": condition,
    }


def _through_s3(region: str, buckets: Sequence[str]) -> dict[str, Any]:
    return {
        "StringEquals": {
            "kms:ViaService": f"s3.{region}.amazonaws.com",
            # With bucket keys the context is the bucket, not the object.
            "kms:EncryptionContext:aws:s3:arn": [bucket_arn(name) for name in buckets],
        }
    }


def guarded_bucket(bucket: str, account: str, *more: Statement) -> Document:
    """Return a bucket's policy: TLS only, this account and AWS services on its behalf only."""
    both = [bucket_arn(bucket), f"{bucket_arn(bucket)}/*"]
    return document(
        {
            "Sid": "DenyWithoutTls",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "s3:*",
            "Resource": both,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {
            "Sid": "DenyOtherAccounts",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "s3:*",
            "Resource": both,
            "Condition": {
                "StringNotEquals": {"aws:PrincipalAccount": account},
                # A service has no account; Allow statements bound it.
                "BoolIfExists": {"aws:PrincipalIsAWSService": "false"},
            },
        },
        *more,
    )


def log_delivery(bucket: str, account: str, source: str) -> Statement:
    """Return the statement by which S3 writes access logs of `source` into `bucket`, below its own prefix."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": LOG_DELIVERY},
        "Action": "s3:PutObject",
        "Resource": f"{bucket_arn(bucket)}/{log_prefix(source)}*",
        "Condition": {
            "StringEquals": {"aws:SourceAccount": account},
            "ArnEquals": {"aws:SourceArn": bucket_arn(source)},
        },
    }


def log_prefix(source: str) -> str:
    return f"s3/{source}/"
