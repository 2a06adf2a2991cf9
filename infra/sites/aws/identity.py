"""AWS roles of teams' pods, one per team, through EKS Pod Identity."""

from __future__ import annotations

import json

import pulumi
from pulumi_aws import iam

from infra.domain import naming
from infra.sites.aws import bucket_access, pod_identity
from infra.sites.aws.bucket_access import TeamBuckets
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.policy_documents import role_name


class TeamIdentity(pulumi.ComponentResource):
    """The role, its permissions on the team's prefix of each bucket, and its association."""

    def __init__(
        self,
        name: str,
        team: str,
        cluster: ClusterRecord,
        buckets: TeamBuckets,
        key_arn: pulumi.Input[str],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Create it. `key_arn`: KMS key of the buckets."""
        super().__init__(naming.infra_type("AwsTeamIdentity"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        account = (naming.namespace(team), naming.SERVICE_ACCOUNT)
        role = pod_identity.role_of(
            f"{name}-role",
            cluster,
            account,
            f"Training pods of team {team}",
            own,
            name=role_name(cluster.name, team),
            tags={naming.TEAM: team},
        )
        used = (buckets.datasets, buckets.checkpoints, buckets.artifacts)
        key = pulumi.Output.from_input(key_arn).apply(
            lambda arn: json.dumps(bucket_access.key_use(arn, cluster.region, used))
        )
        objects = json.dumps(bucket_access.team_access(team, buckets))
        # Two policies, so that a preview shows the one whose resources are known.
        permissions = [
            iam.RolePolicy(f"{name}-{suffix}", name=suffix, role=role.name, policy=policy, opts=own)
            for suffix, policy in (("objects", objects), ("key", key))
        ]
        pod_identity.associate(f"{name}-association", cluster, account, role, permissions, self)
        self.role_arn = role.arn
        self.register_outputs({"roleArn": role.arn})
