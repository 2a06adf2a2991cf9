"""Conversion of the stack file to the log shipper's arguments."""

from __future__ import annotations

from infra.addons import fluent_bit, kube_prometheus_stack
from infra.addons.fluent_bit import (
    CloudWatch,
    Destination,
    FluentBitArgs,
    Http,
    Loki,
)
from infra.config import platform_record
from infra.config.model import StackConfig
from infra.config.sections.logs import CloudWatchConfig
from infra.domain import naming
from infra.sites.aws import run_log_access


def shipper(config: StackConfig) -> FluentBitArgs:
    """Return the arguments of the release that the stack installs."""
    tolerations = [toleration for pool in config.pools for toleration in pool.tolerations()]
    return FluentBitArgs(
        namespaces=_namespaces(config),
        destination=_destination(config),
        tolerations=tuple(t for i, t in enumerate(tolerations) if t not in tolerations[:i]),
        monitored=kube_prometheus_stack.NAME in platform_record.present_operators(config),
    )


def log_group(config: StackConfig) -> CloudWatchConfig | None:
    """Return the log group that the stack creates on AWS; None where logs go elsewhere."""
    if config.on_aws is None or fluent_bit.NAME not in platform_record.to_install(config):
        return None
    return config.logs.cloudwatch if config.logs else CloudWatchConfig()


def _namespaces(config: StackConfig) -> tuple[str, ...]:
    teams = tuple(naming.namespace(team.name) for team in config.teams)
    return (*teams, naming.VALIDATION_NAMESPACE) if config.validation else teams


def _destination(config: StackConfig) -> Destination:
    if config.on_aws and log_group(config):
        group = run_log_access.group_name(config.cluster.name)
        return CloudWatch(region=config.on_aws.aws.region, group=group)
    assert config.logs is not None
    if loki := config.logs.loki:
        return Loki(endpoint=loki.endpoint, tenant=loki.tenant or "")
    assert config.logs.http is not None
    return Http(endpoint=config.logs.http.endpoint)
