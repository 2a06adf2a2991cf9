"""Access roles and system nodes of a cluster on EKS."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from infra.config.model import StackConfig
from infra.config.rules.aws import check_role_account
from infra.domain import catalog
from infra.domain.catalog import Architecture
from infra.sections.cluster import EksClusterConfig
from infra.sections.errors import ConfigIssue, did_you_mean, issue, one_of, shown


def access_roles(cluster: EksClusterConfig | None) -> Iterator[tuple[str, str]]:
    for key in ("admins", "deployers", "viewers", "drift_detectors"):
        for index, arn in enumerate(getattr(cluster, key) if cluster else ()):
            yield f"cluster.{to_camel(key)}[{index}]", arn


def check_access_roles(stack: StackConfig) -> Iterator[ConfigIssue]:
    seen: dict[str, str] = {}
    for path, arn in access_roles(stack.eks):
        yield from check_role_account(stack, path, arn)
        if arn in seen:
            yield issue(
                "duplicate",
                path,
                f"already listed as {seen[arn]}",
                "roles must be unique: a cluster has one access entry per role",
                "remove one of them",
            )
        seen.setdefault(arn, path)


def check_system_nodes(stack: StackConfig) -> Iterator[ConfigIssue]:
    if stack.eks is None:
        return
    nodes, known = stack.eks.system_nodes, catalog.load().types
    cpu = [t.name for t in known.values() if not t.gpus and t.architecture is Architecture.AMD64]
    for index, name in enumerate(nodes.instance_types):
        if name not in cpu:
            gpus = " with GPUs" if name in known else ""
            otherwise = "choose one, or add it to infra/domain/catalog.yaml"
            yield issue(
                "system-node-type",
                f"cluster.systemNodes.instanceTypes[{index}]",
                f"{shown(name)}{gpus} is not valid for system nodes",
                f"must be one of {one_of(cpu)}",
                did_you_mean(name, cpu, otherwise),
            )
    if nodes.min > nodes.max:
        yield issue(
            "min-above-max",
            "cluster.systemNodes.min",
            f"{nodes.min} exceeds max ({nodes.max})",
            "must be at most max",
            "lower min or raise max",
        )
