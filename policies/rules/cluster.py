"""The EKS cluster: who may enter it is state of AWS, and its version is one that is maintained."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, show
from .resource_types import CLUSTER, CLUSTER_COMPONENT, NODE_GROUP

_MODES: Final = {
    CLUSTER: ("accessConfig", "authenticationMode"),
    CLUSTER_COMPONENT: ("authenticationMode",),
}


def _hidden(resource: Resource) -> bool:
    """Whether it is a component without visible inputs, whose child cluster is checked instead."""
    return resource.type == CLUSTER_COMPONENT and not resource.props


def _check_mode(resource: Resource, _: Config) -> Iterable[Violation]:
    keys = _MODES.get(resource.type)
    if keys is None or _hidden(resource):
        return
    mode = dig(resource.props, *keys)
    if mode in (None, "CONFIG_MAP"):
        yield Violation(
            path=".".join(keys),
            got="none (default CONFIG_MAP)" if mode is None else show(mode),
            expected='"API"',
            remedy="set it: otherwise edit rights on the ConfigMap aws-auth grant cluster administration",
        )


def _check_version(resource: Resource, config: Config) -> Iterable[Violation]:
    if resource.type not in (*_MODES, NODE_GROUP) or _hidden(resource):
        return
    version = resource.props.get("version")
    # A node group without a version uses its cluster's.
    if version is UNKNOWN or (version is None and resource.type == NODE_GROUP):
        return
    if version not in config["versions"]:
        yield Violation(
            path="version",
            got=show(version),
            expected=", ".join(config["versions"]),
            remedy="use one of them: the platform is tested on these, and EKS supports them",
        )


EKS_ACCESS_ENTRIES: Final = ResourceRule(
    name="eks-access-entries",
    description="Cluster access is granted by access entries, not by the ConfigMap aws-auth.",
    check=_check_mode,
)

EKS_VERSION: Final = ResourceRule(
    name="eks-version",
    description="Control plane and nodes run a supported Kubernetes version.",
    check=_check_version,
    schema={
        "versions": {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "default": ["1.33", "1.34", "1.35"],
            "description": "Allowed Kubernetes versions",
        }
    },
)
