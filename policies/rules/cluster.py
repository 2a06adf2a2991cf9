"""EKS: access entries, supported versions, and instance metadata out of reach of pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, mapping, number, show
from .resource_types import CLUSTER, CLUSTER_COMPONENT, LAUNCH_TEMPLATE, NODE_CLASS, NODE_GROUP

_MODES: Final = {
    CLUSTER: ("accessConfig", "authenticationMode"),
    CLUSTER_COMPONENT: ("authenticationMode",),
}
_METADATA_PATHS: Final = {
    LAUNCH_TEMPLATE: ("metadataOptions",),
    NODE_CLASS: ("spec", "metadataOptions"),
    "aws:ec2/instance:Instance": ("metadataOptions",),
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
            remedy="use one of them: stacks accept these, and pin node images and add-ons for each",
        )


def _metadata_violations(path: str, options: Any, most: int) -> Iterator[Violation]:
    tokens, hops = dig(options, "httpTokens"), dig(options, "httpPutResponseHopLimit")
    if tokens not in ("required", UNKNOWN):
        yield Violation(
            path=f"{path}.httpTokens",
            got=show(tokens),
            expected='"required"',
            remedy="set it: otherwise a forged request from a pod gets the node's credentials",
        )
    known = number(hops)
    if hops is not UNKNOWN and (known is None or known > most):
        yield Violation(
            path=f"{path}.httpPutResponseHopLimit",
            got=show(hops if known is None else int(known)),
            expected=f"at most {most}",
            remedy="lower it: pods are one hop further away and use Pod Identity instead",
        )


def _check_metadata(resource: Resource, config: Config) -> Iterable[Violation]:
    if resource.type == NODE_GROUP and not resource.props.get("launchTemplate"):
        yield Violation(
            path="launchTemplate",
            got="none",
            expected="a launch template of the stack",
            remedy="set one: in the default template of EKS, pods reach the node's metadata",
        )
    keys = _METADATA_PATHS.get(resource.type)
    if keys is None:
        return
    options = dig(resource.props, *keys)
    if mapping(options).get("httpEndpoint") != "disabled":
        yield from _metadata_violations(".".join(keys), options, config["maxHopLimit"])


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
            "default": ["1.34", "1.35", "1.36"],
            "description": "Allowed Kubernetes versions",
        }
    },
)

INSTANCE_METADATA: Final = ResourceRule(
    name="instance-metadata",
    description="Instance metadata requires a token and is not reachable from pods.",
    check=_check_metadata,
    schema={
        "maxHopLimit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2,
            "default": 1,
            "description": "Maximum hop limit; 2 allows pods without host network access",
        }
    },
)
