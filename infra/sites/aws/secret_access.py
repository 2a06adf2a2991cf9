"""Who may read which secret of AWS Secrets Manager: IAM documents as plain data.

External Secrets runs as one role that may read nothing. For each store it becomes the role of the store's
team, and that one reads the team's secrets, each by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.sites.aws.policy_documents import Document, document, role_name

OF: Final = "secrets-of-team"
"""In names of roles that read a team's secrets. At its end it would make the role of team `a` that of the
pods of a team `a-secrets`."""

_ANY_SUFFIX: Final = "-??????"
"""Secrets Manager ends each ARN in a hyphen and six characters of its own choice."""


def reader_arn(account: str, cluster: str, team: str) -> str:
    """ARN of the role that reads a team's secrets."""
    return f"arn:aws:iam::{account}:role/{role_name(cluster, team, OF)}"


def read_policy(account: str, region: str, names: Sequence[str]) -> Document:
    """A team's secrets and no other; no list, so names of other teams' secrets stay unknown."""
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
    """Only the controller becomes a team's reader. Its session has the tags of its pod, which go along."""
    return document(
        {
            "Sid": "ExternalSecrets",
            "Effect": "Allow",
            "Principal": {"AWS": controller_arn},
            "Action": ["sts:AssumeRole", "sts:TagSession"],
        }
    )


def assume_role_policy(readers: Sequence[str]) -> Document:
    """All that the controller itself may do: become the reader of one of the stack's teams."""
    return document(
        {
            "Sid": "BecomeReaders",
            "Effect": "Allow",
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Resource": list(readers),
        }
    )
