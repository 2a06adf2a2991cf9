"""Log groups of a stack: names, their encryption; policies and data protection of that of runs. Plain data."""

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
"""Managed data identifiers of CloudWatch Logs: docs.aws.amazon.com/AmazonCloudWatch/latest/logs/
protect-sensitive-log-data-types-credentials.html"""


def group_name(cluster: str) -> str:
    return f"/trainyard/{cluster}/runs"


def group_arn(account: str, region: str, cluster: str) -> str:
    """Return the ARN of the group; its streams are this with `:*`."""
    return f"arn:aws:logs:{region}:{account}:log-group:{group_name(cluster)}"


def write_policy(arn: str) -> Document:
    """Return the policy to append to streams of this group only."""
    return document(
        {
            "Sid": "AppendToRunLogs",
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": [f"{arn}:*"],
        }
    )


def control_plane_group(cluster: str) -> str:
    return f"/aws/eks/{cluster}/cluster"


def flow_log_group(cluster: str) -> str:
    return f"/aws/vpc/{cluster}/flows"


def lustre_group(cluster: str) -> str:
    """Return the name of the log group of a cluster's FSx file systems, which must begin like this."""
    return f"/aws/fsx/{cluster}"


def key_statement(account: str, region: str, cluster: str) -> Statement:
    """Return the key's statement by which CloudWatch Logs encrypts the stack's log groups.

    docs.aws.amazon.com/AmazonCloudWatch/latest/logs/encrypt-log-data-kms.html
    """
    names = [
        named(cluster) for named in (control_plane_group, flow_log_group, lustre_group, group_name)
    ]
    groups = [f"arn:aws:logs:{region}:{account}:log-group:{name}" for name in names]
    return {
        "Sid": "Logs",
        "Effect": "Allow",
        "Principal": {"Service": f"logs.{region}.amazonaws.com"},
        "Action": list(KEY_USE),
        "Resource": "*",
        "Condition": {"ArnEquals": {"kms:EncryptionContext:aws:logs:arn": groups}},
    }


def data_protection_policy() -> Document:
    kinds = [f"arn:aws:dataprotection::aws:data-identifier/{kind}" for kind in _HIDDEN]
    return {
        "Name": "credentials",
        "Version": "2021-06-01",
        "Statement": [
            # CloudWatch requires an audit statement before the one that masks.
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
