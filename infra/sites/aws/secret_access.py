"""IAM policies for reading secrets of AWS Secrets Manager, as plain data.

External Secrets runs as one role that cannot read secrets. For each store it assumes the role of the store's team,
which may read the team's secrets, each by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.sites.aws.policy_documents import Document, document, role_name

OF: Final = "secrets-of-team"
"""Part of the names of roles that read a team's secrets. As a suffix it would make the role of team `a` collide
with that of the pods of a team `a-secrets`."""

_ANY_SUFFIX: Final = "-??????"
"""Secrets Manager appends a hyphen and six random characters to each ARN."""


def reader_arn(account: str, cluster: str, team: str) -> str:
    return f"arn:aws:iam::{account}:role/{role_name(cluster, team, OF)}"


def read_policy(account: str, region: str, names: Sequence[str]) -> Document:
    """Return the policy to read a team's secrets; without list rights, which would reveal other names."""
    arn = f"arn:aws:secretsmanager:{region}:{account}:secret:"
    return document(
        {
            "Sid": "ReadOwnSecrets",
            "Effect": "Allow",
            "Action": ["secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"],
            "Resource": [f"{arn}{name}{_ANY_SUFFIX}" for name in names],
        }
    )


def trust_policy(controller_arn: str) -> Document:
    """Return the trust policy of a team's reader: only the controller may assume it, with its session tags."""
    return document(
        {
            "Sid": "ExternalSecrets",
            "Effect": "Allow",
            "Principal": {"AWS": controller_arn},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    )


def assume_role_policy(readers: Sequence[str]) -> Document:
    """Return the controller's only permission: to assume the readers of the stack's teams."""
    return document(
        {
            "Sid": "BecomeReaders",
            "Effect": "Allow",
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Resource": list(readers),
        }
    )
