"""The CloudWatch log group of a cluster's runs, and the role that writes to it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch, iam

from infra.domain import naming
from infra.sites.aws import pod_identity, run_log_access
from infra.sites.aws.outputs import ClusterRecord


@dataclass(frozen=True, kw_only=True)
class RunLogsArgs:
    cluster: ClusterRecord
    shipper: tuple[str, str]
    """Namespace and service account of the pods that write to it."""
    key_arn: pulumi.Input[str]
    """KMS key whose policy contains `run_log_access.key_statement`."""
    retention_days: int
    """One of CloudWatch's values."""
    protect: bool
    """Keep the log group when the stack is destroyed."""


class RunLogs(pulumi.ComponentResource):
    """The group and its role, which is deleted before the group."""

    def __init__(self, name: str, args: RunLogsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(naming.infra_type("AwsRunLogs"), name, None, opts)
        own = pulumi.ResourceOptions(parent=self)
        cluster = args.cluster.name
        group = cloudwatch.LogGroup(
            f"{name}-group",
            name=run_log_access.group_name(cluster),
            kms_key_id=args.key_arn,
            retention_in_days=args.retention_days,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=args.protect),
        )
        cloudwatch.LogDataProtectionPolicy(
            f"{name}-masking",
            log_group_name=group.name,
            policy_document=json.dumps(run_log_access.data_protection_policy()),
            opts=own,
        )
        self._ship(name, args, group)
        self.register_outputs({"group": group.name})

    def _ship(self, name: str, args: RunLogsArgs, group: cloudwatch.LogGroup) -> None:
        own = pulumi.ResourceOptions(parent=self, depends_on=[group])
        cluster = args.cluster
        description = f"Appends to logs of runs of {cluster.name}"
        role = pod_identity.role(f"{name}-shipper", cluster, args.shipper, description, own)
        target = run_log_access.group_arn(cluster.account, cluster.region, cluster.name)
        policy = iam.RolePolicy(
            f"{name}-shipping",
            name="run-logs",
            role=role.name,
            policy=json.dumps(run_log_access.write_policy(target)),
            opts=own,
        )
        pod_identity.associate(
            f"{name}-association", args.cluster, args.shipper, role, [policy], self
        )
