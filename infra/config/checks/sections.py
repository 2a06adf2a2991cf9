"""Sections that a cluster on AWS needs, and that no other has a use for; who may do what in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.partial import UNKNOWN_ACCOUNT, PartialStack
from infra.config.errors import ConfigIssue, did_you_mean, one_of, shown
from infra.domain import catalog
from infra.domain.catalog import Architecture

_NEEDED: Final = {
    ("aws",): "region and account",
    ("network",): "cidr and zones, or existing",
    ("storage", "buckets"): "the buckets' prefix",
}
_AWS_ONLY: Final = (*_NEEDED, ("storage", "fsx"), ("storage", "efs"), ("interruption",))
_NO_AUTOSCALER: Final = (None, "none")


def _at(raw: dict[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = raw
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def check_aws_sections(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require the sections of a cluster on AWS; reject them elsewhere."""
    if parts.provider == "eks":
        for keys, allowed in _NEEDED.items():
            # A section that is missing as a whole is a mistake of its own.
            if _at(parts.raw, keys) is None and isinstance(_at(parts.raw, keys[:-1]), dict):
                yield ConfigIssue(
                    path=".".join(keys),
                    code="missing",
                    problem="missing",
                    valid=f"a cluster on AWS requires {allowed}",
                    action="add it",
                )
    elif parts.provider == "existing":
        foreign = [keys for keys in _AWS_ONLY if _at(parts.raw, keys) is not None]
        if parts.raw.get("autoscaler") not in _NO_AUTOSCALER:
            foreign.append(("autoscaler",))
        for keys in foreign:
            yield ConfigIssue(
                path=".".join(keys),
                code="aws-only",
                problem="not valid on an existing cluster",
                valid="requires cluster.provider: eks",
                action="remove it, or change the provider",
            )


def check_access_roles(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require access roles of the stack's account, each listed once."""
    if not parts.eks:
        return
    seen: dict[str, str] = {}
    for key in ("admins", "deployers", "viewers"):
        for index, arn in enumerate(getattr(parts.eks, key)):
            path = f"cluster.{key}[{index}]"
            account = arn.split(":")[4]
            if parts.aws and parts.aws.account not in (account, UNKNOWN_ACCOUNT):
                yield ConfigIssue(
                    path=path,
                    code="role-account",
                    problem=f"a role of account {account}",
                    valid=f"must be a role of account {parts.aws.account} (aws.account)",
                    action="name a role of that account, which people of other accounts may assume",
                )
            if arn in seen:
                yield ConfigIssue(
                    path=path,
                    code="duplicate",
                    problem=f"already listed as {seen[arn]}",
                    valid="roles must be unique: a cluster has one access entry per role",
                    action="remove one of them",
                )
            seen.setdefault(arn, path)


def check_system_nodes(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require CPU instance types for system nodes, and min <= max."""
    if not parts.eks:
        return
    nodes = parts.eks.system_nodes
    known = catalog.load().types
    cpu = [t.name for t in known.values() if not t.gpus and t.architecture is Architecture.AMD64]
    for index, name in enumerate(nodes.instance_types):
        if name not in cpu:
            gpus = " with GPUs" if name in known else ""
            yield ConfigIssue(
                path=f"cluster.systemNodes.instanceTypes[{index}]",
                code="system-node-type",
                problem=f"{shown(name)}{gpus} is not valid for system nodes",
                valid=f"must be one of {one_of(cpu)}",
                action=did_you_mean(
                    name, cpu, "choose one, or add it to infra/domain/catalog.yaml"
                ),
            )
    if nodes.min > nodes.max:
        yield ConfigIssue(
            path="cluster.systemNodes.min",
            code="min-above-max",
            problem=f"{nodes.min} exceeds max ({nodes.max})",
            valid="must be at most max",
            action="lower min or raise max",
        )
