"""The role with which policy-controller reads signatures from the account's registries."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import iam

from infra.domain import naming
from infra.sites.aws import pod_identity
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import Document, document


@dataclass(frozen=True, kw_only=True)
class SignatureReaderArgs:
    cluster: ClusterRecord
    registries: tuple[str, ...]
    """Registries or repositories of the teams' images; of those in other registries nothing is read here."""
    kms_key_arn: str | None
    """The key that signs; None: signatures are keyless."""


class SignatureReader(pulumi.ComponentResource):
    def __init__(self, name: str, args: SignatureReaderArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsSignatureReader"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        cluster = args.cluster
        account = (naming.SIGNATURES_NAMESPACE, naming.SIGNATURES_ACCOUNT)
        description = "policy-controller; reads signatures of images"
        role = pod_identity.role(f"{name}-role", cluster, account, description, own)
        document = read_policy(repository_arns(cluster.account, args.registries), args.kms_key_arn)
        policy = iam.RolePolicy(
            f"{name}-signatures",
            name="signatures",
            role=role.name,
            policy=json.dumps(document),
            opts=own,
        )
        pod_identity.associate(f"{name}-association", cluster, account, role, [policy], self)
        self.register_outputs({})


def repository_arns(account: str, registries: Sequence[str]) -> list[str]:
    """Return ARNs of the named repositories in the account's registries of any region; `/*` for a whole one."""
    found: list[str] = []
    for name in registries:
        host, _, path = name.partition("/")
        if at := re.fullmatch(rf"{account}\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com", host):
            arn = f"arn:aws:ecr:{at[1]}:{account}:repository"
            found += [f"{arn}/{path}", f"{arn}/{path}/*"] if path else [f"{arn}/*"]
    return found


def read_policy(repositories: Sequence[str], kms_key_arn: str | None) -> Document:
    """Return the policy to read signatures, which ECR stores with their images, and the public key, if any."""
    statements: list[dict[str, Any]] = [
        {
            "Sid": "LogInToRegistry",
            "Effect": "Allow",
            "Action": ["ecr:GetAuthorizationToken"],
            "Resource": "*",
        },
    ]
    if repositories:
        statements.append(
            {
                "Sid": "ReadSignatures",
                "Effect": "Allow",
                "Action": [
                    "ecr:BatchCheckLayerAvailability",
                    "ecr:BatchGetImage",
                    "ecr:DescribeImages",
                    "ecr:GetDownloadUrlForLayer",
                ],
                "Resource": list(repositories),
            }
        )
    if kms_key_arn:
        statements.append(
            {
                "Sid": "ReadPublicKey",
                "Effect": "Allow",
                "Action": ["kms:DescribeKey", "kms:GetPublicKey"],
                "Resource": kms_key_arn,
            }
        )
    return document(*statements)
