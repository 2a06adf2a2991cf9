"""AWS roles of teams' pods, one per team, through EKS Pod Identity."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import iam

from infra.domain import naming
from infra.sites.aws import bucket_access, pod_identity
from infra.sites.aws.bucket_access import TeamBuckets
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import role_name


@dataclass(frozen=True, kw_only=True)
class TeamIdentityArgs:
    team: str
    cluster: ClusterRecord
    buckets: TeamBuckets
    key_arn: pulumi.Input[str]
    """KMS key of the buckets."""


class TeamIdentity(pulumi.ComponentResource):
    """The role, its permissions on the team's prefix of each bucket, and its association."""

    def __init__(self, name: str, args: TeamIdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsTeamIdentity"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        account = (naming.namespace(args.team), naming.SERVICE_ACCOUNT)
        role = pod_identity.role(
            f"{name}-role",
            args.cluster,
            account,
            f"Training pods of team {args.team}",
            own,
            name=role_name(args.cluster.name, args.team),
            tags={naming.TEAM: args.team},
        )
        permissions = self._permissions(name, args, role)
        pod_identity.associate(
            f"{name}-association", args.cluster, account, role, permissions, self
        )
        self.role_arn = role.arn
        self.register_outputs({"roleArn": role.arn})

    def _permissions(
        self, name: str, args: TeamIdentityArgs, role: iam.Role
    ) -> list[pulumi.Resource]:
        buckets = (args.buckets.datasets, args.buckets.checkpoints, args.buckets.artifacts)
        key = pulumi.Output.from_input(args.key_arn).apply(
            lambda arn: json.dumps(bucket_access.key_use(arn, args.cluster.region, buckets))
        )
        objects = json.dumps(bucket_access.team_access(args.team, args.buckets))
        # Two policies, so that a preview shows the one whose resources are known.
        return [
            iam.RolePolicy(
                f"{name}-{suffix}",
                name=suffix,
                role=role.name,
                policy=policy,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for suffix, policy in (("objects", objects), ("key", key))
        ]
