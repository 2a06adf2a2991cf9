"""Roles with which External Secrets reads each team's secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import iam

from infra.domain import naming
from infra.sites.aws import pod_identity, secret_access
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import role_name


@dataclass(frozen=True, kw_only=True)
class SecretReadersArgs:
    cluster: ClusterRecord
    secrets: Mapping[str, tuple[str, ...]]
    """Names of secrets in Secrets Manager by team."""


class SecretReaders(pulumi.ComponentResource):
    """A role for the controller, and one per team that only the controller can assume."""

    def __init__(self, name: str, args: SecretReadersArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsSecretReaders"), name, None, opts)
        controller = self._controller(name, args)
        for team, secrets in args.secrets.items():
            reader = iam.Role(
                f"{name}-{team}",
                name=role_name(args.cluster.name, team, secret_access.OF),
                description=f"Reads secrets of team {team}, for External Secrets",
                assume_role_policy=controller.arn.apply(
                    lambda arn: json.dumps(secret_access.trust_policy(arn))
                ),
                tags={naming.TEAM: team},
                opts=pulumi.ResourceOptions(parent=self),
            )
            iam.RolePolicy(
                f"{name}-{team}-secrets",
                name="secrets",
                role=reader.name,
                policy=json.dumps(
                    secret_access.read_policy(args.cluster.account, args.cluster.region, secrets)
                ),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})

    def _controller(self, name: str, args: SecretReadersArgs) -> iam.Role:
        own = pulumi.ResourceOptions(parent=self)
        cluster = args.cluster
        account = (naming.EXTERNAL_SECRETS, naming.EXTERNAL_SECRETS)
        description = "External Secrets; reads nothing by itself"
        role = pod_identity.role(f"{name}-controller", cluster, account, description, own)
        readers = [
            secret_access.reader_arn(cluster.account, cluster.name, team) for team in args.secrets
        ]
        policy = iam.RolePolicy(
            f"{name}-controller-readers",
            name="readers",
            role=role.name,
            policy=json.dumps(secret_access.assume_role_policy(readers)),
            opts=own,
        )
        pod_identity.associate(f"{name}-association", cluster, account, role, [policy], self)
        return role
