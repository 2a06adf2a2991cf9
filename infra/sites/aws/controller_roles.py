"""Roles of controllers in the cluster, one for each that the stack installs."""

from __future__ import annotations

import pulumi

from infra.sites.aws.args import AwsStackArgs
from infra.sites.aws.outputs import ClusterRecord
from infra.sites.aws.run_logs import RunLogs, RunLogsArgs
from infra.sites.aws.secret_readers import SecretReaders, SecretReadersArgs
from infra.sites.aws.signature_reader import SignatureReader, SignatureReaderArgs


def deploy(
    name: str,
    args: AwsStackArgs,
    cluster: ClusterRecord,
    data_key_arn: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Deploy readers of secrets and signatures, and the log group of runs with its writer."""
    roles: list[pulumi.Resource] = []
    if secrets := args.remote_secrets:
        readers = SecretReadersArgs(cluster=cluster, secrets=secrets)
        roles.append(SecretReaders(f"{name}-secrets", readers, opts))
    if signed := args.signatures:
        reader = SignatureReaderArgs(
            cluster=cluster,
            registries=args.registries,
            kms_key_arn=signed.kms_key,
        )
        roles.append(SignatureReader(f"{name}-signatures", reader, opts))
    if kept := args.run_logs:
        logs = RunLogsArgs(
            cluster=cluster,
            shipper=args.log_shipper,
            key_arn=data_key_arn,
            retention_days=kept.retention_days,
            protect=args.protect,
        )
        roles.append(RunLogs(f"{name}-run-logs", logs, opts))
    return roles
