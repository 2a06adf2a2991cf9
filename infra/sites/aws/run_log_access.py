"""The log group of runs: its name, who writes it, what encrypts it, what is hidden in it. Plain data."""

from __future__ import annotations

from typing import Final

from infra.sites.aws.policy_documents import KEY_USE, Document, Statement, document

_HIDDEN: Final = (
    "AwsSecretKey",
    "OpenSshPrivateKey",
    "PgpPrivateKey",
    "PkcsPrivateKey",
    "PuttyPrivateKey",
)
"""What CloudWatch Logs finds by itself: docs.aws.amazon.com/AmazonCloudWatch/latest/logs/
protect-sensitive-log-data-types-credentials.html"""


def group_name(cluster: str) -> str:
    """One per cluster."""
    return f"/trainyard/{cluster}/runs"


def group_arn(account: str, region: str, cluster: str) -> str:
    """ARN of the group; of its streams: this, and `:*`."""
    return f"arn:aws:logs:{region}:{account}:log-group:{group_name(cluster)}"


def write_policy(arn: str) -> Document:
    """Append to streams of this group, and nothing else: no group, no retention, no reading."""
    return document(
        {
            "Sid": "AppendToRunLogs",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": [f"{arn}:*"],
        }
    )


def key_statement(region: str, arn: str) -> Statement:
    """For the key's policy: CloudWatch Logs encrypts this group in its own name.

    docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    return {
        "Sid": "RunLogs",
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{region}.amazonaws.com"},
        "Action": list(KEY_USE),
        "Resource": "*",
        "Condition": {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": arn}},
    }


def data_protection_policy() -> Document:
    """A data protection policy: credentials that a run prints are stars to whoever reads its log."""
    kinds = [f"arn:aws:dataprotection::aws:data-identifier/{kind}" for kind in _HIDDEN]
    return {
        "Name": "credentials",
        "Version": "2021-06-01",
        "Statement": [
            # CloudWatch wants to be told to look before it is told to hide.
            {
                "Sid": "Find",
                "DataIdentifier": kinds,
                "Operation": {"Audit": {"FindingsDestination": {}}},
            },
            {
                "Sid": "Hide",
                "DataIdentifier": kinds,
                "Operation": {"Deidentify": {"MaskConfig": {}}},
            },
        ],
    }
