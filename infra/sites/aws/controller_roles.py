"""Roles of controllers in the cluster, one for each that the stack installs, and the log group of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, iam

from infra.domain import naming
from infra.sites.aws import pod_identity, run_log_access, secret_access
from infra.sites.aws.args import AwsStackArgs
from infra.sites.aws.outputs import ClusterRecord, component
from infra.sites.aws.policy_documents import Document, document, role_name


def deploy(
    name: str,
    args: AwsStackArgs,
    cluster: ClusterRecord,
    data_key_arn: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Deploy readers of secrets and signatures, and the log group of runs with its writer."""
    roles: list[pulumi.Resource] = []
    if args.remote_secrets:
        roles.append(secret_readers(f"{name}-secrets", cluster, args.remote_secrets, opts))
    if signed := args.signatures:
        key = signed.kms_key
        roles.append(signature_reader(f"{name}-signatures", cluster, args.registries, key, opts))
    if kept := args.run_logs:
        roles.append(
            run_logs(
                f"{name}-run-logs",
                cluster,
                args.log_shipper,
                data_key_arn,
                opts,
                retention_days=kept.retention_days,
                protect=args.protect,
            )
        )
    return roles


def secret_readers(
    name: str,
    cluster: ClusterRecord,
    secrets: Mapping[str, tuple[str, ...]],
    opts: pulumi.ResourceOptions,
) -> pulumi.Resource:
    """Create a role for External Secrets, and one per team that only the former assumes, and reads its secrets.

    `secrets`: names of secrets in Secrets Manager by team.
    """
    made = component("AwsSecretReaders", name, opts)
    own = pulumi.ResourceOptions(parent=made)
    arns = [secret_access.reader_arn(cluster.account, cluster.name, team) for team in secrets]
    controller = pod_identity.controller(
        name,
        cluster,
        (naming.EXTERNAL_SECRETS, naming.EXTERNAL_SECRETS),
        "External Secrets; reads nothing by itself",
        ("controller-readers", "readers", secret_access.assume_role_policy(arns)),
        own,
        role="controller",
    )
    for team, names in secrets.items():
        reader = iam.Role(
            f"{name}-{team}",
            name=role_name(cluster.name, team, secret_access.OF),
            description=f"Reads secrets of team {team}, for External Secrets",
            assume_role_policy=controller.arn.apply(
                lambda arn: json.dumps(secret_access.trust_policy(arn))
            ),
            tags={naming.TEAM: team},
            opts=own,
        )
        policy = secret_access.read_policy(cluster.account, cluster.region, names)
        iam.RolePolicy(
            f"{name}-{team}-secrets",
            name="secrets",
            role=reader.name,
            policy=json.dumps(policy),
            opts=own,
        )
    return made


def signature_reader(
    name: str,
    cluster: ClusterRecord,
    registries: Sequence[str],
    kms_key_arn: str | None,
    opts: pulumi.ResourceOptions,
) -> pulumi.Resource:
    """Create the role with which policy-controller reads signatures from the account's registries.

    `registries`: those, or repositories, of the teams' images; of those in other registries nothing is read here.
    `kms_key_arn`: the key that signs; None: signatures are keyless.
    """
    made = component("AwsSignatureReader", name, opts)
    read = read_policy(repository_arns(cluster.account, registries), kms_key_arn)
    pod_identity.controller(
        name,
        cluster,
        (naming.SIGNATURES_NAMESPACE, naming.SIGNATURES_ACCOUNT),
        "policy-controller; reads signatures of images",
        ("signatures", "signatures", read),
        pulumi.ResourceOptions(parent=made),
    )
    return made


def run_logs(
    name: str,
    cluster: ClusterRecord,
    shipper: tuple[str, str],
    key_arn: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
    *,
    retention_days: int,
    protect: bool,
) -> pulumi.Resource:
    """Create the CloudWatch log group of the cluster's runs, and the role that writes to it and goes before it.

    `shipper`: namespace and service account of the pods that write. `key_arn`: KMS key whose policy contains
    `run_log_access.key_statement`. `protect`: keep the group when the stack is destroyed.
    """
    made = component("AwsRunLogs", name, opts)
    group = cloudwatch.LogGroup(
        f"{name}-group",
        name=run_log_access.group_name(cluster.name),
        kms_key_id=key_arn,
        retention_in_days=retention_days,
        opts=pulumi.ResourceOptions(parent=made, retain_on_delete=protect),
    )
    cloudwatch.LogDataProtectionPolicy(
        f"{name}-masking",
        log_group_name=group.name,
        policy_document=json.dumps(run_log_access.data_protection_policy()),
        opts=pulumi.ResourceOptions(parent=made),
    )
    target = run_log_access.group_arn(cluster.account, cluster.region, cluster.name)
    pod_identity.controller(
        name,
        cluster,
        shipper,
        f"Appends to logs of runs of {cluster.name}",
        ("shipping", "run-logs", run_log_access.write_policy(target)),
        pulumi.ResourceOptions(parent=made, depends_on=[group]),
        role="shipper",
    )
    return made


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
