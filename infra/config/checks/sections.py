"""Sections that a cluster on AWS needs, and that no other has a use for; who may do what in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.parts import UNKNOWN_ACCOUNT, Parts
from infra.config.mistakes import Mistake, did_you_mean, one_of, shown
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


def sections(parts: Parts) -> Iterator[Mistake]:
    """The sections of the provider are there, and no other's."""
    if parts.provider == "eks":
        for keys, allowed in _NEEDED.items():
            # A section that is missing as a whole is a mistake of its own.
            if _at(parts.raw, keys) is None and isinstance(_at(parts.raw, keys[:-1]), dict):
                yield Mistake(path=".".join(keys), got="nothing", allowed=allowed, remedy="add it")
    elif parts.provider == "existing":
        foreign = [keys for keys in _AWS_ONLY if _at(parts.raw, keys) is not None]
        if parts.raw.get("autoscaler") not in _NO_AUTOSCALER:
            foreign.append(("autoscaler",))
        for keys in foreign:
            yield Mistake(
                path=".".join(keys),
                got="what only a cluster on AWS has",
                allowed="it where cluster.provider is eks",
                remedy="remove it, or change the provider",
            )


def accounts(parts: Parts) -> Iterator[Mistake]:
    """Roles are of the stack's own account, and each has one place."""
    if not parts.eks:
        return
    seen: dict[str, str] = {}
    for key in ("admins", "deployers", "viewers"):
        for index, arn in enumerate(getattr(parts.eks, key)):
            path = f"cluster.{key}[{index}]"
            account = arn.split(":")[4]
            if parts.aws and parts.aws.account not in (account, UNKNOWN_ACCOUNT):
                yield Mistake(
                    path=path,
                    got=f"a role of account {account}",
                    allowed=f"roles of account {parts.aws.account}, which aws.account names",
                    remedy="name a role of that account, which people of others may assume",
                )
            if arn in seen:
                yield Mistake(
                    path=path,
                    got=f"a role that {seen[arn]} has, too",
                    allowed="each role once, for a cluster has one access entry for it",
                    remedy="remove one of them",
                )
            seen.setdefault(arn, path)


def system_nodes(parts: Parts) -> Iterator[Mistake]:
    """System nodes are of CPU types, and min <= max."""
    if not parts.eks:
        return
    nodes = parts.eks.system_nodes
    known = catalog.load().types
    cpu = [t.name for t in known.values() if not t.gpus and t.architecture is Architecture.AMD64]
    for index, name in enumerate(nodes.instance_types):
        if name not in cpu:
            gpus = " with GPUs" if name in known else ""
            yield Mistake(
                path=f"cluster.systemNodes.instanceTypes[{index}]",
                got=f"{shown(name)}{gpus}",
                allowed=one_of(cpu),
                remedy=did_you_mean(
                    name, cpu, "choose one, or add it to infra/domain/catalog.yaml"
                ),
            )
    if nodes.min > nodes.max:
        yield Mistake(
            path="cluster.systemNodes.min",
            got=str(nodes.min),
            allowed=f"at most max, {nodes.max}",
            remedy="lower min or raise max",
        )
