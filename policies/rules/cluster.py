"""Instance metadata is out of reach of pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, mapping, number, show
from .resource_types import LAUNCH_TEMPLATE, NODE_CLASS, NODE_GROUP

_METADATA_PATHS: Final = {
    LAUNCH_TEMPLATE: ("metadataOptions",),
    NODE_CLASS: ("spec", "metadataOptions"),
    "aws:ec2/instance:Instance": ("metadataOptions",),
}


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
