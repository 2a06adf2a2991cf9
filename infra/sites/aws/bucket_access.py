"""Who may do what with the stack's buckets: IAM documents as plain data.

Names of buckets are plain, so a preview shows each document in full.
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
"""No DeleteObjectVersion: what a team deletes can be brought back until its versions expire."""


@dataclass(frozen=True, kw_only=True)
class TeamBuckets:
    """Names of the buckets that teams share, each team below a prefix of its own."""

    datasets: str
    checkpoints: str
    artifacts: str


def bucket_arn(bucket: str) -> str:
    """ARN of a bucket."""
    return f"arn:aws:s3:::{bucket}"


def team_prefix(team: str) -> str:
    """Prefix of all of a team's keys. The slash at its end keeps team `a` out of team `a2`."""
    return f"{team}/"


def team_access(team: str, buckets: TeamBuckets) -> Document:
    """A team reads its datasets, and reads and writes its checkpoints and artifacts.

    Datasets are not written here: the preparation Job writes them to the team's volume, which exports
    them, so a training pod cannot change the data that other runs of its team learn from.
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
            # A list without a prefix has no such key, and is denied like one of another prefix.
            "Condition": {"StringLike": {"s3:prefix": [f"{prefix}*"]}},
        },
    )


def key_use(key_arn: str, region: str, buckets: Sequence[str]) -> Document:
    """The buckets' key, for nothing but objects of these buckets, and only through S3."""
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
    """For the key's policy: FSx reads and writes the buckets that its file systems are linked to.

    It does so as a service-linked role per file system, whose own policy nobody can extend:
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
    """Policy of a bucket: TLS only, nobody but this account and AWS's services on its behalf."""
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
                # A service has no account of its own; what it may do, an Allow has to say.
                "BoolIfExists": {"aws:PrincipalIsAWSService": "false"},
            },
        },
        *more,
    )


def log_delivery(bucket: str, account: str, source: str) -> Statement:
    """S3 may write access logs of `source` into `bucket`, below a prefix of its own."""
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
    """Where the access logs of a bucket go, in the bucket of logs."""
    return f"s3/{source}/"
